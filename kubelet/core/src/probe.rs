//! One probe of one container instance: when it is due and what its results mean.
//!
//! Upstream `prober/worker.go`: a startup probe gates the other two; results
//! count in runs; a liveness or startup probe that reached its failure
//! threshold stays silent until the container is replaced.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Probe as ProbeSpec;

use crate::after;

/// Which question a probe answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Has it finished starting?
    Startup,
    /// Is it alive?
    Liveness,
    /// May it be sent traffic?
    Readiness,
}

impl ProbeKind {
    /// The three kinds, the gating one first.
    pub const ALL: [ProbeKind; 3] = [
        ProbeKind::Startup,
        ProbeKind::Liveness,
        ProbeKind::Readiness,
    ];

    /// Names the kind as events do.
    pub fn title(self) -> &'static str {
        match self {
            ProbeKind::Startup => "Startup",
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
        }
    }
}

/// A probe's settings with the API's defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeTiming {
    /// Seconds from the container's start to the first run.
    pub initial_delay_seconds: i64,
    /// Seconds between two runs.
    pub period_seconds: i64,
    /// Seconds one run may take.
    pub timeout_seconds: i64,
    /// Successes in a row that turn the result to success.
    pub success_threshold: u32,
    /// Failures in a row that turn the result to failure.
    pub failure_threshold: u32,
}

impl ProbeTiming {
    /// Reads the settings; what is missing or zero gets the API's default
    /// (period 10, timeout 1, success 1, failure 3).
    pub fn of(spec: &ProbeSpec) -> Self {
        let or = |value: Option<i32>, default: i32| value.filter(|v| *v > 0).unwrap_or(default);
        ProbeTiming {
            initial_delay_seconds: i64::from(or(spec.initial_delay_seconds, 0)),
            period_seconds: i64::from(or(spec.period_seconds, 10)),
            timeout_seconds: i64::from(or(spec.timeout_seconds, 1)),
            success_threshold: or(spec.success_threshold, 1).unsigned_abs(),
            failure_threshold: or(spec.failure_threshold, 3).unsigned_abs(),
        }
    }
}

/// What a probe currently says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not enough runs yet.
    Unknown,
    /// The success threshold was reached last.
    Success,
    /// The failure threshold was reached last.
    Failure,
}

/// One probe of one container instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeState {
    kind: ProbeKind,
    timing: ProbeTiming,
    verdict: Verdict,
    last_outcome: Option<bool>,
    outcomes_in_a_row: u32,
    last_run_at: Option<Timestamp>,
    in_flight: bool,
}

impl ProbeState {
    /// Makes the state of a probe that has never run. Until the first result
    /// liveness counts as success, readiness as failure, startup as unknown.
    pub fn new(kind: ProbeKind, timing: ProbeTiming) -> Self {
        let verdict = match kind {
            ProbeKind::Startup => Verdict::Unknown,
            ProbeKind::Liveness => Verdict::Success,
            ProbeKind::Readiness => Verdict::Failure,
        };
        ProbeState {
            kind,
            timing,
            verdict,
            last_outcome: None,
            outcomes_in_a_row: 0,
            last_run_at: None,
            in_flight: false,
        }
    }

    /// Returns which question it answers.
    pub fn kind(&self) -> ProbeKind {
        self.kind
    }

    /// Returns its settings.
    pub fn timing(&self) -> &ProbeTiming {
        &self.timing
    }

    /// Returns what it currently says.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns when the next run is due, `None` while one runs or when it must
    /// not run: startup has answered, startup has not answered yet, or the
    /// container is about to be replaced.
    pub fn due_at(&self, started_at: Timestamp, startup_done: bool) -> Option<Timestamp> {
        let gated = match self.kind {
            ProbeKind::Startup => startup_done || self.verdict == Verdict::Failure,
            ProbeKind::Liveness => !startup_done || self.verdict == Verdict::Failure,
            ProbeKind::Readiness => !startup_done,
        };
        if gated || self.in_flight {
            return None;
        }
        Some(match self.last_run_at {
            Some(last) => after(last, self.timing.period_seconds),
            None => after(started_at, self.timing.initial_delay_seconds),
        })
    }

    /// Takes over a success known from before the agent restarted.
    pub fn seed_success(&mut self) {
        self.verdict = Verdict::Success;
    }

    /// Notes that a run was begun.
    pub fn begun(&mut self, now: Timestamp) {
        self.in_flight = true;
        self.last_run_at = Some(now);
    }

    /// Records a run's outcome; reports whether the verdict changed.
    /// `None` is a run that could not be performed and counts for nothing.
    pub fn record(&mut self, outcome: Option<bool>) -> bool {
        self.in_flight = false;
        let Some(success) = outcome else { return false };
        if self.last_outcome == Some(success) {
            self.outcomes_in_a_row = self.outcomes_in_a_row.saturating_add(1);
        } else {
            self.last_outcome = Some(success);
            self.outcomes_in_a_row = 1;
        }
        let (threshold, next) = if success {
            (self.timing.success_threshold, Verdict::Success)
        } else {
            (self.timing.failure_threshold, Verdict::Failure)
        };
        if self.outcomes_in_a_row < threshold || self.verdict == next {
            return false;
        }
        self.verdict = next;
        true
    }

    /// Returns how long one run may take.
    pub fn timeout(&self) -> SignedDuration {
        SignedDuration::from_secs(self.timing.timeout_seconds)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn probe(kind: ProbeKind) -> ProbeState {
        let spec = ProbeSpec {
            initial_delay_seconds: Some(5),
            period_seconds: Some(2),
            success_threshold: Some(2),
            ..ProbeSpec::default()
        };
        ProbeState::new(kind, ProbeTiming::of(&spec))
    }

    #[test]
    fn defaults_are_the_apis() {
        let timing = ProbeTiming::of(&ProbeSpec::default());
        let expected = ProbeTiming {
            initial_delay_seconds: 0,
            period_seconds: 10,
            timeout_seconds: 1,
            success_threshold: 1,
            failure_threshold: 3,
        };
        assert_eq!(timing, expected);
    }

    #[test]
    fn first_run_after_the_initial_delay_then_every_period_one_at_a_time() {
        let mut p = probe(ProbeKind::Readiness);
        assert_eq!(p.due_at(at(100), true), Some(at(105)));
        p.begun(at(105));
        assert_eq!(p.due_at(at(100), true), None);
        p.record(Some(true));
        assert_eq!(p.due_at(at(100), true), Some(at(107)));
    }

    #[test]
    fn thresholds_count_outcomes_in_a_row() {
        let mut p = probe(ProbeKind::Readiness);
        assert_eq!(p.verdict(), Verdict::Failure);
        assert!(!p.record(Some(true)));
        assert!(!p.record(Some(false)));
        assert!(!p.record(Some(true)));
        assert!(p.record(Some(true)));
        assert_eq!(p.verdict(), Verdict::Success);
        assert!(!p.record(Some(false)));
        assert!(!p.record(None));
        assert!(!p.record(Some(false)));
        assert!(p.record(Some(false)));
        assert_eq!(p.verdict(), Verdict::Failure);
    }

    #[test]
    fn startup_gates_the_others_and_falls_silent_once_it_answered() {
        for kind in [ProbeKind::Liveness, ProbeKind::Readiness] {
            assert_eq!(probe(kind).due_at(at(0), false), None);
            assert!(probe(kind).due_at(at(0), true).is_some());
        }
        assert!(probe(ProbeKind::Startup).due_at(at(0), false).is_some());
        assert_eq!(probe(ProbeKind::Startup).due_at(at(0), true), None);
    }

    #[test]
    fn a_failed_liveness_probe_stays_silent_until_the_container_is_replaced() {
        let mut p = probe(ProbeKind::Liveness);
        for _ in 0..3 {
            p.record(Some(false));
        }
        assert_eq!(p.verdict(), Verdict::Failure);
        assert_eq!(p.due_at(at(0), true), None);
    }
}
