//! Requests of any bytes, from the wire to what they do to the store.
//!
//! Promised (`kvserver`, `mvcc`): an error or an answer; what is accepted is
//! encoded and decoded without a change, and applied without a panic, the same
//! way by two members.

use bytes::Bytes;
use kvserver::fuzzing::{Method, Taken, take};
use mvcc::{Command, Config, MemoryBackend, Proposal, StateMachine};
use prost::Message;
use proto::etcdserverpb as pb;

use super::draw::Draw;

/// The most requests one input makes.
const REQUESTS_MAX: usize = 16;
const TXN_OPS_MAX: usize = 16;

const METHODS: [Method; 7] = [
    Method::Range,
    Method::Put,
    Method::DeleteRange,
    Method::Txn,
    Method::Compact,
    Method::LeaseGrant,
    Method::LeaseRevoke,
];

/// Sends requests to two machines, which must agree.
pub fn request(input: &[u8]) {
    let mut draw = Draw::new(input);
    let open = || StateMachine::open(Box::new(MemoryBackend::new()), Config::default());
    let mut one = open().expect("no rows are good rows");
    let mut two = open().expect("no rows are good rows");
    for index in 1..=REQUESTS_MAX as u64 {
        if draw.is_empty() {
            break;
        }
        let method = METHODS[draw.below(METHODS.len())];
        let bytes = match draw.byte() % 4 {
            0 => {
                let len = draw.below(256);
                draw.bytes(len).to_vec()
            }
            kind => {
                let mut bytes = message(method, &mut draw, 0);
                if kind == 1 {
                    draw.damage(&mut bytes);
                }
                bytes
            }
        };
        match take(method, &bytes, TXN_OPS_MAX) {
            Taken::Undecodable | Taken::Refused(_) => {}
            Taken::Range(range) => {
                assert_eq!(one.range(&range), two.range(&range));
            }
            Taken::Command(command) => agree(&mut one, &mut two, index, command),
        }
        others(draw.byte(), &bytes);
    }
}

fn agree(one: &mut StateMachine, two: &mut StateMachine, index: u64, command: Command) {
    let proposal = Proposal {
        id: index,
        since: Some(index - 1),
        identity: None,
        command,
    };
    let encoded = proposal.encode();
    let decoded = Proposal::decode(encoded).expect("what was encoded is decoded");
    assert_eq!(decoded, proposal);
    let first = one.apply(index, 1, proposal).expect("memory has no faults");
    let second = two.apply(index, 1, decoded).expect("memory has no faults");
    assert_eq!(first.result, second.result);
    assert_eq!(one.revision(), two.revision());
}

/// Log entries and the messages that carry no data: decoding them must end.
fn others(kind: u8, bytes: &[u8]) {
    drop(Proposal::decode(Bytes::copy_from_slice(bytes)));
    drop(member::decode_entry(Bytes::copy_from_slice(bytes)));
    drop(member::decode_hard_state(bytes));
    match kind % 6 {
        0 => drop(pb::WatchRequest::decode(bytes)),
        1 => drop(pb::AlarmRequest::decode(bytes)),
        2 => drop(pb::AuthRoleGrantPermissionRequest::decode(bytes)),
        3 => drop(pb::MemberAddRequest::decode(bytes)),
        4 => drop(pb::AuthUserAddRequest::decode(bytes)),
        _ => drop(pb::DowngradeRequest::decode(bytes)),
    }
}

fn key(draw: &mut Draw<'_>) -> Bytes {
    match draw.byte() % 8 {
        0 => Bytes::new(),
        1 => Bytes::from_static(b"\0"),
        2 => {
            let len = draw.below(8);
            Bytes::copy_from_slice(draw.bytes(len))
        }
        letter => Bytes::from(vec![b'a' + letter]),
    }
}

fn number(draw: &mut Draw<'_>) -> i64 {
    match draw.byte() % 8 {
        0 => draw.long() as i64,
        1 => i64::MAX,
        2 => i64::MIN,
        small => i64::from(small) - 3,
    }
}

fn range(draw: &mut Draw<'_>) -> pb::RangeRequest {
    pb::RangeRequest {
        key: key(draw),
        range_end: key(draw),
        limit: number(draw),
        revision: number(draw),
        sort_order: i32::from(draw.byte() % 4),
        sort_target: i32::from(draw.byte() % 6),
        serializable: draw.byte().is_multiple_of(2),
        keys_only: draw.byte().is_multiple_of(4),
        count_only: draw.byte().is_multiple_of(4),
        min_mod_revision: number(draw) % 8,
        max_mod_revision: number(draw) % 8,
        min_create_revision: 0,
        max_create_revision: number(draw) % 8,
    }
}

fn put(draw: &mut Draw<'_>) -> pb::PutRequest {
    pb::PutRequest {
        key: key(draw),
        value: key(draw),
        lease: number(draw) % 4,
        prev_kv: draw.byte().is_multiple_of(2),
        ignore_value: draw.byte().is_multiple_of(8),
        ignore_lease: draw.byte().is_multiple_of(8),
    }
}

fn delete(draw: &mut Draw<'_>) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest {
        key: key(draw),
        range_end: key(draw),
        prev_kv: draw.byte().is_multiple_of(2),
    }
}

fn compare(draw: &mut Draw<'_>) -> pb::Compare {
    use pb::compare::TargetUnion;
    let target_union = match draw.byte() % 6 {
        0 => Some(TargetUnion::Version(number(draw))),
        1 => Some(TargetUnion::CreateRevision(number(draw))),
        2 => Some(TargetUnion::ModRevision(number(draw))),
        3 => Some(TargetUnion::Value(key(draw))),
        4 => Some(TargetUnion::Lease(number(draw))),
        _ => None,
    };
    pb::Compare {
        result: i32::from(draw.byte() % 5),
        target: i32::from(draw.byte() % 6),
        key: key(draw),
        range_end: key(draw),
        target_union,
    }
}

fn txn(draw: &mut Draw<'_>, depth: usize) -> pb::TxnRequest {
    use pb::request_op::Request;
    let ops = |draw: &mut Draw<'_>| {
        (0..draw.below(4))
            .map(|_| {
                let request = match draw.byte() % 6 {
                    0 => None,
                    1 => Some(Request::RequestRange(range(draw))),
                    2 | 3 => Some(Request::RequestPut(put(draw))),
                    4 if depth < 4 => Some(Request::RequestTxn(txn(draw, depth + 1))),
                    _ => Some(Request::RequestDeleteRange(delete(draw))),
                };
                pb::RequestOp { request }
            })
            .collect()
    };
    let success = ops(draw);
    let failure = ops(draw);
    let compare = (0..draw.below(3)).map(|_| compare(draw)).collect();
    pb::TxnRequest {
        compare,
        success,
        failure,
    }
}

fn message(method: Method, draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    match method {
        Method::Range => range(draw).encode_to_vec(),
        Method::Put => put(draw).encode_to_vec(),
        Method::DeleteRange => delete(draw).encode_to_vec(),
        Method::Txn => txn(draw, depth).encode_to_vec(),
        Method::Compact => pb::CompactionRequest {
            revision: number(draw),
            physical: draw.byte().is_multiple_of(2),
        }
        .encode_to_vec(),
        Method::LeaseGrant => pb::LeaseGrantRequest {
            ttl: number(draw),
            id: number(draw) % 4,
        }
        .encode_to_vec(),
        Method::LeaseRevoke => pb::LeaseRevokeRequest {
            id: number(draw) % 4,
        }
        .encode_to_vec(),
    }
}
