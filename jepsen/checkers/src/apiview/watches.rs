//! Watches: what came is what happened since, once, in order and nothing else, over
//! whatever was cut in between; and what was due did come.

use std::collections::BTreeMap;

use crate::{
    history::{ApiTold, ApiWatch, Content, Read, Scope, Seen, Since},
    verdict::{Anomalies, Anomaly, names},
};

use super::{
    View,
    past::{Change, Past},
};

/// How many of the answers before a bad one are shown with it.
const SHOWN_BEFORE: usize = 2;

pub(super) fn check(view: &View<'_>) -> Anomalies {
    let mut found = Anomalies::default();
    for watch in &view.history.api_watches {
        let mut checker = Checker {
            view,
            watch,
            found: &mut found,
        };
        match watch.open.from {
            Since::After(rv) => checker.events(0, rv),
            Since::State(read) => checker.state(read),
        }
    }
    found
}

/// Is what a change is to a watch.
#[derive(Debug)]
struct Due<'a> {
    word: &'static str,
    change: &'a Change,
    content: &'a Content,
}

/// Says what a change is to who watches a scope, if it is anything: what leaves is
/// shown as it was before.
fn due<'a>(scope: &Scope, change: &'a Change) -> Option<Due<'a>> {
    if !scope.holds(&change.key) {
        return None;
    }
    let before = change.before.as_ref().map(|(_, before)| &**before);
    let before = before.filter(|content| scope.selects(content));
    let now = change.now.as_deref().filter(|c| scope.selects(c));
    let (word, content) = match (before, now) {
        (None, None) => return None,
        (None, Some(now)) => (ADDED, now),
        (Some(_), Some(now)) => (MODIFIED, now),
        (Some(before), None) => (DELETED, before),
    };
    Some(Due {
        word,
        change,
        content,
    })
}

const ADDED: &str = "added";
const MODIFIED: &str = "modified";
const DELETED: &str = "deleted";

fn word(told: &ApiTold) -> &'static str {
    match told {
        ApiTold::Added(_) => ADDED,
        ApiTold::Modified(_) => MODIFIED,
        _ => DELETED,
    }
}

struct Checker<'a, 'b> {
    view: &'b View<'a>,
    watch: &'a ApiWatch,
    found: &'b mut Anomalies,
}

impl<'a> Checker<'a, '_> {
    fn report(&mut self, name: &'static str, place: usize, why: String, change: Option<&Change>) {
        let (watch, open) = (self.watch, &self.watch.open);
        self.found.push(|| {
            let text = format!(
                "watch {} of {} on a{} {}: {why}",
                open.id,
                open.scope,
                open.replica,
                match open.from {
                    Since::After(rv) => format!("after {rv}"),
                    Since::State(read) => format!("of the state{read}"),
                }
            );
            let mut anomaly = Anomaly::new(name, text);
            let from = place.saturating_sub(SHOWN_BEFORE);
            let mut last = None;
            for (at, told) in watch.told.iter().take(place + 1).skip(from) {
                let node = anomaly.moment(open.process, *at, told.to_string());
                if let Some(last) = last.replace(node) {
                    anomaly.edge(last, node, "then");
                }
            }
            if let Some(change) = change {
                anomaly.moment(super::LOG, change.seen, change.to_string());
            }
            anomaly
        });
    }

    /// Checks a watch that begins with all there is.
    fn state(&mut self, read: Read) {
        let (watch, past) = (self.watch, self.view.past);
        let scope = &watch.open.scope;
        let mut state: BTreeMap<&str, (i64, &Content)> = BTreeMap::new();
        for (place, (_, told)) in watch.told.iter().enumerate() {
            match told {
                ApiTold::Added(seen) | ApiTold::Modified(seen) => {
                    if self.real(place, seen) {
                        state.insert(&seen.key, (seen.rv, &seen.content));
                    }
                }
                ApiTold::Deleted(seen) => {
                    state.remove(&*seen.key);
                }
                ApiTold::InitialEnd(rv) => {
                    if state != past.state(scope, *rv) {
                        let why = format!("what came is not what was there at {rv}");
                        self.report(names::INCOMPLETE_STATE, place, why, None);
                    }
                    self.fresh(place, read, *rv);
                    return self.events(place + 1, *rv);
                }
                ApiTold::Bookmark(rv) => {
                    let why = format!("told of {rv} before all that was there");
                    self.report(names::PROGRESS_AHEAD, place, why, None);
                }
                ApiTold::Due(rv) => {
                    let why = format!("all there is did not come, and {rv} was long over");
                    self.report(names::SKIPPED_EVENT, place, why, None);
                }
                ApiTold::Expired | ApiTold::Lost => return,
            }
        }
    }

    fn real(&mut self, place: usize, seen: &Seen) -> bool {
        let resource = &self.watch.open.scope.resource;
        let change = self.view.past.at(resource, &seen.key, seen.rv);
        let same = change.is_some_and(|c| c.now.as_deref() == Some(&seen.content));
        if !same {
            let why = format!("{} was not so at {}", seen.key, seen.rv);
            self.report(names::PHANTOM_EVENT, place, why, change);
        }
        same
    }

    fn fresh(&mut self, place: usize, read: Read, rv: i64) {
        let open = &self.watch.open;
        let least = match read {
            Read::Fresh => self.view.know.before(open.at),
            Read::AtLeast(least) | Read::Exact(least) => least,
            Read::Any => return,
        };
        let after = self.view.past.after(&open.scope.resource, rv).iter();
        let mut missed = after.take_while(|c| c.revision <= least);
        if let Some(missed) = missed.find(|c| due(&open.scope, c).is_some()) {
            let why = format!("the state at {rv} is older than {least}, known before");
            self.report(names::STALE_READ, place, why, Some(missed));
        }
    }

    /// Checks events after a version, from this place on.
    fn events(&mut self, from: usize, after: i64) {
        let watch = self.watch;
        let mut walk = Walk::new(self.view.past, &watch.open.scope, after);
        for (place, (_, told)) in watch.told.iter().enumerate().skip(from) {
            match told {
                ApiTold::Added(seen) | ApiTold::Modified(seen) | ApiTold::Deleted(seen) => {
                    self.event(&mut walk, place, word(told), seen);
                }
                ApiTold::Bookmark(rv) => {
                    if *rv < walk.bookmark.max(walk.last) {
                        let why = format!("told of {rv} after {}", walk.bookmark.max(walk.last));
                        self.report(names::TIME_TRAVEL, place, why, None);
                    }
                    self.all_came(&mut walk, place, *rv);
                    walk.bookmark = walk.bookmark.max(*rv);
                }
                ApiTold::Due(rv) => self.all_came(&mut walk, place, *rv),
                ApiTold::InitialEnd(rv) => {
                    let why = format!("told once more that all came, at {rv}");
                    self.report(names::DUPLICATE_EVENT, place, why, None);
                }
                ApiTold::Expired | ApiTold::Lost => return,
            }
        }
    }

    fn event(&mut self, walk: &mut Walk<'a>, place: usize, word: &'static str, seen: &Seen) {
        let past = self.view.past;
        let change = past.at(&walk.scope.resource, &seen.key, seen.rv);
        if let Some(due) = walk.late.remove(&seen.rv) {
            let (name, why) = match seen.rv <= walk.bookmark {
                true => (names::PROGRESS_AHEAD, format!("bookmark {}", walk.bookmark)),
                false => (names::REORDERED_EVENT, format!("event {}", walk.last)),
            };
            let why = format!("{} comes after the {why}", seen.rv);
            return self.report(name, place, why, Some(due.change));
        }
        if seen.rv <= walk.last {
            // What came before, or what its client had seen on another watch.
            let (name, why) = if seen.rv == walk.last || seen.rv <= walk.after {
                (names::DUPLICATE_EVENT, "was known already")
            } else {
                (names::REORDERED_EVENT, "comes after what is later")
            };
            return self.report(name, place, format!("{} {why}", seen.rv), change);
        }
        if seen.rv <= walk.bookmark {
            let why = format!("{} comes after the bookmark {}", seen.rv, walk.bookmark);
            self.report(names::PROGRESS_AHEAD, place, why, change);
        }
        self.all_came(walk, place, seen.rv - 1);
        walk.last = seen.rv;
        let Some(due) = walk.take(seen.rv) else {
            let (name, why) = match change {
                Some(_) => (names::UNFILTERED_EVENT, "is none of what is asked for"),
                None => (names::PHANTOM_EVENT, "never happened"),
            };
            return self.report(name, place, format!("{} {why}", seen.rv), change);
        };
        if due.word != word {
            let why = format!("{} is {word}, and has to be {}", seen.rv, due.word);
            self.report(names::WRONG_TYPE, place, why, Some(due.change));
        }
        if *due.change.key != *seen.key || *due.content != seen.content {
            let why = format!("{} is shown as it was not", seen.rv);
            self.report(names::WRONG_ANSWER, place, why, Some(due.change));
        }
    }

    /// Checks that nothing up to a version is still to come.
    fn all_came(&mut self, walk: &mut Walk<'a>, place: usize, rv: i64) {
        while let Some(missed) = walk.take_before(rv) {
            let revision = missed.change.revision;
            let mut later = self.watch.told[place..].iter().skip(1);
            if later.any(|(_, told)| told.object().is_some_and(|seen| seen.rv == revision)) {
                // It is told of where it comes, too late.
                walk.late.insert(revision, missed);
                continue;
            }
            let why = format!("{} at {revision} never came", missed.word);
            self.report(names::SKIPPED_EVENT, place, why, Some(missed.change));
        }
    }
}

/// Is what has to come, and how much of it did.
struct Walk<'a> {
    scope: &'a Scope,
    left: std::iter::Peekable<std::slice::Iter<'a, Change>>,
    /// Where it began.
    after: i64,
    /// The last event's version.
    last: i64,
    bookmark: i64,
    /// What was passed, and comes later.
    late: BTreeMap<i64, Due<'a>>,
}

impl<'a> Walk<'a> {
    fn new(past: &'a Past, scope: &'a Scope, after: i64) -> Self {
        Self {
            scope,
            left: past.after(&scope.resource, after).iter().peekable(),
            after,
            last: after,
            bookmark: after,
            late: BTreeMap::new(),
        }
    }

    /// Takes what is next and at or before a version.
    fn take_before(&mut self, rv: i64) -> Option<Due<'a>> {
        while let Some(change) = self.left.next_if(|c| c.revision <= rv) {
            if let Some(due) = due(self.scope, change) {
                return Some(due);
            }
        }
        None
    }

    /// Takes what is due at exactly a version.
    fn take(&mut self, rv: i64) -> Option<Due<'a>> {
        self.take_before(rv).filter(|due| due.change.revision == rv)
    }
}
