//! Runs the log through the model: every revision gets the one write that made it,
//! every answer must be the model's.

mod choices;
mod claims;

use std::collections::BTreeSet;

use crate::{
    history::{Body, Event, History, LeaseId, Op, Outcome, Refusal, Reply, Request, Time},
    log::{self, Entry, Log, same},
    model::Store,
    verdict::{ANOMALIES_MAX, Anomalies, Anomaly, names},
};

use super::place::{Role, reads_past, role, shows};
use choices::Choices;
use claims::Claims;

/// Is the outcome of a replay.
pub(super) struct Replay<'a> {
    history: &'a History,
    log: &'a Log<'a>,
    store: Store,
    claims: Claims,
    /// For each revision, when it or a later one was first known to exist.
    known: Vec<Time>,
    /// For each operation, the revision it made, or 0.
    pub(super) made: Vec<i64>,
    pub(super) anomalies: Anomalies,
    pub(super) unknown: Option<String>,
    /// What is believed of revisions with several explanations.
    choices: Choices,
    /// Whether a choice among several that may have made a revision was a guess.
    ambiguous: bool,
}

impl<'a> Replay<'a> {
    /// Runs the log of a history.
    pub(super) fn run(history: &'a History, log: &'a Log<'a>) -> Self {
        let store = if history.ops.iter().any(reads_past) {
            Store::new()
        } else {
            Store::without_past()
        };
        let mut replay = Self {
            history,
            log,
            store,
            claims: Claims::of(history),
            known: log::first_known(history, log.until),
            made: vec![0; history.ops.len()],
            anomalies: Anomalies::default(),
            unknown: None,
            choices: Choices::default(),
            ambiguous: false,
        };
        replay.writes_in_the_log();
        let order = replay.readings();
        let mut next = 0;
        loop {
            let now = replay.store.revision();
            while let Some(&(revision, at)) = order.get(next)
                && revision <= now
            {
                replay.see(at, revision);
                next += 1;
            }
            let Some(entry) = log.get(now + 1) else {
                break;
            };
            replay.step(now + 1, entry);
        }
        if let Some(&(revision, at)) = order.get(next) {
            let op = &history.ops[at];
            let until = log.until;
            replay.unknown.get_or_insert(format!(
                "{op} shows revision {revision}, the log is known up to {until}"
            ));
        }
        replay.refusals();
        replay
    }

    /// Gives each acknowledged write the revision it was acknowledged at.
    fn writes_in_the_log(&mut self) {
        let mut owners: Vec<(i64, usize)> = Vec::new();
        for (at, op) in self.history.ops.iter().enumerate() {
            if let Some(reply) = op.reply()
                && role(&op.request, reply) == Role::Wrote
            {
                owners.push((reply.revision, at));
            }
        }
        owners.sort_unstable();
        for pair in owners.windows(2) {
            if let [(revision, one), (same, other)] = pair
                && revision == same
            {
                let (one, other) = (&self.history.ops[*one], &self.history.ops[*other]);
                self.anomalies.push(|| {
                    let text = format!("two writes were acknowledged at revision {revision}");
                    let mut anomaly = Anomaly::new(names::SHARED_REVISION, text);
                    anomaly.op(one);
                    anomaly.op(other);
                    anomaly
                });
            }
        }
        for &(revision, at) in &owners {
            self.made[at] = revision;
            if self.log.get(revision).is_some() {
                continue;
            }
            let op = &self.history.ops[at];
            if revision > self.log.until {
                let until = self.log.until;
                self.unknown.get_or_insert(format!(
                    "{op} was acknowledged past revision {until}, where the log ends"
                ));
            } else {
                self.lost(op, "the log has no such revision");
            }
        }
        self.claims.own(owners, &self.history.ops);
    }

    fn lost(&mut self, op: &Op, instead: &str) {
        self.anomalies.push(|| {
            let text = format!("{op} was acknowledged, but {instead}");
            let mut anomaly = Anomaly::new(names::LOST_WRITE, text);
            anomaly.op(op);
            anomaly
        });
    }

    /// Orders what changed no key: by the revision it shows, then by its end, which
    /// keeps real time between grants and revocations of one lease.
    fn readings(&self) -> Vec<(i64, usize)> {
        let ops = &self.history.ops;
        let mut order: Vec<_> = ops
            .iter()
            .enumerate()
            .filter_map(|(at, op)| {
                let reply = op.reply()?;
                let role = role(&op.request, reply);
                (role != Role::Wrote).then(|| (shows(&op.request, reply), at))
            })
            .collect();
        order.sort_unstable_by_key(|&(revision, at)| (revision, ops[at].ret, at));
        order
    }

    /// Finds who made a revision, and compares what it changed and answered.
    fn step(&mut self, revision: i64, entry: &Entry<'_>) {
        if let Some(at) = self.claims.owner(revision) {
            self.step_owned(at, revision, entry);
        } else {
            self.step_found(revision, entry);
        }
        // Wherever the model went astray it goes on from what the log says.
        if self.store.revision() != revision {
            self.store.follow(&entry.events);
        }
    }

    fn step_owned(&mut self, at: usize, revision: i64, entry: &Entry<'_>) {
        let history = self.history;
        let op = &history.ops[at];
        let Some(reply) = op.reply() else {
            return;
        };
        self.lend_leases(&entry.events);
        match self.store.apply(&op.request) {
            Ok(applied) if same(&applied.events, &entry.events) => {
                if applied.body != reply.body {
                    self.wrong(op, &applied.body, revision);
                }
            }
            Ok(applied) => {
                self.store.undo(&applied.events);
                let changes = list(&entry.events);
                if decided(&applied.body) != decided(&reply.body) {
                    self.undecided(op, revision);
                } else if touches(&applied.events, &entry.events) {
                    let text = format!("revision {revision} is {changes}");
                    self.wrong_change(op, &text);
                } else {
                    self.lost(op, &format!("revision {revision} is {changes}"));
                }
            }
            Err(refusal) => self.anomalies.push(|| {
                let text = format!("{op} at revision {revision} had to be refused: {refusal:?}");
                let mut anomaly = Anomaly::new(names::NOT_REFUSED, text);
                anomaly.op(op);
                anomaly
            }),
        }
    }

    /// A transaction wrote what its condition forbade: somebody else's write was not
    /// seen.
    fn undecided(&mut self, op: &Op, revision: i64) {
        let before = self.claims.owner(revision - 1);
        let before = before.map(|at| &self.history.ops[at]);
        self.anomalies.push(|| {
            let text = format!("{op}: its condition decides otherwise before revision {revision}");
            let mut anomaly = Anomaly::new(names::LOST_UPDATE, text);
            let wrote = anomaly.op(op);
            if let Some(before) = before {
                let before = anomaly.op(before);
                anomaly.edge(before, wrote, format!("made revision {}", revision - 1));
            }
            anomaly
        });
    }

    fn wrong_change(&mut self, op: &Op, text: &str) {
        self.anomalies.push(|| {
            let text = format!("{op}: not what was asked for, {text}");
            let mut anomaly = Anomaly::new(names::WRONG_ANSWER, text);
            anomaly.op(op);
            anomaly
        });
    }

    /// Finds a write of unknown outcome, or the end of a lease, that explains a
    /// revision nobody was acknowledged.
    fn step_found(&mut self, revision: i64, entry: &Entry<'_>) {
        self.lend_leases(&entry.events);
        let history = self.history;
        let ended = self.ended_lease(&entry.events);
        let known = self.known(revision).min(entry.seen);
        let in_time = |at: usize| history.ops[at].call <= known;
        let candidates = self
            .claims
            .candidates(&entry.events, ended, &self.made, in_time);
        let (mut found, mut late) = (Vec::new(), None);
        for at in candidates.list {
            let op = &history.ops[at];
            if let (Request::Revoke { .. }, Some(reply)) = (&op.request, op.reply())
                && reply.revision != revision
            {
                continue;
            }
            let fits = match &op.request {
                Request::Revoke { id } => ended == Some(*id),
                request => self.would(request, &entry.events),
            };
            if fits && in_time(at) {
                found.push(at);
            } else if fits {
                late.get_or_insert(at);
            }
        }
        if let Some(at) = self.choose(&found, ended) {
            self.believe(revision, Some(at), found, ended);
            let _done = self.store.apply(&history.ops[at].request);
            self.made[at] = revision;
        } else if let Some(lease) = ended {
            // Time ended it, or a revocation of which nobody heard.
            let others = self.elsewhere(&entry.events);
            self.believe(revision, None, others, ended);
            let _gone = self.store.apply(&Request::Revoke { id: lease });
        } else if let Some(at) = self.think_again(&entry.events) {
            let _done = self.store.apply(&history.ops[at].request);
            self.made[at] = revision;
        } else if candidates.cut || (self.ambiguous && entry.events.iter().all(|e| e.delete)) {
            let text = format!("too many operations may have made revision {revision}");
            self.unknown.get_or_insert(text);
        } else {
            self.unexplained(revision, entry, late);
        }
    }

    /// Says whether a request would change just that now.
    fn would(&mut self, request: &Request, events: &[Event]) -> bool {
        let Ok(applied) = self.store.apply(request) else {
            return false;
        };
        self.store.undo(&applied.events);
        same(&applied.events, events)
    }

    /// Finds somebody who would make a revision, and what he is believed to have made
    /// has another explanation.
    fn think_again(&mut self, events: &[Event]) -> Option<usize> {
        let mut tried = BTreeSet::new();
        let others = self.elsewhere(events);
        others
            .into_iter()
            .find(|at| tried.insert(*at) && self.release(*at, &mut tried))
    }

    /// Chooses among those who may have made a revision. Deletes of one key are alike,
    /// and the first asked is right. One of many keys may not fit later. What has a condition may not get another chance,
    /// and goes first; yet where anything but plain deletes competes, the choice may
    /// turn out to be wrong, and no revision is called a phantom for it later.
    fn choose(&mut self, found: &[usize], ended: Option<LeaseId>) -> Option<usize> {
        let ops = &self.history.ops;
        let plain = |at: &usize| match &ops[*at].request {
            Request::Delete(delete) => delete.end.is_empty(),
            request => matches!(request, Request::Put(_)),
        };
        if found.len() + usize::from(ended.is_some()) > 1
            && (ended.is_some() || !found.iter().all(plain))
        {
            self.ambiguous = true;
        }
        let acknowledged = found.iter().find(|at| ops[**at].reply().is_some());
        let first = acknowledged.or_else(|| found.iter().find(|at| !plain(at)));
        first.or_else(|| found.first()).copied()
    }

    fn unexplained(&mut self, revision: i64, entry: &Entry<'_>, late: Option<usize>) {
        let history = self.history;
        // Looking for a suspect takes long; nobody reads of the hundredth.
        if self.anomalies.found >= ANOMALIES_MAX {
            self.anomalies.found += 1;
            return;
        }
        let suspect = late
            .map(|at| (names::FROM_THE_FUTURE, at))
            .or_else(|| claims::suspect(&entry.events, history, &self.made));
        self.anomalies.push(|| {
            let changes = list(&entry.events);
            let (name, why) = match suspect {
                None => (names::PHANTOM, "which nobody asked for".to_owned()),
                Some((name, at)) => {
                    let op = &history.ops[at];
                    let why = match name {
                        names::DOUBLE_APPLY => "which was done before by",
                        names::ABORTED_WRITE => "which was refused:",
                        _ => "seen before it was asked for by",
                    };
                    (name, format!("{why} {op}"))
                }
            };
            let text = format!("revision {revision} is {changes}, {why}");
            let mut anomaly = Anomaly::new(name, text);
            let label = format!("revision {revision}: {changes}");
            let seen = anomaly.moment(entry.member.into(), entry.seen, label);
            if let Some((_, at)) = suspect {
                let op = anomaly.op(&history.ops[at]);
                anomaly.edge(op, seen, "same write");
            }
            anomaly
        });
    }

    /// Compares the answer of something that changed no key.
    fn see(&mut self, at: usize, revision: i64) {
        let history = self.history;
        let op = &history.ops[at];
        let Some(reply) = op.reply() else {
            return;
        };
        match &op.request {
            Request::KeepAlive { .. }
            | Request::TimeToLive { .. }
            | Request::Auth(_)
            | Request::Lock { .. }
            | Request::Unlock { .. } => return,
            // Its keys went with a revision that was looked at; without keys it just ends.
            Request::Revoke { id } => {
                self.revoked(op, *id);
                return;
            }
            Request::Grant { id, .. } => {
                self.granted(op, reply, *id);
                return;
            }
            // Whether that much could be forgotten, and only once, is asked below.
            Request::Compact { .. } => return,
            Request::Range(_) | Request::Put(_) | Request::Delete(_) | Request::Txn(_) => {}
        }
        match self.answer_at(&op.request, revision) {
            Ok(applied) => {
                self.store.undo(&applied.events);
                if applied.body != reply.body {
                    self.wrong(op, &applied.body, revision);
                }
            }
            Err(refusal) => self.anomalies.push(|| {
                let text = format!("{op} had to be refused: {refusal:?}");
                let mut anomaly = Anomaly::new(names::NOT_REFUSED, text);
                anomaly.op(op);
                anomaly
            }),
        }
    }

    /// Asks the model, which stands at the revision that is to be shown.
    fn answer_at(
        &mut self,
        request: &Request,
        revision: i64,
    ) -> Result<crate::model::Applied, Refusal> {
        match request {
            Request::Range(range) if range.revision == revision => {
                let mut range = range.clone();
                range.revision = 0;
                self.store.apply(&Request::Range(range))
            }
            request => self.store.apply(request),
        }
    }

    fn revoked(&mut self, op: &Op, id: LeaseId) {
        match self.store.lease(id) {
            Some(lease) if !lease.keys.is_empty() => {
                let keys: Vec<_> = lease.keys.iter().map(ToString::to_string).collect();
                self.anomalies.push(|| {
                    let text = format!("{op} left {} behind", keys.join(" "));
                    let mut anomaly = Anomaly::new(names::LEFT_BEHIND, text);
                    anomaly.op(op);
                    anomaly
                });
            }
            _ => self.store.end_lease(id),
        }
    }

    fn granted(&mut self, op: &Op, reply: &Reply, asked: LeaseId) {
        let Body::Lease { id, ttl } = reply.body else {
            return;
        };
        if asked != 0 && asked != id {
            let ttl = ttl.max(1);
            self.wrong(op, &Body::Lease { id: asked, ttl }, reply.revision);
        }
        self.store.ensure_lease(id, ttl);
    }

    fn wrong(&mut self, op: &Op, expected: &Body, revision: i64) {
        let maker = self.claims.owner(revision).map(|at| &self.history.ops[at]);
        self.anomalies.push(|| {
            let text = format!("{op}: at revision {revision} the answer is {expected}");
            let mut anomaly = Anomaly::new(names::WRONG_ANSWER, text);
            let seen = anomaly.op(op);
            if let Some(maker) = maker.filter(|maker| !std::ptr::eq(*maker, op)) {
                let maker = anomaly.op(maker);
                anomaly.edge(maker, seen, format!("made revision {revision}"));
            }
            anomaly
        });
    }

    /// Checks that what was refused for a revision could be refused, and that what
    /// was forbidden was not served.
    fn refusals(&mut self) {
        let history = self.history;
        let compactions = claims::Compactions::of(history);
        for op in &history.ops {
            let (name, why) = match &op.outcome {
                Outcome::Fail(refusal) => match compactions.refuses(op, refusal) {
                    Some(why) => (names::WRONG_REFUSAL, why),
                    None => continue,
                },
                Outcome::Ok(_) => match compactions.forbids(op) {
                    Some(why) => (names::NOT_REFUSED, why),
                    None => continue,
                },
                Outcome::Info(_) => continue,
            };
            self.anomalies.push(|| {
                let mut anomaly = Anomaly::new(name, format!("{op}, although {why}"));
                anomaly.op(op);
                anomaly
            });
        }
    }
}

/// Returns which way a transaction went.
fn decided(body: &Body) -> Option<bool> {
    match body {
        Body::Txn { succeeded, .. } => Some(*succeeded),
        _ => None,
    }
}

fn list(events: &[Event]) -> String {
    let changes: Vec<_> = events.iter().map(Event::to_string).collect();
    changes.join(" ")
}

/// Says whether two lists of changes are about the same keys with the same values.
fn touches(one: &[Event], other: &[Event]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| {
            one.kv.key == other.kv.key
                && one.delete == other.delete
                && one.kv.value == other.kv.value
        })
}
