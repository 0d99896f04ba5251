//! A follower that was away for longer than the log is kept comes back by a
//! snapshot, and the leader's clients hardly notice.

use std::time::{Duration, Instant};

use crate::harness::{alone, until};
use crate::http::metric;
use crate::load::{Load, Shape};
use crate::members::{Cluster, revision};
use crate::target::{rounds, target};

const WRITERS: Shape = Shape {
    writers: 100,
    rest: Duration::from_millis(0),
    padding: 0,
};

/// How much p99 of a put may grow meanwhile.
const P99_GROWTH_MAX: f64 = 2.0;
/// The same where other tests share two cores, and catching up takes a moment.
const BUSY_P99_GROWTH_MAX: f64 = 10.0;

/// How many writes the follower misses: more than the log keeps.
fn missed() -> usize {
    // etcd keeps 5,000 entries behind a snapshot, whatever it is told.
    rounds(7_000, 200_000)
}

fn p99(latencies: &[Duration]) -> Duration {
    latencies[latencies.len() * 99 / 100]
}

#[test]
fn catches_up_by_snapshot() {
    let target = target!();
    let _alone = alone();
    let mut cluster = Cluster::start(target, 3, &["--snapshot-count=1000"]);
    let load = Load::start(&cluster, WRITERS);
    let leader = cluster.leader();
    let away = (0..3).find(|&at| at != leader).unwrap();
    cluster.members[away].kill();
    let from = Instant::now();
    let before_missed = load.acknowledged();
    while load.acknowledged() < before_missed + missed() {
        load.write_more(1000);
    }
    let to = Instant::now();
    let calm = load.latencies(leader, from, to);
    eprintln!(
        "m{away} missed {} writes in {:?}: p99 of a put at the leader {:?}",
        load.acknowledged() - before_missed,
        to - from,
        p99(&calm)
    );

    let back = Instant::now();
    cluster.restart(away);
    until("the follower to catch up", || {
        let statuses = cluster.statuses();
        let newest = statuses.values().map(revision).max().unwrap_or(0);
        match statuses.get(&away).map(revision) {
            // Under load it is never quite there.
            Some(at) if at + 500 >= newest => Ok(()),
            other => Err(format!("{other:?} of {newest}")),
        }
    });
    let caught_up = Instant::now();
    load.write_more(WRITERS.writers * 5);
    let busy = load.latencies(leader, back, caught_up.max(back + Duration::from_secs(1)));
    let growth = p99(&busy).as_secs_f64() / p99(&calm).as_secs_f64();
    eprintln!(
        "it caught up in {:?}: p99 of a put meanwhile {:?}, {growth:.2} times that before",
        caught_up - back,
        p99(&busy)
    );
    let received = metric(
        &cluster.members[away].client_url,
        "etcd_network_snapshot_receive_success",
    );
    assert!(
        received >= 1.0,
        "it caught up without a snapshot: {received}"
    );
    eprintln!("{}", load.finish().check(&cluster));
    assert!(
        growth <= rounds(BUSY_P99_GROWTH_MAX, P99_GROWTH_MAX),
        "{growth}"
    );
}
