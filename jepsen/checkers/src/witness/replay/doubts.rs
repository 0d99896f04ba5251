//! Second thoughts: a delete, a revocation and the time of a lease may each explain
//! that a key is gone. One is believed until something contradicts it.

use crate::history::{Event, LeaseId, Request};

use super::Replay;

/// The end of a lease that another operation may explain.
pub(super) struct Ending {
    revision: i64,
    /// The revocation that was believed, if it was not time.
    revoke: Option<usize>,
    /// What else made the revision, if it was not that.
    delete: usize,
    /// The lease whose end explains what that is believed to have made.
    instead: Option<LeaseId>,
    ttl: i64,
}

impl Replay<'_> {
    /// Looks for a delete that was believed to have made an earlier revision, where the
    /// end of a lease explains that too: it was the lease, and the delete came now.
    pub(super) fn think_again(&mut self, events: &[Event]) -> Option<usize> {
        let fits = self.fitting_guess(events)?;
        let (at, lease) = self.guesses.swap_remove(fits);
        self.store.end_lease(lease);
        Some(at)
    }

    fn fitting_guess(&mut self, events: &[Event]) -> Option<usize> {
        let history = self.history;
        (0..self.guesses.len()).find(|guess| {
            let (at, lease) = self.guesses[*guess];
            let over = self.store.lease(lease).is_none_or(|l| l.keys.is_empty());
            over && self.would(&history.ops[at].request, events)
        })
    }

    /// Returns the lease whose keys are exactly what was deleted.
    pub(super) fn ended_lease(&self, events: &[Event]) -> Option<LeaseId> {
        let first = events.first().filter(|event| event.delete)?;
        let id = self.store.live().get(&first.kv.key)?.lease;
        let keys = &self.store.lease(id).filter(|_| id != 0)?.keys;
        let all = events.len() == keys.len()
            && events
                .iter()
                .zip(keys)
                .all(|(event, key)| event.delete && event.kv.key == *key);
        all.then_some(id)
    }

    /// Remembers what else may have happened where a revocation is believed.
    pub(super) fn note_ending(&mut self, revision: i64, at: usize, found: &[usize]) {
        let ops = &self.history.ops;
        let revokes = |at: usize| matches!(ops[at].request, Request::Revoke { .. });
        if let Request::Revoke { id } = ops[at].request
            && let Some(delete) = found.iter().find(|other| !revokes(**other))
            && let Some(lease) = self.store.lease(id)
        {
            let ending = Ending {
                revision,
                revoke: Some(at),
                delete: *delete,
                instead: None,
                ttl: lease.ttl,
            };
            self.endings.insert(id, ending);
        }
    }

    /// Remembers the same where time is believed to have ended a lease, and a delete
    /// that would do as well is believed to have come before.
    pub(super) fn note_lapse(&mut self, revision: i64, id: LeaseId, events: &[Event]) {
        let Some(guess) = self.fitting_guess(events) else {
            return;
        };
        let (delete, instead) = self.guesses[guess];
        if let Some(lease) = self.store.lease(id) {
            let ending = Ending {
                revision,
                revoke: None,
                delete,
                instead: Some(instead),
                ttl: lease.ttl,
            };
            self.endings.insert(id, ending);
        }
    }

    /// A key that was put under a lease proves that the lease was granted, even if
    /// who asked for it never heard, and that it was not revoked, even if that is what
    /// explained a delete so far.
    pub(super) fn lend_leases(&mut self, events: &[Event]) {
        for event in events {
            let id = event.kv.lease;
            if id == 0 || self.store.lease(id).is_some() {
                continue;
            }
            let ending = self.endings.remove(&id);
            if let Some(ending) = ending.filter(|ending| self.frees(ending)) {
                if let Some(revoke) = ending.revoke {
                    self.made[revoke] = 0;
                }
                self.made[ending.delete] = ending.revision;
                self.store.ensure_lease(id, ending.ttl);
            } else if let Some(ttl) = self.claims.unheard_grant(id) {
                self.store.ensure_lease(id, ttl);
            }
        }
    }

    /// Makes the delete free to have made another revision than it was believed to
    /// have made, if it is not.
    fn frees(&mut self, ending: &Ending) -> bool {
        let Some(instead) = ending.instead else {
            return self.made[ending.delete] == 0;
        };
        let guess = (ending.delete, instead);
        let Some(at) = self.guesses.iter().position(|other| *other == guess) else {
            return false;
        };
        self.guesses.swap_remove(at);
        self.store.end_lease(instead);
        true
    }
}
