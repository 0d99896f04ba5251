//! The top layer: how long a key that failed must wait.

use std::collections::BTreeMap;
use std::time::Duration;

/// Sets the two limits; the default is client-go's default controller limiter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimiterConfig {
    /// Is the wait after the first failure.
    pub base_delay: Duration,
    /// Bounds the wait, however many failures.
    pub max_delay: Duration,
    /// Is how many retries a second all keys together may make.
    pub qps: f64,
    /// Is how many retries may be made at once after a quiet time.
    pub burst: f64,
}

impl Default for LimiterConfig {
    fn default() -> Self {
        Self {
            base_delay: Duration::from_millis(5),
            max_delay: Duration::from_secs(1000),
            qps: 10.0,
            burst: 100.0,
        }
    }
}

/// Answers when a key may be retried: the later of its own exponential wait
/// (`base · 2^failures`) and its turn in the bucket that all keys share.
#[derive(Debug)]
pub struct RateLimiter<K> {
    config: LimiterConfig,
    failures: BTreeMap<K, u32>,
    /// Is below zero when retries are promised for later.
    tokens: f64,
    refilled_at: Duration,
}

impl<K: Clone + Ord> RateLimiter<K> {
    /// Builds a limiter with a full bucket.
    pub fn new(config: LimiterConfig) -> Self {
        Self {
            config,
            failures: BTreeMap::new(),
            tokens: config.burst,
            refilled_at: Duration::ZERO,
        }
    }

    /// Counts a failure and returns how long the key must wait.
    pub fn when(&mut self, key: &K, now: Duration) -> Duration {
        self.exponential(key).max(self.reserve(now))
    }

    fn exponential(&mut self, key: &K) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let exponent = *failures;
        *failures = failures.saturating_add(1);
        // 2^63 saturates far beyond any maximum.
        let factor = 2f64.powi(i32::try_from(exponent.min(63)).unwrap_or(63));
        let seconds = self.config.base_delay.as_secs_f64() * factor;
        if seconds >= self.config.max_delay.as_secs_f64() {
            return self.config.max_delay;
        }
        Duration::from_secs_f64(seconds)
    }

    fn reserve(&mut self, now: Duration) -> Duration {
        let elapsed = now.saturating_sub(self.refilled_at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.config.qps).min(self.config.burst);
        self.refilled_at = self.refilled_at.max(now);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(-self.tokens / self.config.qps)
    }

    /// Forgets a key's failures; what it took from the bucket stays taken.
    pub fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Returns the failures counted since the key was last forgotten.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }
}
