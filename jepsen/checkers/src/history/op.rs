//! Operations of the etcd API: what was asked and what came back.
//!
//! Field meanings are etcd v3's (`api/etcdserverpb/rpc.proto`). A reply holds what
//! a checker can judge and nothing else.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Blob, Span, Time};

/// Is the number of a lease; 0 is none.
pub type LeaseId = i64;

fn no<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Is one operation of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Op {
    /// Who asked.
    pub process: u32,
    /// Which member was asked, from 0.
    #[serde(default, skip_serializing_if = "no")]
    pub member: u8,
    /// As which user, when the store asks who one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Arc<str>>,
    /// When it was asked.
    pub call: Time,
    /// When the answer was there or the client gave up. What an operation of
    /// unknown outcome does may come later.
    pub ret: Time,
    /// What was asked.
    #[serde(rename = "do")]
    pub request: Request,
    /// What came of it.
    #[serde(rename = "got")]
    pub outcome: Outcome,
}

impl Op {
    /// Says when it was done.
    pub fn span(&self) -> Span {
        Span {
            process: self.process,
            call: self.call,
            ret: self.ret,
        }
    }

    /// Returns the reply of an operation that was acknowledged.
    pub fn reply(&self) -> Option<&Reply> {
        match &self.outcome {
            Outcome::Ok(reply) => Some(reply),
            _ => None,
        }
    }

    /// Says whether nobody knows if it happened.
    pub fn unknown(&self) -> bool {
        matches!(self.outcome, Outcome::Info(_))
    }
}

/// Says what came of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It happened, and this is the answer.
    Ok(Reply),
    /// It certainly did not happen, and never will.
    Fail(Refusal),
    /// It may have happened, may happen yet, or never.
    Info(Arc<str>),
}

/// Says why an operation did not happen. All but the last depend on the state of
/// the store, and are judged like any answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The revision asked for was compacted.
    Compacted,
    /// The revision asked for is not there yet.
    FutureRevision,
    /// No such lease.
    LeaseNotFound,
    /// There is such a lease.
    LeaseExists,
    /// No such key, in a put that keeps the value or the lease.
    KeyNotFound,
    /// The user may not.
    Denied,
    /// The user is nobody, or the token is too old.
    Unauthenticated,
    /// Anything that says nothing of the state: too many requests, no connection.
    Other(Arc<str>),
}

/// Is a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Reads.
    Range(Range),
    /// Writes.
    Put(Put),
    /// Deletes.
    Delete(Delete),
    /// Does several things as one.
    Txn(Box<Txn>),
    /// Grants a lease.
    Grant {
        /// Its number; 0 lets the store choose.
        id: LeaseId,
        /// Seconds.
        ttl: i64,
    },
    /// Revokes a lease and deletes its keys.
    Revoke {
        /// Its number.
        id: LeaseId,
    },
    /// Renews a lease.
    KeepAlive {
        /// Its number.
        id: LeaseId,
    },
    /// Asks how long a lease has.
    TimeToLive {
        /// Its number.
        id: LeaseId,
    },
    /// Forgets what was before a revision.
    Compact {
        /// The first that can still be read.
        revision: i64,
    },
    /// Waits for a lock (v3lock).
    Lock {
        /// Its name.
        name: Blob,
        /// Whose end gives the lock back.
        lease: LeaseId,
    },
    /// Gives a lock back.
    Unlock {
        /// The key that stands for holding it.
        key: Blob,
    },
    /// Changes who may do what.
    Auth(AuthChange),
}

/// Reads a key or a range of keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The key, or the first.
    pub key: Blob,
    /// Empty for one key, `"\0"` for all from `key` on, else the end.
    #[serde(default, skip_serializing_if = "no")]
    pub end: Blob,
    /// The most pairs to return; 0 is all.
    #[serde(default, skip_serializing_if = "no")]
    pub limit: i64,
    /// The revision to read at; 0 is now.
    #[serde(default, skip_serializing_if = "no")]
    pub revision: i64,
    /// Permits an old answer.
    #[serde(default, skip_serializing_if = "no")]
    pub serializable: bool,
    /// Leaves values out.
    #[serde(default, skip_serializing_if = "no")]
    pub keys_only: bool,
    /// Leaves pairs out.
    #[serde(default, skip_serializing_if = "no")]
    pub count_only: bool,
}

/// Writes a key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// The key.
    pub key: Blob,
    /// The value.
    #[serde(default, skip_serializing_if = "no")]
    pub value: Blob,
    /// The lease to go with, 0 for none.
    #[serde(default, skip_serializing_if = "no")]
    pub lease: LeaseId,
    /// Asks for what was there before.
    #[serde(default, skip_serializing_if = "no")]
    pub prev_kv: bool,
    /// Keeps the value that is there.
    #[serde(default, skip_serializing_if = "no")]
    pub ignore_value: bool,
    /// Keeps the lease that is there.
    #[serde(default, skip_serializing_if = "no")]
    pub ignore_lease: bool,
}

/// Deletes a key or a range of keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// The key, or the first.
    pub key: Blob,
    /// As in [`Range::end`].
    #[serde(default, skip_serializing_if = "no")]
    pub end: Blob,
    /// Asks for what was there before.
    #[serde(default, skip_serializing_if = "no")]
    pub prev_kv: bool,
}

/// Does `success` if all of `compare` holds, else `failure`, as one revision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Txn {
    /// The conditions.
    #[serde(default, skip_serializing_if = "no")]
    pub compare: Vec<Compare>,
    /// What is done if they hold.
    #[serde(default, skip_serializing_if = "no")]
    pub success: Vec<TxnOp>,
    /// What is done if not.
    #[serde(default, skip_serializing_if = "no")]
    pub failure: Vec<TxnOp>,
}

/// Is one condition: what is stored, compared with what is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// The key, or the first.
    pub key: Blob,
    /// As in [`Range::end`]; every key in the range must hold.
    #[serde(default, skip_serializing_if = "no")]
    pub end: Blob,
    /// Which way it must come out.
    pub is: Is,
    /// With what.
    pub to: Target,
}

/// Says which way a comparison must come out: stored `<is>` given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Is {
    /// Equal.
    Equal,
    /// Not equal.
    NotEqual,
    /// Greater.
    Greater,
    /// Less.
    Less,
}

/// Says what is compared, and with what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// How often it was written since it was created; 0 when absent.
    Version(i64),
    /// The revision that created it; 0 when absent.
    Create(i64),
    /// The revision that wrote it last; 0 when absent.
    Mod(i64),
    /// The value; never holds when absent.
    Value(Blob),
    /// The lease; 0 when absent.
    Lease(LeaseId),
}

/// Is one operation inside a transaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TxnOp {
    /// Reads.
    Range(Range),
    /// Writes.
    Put(Put),
    /// Deletes.
    Delete(Delete),
    /// Nests.
    Txn(Box<Txn>),
}

/// Is an acknowledgement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The store's revision, as the header says.
    pub revision: i64,
    /// What else was said.
    #[serde(default, skip_serializing_if = "Body::is_done")]
    pub body: Body,
}

/// Is what a reply says beside its revision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Nothing else: revoke, compact, unlock, a change of rights.
    #[default]
    Done,
    /// Of a put.
    Put {
        /// What was there before, if it was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prev: Option<Box<Kv>>,
    },
    /// Of a range.
    Range {
        /// The pairs.
        #[serde(default, skip_serializing_if = "no")]
        kvs: Vec<Kv>,
        /// How many there are in the range.
        #[serde(default, skip_serializing_if = "no")]
        count: i64,
        /// Whether the limit cut some off.
        #[serde(default, skip_serializing_if = "no")]
        more: bool,
    },
    /// Of a delete.
    Delete {
        /// How many were deleted.
        #[serde(default, skip_serializing_if = "no")]
        deleted: i64,
        /// What was there before, if it was asked for.
        #[serde(default, skip_serializing_if = "no")]
        prev: Vec<Kv>,
    },
    /// Of a transaction.
    Txn {
        /// Whether the conditions held.
        #[serde(default, skip_serializing_if = "no")]
        succeeded: bool,
        /// One for each operation done.
        #[serde(default, skip_serializing_if = "no")]
        results: Vec<Body>,
    },
    /// Of a grant, a renewal or a question how long; `ttl` is 0 or less if there
    /// is no such lease.
    Lease {
        /// Its number.
        id: LeaseId,
        /// Seconds left, or granted.
        ttl: i64,
    },
    /// Of a lock.
    Lock {
        /// The key that stands for holding it.
        key: Blob,
    },
}

impl Body {
    fn is_done(&self) -> bool {
        *self == Self::Done
    }
}

/// Is a stored pair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kv {
    /// The key.
    pub key: Blob,
    /// The value.
    #[serde(default, skip_serializing_if = "no")]
    pub value: Blob,
    /// The revision that created it.
    #[serde(default, skip_serializing_if = "no")]
    pub create: i64,
    /// The revision that wrote it last.
    #[serde(rename = "mod", default, skip_serializing_if = "no")]
    pub modified: i64,
    /// How often it was written since it was created.
    #[serde(default, skip_serializing_if = "no")]
    pub version: i64,
    /// The lease it goes with.
    #[serde(default, skip_serializing_if = "no")]
    pub lease: LeaseId,
}

/// Changes who may do what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthChange {
    /// Begins to ask who one is.
    Enable,
    /// Lets everyone do everything.
    Disable,
    /// Makes a user of no rights.
    AddUser(Arc<str>),
    /// Ends a user.
    DeleteUser(Arc<str>),
    /// Ends the tokens a user has.
    ChangePassword(Arc<str>),
    /// Makes a role of no rights.
    AddRole(Arc<str>),
    /// Ends a role.
    DeleteRole(Arc<str>),
    /// Gives a user a role.
    GrantRole {
        /// The user.
        user: Arc<str>,
        /// The role.
        role: Arc<str>,
    },
    /// Takes a role from a user.
    RevokeRole {
        /// The user.
        user: Arc<str>,
        /// The role.
        role: Arc<str>,
    },
    /// Gives a role a range of keys; replaces what it had on the same range.
    GrantRange {
        /// The role.
        role: Arc<str>,
        /// The key, or the first.
        key: Blob,
        /// As in [`Range::end`].
        #[serde(default, skip_serializing_if = "no")]
        end: Blob,
        /// Whether it may read them.
        read: bool,
        /// Whether it may write them.
        write: bool,
    },
    /// Takes a range of keys from a role.
    RevokeRange {
        /// The role.
        role: Arc<str>,
        /// The key, or the first.
        key: Blob,
        /// As in [`Range::end`].
        #[serde(default, skip_serializing_if = "no")]
        end: Blob,
    },
}
