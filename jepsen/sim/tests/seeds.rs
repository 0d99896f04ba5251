//! The simulator on itself: the same seed is the same run, seeds hold what they
//! promise, and those that once failed hold it too.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
    sync::atomic::AtomicBool,
};

use sim::{Lines, Plan, campaign::Campaign, run};

/// Seeds that once showed a bug, and which. A seed means another run whenever clients
/// or faults are drawn differently, as has happened to these.
const REGRESSIONS: &[(u64, &str)] = &[
    (
        16,
        "a segment of the log that begins over an entry was kept without the one before",
    ),
    (
        12,
        "without pre-vote a candidate whose log is too short stood so often that nobody else could",
    ),
    (6, "likewise, with five members"),
];

/// Seeds run twice.
const TWICE: u64 = 50;

/// Seeds that are the same every time, and seeds that are not.
const FIXED: u64 = 60;
const FRESH: u64 = 60;

fn campaign(start: u64, seeds: u64) {
    let campaign = Campaign {
        start,
        seeds,
        jobs: 2,
        nodes: None,
    };
    let totals = campaign.run(&|_| {}, &AtomicBool::new(false));
    let told = totals.failures.iter().map(|report| {
        let (seed, violation) = (report.seed, &report.violations[0]);
        format!("jepsen sim --seed {seed} --trace: {violation}")
    });
    let told: Vec<_> = told.collect();
    assert!(told.is_empty(), "\n{}\n", told.join("\n"));
    assert_eq!(totals.runs, seeds);
    assert!(totals.answered > seeds * 50, "{} answers", totals.answered);
    assert!(
        totals.heard > seeds * 10,
        "{} replies of watches",
        totals.heard
    );
}

#[test]
fn a_seed_is_one_run_to_the_byte() {
    for seed in 1..=TWICE {
        let (one, other) = (
            run(Plan::of(seed, None), Lines::None),
            run(Plan::of(seed, None), Lines::All),
        );
        assert_eq!(
            (one.hash, one.steps),
            (other.hash, other.steps),
            "seed {seed}"
        );
    }
}

#[test]
fn seeds_that_once_failed_hold() {
    for (seed, story) in REGRESSIONS {
        let report = run(Plan::of(*seed, None), Lines::None);
        assert_eq!(report.violations, [], "seed {seed}: {story}");
    }
}

#[test]
fn the_same_seeds_hold_every_time() {
    campaign(1, FIXED);
}

#[test]
fn fresh_seeds_hold() {
    let start = RandomState::new().build_hasher().finish() % 1_000_000_000;
    // Kept by the test's output if it fails: the seeds are in it.
    campaign(start, FRESH);
}
