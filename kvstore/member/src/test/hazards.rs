//! Where raft 0.7 would end the process, or worse, and a member does not.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use raft::eraftpb::{Message, MessageType};

use super::{NOW, config, machine::Machine, network::Network, node::Node, proposal};
use crate::{
    Change, ConfState, Input, LogEntry, Member, Output, Recovered, Role, SnapshotMeta,
    snapshot_message,
};

/// Answers as any peer would: yes.
pub(super) fn yes(message: &Message) -> Option<Input> {
    let mut answer = Message::default();
    answer.set_msg_type(match message.get_msg_type() {
        MessageType::MsgRequestPreVote => MessageType::MsgRequestPreVoteResponse,
        MessageType::MsgRequestVote => MessageType::MsgRequestVoteResponse,
        MessageType::MsgAppend => MessageType::MsgAppendResponse,
        MessageType::MsgHeartbeat => MessageType::MsgHeartbeatResponse,
        _ => return None,
    });
    (answer.from, answer.to, answer.term) = (message.to, message.from, message.term);
    answer.index = message.index + message.entries.len() as u64;
    answer.context = message.context.clone();
    Some(Input::Peer(Box::new(answer)))
}

/// Gives inputs in until nothing follows from them, with peers that say yes and a
/// disk that is quick; returns what was applied.
pub(super) fn run(member: &mut Member, inputs: Vec<Input>) -> Vec<LogEntry> {
    let mut inputs = VecDeque::from(inputs);
    let mut applied = Vec::new();
    loop {
        let input = match inputs.pop_front() {
            Some(input) => input,
            None if member.wants_turn() => Input::Turn,
            None => return applied,
        };
        for output in member.step(input, NOW) {
            match output {
                Output::Persist(persist) => inputs.push_back(Input::Persisted(persist.number)),
                Output::Send(messages) => inputs.extend(messages.iter().filter_map(yes)),
                Output::Apply(entries) => {
                    for entry in entries {
                        if entry.kind == crate::EntryKind::ConfChangeV2 {
                            member.apply_change(&entry).unwrap();
                        }
                        applied.push(entry);
                    }
                }
                _ => {}
            }
        }
    }
}

fn snapshot_of(conf: ConfState) -> Input {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgSnapshot);
    (message.from, message.to, message.term) = (1, 2, 4);
    let meta = SnapshotMeta {
        index: 50,
        term: 3,
        conf_state: conf,
    };
    Input::Peer(Box::new(snapshot_message(message, meta)))
}

/// raft would look for the entries after those applied, which are not in the log
/// any more.
#[test]
fn no_election_while_a_snapshot_is_on_its_way_to_disk() {
    let mut member = Member::new(config(2, &[1, 2, 3]), Recovered::default()).unwrap();
    let outputs = member.step(snapshot_of(ConfState::of_voters([1, 2, 3])), NOW);
    let persist = outputs.iter().find_map(|output| match output {
        Output::Persist(persist) => Some(persist),
        _ => None,
    });
    let persist = persist.unwrap();
    assert!(persist.must_sync && persist.report && persist.snapshot.is_some());
    assert!(
        matches!(&outputs[1], Output::Install(meta) if meta.index == 50),
        "{outputs:?}"
    );
    for _ in 0..50 {
        assert!(member.step(Input::Tick, NOW).is_empty());
    }
    let mut now = Message::default();
    now.set_msg_type(MessageType::MsgTimeoutNow);
    (now.from, now.to, now.term) = (1, 2, 4);
    member.step(Input::Peer(Box::new(now)), NOW);
    member.step(Input::Campaign, NOW);
    assert_eq!(member.standing().role, Role::Follower);

    let outputs = member.step(Input::Persisted(persist.number), NOW);
    assert!(matches!(&outputs[..], [Output::Send(answers)] if answers[0].index == 50));
    assert_eq!((member.applied_index(), member.last_index()), (50, 50));
    let mut ticks = 0;
    while member.standing().role != Role::Candidate {
        member.step(Input::Tick, NOW);
        ticks += 1;
        assert!(ticks <= 20, "it is free to stand again");
    }
}

#[test]
fn a_snapshot_of_a_cluster_without_this_member_is_not_installed() {
    let mut member = Member::new(config(2, &[1, 2, 3]), Recovered::default()).unwrap();
    let outputs = member.step(snapshot_of(ConfState::of_voters([1, 3])), NOW);
    assert!(
        !outputs
            .iter()
            .any(|output| matches!(output, Output::Install(_))),
        "{outputs:?}"
    );
}

/// raft would go on leading, and panic for want of a progress of its own.
#[test]
fn a_leader_that_left_before_it_could_hand_over_steps_down() {
    let mut member = Member::new(config(1, &[1, 2, 3]), Recovered::default()).unwrap();
    run(&mut member, vec![Input::Campaign]);
    assert_eq!(member.standing().role, Role::Leader);
    // Nobody was heard of lately, so that nobody is asked to take over.
    for id in [2, 3] {
        member.raw.raft.mut_prs().get_mut(id).unwrap().recent_active = false;
    }
    let context = Bytes::from_static(b"leave");
    let change = Change::Remove(1);
    let outputs = member.step(
        Input::ProposeChange {
            id: 1,
            change,
            context,
        },
        NOW,
    );
    let written = persisted(&outputs);
    let leave = member.last_index();
    assert_eq!(member.transferring(), None);
    let late = persisted(&member.step(Input::Propose(vec![proposal(7)]), NOW));
    member.step(Input::Persisted(written[0]), NOW);
    let outputs = member.step(acknowledge(&member, 2, leave), NOW);
    apply(&mut member, &outputs);
    assert!(!member.conf_state().contains(1));
    let outputs = member.step(Input::Persisted(late[0]), NOW);
    assert!(
        outputs
            .iter()
            .any(|output| matches!(output, Output::Removed)),
        "{outputs:?}"
    );
    assert_eq!(member.standing().role, Role::Follower);
    for _ in 0..100 {
        member.step(Input::Tick, NOW);
    }
    assert_eq!(
        member.standing().role,
        Role::Follower,
        "and never stands again"
    );
}

fn persisted(outputs: &[Output]) -> Vec<u64> {
    let numbers = outputs.iter().filter_map(|output| match output {
        Output::Persist(persist) => Some(persist.number),
        _ => None,
    });
    numbers.collect()
}

fn acknowledge(member: &Member, from: u64, index: u64) -> Input {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgAppendResponse);
    (message.from, message.to, message.term) = (from, 1, member.standing().term);
    message.index = index;
    Input::Peer(Box::new(message))
}

fn apply(member: &mut Member, outputs: &[Output]) {
    for output in outputs {
        if let Output::Apply(entries) = output {
            let changes = entries.iter();
            for entry in changes.filter(|e| e.kind == crate::EntryKind::ConfChangeV2) {
                member.apply_change(entry).unwrap();
            }
        }
    }
}

/// Its first entries would mean nothing to it, or something else.
#[test]
fn a_new_member_is_sent_a_snapshot_although_the_whole_log_is_there() {
    let mut net = Network::new(3, &[1, 2, 3]);
    net.until("a leader", |net| net.leader().is_some());
    net.run(50);
    let leader = net.leader().unwrap();
    net.nodes.insert(4, Node::new(4, ConfState::default()));
    let context = Bytes::copy_from_slice(&9u64.to_le_bytes());
    let change = Change::AddVoter(4);
    net.give(
        leader,
        Input::ProposeChange {
            id: 9,
            change,
            context,
        },
    );
    let whole = |net: &Network| {
        net.nodes[&leader]
            .member
            .as_ref()
            .unwrap()
            .entries_in_memory() as u64
    };
    net.until("it is added", |net| {
        net.nodes[&leader].machine.conf.contains(4)
    });
    let first = net.nodes[&leader].member.as_ref().unwrap().last_index() - whole(&net) + 1;
    assert_eq!(first, 1, "the leader still has its first entry");
    net.until("it has everything", |net| {
        let machine = |id| -> &Machine { &net.nodes[&id].machine };
        machine(4) == machine(leader) && !machine(4).conf.is_joint()
    });
    assert_eq!(net.checks.count("install"), 1);
    net.come_together();
}

/// The first snapshot may fail; the next thing it is sent is another.
#[test]
fn a_new_member_is_sent_another_snapshot_when_one_failed() {
    let mut member = Member::new(config(1, &[1, 2]), Recovered::default()).unwrap();
    run(&mut member, vec![Input::Campaign]);
    run(
        &mut member,
        vec![Input::ProposeChange {
            id: 1,
            change: Change::AddLearner(3),
            context: Bytes::from_static(b"3"),
        }],
    );
    assert!(member.conf_state().is_learner(3));
    let reject = |member: &Member, index| {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppendResponse);
        (message.from, message.to, message.term) = (3, 1, member.standing().term);
        (message.reject, message.index) = (true, index);
        Input::Peer(Box::new(message))
    };
    // It was taken for one that says yes; make it what it is.
    let last = member.last_index();
    let fresh = raft::Progress::new(last, 256);
    *member.raw.raft.mut_prs().get_mut(3).unwrap() = fresh;
    for _ in 0..3 {
        let probed = member.raw.raft.prs().get(3).unwrap().next_idx - 1;
        assert!(probed > 0, "it is never tried from the first entry on");
        member.raw.raft.mut_prs().get_mut(3).unwrap().recent_active = true;
        let outputs = member.step(reject(&member, probed), NOW + Duration::from_secs(1));
        assert!(
            outputs
                .iter()
                .any(|output| matches!(output, Output::SendSnapshot { peer: 3, .. })),
            "{outputs:?}"
        );
        member.step(Input::SnapshotSent { peer: 3, ok: false }, NOW);
    }
    // Its own word may come before the end of the sending is reported.
    let probed = member.raw.raft.prs().get(3).unwrap().next_idx - 1;
    member.raw.raft.mut_prs().get_mut(3).unwrap().recent_active = true;
    member.step(reject(&member, probed), NOW + Duration::from_secs(1));
    let last = member.last_index();
    let mut outputs = member.step(acknowledge(&member, 3, last), NOW);
    outputs.extend(member.step(Input::SnapshotSent { peer: 3, ok: true }, NOW));
    outputs.extend(member.step(Input::Tick, NOW));
    let again = |output: &Output| matches!(output, Output::SendSnapshot { .. });
    assert!(!outputs.iter().any(again), "one is enough: {outputs:?}");
}
