//! Who made the revisions that nobody was acknowledged: a choice, until something
//! contradicts it.
//!
//! Several deletes of unknown outcome, a revocation and the time of a lease may each
//! explain that a key is gone. Whichever is believed, the state is the same, so what
//! was believed can be taken back as long as another explanation is left: revisions
//! are matched with those who may have made them, and along an augmenting path anew
//! where one finds none (Kuhn's algorithm for bipartite matching).

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Event, LeaseId, Request, Time};

use super::Replay;

/// Operations remembered for one revision; the first asked for are the likeliest.
const OPTIONS_MAX: usize = 32;

/// Beliefs that are looked at for one that was wrong, the newest: an operation takes
/// effect soon or never.
const LOOKED_AT_MAX: usize = 500;

/// Is what is believed of each revision that has several explanations.
#[derive(Default)]
pub(super) struct Choices {
    made: BTreeMap<i64, Choice>,
    /// When each lease is believed to have ended, where a delete would do as well.
    ended: BTreeMap<LeaseId, i64>,
}

struct Choice {
    /// What is believed to have made it; none is the time of the lease.
    chosen: Option<usize>,
    /// Deletes and transactions that would have done the same.
    options: Vec<usize>,
    /// The lease whose end would have, and its time.
    lease: Option<(LeaseId, i64)>,
}

impl Replay<'_> {
    /// Remembers what a revision was explained by, and by what else it may be.
    pub(super) fn believe(
        &mut self,
        revision: i64,
        chosen: Option<usize>,
        options: Vec<usize>,
        lease: Option<LeaseId>,
    ) {
        let revokes = |at: &usize| matches!(self.history.ops[*at].request, Request::Revoke { .. });
        let ends = chosen.is_none_or(|at| revokes(&at));
        let options: Vec<_> = options
            .into_iter()
            .filter(|at| !revokes(at))
            .take(OPTIONS_MAX)
            .collect();
        let lease = lease.and_then(|id| Some((id, self.store.lease(id)?.ttl)));
        if options.len() + usize::from(lease.is_some()) < 2 {
            return;
        }
        if let Some((id, _)) = lease.filter(|_| ends) {
            self.choices.ended.insert(id, revision);
        }
        let choice = Choice {
            chosen,
            options,
            lease,
        };
        self.choices.made.insert(revision, choice);
    }

    /// Names the operations that are believed to have made an earlier revision, and
    /// would make this one.
    pub(super) fn elsewhere(&mut self, events: &[Event]) -> Vec<usize> {
        if events.iter().any(|event| !event.delete) {
            return Vec::new();
        }
        let history = self.history;
        let newest = self.choices.made.values().rev().take(LOOKED_AT_MAX);
        let mut chosen: Vec<_> = newest.filter_map(|choice| choice.chosen).collect();
        chosen.sort_unstable_by_key(|at| history.ops[*at].call);
        chosen.retain(|at| self.would(&history.ops[*at].request, events));
        chosen.truncate(OPTIONS_MAX);
        chosen
    }

    /// Makes an operation free to have made another revision than is believed, if
    /// what it made has another explanation.
    pub(super) fn release(&mut self, at: usize, tried: &mut BTreeSet<usize>) -> bool {
        let revision = self.made[at];
        if revision == 0 {
            return true;
        }
        let Some(choice) = self.choices.made.get(&revision) else {
            return false;
        };
        let is_over = |id| {
            self.store
                .lease(id)
                .is_none_or(|lease| lease.keys.is_empty())
        };
        if let Some((id, _)) = choice.lease.filter(|(id, _)| is_over(*id)) {
            self.store.end_lease(id);
            self.choices.ended.insert(id, revision);
            self.settle(revision, None);
            return true;
        }
        let others: Vec<_> = choice
            .options
            .iter()
            .copied()
            .filter(|o| *o != at)
            .collect();
        let other = others
            .into_iter()
            .find(|other| tried.insert(*other) && self.release(*other, tried));
        other
            .inspect(|other| self.settle(revision, Some(*other)))
            .is_some()
    }

    /// Believes something else of a revision.
    fn settle(&mut self, revision: i64, chosen: Option<usize>) {
        if let Some(choice) = self.choices.made.get_mut(&revision) {
            if let Some(before) = std::mem::replace(&mut choice.chosen, chosen)
                && self.made[before] == revision
            {
                self.made[before] = 0;
            }
            if let Some(now) = chosen {
                self.made[now] = revision;
            }
        }
    }

    /// Believes that a lease has not ended where it was believed to, if what was
    /// explained by that has another explanation.
    fn revive(&mut self, id: LeaseId) -> bool {
        let Some(revision) = self.choices.ended.remove(&id) else {
            return false;
        };
        let Some(choice) = self.choices.made.get(&revision) else {
            return false;
        };
        let (options, lease) = (choice.options.clone(), choice.lease);
        let mut tried = BTreeSet::new();
        let other = options
            .into_iter()
            .find(|other| tried.insert(*other) && self.release(*other, &mut tried));
        let (Some(other), Some((_, ttl))) = (other, lease) else {
            return false;
        };
        self.settle(revision, Some(other));
        if let Some(choice) = self.choices.made.get_mut(&revision) {
            choice.lease = None;
        }
        self.store.ensure_lease(id, ttl);
        true
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

    /// A key that was put under a lease proves that the lease was granted, even if
    /// who asked for it never heard, and that it had not ended, even if that is what
    /// explained a delete so far.
    pub(super) fn lend_leases(&mut self, events: &[Event]) {
        for event in events {
            let id = event.kv.lease;
            if id == 0 || self.store.lease(id).is_some() || self.revive(id) {
                continue;
            }
            if let Some(ttl) = self.claims.unheard_grant(id) {
                self.store.ensure_lease(id, ttl);
            }
        }
    }

    /// Returns when a revision was first known to exist.
    pub(super) fn known(&self, revision: i64) -> Time {
        let known = usize::try_from(revision).ok();
        let known = known.and_then(|at| self.known.get(at));
        known.copied().unwrap_or(Time::MAX)
    }
}
