//! What a watch promises, each with its own name: nine rules after etcd's robustness
//! tests.
//!
//! Alone with what the watch was told: *filter* (only what was asked for), *ordered*
//! (revisions never go back), *unique* (nothing twice), *atomic* (a revision comes in
//! one piece), *bookmarkable* (nothing at or below a progress comes after it). Against
//! the log: *resumable* (it begins with the first that matches), *reliable* (nothing
//! missing between, nothing that did not happen), *prev-kv* (the pair before is the one
//! that was there), *is-create* (an event creates a key exactly if it was not there).

mod past;

#[cfg(test)]
mod tests;

use crate::{
    history::{Ask, Event, History, Request, Told, Watch},
    log::Log,
    model::within,
    verdict::{Anomalies, Anomaly, Verdict, names},
};

use past::Past;

/// Checks every watch of a history.
pub fn check(history: &History) -> Verdict {
    check_with(history, &Log::merge(history))
}

/// Checks every watch with the log at hand.
pub fn check_with(history: &History, log: &Log<'_>) -> Verdict {
    let mut anomalies = Anomalies::default();
    let past = Past::of(log);
    let compacted = compacted(history, log);
    for watch in &history.watches {
        let mut checker = Checker {
            watch,
            past: &past,
            compacted,
            anomalies: &mut anomalies,
            // Where the log has holes, only what a watch says by itself is judged.
            whole: log.unknown.is_none() && log.anomalies.is_empty(),
        };
        checker.alone();
        checker.against_the_log();
    }
    if anomalies.is_empty()
        && let Some(why) = &log.unknown
    {
        return Verdict::Unknown(why.clone());
    }
    anomalies.verdict()
}

/// Returns the greatest revision that anybody asked the store to compact, API servers
/// among them: these agree over a key, whose value is the revision.
pub(crate) fn compacted(history: &History, log: &Log<'_>) -> i64 {
    let asked = history.ops.iter().filter_map(|op| match op.request {
        Request::Compact { revision } => Some(revision),
        _ => None,
    });
    let called = history.calls.iter().filter_map(|call| match call.ask {
        Ask::Compact(revision) => Some(revision),
        _ => None,
    });
    let agreed = log.iter().flat_map(|(_, entry)| entry.events.iter());
    let agreed = agreed.filter(|event| event.kv.key[..] == *COMPACTOR);
    let agreed = agreed.filter_map(|event| std::str::from_utf8(&event.kv.value).ok()?.parse().ok());
    asked.chain(called).chain(agreed).max().unwrap_or(0)
}

/// The key over which API servers agree on who compacts.
const COMPACTOR: &[u8] = b"compact_rev_key";

struct Checker<'a, 'b> {
    watch: &'a Watch,
    past: &'b Past<'a>,
    compacted: i64,
    anomalies: &'b mut Anomalies,
    whole: bool,
}

impl<'a> Checker<'a, '_> {
    /// Describes something about one response.
    fn report(&mut self, name: &'static str, place: usize, text: String) {
        let watch = self.watch;
        self.anomalies.push(|| {
            let request = &watch.request;
            let text = format!(
                "watch {} of {} on member {} from {}: {text}",
                watch.id, request.key, watch.member, request.revision
            );
            let mut anomaly = Anomaly::new(name, text);
            // The response, and those around it.
            let from = place.saturating_sub(2);
            let shown = watch.told.iter().enumerate().skip(from).take(4);
            let nodes: Vec<_> = shown
                .map(|(_, (at, told))| anomaly.moment(watch.process, *at, told.to_string()))
                .collect();
            for pair in nodes.windows(2) {
                if let [one, next] = pair {
                    anomaly.edge(*one, *next, "then");
                }
            }
            anomaly
        });
    }

    /// Returns the first revision that is asked for, if it is known.
    fn start(&self) -> Option<i64> {
        if self.watch.request.revision > 0 {
            return Some(self.watch.request.revision);
        }
        self.watch.told.iter().find_map(|(_, told)| match told {
            // "From now on" is from after the revision in the answer to the creation.
            Told::Created { revision } => Some(revision + 1),
            _ => None,
        })
    }

    fn asks(&self, event: &Event) -> bool {
        let request = &self.watch.request;
        let kind = if event.delete {
            !request.no_delete
        } else {
            !request.no_put
        };
        kind && within(&event.kv.key, &request.key, &request.end)
    }

    /// Checks filter, ordered, unique, atomic, bookmarkable.
    fn alone(&mut self) {
        let watch = self.watch;
        let start = self.start();
        let mut last: Option<&Event> = None;
        let mut progress = 0;
        // The keys of the revision that is being told.
        let mut keys: Vec<&[u8]> = Vec::new();
        let mut open = false;
        for (place, (_, told)) in watch.told.iter().enumerate() {
            match told {
                Told::Events {
                    events, fragment, ..
                } => {
                    let split = last.filter(|_| !open).map(|last| last.kv.modified);
                    if let (Some(split), Some(first)) = (split, events.first())
                        && split == first.kv.modified
                        && !keys.contains(&&first.kv.key[..])
                    {
                        let text = format!("revision {split} comes in two responses");
                        self.report(names::SPLIT_REVISION, place, text);
                    }
                    for event in events {
                        self.one(event, place, start, last, progress, &mut keys);
                        last = Some(event);
                    }
                    open = *fragment;
                }
                Told::Progress { revision } => {
                    let reached = progress.max(last.map_or(0, |last| last.kv.modified));
                    if *revision < reached {
                        let text = format!("progress {revision} after {reached}");
                        self.report(names::PROGRESS_AHEAD, place, text);
                    }
                    progress = progress.max(*revision);
                }
                Told::Compacted { revision } => {
                    if *revision > self.compacted || start.is_some_and(|s| s >= *revision) {
                        let text = format!(
                            "ended as compacted at {revision}, and {} is the last that was",
                            self.compacted
                        );
                        self.report(names::WRONG_COMPACTION, place, text);
                    }
                }
                Told::Created { .. } | Told::Canceled(_) | Told::Lost => {}
            }
        }
    }

    fn one(
        &mut self,
        event: &'a Event,
        place: usize,
        start: Option<i64>,
        last: Option<&Event>,
        progress: i64,
        keys: &mut Vec<&'a [u8]>,
    ) {
        let revision = event.kv.modified;
        if !self.asks(event) || start.is_some_and(|start| revision < start) {
            let text = format!("{event} was not asked for");
            self.report(names::UNFILTERED_EVENT, place, text);
        }
        match last {
            Some(last) if last.kv.modified == revision => {
                if keys.contains(&&event.kv.key[..]) {
                    let text = format!("{event} comes twice");
                    self.report(names::DUPLICATE_EVENT, place, text);
                }
            }
            Some(last) if last.kv.modified > revision => {
                let text = format!("{event} comes after {last}");
                self.report(names::REORDERED_EVENT, place, text);
                keys.clear();
            }
            _ => keys.clear(),
        }
        keys.push(&event.kv.key);
        if revision <= progress {
            let text = format!("{event} comes after progress {progress}");
            self.report(names::PROGRESS_AHEAD, place, text);
        }
    }

    /// Checks resumable, reliable, prev-kv, is-create.
    fn against_the_log(&mut self) {
        let watch = self.watch;
        let (true, Some(start)) = (self.whole, self.start()) else {
            return;
        };
        let mut expected = self.past.matching(&watch.request, start).peekable();
        let mut first = true;
        let mut last = start - 1;
        for (place, (_, told)) in watch.told.iter().enumerate() {
            match told {
                Told::Events { events, .. } => {
                    for event in events {
                        let at = (event.kv.modified, &event.kv.key);
                        let Some(happened) = self.past.find(event.kv.modified, &event.kv.key)
                        else {
                            let text = format!("{event} never happened");
                            self.report(names::PHANTOM_EVENT, place, text);
                            continue;
                        };
                        // What is out of order or not asked for has a name already.
                        if event.kv.modified < last || !self.asks(event) {
                            continue;
                        }
                        last = event.kv.modified;
                        while let Some(missed) = expected.next_if(|e| e.before(&at)) {
                            let name = if first {
                                names::SKIPPED_START
                            } else {
                                names::SKIPPED_EVENT
                            };
                            let text = format!("{} is missing before {event}", missed.event);
                            self.report(name, place, text);
                        }
                        first = false;
                        expected.next_if(|e| e.is(&at));
                        self.compare(event, &happened, place);
                    }
                }
                Told::Progress { revision } => {
                    // Where the log ends nothing can be missing.
                    while let Some(missed) = expected.next_if(|e| e.event.kv.modified <= *revision)
                    {
                        let text = format!("progress {revision} without {}", missed.event);
                        self.report(names::PROGRESS_AHEAD, place, text);
                    }
                }
                _ => {}
            }
        }
    }

    fn compare(&mut self, event: &Event, happened: &past::Happened<'a>, place: usize) {
        let (kv, was) = (&event.kv, happened.before);
        if event.delete != happened.event.delete || kv.value != happened.event.kv.value {
            let text = format!("{event} is {} in the log", happened.event);
            self.report(names::PHANTOM_EVENT, place, text);
            return;
        }
        if !event.delete {
            let (create, version) = match was {
                Some(was) => (was.create, was.version + 1),
                None => (kv.modified, 1),
            };
            if (kv.create, kv.version) != (create, version) {
                let text = format!(
                    "{event} has create revision {} and version {}, not {create} and {version}",
                    kv.create, kv.version
                );
                self.report(names::WRONG_CREATE, place, text);
            } else if kv.lease != happened.event.kv.lease {
                let text = format!("{event} has lease {:x}", kv.lease);
                self.report(names::PHANTOM_EVENT, place, text);
            }
        }
        if !self.watch.request.prev_kv {
            return;
        }
        let forgotten = event.prev.is_none() && self.compacted >= kv.modified;
        if !forgotten && event.prev.as_deref() != was {
            let show = |kv: Option<&crate::history::Kv>| {
                kv.map_or_else(|| "nothing".to_owned(), ToString::to_string)
            };
            let (told, was) = (show(event.prev.as_deref()), show(was));
            let text = format!("{event} says that {told} was before, and it was {was}");
            self.report(names::WRONG_PREV, place, text);
        }
    }
}
