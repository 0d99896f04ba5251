//! Many seeds, on a few threads: each run is in one thread and knows nothing of the
//! others.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use crate::{Kind, Lines, Plan, Report, Time, run};

/// Failing seeds kept; after so many no more are run.
const FAILURES_MAX: usize = 10;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The first seed.
    pub start: u64,
    /// How many.
    pub seeds: u64,
    /// On how many threads.
    pub jobs: usize,
    /// Members, if not drawn.
    pub nodes: Option<u64>,
}

/// What came of all runs.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Runs.
    pub runs: u64,
    /// Faults by kind.
    pub struck: BTreeMap<Kind, u64>,
    /// Requests, and those answered well.
    pub asked: u64,
    /// See there.
    pub answered: u64,
    /// Replies with changes that watchers heard.
    pub heard: u64,
    /// Comparisons of entries and states.
    pub compared: u64,
    /// What the checkers of histories looked at, by their names.
    pub judged: BTreeMap<&'static str, u64>,
    /// Terms that had a leader.
    pub elections: u64,
    /// Things that happened.
    pub steps: u64,
    /// Simulated time.
    pub time: Time,
    /// Runs in which something did not hold.
    pub failures: Vec<Report>,
}

impl Totals {
    fn add(&mut self, report: Report) {
        self.runs += 1;
        for (kind, count) in &report.struck {
            *self.struck.entry(*kind).or_default() += count;
        }
        self.asked += report.asked;
        self.answered += report.answered;
        self.heard += report.heard;
        self.compared += report.compared;
        for (checker, count) in &report.judged {
            *self.judged.entry(checker).or_default() += count;
        }
        self.elections += report.elections;
        self.steps += report.steps;
        self.time += report.time;
        if !report.violations.is_empty() {
            self.failures.push(report);
        }
    }

    /// Lists the kinds of faults that never happened.
    pub fn never(&self) -> Vec<Kind> {
        let never = |kind: &&Kind| !self.struck.contains_key(*kind);
        Kind::ALL.iter().filter(never).copied().collect()
    }
}

impl Campaign {
    /// Runs all seeds; `each` hears of every run, `stop` ends it early.
    pub fn run(&self, each: &(dyn Fn(&Report) + Sync), stop: &AtomicBool) -> Totals {
        let next = AtomicU64::new(0);
        let totals = Mutex::new(Totals::default());
        let work = || loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= self.seeds || stop.load(Ordering::Relaxed) {
                break;
            }
            let plan = Plan::of(self.start.wrapping_add(number), self.nodes);
            let report = run(plan, Lines::None);
            each(&report);
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            totals.add(report);
            if totals.failures.len() >= FAILURES_MAX {
                stop.store(true, Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(work);
            }
        });
        totals.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
