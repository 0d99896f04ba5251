//! Leases: none ends before its time, each ends within a bound, and its keys go
//! with it.
//!
//! Whoever was told that a lease was granted or renewed knows that it lives for its
//! time from then on, and "then" is not before the request was sent. So each sign that
//! the lease is gone, at a time before the last such request plus its time, is proof
//! that it ended early; no guess about clocks is needed, but for how fast they run.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    history::{
        Blob, Body, Delete, Event, History, Kv, LeaseId, Op, Outcome, Refusal, Request, Time, Txn,
        TxnOp,
    },
    log::{Log, first_known},
    model::within,
    verdict::{Anomalies, Anomaly, Verdict, names},
};

/// Says how exact leases have to be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// How much earlier than the runner's clock says is forgiven, for clocks that do
    /// not run alike.
    pub early: Time,
    /// How much later is forgiven; without it lateness is not looked at, as nobody can
    /// promise it while there is no leader.
    pub late: Option<Time>,
}

const SECOND: Time = 1_000_000_000;

/// Is what is known of one lease.
#[derive(Default)]
struct Lease<'a> {
    granted: Option<&'a Op>,
    /// The request that proves the longest life, and until when.
    alive: Option<(Time, &'a Op)>,
    /// Until when it may live because of requests that nobody knows the end of; `MAX`
    /// if no bound is known.
    may_live: Time,
    /// When it was first asked to be revoked.
    revoked: Option<Time>,
    /// What says that it is gone.
    gone: Vec<&'a Op>,
}

/// Checks every lease of a history.
pub fn check(history: &History, limits: Limits) -> Verdict {
    check_with(history, &Log::merge(history), limits)
}

/// Checks every lease with the log at hand.
pub fn check_with(history: &History, log: &Log<'_>, limits: Limits) -> Verdict {
    let leases = collect(history);
    let mut anomalies = Anomalies::default();
    for (id, lease) in &leases {
        for gone in &lease.gone {
            let revoked = lease.revoked.is_some_and(|revoked| revoked <= gone.ret);
            let before = lease.granted.is_none_or(|granted| granted.ret >= gone.call);
            if !revoked && !before {
                early(&mut anomalies, *id, lease, gone.ret, limits, |anomaly| {
                    anomaly.op(gone)
                });
            }
        }
    }
    let mut ends = Ends {
        history,
        log,
        limits,
        leases: &leases,
        anomalies,
        attached: BTreeMap::new(),
        live: BTreeMap::new(),
    };
    ends.run();
    ends.anomalies.verdict()
}

fn collect(history: &History) -> BTreeMap<LeaseId, Lease<'_>> {
    let mut leases: BTreeMap<LeaseId, Lease<'_>> = BTreeMap::new();
    for op in &history.ops {
        match (&op.request, &op.outcome) {
            (Request::Grant { .. } | Request::KeepAlive { .. }, Outcome::Ok(reply)) => {
                let Body::Lease { id, ttl } = reply.body else {
                    continue;
                };
                let lease = leases.entry(id).or_default();
                let Ok(ttl @ 1..) = u64::try_from(ttl) else {
                    lease.gone.push(op);
                    continue;
                };
                if matches!(op.request, Request::Grant { .. }) {
                    lease.granted = Some(op);
                }
                let until = op.call + ttl * SECOND;
                if lease.alive.is_none_or(|(alive, _)| alive < until) {
                    lease.alive = Some((until, op));
                }
                lease.may_live = lease.may_live.max(op.ret + ttl * SECOND);
            }
            (Request::KeepAlive { id } | Request::Grant { id, .. }, Outcome::Info(_)) => {
                leases.entry(*id).or_default().may_live = Time::MAX;
            }
            (Request::TimeToLive { id }, Outcome::Ok(reply)) => {
                if matches!(reply.body, Body::Lease { ttl, .. } if ttl < 0) {
                    leases.entry(*id).or_default().gone.push(op);
                }
            }
            (Request::Revoke { id }, outcome) => {
                let lease = leases.entry(*id).or_default();
                if matches!(outcome, Outcome::Fail(Refusal::LeaseNotFound)) {
                    lease.gone.push(op);
                } else if !matches!(outcome, Outcome::Fail(_)) {
                    lease.revoked = Some(lease.revoked.map_or(op.call, |at| at.min(op.call)));
                }
            }
            (Request::Put(put), Outcome::Fail(Refusal::LeaseNotFound)) => {
                leases.entry(put.lease).or_default().gone.push(op);
            }
            _ => {}
        }
    }
    leases
}

/// Reports a lease that was gone at a time before it could be.
fn early(
    anomalies: &mut Anomalies,
    id: LeaseId,
    lease: &Lease<'_>,
    gone: Time,
    limits: Limits,
    sign: impl FnOnce(&mut Anomaly) -> usize,
) {
    let Some((until, renewal)) = lease.alive else {
        return;
    };
    let missing = until.saturating_sub(gone);
    if gone == Time::MAX || missing <= limits.early {
        return;
    }
    anomalies.push(|| {
        let text = format!(
            "lease {id:x} was gone {:.3} s before its time; {renewal}",
            seconds(missing)
        );
        let mut anomaly = Anomaly::new(names::EARLY_LEASE, text);
        let renewal = anomaly.op(renewal);
        let sign = sign(&mut anomaly);
        anomaly.edge(renewal, sign, "too soon after");
        anomaly
    });
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn seconds(time: Time) -> f64 {
    time as f64 / SECOND as f64
}

/// Follows the log for the ends of leases that it tells of.
struct Ends<'a, 'b> {
    history: &'a History,
    log: &'a Log<'a>,
    limits: Limits,
    leases: &'b BTreeMap<LeaseId, Lease<'a>>,
    anomalies: Anomalies,
    attached: BTreeMap<LeaseId, BTreeSet<&'a Blob>>,
    live: BTreeMap<&'a Blob, &'a Kv>,
}

impl<'a> Ends<'a, '_> {
    fn run(&mut self) {
        let log = self.log;
        let known = first_known(self.history, log.until);
        let writers = Writers::of(self.history);
        // A lower bound of the time of each revision: the last call among its writers.
        let mut now = 0;
        for (revision, entry) in log.iter() {
            let first = entry.events.first();
            let lease = first
                .filter(|event| event.delete)
                .and_then(|event| self.live.get(&event.kv.key))
                .map(|kv| kv.lease)
                .filter(|id| *id != 0 && !writers.explain(revision, &entry.events));
            if let Some(id) = lease {
                let place = usize::try_from(revision).unwrap_or_default();
                let seen = known.get(place).copied().unwrap_or(Time::MAX);
                self.ended(id, revision, &entry.events, seen.min(entry.seen));
            }
            self.late(&entry.events, now);
            self.follow(&entry.events);
            now = now.max(writers.called(revision));
        }
        let left: Vec<_> = self
            .attached
            .iter()
            .filter(|(_, keys)| !keys.is_empty())
            .collect();
        let left: Vec<_> = left.into_iter().map(|(id, _)| *id).collect();
        for id in left {
            self.late_one(id, now);
        }
    }

    fn follow(&mut self, events: &'a [Event]) {
        for event in events {
            if let Some(before) = self.live.remove(&event.kv.key)
                && let Some(keys) = self.attached.get_mut(&before.lease)
            {
                keys.remove(&event.kv.key);
            }
            if !event.delete {
                self.live.insert(&event.kv.key, &event.kv);
                if event.kv.lease != 0 {
                    let keys = self.attached.entry(event.kv.lease).or_default();
                    keys.insert(&event.kv.key);
                }
            }
        }
    }

    /// No client made this revision: time ended a lease.
    fn ended(&mut self, id: LeaseId, revision: i64, events: &[Event], seen: Time) {
        let keys = self.attached.get(&id).cloned().unwrap_or_default();
        let gone: BTreeSet<_> = events.iter().map(|event| &event.kv.key).collect();
        let left: Vec<_> = keys.iter().filter(|key| !gone.contains(**key)).collect();
        if !left.is_empty() {
            let left: Vec<_> = left.iter().map(ToString::to_string).collect();
            self.anomalies.push(|| {
                let left = left.join(" ");
                let text = format!("lease {id:x} ended at revision {revision} and left {left}");
                Anomaly::new(names::LEFT_BEHIND, text)
            });
        }
        let Some(lease) = self.leases.get(&id) else {
            return;
        };
        if lease.revoked.is_none_or(|revoked| revoked > seen) {
            early(
                &mut self.anomalies,
                id,
                lease,
                seen,
                self.limits,
                |anomaly| {
                    let label = format!("its keys went at revision {revision}");
                    anomaly.moment(u32::MAX, seen, label)
                },
            );
        }
    }

    /// Looks at leases whose keys were still there at a time.
    fn late(&mut self, events: &[Event], now: Time) {
        let ids: BTreeSet<_> = events
            .iter()
            .filter(|event| event.delete)
            .filter_map(|event| self.live.get(&event.kv.key))
            .map(|kv| kv.lease)
            .filter(|id| *id != 0)
            .collect();
        for id in ids {
            self.late_one(id, now);
        }
    }

    fn late_one(&mut self, id: LeaseId, now: Time) {
        let (Some(late), Some(lease)) = (self.limits.late, self.leases.get(&id)) else {
            return;
        };
        let until = lease.may_live.saturating_add(late);
        if lease.granted.is_some() && lease.revoked.is_none() && now > until {
            self.anomalies.push(|| {
                let text = format!(
                    "lease {id:x} was there {:.3} s after its time",
                    seconds(now - lease.may_live)
                );
                Anomaly::new(names::LATE_LEASE, text)
            });
        }
    }
}

/// Knows which revisions and deletes clients may have made.
struct Writers<'a> {
    /// The call of who was acknowledged at a revision.
    acknowledged: BTreeMap<i64, Time>,
    /// Deletes of unknown outcome.
    unknown: Vec<&'a Delete>,
    unlocked: Vec<Blob>,
}

impl<'a> Writers<'a> {
    fn of(history: &'a History) -> Self {
        let mut writers = Self {
            acknowledged: BTreeMap::new(),
            unknown: Vec::new(),
            unlocked: Vec::new(),
        };
        for op in &history.ops {
            match (&op.request, &op.outcome) {
                (Request::Unlock { key }, _) => writers.unlocked.push(key.clone()),
                // Whoever waits for a lock and goes away is taken out of the queue
                // (etcd: concurrency/mutex.go, `Lock`).
                (Request::Lock { name, lease }, Outcome::Fail(_) | Outcome::Info(_)) => {
                    let place = format!("/{lease:x}");
                    let key = [&name[..], place.as_bytes()].concat();
                    writers.unlocked.push(key.into());
                }
                (Request::Put(_), Outcome::Ok(reply)) => {
                    writers.acknowledged.insert(reply.revision, op.call);
                }
                (
                    Request::Delete(_) | Request::Txn(_) | Request::Revoke { .. },
                    Outcome::Ok(reply),
                ) if wrote(&reply.body) => {
                    writers.acknowledged.insert(reply.revision, op.call);
                }
                (Request::Delete(delete), Outcome::Info(_)) => writers.unknown.push(delete),
                (Request::Txn(txn), Outcome::Info(_)) => writers.txn(txn),
                _ => {}
            }
        }
        writers
    }

    fn txn(&mut self, txn: &'a Txn) {
        for op in txn.success.iter().chain(&txn.failure) {
            match op {
                TxnOp::Delete(delete) => self.unknown.push(delete),
                TxnOp::Txn(nested) => self.txn(nested),
                TxnOp::Range(_) | TxnOp::Put(_) => {}
            }
        }
    }

    fn explain(&self, revision: i64, events: &[Event]) -> bool {
        self.acknowledged.contains_key(&revision)
            || events.iter().any(|event| {
                let key = &event.kv.key;
                self.unlocked.contains(key)
                    || self.unknown.iter().any(|d| within(key, &d.key, &d.end))
            })
    }

    fn called(&self, revision: i64) -> Time {
        self.acknowledged.get(&revision).copied().unwrap_or(0)
    }
}

fn wrote(body: &Body) -> bool {
    match body {
        Body::Put { .. } | Body::Done => true,
        Body::Delete { deleted, .. } => *deleted > 0,
        Body::Txn { results, .. } => results.iter().any(wrote),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Told, events, grant, lease, put, was_deleted, was_put, wrote};

    /// Grants five seconds at 0, attaches a key, and sees it go at a time.
    fn history(seen: Time) -> History {
        let mut history = History::default();
        history.ok(0, (0, 10), grant(7, 5), lease(1, 7, 5));
        history.ok(0, (20, 30), put("a", "1").with(7), wrote(2));
        let mut pair = crate::history::kv("a", "1", 2, 2, 1);
        pair.lease = 7;
        history.log(0, [events(2, [was_put(pair)])]);
        history.watches[0]
            .told
            .push((seen, events(3, [was_deleted("a", 3)])));
        history
    }

    fn word(history: &History) -> &'static str {
        let late = Some(SECOND);
        check(history, Limits { early: 0, late }).word()
    }

    #[test]
    fn a_lease_lives_for_its_time_from_the_call() {
        assert_eq!(word(&history(5 * SECOND)), "valid");
        assert_eq!(word(&history(5 * SECOND - 1)), "early-lease");
        let mut renewed = history(8 * SECOND);
        let renewal = Request::KeepAlive { id: 7 };
        renewed.ok(0, (4 * SECOND, 5 * SECOND), renewal, lease(2, 7, 5));
        assert_eq!(word(&renewed), "early-lease");
        let revoked = Outcome::Info("timeout".into());
        renewed.ops[2].request = Request::Revoke { id: 7 };
        renewed.ops[2].outcome = revoked;
        assert_eq!(word(&renewed), "valid", "it may have been revoked");
    }

    #[test]
    fn whoever_hears_that_it_is_gone_proves_it() {
        let mut history = history(Time::MAX);
        let gone = Outcome::Fail(Refusal::LeaseNotFound);
        history.ok(0, (40, 50), put("b", "1").with(7), wrote(3));
        history.ops[2].outcome = gone;
        assert_eq!(word(&history), "early-lease");
        (history.ops[2].call, history.ops[2].ret) = (6 * SECOND, 6 * SECOND + 1);
        assert_eq!(word(&history), "valid");
    }

    #[test]
    fn a_lease_must_end_within_the_bound() {
        let mut history = history(Time::MAX);
        history.watches[0].told.pop();
        let mut late = |call: Time| {
            history.ops.truncate(2);
            history.ok(0, (call, call + 1), put("c", "1"), wrote(3));
            let pair = crate::history::kv("c", "1", 3, 3, 1);
            history.watches[0].told.truncate(2);
            let told = events(3, [was_put(pair)]);
            history.watches[0].told.push((Time::MAX, told));
            word(&history)
        };
        assert_eq!(late(6 * SECOND), "valid");
        assert_eq!(late(7 * SECOND), "late-lease");
    }

    #[test]
    fn all_keys_go_with_it() {
        let mut history = history(9 * SECOND);
        let told = &mut history.watches[0].told;
        if let Some((_, Told::Events { events, .. })) = told.get_mut(1) {
            let mut pair = crate::history::kv("b", "1", 2, 2, 1);
            pair.lease = 7;
            events.push(was_put(pair));
        }
        assert_eq!(word(&history), "left-behind");
    }
}
