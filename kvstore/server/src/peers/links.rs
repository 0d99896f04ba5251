//! What the core needs of the links to other members, whatever carries them.

use std::{collections::BTreeSet, fmt, time::Duration};

use super::{Address, Note, Peers, Undelivered};

/// The links, as the core sees them; none of it waits.
pub(crate) trait Links: Send + Sync + fmt::Debug {
    /// Makes links to all members but this one, ends those to everybody else.
    fn update(&self, members: &[Address], removed: &BTreeSet<u64>);

    /// Hands a note to the link of a peer; an error says that it will not arrive.
    fn send(&self, to: u64, note: Note) -> Result<(), Undelivered>;

    /// Returns for how long the link to a peer has been up.
    fn active_for(&self, peer: u64) -> Option<Duration>;
}

impl Links for Peers {
    fn update(&self, members: &[Address], removed: &BTreeSet<u64>) {
        Self::update(self, members, removed);
    }

    fn send(&self, to: u64, note: Note) -> Result<(), Undelivered> {
        Self::send(self, to, note)
    }

    fn active_for(&self, peer: u64) -> Option<Duration> {
        Self::active_for(self, peer)
    }
}
