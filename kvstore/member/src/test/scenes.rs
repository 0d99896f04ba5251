//! Scenes with one point each, in calm weather.

use std::time::Duration;

use bytes::Bytes;

use super::{
    config,
    network::{Network, Weather},
    node::Node,
};
use crate::{
    APPLY_ENTRIES_MAX, Change, ConfState, EntryKind, HardState, Input, LogEntry, Member, Output,
    PeerState, ReadId, ReadRefusal, Recovered, Refusal, Role, decode_change,
};

fn settled(voters: &[u64]) -> (Network, u64) {
    let mut net = Network::new(1, voters);
    net.until("a leader", |net| net.leader().is_some());
    net.run(50);
    let leader = net.leader().unwrap();
    (net, leader)
}

fn change(net: &mut Network, at: u64, change: Change) {
    let context = Bytes::copy_from_slice(&net.next_id().to_le_bytes());
    let id = net.next_id();
    net.give(
        at,
        Input::ProposeChange {
            id,
            change,
            context,
        },
    );
}

fn conf(net: &Network, id: u64) -> ConfState {
    net.nodes[&id].machine.conf.clone()
}

fn join(net: &mut Network, id: u64) {
    net.nodes.insert(id, Node::new(id, ConfState::default()));
}

#[test]
fn a_learner_is_sent_a_snapshot_first_and_is_promoted() {
    let (mut net, leader) = settled(&[1]);
    assert_eq!(leader, 1);
    for _ in 0..3 {
        net.propose(1);
    }
    net.run(20);
    join(&mut net, 2);
    change(&mut net, 1, Change::AddLearner(2));
    net.until("the learner has everything", |net| {
        net.nodes[&2].machine == net.nodes[&1].machine && conf(net, 2).is_learner(2)
    });
    // The leader has the whole log, from the first entry on: still a snapshot.
    assert_eq!(net.checks.count("install"), 1, "{:?}", net.checks.seen);
    net.run(50);
    let peers = net.nodes[&1].member.as_ref().unwrap().peers();
    assert!(
        peers[0].learner && peers[0].state == PeerState::Replicate,
        "{peers:?}"
    );
    assert_eq!(
        peers[0].matched,
        net.nodes[&1].member.as_ref().unwrap().last_index()
    );

    net.read(2);
    net.until("a learner reads", |net| net.checks.count("read") == 1);
    change(&mut net, 1, Change::Promote(2));
    net.until("promoted", |net| {
        conf(net, 2) == ConfState::of_voters([1, 2])
    });
    net.come_together();
}

#[test]
fn changes_that_come_at_once_are_made_one_after_the_other() {
    let (mut net, leader) = settled(&[1, 2, 3]);
    for id in 4..=7 {
        join(&mut net, id);
        change(&mut net, leader, Change::AddVoter(id));
    }
    change(&mut net, leader, Change::Remove(4));
    net.until("all are made", |net| {
        conf(net, leader) == ConfState::of_voters([1, 2, 3, 5, 6, 7])
    });
    assert_eq!(net.checks.count("refused"), 0);
    net.come_together();
    assert_eq!(net.checks.count("removed"), 1);
    // The four take an entry to begin and one to end, on every member there was.
    assert!(net.checks.count("change applied") >= 9 * 3);
}

/// Asks whoever leads until the change is made, as the server does.
fn insist(net: &mut Network, wanted: Change, made: impl Fn(&Network) -> bool) {
    for _ in 0..20 {
        if let Some(leader) = net.leader() {
            change(net, leader, wanted);
        }
        net.run(20);
        if made(net) {
            return;
        }
    }
    panic!("{wanted:?} is not made: {:?}", net.checks.seen);
}

#[test]
fn a_leader_that_is_removed_hands_over_without_an_election_timeout() {
    let (mut net, leader) = settled(&[1, 2, 3]);
    let began = net.now;
    insist(&mut net, Change::Remove(leader), |net| {
        net.leader()
            .is_some_and(|now| !conf(net, now).contains(leader))
    });
    // The shortest election timeout is 100 ms.
    assert!(net.now - began < 90, "it took {} ms", net.now - began);
    assert_eq!(net.checks.count("refused"), 1, "{:?}", net.checks.seen);
    net.come_together();
    assert!(!conf(&net, net.leader().unwrap()).contains(leader));
}

#[test]
fn who_was_removed_may_be_switched_off_at_once() {
    for (voters, switched_off) in [(&[1, 2][..], None), (&[1, 2, 3, 4], Some(()))] {
        let (mut net, leader) = settled(voters);
        let mut others = net.up().into_iter().filter(|id| *id != leader);
        let leaves = others.next().unwrap();
        if switched_off.is_some() {
            let down = others.next().unwrap();
            net.crash(down);
            net.nodes.get_mut(&down).unwrap().removed = true;
        }
        change(&mut net, leader, Change::Remove(leaves));
        net.until("the leader has made it", |net| {
            !conf(net, leader).contains(leaves)
        });
        net.crash(leaves);
        net.nodes.get_mut(&leaves).unwrap().removed = true;
        let before = net.nodes[&leader].machine.clone();
        net.propose(leader);
        net.until("the rest go on", |net| net.nodes[&leader].machine != before);
    }
}

#[test]
fn leadership_is_handed_over_on_request() {
    let (mut net, leader) = settled(&[1, 2, 3]);
    let to = net.nodes[&leader]
        .member
        .as_ref()
        .unwrap()
        .best_transferee()
        .unwrap();
    assert_ne!(to, leader);
    // A follower cannot hand over what it does not have.
    net.give(to, Input::Transfer(to));
    net.run(10);
    assert_eq!(net.leader(), Some(leader));
    let began = net.now;
    net.give(leader, Input::Transfer(to));
    net.until("it leads", |net| net.leader() == Some(to));
    assert!(net.now - began < 60);
    net.come_together();
}

#[test]
fn proposals_are_refused_while_leadership_is_handed_over() {
    let (mut net, leader) = settled(&[1, 2, 3]);
    let others: Vec<u64> = net.up().into_iter().filter(|id| *id != leader).collect();
    for other in &others {
        net.cut.extend([(leader, *other), (*other, leader)]);
    }
    let now = Duration::from_millis(net.now);
    let member = net.nodes.get_mut(&leader).unwrap().member.as_mut().unwrap();
    member.step(Input::Propose(vec![super::proposal(1)]), now);
    member.step(Input::Transfer(others[0]), now);
    assert_eq!(member.transferring(), Some(others[0]));
    let outputs = member.step(Input::Propose(vec![super::proposal(2)]), now);
    assert!(
        outputs.iter().any(|output| matches!(
            output,
            Output::Refused { ids, reason: Refusal::Transferring } if ids == &[2]
        )),
        "{outputs:?}"
    );
}

#[test]
fn a_member_that_was_away_long_is_sent_a_snapshot() {
    let (mut net, leader) = settled(&[1, 2, 3]);
    let away = net.up().into_iter().find(|id| *id != leader).unwrap();
    net.crash(away);
    for _ in 0..40 {
        net.propose(leader);
        net.run(10);
    }
    assert_eq!(net.checks.count("snapshot"), 0);
    net.come_together();
    assert!(net.checks.count("install") >= 1, "{:?}", net.checks.seen);
}

#[test]
fn a_read_on_a_cut_off_member_is_given_up() {
    let (mut net, leader) = settled(&[1, 2, 3]);
    for other in net.up() {
        net.cut.extend([(leader, other), (other, leader)]);
    }
    net.read(leader);
    net.until("it is refused", |net| net.checks.count("read refused") == 1);
    assert_eq!(net.checks.count("read"), 0);
    net.come_together();
}

#[test]
fn reads_that_come_during_a_round_share_the_next() {
    let (mut net, leader) = settled(&[1, 2, 3]);
    let now = Duration::from_millis(net.now);
    let member = net.nodes.get_mut(&leader).unwrap().member.as_mut().unwrap();
    let heartbeats = |outputs: &[Output]| {
        outputs
            .iter()
            .filter(|o| matches!(o, Output::Send(_)))
            .count()
    };
    assert_eq!(heartbeats(&member.step(Input::Read(ReadId(1)), now)), 1);
    for id in 2..100 {
        assert_eq!(heartbeats(&member.step(Input::Read(ReadId(id)), now)), 0);
    }
    net.weather = Weather {
        sync: 700,
        ..Weather::default()
    };
}

#[test]
fn reads_beyond_the_limit_are_refused_at_once() {
    let mut member = Member::new(config(1, &[1, 2, 3]), Recovered::default()).unwrap();
    for id in 0..crate::READS_WAITING_MAX as u64 {
        assert!(member.step(Input::Read(ReadId(id)), super::NOW).is_empty());
    }
    let outputs = member.step(Input::Read(ReadId(99_999)), super::NOW);
    assert!(matches!(
        &outputs[..],
        [Output::ReadRefused { ids, reason: ReadRefusal::TooMany }] if ids == &[ReadId(99_999)]
    ));
}

fn entry(index: u64, data: &'static [u8]) -> LogEntry {
    LogEntry {
        term: 1,
        index,
        kind: EntryKind::Normal,
        data: Bytes::from_static(data),
    }
}

fn long_log(count: u64, data: &'static [u8]) -> Recovered {
    Recovered {
        hard_state: HardState {
            term: 1,
            vote: 1,
            commit: count,
        },
        entries: (1..=count).map(|index| entry(index, data)).collect(),
        ..Recovered::default()
    }
}

#[test]
fn a_long_replay_is_done_in_bounded_turns() {
    for (data, most) in [(&b"x"[..], APPLY_ENTRIES_MAX), (&[b'x'; 4_096], 260)] {
        let mut member = Member::new(config(1, &[1, 2, 3]), long_log(10_000, data)).unwrap();
        let (mut applied, mut turns) = (0, 0);
        let mut input = Input::Tick;
        while applied < 10_000 {
            for output in member.step(input, super::NOW) {
                if let Output::Apply(entries) = output {
                    assert!(entries.len() <= most, "{} at once", entries.len());
                    assert_eq!(entries[0].index, applied + 1);
                    applied += entries.len() as u64;
                }
            }
            turns += 1;
            assert!(turns < 100 && (applied == 10_000 || member.wants_turn()));
            // In between it answers whoever leads.
            input = Input::Turn;
        }
        assert!(!member.wants_turn());
    }
}

#[test]
fn a_lone_voter_sends_a_learner_nothing_before_its_term_is_on_disk() {
    let mut config = config(1, &[1]);
    config.conf_state.learners = vec![2];
    let mut member = Member::new(config, Recovered::default()).unwrap();
    let sends = |outputs: &[Output]| {
        outputs
            .iter()
            .any(|output| matches!(output, Output::Send(_)))
    };
    let outputs = member.step(Input::Campaign, super::NOW);
    assert_eq!(member.standing().role, Role::Leader);
    assert!(!sends(&outputs), "{outputs:?}");
    let numbers = outputs.iter().filter_map(|output| match output {
        Output::Persist(persist) => Some(persist.number),
        _ => None,
    });
    let number = numbers.max().unwrap();
    assert!(sends(&member.step(Input::Persisted(number), super::NOW)));
}

#[test]
fn what_is_lost_is_said() {
    let mut member = Member::new(config(2, &[1, 2, 3]), Recovered::default()).unwrap();
    let mut heartbeat = raft::eraftpb::Message::default();
    heartbeat.set_msg_type(raft::eraftpb::MessageType::MsgHeartbeat);
    (
        heartbeat.from,
        heartbeat.to,
        heartbeat.term,
        heartbeat.commit,
    ) = (1, 2, 3, 9);
    let outputs = member.step(Input::Peer(Box::new(heartbeat)), super::NOW);
    assert!(
        matches!(&outputs[..], [Output::LogLost { commit: 9, last: 0 }]),
        "{outputs:?}"
    );
}

#[test]
fn what_only_makes_sense_within_a_process_is_not_taken_from_a_peer() {
    use raft::eraftpb::{Message, MessageType as Kind};
    let mut member = Member::new(config(2, &[1, 2, 3]), Recovered::default()).unwrap();
    let kinds = [
        Kind::MsgHup,
        Kind::MsgBeat,
        Kind::MsgPropose,
        Kind::MsgUnreachable,
        Kind::MsgSnapStatus,
        Kind::MsgCheckQuorum,
        Kind::MsgTransferLeader,
        Kind::MsgReadIndex,
        Kind::MsgReadIndexResp,
    ];
    for kind in kinds {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (1, 2, 1);
        assert!(
            member
                .step(Input::Peer(Box::new(message)), super::NOW)
                .is_empty(),
            "{kind:?}"
        );
    }
}

#[test]
fn an_entry_of_no_known_change_is_refused() {
    let bad = |data: &'static [u8]| LogEntry {
        kind: EntryKind::ConfChangeV2,
        ..entry(1, data)
    };
    assert!(decode_change(&bad(b"\x09xxxxxxxx")).is_err());
    assert!(decode_change(&bad(b"\x01\0\0\0\0\0\0\0\0")).is_err());
    assert!(decode_change(&bad(b"short")).is_err());
    assert!(decode_change(&entry(1, b"\x01xxxxxxxx")).is_err());
    assert_eq!(decode_change(&bad(b"")).unwrap().change, None);
}

/// Votes are split often where a message takes a good part of a tick.
#[test]
fn a_leader_that_is_lost_is_replaced_within_two_election_timeouts() {
    const SEEDS: u64 = 200;
    let timeout = 10 * u64::try_from(config(1, &[1]).election_ticks).unwrap();
    let mut took = Vec::new();
    for seed in 0..SEEDS {
        let mut net = Network::new(seed, &[1, 2, 3]);
        net.until("a leader", |net| net.leader().is_some());
        net.run(50 + seed % 10);
        let lost = net.leader().unwrap();
        net.crash(lost);
        let from = net.now;
        net.until("another leader", |net| net.leader().is_some());
        took.push(net.now - from);
    }
    took.sort_unstable();
    let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
    assert!(median < timeout * 13 / 10, "{median} of {timeout}");
    assert!(most < 2 * timeout, "{most} of {timeout}: {took:?}");
}
