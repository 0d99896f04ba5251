//! The links of a simulated member: a box that the simulator empties.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::peers::{Address, Links, Note, Undelivered};

#[derive(Debug, Default)]
struct Book {
    /// For how long the link to each peer has been up.
    peers: BTreeMap<u64, Option<Duration>>,
    /// Those of `peers` that are no members as far as this one knows.
    guests: BTreeSet<u64>,
    removed: BTreeSet<u64>,
    outgoing: Vec<(u64, Note)>,
}

/// The links of one member.
#[derive(Debug)]
pub struct SimLinks {
    own: u64,
    book: Mutex<Book>,
}

impl SimLinks {
    pub(super) fn new(own: u64) -> Self {
        Self {
            own,
            book: Mutex::default(),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was sent.
    pub(super) fn take(&self) -> Vec<(u64, Note)> {
        mem::take(&mut self.book().outgoing)
    }

    /// Answers whoever sends something: a member that lags may not know its leader yet.
    pub(super) fn welcome(&self, peer: u64) {
        let mut book = self.book();
        let stranger = peer != self.own && !book.peers.contains_key(&peer);
        if stranger && !book.removed.contains(&peer) {
            book.peers.insert(peer, None);
            book.guests.insert(peer);
        }
    }

    /// Says for how long the link to a peer has been up.
    pub fn set_up(&self, peer: u64, since: Option<Duration>) {
        if let Some(up) = self.book().peers.get_mut(&peer) {
            *up = since;
        }
    }

    /// Lists the peers there are links to.
    pub fn peers(&self) -> Vec<u64> {
        self.book().peers.keys().copied().collect()
    }

    /// Says whether a member was removed from the cluster, as this one knows.
    pub fn knows_removed(&self, member: u64) -> bool {
        self.book().removed.contains(&member)
    }
}

impl Links for SimLinks {
    fn update(&self, members: &[Address], removed: &BTreeSet<u64>) {
        let mut book = self.book();
        let book = &mut *book;
        for member in members {
            if member.id != self.own {
                book.peers.entry(member.id).or_default();
            }
        }
        let is_member = |id: &u64| members.iter().any(|member| member.id == *id);
        book.guests
            .retain(|id| !is_member(id) && !removed.contains(id));
        let guests = &book.guests;
        book.peers
            .retain(|id, _| is_member(id) || guests.contains(id));
        book.removed.clone_from(removed);
    }

    fn send(&self, to: u64, note: Note) -> Result<(), Undelivered> {
        let mut book = self.book();
        if !book.peers.contains_key(&to) {
            return Err(Undelivered::NoSuchPeer);
        }
        book.outgoing.push((to, note));
        Ok(())
    }

    fn active_for(&self, peer: u64) -> Option<Duration> {
        *self.book().peers.get(&peer)?
    }
}
