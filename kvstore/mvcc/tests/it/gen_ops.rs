//! What the property tests do to a store, at random.

use bytes::Bytes;
use mvcc::*;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Apply(Command),
    Repeat,
    Range(RangeRequest),
    Take(usize),
    Done,
    CompactStep(usize),
    CompactAll,
    Restart(bool),
    /// Take a view.
    View,
    /// Read on in a view: which one, and so many changes.
    Look(usize, usize),
    /// Read all the rest of a view and let go of it.
    Drop(usize),
    /// Let go of all views, which may still be read.
    Expire,
}

pub(crate) fn key() -> impl Strategy<Value = Bytes> {
    prop_oneof![3 => "[a-c]", 2 => "[a-c][a-c]"].prop_map(Bytes::from)
}

pub(crate) fn range_end() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        3 => Just(Bytes::new()),
        1 => Just(Bytes::from_static(b"\0")),
        2 => "[a-d][a-c]?".prop_map(Bytes::from),
    ]
}

fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        4 => "[x-z]{0,6}".prop_map(Bytes::from),
        1 => (30..120usize, any::<u8>()).prop_map(|(n, b)| Bytes::from(vec![b; n])),
    ]
}

fn lease() -> impl Strategy<Value = i64> {
    prop_oneof![3 => Just(0i64), 1 => 1..4i64]
}

fn put() -> impl Strategy<Value = PutRequest> {
    (key(), value(), lease(), any::<bool>(), 0..8u8).prop_map(|(key, value, lease, prev_kv, f)| {
        let (ignore_value, ignore_lease) = (f == 0, f == 1);
        PutRequest {
            key,
            value: if ignore_value { Bytes::new() } else { value },
            lease: if ignore_lease { 0 } else { lease },
            prev_kv,
            ignore_value,
            ignore_lease,
        }
    })
}

fn delete() -> impl Strategy<Value = DeleteRangeRequest> {
    (key(), range_end(), any::<bool>()).prop_map(|(key, range_end, prev_kv)| DeleteRangeRequest {
        key,
        range_end,
        prev_kv,
    })
}

pub(crate) fn range() -> impl Strategy<Value = RangeRequest> {
    let bound = || prop_oneof![4 => Just(0i64), 1 => 1..30i64];
    let revision = prop_oneof![3 => Just(0i64), 3 => 1..40i64, 1 => -3..0i64];
    let order = (0..3, 0..5);
    (
        key(),
        range_end(),
        0..5i64,
        revision,
        order,
        any::<(bool, bool)>(),
        0..5,
        [bound(), bound(), bound(), bound()],
    )
        .prop_map(
            |(
                key,
                range_end,
                limit,
                revision,
                (order, target),
                (keys_only, plain),
                count_only,
                b,
            )| RangeRequest {
                key,
                range_end,
                limit,
                revision,
                sort_order: SortOrder::from_i32(if plain { 0 } else { order }).unwrap(),
                sort_target: SortTarget::from_i32(if plain { 0 } else { target }).unwrap(),
                keys_only,
                count_only: count_only == 0,
                serializable: false,
                min_mod_revision: if plain { 0 } else { b[0] },
                max_mod_revision: if plain { 0 } else { b[1] },
                min_create_revision: if plain { 0 } else { b[2] },
                max_create_revision: if plain { 0 } else { b[3] },
            },
        )
}

fn compare() -> impl Strategy<Value = Compare> {
    let target = prop_oneof![
        (0..4i64).prop_map(CompareTarget::Version),
        (0..20i64).prop_map(CompareTarget::CreateRevision),
        (0..20i64).prop_map(CompareTarget::ModRevision),
        value().prop_map(CompareTarget::Value),
        lease().prop_map(CompareTarget::Lease),
    ];
    (key(), range_end(), 0..4, target).prop_map(|(key, range_end, result, target)| Compare {
        key,
        range_end,
        result: CompareResult::from_i32(result).unwrap(),
        target,
    })
}

fn txn() -> impl Strategy<Value = TxnRequest> {
    let leaf = prop_oneof![
        3 => put().prop_map(RequestOp::Put),
        2 => range().prop_map(RequestOp::Range),
        1 => delete().prop_map(RequestOp::DeleteRange),
    ];
    let op = leaf.prop_recursive(2, 8, 2, |inner| {
        let txn = (
            vec(compare(), 0..2),
            vec(inner.clone(), 0..3),
            vec(inner, 0..3),
        );
        txn.prop_map(|(compare, success, failure)| {
            RequestOp::Txn(TxnRequest {
                compare,
                success,
                failure,
            })
        })
    });
    let txn = (vec(compare(), 0..2), vec(op.clone(), 0..4), vec(op, 0..4));
    txn.prop_map(|(compare, success, failure)| TxnRequest {
        compare,
        success,
        failure,
    })
    .prop_map(|t| match mvcc::check::check_txn(&t, 128) {
        Ok(()) => t,
        // The edge refuses it; a read is left of it.
        Err(_) => TxnRequest {
            compare: t.compare,
            ..TxnRequest::default()
        },
    })
}

fn alarm() -> impl Strategy<Value = Alarm> {
    (1..3u64).prop_map(|member| Alarm {
        member,
        kind: AlarmKind::NoSpace,
    })
}

pub(crate) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        12 => put().prop_map(Command::Put),
        4 => delete().prop_map(Command::DeleteRange),
        8 => txn().prop_map(Command::Txn),
        3 => (1..60i64).prop_map(|revision| Command::Compact(CompactRequest { revision, physical: false })),
        2 => (1..4i64, 0..9i64).prop_map(|(id, ttl)| Command::LeaseGrant(LeaseGrantRequest { id, ttl })),
        1 => (1..4i64).prop_map(|id| Command::LeaseRevoke(LeaseRevokeRequest { id })),
        1 => (1..4i64, 0..9i64).prop_map(|c| Command::LeaseCheckpoint(LeaseCheckpointRequest { checkpoints: vec![c] })),
        1 => alarm().prop_map(Command::AlarmActivate),
        2 => (1..3u64).prop_map(|member| Command::AlarmDeactivate(Alarm { member, kind: AlarmKind::NoSpace })),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => command().prop_map(Op::Apply),
        1 => Just(Op::Repeat),
        4 => range().prop_map(Op::Range),
        3 => prop_oneof![Just(usize::MAX), 1..400usize].prop_map(Op::Take),
        3 => Just(Op::Done),
        3 => (1..6usize).prop_map(Op::CompactStep),
        1 => Just(Op::CompactAll),
        1 => any::<bool>().prop_map(Op::Restart),
        2 => Just(Op::View),
        4 => (any::<usize>(), 1..20usize).prop_map(|(nth, changes)| Op::Look(nth, changes)),
        1 => any::<usize>().prop_map(Op::Drop),
        1 => Just(Op::Expire),
    ]
}
