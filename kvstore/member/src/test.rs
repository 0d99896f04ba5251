//! Order of obligations, restart, reads.

mod chaos;
mod checks;
mod hazards;
mod machine;
mod network;
mod next_index;
mod node;
mod scenes;

use std::time::Duration;

use bytes::Bytes;
use raft::eraftpb::MessageType;

use crate::{
    ConfState, Config, EntryKind, HardState, Input, LogEntry, Member, MemberError, Output,
    PeerMessage, Persist, Proposal, ReadId, Recovered, Refusal, Role,
};

const NOW: Duration = Duration::from_secs(1);

fn config(id: u64, voters: &[u64]) -> Config {
    Config {
        id,
        conf_state: ConfState::of_voters(voters.iter().copied()),
        boot_id: 7,
        applied: 0,
        election_ticks: 10,
        heartbeat_ticks: 1,
        pre_vote: true,
        seed: 42 + id,
        read_retry: Duration::from_millis(500),
        read_timeout: Duration::from_secs(7),
        catch_up_entries: 10,
    }
}

fn proposal(id: u64) -> Proposal {
    Proposal {
        id,
        data: Bytes::from(id.to_string()),
    }
}

/// A disk that keeps what it is told, and tells when.
#[derive(Default)]
struct Disk {
    written: Recovered,
    under_way: Vec<Persist>,
}

impl Disk {
    fn take(&mut self, outputs: &mut Vec<Output>) -> usize {
        let before = self.under_way.len();
        let mut rest = Vec::new();
        for output in outputs.drain(..) {
            match output {
                Output::Persist(persist) => self.under_way.push(persist),
                other => rest.push(other),
            }
        }
        *outputs = rest;
        self.under_way.len() - before
    }

    /// Writes everything under way; returns the last number to report.
    fn sync(&mut self) -> Option<u64> {
        let mut report = None;
        for persist in self.under_way.drain(..) {
            if let Some(state) = persist.hard_state {
                self.written.hard_state = state;
            }
            if let Some(first) = persist.entries.first() {
                self.written
                    .entries
                    .retain(|entry| entry.index < first.index);
            }
            self.written.entries.extend(persist.entries);
            if persist.report {
                report = Some(persist.number);
            }
        }
        report
    }
}

fn applied(outputs: &[Output]) -> Vec<String> {
    let mut found = Vec::new();
    for output in outputs {
        if let Output::Apply(entries) = output {
            found.extend(
                entries
                    .iter()
                    .map(|entry| String::from_utf8_lossy(&entry.data).into_owned()),
            );
        }
    }
    found
}

fn lone_leader() -> (Member, Disk) {
    let mut member = Member::new(config(1, &[1]), Recovered::default()).unwrap();
    let mut disk = Disk::default();
    let mut outputs = member.step(Input::Campaign, NOW);
    assert_eq!(member.standing().role, Role::Leader);
    assert!(
        !member.leads_alone(),
        "nothing is committed in its term yet"
    );
    assert_eq!(disk.take(&mut outputs), 1);
    let number = disk.sync().unwrap();
    let outputs = member.step(Input::Persisted(number), NOW);
    assert_eq!(applied(&outputs), [""], "a new leader's mark");
    assert!(member.leads_alone());
    (member, disk)
}

#[test]
fn nothing_is_applied_before_it_is_on_disk() {
    let (mut member, mut disk) = lone_leader();
    disk.under_way.clear();
    let mut outputs = member.step(Input::Propose(vec![proposal(1), proposal(2)]), NOW);
    assert_eq!(disk.take(&mut outputs), 1, "one write for the whole batch");
    assert!(disk.under_way[0].must_sync);
    assert_eq!(disk.under_way[0].entries.len(), 2);
    assert!(
        outputs.is_empty(),
        "nothing may happen before the sync: {outputs:?}"
    );

    // A second batch overlaps with the first one's sync.
    let mut outputs = member.step(Input::Propose(vec![proposal(3)]), NOW);
    assert_eq!(disk.take(&mut outputs), 1);
    assert!(outputs.is_empty());

    let first = disk.under_way[0].number;
    let outputs = member.step(Input::Persisted(first), NOW);
    assert_eq!(applied(&outputs), ["1", "2"]);
    let number = disk.sync().unwrap();
    let outputs = member.step(Input::Persisted(number), NOW);
    assert_eq!(applied(&outputs), ["3"]);
}

#[test]
fn restart_applies_what_was_synced_once() {
    let (mut member, mut disk) = lone_leader();
    let mut outputs = member.step(Input::Propose((1..=5).map(proposal).collect()), NOW);
    disk.take(&mut outputs);
    disk.sync();
    // Killed between sync and report: the entries are durable, their commit is not.
    let mut config = config(1, &[1]);
    config.applied = 3;
    let mut member = Member::new(config, disk.written.clone()).unwrap();
    let mut outputs = member.step(Input::Campaign, NOW);
    let mut seen = applied(&outputs);
    disk.take(&mut outputs);
    while let Some(number) = disk.sync() {
        let mut outputs = member.step(Input::Persisted(number), NOW);
        seen.extend(applied(&outputs));
        disk.take(&mut outputs);
    }
    assert_eq!(seen, ["3", "4", "5", ""], "indexes 4, 5, 6 and the mark");
    assert_eq!(member.standing().term, 2);
}

#[test]
fn a_lost_tail_or_head_is_refused() {
    let mut with = config(1, &[1]);
    with.applied = 4;
    let entry = |index| LogEntry {
        term: 1,
        index,
        kind: EntryKind::Normal,
        data: Bytes::from("x"),
    };
    let short = Recovered {
        hard_state: HardState {
            term: 1,
            vote: 1,
            commit: 4,
        },
        entries: (1..=3).map(entry).collect(),
        ..Recovered::default()
    };
    let error = Member::new(with.clone(), short).err().unwrap();
    assert!(
        matches!(
            error,
            MemberError::TailLost {
                last: 3,
                applied: 4
            }
        ),
        "{error}"
    );
    let late = Recovered {
        base_index: 6,
        base_term: 1,
        ..Recovered::default()
    };
    let error = Member::new(with, late).err().unwrap();
    assert!(
        matches!(
            error,
            MemberError::HeadLost {
                first: 7,
                needed: 5
            }
        ),
        "{error}"
    );
}

#[test]
fn a_read_waits_for_the_term_and_then_answers_at_once() {
    let mut member = Member::new(config(1, &[1]), Recovered::default()).unwrap();
    let mut disk = Disk::default();
    let mut outputs = member.step(Input::Campaign, NOW);
    disk.take(&mut outputs);
    let outputs = member.step(Input::Read(ReadId(1)), NOW);
    assert!(
        outputs.is_empty(),
        "no commit in this term yet: {outputs:?}"
    );
    let number = disk.sync().unwrap();
    let outputs = member.step(Input::Persisted(number), NOW);
    let apply = outputs
        .iter()
        .position(|output| matches!(output, Output::Apply(_)))
        .unwrap();
    let ready = outputs
        .iter()
        .position(|output| matches!(output, Output::ReadReady(_)))
        .unwrap();
    assert!(apply < ready, "applied first, answered then");
    let outputs = member.step(Input::Read(ReadId(2)), NOW);
    assert!(
        matches!(&outputs[..], [Output::ReadReady(ids)] if ids == &[ReadId(2)]),
        "{outputs:?}"
    );
}

#[test]
fn a_follower_refuses_proposals_and_holds_its_promises_until_synced() {
    let mut member = Member::new(config(2, &[1, 2, 3]), Recovered::default()).unwrap();
    let outputs = member.step(Input::Propose(vec![proposal(9)]), NOW);
    assert!(
        matches!(&outputs[..], [Output::Refused { ids, reason: Refusal::NotLeader }] if ids == &[9]),
        "{outputs:?}"
    );
    let mut vote = PeerMessage::default();
    vote.set_msg_type(MessageType::MsgRequestVote);
    vote.from = 1;
    vote.to = 2;
    vote.term = 5;
    let mut outputs = member.step(Input::Peer(Box::new(vote)), NOW);
    let mut disk = Disk::default();
    assert_eq!(disk.take(&mut outputs), 1);
    let sends = |outputs: &[Output]| {
        outputs
            .iter()
            .any(|output| matches!(output, Output::Send(_)))
    };
    assert!(!sends(&outputs), "the vote is not on disk yet: {outputs:?}");
    let number = disk.sync().unwrap();
    assert_eq!(
        disk.written.hard_state,
        HardState {
            term: 5,
            vote: 1,
            commit: 0
        }
    );
    let outputs = member.step(Input::Persisted(number), NOW);
    assert!(sends(&outputs), "{outputs:?}");
}

#[test]
fn covered_entries_leave_memory() {
    let (mut member, mut disk) = lone_leader();
    let mut outputs = member.step(Input::Propose((1..=50).map(proposal).collect()), NOW);
    disk.take(&mut outputs);
    let number = disk.sync().unwrap();
    member.step(Input::Persisted(number), NOW);
    assert_eq!(member.entries_in_memory(), 51);
    member.step(Input::Covered(40), NOW);
    assert_eq!(member.entries_in_memory(), 11);
    let mut outputs = member.step(Input::Propose(vec![proposal(60)]), NOW);
    disk.take(&mut outputs);
    let number = disk.sync().unwrap();
    let outputs = member.step(Input::Persisted(number), NOW);
    assert_eq!(applied(&outputs), ["60"]);
}

/// Three members over a network that delivers in order: the core is written for them.
#[test]
fn three_members_elect_and_replicate() {
    let ids = [1, 2, 3];
    let mut members: Vec<Member> = ids
        .iter()
        .map(|id| Member::new(config(*id, &ids), Recovered::default()).unwrap())
        .collect();
    let mut disks: Vec<Disk> = ids.iter().map(|_| Disk::default()).collect();
    let mut seen: Vec<Vec<String>> = vec![Vec::new(); 3];
    let mut inputs: Vec<(usize, Input)> = vec![(0, Input::Campaign)];
    let mut proposed = false;
    for _ in 0..2_000 {
        let Some((at, input)) = (!inputs.is_empty()).then(|| inputs.remove(0)) else {
            if proposed {
                break;
            }
            proposed = true;
            assert_eq!(members[0].standing().role, Role::Leader);
            inputs.push((0, Input::Propose(vec![proposal(1), proposal(2)])));
            inputs.push((0, Input::Read(ReadId(5))));
            continue;
        };
        let mut outputs = members[at].step(input, NOW);
        seen[at].extend(applied(&outputs));
        disks[at].take(&mut outputs);
        if let Some(number) = disks[at].sync() {
            inputs.push((at, Input::Persisted(number)));
        }
        for output in outputs {
            match output {
                Output::Send(messages) => inputs.extend(messages.into_iter().map(|message| {
                    (
                        usize::try_from(message.to - 1).unwrap(),
                        Input::Peer(Box::new(message)),
                    )
                })),
                Output::ReadReady(ids) => seen[at].push(format!("read {}", ids[0].0)),
                _ => {}
            }
        }
    }
    // A heartbeat carries the commit index to whoever missed it.
    assert_eq!(
        seen[0].iter().filter(|what| *what == "read 5").count(),
        1,
        "{seen:?}"
    );
    for member in &seen {
        let data: Vec<_> = member
            .iter()
            .filter(|what| !what.starts_with("read"))
            .collect();
        assert_eq!(data, ["", "1", "2"]);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut member = Member::new(config(1, &[1, 2, 3]), Recovered::default()).unwrap();
        let mut trace = String::new();
        for _ in 0..200 {
            trace += &format!("{:?}\n", member.step(Input::Tick, NOW));
        }
        trace
    };
    let trace = run();
    assert!(
        trace.contains("MsgRequestPreVote"),
        "it campaigned at least once"
    );
    assert_eq!(trace, run());
}
