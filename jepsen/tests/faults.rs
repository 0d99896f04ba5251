//! Every fault bites: what it does can be seen from outside, and is over once it is
//! healed. A fault that does nothing would prove nothing.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use faults::{Bed, Ground, Nemesis, Target, nemesis, runtime, until};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// How long a write may take before it counts as not answered.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How many draws of a nemesis are tried until it chose what a test is about.
const DRAWS_MAX: u64 = 60;

/// Clusters run one at a time: two cores cannot keep several honest.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|p| p.into_inner())
}

/// Starts three members with what is asked for, or says what is missing.
fn bed(ground: Ground) -> Option<Bed> {
    if let Some(why) = Bed::missing(ground).first() {
        eprintln!("cannot run: {why}");
        return None;
    }
    let target = Target::built_in(env!("CARGO_BIN_EXE_jepsen"), "member");
    let flags = ["--snapshot-count=100", "--election-timeout=500"];
    Some(Bed::start(target, 3, ground, &flags).unwrap())
}

/// Starts a nemesis with the first seed whose choice is what is wanted.
fn start(bed: &mut Bed, name: &str, wanted: &str) -> (Box<dyn Nemesis>, String) {
    let kind = nemesis::named(name).unwrap()[0];
    for seed in 0..DRAWS_MAX {
        let mut nemesis = kind.make();
        let mut rng = StdRng::seed_from_u64(seed);
        let said = nemesis.start(bed, &mut rng).unwrap();
        if said.contains(wanted) {
            return (nemesis, said);
        }
        bed.revive().unwrap();
        nemesis.heal(bed).unwrap();
    }
    panic!("{name} never chose {wanted:?}");
}

fn heal(bed: &mut Bed, mut nemesis: Box<dyn Nemesis>) {
    bed.revive().unwrap();
    nemesis.heal(bed).unwrap();
    bed.cluster.await_healthy().unwrap();
    assert!(bed.crashes.is_empty(), "{:?}", bed.crashes);
}

fn put(bed: &Bed, at: usize, value: &str) -> Result<Duration, String> {
    let started = Instant::now();
    let client = &bed.cluster.members[at].client;
    let told = runtime().block_on(client.put("k", value, PATIENCE));
    told.map(|_| started.elapsed()).map_err(|e| e.to_string())
}

/// Returns who answers linearizable reads right now.
fn answering(bed: &Bed) -> BTreeSet<usize> {
    let running = bed.cluster.running().into_iter();
    running
        .filter(|at| bed.cluster.answers(*at).is_ok())
        .collect()
}

#[test]
fn processes_are_killed_frozen_and_restarted() {
    let _alone = alone();
    let Some(mut bed) = bed(Ground::default()) else {
        return;
    };
    let (kill, said) = start(&mut bed, "kill", "killed");
    let down = 3 - bed.cluster.running().len();
    assert_eq!(down, said.matches('m').count(), "{said}");
    heal(&mut bed, kill);
    assert_eq!(answering(&bed).len(), 3);

    let (pause, said) = start(&mut bed, "pause", "froze");
    let frozen = said.matches(" m").count();
    assert_eq!(bed.cluster.statuses().len(), 3 - frozen, "{said}");
    heal(&mut bed, pause);

    let pids = |bed: &mut Bed| -> Vec<u32> {
        let members = bed.cluster.members.iter_mut();
        members.map(|m| m.process().unwrap().pid()).collect()
    };
    let before = pids(&mut bed);
    let (rolling, _) = start(&mut bed, "restart", "");
    let after = pids(&mut bed);
    assert!(before.iter().zip(&after).all(|(a, b)| a != b));
    heal(&mut bed, rolling);

    let leader = bed.cluster.leader().unwrap();
    let (transfer, said) = start(&mut bed, "transfer", "done");
    assert!(said.starts_with(&format!("m{leader} to ")), "{said}");
    assert_ne!(bed.cluster.leader().unwrap(), leader);
    heal(&mut bed, transfer);
}

/// Which shapes of a cut a test is about.
#[derive(Clone, Copy, PartialEq)]
enum Shapes {
    All,
    /// One alone, and one that is not heard: another means, the same shapes.
    Two,
}

/// Whoever is cut off answers nothing that needs the others.
fn cuts_bite(mut bed: Bed, shapes: Shapes) {
    let leader = bed.cluster.leader().unwrap();
    let (partition, said) = start(&mut bed, "partition", "alone");
    let victim: usize = said[1..2].parse().unwrap();
    assert!(
        put(&bed, victim, "lost").is_err(),
        "{said} as m{leader} led"
    );
    until("the others to go on", || {
        put(&bed, (victim + 1) % 3, "kept").map(drop)
    })
    .unwrap();
    heal(&mut bed, partition);
    put(&bed, victim, "again").unwrap();

    let one_way = ["heard by nobody", "hears nobody"];
    let count = if shapes == Shapes::All { 2 } else { 1 };
    for wanted in &one_way[..count] {
        let (one_way, said) = start(&mut bed, "one-way", wanted);
        let victim: usize = said[1..2].parse().unwrap();
        // A question whose answer is lost is no better than one that is.
        assert!(put(&bed, victim, "lost").is_err(), "{said}");
        heal(&mut bed, one_way);
    }
    if shapes == Shapes::Two {
        return;
    }
    let (halves, said) = start(&mut bed, "partition", "apart from");
    until("a member to be without the others", || {
        match answering(&bed).len() {
            3 => Err("all answer".to_owned()),
            _ => Ok(()),
        }
    })
    .unwrap_or_else(|e| panic!("{said}: {e}"));
    heal(&mut bed, halves);
}

#[test]
fn packets_are_cut() {
    let _alone = alone();
    let ground = Ground {
        lan: true,
        ..Ground::default()
    };
    if let Some(bed) = bed(ground) {
        cuts_bite(bed, Shapes::All);
    }
}

#[test]
fn packets_are_cut_before_and_behind_a_relay() {
    let _alone = alone();
    let ground = Ground {
        lan: true,
        relay: true,
        ..Ground::default()
    };
    if let Some(bed) = bed(ground) {
        cuts_bite(bed, Shapes::Two);
    }
}

#[test]
fn bytes_are_cut_where_there_is_only_a_relay() {
    let _alone = alone();
    let ground = Ground {
        relay: true,
        ..Ground::default()
    };
    if let Some(bed) = bed(ground) {
        cuts_bite(bed, Shapes::Two);
    }
}

#[test]
fn packets_are_lost_and_links_are_slow() {
    let _alone = alone();
    let ground = Ground {
        lan: true,
        ..Ground::default()
    };
    let Some(mut bed) = bed(ground) else { return };
    let lan = bed.cluster.lan().unwrap();
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
        lan.hurt(from, to, faults::Packets::Lost(1.0)).unwrap();
    }
    assert!(put(&bed, 0, "lost").is_err());
    bed.revive().unwrap();
    let (loss, _) = start(&mut bed, "loss", "0.2 of all");
    heal(&mut bed, loss);

    let leader = bed.cluster.leader().unwrap();
    let large = "x".repeat(128 << 10);
    let before = put(&bed, leader, &large).unwrap();
    bed.cluster
        .lan()
        .unwrap()
        .slow(leader, Some(512_000))
        .unwrap();
    let slow = put(&bed, leader, &large);
    assert!(
        slow.as_ref()
            .map_or(true, |t| *t > before + Duration::from_millis(800)),
        "{before:?} before, {slow:?} on a slow link"
    );
    bed.revive().unwrap();
    let after = put(&bed, leader, &large).unwrap();
    assert!(after < Duration::from_millis(800), "{after:?}");
    let (slow, _) = start(&mut bed, "slow-link", "bits a second");
    heal(&mut bed, slow);
}

#[test]
fn bytes_are_delayed_held_and_torn_away() {
    let _alone = alone();
    let ground = Ground {
        relay: true,
        ..Ground::default()
    };
    let Some(mut bed) = bed(ground) else { return };
    let leader = bed.cluster.leader().unwrap();
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    put(&bed, leader, "before").unwrap();
    let late = Duration::from_millis(150);
    for other in others {
        bed.relay()
            .unwrap()
            .delay(leader, other, late, Duration::ZERO);
    }
    let took = put(&bed, leader, "late").unwrap();
    assert!(took >= late, "{took:?}");
    bed.revive().unwrap();
    for other in others {
        bed.relay().unwrap().hold(leader, other);
    }
    assert!(put(&bed, leader, "held").is_err());
    bed.revive().unwrap();
    for name in ["delay", "hold", "reset"] {
        let (nemesis, _) = start(&mut bed, name, "");
        heal(&mut bed, nemesis);
    }
}

#[test]
fn disks_fail_run_out_and_lose_what_was_not_synced() {
    let _alone = alone();
    let ground = Ground {
        disks: true,
        ..Ground::default()
    };
    let Some(mut bed) = bed(ground) else { return };
    put(&bed, 0, "before").unwrap();

    let (sync_error, said) = start(&mut bed, "sync-error", "");
    let victim: usize = said[1..2].parse().unwrap();
    until("a member to end at a sync that failed", || {
        let _told = put(&bed, (victim + 1) % 3, "more");
        match bed.cluster.members[victim].ended() {
            Some(_) => Ok(()),
            None => Err("it goes on".to_owned()),
        }
    })
    .unwrap();
    heal(&mut bed, sync_error);

    let (power_cut, said) = start(&mut bed, "power-cut", "m0 m1 m2 dark");
    assert!(bed.cluster.running().is_empty(), "{said}");
    heal(&mut bed, power_cut);
    let read = bed.cluster.members[0].client.get("k", false, PATIENCE);
    assert!(runtime().block_on(read).unwrap().is_some());

    for at in 0..3 {
        bed.disk(at).unwrap().slow(Duration::from_millis(400));
    }
    let took = put(&bed, 0, "slow").unwrap();
    assert!(took >= Duration::from_millis(400), "{took:?}");
    bed.revive().unwrap();
    let (slow, _) = start(&mut bed, "slow-disk", "");
    heal(&mut bed, slow);

    let (full, said) = start(&mut bed, "disk-full", "");
    let victim: usize = said[1..2].parse().unwrap();
    let large = "x".repeat(64 << 10);
    until("no room", || {
        let refused = put(&bed, (victim + 1) % 3, &large).err();
        let refused = refused.is_some_and(|why| why.contains("space exceeded"));
        match refused || bed.cluster.members[victim].ended().is_some() {
            true => Ok(()),
            false => Err("writes go on".to_owned()),
        }
    })
    .unwrap();
    heal(&mut bed, full);
    put(&bed, victim, "room").unwrap();
    let failed: u64 = bed.disk_counts().iter().map(|(_, c)| c.failed_syncs).sum();
    assert!(failed > 0);
}

#[test]
fn members_are_replaced_and_rebuilt() {
    let _alone = alone();
    let Some(mut bed) = bed(Ground::default()) else {
        return;
    };
    // Enough for a log with something in it, and rows behind it.
    for number in 0..300 {
        put(&bed, number % 3, &number.to_string()).unwrap();
    }
    let ids = |bed: &Bed| -> BTreeSet<u64> {
        let current = bed.cluster.current().into_iter();
        current.map(|at| bed.cluster.id_of(at).unwrap()).collect()
    };
    let before = ids(&bed);
    let (replace, said) = start(&mut bed, "replace", "");
    heal(&mut bed, replace);
    let after = ids(&bed);
    assert_eq!(before.intersection(&after).count(), 2, "{said}");
    assert_eq!(answering(&bed).len(), 3);

    for name in ["corrupt-log", "corrupt-snapshot"] {
        let before = ids(&bed);
        let (corrupt, said) = start(&mut bed, name, " bytes at ");
        eprintln!("{said}");
        heal(&mut bed, corrupt);
        assert_eq!(before.intersection(&ids(&bed)).count(), 2, "{said}");
        assert_eq!(answering(&bed).len(), 3);
    }
    let revision = bed.cluster.settled().unwrap();
    let hashes = bed.cluster.hashes(revision).unwrap();
    assert!(hashes.windows(2).all(|w| w[0].1 == w[1].1), "{hashes:?}");
}

#[test]
fn clocks_are_wrong() {
    let _alone = alone();
    let ground = Ground {
        clocks: true,
        ..Ground::default()
    };
    let Some(mut bed) = bed(ground) else { return };
    let (skew, said) = start(&mut bed, "clock", "clocks: m0 by");
    assert!(said.contains(" s at rate "), "{said}");
    put(&bed, 0, "meanwhile").unwrap();
    heal(&mut bed, skew);
}
