//! Classic bugs of replicated stores, to be planted one at a time: a simulator that
//! does not find them finds nothing.
//!
//! Where a bug would be, the product asks [`planted`]. Without the feature `plant`,
//! which only `jepsen`'s feature `mutants` turns on, the answer is a constant no, and
//! nothing is left of the question in what is built.

/// Declares the bugs, each with what it is called.
macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal;)*) => {
        /// A bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($(#[$doc])* $bug,)* }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$bug,)*];

            /// Returns what it is called.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$bug => $name,)* }
            }
        }
    };
}

bugs! {
    /// The log reports a write that it has not synced.
    AckBeforeSync = "ack before fsync";
    /// What may leave only after a write leaves before it.
    SendBeforeSync = "messages sent before fsync";
    /// A linearizable read answers from what the member has applied.
    ReadWithoutIndex = "read without ReadIndex";
    /// All attempts at a read index have one number.
    ReadContextReused = "ReadIndex context used again";
    /// The vote is left out of the log.
    VoteNotPersisted = "vote not persisted";
    /// A leader counts leases by its own clock from its start.
    LeaseByOwnClock = "lease expired locally";
    /// A watch goes on behind a compaction as if nothing had been there.
    WatchGapAtCompaction = "watch gap at compaction";
    /// A deletion at the compacted revision is not told.
    DeleteLostAtCompaction = "lost delete at the compact revision";
    /// A watcher that is slow loses what does not fit.
    SlowWatcherLoses = "slow watcher loses events";
    /// Watchers do not hear what came with a snapshot.
    WatchGapAtSnapshot = "watch gap at a snapshot";
    /// Which branch a transaction takes is decided where it is asked for.
    TxnOutsideLog = "txn decided outside the log";
    /// The last change is not in a snapshot.
    SnapshotWithoutTail = "snapshot without its tail";
    /// A renamed file's directory is not synced.
    DirectoryNotSynced = "directory not synced after a rename";
    /// A record's body is not compared with its checksum.
    TornRecordAccepted = "torn record accepted";
    /// After a start the last entry is applied again.
    AppliedAgain = "duplicated apply after restart";
    /// A proposal that comes twice is carried out twice.
    ProposalTwice = "duplicated proposal applied twice";
}

#[cfg(feature = "plant")]
mod plant {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a bug in everything that runs on this thread, or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Says whether a bug is planted.
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "plant")]
pub use plant::{plant, planted};

/// Says whether a bug is planted: never.
#[cfg(not(feature = "plant"))]
#[inline(always)]
pub const fn planted(_bug: Bug) -> bool {
    false
}
