//! What happened in a run, as its clients saw it.
//!
//! Times are nanoseconds of the runner's own monotonic clock. A client of the
//! runner is a *process*: it does one thing at a time, never asks twice by itself,
//! and after an operation of unknown outcome it goes on under a new number, for
//! the old operation may still happen.

mod api;
mod blob;
mod build;
mod jsonl;
mod lines;
mod op;
mod seen;
mod show;

pub use api::*;
pub use blob::Blob;
pub use build::*;
pub use jsonl::{Error, Reader, read, write};
pub use lines::{About, Record, WatchOpen, WatchTold};
pub use op::*;
pub use seen::*;

use serde::{Deserialize, Serialize};

/// Nanoseconds since the run began.
pub type Time = u64;

/// Is everything a run left behind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// What the run was.
    pub about: About,
    /// Every operation, in any order.
    pub ops: Vec<Op>,
    /// Every watch, with all it delivered.
    pub watches: Vec<Watch>,
    /// Transactions on lists, each made of several operations.
    pub lists: Vec<ListTxn>,
    /// Adds to and reads of sets, each made of several operations.
    pub sets: Vec<SetOp>,
    /// Protected work done under a lock.
    pub locks: Vec<Held>,
    /// What was done to the cluster.
    pub nemesis: Vec<Fault>,
    /// What each member said of its whole state at the end.
    pub finals: Vec<Final>,
    /// What was asked of the API servers that stand on the store.
    pub calls: Vec<Call>,
    /// Every watch on these.
    pub api_watches: Vec<ApiWatch>,
}

impl History {
    /// Puts one record where it belongs; what a watch was told before it was
    /// opened makes an error.
    ///
    /// # Errors
    /// [`Error::NoSuchWatch`].
    pub fn push(&mut self, record: Record) -> Result<(), Error> {
        match record {
            Record::About(about) => self.about = about,
            Record::Op(op) => self.ops.push(op),
            Record::Open(open) => self.watches.push(Watch::from(open)),
            Record::Told(told) => {
                // Watches that talk are the last opened ones.
                let watch = self.watches.iter_mut().rev().find(|w| w.id == told.id);
                let watch = watch.ok_or(Error::NoSuchWatch(told.id))?;
                watch.told.push((told.at, told.said));
            }
            Record::List(txn) => self.lists.push(txn),
            Record::Set(op) => self.sets.push(op),
            Record::Held(held) => self.locks.push(held),
            Record::Fault(fault) => self.nemesis.push(fault),
            Record::Final(last) => self.finals.push(last),
            Record::Call(call) => self.calls.push(call),
            Record::ApiOpen(open) => self.api_watches.push(ApiWatch {
                open,
                told: Vec::new(),
            }),
            Record::ApiSaid(said) => {
                let mut watches = self.api_watches.iter_mut().rev();
                let watch = watches.find(|w| w.open.id == said.id);
                let watch = watch.ok_or(Error::NoSuchWatch(said.id))?;
                watch.told.push((said.at, said.said));
            }
        }
        Ok(())
    }

    /// Counts what clients did: operations, transactions, adds and reads.
    pub fn len(&self) -> usize {
        self.ops.len() + self.lists.len() + self.sets.len() + self.calls.len()
    }

    /// Says whether no client did anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names the first free watch number.
    pub fn next_watch(&self) -> u64 {
        self.watches.iter().map(|w| w.id + 1).max().unwrap_or(0)
    }
}

/// Says when a process did something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The process.
    pub process: u32,
    /// When it asked.
    pub call: Time,
    /// When it had its answer or gave up.
    pub ret: Time,
}

impl Span {
    /// Says whether this was over before `other` began.
    pub fn before(&self, other: &Self) -> bool {
        self.ret < other.call
    }
}
