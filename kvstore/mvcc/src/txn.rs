//! Transactions: which branches are taken, whether they can run, running them.
//!
//! The three are kept apart as etcd keeps them (`server/etcdserver/txn/txn.go`):
//! the path through nested transactions is settled before anything executes, so
//! an inner condition never sees an outer write; then the chosen operations are
//! checked; only then does anything change, and from there nothing can fail.

use crate::backend::BackendError;
use crate::command::{
    Compare, CompareResult, CompareTarget, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use crate::error::Error;
use crate::key_index::{KeyEntry, Span};
use crate::machine::StateMachine;
use crate::response::{ResponseOp, TxnReply};
use crate::view::Reading;
use crate::write::Write;

impl StateMachine {
    /// Answers a txn that cannot change anything ([`TxnRequest::is_readonly`]).
    pub fn txn_readonly(&self, r: &TxnRequest) -> Result<TxnReply, Error> {
        self.reading().txn_readonly(r)
    }
}

/// Checks what a put needs to find.
type CheckPut<'a> = &'a dyn Fn(&PutRequest) -> Result<(), Error>;

impl Reading<'_> {
    pub(crate) fn txn_readonly(self, r: &TxnRequest) -> Result<TxnReply, Error> {
        let path = self.settle(r)?;
        self.check_chosen(r, &mut path.iter(), &|_| Ok(()))?;
        let mut reply = self.read_chosen(r, &mut path.iter())?;
        reply.revision = self.revision;
        Ok(reply)
    }

    /// Settles the outcome of every condition on the path, depth first.
    pub(crate) fn settle(self, r: &TxnRequest) -> Result<Vec<bool>, BackendError> {
        let mut path = Vec::with_capacity(1);
        self.settle_into(r, &mut path)?;
        Ok(path)
    }

    fn settle_into(self, r: &TxnRequest, path: &mut Vec<bool>) -> Result<(), BackendError> {
        let mut holds = true;
        for c in &r.compare {
            if !self.holds(c)? {
                holds = false;
                break;
            }
        }
        path.push(holds);
        for op in branch(r, holds) {
            if let RequestOp::Txn(nested) = op {
                self.settle_into(nested, path)?;
            }
        }
        Ok(())
    }

    fn holds(self, c: &Compare) -> Result<bool, BackendError> {
        let mut present = self
            .walk(Span::new(&c.key, &c.range_end))
            .filter(|(_, e)| e.is_live())
            .peekable();
        if present.peek().is_none() {
            self.check_budget()?;
            let absent = KeyEntry::default();
            let by_value = matches!(c.target, CompareTarget::Value(_));
            return Ok(!by_value && self.holds_for(c, &absent)?);
        }
        for (_, entry) in present {
            if !self.holds_for(c, entry)? {
                return Ok(false);
            }
        }
        self.check_budget()?;
        Ok(true)
    }

    fn holds_for(self, c: &Compare, entry: &KeyEntry) -> Result<bool, BackendError> {
        let order = match &c.target {
            CompareTarget::Version(n) => entry.version.cmp(n),
            CompareTarget::CreateRevision(n) => entry.create.cmp(n),
            CompareTarget::ModRevision(n) => entry.latest.main.cmp(n),
            CompareTarget::Lease(n) => entry.lease.cmp(n),
            CompareTarget::Value(v) => self.records.get(entry.latest.rev())?.value.cmp(v),
        };
        Ok(match c.result {
            CompareResult::Equal => order.is_eq(),
            CompareResult::NotEqual => order.is_ne(),
            CompareResult::Greater => order.is_gt(),
            CompareResult::Less => order.is_lt(),
        })
    }

    /// Checks the chosen operations against the state before any of them runs.
    fn check_chosen(
        self,
        r: &TxnRequest,
        path: &mut std::slice::Iter<'_, bool>,
        check_put: CheckPut<'_>,
    ) -> Result<(), Error> {
        for op in chosen(r, path) {
            match op {
                RequestOp::Range(q) => self.check_readable(q)?,
                RequestOp::Put(q) => check_put(q)?,
                RequestOp::Txn(q) => self.check_chosen(q, path, check_put)?,
                RequestOp::DeleteRange(_) => {}
                RequestOp::Empty => return Err(Error::KeyNotFound),
            }
        }
        Ok(())
    }

    /// Unlike a range outside a txn, a negative revision is not "now" here
    /// (etcd issue 13871).
    fn check_readable(self, r: &RangeRequest) -> Result<(), Error> {
        if r.revision == 0 {
            Ok(())
        } else if r.revision > self.revision {
            Err(Error::FutureRevision)
        } else if r.revision < self.compacted {
            Err(Error::Compacted)
        } else {
            Ok(())
        }
    }

    fn read_chosen(
        self,
        r: &TxnRequest,
        path: &mut std::slice::Iter<'_, bool>,
    ) -> Result<TxnReply, Error> {
        let mut reply = TxnReply::default();
        for op in chosen_into(r, path, &mut reply) {
            reply.responses.push(match op {
                RequestOp::Range(q) => ResponseOp::Range(self.range_at(q, self.revision)?),
                RequestOp::Txn(q) => ResponseOp::Txn(self.read_chosen(q, path)?),
                // `is_readonly` is the caller's promise; a write is refused, not run.
                RequestOp::Put(_) | RequestOp::DeleteRange(_) | RequestOp::Empty => {
                    return Err(Error::KeyNotFound);
                }
            });
        }
        Ok(reply)
    }
}

impl Write<'_> {
    /// Runs a transaction.
    pub(crate) fn txn(&mut self, r: &TxnRequest) -> Result<TxnReply, Error> {
        let reading = self.machine.reading();
        let path = reading.settle(r)?;
        let check_put = |put: &PutRequest| Write::check_put(self.machine, put);
        reading.check_chosen(r, &mut path.iter(), &check_put)?;
        let mut reply = self.run_chosen(r, &mut path.iter())?;
        reply.revision = self.current();
        Ok(reply)
    }

    fn run_chosen(
        &mut self,
        r: &TxnRequest,
        path: &mut std::slice::Iter<'_, bool>,
    ) -> Result<TxnReply, Error> {
        let mut reply = TxnReply::default();
        for op in chosen_into(r, path, &mut reply) {
            reply.responses.push(match op {
                RequestOp::Range(q) => ResponseOp::Range(self.machine.range_at(q, self.current())?),
                RequestOp::Put(q) => ResponseOp::Put(self.put(q)?),
                RequestOp::DeleteRange(q) => ResponseOp::DeleteRange(self.delete_range(q)?),
                RequestOp::Txn(q) => ResponseOp::Txn(self.run_chosen(q, path)?),
                RequestOp::Empty => return Err(Error::KeyNotFound),
            });
        }
        Ok(reply)
    }
}

fn branch(r: &TxnRequest, holds: bool) -> &[RequestOp] {
    if holds { &r.success } else { &r.failure }
}

fn chosen<'a>(r: &'a TxnRequest, path: &mut std::slice::Iter<'_, bool>) -> &'a [RequestOp] {
    branch(r, path.next().copied().unwrap_or_default())
}

fn chosen_into<'a>(
    r: &'a TxnRequest,
    path: &mut std::slice::Iter<'_, bool>,
    reply: &mut TxnReply,
) -> &'a [RequestOp] {
    reply.succeeded = path.next().copied().unwrap_or_default();
    let ops = branch(r, reply.succeeded);
    reply.responses.reserve_exact(ops.len());
    ops
}
