//! The machine's clock, which all processes of a run read.

use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::order::Counts;

/// Returns the time since the machine started, in microseconds.
pub(super) fn now() -> u64 {
    let at = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (at.tv_sec.unsigned_abs(), at.tv_nsec.unsigned_abs());
    seconds * 1_000_000 + nanos / 1000
}

/// Sleeps until a moment; not at all if that is past.
pub(super) async fn sleep_until(at: u64) {
    let left = at.saturating_sub(now());
    if left > 0 {
        tokio::time::sleep(Duration::from_micros(left)).await;
    }
}

/// Takes a histogram apart for its way to another process.
pub(super) fn counts(of: &Histogram<u64>) -> Counts {
    of.iter_recorded()
        .map(|at| (at.value_iterated_to(), at.count_at_value()))
        .collect()
}

/// Adds what [`counts`] returned.
pub(super) fn add(to: &mut Histogram<u64>, counts: &Counts) -> anyhow::Result<()> {
    for &(value, count) in counts {
        to.record_n(value, count)?;
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_histogram_survives_its_way() {
        let mut of = Histogram::<u64>::new(3).unwrap();
        for value in [0, 7, 7, 900, 123_456] {
            of.record(value).unwrap();
        }
        let mut back = Histogram::<u64>::new(3).unwrap();
        add(&mut back, &counts(&of)).unwrap();
        assert_eq!(back.len(), 5);
        for quantile in [0.1, 0.5, 0.9, 1.0] {
            assert_eq!(
                back.value_at_quantile(quantile),
                of.value_at_quantile(quantile)
            );
        }
    }
}
