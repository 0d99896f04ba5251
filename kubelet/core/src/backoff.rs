//! Waiting longer after each failure: crashing containers and failing pulls.
//!
//! Both follow client-go's `flowcontrol.Backoff` as the kubelet uses it: 10 s,
//! doubled up to 300 s, forgotten after twice the maximum without failure. The
//! first restart is therefore immediate; the second waits 10 s.

use jiff::{SignedDuration, Timestamp};

use crate::after;

/// First delay (upstream `backOffPeriod`, 10 s).
pub const BACKOFF_SECONDS_INITIAL: i64 = 10;
/// Longest delay (upstream `MaxCrashLoopBackOff`, 300 s).
pub const BACKOFF_SECONDS_MAX: i64 = 300;
/// Quiet time after which the delay starts over (twice the maximum).
pub const BACKOFF_SECONDS_RESET: i64 = 2 * BACKOFF_SECONDS_MAX;

/// The delay one container has earned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    entry: Option<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    seconds: i64,
    updated_at: Timestamp,
    /// The spec the failures belong to; a changed spec starts over.
    spec_hash: String,
}

impl Backoff {
    /// Returns until when a container that failed at `failed_at` has to wait,
    /// `None` if it may start now.
    pub fn wait_until(
        &self,
        spec_hash: &str,
        failed_at: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let entry = self.entry.as_ref().filter(|e| e.spec_hash == spec_hash)?;
        if entry.expired(failed_at) {
            return None;
        }
        let until = after(failed_at, entry.seconds);
        (until > now).then_some(until)
    }

    /// Returns the current delay in seconds, zero if there is none.
    pub fn seconds(&self) -> i64 {
        self.entry.as_ref().map_or(0, |e| e.seconds)
    }

    /// Records another start after a failure at `failed_at`: the next wait is longer.
    pub fn advance(&mut self, spec_hash: &str, failed_at: Timestamp, now: Timestamp) {
        let seconds = match &self.entry {
            Some(e) if e.spec_hash == spec_hash && !e.expired(failed_at) => {
                (e.seconds * 2).min(BACKOFF_SECONDS_MAX)
            }
            Some(_) | None => BACKOFF_SECONDS_INITIAL,
        };
        self.entry = Some(Entry {
            seconds,
            updated_at: now,
            spec_hash: spec_hash.to_owned(),
        });
    }

    /// Forgets every failure.
    pub fn reset(&mut self) {
        self.entry = None;
    }
}

impl Entry {
    fn expired(&self, failed_at: Timestamp) -> bool {
        failed_at.duration_since(self.updated_at) > SignedDuration::from_secs(BACKOFF_SECONDS_RESET)
    }
}

/// Formats seconds as Go prints a duration: `10s`, `1m20s`, `5m0s`.
pub fn go_duration(seconds: i64) -> String {
    match seconds {
        s if s < 60 => format!("{s}s"),
        s if s < 3600 => format!("{}m{}s", s / 60, s % 60),
        s => format!("{}h{}m{}s", s / 3600, s / 60 % 60, s % 60),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    #[test]
    fn the_first_restart_is_immediate_then_delays_double_to_five_minutes() {
        let mut backoff = Backoff::default();
        let mut now = 0;
        let mut delays = Vec::new();
        for _ in 0..8 {
            let until = backoff.wait_until("h", at(now), at(now));
            let wait = until.map_or(0, |u| u.duration_since(at(now)).as_secs());
            delays.push(wait);
            now += wait;
            backoff.advance("h", at(now - wait), at(now));
            now += 1;
        }
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn ten_quiet_minutes_start_over_and_so_does_a_new_spec() {
        let mut backoff = Backoff::default();
        backoff.advance("h", at(0), at(0));
        backoff.advance("h", at(5), at(10));
        assert_eq!(backoff.seconds(), 20);
        assert!(backoff.wait_until("h", at(611), at(611)).is_none());
        assert!(backoff.wait_until("h", at(610), at(610)).is_some());
        assert!(backoff.wait_until("other", at(20), at(20)).is_none());
        backoff.advance("h", at(611), at(611));
        assert_eq!(backoff.seconds(), 10);
    }

    #[test]
    fn durations_read_as_go_prints_them() {
        assert_eq!(go_duration(10), "10s");
        assert_eq!(go_duration(80), "1m20s");
        assert_eq!(go_duration(300), "5m0s");
        assert_eq!(go_duration(3600), "1h0m0s");
    }
}
