//! What can be refused by looking at the request alone, before it is proposed.
//!
//! The rules and their order are etcd's `server/etcdserver/api/v3rpc/key.go`
//! (main, 2026-08). Checks that need the store's state (a lease exists, a key
//! exists, a revision is readable) are made inside `apply`, alike on every member.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::command::{DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest};
use crate::error::Error;

/// Checks a put.
pub fn check_put(r: &PutRequest) -> Result<(), Error> {
    if r.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if r.ignore_value && !r.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if r.ignore_lease && r.lease != 0 {
        return Err(Error::LeaseProvided);
    }
    Ok(())
}

/// Checks a range. Unknown sort numbers are refused where the protobuf enum is
/// mapped ([`crate::SortOrder::from_i32`]).
pub fn check_range(r: &RangeRequest) -> Result<(), Error> {
    if r.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    Ok(())
}

/// Checks a delete.
pub fn check_delete_range(r: &DeleteRangeRequest) -> Result<(), Error> {
    if r.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    Ok(())
}

/// Checks a txn: sizes and keys at every depth, then duplicate writes.
/// `max_txn_ops` is what `--max-txn-ops` says, 128 by default.
pub fn check_txn(r: &TxnRequest, max_txn_ops: usize) -> Result<(), Error> {
    check_shape(r, max_txn_ops)?;
    check_intervals(&r.success)?;
    check_intervals(&r.failure)?;
    Ok(())
}

/// Checks one level; a nested txn may use what the levels above left over.
fn check_shape(r: &TxnRequest, ops_max: usize) -> Result<(), Error> {
    let ops = r.compare.len().max(r.success.len()).max(r.failure.len());
    if ops > ops_max {
        return Err(Error::TooManyOps);
    }
    if r.compare.iter().any(|c| c.key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    for op in r.success.iter().chain(&r.failure) {
        match op {
            RequestOp::Range(q) => check_range(q)?,
            RequestOp::Put(q) => check_put(q)?,
            RequestOp::DeleteRange(q) => check_delete_range(q)?,
            RequestOp::Txn(q) => check_shape(q, ops_max - ops)?,
            RequestOp::Empty => return Err(Error::KeyNotFound),
        }
    }
    Ok(())
}

/// What a branch writes: keys put, ranges deleted.
#[derive(Default)]
struct Writes {
    puts: BTreeSet<Bytes>,
    deletes: Vec<(Bytes, Bytes)>,
}

impl Writes {
    fn deletes_key(&self, key: &[u8]) -> bool {
        self.deletes.iter().any(|(from, to)| {
            if to.is_empty() {
                from == key
            } else {
                from.as_ref() <= key && key < to.as_ref()
            }
        })
    }

    fn add_put(&mut self, key: &Bytes, shared: &BTreeSet<Bytes>) -> Result<(), Error> {
        let duplicate = self.puts.contains(key) && !shared.contains(key);
        if duplicate || self.deletes_key(key) {
            return Err(Error::DuplicateKey);
        }
        self.puts.insert(key.clone());
        Ok(())
    }
}

/// Refuses a key put twice, or put inside a deleted range, on one level or
/// between a level and those below it. The `then` and `else` of a nested txn
/// exclude each other and may put the same key; deletes may overlap.
///
/// Like etcd's `checkIntervals`, a range end of `"\0"` is compared as it
/// stands, so a put beside a delete "from key on" passes.
fn check_intervals(ops: &[RequestOp]) -> Result<Writes, Error> {
    let nothing = BTreeSet::new();
    let mut writes = Writes::default();
    for op in ops {
        if let RequestOp::DeleteRange(d) = op {
            writes.deletes.push((d.key.clone(), d.range_end.clone()));
        }
    }
    for op in ops {
        if let RequestOp::Txn(t) = op {
            let then = check_intervals(&t.success)?;
            let otherwise = check_intervals(&t.failure)?;
            for key in &then.puts {
                writes.add_put(key, &nothing)?;
            }
            for key in &otherwise.puts {
                writes.add_put(key, &then.puts)?;
            }
            // Only now: what one branch deletes the other may put.
            writes.deletes.extend(then.deletes);
            writes.deletes.extend(otherwise.deletes);
        }
    }
    for op in ops {
        if let RequestOp::Put(p) = op {
            writes.add_put(&p.key, &nothing)?;
        }
    }
    Ok(writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Compare, CompareResult, CompareTarget};

    fn put(key: &'static str) -> RequestOp {
        RequestOp::Put(PutRequest {
            key: Bytes::from_static(key.as_bytes()),
            ..PutRequest::default()
        })
    }

    fn delete(key: &'static str, end: &'static str) -> RequestOp {
        RequestOp::DeleteRange(DeleteRangeRequest {
            key: Bytes::from_static(key.as_bytes()),
            range_end: Bytes::from_static(end.as_bytes()),
            prev_kv: false,
        })
    }

    fn txn(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> TxnRequest {
        TxnRequest {
            compare: Vec::new(),
            success,
            failure,
        }
    }

    fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
        RequestOp::Txn(txn(success, failure))
    }

    #[track_caller]
    fn check(success: Vec<RequestOp>, expect: Result<(), Error>) {
        assert_eq!(
            check_txn(&txn(success.clone(), vec![]), 128),
            expect,
            "then"
        );
        assert_eq!(check_txn(&txn(vec![], success), 128), expect, "else");
    }

    #[test]
    fn duplicates() {
        let dup = Err(Error::DuplicateKey);
        check(vec![put("a"), put("b")], Ok(()));
        check(vec![put("a"), put("a")], dup.clone());
        check(vec![delete("a", "c"), put("b")], dup.clone());
        check(vec![put("b"), delete("a", "c")], dup.clone());
        check(vec![put("c"), delete("a", "c")], Ok(()));
        check(vec![put("a"), delete("a", "")], dup.clone());
        check(vec![delete("a", "c"), delete("b", "d")], Ok(()));
        check(vec![put("a"), delete("a", "\0")], Ok(()));
        check(vec![nested(vec![put("a")], vec![put("a")])], Ok(()));
        check(vec![nested(vec![delete("a", "b")], vec![put("a")])], Ok(()));
        check(vec![nested(vec![put("a")], vec![delete("a", "b")])], Ok(()));
        check(vec![put("a"), nested(vec![put("a")], vec![])], dup.clone());
        check(
            vec![put("a"), nested(vec![], vec![delete("a", "b")])],
            dup.clone(),
        );
        check(
            vec![
                nested(vec![put("a")], vec![]),
                nested(vec![], vec![put("a")]),
            ],
            dup.clone(),
        );
        check(
            vec![
                nested(vec![delete("a", "b")], vec![]),
                nested(vec![put("a")], vec![]),
            ],
            dup,
        );
    }

    #[test]
    fn sizes() {
        let many = |n| vec![delete("k", ""); n];
        check(many(128), Ok(()));
        check(many(129), Err(Error::TooManyOps));
        let mut outer = many(127);
        outer.push(nested(vec![], vec![]));
        check(outer.clone(), Ok(()));
        outer.pop();
        outer.push(nested(many(1), vec![]));
        check(outer, Err(Error::TooManyOps));
    }

    #[test]
    fn empty_parts() {
        check(vec![put("")], Err(Error::EmptyKey));
        check(vec![RequestOp::Empty], Err(Error::KeyNotFound));
        let compare = Compare {
            key: Bytes::new(),
            range_end: Bytes::new(),
            result: CompareResult::Equal,
            target: CompareTarget::Version(0),
        };
        let t = TxnRequest {
            compare: vec![compare],
            ..TxnRequest::default()
        };
        assert_eq!(check_txn(&t, 128), Err(Error::EmptyKey));
    }

    #[test]
    fn puts() {
        let p = PutRequest {
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(b"v"),
            lease: 1,
            ignore_value: true,
            ignore_lease: true,
            ..PutRequest::default()
        };
        assert_eq!(check_put(&p), Err(Error::ValueProvided));
        let p = PutRequest {
            value: Bytes::new(),
            ..p
        };
        assert_eq!(check_put(&p), Err(Error::LeaseProvided));
        assert_eq!(check_put(&PutRequest { lease: 0, ..p }), Ok(()));
    }
}
