//! The log of the store: every revision and what it changed, put together from
//! what the members' watches of everything were told.
//!
//! Each member is watched by itself, one watch after another where a stream was
//! lost. Members must agree on every revision that two of them told of.

use std::borrow::Cow;

use crate::{
    history::{Event, History, Time, Told, Watch},
    verdict::{Anomalies, Anomaly, names},
};

/// Is the log of a store.
#[derive(Debug, Default)]
pub struct Log<'a> {
    /// What each revision changed, from revision 2 on; empty where nobody was told.
    entries: Vec<Entry<'a>>,
    /// All revisions up to here are known, because a watch said so.
    pub until: i64,
    /// What is wrong with the logs themselves.
    pub anomalies: Anomalies,
    /// Why the log cannot be relied on, if so.
    pub unknown: Option<String>,
}

/// Is one revision.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// What it changed, in the order of the transaction.
    pub events: Cow<'a, [Event]>,
    /// When somebody was first told.
    pub seen: Time,
    /// By which member.
    pub member: u8,
}

/// The revision of an empty store; the first write has the next.
const FIRST: i64 = 1;

/// The greatest revision that is believed. A file that tells of more is damaged, and
/// would otherwise take all memory; the log is then unknown.
pub const REVISION_MAX: i64 = 1 << 27;

impl<'a> Log<'a> {
    /// Puts the log together.
    pub fn merge(history: &'a History) -> Self {
        let mut log = Self {
            until: FIRST,
            ..Self::default()
        };
        let mut any = false;
        for watch in history.watches.iter().filter(|w| w.whole) {
            any = true;
            log.take(watch);
        }
        if !any {
            log.unknown = Some("no member was watched from the first revision on".to_owned());
        }
        log.find_holes(history);
        log
    }

    /// Returns what a revision changed.
    pub fn get(&self, revision: i64) -> Option<&Entry<'a>> {
        let entry = self.entries.get(place(revision)?)?;
        (!entry.events.is_empty()).then_some(entry)
    }

    /// Walks over all revisions that are known, in order.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Entry<'a>)> {
        let known = self.entries.iter().enumerate();
        known
            .filter(|(_, entry)| !entry.events.is_empty())
            .filter_map(|(at, entry)| Some((i64::try_from(at).ok()? + FIRST + 1, entry)))
    }

    /// Takes one watch's events, revision by revision. A revision that comes in two
    /// responses is put together here; the watch checker has an opinion on that.
    fn take(&mut self, watch: &'a Watch) {
        let mut open: Option<(i64, Entry<'a>)> = None;
        for (at, told) in &watch.told {
            match told {
                Told::Events { events, .. } => {
                    for events in events.chunk_by(|a, b| a.kv.modified == b.kv.modified) {
                        let revision = events.first().map_or(0, |event| event.kv.modified);
                        match &mut open {
                            Some((last, entry)) if *last == revision => {
                                entry.events.to_mut().extend_from_slice(events);
                            }
                            _ => {
                                self.close(open.take());
                                let entry = Entry {
                                    events: Cow::Borrowed(events),
                                    seen: *at,
                                    member: watch.member,
                                };
                                open = Some((revision, entry));
                            }
                        }
                    }
                }
                Told::Progress { revision } if self.believes(*revision) => {
                    self.until = self.until.max(*revision);
                }
                _ => {}
            }
        }
        self.close(open);
    }

    fn close(&mut self, entry: Option<(i64, Entry<'a>)>) {
        let Some((revision, entry)) = entry else {
            return;
        };
        let Some(at) = place(revision) else {
            return;
        };
        if !self.believes(revision) {
            return;
        }
        self.until = self.until.max(revision);
        while self.entries.len() <= at {
            self.entries.push(Entry {
                events: Cow::Borrowed(&[]),
                seen: Time::MAX,
                member: 0,
            });
        }
        let known = &mut self.entries[at];
        if known.events.is_empty() {
            *known = entry;
        } else if same(&known.events, &entry.events) {
            known.seen = known.seen.min(entry.seen);
        } else {
            let known = &*known;
            self.anomalies.push(|| {
                let tell = |entry: &Entry<'_>| {
                    let changes: Vec<_> = entry.events.iter().map(Event::to_string).collect();
                    format!("member {} has {}", entry.member, changes.join(" "))
                };
                let (one, other) = (tell(known), tell(&entry));
                let text = format!("at revision {revision}, {one}; {other}");
                let mut anomaly = Anomaly::new(names::DIVERGED, text);
                anomaly.moment(known.member.into(), known.seen, one);
                anomaly.moment(entry.member.into(), entry.seen, other);
                anomaly
            });
        }
    }

    fn believes(&mut self, revision: i64) -> bool {
        if revision > REVISION_MAX {
            let text = format!("revision {revision} is past {REVISION_MAX}");
            self.unknown.get_or_insert(text);
        }
        revision <= REVISION_MAX
    }

    /// Looks for revisions nobody told of. It is the store's fault only if one watch
    /// went on past them: one that was lost may miss what was compacted meanwhile.
    fn find_holes(&mut self, history: &History) {
        let mut at = 0;
        let end = place(self.until).map_or(0, |place| place + 1);
        while at < end {
            let known = |at: usize| self.entries.get(at).is_some_and(|e| !e.events.is_empty());
            if known(at) {
                at += 1;
                continue;
            }
            let from = at;
            while at < end && !known(at) {
                at += 1;
            }
            let (first, last) = (revision(from), revision(at - 1));
            let watches = history.watches.iter().filter(|w| w.whole);
            let passed = watches.filter(|w| passes(w, first, last)).count();
            if passed > 0 {
                self.anomalies.push(|| {
                    let text = format!(
                        "revisions {first} to {last} are missing, and {passed} watches went on past them"
                    );
                    Anomaly::new(names::SKIPPED_REVISION, text)
                });
            } else {
                let text = format!("no watch was told of revisions {first} to {last}");
                self.unknown.get_or_insert(text);
            }
        }
    }
}

/// Says whether a watch began before a hole and went on after it.
fn passes(watch: &Watch, first: i64, last: i64) -> bool {
    watch.request.revision > 0
        && watch.request.revision <= first
        && watch.told.iter().any(|(_, told)| match told {
            Told::Events { events, .. } => events.iter().any(|event| event.kv.modified > last),
            Told::Progress { revision } => *revision >= last,
            _ => false,
        })
}

fn place(revision: i64) -> Option<usize> {
    usize::try_from(revision - FIRST - 1).ok()
}

fn revision(place: usize) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX) + FIRST + 1
}

/// Collects when each revision was first known to exist.
pub(crate) fn first_known(history: &History, until: i64) -> Vec<Time> {
    let mut known = vec![Time::MAX; usize::try_from(until + 1).unwrap_or_default()];
    let mut note = |revision: i64, at: Time| {
        let place = usize::try_from(revision.min(until)).unwrap_or_default();
        if let Some(known) = known.get_mut(place) {
            *known = at.min(*known);
        }
    };
    for op in &history.ops {
        if let Some(reply) = op.reply() {
            note(reply.revision, op.ret);
        }
    }
    for watch in &history.watches {
        for (at, told) in &watch.told {
            match told {
                Told::Events { revision, .. }
                | Told::Created { revision }
                | Told::Progress { revision } => note(*revision, *at),
                Told::Compacted { .. } | Told::Canceled(_) | Told::Lost => {}
            }
        }
    }
    let mut first = Time::MAX;
    for known in known.iter_mut().rev() {
        first = first.min(*known);
        *known = first;
    }
    known
}

/// Says whether two lists of events are the same changes; the pair before is told
/// only to who asks.
pub(crate) fn same(one: &[Event], other: &[Event]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| one.delete == other.delete && one.kv == other.kv)
}
