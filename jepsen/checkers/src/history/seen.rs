//! What clients saw beside single answers: watches, work made of several
//! operations, and what was done to the cluster.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Blob, Kv, LeaseId, Span, Time, WatchOpen};

/// Is one watch, from its creation to its end, on one stream of one member. A
/// client that goes on elsewhere opens another.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Watch {
    /// Its number, used once in a history.
    pub id: u64,
    /// Who watches.
    pub process: u32,
    /// Which member was asked, from 0.
    pub member: u8,
    /// As which user.
    pub user: Option<Arc<str>>,
    /// When it was asked for.
    pub opened: Time,
    /// What was asked for.
    pub request: WatchRequest,
    /// Says that it is one in a row of watches on this member which together saw
    /// every key from the first revision: the log that the witness reads.
    pub whole: bool,
    /// What was delivered, and when.
    pub told: Vec<(Time, Told)>,
}

impl From<WatchOpen> for Watch {
    fn from(open: WatchOpen) -> Self {
        Self {
            id: open.id,
            process: open.process,
            member: open.member,
            user: open.user,
            opened: open.at,
            request: open.request,
            whole: open.whole,
            told: Vec::new(),
        }
    }
}

/// Asks for events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchRequest {
    /// The key, or the first.
    pub key: Blob,
    /// Empty for one key, `"\0"` for all from `key` on, else the end.
    #[serde(skip_serializing_if = "<[u8]>::is_empty")]
    pub end: Blob,
    /// The first revision; 0 is from now on.
    pub revision: i64,
    /// Asks for the pair before.
    pub prev_kv: bool,
    /// Asks to be told now and then how far the watch is.
    pub progress: bool,
    /// Leaves puts out.
    pub no_put: bool,
    /// Leaves deletes out.
    pub no_delete: bool,
    /// Permits to cut a revision over several responses.
    pub fragment: bool,
}

/// Is what a watch is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// It exists now.
    Created {
        /// The header's revision.
        revision: i64,
    },
    /// Something changed.
    Events {
        /// The header's revision.
        revision: i64,
        /// What changed.
        events: Vec<Event>,
        /// Says that the rest of this response comes in the next.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fragment: bool,
    },
    /// Nothing up to here is missing.
    Progress {
        /// The header's revision.
        revision: i64,
    },
    /// It ended because what it asks for was compacted.
    Compacted {
        /// The first revision that can still be watched.
        revision: i64,
    },
    /// It was ended by the store.
    Canceled(Arc<str>),
    /// The stream ended, as streams do.
    Lost,
}

/// Is a change of one key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Whether the key was deleted; then `kv` has only key and revision.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delete: bool,
    /// The pair after.
    pub kv: Kv,
    /// The pair before, if it was asked for and is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<Box<Kv>>,
}

/// Is a transaction on lists of numbers, in Elle's sense.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTxn {
    /// When it was done.
    #[serde(flatten)]
    pub span: Span,
    /// What was done, with what was read if it is known.
    pub ops: Vec<Micro>,
    /// What came of it.
    pub outcome: Known,
}

/// Is one step of a transaction on lists or registers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Micro {
    /// Appends a number, used once for this key.
    Append(u64, u64),
    /// Reads a list.
    Read(u64, Option<Vec<u64>>),
    /// Writes a register with a number used once for this key.
    Write(u64, u64),
    /// Reads a register; the outer is whether the answer is known, the inner
    /// whether anything was there.
    Get(u64, Option<Option<u64>>),
}

/// Says what came of work made of several operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// It happened.
    Ok,
    /// It certainly did not.
    Fail,
    /// Nobody knows.
    Info,
}

/// Is something done with a set of numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetOp {
    /// When it was done.
    #[serde(flatten)]
    pub span: Span,
    /// Which set.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub set: u64,
    /// What was done.
    #[serde(rename = "do")]
    pub what: SetWhat,
    /// What came of it.
    pub outcome: Known,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Says what is done with a set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetWhat {
    /// Adds a number, once in a history.
    Add(u64),
    /// Reads all of it; empty if it failed.
    Read(Vec<u64>),
}

/// Is the time in which a process believed to hold a lock, and what it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// From when it was told that it holds the lock to when it began to give it back.
    #[serde(flatten)]
    pub span: Span,
    /// Which lock.
    pub name: Blob,
    /// The key that stands for holding it.
    pub key: Blob,
    /// The lease the key goes with.
    pub lease: LeaseId,
    /// The fence: the create revision of `key`, greater for each holder.
    pub fence: i64,
    /// Revisions of what it wrote under the lock, guarded by the existence of `key`
    /// at `fence` in the same transaction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<i64>,
    /// When it wrote without a guard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unguarded: Vec<Time>,
}

/// Is something done to the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Its kind: `kill`, `pause`, `partition`, ...
    pub kind: Arc<str>,
    /// What exactly was done to whom.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// When it began.
    pub from: Time,
    /// When it was over.
    pub to: Time,
}

/// Is what a member says of its state when all is quiet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Final {
    /// The member.
    pub member: u8,
    /// Its revision.
    pub revision: i64,
    /// Its compact revision.
    pub compacted: i64,
    /// Its `HashKV` at that revision.
    pub hash: u32,
    /// Whether it answered at all.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub answered: bool,
}

fn yes() -> bool {
    true
}
