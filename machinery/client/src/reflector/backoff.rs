//! How long a reflector waits after a failure.

use std::time::Duration;

/// Is the first wait (client-go: 800 ms).
const FIRST: Duration = Duration::from_millis(800);
/// Bounds the wait before jitter.
const LONGEST: Duration = Duration::from_secs(30);
/// Starts over after this long without a failure.
const RESET_AFTER: Duration = Duration::from_secs(120);
/// Is the first wait while the server has never answered: client and server often
/// start together, and a start must not cost most of a second.
const FIRST_BEFORE_CONTACT: Duration = Duration::from_millis(20);

/// Doubles from 800 ms to 30 s, with jitter of up to the wait itself.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    last_failure: Option<Duration>,
    /// Is the next quick wait, while there was no contact yet.
    quick: Option<Duration>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl Backoff {
    /// Builds a backoff that has seen no failure.
    pub fn new() -> Self {
        Self {
            next: FIRST,
            last_failure: None,
            quick: Some(FIRST_BEFORE_CONTACT),
        }
    }

    /// Notes that the server answered: from now on failures are real ones.
    pub fn connected(&mut self) {
        self.quick = None;
    }

    /// Returns the wait after a failure.
    pub fn next(&mut self, now: Duration, jitter: f64) -> Duration {
        if let Some(quick) = self.quick {
            let doubled = quick * 2;
            self.quick = (doubled < FIRST).then_some(doubled);
            return quick;
        }
        if self
            .last_failure
            .is_some_and(|at| now.saturating_sub(at) >= RESET_AFTER)
        {
            self.next = FIRST;
        }
        self.last_failure = Some(now);
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST);
        wait.mul_f64(1.0 + jitter)
    }
}
