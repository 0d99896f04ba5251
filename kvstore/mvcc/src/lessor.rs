//! Leases: what is replicated (who exists, for how long, which keys), and the
//! clocks that only the leader keeps.
//!
//! Granting, revoking and checkpointing come through the log. Time does not:
//! the leader counts it, proposes a revocation when it runs out, and a new
//! leader starts every lease afresh (etcd `server/lease/lessor.go`). So a lease
//! may live longer than it was granted, never shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use crate::backend::BackendError;
use crate::command::LeaseId;
use crate::error::Error;
use crate::machine::{LeaseStatus, Renewed};
use crate::view::LeaseFact;
use crate::wire::{Reader, WireError, put_i64};

/// The longest lease, in seconds (etcd `lease.MaxLeaseTTL`).
pub const LEASE_TTL_MAX: i64 = 9_000_000_000;

/// How long a lease named by `expired` is not named again, so that a lost
/// proposal is repeated and a slow one is not flooded (etcd: 3 s).
const EXPIRED_RETRY: Duration = Duration::from_secs(3);

/// Is one lease.
#[derive(Debug, Default)]
struct Lease {
    ttl: i64,
    /// Seconds left at the last checkpoint, 0 for none.
    checkpoint: i64,
    keys: BTreeSet<Bytes>,
    /// When it runs out; only on the leader, once its clock started.
    deadline: Option<Duration>,
    /// Its present places in the schedules.
    check_at: Duration,
    counted_from: Duration,
}

impl Lease {
    fn seconds(&self) -> i64 {
        if self.checkpoint > 0 {
            self.checkpoint
        } else {
            self.ttl
        }
    }
}

/// Is all leases.
#[derive(Debug, Default)]
pub(crate) struct Lessor {
    leases: BTreeMap<LeaseId, Lease>,
    clocks: Option<Clocks>,
}

/// Is what the leader knows about time.
#[derive(Debug, Default)]
struct Clocks {
    /// When to look at which lease next.
    schedule: BTreeSet<(Duration, LeaseId)>,
    /// Since when a lease runs without a checkpoint.
    unrecorded: BTreeSet<(Duration, LeaseId)>,
    /// Leases granted since the last call that knew the time.
    fresh: Vec<LeaseId>,
}

impl Lessor {
    // --- replicated ---

    /// Creates a lease; returns the seconds granted.
    pub(crate) fn grant(&mut self, id: LeaseId, ttl: i64, ttl_min: i64) -> Result<i64, Error> {
        if id == 0 {
            return Err(Error::LeaseNotFound);
        }
        if ttl > LEASE_TTL_MAX {
            return Err(Error::LeaseTtlTooLarge);
        }
        if self.leases.contains_key(&id) {
            return Err(Error::LeaseExists);
        }
        let ttl = ttl.max(ttl_min);
        self.restore(id, ttl, 0);
        if let Some(clocks) = &mut self.clocks {
            clocks.fresh.push(id);
        }
        Ok(ttl)
    }

    pub(crate) fn restore(&mut self, id: LeaseId, ttl: i64, checkpoint: i64) {
        let lease = Lease {
            ttl,
            checkpoint,
            ..Lease::default()
        };
        self.leases.insert(id, lease);
    }

    pub(crate) fn exists(&self, id: LeaseId) -> bool {
        self.leases.contains_key(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }

    /// Removes a lease; returns its keys, sorted.
    pub(crate) fn revoke(&mut self, id: LeaseId) -> Option<BTreeSet<Bytes>> {
        let lease = self.leases.remove(&id)?;
        if let Some(clocks) = &mut self.clocks {
            clocks.schedule.remove(&(lease.check_at, id));
            clocks.unrecorded.remove(&(lease.counted_from, id));
        }
        Some(lease.keys)
    }

    /// Records the seconds left; returns whether the lease exists.
    pub(crate) fn checkpoint(&mut self, id: LeaseId, left: i64) -> bool {
        let Some(lease) = self.leases.get_mut(&id) else {
            return false;
        };
        lease.checkpoint = left.clamp(0, lease.ttl);
        true
    }

    pub(crate) fn attach(&mut self, id: LeaseId, key: Bytes) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.insert(key);
        }
    }

    pub(crate) fn detach(&mut self, id: LeaseId, key: &[u8]) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.remove(key);
        }
    }

    pub(crate) fn ids(&self) -> Vec<LeaseId> {
        self.leases.keys().copied().collect()
    }

    pub(crate) fn facts(&self) -> Vec<LeaseFact> {
        let fact = |(id, lease): (&LeaseId, &Lease)| LeaseFact {
            id: *id,
            ttl: lease.ttl,
            remaining: lease.checkpoint,
        };
        self.leases.iter().map(fact).collect()
    }

    pub(crate) fn keys(&self, id: LeaseId) -> Vec<Bytes> {
        self.leases
            .get(&id)
            .map(|l| l.keys.iter().cloned().collect())
            .unwrap_or_default()
    }

    // --- rows ---

    /// Encodes the row of a lease; `None` if there is no such lease (any more).
    pub(crate) fn row(&self, id: LeaseId) -> Option<Bytes> {
        let lease = self.leases.get(&id)?;
        Some(encode_row(lease.ttl, lease.checkpoint))
    }

    pub(crate) fn restore_row(&mut self, key: &[u8], row: Bytes) -> Result<(), BackendError> {
        let id = key[1..].try_into().map(i64::from_be_bytes);
        let id = id.map_err(|e| BackendError::corrupt(key, format!("not a lease id: {e}")))?;
        let mut r = Reader::new(row);
        let mut read = || -> Result<(i64, i64), WireError> { Ok((r.i64()?, r.i64()?)) };
        let (ttl, checkpoint) = read().map_err(|e| BackendError::corrupt(key, format!("{e:?}")))?;
        self.restore(id, ttl, checkpoint);
        Ok(())
    }

    // --- the leader's clocks ---

    /// Starts the clocks. Every lease gets its time again, and `extend` for the
    /// keepalives that could not be heard meanwhile.
    pub(crate) fn promote(&mut self, now: Duration, extend: Duration) {
        self.demote();
        let now = match mutants::planted(mutants::Bug::LeaseByOwnClock) {
            true => Duration::ZERO,
            false => now,
        };
        let mut clocks = Clocks::default();
        for (id, lease) in &mut self.leases {
            clocks.start(*id, lease, now + extend, lease.seconds());
        }
        self.clocks = Some(clocks);
    }

    pub(crate) fn demote(&mut self) {
        self.clocks = None;
        for lease in self.leases.values_mut() {
            lease.deadline = None;
        }
    }

    pub(crate) fn renew(&mut self, id: LeaseId, now: Duration) -> Result<Renewed, Error> {
        self.start_fresh(now);
        let clocks = self.clocks.as_mut().ok_or(Error::LeaseNotFound)?;
        let lease = self.leases.get_mut(&id).ok_or(Error::LeaseNotFound)?;
        if lease.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(Error::LeaseNotFound);
        }
        clocks.start(id, lease, now, lease.ttl);
        Ok(Renewed {
            ttl: lease.ttl,
            clear_checkpoint: lease.checkpoint > 0,
        })
    }

    pub(crate) fn expired(&mut self, now: Duration, limit: usize) -> Vec<LeaseId> {
        self.start_fresh(now);
        let Some(clocks) = &mut self.clocks else {
            return Vec::new();
        };
        let due = |s: &&(Duration, LeaseId)| s.0 <= now;
        let due: Vec<_> = clocks
            .schedule
            .iter()
            .take_while(due)
            .take(limit)
            .copied()
            .collect();
        for (at, id) in &due {
            clocks.schedule.remove(&(*at, *id));
            if let Some(lease) = self.leases.get_mut(id) {
                lease.check_at = now + EXPIRED_RETRY;
                clocks.schedule.insert((lease.check_at, *id));
            }
        }
        due.into_iter().map(|(_, id)| id).collect()
    }

    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        let clocks = self.clocks.as_ref()?;
        if !clocks.fresh.is_empty() {
            return Some(Duration::ZERO);
        }
        clocks.schedule.first().map(|(at, _)| *at)
    }

    pub(crate) fn checkpoints_due(
        &mut self,
        now: Duration,
        interval: Duration,
        limit: usize,
    ) -> Vec<(LeaseId, i64)> {
        self.start_fresh(now);
        let Some(clocks) = &mut self.clocks else {
            return Vec::new();
        };
        let due = |s: &&(Duration, LeaseId)| s.0 + interval <= now;
        let due: Vec<_> = clocks
            .unrecorded
            .iter()
            .take_while(due)
            .take(limit)
            .copied()
            .collect();
        let mut out = Vec::new();
        for (from, id) in due {
            clocks.unrecorded.remove(&(from, id));
            let Some(lease) = self.leases.get_mut(&id) else {
                continue;
            };
            lease.counted_from = now;
            clocks.unrecorded.insert((now, id));
            let left = lease
                .deadline
                .map_or(0, |d| seconds_up(d.saturating_sub(now)));
            if left > 0 && left < lease.ttl {
                out.push((id, left));
            }
        }
        out
    }

    pub(crate) fn status(&self, id: LeaseId, now: Duration) -> Option<LeaseStatus> {
        let lease = self.leases.get(&id)?;
        let left = |deadline: Duration| deadline.saturating_sub(now).as_secs() as i64;
        Some(LeaseStatus {
            id,
            ttl: lease.deadline.map_or(lease.seconds(), left),
            granted_ttl: lease.ttl,
        })
    }

    /// Starts the clocks of leases granted since the time was last known.
    pub(crate) fn start_fresh(&mut self, now: Duration) {
        let Some(clocks) = &mut self.clocks else {
            return;
        };
        for id in std::mem::take(&mut clocks.fresh) {
            if let Some(lease) = self.leases.get_mut(&id)
                && lease.deadline.is_none()
            {
                clocks.start(id, lease, now, lease.ttl);
            }
        }
    }
}

impl Clocks {
    fn start(&mut self, id: LeaseId, lease: &mut Lease, from: Duration, seconds: i64) {
        self.schedule.remove(&(lease.check_at, id));
        self.unrecorded.remove(&(lease.counted_from, id));
        let deadline = from + Duration::from_secs(seconds.max(0) as u64);
        lease.deadline = Some(deadline);
        lease.check_at = deadline;
        lease.counted_from = from;
        self.schedule.insert((deadline, id));
        self.unrecorded.insert((from, id));
    }
}

/// Encodes the row of a lease: seconds granted, seconds left.
pub(crate) fn encode_row(ttl: i64, checkpoint: i64) -> Bytes {
    let mut row = BytesMut::with_capacity(16);
    put_i64(&mut row, ttl);
    put_i64(&mut row, checkpoint);
    row.freeze()
}

/// Builds the row key of a lease.
pub(crate) fn row_key(id: LeaseId) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(b'l');
    key.put_i64(id);
    key.freeze()
}

fn seconds_up(d: Duration) -> i64 {
    d.as_secs() as i64 + i64::from(d.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn granting() {
        let mut l = Lessor::default();
        assert_eq!(l.grant(0, 5, 2), Err(Error::LeaseNotFound));
        assert_eq!(
            l.grant(1, LEASE_TTL_MAX + 1, 2),
            Err(Error::LeaseTtlTooLarge)
        );
        assert_eq!(l.grant(1, LEASE_TTL_MAX, 2), Ok(LEASE_TTL_MAX));
        assert_eq!(l.grant(1, 5, 2), Err(Error::LeaseExists));
        assert_eq!(l.grant(2, -7, 2), Ok(2));
    }

    #[test]
    fn only_the_leader_counts_time() {
        let mut l = Lessor::default();
        l.grant(1, 5, 2).unwrap();
        assert!(l.expired(s(100), 10).is_empty());
        assert_eq!(l.renew(1, s(100)), Err(Error::LeaseNotFound));
        assert_eq!(l.status(1, s(100)).unwrap().ttl, 5);

        l.promote(s(100), s(1));
        assert_eq!(l.status(1, s(101)).unwrap().ttl, 5);
        assert_eq!(l.next_expiry(), Some(s(106)));
        assert!(l.expired(s(105), 10).is_empty());
        assert_eq!(l.renew(1, s(105)).unwrap().ttl, 5);
        assert!(l.expired(s(109), 10).is_empty());
        assert_eq!(l.expired(s(110), 10), [1]);
        assert_eq!(l.renew(1, s(110)), Err(Error::LeaseNotFound), "too late");
        assert!(l.expired(s(112), 10).is_empty(), "named a moment ago");
        assert_eq!(l.expired(s(113), 10), [1], "named again");

        l.demote();
        assert!(l.expired(s(200), 10).is_empty());
    }

    #[test]
    fn a_lease_granted_under_a_leader_starts_when_time_is_next_known() {
        let mut l = Lessor::default();
        l.promote(s(0), s(0));
        l.grant(1, 5, 2).unwrap();
        assert_eq!(l.next_expiry(), Some(s(0)));
        assert!(l.expired(s(10), 10).is_empty());
        assert_eq!(l.next_expiry(), Some(s(15)));
        l.revoke(1);
        assert_eq!(l.next_expiry(), None);
    }

    #[test]
    fn expiry_is_paced() {
        let mut l = Lessor::default();
        for id in 1..=5 {
            l.grant(id, 5, 2).unwrap();
        }
        l.promote(s(0), s(0));
        assert_eq!(l.expired(s(9), 3), [1, 2, 3]);
        assert_eq!(l.expired(s(9), 3), [4, 5]);
    }

    #[test]
    fn checkpoints() {
        let mut l = Lessor::default();
        l.grant(1, 1000, 2).unwrap();
        l.promote(s(0), s(0));
        assert!(l.checkpoints_due(s(299), s(300), 10).is_empty());
        assert_eq!(l.checkpoints_due(s(300), s(300), 10), [(1, 700)]);
        assert!(l.checkpoints_due(s(301), s(300), 10).is_empty());
        assert!(l.checkpoint(1, 700));
        l.demote();
        l.promote(s(0), s(0));
        assert_eq!(l.status(1, s(0)).unwrap().ttl, 700, "a new leader goes on");
        assert_eq!(
            l.renew(1, s(1)),
            Ok(Renewed {
                ttl: 1000,
                clear_checkpoint: true
            })
        );
    }

    #[test]
    fn rows() {
        let mut l = Lessor::default();
        l.grant(-5, 77, 2).unwrap();
        l.checkpoint(-5, 33);
        let mut m = Lessor::default();
        m.restore_row(&row_key(-5), l.row(-5).unwrap()).unwrap();
        assert_eq!(m.row(-5), l.row(-5));
        assert!(m.restore_row(b"l12", Bytes::new()).is_err());
        assert!(m.restore_row(&row_key(1), Bytes::new()).is_err());
    }
}
