//! Counters of one resource's cache, under the names Kubernetes' dashboards
//! use. The HTTP edge prints them with labels `group` and `resource`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A counter that only grows, or a gauge that is set.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upstream's bounds, in seconds (`cacher/metrics/metrics.go`).
const DISPATCH: [f64; 13] = [
    0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
];
const INITIALIZATION: [f64; 12] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0,
];
const READ_WAIT: [f64; 13] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0,
];

/// How many places there are in which threads that count the same do not meet.
const SHARDS: usize = 4;

/// What one of them counts; alone in its line of the processor's cache as far as
/// what is written often is concerned.
#[derive(Debug)]
#[repr(align(64))]
struct Shard {
    /// One more than there are bounds.
    buckets: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

/// Gives each thread one place to count in.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|mine| *mine)
}

/// How long something took, many times. Counting takes no lock, and threads
/// that count at once hardly meet: it happens for every event of every watch.
#[derive(Debug)]
pub struct Durations {
    bounds: &'static [f64],
    shards: Box<[Shard]>,
}

impl Durations {
    fn new(bounds: &'static [f64], shards: usize) -> Self {
        let shard = |_| Shard {
            // Rounded up, so that another's do not lie in the same line.
            buckets: (0..(bounds.len() + 1).next_multiple_of(8))
                .map(|_| AtomicU64::new(0))
                .collect(),
            nanos: AtomicU64::new(0),
        };
        Self {
            bounds,
            shards: (0..shards).map(shard).collect(),
        }
    }

    pub(super) fn observe(&self, took: Duration) {
        self.observe_many(took, 1);
    }

    pub(super) fn observe_many(&self, took: Duration, n: u64) {
        let seconds = took.as_secs_f64();
        let at = self.bounds.partition_point(|bound| *bound < seconds);
        let shard = match self.shards.len() {
            1 => &self.shards[0],
            several => &self.shards[shard() % several],
        };
        shard.buckets[at].fetch_add(n, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let nanos = nanos.saturating_mul(n);
        shard.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns each bound with how often it was kept, then the count of all and
    /// their sum in seconds.
    pub fn read(&self) -> (Vec<(f64, u64)>, u64, f64) {
        let sum = |of: &dyn Fn(&Shard) -> u64| self.shards.iter().map(of).sum::<u64>();
        let mut count = 0;
        let mut kept = Vec::with_capacity(self.bounds.len());
        for n in 0..=self.bounds.len() {
            count += sum(&|shard| shard.buckets[n].load(Ordering::Relaxed));
            kept.extend(self.bounds.get(n).map(|bound| (*bound, count)));
        }
        let nanos = sum(&|shard| shard.nanos.load(Ordering::Relaxed));
        (kept, count, Duration::from_nanos(nanos).as_secs_f64())
    }
}

/// The stages of an event's way, as upstream names them.
#[derive(Debug)]
pub struct Stages {
    /// From the store's report to the cache.
    pub storage_to_cache: Durations,
    /// In the queue of its watcher.
    pub cache_to_watcher: Durations,
    /// From the store's report until the response takes it.
    pub total: Durations,
}

/// The counters of one resource's cache.
#[derive(Debug)]
pub struct CacheMetrics {
    /// Changes that came from the store.
    pub events_received: Number,
    /// Changes that were dispatched to those who watch.
    pub events_dispatched: Number,
    /// Watches closed for being too slow.
    pub terminated_watchers: Number,
    /// Events with which watches began.
    pub init_events: Number,
    /// How often the state was loaded.
    pub initializations: Number,
    /// How often that failed.
    pub initialization_errors: Number,
    /// How long it took.
    pub initialization: Durations,
    /// Consistent reads that were answered.
    pub consistent_reads: Number,
    /// Those whose cache did not catch up in time.
    pub consistent_reads_late: Number,
    /// Those for which the store could not be asked.
    pub consistent_reads_failed: Number,
    /// How long readers waited for the cache.
    pub read_wait: Durations,
    /// Audits that found cache and store the same.
    pub audits_passed: Number,
    /// Audits that found them different.
    pub audits_differed: Number,
    /// Audits that could not be made.
    pub audits_failed: Number,
    /// The revision the cache has reached.
    pub resource_version: Number,
    /// How many changes the window can hold.
    pub capacity: Number,
    /// How often that grew.
    pub capacity_increases: Number,
    /// How often that shrank.
    pub capacity_decreases: Number,
    /// What waits for slow clients.
    pub held_bytes: Number,
    /// An event's way.
    pub stages: Stages,
    /// Stored objects that could not be decoded and are not served.
    pub undecodable: Number,
}

impl Default for CacheMetrics {
    fn default() -> Self {
        Self {
            events_received: Number::default(),
            events_dispatched: Number::default(),
            terminated_watchers: Number::default(),
            init_events: Number::default(),
            initializations: Number::default(),
            initialization_errors: Number::default(),
            initialization: Durations::new(&INITIALIZATION, 1),
            consistent_reads: Number::default(),
            consistent_reads_late: Number::default(),
            consistent_reads_failed: Number::default(),
            read_wait: Durations::new(&READ_WAIT, 1),
            audits_passed: Number::default(),
            audits_differed: Number::default(),
            audits_failed: Number::default(),
            resource_version: Number::default(),
            capacity: Number::default(),
            capacity_increases: Number::default(),
            capacity_decreases: Number::default(),
            held_bytes: Number::default(),
            stages: Stages {
                storage_to_cache: Durations::new(&DISPATCH, 1),
                cache_to_watcher: Durations::new(&DISPATCH, SHARDS),
                total: Durations::new(&DISPATCH, SHARDS),
            },
            undecodable: Number::default(),
        }
    }
}

/// What kind of metric a [`Series`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesKind {
    /// Only grows; the name ends in `_total`.
    Counter,
    /// Is set.
    Gauge,
    /// Durations by bucket.
    Histogram,
}

/// A value of a [`Series`].
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Of a counter or a gauge.
    Number(&'a Number),
    /// Of a histogram.
    Durations(&'a Durations),
}

/// A metric by name, with its values by the labels that tell them apart.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// The name.
    pub name: &'static str,
    /// The kind.
    pub kind: SeriesKind,
    /// (labels as printed, empty for none; value)
    pub values: Vec<(&'static str, Value<'a>)>,
}

impl CacheMetrics {
    /// Lists everything; in the same order for every resource.
    pub fn series(&self) -> Vec<Series<'_>> {
        let counter = |name, number| Series {
            name,
            kind: SeriesKind::Counter,
            values: vec![("", Value::Number(number))],
        };
        let gauge = |name, number| Series {
            name,
            kind: SeriesKind::Gauge,
            values: vec![("", Value::Number(number))],
        };
        let histogram = |name, durations| Series {
            name,
            kind: SeriesKind::Histogram,
            values: vec![("", Value::Durations(durations))],
        };
        let mut all = vec![
            counter(
                "apiserver_watch_cache_events_received_total",
                &self.events_received,
            ),
            counter(
                "apiserver_watch_cache_events_dispatched_total",
                &self.events_dispatched,
            ),
            counter(
                "apiserver_terminated_watchers_total",
                &self.terminated_watchers,
            ),
            counter("apiserver_init_events_total", &self.init_events),
            counter(
                "apiserver_watch_cache_initializations_total",
                &self.initializations,
            ),
            counter(
                "apiserver_watch_cache_initialization_errors_total",
                &self.initialization_errors,
            ),
            histogram(
                "apiserver_watch_cache_initialization_duration_seconds",
                &self.initialization,
            ),
            histogram("apiserver_watch_cache_read_wait_seconds", &self.read_wait),
            gauge(
                "apiserver_watch_cache_resource_version",
                &self.resource_version,
            ),
            gauge("watch_cache_capacity", &self.capacity),
            counter(
                "watch_cache_capacity_increase_total",
                &self.capacity_increases,
            ),
            counter(
                "watch_cache_capacity_decrease_total",
                &self.capacity_decreases,
            ),
            gauge("keelson_watch_cache_held_bytes", &self.held_bytes),
            counter("keelson_undecodable_objects_total", &self.undecodable),
        ];
        all.extend(self.by_outcome());
        all
    }

    /// Lists what has labels of its own.
    fn by_outcome(&self) -> [Series<'_>; 3] {
        let (number, durations) = (Value::Number, Value::Durations);
        [
            Series {
                name: "apiserver_watch_cache_consistent_read_total",
                kind: SeriesKind::Counter,
                values: vec![
                    (
                        r#"success="true",fallback="false""#,
                        number(&self.consistent_reads),
                    ),
                    (
                        r#"success="false",fallback="skipped""#,
                        number(&self.consistent_reads_late),
                    ),
                    (
                        r#"success="false",fallback="false""#,
                        number(&self.consistent_reads_failed),
                    ),
                ],
            },
            Series {
                name: "apiserver_storage_consistency_checks_total",
                kind: SeriesKind::Counter,
                values: vec![
                    (r#"status="success""#, number(&self.audits_passed)),
                    (r#"status="failure""#, number(&self.audits_differed)),
                    (r#"status="error""#, number(&self.audits_failed)),
                ],
            },
            Series {
                name: "apiserver_watch_events_dispatch_duration_seconds",
                kind: SeriesKind::Histogram,
                values: vec![
                    (
                        r#"stage="storage_to_cache""#,
                        durations(&self.stages.storage_to_cache),
                    ),
                    (
                        r#"stage="cache_to_watcher""#,
                        durations(&self.stages.cache_to_watcher),
                    ),
                    (r#"stage="total""#, durations(&self.stages.total)),
                ],
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_buckets() {
        let durations = Durations::new(&DISPATCH, SHARDS);
        durations.observe(Duration::from_micros(100));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| durations.observe(Duration::from_millis(3)));
            }
        });
        durations.observe(Duration::from_secs(60));
        let (kept, count, sum) = durations.read();
        assert_eq!(count, 6);
        assert!((sum - 60.0121).abs() < 1e-9, "{sum}");
        assert_eq!(kept[0], (0.0001, 1));
        assert_eq!(kept[2], (0.001, 1));
        assert_eq!(kept[3], (0.005, 5));
        assert_eq!(kept[12], (5.0, 5));
    }
}
