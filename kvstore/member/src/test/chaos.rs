//! Clients, faults and operators at random, for many seeds: whatever happens, what
//! was acknowledged stays, no read is stale, all apply the same, and the cluster
//! comes together once it is left in peace.

use super::network::{Network, Note, Weather};
use crate::{Change, ConfState, Input, test::node::Node};

/// What may happen beside losses and delays, in chances of a thousand per
/// millisecond.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    weather: Weather,
    crash: usize,
    cut: usize,
    change: usize,
    transfer: usize,
    /// Proposals; a burst makes a peer that was away need a snapshot.
    propose: usize,
}

const ROUGH: Weather = Weather {
    loss: 50,
    repeat: 50,
    delay: 30,
    sync: 300,
};

/// How long it is rough.
const ROUGH_MILLIS: u64 = 1_500;

fn chaos(seed: u64, voters: &[u64], faults: Faults) -> Network {
    let mut net = Network::new(seed, voters);
    net.weather = faults.weather;
    let mut next_member = 10;
    for _ in 0..ROUGH_MILLIS {
        net.pass();
        let up = net.up();
        if net.chance(faults.propose)
            && let Some(at) = net.one_of(&up)
        {
            for _ in 0..net.rng.draw(1, 6) {
                net.propose(at);
            }
        }
        if net.chance(60)
            && let Some(at) = net.one_of(&up)
        {
            net.read(at);
        }
        if net.chance(faults.crash) {
            crash_or_start(&mut net);
        }
        if net.chance(faults.cut) {
            cut_or_heal(&mut net);
        }
        if net.chance(faults.transfer)
            && let (Some(leader), Some(to)) = (net.leader(), net.one_of(&up))
        {
            net.give(leader, Input::Transfer(to));
            net.checks.saw("transfer");
        }
        if net.chance(faults.change) {
            change(&mut net, &mut next_member);
        }
    }
    net.come_together();
    net
}

fn crash_or_start(net: &mut Network) {
    let (up, down) = (net.up(), net.down());
    if let (Some(id), true) = (net.one_of(&down), net.chance(600)) {
        net.nodes.get_mut(&id).unwrap().start();
        net.checks.saw("start");
    } else if let Some(id) = net.one_of(&up) {
        // In the middle of carrying out what it was told.
        let after = net.rng.draw(0, 4);
        net.nodes.get_mut(&id).unwrap().crash_after = Some(after);
    }
}

fn cut_or_heal(net: &mut Network) {
    if net.chance(400) {
        net.cut.clear();
        return;
    }
    let all: Vec<u64> = net.nodes.keys().copied().collect();
    let Some(from) = net.one_of(&all) else { return };
    let Some(to) = net.one_of(&all) else { return };
    match net.rng.draw(0, 3) {
        // One way only.
        0 => {
            net.cut.insert((from, to));
        }
        1 => net.cut.extend([(from, to), (to, from)]),
        _ => {
            for other in all {
                net.cut.extend([(from, other), (other, from)]);
            }
        }
    }
}

/// An operator asks the leader for a change of the membership.
fn change(net: &mut Network, next_member: &mut u64) {
    let Some(leader) = net.leader() else { return };
    let conf = net.nodes[&leader].machine.conf.clone();
    let members: Vec<u64> = conf.members().into_iter().collect();
    let change = match net.rng.draw(0, 4) {
        0 | 1 if members.len() < 6 => {
            let id = *next_member;
            *next_member += 1;
            net.nodes.insert(id, Node::new(id, ConfState::default()));
            match net.rng.draw(0, 2) {
                0 => Change::AddVoter(id),
                _ => Change::AddLearner(id),
            }
        }
        2 => match net.one_of(&conf.learners) {
            Some(id) => Change::Promote(id),
            None => return,
        },
        _ => match net.one_of(&members) {
            Some(id) if conf.voters.len() > 2 || conf.is_learner(id) => Change::Remove(id),
            _ => return,
        },
    };
    let id = net.next_id();
    let context = bytes::Bytes::copy_from_slice(&id.to_le_bytes());
    net.give(
        leader,
        Input::ProposeChange {
            id,
            change,
            context,
        },
    );
    net.checks.saw("change");
}

fn seeds(
    count: u64,
    voters: &[u64],
    faults: Faults,
) -> std::collections::BTreeMap<&'static str, u64> {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..count {
        let net = chaos(seed, voters, faults);
        for (what, times) in net.checks.seen {
            *seen.entry(what).or_default() += times;
        }
    }
    seen
}

#[test]
fn losses_and_partitions() {
    let seen = seeds(
        60,
        &[1, 2, 3],
        Faults {
            weather: ROUGH,
            cut: 8,
            propose: 50,
            transfer: 2,
            ..Faults::default()
        },
    );
    assert!(
        seen["leader"] > 60 && seen["read"] > 60 && seen["acknowledged"] > 60,
        "{seen:?}"
    );
}

#[test]
fn crashes_of_five() {
    let seen = seeds(
        40,
        &[1, 2, 3, 4, 5],
        Faults {
            weather: ROUGH,
            crash: 20,
            cut: 3,
            propose: 60,
            ..Faults::default()
        },
    );
    assert!(seen["crash"] > 40 && seen["install"] > 10, "{seen:?}");
}

#[test]
fn members_come_and_go() {
    let seen = seeds(
        60,
        &[1, 2, 3],
        Faults {
            weather: Weather { loss: 20, ..ROUGH },
            crash: 8,
            cut: 2,
            change: 10,
            transfer: 2,
            propose: 60,
        },
    );
    assert!(
        seen["change applied"] > 100 && seen["install"] > 60 && seen["removed"] > 10,
        "{seen:?}"
    );
}

#[test]
fn one_member_grows_to_many() {
    let seen = seeds(
        40,
        &[1],
        Faults {
            weather: Weather { loss: 5, ..ROUGH },
            crash: 4,
            change: 20,
            propose: 60,
            ..Faults::default()
        },
    );
    assert!(seen["change applied"] > 100, "{seen:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let faults = Faults {
        weather: ROUGH,
        crash: 10,
        cut: 4,
        change: 6,
        transfer: 2,
        propose: 60,
    };
    let run = || {
        let net = chaos(7, &[1, 2, 3], faults);
        let machines: Vec<_> = net
            .nodes
            .values()
            .map(|node| node.machine.clone())
            .collect();
        (net.now, net.checks.seen, machines)
    };
    assert_eq!(run(), run());
    let _used = Note::ReadAsk(0);
}
