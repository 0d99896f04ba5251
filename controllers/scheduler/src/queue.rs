//! Which pod is next: the three waiting rooms of pods without a node.
//!
//! ```text
//! new ──────────────> active ── pop ──> in flight ── bound: done
//!                       ▲  ▲                 │ rejected
//!          backoff over │  │ event, no       ▼
//!                    backoff <── backoff ── unschedulable   (an event, or 5 minutes)
//! ```
//!
//! *active*: by priority, then by how long it waits. *backoff*: was rejected, has
//! reason to try again, must wait 1 s, 2 s, 4 s … 10 s first; popped early when
//! nothing else is active (KEP-5142). *unschedulable*: nothing has changed that
//! could help.
//!
//! An event that comes while a pod is in flight is kept and replayed when the pod is
//! rejected: the cycle may not have seen it, and the pod would wait for nothing.
//!
//! Limits: each pod is in one room, so the rooms are bounded by the pods of the
//! cluster; kept events by what arrives during one binding.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::event::ClusterEvent;
use crate::pod::PodInfo;

/// Is the wait after the first failed attempt.
pub const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Bounds the wait.
pub const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// Is how long a pod waits for an event; then it is tried again all the same, in case
/// an event was missed.
pub const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(5 * 60);

/// Answers whether an event may let a pod fit that these plugins rejected.
pub type Hint<'a> = &'a dyn Fn(&BTreeSet<&'static str>, &PodInfo, &ClusterEvent) -> bool;

/// Is a pod on its way through the queue.
#[derive(Clone, Debug)]
pub struct QueuedPod {
    /// Is the pod.
    pub pod: Arc<PodInfo>,
    /// Is how often it was tried.
    pub attempts: u32,
    /// Is when it first came.
    pub first_seen: Duration,
    /// Is when it came into its present room.
    since: Duration,
    /// Names the plugins that rejected it last; empty after an error.
    rejected_by: BTreeSet<&'static str>,
    /// Is set after an error (a failed binding): it must wait its time out.
    failed: bool,
}

impl QueuedPod {
    fn backoff_until(&self) -> Duration {
        let doublings = self.attempts.saturating_sub(1).min(8);
        self.since + (INITIAL_BACKOFF * 2u32.pow(doublings)).min(MAX_BACKOFF)
    }
}

/// Orders the active room: priority first, then age; the sequence makes it total.
type ActiveKey = (Reverse<i32>, Duration, u64);

#[derive(Clone, Copy, Debug)]
enum Room {
    Active(ActiveKey),
    Backoff(Duration, u64),
    Unschedulable,
    Gated,
}

/// Holds pods without a node.
#[derive(Debug, Default)]
pub struct SchedulingQueue {
    pods: BTreeMap<String, (QueuedPod, Room)>,
    active: BTreeMap<ActiveKey, String>,
    backoff: BTreeMap<(Duration, u64), String>,
    unschedulable: BTreeSet<(Duration, String)>,
    /// Says from which event on each popped pod must be told again.
    in_flight: BTreeMap<String, u64>,
    events: VecDeque<(u64, Arc<ClusterEvent>)>,
    next_event: u64,
    sequence: u64,
}

impl SchedulingQueue {
    /// Takes in a pod that has no node yet.
    pub fn add(&mut self, pod: Arc<PodInfo>, now: Duration) {
        if self.in_flight.contains_key(&pod.uid) {
            return;
        }
        self.take_out(&pod.uid);
        let queued = QueuedPod {
            pod,
            attempts: 0,
            first_seen: now,
            since: now,
            rejected_by: BTreeSet::new(),
            failed: false,
        };
        self.activate(queued);
    }

    /// Takes over a change of a pod. A change that may let it fit tries it again.
    pub fn update(&mut self, pod: Arc<PodInfo>, now: Duration) {
        if self.in_flight.contains_key(&pod.uid) {
            return;
        }
        let Some((mut queued, room)) = self.take_out(&pod.uid) else {
            return self.add(pod, now);
        };
        let same = queued.pod.schedules_like(&pod);
        queued.pod = pod;
        match room {
            Room::Unschedulable if same => self.put(queued, Room::Unschedulable),
            Room::Unschedulable => self.retry(queued, now),
            Room::Backoff(until, _) => self.put_backoff(queued, until),
            Room::Active(_) | Room::Gated => self.activate(queued),
        }
    }

    /// Forgets a pod that is gone or has a node.
    pub fn delete(&mut self, uid: &str) {
        self.take_out(uid);
    }

    /// Takes the pod that is next. It stays in flight until [`SchedulingQueue::done`]
    /// or [`SchedulingQueue::reject`].
    pub fn pop(&mut self, now: Duration) -> Option<QueuedPod> {
        self.flush(now);
        let uid = match self.active.first_key_value() {
            Some((_, uid)) => uid.clone(),
            None => self.early()?,
        };
        let (mut queued, _) = self.take_out(&uid)?;
        queued.attempts = queued.attempts.saturating_add(1);
        self.in_flight.insert(uid, self.next_event);
        Some(queued)
    }

    /// Returns the next pod that waits its backoff out although nothing else is to do;
    /// not one whose last attempt ended in an error, which might come back at once.
    fn early(&self) -> Option<String> {
        let waiting = self.backoff.values();
        waiting
            .into_iter()
            .find(|uid| self.pods.get(*uid).is_some_and(|(q, _)| !q.failed))
            .cloned()
    }

    /// Ends the flight of a pod that has its node, or is gone.
    pub fn done(&mut self, uid: &str) {
        self.in_flight.remove(uid);
        self.forget_old_events();
    }

    /// Ends the flight of a pod that these plugins rejected. What happened meanwhile
    /// is replayed.
    pub fn reject(
        &mut self,
        mut queued: QueuedPod,
        rejected_by: BTreeSet<&'static str>,
        hint: Hint<'_>,
        now: Duration,
    ) {
        let since = self
            .in_flight
            .remove(&queued.pod.uid)
            .unwrap_or(self.next_event);
        let missed: Vec<_> = self
            .events
            .iter()
            .filter(|(at, _)| *at >= since)
            .cloned()
            .collect();
        self.forget_old_events();
        queued.since = now;
        queued.failed = false;
        queued.rejected_by = rejected_by;
        if missed
            .iter()
            .any(|(_, event)| hint(&queued.rejected_by, &queued.pod, event))
        {
            self.retry(queued, now);
        } else {
            self.put(queued, Room::Unschedulable);
        }
    }

    /// Ends the flight of a pod whose attempt failed for no fault of its own: it is
    /// tried again after its backoff.
    pub fn fail(&mut self, mut queued: QueuedPod, now: Duration) {
        self.done(&queued.pod.uid);
        queued.since = now;
        queued.failed = true;
        queued.rejected_by.clear();
        self.retry(queued, now);
    }

    /// Tells whether a pod was popped and its flight has not ended.
    pub fn is_in_flight(&self, uid: &str) -> bool {
        self.in_flight.contains_key(uid)
    }

    /// Tries pods again that a change in the cluster may have helped. Returns how many.
    pub fn on_event(&mut self, event: ClusterEvent, hint: Hint<'_>, now: Duration) -> usize {
        let helps = |uid: &String| {
            let waiting = self.pods.get(uid);
            waiting.is_some_and(|(q, _)| hint(&q.rejected_by, &q.pod, &event))
        };
        let waiting = self.unschedulable.iter().map(|(_, uid)| uid);
        let helped: Vec<String> = waiting.filter(|uid| helps(uid)).cloned().collect();
        for uid in &helped {
            if let Some((queued, _)) = self.take_out(uid) {
                self.retry(queued, now);
            }
        }
        if !self.in_flight.is_empty() {
            self.events.push_back((self.next_event, Arc::new(event)));
            self.next_event += 1;
        }
        helped.len()
    }

    /// Moves pods whose wait is over.
    pub fn flush(&mut self, now: Duration) {
        while let Some((&(until, _), uid)) = self.backoff.first_key_value() {
            if until > now {
                break;
            }
            let uid = uid.clone();
            if let Some((queued, _)) = self.take_out(&uid) {
                self.activate(queued);
            }
        }
        let stale: Vec<String> = self
            .unschedulable
            .iter()
            .take_while(|(since, _)| now >= *since + UNSCHEDULABLE_MAX)
            .map(|(_, uid)| uid.clone())
            .collect();
        for uid in stale {
            if let Some((queued, _)) = self.take_out(&uid) {
                self.retry(queued, now);
            }
        }
    }

    /// Tells whether [`SchedulingQueue::pop`] has something now.
    pub fn has_ready(&self) -> bool {
        !self.active.is_empty() || self.early().is_some()
    }

    /// Returns when [`SchedulingQueue::pop`] will next have something that it has not
    /// now; none if only an event can bring that.
    pub fn next_due(&self) -> Option<Duration> {
        let backoff = self.backoff.first_key_value().map(|((until, _), _)| *until);
        let unschedulable = self
            .unschedulable
            .first()
            .map(|(since, _)| *since + UNSCHEDULABLE_MAX);
        backoff.into_iter().chain(unschedulable).min()
    }

    /// Returns how many pods are active, in backoff, and unschedulable (or gated).
    pub fn depths(&self) -> (usize, usize, usize) {
        let (active, backoff) = (self.active.len(), self.backoff.len());
        (active, backoff, self.pods.len() - active - backoff)
    }

    /// Puts a pod where it waits its backoff out, or makes it active if that is over.
    fn retry(&mut self, queued: QueuedPod, now: Duration) {
        let until = queued.backoff_until();
        if queued.attempts > 0 && until > now {
            self.put_backoff(queued, until);
        } else {
            self.activate(queued);
        }
    }

    fn activate(&mut self, mut queued: QueuedPod) {
        if !queued.pod.gates.is_empty() {
            queued.rejected_by = ["SchedulingGates"].into();
            return self.put(queued, Room::Gated);
        }
        self.sequence += 1;
        let key = (Reverse(queued.pod.priority), queued.since, self.sequence);
        self.active.insert(key, queued.pod.uid.clone());
        self.put(queued, Room::Active(key));
    }

    fn put_backoff(&mut self, queued: QueuedPod, until: Duration) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.backoff
            .insert((until, sequence), queued.pod.uid.clone());
        self.put(queued, Room::Backoff(until, sequence));
    }

    fn put(&mut self, queued: QueuedPod, room: Room) {
        if matches!(room, Room::Unschedulable) {
            self.unschedulable
                .insert((queued.since, queued.pod.uid.clone()));
        }
        self.pods.insert(queued.pod.uid.clone(), (queued, room));
    }

    fn take_out(&mut self, uid: &str) -> Option<(QueuedPod, Room)> {
        let (queued, room) = self.pods.remove(uid)?;
        match room {
            Room::Active(key) => drop(self.active.remove(&key)),
            Room::Backoff(until, sequence) => drop(self.backoff.remove(&(until, sequence))),
            Room::Unschedulable => drop(self.unschedulable.remove(&(queued.since, uid.to_owned()))),
            Room::Gated => {}
        }
        Some((queued, room))
    }

    fn forget_old_events(&mut self) {
        let oldest = self
            .in_flight
            .values()
            .min()
            .copied()
            .unwrap_or(self.next_event);
        while self.events.front().is_some_and(|(at, _)| *at < oldest) {
            self.events.pop_front();
        }
    }
}

#[cfg(test)]
mod test;
