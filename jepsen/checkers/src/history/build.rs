//! Short words for long values, so that a history written by hand fits on a page.

use super::{
    Blob, Body, Compare, Delete, Event, History, Is, Kv, LeaseId, Op, Outcome, Put, Range, Refusal,
    Reply, Request, Target, Time, Told, Txn, TxnOp, Watch, WatchRequest,
};

impl History {
    /// Adds an operation that was acknowledged.
    pub fn ok(&mut self, process: u32, when: (Time, Time), what: impl Into<Request>, got: Reply) {
        self.add(process, when, what.into(), Outcome::Ok(got));
    }

    /// Adds an operation that certainly did not happen.
    pub fn fail(
        &mut self,
        process: u32,
        when: (Time, Time),
        what: impl Into<Request>,
        why: Refusal,
    ) {
        self.add(process, when, what.into(), Outcome::Fail(why));
    }

    /// Adds an operation of which nobody knows whether it happened.
    pub fn info(&mut self, process: u32, when: (Time, Time), what: impl Into<Request>, why: &str) {
        self.add(process, when, what.into(), Outcome::Info(why.into()));
    }

    fn add(&mut self, process: u32, when: (Time, Time), request: Request, outcome: Outcome) {
        self.ops.push(Op {
            process,
            member: 0,
            user: None,
            call: when.0,
            ret: when.1,
            request,
            outcome,
        });
    }

    /// Adds a watch, to be told things.
    pub fn watch(&mut self, process: u32, opened: Time, request: WatchRequest) -> &mut Watch {
        let id = self.next_watch();
        self.watches.push(Watch {
            id,
            process,
            opened,
            request,
            ..Watch::default()
        });
        self.watches.last_mut().expect("pushed just now")
    }

    /// Adds the watch of everything from the first revision on a member, and what it
    /// was told.
    pub fn log(&mut self, member: u8, told: impl IntoIterator<Item = Told>) {
        let request = WatchRequest {
            key: "\0".into(),
            end: "\0".into(),
            revision: 1,
            ..WatchRequest::default()
        };
        // Processes of logs are numbered from above, out of the clients' way.
        let watch = self.watch(u32::MAX - u32::from(member), 0, request);
        watch.member = member;
        watch.whole = true;
        watch.told.push((0, Told::Created { revision: 1 }));
        // A log proves nothing about when: what it was told is told at the end.
        watch
            .told
            .extend(told.into_iter().map(|told| (Time::MAX, told)));
    }
}

/// Writes a key.
pub fn put(key: &str, value: &str) -> Put {
    Put {
        key: key.into(),
        value: value.into(),
        ..Put::default()
    }
}

/// Reads a key.
pub fn get(key: &str) -> Range {
    Range {
        key: key.into(),
        ..Range::default()
    }
}

/// Reads all keys that start so.
pub fn prefix(start: &str) -> Range {
    let key = Blob::from(start);
    Range {
        end: key.prefix_end(),
        key,
        ..Range::default()
    }
}

/// Deletes a key.
pub fn delete(key: &str) -> Delete {
    Delete {
        key: key.into(),
        ..Delete::default()
    }
}

/// Begins a transaction.
pub fn txn() -> Txn {
    Txn::default()
}

/// Asks for a lease.
pub fn grant(id: LeaseId, ttl: i64) -> Request {
    Request::Grant { id, ttl }
}

impl Range {
    /// Reads at a revision.
    #[must_use]
    pub fn at(mut self, revision: i64) -> Self {
        self.revision = revision;
        self
    }

    /// Permits an old answer.
    #[must_use]
    pub fn stale(mut self) -> Self {
        self.serializable = true;
        self
    }
}

impl Put {
    /// Goes with a lease.
    #[must_use]
    pub fn with(mut self, lease: LeaseId) -> Self {
        self.lease = lease;
        self
    }

    /// Asks for what was there before.
    #[must_use]
    pub fn prev(mut self) -> Self {
        self.prev_kv = true;
        self
    }
}

impl Txn {
    /// Adds a condition on one key.
    #[must_use]
    pub fn when(mut self, key: &str, is: Is, to: Target) -> Self {
        self.compare.push(Compare {
            key: key.into(),
            end: Blob::EMPTY,
            is,
            to,
        });
        self
    }

    /// Adds what is done if the conditions hold.
    #[must_use]
    pub fn then(mut self, op: impl Into<TxnOp>) -> Self {
        self.success.push(op.into());
        self
    }

    /// Adds what is done if they do not.
    #[must_use]
    pub fn or_else(mut self, op: impl Into<TxnOp>) -> Self {
        self.failure.push(op.into());
        self
    }

    /// Makes a request of it.
    pub fn done(self) -> Request {
        self.into()
    }
}

impl From<Range> for Request {
    fn from(range: Range) -> Self {
        Self::Range(range)
    }
}

impl From<Put> for Request {
    fn from(put: Put) -> Self {
        Self::Put(put)
    }
}

impl From<Delete> for Request {
    fn from(delete: Delete) -> Self {
        Self::Delete(delete)
    }
}

impl From<Txn> for Request {
    fn from(txn: Txn) -> Self {
        Self::Txn(Box::new(txn))
    }
}

impl From<Range> for TxnOp {
    fn from(range: Range) -> Self {
        Self::Range(range)
    }
}

impl From<Put> for TxnOp {
    fn from(put: Put) -> Self {
        Self::Put(put)
    }
}

impl From<Delete> for TxnOp {
    fn from(delete: Delete) -> Self {
        Self::Delete(delete)
    }
}

impl From<Txn> for TxnOp {
    fn from(txn: Txn) -> Self {
        Self::Txn(Box::new(txn))
    }
}

/// Is a stored pair.
pub fn kv(key: &str, value: &str, create: i64, modified: i64, version: i64) -> Kv {
    Kv {
        key: key.into(),
        value: value.into(),
        create,
        modified,
        version,
        lease: 0,
    }
}

/// Acknowledges a put.
pub fn wrote(revision: i64) -> Reply {
    let body = Body::Put { prev: None };
    Reply { revision, body }
}

/// Answers a read that was not cut by a limit.
pub fn found(revision: i64, kvs: impl IntoIterator<Item = Kv>) -> Reply {
    let kvs = Vec::from_iter(kvs);
    let count = i64::try_from(kvs.len()).unwrap_or(i64::MAX);
    let body = Body::Range {
        kvs,
        count,
        more: false,
    };
    Reply { revision, body }
}

/// Acknowledges a delete.
pub fn deleted(revision: i64, deleted: i64) -> Reply {
    let prev = Vec::new();
    let body = Body::Delete { deleted, prev };
    Reply { revision, body }
}

/// Acknowledges a transaction.
pub fn decided(revision: i64, succeeded: bool, results: impl IntoIterator<Item = Reply>) -> Reply {
    let results = results.into_iter().map(|reply| reply.body).collect();
    let body = Body::Txn { succeeded, results };
    Reply { revision, body }
}

/// Acknowledges a grant or a renewal.
pub fn lease(revision: i64, id: LeaseId, ttl: i64) -> Reply {
    let body = Body::Lease { id, ttl };
    Reply { revision, body }
}

/// Acknowledges and says nothing else.
pub fn done(revision: i64) -> Reply {
    let body = Body::Done;
    Reply { revision, body }
}

/// Tells a watch of changes.
pub fn events(revision: i64, events: impl IntoIterator<Item = Event>) -> Told {
    Told::Events {
        revision,
        events: events.into_iter().collect(),
        fragment: false,
    }
}

/// Is the event of a put.
pub fn was_put(kv: Kv) -> Event {
    Event {
        delete: false,
        kv,
        prev: None,
    }
}

/// Is the event of a delete.
pub fn was_deleted(key: &str, revision: i64) -> Event {
    Event {
        delete: true,
        kv: kv(key, "", 0, revision, 0),
        prev: None,
    }
}
