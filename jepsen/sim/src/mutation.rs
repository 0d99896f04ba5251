//! The mutation proof: known bugs planted one at a time, and how many seeds it takes
//! until one of the checkers finds each.

use mutants::Bug;

use crate::{Lines, Plan, run};

/// What came of a bug.
#[derive(Clone, Debug)]
pub struct Found {
    /// The bug.
    pub bug: Bug,
    /// Seeds that were run, the last of which found it if any did.
    pub seeds: u64,
    /// Which checker found it, by what seed, and what it said.
    pub by: Option<(&'static str, u64, String)>,
}

/// Plants a bug and runs seeds until it is found, or as many as may be.
pub fn hunt(bug: Bug, start: u64, seeds_max: u64) -> Found {
    mutants::plant(Some(bug));
    let mut found = Found {
        bug,
        seeds: 0,
        by: None,
    };
    for seed in start..start + seeds_max {
        found.seeds += 1;
        let report = run(Plan::of(seed, None), Lines::None);
        if let Some(violation) = report.violations.first() {
            found.by = Some((violation.checker, seed, violation.what.clone()));
            break;
        }
    }
    mutants::plant(None);
    found
}

/// Hunts all bugs, on a few threads; `each` hears of every one.
pub fn hunt_all(start: u64, seeds_max: u64, jobs: usize, each: &(dyn Fn(&Found) + Sync)) -> bool {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let missed = std::sync::atomic::AtomicBool::new(false);
    let work = || loop {
        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let Some(bug) = Bug::ALL.get(number) else {
            break;
        };
        let found = hunt(*bug, start, seeds_max);
        if found.by.is_none() {
            missed.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        each(&found);
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(work);
        }
    });
    !missed.into_inner()
}
