//! Counters of one resource's cache, under the names Kubernetes' dashboards
//! use. The HTTP edge prints them with a `resource` label.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// The counters of one resource's cache.
#[derive(Debug, Default)]
pub struct CacheMetrics {
    /// `apiserver_watch_cache_events_received_total`
    pub events_received: Number,
    /// `apiserver_watch_cache_events_dispatched_total`
    pub events_dispatched: Number,
    /// `apiserver_terminated_watchers_total`: closed for being too slow.
    pub terminated_watchers: Number,
    /// `apiserver_init_events_total`
    pub init_events: Number,
    /// `apiserver_watch_cache_initializations_total`
    pub initializations: Number,
    /// `apiserver_watch_cache_consistent_read_total`
    pub consistent_reads: Number,
    /// `apiserver_watch_cache_resource_version` (gauge)
    pub resource_version: Number,
    /// `watch_cache_capacity` (gauge)
    pub capacity: Number,
    /// Stored objects that could not be decoded and are not served.
    pub undecodable: Number,
}

impl CacheMetrics {
    /// Lists name, value and whether it is a counter (else a gauge).
    pub fn all(&self) -> [(&'static str, u64, bool); 9] {
        [
            (
                "apiserver_watch_cache_events_received_total",
                self.events_received.get(),
                true,
            ),
            (
                "apiserver_watch_cache_events_dispatched_total",
                self.events_dispatched.get(),
                true,
            ),
            (
                "apiserver_terminated_watchers_total",
                self.terminated_watchers.get(),
                true,
            ),
            ("apiserver_init_events_total", self.init_events.get(), true),
            (
                "apiserver_watch_cache_initializations_total",
                self.initializations.get(),
                true,
            ),
            (
                "apiserver_watch_cache_consistent_read_total",
                self.consistent_reads.get(),
                true,
            ),
            (
                "apiserver_watch_cache_resource_version",
                self.resource_version.get(),
                false,
            ),
            ("watch_cache_capacity", self.capacity.get(), false),
            (
                "keelson_undecodable_objects_total",
                self.undecodable.get(),
                true,
            ),
        ]
    }
}
