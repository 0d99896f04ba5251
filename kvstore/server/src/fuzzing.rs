//! What the fuzz targets drive, and benches: from a request's bytes to the command it
//! asks for, as the edge goes but without a server; from a watch reply to its bytes;
//! and [`Door`], the edge itself without a socket. Not part of what the crate offers.

mod door;

use bytes::{BufMut, Bytes};
use mvcc::{
    Command, CompactRequest, Error, LeaseGrantRequest, LeaseRevokeRequest, check, watch::WatchReply,
};
use prost::Message;
use proto::etcdserverpb as pb;

use crate::grpc::{convert, watch_codec::WatchMessage};

pub use self::door::{Door, DoorError, Hangs};
pub use crate::gateway::read_twice as json_twice;

/// What became of a request.
#[derive(Debug)]
pub enum Taken {
    /// The bytes are no such message.
    Undecodable,
    /// It was refused by its looks.
    Refused(Error),
    /// It reads.
    Range(mvcc::RangeRequest),
    /// It would be proposed.
    Command(Command),
}

/// Reads a request of one of the methods that carry data.
pub fn take(method: Method, bytes: &[u8], max_txn_ops: usize) -> Taken {
    match read(method, bytes, max_txn_ops) {
        Ok(taken) => taken,
        Err(Failure::Decode) => Taken::Undecodable,
        Err(Failure::Refuse(error)) => Taken::Refused(error),
    }
}

/// Writes what a watcher is sent, in one message.
pub fn watch_bytes(reply: WatchReply, out: &mut impl BufMut) {
    let header = pb::ResponseHeader {
        revision: reply.revision,
        ..pb::ResponseHeader::default()
    };
    for message in WatchMessage::of_reply(reply, header, usize::MAX) {
        message.write(out);
    }
}

/// The methods [`take`] knows.
#[derive(Clone, Copy, Debug)]
pub enum Method {
    /// KV.Range.
    Range,
    /// KV.Put.
    Put,
    /// KV.DeleteRange.
    DeleteRange,
    /// KV.Txn.
    Txn,
    /// KV.Compact.
    Compact,
    /// Lease.LeaseGrant.
    LeaseGrant,
    /// Lease.LeaseRevoke.
    LeaseRevoke,
}

enum Failure {
    Decode,
    Refuse(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refuse(error)
    }
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, Failure> {
    // Copied: what is decoded shares the buffer, as it does behind a socket.
    M::decode(Bytes::copy_from_slice(bytes)).map_err(|_malformed| Failure::Decode)
}

fn read(method: Method, bytes: &[u8], max_txn_ops: usize) -> Result<Taken, Failure> {
    let command = match method {
        Method::Range => {
            let range = convert::range(decode(bytes)?)?;
            check::check_range(&range)?;
            return Ok(Taken::Range(range));
        }
        Method::Put => {
            let put = convert::put(decode(bytes)?);
            check::check_put(&put)?;
            Command::Put(put)
        }
        Method::DeleteRange => {
            let delete = convert::delete_range(decode(bytes)?);
            check::check_delete_range(&delete)?;
            Command::DeleteRange(delete)
        }
        Method::Txn => {
            let txn = convert::txn(decode(bytes)?, max_txn_ops)?;
            check::check_txn(&txn, max_txn_ops)?;
            Command::Txn(txn)
        }
        Method::Compact => {
            let pb::CompactionRequest { revision, physical } = decode(bytes)?;
            Command::Compact(CompactRequest { revision, physical })
        }
        Method::LeaseGrant => {
            let pb::LeaseGrantRequest { ttl, id } = decode(bytes)?;
            Command::LeaseGrant(LeaseGrantRequest { id, ttl })
        }
        Method::LeaseRevoke => {
            let pb::LeaseRevokeRequest { id } = decode(bytes)?;
            Command::LeaseRevoke(LeaseRevokeRequest { id })
        }
    };
    Ok(Taken::Command(command))
}
