//! How long slow clients may hold up the others, in sum over time.

use std::time::Duration;

/// The most that all full queues of a dispatch together are waited for
/// (kube-apiserver `time_budget.go`).
pub const BUDGET_MAX: Duration = Duration::from_millis(100);
/// The budget refills by this share of the time that passes: 50 ms a second.
const BUDGET_REFILL: u32 = 20;

/// A time budget that all dispatches share.
#[derive(Debug)]
pub struct Budget {
    left: Duration,
    at: Duration,
}

impl Budget {
    /// Creates a full budget.
    pub fn new(now: Duration) -> Self {
        Self {
            left: BUDGET_MAX,
            at: now,
        }
    }

    /// Returns how long may be waited now.
    pub fn left(&mut self, now: Duration) -> Duration {
        let refill = now.saturating_sub(self.at) / BUDGET_REFILL;
        self.left = (self.left + refill).min(BUDGET_MAX);
        self.at = now;
        self.left
    }

    /// Takes what was waited, which ended now.
    pub fn spend(&mut self, now: Duration, spent: Duration) {
        self.left = self.left(now).saturating_sub(spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refills_slowly_and_never_beyond_its_bound() {
        let start = Duration::from_secs(7);
        let mut budget = Budget::new(start);
        assert_eq!(budget.left(start), BUDGET_MAX);
        budget.spend(start, Duration::from_millis(300));
        assert_eq!(budget.left(start), Duration::ZERO);
        let later = start + Duration::from_secs(1);
        assert_eq!(budget.left(later), Duration::from_millis(50));
        assert_eq!(budget.left(later + Duration::from_secs(60)), BUDGET_MAX);
    }
}
