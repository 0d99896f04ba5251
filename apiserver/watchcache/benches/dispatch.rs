//! What one change costs from the store's report until the last client has taken it:
//! among watchers of whom one sees it, however many they are, and among watchers who all
//! do.
//!
//! `cargo bench -p watchcache`; what changed since the last run is said beside each figure.

#![allow(
    clippy::unwrap_used,
    reason = "a bench fails where it finds a surprise"
)]

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput};
use meta::{FieldSelector, Object, ResourceVersion};
use watchcache::{Change, Config, Hub, Item, Limits, Line, Round, Selector, Start, WatchSpec};

const FIELD: &str = "spec.nodeName";
const NOW: Duration = Duration::from_secs(1);

/// A hub, its watchers and what was written last.
struct Fed {
    hub: Hub,
    round: Round,
    lines: Vec<Arc<Line>>,
    revision: u64,
}

fn object(n: usize, revision: u64) -> Arc<Object> {
    let body = format!(
        r#"{{"kind":"Pod","metadata":{{"name":"web-{n}","namespace":"default"}},"spec":{{"nodeName":"node-{n}"}}}}"#
    );
    let fields = vec![(FIELD, format!("node-{n}"))];
    Arc::new(Object::decode(Bytes::from(body), ResourceVersion(revision), fields).unwrap())
}

fn of_node(n: usize) -> Selector {
    Selector {
        fields: FieldSelector::one(FIELD, &format!("node-{n}")),
        ..Selector::default()
    }
}

impl Fed {
    /// Begins with as many pods as there are watchers, one of whom has seen all.
    fn new(watchers: usize, selector: fn(usize) -> Selector) -> Self {
        let config = Config {
            index_field: Some(FIELD),
            ..Config::default()
        };
        let mut hub = Hub::new(config, Limits::default());
        let pods = (0..watchers).map(|n| (format!("default/web-{n}").into(), object(n, 1)));
        hub.reset(pods, 1, NOW);
        let watch = |n| {
            let spec = WatchSpec {
                selector: selector(n),
                start: Start::Now,
                bookmarks: None,
            };
            hub.watch(spec, false, NOW).unwrap().1
        };
        let lines = (0..watchers).map(watch).collect();
        Self {
            hub,
            round: Round::default(),
            lines,
            revision: 1,
        }
    }

    /// Makes the next change: of one pod after the other.
    fn change(&mut self) -> (usize, Change) {
        self.revision += 1;
        let n = self.revision as usize % self.lines.len();
        let change = Change {
            key: format!("default/web-{n}").into(),
            revision: self.revision,
            object: Some(object(n, self.revision)),
            received: NOW,
        };
        (n, change)
    }

    /// Takes it in, sends it, and lets those read who must see it.
    fn feed(&mut self, change: Change, who: std::ops::Range<usize>) {
        let mut changes = [change].into_iter().peekable();
        self.hub
            .take_in(&mut changes, NOW, &mut self.round)
            .unwrap();
        assert_eq!(self.round.send().count, who.len());
        let cx = &mut Context::from_waker(Waker::noop());
        for line in &self.lines[who] {
            let read = line.poll_next(cx);
            assert!(matches!(read, Poll::Ready(Some(Item::Event(..)))));
        }
    }
}

fn dispatch(c: &mut Criterion) {
    let mut group = c.benchmark_group("dispatch");
    for watchers in [10, 100, 1_000, 10_000] {
        let fed = RefCell::new(Fed::new(watchers, of_node));
        group.bench_function(format!("one of {watchers} sees it"), |b| {
            b.iter_batched(
                || fed.borrow_mut().change(),
                |(n, change)| fed.borrow_mut().feed(change, n..n + 1),
                BatchSize::PerIteration,
            );
        });
    }
    for watchers in [1, 100, 1_000] {
        let fed = RefCell::new(Fed::new(watchers, |_| Selector::default()));
        group.throughput(Throughput::Elements(watchers as u64));
        group.bench_function(format!("all of {watchers} see it"), |b| {
            b.iter_batched(
                || fed.borrow_mut().change(),
                |(_, change)| fed.borrow_mut().feed(change, 0..watchers),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .measurement_time(Duration::from_secs(2))
        .warm_up_time(Duration::from_millis(500))
        .sample_size(30)
        .configure_from_args();
    dispatch(&mut criterion);
    criterion.final_summary();
}
