//! What watches send, counted: for every event of every watch, by tasks on all cores.
//!
//! A watch counts for itself, and adds what it counted when it hands over a frame. So a
//! frame costs a few additions to what all watches of a resource share, however many
//! events are in it, and no lock.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upstream's bounds of `apiserver_watch_events_sizes`, in bytes.
const BOUNDS: [usize; 8] = [1024, 2048, 4096, 8192, 16384, 32768, 65536, 131_072];
/// One more than there are bounds.
const BUCKETS: usize = BOUNDS.len() + 1;

/// A histogram of events by their size.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    buckets: [AtomicU64; BUCKETS],
    bytes: AtomicU64,
}

impl TypedMetric for Sizes {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Sizes {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), Error> {
        let bounds = BOUNDS.iter().map(|bound| *bound as f64);
        let buckets: Vec<(f64, u64)> = bounds
            .chain([f64::MAX])
            .zip(&self.0.buckets)
            .map(|(bound, count)| (bound, count.load(Ordering::Relaxed)))
            .collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let bytes = self.0.bytes.load(Ordering::Relaxed) as f64;
        encoder.encode_histogram::<NoLabelSet>(bytes, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Counts the events of one watch.
#[derive(Debug)]
pub(crate) struct WatchEvents {
    total: Counter,
    sizes: Sizes,
    /// What was counted and not added yet.
    buckets: [u32; BUCKETS],
    bytes: u64,
}

impl WatchEvents {
    pub(super) fn new(total: Counter, sizes: Sizes) -> Self {
        Self {
            total,
            sizes,
            buckets: [0; BUCKETS],
            bytes: 0,
        }
    }

    /// Counts an event of so many bytes.
    pub(crate) fn count(&mut self, bytes: usize) {
        let at = BOUNDS.partition_point(|bound| *bound < bytes);
        self.buckets[at] += 1;
        self.bytes += bytes as u64;
    }

    /// Adds what was counted to what everybody sees.
    pub(crate) fn publish(&mut self) {
        let mut total = 0;
        for (count, bucket) in self.buckets.iter_mut().zip(&self.sizes.0.buckets) {
            let count = u64::from(std::mem::take(count));
            if count > 0 {
                bucket.fetch_add(count, Ordering::Relaxed);
                total += count;
            }
        }
        if total > 0 {
            let bytes = std::mem::take(&mut self.bytes);
            self.sizes.0.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.total.inc_by(total);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn shows_what_was_published_in_buckets() {
        let mut registry = Registry::default();
        let (total, sizes) = (Counter::default(), Sizes::default());
        registry.register("sizes", "Sizes", sizes.clone());
        let mut watch = WatchEvents::new(total.clone(), sizes.clone());
        let mut other = WatchEvents::new(total.clone(), sizes);
        for bytes in [0, 1024, 1025, 131_072, 131_073] {
            watch.count(bytes);
        }
        other.count(300);
        other.publish();
        assert_eq!(total.get(), 1);
        watch.publish();
        watch.publish();
        assert_eq!(total.get(), 6);

        let mut out = String::new();
        text::encode(&mut out, &registry).unwrap();
        for line in [
            "sizes_sum 264494.0",
            "sizes_count 6",
            r#"sizes_bucket{le="1024.0"} 3"#,
            r#"sizes_bucket{le="2048.0"} 4"#,
            r#"sizes_bucket{le="65536.0"} 4"#,
            r#"sizes_bucket{le="131072.0"} 5"#,
            r#"sizes_bucket{le="+Inf"} 6"#,
        ] {
            assert!(out.lines().any(|l| l == line), "{line}:\n{out}");
        }
    }
}
