//! Whether a cache may be read, and since when it may not.

use std::time::Duration;

/// The most seconds a client is told to wait for a cache that is not ready.
const RETRY_MAX: f64 = 30.0;
/// How fast the advice grows with the time it has been unready
/// (kube-apiserver `cacher/util.go`: e to the 0.06 per second).
const RETRY_GROWTH: f64 = 0.06;

/// Pending, serving, pending again: each time it comes to serve is a generation,
/// and whoever began in one generation must not go on in the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    serving: bool,
    generation: u64,
    /// When it last came to serve, or ceased to.
    since: Duration,
}

impl Readiness {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            serving: false,
            generation: 0,
            since: now,
        }
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.serving
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Comes to serve a new generation.
    pub(crate) fn serve(&mut self, now: Duration) {
        self.serving = true;
        self.generation += 1;
        self.since = now;
    }

    /// Ceases to serve. Returns whether it did until now.
    pub(crate) fn cease(&mut self, now: Duration) -> bool {
        let did = std::mem::replace(&mut self.serving, false);
        if did {
            self.since = now;
        }
        did
    }

    /// Returns after how many seconds a client should ask again: soon at first,
    /// later the longer it takes.
    pub(crate) fn retry_after(&self, now: Duration) -> u32 {
        let unready = now.saturating_sub(self.since).as_secs_f64();
        // Between 1 and RETRY_MAX, and so a small whole number.
        (unready * RETRY_GROWTH).exp().clamp(1.0, RETRY_MAX) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_count_and_advice_grows() {
        let at = Duration::from_secs;
        let mut ready = Readiness::new(at(10));
        assert!(!ready.is_serving());
        assert_eq!(ready.generation(), 0);
        // The figures of upstream's formula.
        for (seconds, want) in [
            (10, 1),
            (20, 1),
            (22, 2),
            (40, 6),
            (66, 28),
            (70, 30),
            (900, 30),
        ] {
            assert_eq!(ready.retry_after(at(seconds)), want, "{seconds}");
        }
        ready.serve(at(100));
        assert!(ready.is_serving());
        assert!(ready.cease(at(200)));
        assert!(!ready.cease(at(300)));
        assert_eq!(ready.retry_after(at(201)), 1);
        ready.serve(at(400));
        assert_eq!(ready.generation(), 2);
    }
}
