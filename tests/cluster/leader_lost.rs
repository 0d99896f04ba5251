//! The leader is killed, frozen or cut off under two hundred writers: nothing
//! acknowledged is lost, and writes are taken again soon.

use std::time::{Duration, Instant};

use faults::{Cut, Lan};

use crate::harness::{alone, until};
use crate::load::{Load, Shape};
use crate::members::Cluster;

use crate::target::{here, rounds, target};

/// etcd's default (`--election-timeout`).
const ELECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// Followers miss their leader after one timeout to two, and one of the first of
/// them is elected.
const RESUME_MAX: Duration = ELECTION_TIMEOUT.saturating_mul(2);
/// The bound of a single fault while other tests and builds share two cores: a
/// vote may be split there, and tried again.
const BUSY_RESUME_MAX: Duration = ELECTION_TIMEOUT.saturating_mul(8);
/// How long a frozen leader stays so.
const FREEZE: Duration = Duration::from_secs(3);

/// The load of these tests.
const WRITERS: Shape = Shape {
    writers: 200,
    rest: Duration::from_millis(300),
    padding: 0,
};

/// The times from a fault to the first write after it.
#[derive(Default)]
struct Resumed(Vec<Duration>);

impl Resumed {
    fn note(&mut self, what: &str, took: Duration) {
        eprintln!("{what} {}: writes again after {took:?}", self.0.len() + 1);
        self.0.push(took);
    }

    /// Prints the figures and checks them.
    fn check(mut self, what: &str) {
        self.0.sort_unstable();
        let (median, max) = (self.0[(self.0.len() - 1) / 2], self.0[self.0.len() - 1]);
        let within = self.0.iter().filter(|t| **t <= RESUME_MAX).count();
        eprintln!(
            "{what} {} times: writes again after {median:?} in the middle, {max:?} at most; \
             {within} times within two election timeouts ({RESUME_MAX:?})",
            self.0.len()
        );
        assert!(median <= RESUME_MAX, "writes came back too late");
        let max_allowed = rounds(BUSY_RESUME_MAX, RESUME_MAX);
        assert!(max <= max_allowed, "writes came back after {max:?} once");
    }
}

#[test]
fn killed() {
    let target = target!();
    let _alone = alone();
    let mut cluster = Cluster::start(target, 3, &[]);
    let load = Load::start(&cluster, WRITERS);
    let mut resumed = Resumed::default();
    for _ in 0..rounds(3, 20) {
        let leader = cluster.leader();
        let fault = Instant::now();
        cluster.members[leader].kill();
        resumed.note("kill", load.wrote_since(fault));
        cluster.restart(leader);
        cluster.await_healthy();
        load.write_more(WRITERS.writers);
    }
    eprintln!("{}", load.finish().check(&cluster));
    resumed.check("killed");
}

#[test]
fn frozen() {
    let target = target!();
    let _alone = alone();
    let mut cluster = Cluster::start(target, 3, &[]);
    let load = Load::start(&cluster, WRITERS);
    let mut resumed = Resumed::default();
    for _ in 0..rounds(2, 10) {
        let leader = cluster.leader();
        let fault = Instant::now();
        cluster.members[leader].freeze().unwrap();
        resumed.note("freeze", load.wrote_since(fault));
        std::thread::sleep(FREEZE.saturating_sub(fault.elapsed()));
        cluster.members[leader].thaw().unwrap();
        cluster.await_healthy();
        load.write_more(WRITERS.writers);
    }
    eprintln!("{}", load.finish().check(&cluster));
    resumed.check("frozen");
}

#[test]
fn cut_off() {
    let target = target!();
    let _alone = alone();
    let Some(lan) = here(Lan::build()) else {
        return;
    };
    let cluster = Cluster::start_in(lan, target, &[]);
    let load = Load::start(&cluster, WRITERS);
    let mut resumed = Resumed::default();
    for round in 0..rounds(2, 10) {
        // Every other time its clients still reach the lonely leader, and must
        // not be told that it wrote or read anything.
        let what = [Cut::Peers, Cut::Everything][round % 2];
        let leader = cluster.leader();
        let fault = Instant::now();
        cluster.lan().unwrap().cut(leader, what).unwrap();
        resumed.note("cut", load.wrote_since(fault));
        until("another leader", || match cluster.leader() {
            same if same == leader => Err("the same".to_owned()),
            _ => Ok(()),
        });
        cluster.lan().unwrap().heal(leader, what).unwrap();
        cluster.await_healthy();
        load.write_more(WRITERS.writers);
    }
    eprintln!("{}", load.finish().check(&cluster));
    resumed.check("cut off");
}
