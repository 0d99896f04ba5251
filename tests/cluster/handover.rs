//! A leader that is asked to end hands its leadership over first: a client sees
//! one error at most, and writes go on at once.

use std::time::{Duration, Instant};

use crate::harness::{alone, until};
use crate::load::{Load, Shape};
use crate::members::Cluster;
use crate::target::{rounds, target};

const WRITERS: Shape = Shape {
    writers: 50,
    rest: Duration::from_millis(50),
    padding: 0,
};

/// The longest time without a write: shorter than any election that begins with
/// a leader being missed.
const SILENCE_MAX: Duration = Duration::from_secs(1);

#[test]
fn on_sigterm() {
    let target = target!();
    let _alone = alone();
    let mut cluster = Cluster::start(target, 3, &[]);
    let load = Load::start(&cluster, WRITERS);
    for round in 1..=rounds(2, 10) {
        let leader = cluster.leader();
        let asked = Instant::now();
        let ended = cluster.members[leader].terminate().unwrap();
        let took = asked.elapsed();
        let next = cluster.leader();
        assert_ne!(next, leader);
        load.write_more(WRITERS.writers * 5);
        let silence = load.longest_silence(asked, Instant::now());
        let errors = load.errors_since(asked);
        eprintln!(
            "SIGTERM {round}: ended ({ended}) after {took:?}; no write for {silence:?} at most; \
             {} of {} clients saw an error: {:?}",
            errors.len(),
            WRITERS.writers,
            errors
                .values()
                .flatten()
                .collect::<std::collections::BTreeSet<_>>(),
        );
        let most = errors.values().map(Vec::len).max().unwrap_or(0);
        assert!(most <= 1, "a client saw more than one error: {errors:#?}");
        assert!(silence < SILENCE_MAX, "no write for {silence:?}");
        if cluster.target.ours {
            assert!(ended.success(), "{ended}");
        }
        cluster.restart(leader);
        cluster.await_healthy();
        until("the cluster to be whole", || cluster.whole());
    }
    eprintln!("{}", load.finish().check(&cluster));
}
