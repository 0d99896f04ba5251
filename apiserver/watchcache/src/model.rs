//! The cacher against a naive model: the whole history in one vector, from
//! which every answer is computed anew. What is checked is what the crate's
//! documentation promises, after every step of a random run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use meta::{FieldSelector, LabelSelector, Object, ResourceVersion};
use proptest::prelude::*;

use crate::{
    Beginning, Bookmarks, Cacher, Change, Config, Event, EventType, Selector, Start, TooOld,
    WatchSpec, WatcherId,
};

const WINDOW: (usize, usize) = (4, 16);
pub(crate) const NAMES: [(&str, &str); 5] =
    [("a", "x"), ("a", "y"), ("ab", "x"), ("b", "x"), ("b", "z")];

pub(crate) fn object(at: usize, label: u8, node: u8, revision: u64) -> Arc<Object> {
    let (ns, name) = NAMES[at];
    let body = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"{ns}","labels":{{"l":"{label}"}}}},"node":{node}}}"#
    );
    let fields = vec![("spec.nodeName", format!("n{node}"))];
    Arc::new(Object::decode(Bytes::from(body), ResourceVersion(revision), fields).unwrap())
}

pub(crate) fn key(at: usize) -> Arc<str> {
    let (ns, name) = NAMES[at];
    format!("{ns}/{name}").into()
}

pub(crate) fn selector(n: u8) -> Selector {
    let labels = |text: &str| LabelSelector::parse(text).unwrap();
    let with = |labels, fields, ns: Option<&str>| Selector {
        labels,
        fields,
        ..Selector::all(ns)
    };
    let (all, any) = (LabelSelector::default(), FieldSelector::default());
    match n {
        0 => Selector::default(),
        1 => Selector::all(Some("a")),
        2 => with(labels("l=1"), any, None),
        3 => with(labels("l!=0"), any, Some("b")),
        4 => with(all, FieldSelector::one("spec.nodeName", "n1"), None),
        5 => with(
            labels("l=1"),
            FieldSelector::one("spec.nodeName", "n0"),
            Some("a"),
        ),
        6 => with(all, FieldSelector::one("metadata.name", "x"), None),
        7 => Selector {
            name: Some("x".to_owned()),
            ..Selector::all(Some("ab"))
        },
        8 => with(
            all,
            FieldSelector::parse("spec.nodeName!=n1").unwrap(),
            None,
        ),
        _ => with(all, FieldSelector::one("metadata.namespace", "b"), None),
    }
}
pub(crate) const SELECTORS: u8 = 10;

#[derive(Clone, Debug)]
enum Op {
    /// Changes of one transaction: (object, label and node, or deletion).
    Change(Vec<(usize, Option<(u8, u8)>)>),
    /// The store moves on elsewhere.
    Elsewhere(u64),
    /// The stream repeats its last changes.
    Repeat(usize),
    /// A selector; how far back it begins, or ahead; whether with bookmarks.
    Watch(u8, Option<i64>, bool),
    Unwatch(usize),
    /// The stream was lost for so many hidden changes, and is listed anew.
    Lost(Vec<(usize, Option<(u8, u8)>)>),
    Compact(u64),
    Past(u64),
    Sleep(u64),
}

fn changes() -> impl Strategy<Value = Vec<(usize, Option<(u8, u8)>)>> {
    let one = (
        0..NAMES.len(),
        prop::option::weighted(0.75, (0..3u8, 0..3u8)),
    );
    prop::collection::btree_map(0..NAMES.len(), one, 1..3)
        .prop_map(|m| m.into_iter().map(|(at, (_, to))| (at, to)).collect())
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        12 => changes().prop_map(Op::Change),
        2 => (1..4u64).prop_map(Op::Elsewhere),
        1 => (1..4usize).prop_map(Op::Repeat),
        5 => (0..SELECTORS, prop::option::of(-4..12i64), any::<bool>())
            .prop_map(|(s, back, b)| Op::Watch(s, back, b)),
        1 => (0..8usize).prop_map(Op::Unwatch),
        1 => changes().prop_map(Op::Lost),
        1 => (0..6u64).prop_map(Op::Compact),
        3 => (0..12u64).prop_map(Op::Past),
        2 => (1..200u64).prop_map(Op::Sleep),
    ];
    prop::collection::vec(op, 1..80)
}

struct Watch {
    selector: Selector,
    from: u64,
    got: Vec<(EventType, Arc<Event>)>,
}

struct Model {
    cacher: Cacher<()>,
    now: Duration,
    revision: u64,
    history: Vec<(u64, usize, Option<Arc<Object>>)>,
    listed_at: u64,
    compacted: u64,
    watches: BTreeMap<WatcherId, Watch>,
}

type State = BTreeMap<Arc<str>, Arc<Object>>;

impl Model {
    fn new() -> Self {
        let config = Config {
            index_field: Some("spec.nodeName"),
            window: WINDOW,
        };
        let mut cacher = Cacher::new(config);
        assert!(!cacher.is_ready());
        cacher.reset(Vec::new(), 1, Duration::ZERO);
        Self {
            cacher,
            now: Duration::ZERO,
            revision: 1,
            history: Vec::new(),
            listed_at: 1,
            compacted: 0,
            watches: BTreeMap::new(),
        }
    }

    fn state_at(&self, revision: u64) -> State {
        let mut state = State::new();
        for (_, at, object) in self.history.iter().filter(|(r, ..)| *r <= revision) {
            match object {
                Some(o) => state.insert(key(*at), o.clone()),
                None => state.remove(&key(*at)),
            };
        }
        state
    }

    /// Records a transaction; returns the changes that really change.
    fn record(&mut self, changes: &[(usize, Option<(u8, u8)>)]) -> Vec<Change> {
        let state = self.state_at(self.revision);
        let real =
            |(at, to): &&(usize, Option<(u8, u8)>)| to.is_some() || state.contains_key(&key(*at));
        let real: Vec<_> = changes.iter().filter(real).collect();
        if real.is_empty() {
            return Vec::new();
        }
        self.revision += 1;
        let revision = self.revision;
        let mut out = Vec::new();
        for (at, to) in real {
            let object = to.map(|(label, node)| object(*at, label, node, revision));
            self.history.push((revision, *at, object.clone()));
            out.push(Change {
                key: key(*at),
                revision,
                object,
                received: self.now,
            });
        }
        out
    }

    fn ingest(&mut self, change: Change) {
        let watches = &mut self.watches;
        let ingested = self
            .cacher
            .ingest(change, self.now, |id, (), event_type, event| {
                let watch = watches.get_mut(&id).expect("a live watcher");
                watch.got.push((event_type, event.clone()));
            });
        assert!(ingested.is_ok(), "nothing was overtaken");
    }

    /// Computes what a watch must have seen of the changes after `from`.
    fn expected(&self, watch: &Watch) -> Vec<(EventType, u64, Bytes)> {
        let mut before = self.state_at(watch.from);
        let mut out = Vec::new();
        for (revision, at, object) in self.history.iter().filter(|(r, ..)| *r > watch.from) {
            let previous = match object {
                Some(o) => before.insert(key(*at), o.clone()),
                None => before.remove(&key(*at)),
            };
            let selected =
                |o: &Option<Arc<Object>>| o.as_ref().is_some_and(|o| watch.selector.matches(o));
            let (event_type, shown) = match (selected(&previous), selected(object)) {
                (false, true) => (EventType::Added, object),
                (true, true) => (EventType::Modified, object),
                (true, false) => (EventType::Deleted, &previous),
                (false, false) => continue,
            };
            let body = shown.as_ref().expect("it is selected").body().clone();
            out.push((event_type, *revision, body));
        }
        out
    }

    fn check(&self) {
        assert_eq!(self.cacher.revision(), self.revision);
        let snapshot = self.cacher.snapshot();
        let state: State = snapshot
            .from_key("")
            .map(|(k, o)| (k.clone(), o.clone()))
            .collect();
        same(&state, &self.state_at(self.revision));
        for watch in self.watches.values() {
            let got: Vec<_> = watch
                .got
                .iter()
                .map(|(t, e)| {
                    let shown = e.shown(*t);
                    (*t, shown.resource_version.0, shown.body().clone())
                })
                .collect();
            assert_eq!(got, self.expected(watch), "{:?}", watch.selector);
        }
        assert_eq!(self.cacher.watcher_count(), self.watches.len());
    }

    fn watch(&mut self, n: u8, back: Option<i64>, bookmarks: bool) {
        let from = back.map(|b| self.revision.saturating_add_signed(-b));
        let start = match from {
            Some(n) => Start::After(n),
            None if n.is_multiple_of(3) => Start::Now,
            None => Start::State,
        };
        let every = Duration::from_secs(60);
        let selector = selector(n);
        let spec = WatchSpec {
            selector: selector.clone(),
            start,
            bookmarks: bookmarks.then_some(Bookmarks { every, end: None }),
        };
        let started = join(&mut self.cacher, spec, self.now);
        let remembered = |n: u64| {
            let after = self.history.iter().filter(|(r, ..)| *r > n).count();
            n >= self.listed_at && after <= WINDOW.0
        };
        let (id, started) = match started {
            Ok(started) => started,
            Err(e) => {
                let from = from.expect("only a past start is too old");
                assert!(!remembered(from) && from < e.oldest, "{e}");
                assert_eq!(e.oldest, self.cacher.oldest());
                return;
            }
        };
        assert!(from.is_none_or(|n| n >= self.listed_at));
        assert_eq!(started.revision, self.revision);
        let mut got: Vec<_> = started.initial.collect();
        if start == Start::State {
            let state: State = got
                .drain(..)
                .map(|(t, e)| {
                    assert_eq!(t, EventType::Added);
                    let o = e.shown(t).clone();
                    (format!("{}/{}", o.meta.namespace, o.meta.name).into(), o)
                })
                .collect();
            let mut want = self.state_at(self.revision);
            want.retain(|_, o| selector.matches(o));
            same(&state, &want);
        }
        let from = from.unwrap_or(self.revision);
        let watch = Watch {
            selector,
            from,
            got,
        };
        assert!(self.watches.insert(id, watch).is_none());
    }

    fn past(&mut self, back: u64) {
        let n = self.revision.saturating_sub(back);
        match self.cacher.snapshot_at(n) {
            Ok(snapshot) => {
                assert!(n >= self.compacted && n >= self.listed_at);
                let state = snapshot.from_key("").map(|(k, o)| (k.clone(), o.clone()));
                same(&state.collect(), &self.state_at(n));
            }
            Err(e) => assert!(n < e.oldest),
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Change(changes) => {
                for change in self.record(&changes) {
                    self.ingest(change);
                }
            }
            Op::Elsewhere(n) => {
                self.revision += n;
                assert!(self.cacher.progress(self.revision));
                assert!(!self.cacher.progress(self.revision - 1));
            }
            Op::Repeat(n) => {
                let from = self.history.len().saturating_sub(n);
                for (revision, at, object) in self.history.split_off(from) {
                    self.history.push((revision, at, object.clone()));
                    let change = Change {
                        key: key(at),
                        revision,
                        object,
                        received: self.now,
                    };
                    let again = self.cacher.ingest(change, self.now, |id, _, _, _| {
                        panic!("{id} is shown a repeat");
                    });
                    assert_eq!(again, Ok(false));
                }
            }
            Op::Watch(n, back, bookmarks) => self.watch(n, back, bookmarks),
            Op::Unwatch(n) => {
                if let Some(id) = self.watches.keys().nth(n).copied() {
                    self.watches.remove(&id);
                    assert_eq!(self.cacher.unwatch(id), Some(()));
                    assert_eq!(self.cacher.unwatch(id), None);
                }
            }
            Op::Lost(changes) => {
                self.record(&changes);
                let generation = self.cacher.generation();
                let state = self.state_at(self.revision);
                let closed = self.cacher.reset(state, self.revision, self.now);
                assert!(closed.iter().map(|(id, ())| id).eq(self.watches.keys()));
                assert_eq!(self.cacher.generation(), generation + 1);
                self.watches.clear();
                self.listed_at = self.revision;
            }
            Op::Compact(back) => {
                self.compacted = self.compacted.max(self.revision.saturating_sub(back));
                self.cacher.compacted(self.compacted);
            }
            Op::Past(back) => self.past(back),
            Op::Sleep(seconds) => {
                self.now += Duration::from_secs(seconds);
                for (id, ()) in self.cacher.due_bookmarks(self.now) {
                    // That everything before was dispatched, `check` sees.
                    let watch = self.watches.get(&id).expect("a live watcher");
                    assert!(watch.from <= self.revision, "a bookmark leads back");
                }
                assert!(self.cacher.next_bookmark().is_none_or(|due| due > self.now));
            }
        }
    }
}

/// Compares by key, revision and content.
fn same(left: &State, right: &State) {
    let facts = |s: &State| -> Vec<_> {
        s.iter()
            .map(|(k, o)| (k.clone(), o.resource_version, o.body().clone()))
            .collect()
    };
    assert_eq!(facts(left), facts(right));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cacher_keeps_its_promises(ops in ops()) {
        let mut model = Model::new();
        for op in ops {
            model.step(op);
            model.check();
        }
    }
}

fn put(
    cacher: &mut Cacher<()>,
    at: usize,
    revision: u64,
    now: Duration,
) -> (Option<Arc<Event>>, Vec<(WatcherId, EventType)>) {
    let change = Change {
        key: key(at),
        revision,
        object: Some(object(at, 0, 0, revision)),
        received: now,
    };
    let (mut seen, mut targets) = (None, Vec::new());
    let news = cacher.ingest(change, now, |id, (), event_type, event| {
        let first = seen.get_or_insert_with(|| event.clone());
        assert!(Arc::ptr_eq(first, event), "one for all");
        targets.push((id, event_type));
    });
    assert_eq!(news, Ok(true));
    (seen, targets)
}

/// Registers a watch.
fn join(
    cacher: &mut Cacher<()>,
    spec: WatchSpec,
    now: Duration,
) -> Result<(WatcherId, Beginning), TooOld> {
    let begun = cacher.begin(&spec.selector, spec.start)?;
    let id = cacher.join(spec.selector, begun.after, spec.bookmarks, (), now);
    assert!(cacher.handle(id).is_some());
    Ok((id, begun))
}

fn empty(config: Config) -> Cacher<()> {
    let mut cacher = Cacher::new(config);
    cacher.reset(Vec::new(), 1, Duration::ZERO);
    cacher
}

fn watch(cacher: &mut Cacher<()>, selector: Selector, start: Start) {
    let spec = WatchSpec {
        selector,
        start,
        bookmarks: None,
    };
    join(cacher, spec, Duration::ZERO).unwrap();
}

#[test]
fn an_event_is_encoded_once_and_counted_while_it_is_held() {
    let mut cacher = empty(Config::default());
    for _ in 0..3 {
        watch(&mut cacher, Selector::default(), Start::State);
    }
    let (event, targets) = put(&mut cacher, 0, 2, Duration::ZERO);
    let event = event.expect("somebody sees it");
    assert_eq!(targets.len(), 3);
    let held = cacher.held().bytes();
    let body = event.object.as_ref().unwrap().body().len() as u64;
    assert!(held > body);
    let frame = event.json_frame(EventType::Added);
    let again = event.json_frame(EventType::Added);
    assert_eq!(frame.as_ptr(), again.as_ptr());
    assert!(frame.starts_with(b"{\"type\":\"ADDED\",\"object\":{"));
    assert!(frame.ends_with(b"}\n"));
    assert_eq!(cacher.held().bytes(), held + frame.len() as u64);
    // Another type is another frame.
    let modified = event.json_frame(EventType::Modified);
    assert!(modified.starts_with(b"{\"type\":\"MODIFIED\""));
    drop(event);
    assert_eq!(cacher.held().bytes(), 0);
}

#[test]
fn only_the_interested_are_visited() {
    let mut cacher = empty(Config {
        index_field: Some("spec.nodeName"),
        ..Config::default()
    });
    for n in 0..100 {
        let selector = Selector {
            fields: FieldSelector::one("spec.nodeName", &format!("n{n}")),
            ..Selector::default()
        };
        watch(&mut cacher, selector, Start::Now);
    }
    let (_, targets) = put(&mut cacher, 0, 2, Duration::ZERO);
    assert_eq!(targets.len(), 1);
}

#[test]
fn a_change_that_progress_has_overtaken_is_not_swallowed() {
    let mut cacher = empty(Config::default());
    put(&mut cacher, 0, 2, Duration::ZERO);
    cacher.progress(9);
    let change = |at, revision| Change {
        key: key(at),
        revision,
        object: Some(object(at, 1, 0, revision)),
        received: Duration::ZERO,
    };
    // A repeat is one still.
    let again = cacher.ingest(change(0, 2), Duration::ZERO, |_, _, _, _| ());
    assert_eq!(again, Ok(false));
    let late = cacher.ingest(change(1, 7), Duration::ZERO, |_, _, _, _| ());
    let late = late.unwrap_err();
    assert_eq!((late.revision, late.progress), (7, 9));
    assert!(cacher.get(&key(1)).is_none());
}

#[test]
fn the_window_fits_the_rate() {
    let mut cacher = empty(Config {
        window: (4, 16),
        ..Config::default()
    });
    let mut revision = 1;
    let mut push = |cacher: &mut Cacher<()>, seconds: u64, n: usize| {
        for _ in 0..n {
            revision += 1;
            put(cacher, 0, revision, Duration::from_secs(seconds));
        }
        cacher.capacity()
    };
    // Many at once: it grows, to its bound.
    assert_eq!(push(&mut cacher, 0, 5), 8);
    assert_eq!(push(&mut cacher, 1, 100), 16);
    // Few: it shrinks, one halving per change that finds it full and old.
    assert_eq!(push(&mut cacher, 1000, 1), 8);
    assert_eq!(push(&mut cacher, 2000, 1), 4);
    assert_eq!(push(&mut cacher, 3000, 1), 4);
    assert_eq!(cacher.resized(), (2, 2));
    // What was dropped is refused, what is kept is served.
    let oldest = cacher.oldest();
    assert!(cacher.snapshot_at(oldest).is_ok());
    let error = cacher.snapshot_at(oldest - 1).unwrap_err();
    let want = format!("too old resource version: {} ({oldest})", oldest - 1);
    assert_eq!(error.to_string(), want);
    // Who is not trusted about what was gives out no past state.
    cacher.trust_snapshots(false);
    assert!(cacher.snapshot_at(oldest).is_err());
    assert!(cacher.snapshot_at(cacher.revision()).is_err());
    cacher.trust_snapshots(true);
    assert!(cacher.snapshot_at(oldest).is_ok());
}

#[test]
fn what_the_store_compacted_is_refused_here_too() {
    let mut cacher = empty(Config::default());
    for revision in 2..300 {
        put(&mut cacher, 0, revision, Duration::ZERO);
    }
    cacher.compacted(200);
    assert!(cacher.snapshot_at(199).is_err());
    for revision in [200, 250, 299] {
        let snapshot = cacher.snapshot_at(revision).unwrap();
        let at = snapshot.get(&key(0)).unwrap().resource_version;
        assert_eq!(at.0, revision);
    }
    // A watch may still begin before it.
    watch(&mut cacher, Selector::default(), Start::After(150));
}
