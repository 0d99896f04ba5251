//! Where in the order of revisions an operation stands.

use crate::history::{Body, Op, Range, Reply, Request, Txn, TxnOp};

/// Says what an acknowledged operation is to the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It made the revision in its header.
    Wrote,
    /// It happened at that revision, after the write, and changed no key.
    Saw,
    /// It may have made any revision up to that one.
    Loose,
    /// It was answered by one member from what that member knew.
    Stale,
}

/// Says which role an acknowledged operation has.
pub(super) fn role(request: &Request, reply: &Reply) -> Role {
    match request {
        Request::Put(_) => Role::Wrote,
        Request::Delete(_) | Request::Txn(_) if changed(&reply.body) => Role::Wrote,
        request if is_stale(request) => Role::Stale,
        Request::Lock { .. } | Request::Unlock { .. } | Request::Revoke { .. } => Role::Loose,
        // The header is filled before or beside the work (v3rpc/lease.go, auth.go).
        Request::KeepAlive { .. } | Request::TimeToLive { .. } | Request::Auth(_) => Role::Stale,
        _ => Role::Saw,
    }
}

/// Says whether an answer tells of a changed key.
fn changed(body: &Body) -> bool {
    match body {
        Body::Put { .. } => true,
        Body::Delete { deleted, .. } => *deleted > 0,
        Body::Txn { results, .. } => results.iter().any(changed),
        _ => false,
    }
}

/// Says whether a request permits an old answer.
pub fn is_stale(request: &Request) -> bool {
    // etcd's isTxnSerializable: nothing but serializable ranges, in both branches.
    let stale = |op: &TxnOp| matches!(op, TxnOp::Range(range) if range.serializable);
    match request {
        Request::Range(range) => range.serializable,
        Request::Txn(txn) => txn.success.iter().chain(&txn.failure).all(stale),
        _ => false,
    }
}

/// Returns the revision whose state an answer shows.
pub(super) fn shows(request: &Request, reply: &Reply) -> i64 {
    match request {
        Request::Range(Range { revision, .. }) if *revision > 0 => *revision,
        _ => reply.revision,
    }
}

/// Says whether a request reads the past inside a transaction, for which the model
/// must remember it.
pub(super) fn reads_past(op: &Op) -> bool {
    fn within(txn: &Txn) -> bool {
        txn.success.iter().chain(&txn.failure).any(|op| match op {
            TxnOp::Range(range) => range.revision > 0,
            TxnOp::Txn(nested) => within(nested),
            TxnOp::Put(_) | TxnOp::Delete(_) => false,
        })
    }
    matches!(&op.request, Request::Txn(txn) if within(txn))
}
