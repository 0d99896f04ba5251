//! Requests and answers as they are recorded, as etcd's messages.

use std::time::Duration;

use bytes::Bytes;
use checkers::history as h;
use checkers::history::{Blob, Body, Outcome, Refusal, Request};
use proto::{etcdserverpb as pb, mvccpb, v3lockpb};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

/// A token, as a request carries it.
pub(super) type Token = MetadataValue<tonic::metadata::Ascii>;

/// The largest answer taken.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Asks once, and says what came of it. What was not answered in time may have
/// happened.
pub(super) async fn ask(
    channel: &Channel,
    token: Option<&Token>,
    request: &Request,
    patience: Duration,
) -> Outcome {
    let told = match tokio::time::timeout(patience, call(channel, token, request)).await {
        Ok(told) => told,
        Err(_elapsed) => Err(Status::deadline_exceeded("no answer in time")),
    };
    match told {
        Ok(reply) => Outcome::Ok(reply),
        Err(status) => refused(&status, reads_only(request)),
    }
}

/// Puts a token into a request.
fn with<T>(message: T, token: Option<&Token>) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token.clone());
    }
    request
}

/// Calls what the request is for, and boxes what is large.
#[allow(clippy::too_many_lines, reason = "a table: one arm a request")]
async fn call(
    channel: &Channel,
    token: Option<&Token>,
    request: &Request,
) -> Result<h::Reply, Status> {
    use pb::{kv_client::KvClient, lease_client::LeaseClient};
    let kv = || KvClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
    let leases = || LeaseClient::new(channel.clone());
    match request {
        Request::Range(r) => {
            let told = kv().range(with(range(r), token)).await?.into_inner();
            Ok(reply(told.header.as_ref(), body_of_range(&told)))
        }
        Request::Put(p) => {
            let told = kv().put(with(put(p), token)).await?.into_inner();
            let prev = told.prev_kv.as_ref().map(|kv| Box::new(pair(kv)));
            Ok(reply(told.header.as_ref(), Body::Put { prev }))
        }
        Request::Delete(d) => {
            let told = kv().delete_range(with(delete(d), token)).await?;
            let told = told.into_inner();
            Ok(reply(told.header.as_ref(), body_of_delete(&told)))
        }
        Request::Txn(t) => {
            let told = kv().txn(with(txn(t), token)).await?.into_inner();
            let header = told.header;
            Ok(reply(header.as_ref(), body_of_txn(&told)))
        }
        Request::Compact { revision } => {
            let message = pb::CompactionRequest {
                revision: *revision,
                physical: false,
            };
            let told = kv().compact(with(message, token)).await?.into_inner();
            Ok(reply(told.header.as_ref(), Body::Done))
        }
        Request::Grant { id, ttl } => {
            let message = pb::LeaseGrantRequest { id: *id, ttl: *ttl };
            let told = leases().lease_grant(with(message, token)).await?;
            let told = told.into_inner();
            let (id, ttl) = (told.id, told.ttl);
            Ok(reply(told.header.as_ref(), Body::Lease { id, ttl }))
        }
        Request::Revoke { id } => {
            let message = pb::LeaseRevokeRequest { id: *id };
            let told = leases().lease_revoke(with(message, token)).await?;
            Ok(reply(told.into_inner().header.as_ref(), Body::Done))
        }
        Request::TimeToLive { id } => {
            let message = pb::LeaseTimeToLiveRequest {
                id: *id,
                keys: false,
            };
            let told = leases().lease_time_to_live(with(message, token)).await?;
            let told = told.into_inner();
            let (id, ttl) = (told.id, told.ttl);
            Ok(reply(told.header.as_ref(), Body::Lease { id, ttl }))
        }
        Request::KeepAlive { id } => keep_alive(leases(), token, *id).await,
        Request::Lock { name, lease } => {
            let message = v3lockpb::LockRequest {
                name: name.0.clone(),
                lease: *lease,
            };
            let mut client = v3lockpb::lock_client::LockClient::new(channel.clone());
            let told = client.lock(with(message, token)).await?.into_inner();
            let key = Blob(copied(&told.key));
            Ok(reply(told.header.as_ref(), Body::Lock { key }))
        }
        Request::Unlock { key } => {
            let message = v3lockpb::UnlockRequest { key: key.0.clone() };
            let mut client = v3lockpb::lock_client::LockClient::new(channel.clone());
            let told = client.unlock(with(message, token)).await?;
            Ok(reply(told.into_inner().header.as_ref(), Body::Done))
        }
        Request::Auth(change) => super::authority::change(channel, token, change).await,
    }
}

/// Renews once, on a stream of its own.
async fn keep_alive(
    mut client: pb::lease_client::LeaseClient<Channel>,
    token: Option<&Token>,
    id: h::LeaseId,
) -> Result<h::Reply, Status> {
    let messages = tokio_stream::once(pb::LeaseKeepAliveRequest { id });
    let told: Response<_> = client.lease_keep_alive(with(messages, token)).await?;
    let told = told.into_inner().message().await?;
    let told = told.ok_or_else(|| Status::unavailable("the stream ended"))?;
    let (id, ttl) = (told.id, told.ttl);
    Ok(reply(told.header.as_ref(), Body::Lease { id, ttl }))
}

pub(super) fn reply(header: Option<&pb::ResponseHeader>, body: Body) -> h::Reply {
    let revision = header.map_or(0, |h| h.revision);
    h::Reply { revision, body }
}

/// Copies what is kept: an answer's bytes are slices of its whole receive buffer.
fn copied(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

pub(super) fn pair(kv: &mvccpb::KeyValue) -> h::Kv {
    h::Kv {
        key: Blob(copied(&kv.key)),
        value: Blob(copied(&kv.value)),
        create: kv.create_revision,
        modified: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
    }
}

fn range(r: &h::Range) -> pb::RangeRequest {
    pb::RangeRequest {
        key: r.key.0.clone(),
        range_end: r.end.0.clone(),
        limit: r.limit,
        revision: r.revision,
        serializable: r.serializable,
        keys_only: r.keys_only,
        count_only: r.count_only,
        ..pb::RangeRequest::default()
    }
}

fn put(p: &h::Put) -> pb::PutRequest {
    pb::PutRequest {
        key: p.key.0.clone(),
        value: p.value.0.clone(),
        lease: p.lease,
        prev_kv: p.prev_kv,
        ignore_value: p.ignore_value,
        ignore_lease: p.ignore_lease,
    }
}

fn delete(d: &h::Delete) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest {
        key: d.key.0.clone(),
        range_end: d.end.0.clone(),
        prev_kv: d.prev_kv,
    }
}

fn txn(t: &h::Txn) -> pb::TxnRequest {
    let ops = |ops: &[h::TxnOp]| ops.iter().map(op).collect();
    pb::TxnRequest {
        compare: t.compare.iter().map(compare).collect(),
        success: ops(&t.success),
        failure: ops(&t.failure),
    }
}

fn op(op: &h::TxnOp) -> pb::RequestOp {
    use pb::request_op::Request as Op;
    let request = match op {
        h::TxnOp::Range(r) => Op::RequestRange(range(r)),
        h::TxnOp::Put(p) => Op::RequestPut(put(p)),
        h::TxnOp::Delete(d) => Op::RequestDeleteRange(delete(d)),
        h::TxnOp::Txn(t) => Op::RequestTxn(txn(t)),
    };
    pb::RequestOp {
        request: Some(request),
    }
}

fn compare(c: &h::Compare) -> pb::Compare {
    use pb::compare::{CompareResult, CompareTarget, TargetUnion};
    let (target, union) = match &c.to {
        h::Target::Version(v) => (CompareTarget::Version, TargetUnion::Version(*v)),
        h::Target::Create(v) => (CompareTarget::Create, TargetUnion::CreateRevision(*v)),
        h::Target::Mod(v) => (CompareTarget::Mod, TargetUnion::ModRevision(*v)),
        h::Target::Value(v) => (CompareTarget::Value, TargetUnion::Value(v.0.clone())),
        h::Target::Lease(v) => (CompareTarget::Lease, TargetUnion::Lease(*v)),
    };
    let result = match c.is {
        h::Is::Equal => CompareResult::Equal,
        h::Is::NotEqual => CompareResult::NotEqual,
        h::Is::Greater => CompareResult::Greater,
        h::Is::Less => CompareResult::Less,
    };
    pb::Compare {
        result: result.into(),
        target: target.into(),
        key: c.key.0.clone(),
        range_end: c.end.0.clone(),
        target_union: Some(union),
    }
}

fn body_of_range(told: &pb::RangeResponse) -> Body {
    Body::Range {
        kvs: told.kvs.iter().map(pair).collect(),
        count: told.count,
        more: told.more,
    }
}

fn body_of_delete(told: &pb::DeleteRangeResponse) -> Body {
    Body::Delete {
        deleted: told.deleted,
        prev: told.prev_kvs.iter().map(pair).collect(),
    }
}

fn body_of_txn(told: &pb::TxnResponse) -> Body {
    use pb::response_op::Response as Op;
    let result = |op: &pb::ResponseOp| match &op.response {
        Some(Op::ResponseRange(range)) => body_of_range(range),
        Some(Op::ResponsePut(put)) => Body::Put {
            prev: put.prev_kv.as_ref().map(|kv| Box::new(pair(kv))),
        },
        Some(Op::ResponseDeleteRange(delete)) => body_of_delete(delete),
        Some(Op::ResponseTxn(txn)) => body_of_txn(txn),
        None => Body::Done,
    };
    Body::Txn {
        succeeded: told.succeeded,
        results: told.responses.iter().map(result).collect(),
    }
}

/// Says whether a request changes nothing, so that without an answer it did not
/// happen for all anybody can tell.
fn reads_only(request: &Request) -> bool {
    let only = |ops: &[h::TxnOp]| ops.iter().all(|op| matches!(op, h::TxnOp::Range(_)));
    match request {
        Request::Range(_) | Request::TimeToLive { .. } => true,
        Request::Txn(txn) => only(&txn.success) && only(&txn.failure),
        _ => false,
    }
}

/// Sorts errors into those that say "it did not happen" and those that say nothing.
/// The words are etcd's (`api/v3rpc/rpctypes/error.go`).
pub(super) fn refused(status: &Status, reads_only: bool) -> Outcome {
    let said = status.message();
    let refusal = match status.code() {
        Code::OutOfRange if said.contains("compacted") => Refusal::Compacted,
        Code::OutOfRange if said.contains("future revision") => Refusal::FutureRevision,
        Code::NotFound if said.contains("lease not found") => Refusal::LeaseNotFound,
        Code::FailedPrecondition if said.contains("lease already exists") => Refusal::LeaseExists,
        Code::InvalidArgument if said.contains("key not found") => Refusal::KeyNotFound,
        Code::PermissionDenied => Refusal::Denied,
        Code::Unauthenticated => Refusal::Unauthenticated,
        Code::InvalidArgument
            if said.contains("user name is empty") || said.contains("revision of auth") =>
        {
            Refusal::Unauthenticated
        }
        Code::InvalidArgument | Code::FailedPrecondition | Code::ResourceExhausted => {
            Refusal::Other(said.into())
        }
        // No connection was made, so nothing was asked.
        Code::Unavailable if never_sent(status) => Refusal::Other("not connected".into()),
        _ if reads_only => Refusal::Other(format!("{:?}: {said}", status.code()).into()),
        _ => return Outcome::Info(format!("{:?}: {said}", status.code()).into()),
    };
    Outcome::Fail(refusal)
}

/// Looks for the failure to connect among the causes of an error.
fn never_sent(status: &Status) -> bool {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(status);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_happened_is_not_called_a_failure() {
        let outcome = |code, said: &str| refused(&Status::new(code, said), false);
        let info = |outcome| matches!(outcome, Outcome::Info(_));
        assert!(info(outcome(
            Code::Unavailable,
            "etcdserver: leader changed"
        )));
        assert!(info(outcome(
            Code::Unavailable,
            "etcdserver: request timed out"
        )));
        assert!(info(outcome(Code::DeadlineExceeded, "no answer in time")));
        assert!(info(outcome(Code::Unknown, "h2 protocol error")));
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(
            outcome(Code::OutOfRange, compacted),
            Outcome::Fail(Refusal::Compacted)
        );
        assert_eq!(
            outcome(Code::NotFound, "etcdserver: requested lease not found"),
            Outcome::Fail(Refusal::LeaseNotFound)
        );
        assert!(!info(outcome(
            Code::ResourceExhausted,
            "etcdserver: too many requests"
        )));
        // A read without an answer changed nothing.
        let read = refused(&Status::unavailable("x"), true);
        assert!(matches!(read, Outcome::Fail(Refusal::Other(_))));
    }
}
