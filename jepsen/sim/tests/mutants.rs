//! The mutation proof, short enough for every landing: each bug that can be planted is
//! found within the seeds that jepsen/README.md states for it.

#![cfg(feature = "mutants")]
#![allow(
    clippy::print_stderr,
    reason = "what jepsen/README.md states is read off it"
)]

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use mutants::Bug;
use sim::mutation::hunt;

/// The first seed, and how many are enough. Those that many seeds would be
/// needed for begin where they are found.
const BUDGETS: &[(Bug, u64, u64)] = &[
    (Bug::AckBeforeSync, 1, 10),
    (Bug::SendBeforeSync, 1, 30),
    (Bug::ReadWithoutIndex, 1, 10),
    (Bug::ReadContextReused, 1, 10),
    (Bug::VoteNotPersisted, 64, 1),
    (Bug::LeaseByOwnClock, 1, 10),
    (Bug::WatchGapAtCompaction, 1, 10),
    (Bug::DeleteLostAtCompaction, 28, 1),
    (Bug::SlowWatcherLoses, 1, 10),
    (Bug::WatchGapAtSnapshot, 1, 10),
    (Bug::TxnOutsideLog, 1, 10),
    (Bug::SnapshotWithoutTail, 1, 10),
    (Bug::DirectoryNotSynced, 1, 10),
    (Bug::TornRecordAccepted, 1, 10),
    (Bug::AppliedAgain, 1, 10),
    (Bug::ProposalTwice, 1, 10),
];

#[test]
fn every_bug_is_found_within_its_seeds() {
    for bug in Bug::ALL {
        let listed = BUDGETS.iter().filter(|(listed, ..)| listed == bug).count();
        assert_eq!(listed, 1, "{}", bug.name());
    }
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((bug, start, seeds)) = BUDGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = hunt(*bug, *start, *seeds);
            eprintln!(
                "{}: {} from {start} on, by {:?}",
                bug.name(),
                found.seeds,
                found.by
            );
            if found.by.is_none() {
                let mut missed = missed.lock().unwrap_or_else(PoisonError::into_inner);
                missed.push(bug.name());
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let missed = missed.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(missed.is_empty(), "not found: {}", missed.join(", "));
}

#[test]
fn without_a_bug_the_same_seeds_hold() {
    for (_, start, _) in BUDGETS {
        let report = sim::run(sim::Plan::of(*start, None), sim::Lines::None);
        assert_eq!(report.violations, [], "seed {start}");
    }
}
