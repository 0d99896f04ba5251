//! What was there at every revision, by resource and key.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use crate::{
    history::{Content, Scope, TOKEN, Time, split_key},
    log::Log,
};

/// Is one change of one object.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) revision: i64,
    /// Namespace and name.
    pub(super) key: Arc<str>,
    /// What is there after it, if anything.
    pub(super) now: Option<Arc<Content>>,
    /// What was there before it, and its version.
    pub(super) before: Option<(i64, Arc<Content>)>,
    /// When anybody was first told.
    pub(super) seen: Time,
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.now {
            None => write!(f, "{}: {} deleted", self.revision, self.key),
            Some(now) => {
                write!(f, "{}: {}", self.revision, self.key)?;
                let all = now.labels.iter().chain(&now.data);
                all.into_iter()
                    .try_for_each(|(name, value)| write!(f, " {name}={value}"))
            }
        }
    }
}

/// Is what a log says of objects.
#[derive(Debug, Default)]
pub(super) struct Past {
    resources: BTreeMap<Arc<str>, Resource>,
    /// The last revision there is.
    pub(super) last: i64,
}

#[derive(Debug, Default)]
struct Resource {
    changes: Vec<Change>,
    /// Places in `changes`, by key.
    keys: BTreeMap<Arc<str>, Vec<usize>>,
}

/// How long something was as it was: from a revision to before another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life<'a> {
    pub(super) from: i64,
    pub(super) until: i64,
    /// What was there; `None` if nothing.
    pub(super) now: Option<&'a Content>,
}

impl Past {
    /// Reads the log; tells of the first value that is none.
    pub(super) fn of(log: &Log<'_>) -> (Self, Option<String>) {
        let mut past = Self::default();
        let mut damaged = None;
        for (revision, entry) in log.iter() {
            past.last = revision;
            for event in entry.events.iter() {
                let key = String::from_utf8_lossy(&event.kv.key);
                let Some((resource, key)) = split_key(&key) else {
                    continue;
                };
                let now = match event.delete {
                    true => None,
                    false => match serde_json::from_slice::<Content>(&event.kv.value) {
                        Ok(content) => Some(Arc::new(content)),
                        Err(error) => {
                            damaged.get_or_insert_with(|| format!("{key} at {revision}: {error}"));
                            continue;
                        }
                    },
                };
                past.take(resource, key, revision, now, entry.seen);
            }
        }
        past.last = past.last.max(log.until);
        (past, damaged)
    }

    fn take(
        &mut self,
        resource: &str,
        key: &str,
        revision: i64,
        now: Option<Arc<Content>>,
        seen: Time,
    ) {
        let resource = self.resources.entry(resource.into()).or_default();
        let key: Arc<str> = key.into();
        let of_key = resource.keys.entry(key.clone()).or_default();
        let last = of_key.last().map(|at| &resource.changes[*at]);
        let before = last.and_then(|last| Some((last.revision, last.now.clone()?)));
        of_key.push(resource.changes.len());
        resource.changes.push(Change {
            revision,
            key,
            now,
            before,
            seen,
        });
    }

    /// Returns how many changes of a resource there are.
    pub(super) fn count(&self, resource: &str) -> usize {
        self.changes(resource).len()
    }

    /// Returns all changes of a resource, in their order.
    pub(super) fn changes(&self, resource: &str) -> &[Change] {
        self.resources.get(resource).map_or(&[], |r| &r.changes)
    }

    /// Returns the changes of a resource after a revision.
    pub(super) fn after(&self, resource: &str, revision: i64) -> &[Change] {
        let changes = self.changes(resource);
        &changes[changes.partition_point(|c| c.revision <= revision)..]
    }

    /// Returns the change of one key at exactly this revision.
    pub(super) fn at(&self, resource: &str, key: &str, revision: i64) -> Option<&Change> {
        let of_key = self.of_key(resource, key);
        let place = of_key.partition_point(|c| c.revision < revision);
        of_key
            .get(place)
            .filter(|c| c.revision == revision)
            .copied()
    }

    /// Returns the changes of one key.
    pub(super) fn of_key(&self, resource: &str, key: &str) -> Vec<&Change> {
        let Some(resource) = self.resources.get(resource) else {
            return Vec::new();
        };
        let places = resource.keys.get(key).map_or(&[][..], |p| p);
        places.iter().map(|at| &resource.changes[*at]).collect()
    }

    /// Returns how long a key was what, over all that touches a range of revisions.
    pub(super) fn lives(&self, resource: &str, key: &str, from: i64, to: i64) -> Vec<Life<'_>> {
        let mut lives = Vec::new();
        let mut last = Life {
            from: 0,
            until: i64::MAX,
            now: None,
        };
        for change in self.of_key(resource, key) {
            last.until = change.revision;
            lives.push(last);
            last = Life {
                from: change.revision,
                until: i64::MAX,
                now: change.now.as_deref(),
            };
        }
        lives.push(last);
        lives.retain(|life| life.from <= to && life.until > from);
        lives
    }

    /// Returns what a scope showed at a revision: by key, each with its version.
    pub(super) fn state(&self, scope: &Scope, revision: i64) -> BTreeMap<&str, (i64, &Content)> {
        let mut state = BTreeMap::new();
        let Some(resource) = self.resources.get(&scope.resource) else {
            return state;
        };
        for (key, places) in &resource.keys {
            if !scope.holds(key) {
                continue;
            }
            let until = places.partition_point(|at| resource.changes[*at].revision <= revision);
            let Some(at) = until.checked_sub(1) else {
                continue;
            };
            let change = &resource.changes[places[at]];
            if let Some(now) = change.now.as_deref().filter(|now| scope.selects(now)) {
                state.insert(&**key, (change.revision, now));
            }
        }
        state
    }

    /// Returns what each token wrote.
    pub(super) fn tokens(&self, resource: &str) -> BTreeMap<&str, Vec<&Change>> {
        let mut tokens: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
        for change in self.changes(resource) {
            let said = change.now.as_ref().and_then(|now| now.says(TOKEN));
            // What keeps the token of a write before it wrote something else.
            let kept = change.before.as_ref().and_then(|(_, b)| b.says(TOKEN)) == said;
            if let Some(token) = said.filter(|_| !kept) {
                tokens.entry(token).or_default().push(change);
            }
        }
        tokens
    }

    /// Returns the names of all resources.
    pub(super) fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.keys().map(|name| &**name)
    }
}
