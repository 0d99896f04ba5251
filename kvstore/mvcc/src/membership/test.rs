//! Members across restarts, the arithmetic of quorums, and rows that lie.

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::backend::{Backend as _, MemoryBackend};
use crate::machine::Config;

fn url(n: u64) -> String {
    format!("http://10.0.0.{n}:2380")
}

fn info(id: u64, learner: bool) -> MemberInfo {
    MemberInfo {
        id,
        peer_urls: vec![url(id)],
        learner,
        ..MemberInfo::default()
    }
}

fn open(backend: &MemoryBackend) -> StateMachine {
    let config = Config {
        learners_max: 2,
        ..Config::default()
    };
    StateMachine::open(Box::new(backend.clone()), config).unwrap()
}

fn begun(members: u64) -> (StateMachine, MemoryBackend) {
    let backend = MemoryBackend::new();
    let mut machine = open(&backend);
    let members = Membership::new(0xC1, (1..=members).map(|id| info(id, false)));
    backend.write(&machine.bootstrap(members));
    (machine, backend)
}

/// Brings what changed to the tree, if something did.
fn write_back(machine: &mut StateMachine, backend: &MemoryBackend) -> bool {
    let Some(job) = machine.take_writeback(usize::MAX) else {
        return false;
    };
    let (batch, written) = job.pack();
    backend.write(&batch);
    machine.writeback_done(written);
    true
}

fn proposal(id: u64, command: MemberCommand) -> Proposal {
    Proposal {
        id,
        since: None,
        identity: None,
        command: Command::Member(command),
    }
}

fn some_conf(n: u64) -> ConfState {
    ConfState {
        voters: vec![1, n],
        learners: vec![n + 1],
        voters_outgoing: vec![1, 2, u64::MAX],
        learners_next: vec![n],
        auto_leave: n.is_multiple_of(2),
    }
}

fn a_command() -> impl Strategy<Value = MemberCommand> {
    let id = || 1..7u64;
    let urls = || vec((1..7u64).prop_map(url), 0..3);
    prop_oneof![
        (id(), any::<bool>()).prop_map(|(id, learner)| MemberCommand::Add(info(id, learner))),
        id().prop_map(MemberCommand::Promote),
        id().prop_map(MemberCommand::Remove),
        (id(), urls()).prop_map(|(id, peer_urls)| MemberCommand::Update { id, peer_urls }),
        (id(), "[a-c]", urls()).prop_map(|(id, name, client_urls)| MemberCommand::Publish {
            id,
            name,
            client_urls
        }),
    ]
}

proptest! {
    /// The tree is the exact state after the batch's entry, and a restart that
    /// replays the rest ends where the others are.
    #[test]
    fn a_restart_at_any_moment_knows_the_same_members(
        commands in vec((a_command(), any::<bool>()), 1..40),
        stop in any::<prop::sample::Index>(),
    ) {
        let (mut machine, backend) = begun(3);
        let mut after = vec![machine.membership().clone()];
        let apply = |machine: &mut StateMachine, n: usize| {
            let index = BOOTSTRAP_INDEX + 1 + n as u64;
            let (command, _) = commands[n].clone();
            let proposal = proposal(index, command.clone());
            let expected = machine.membership().validate(&command, 2);
            let result = if command.changes_raft() {
                let mut told = false;
                let applied = machine.apply_change(index, 1, proposal, |_| {
                    told = true;
                    Some(some_conf(index))
                });
                assert_eq!(told, applied.result.is_ok(), "raft hears of what holds, and only that");
                applied.result
            } else {
                machine.apply(index, 1, proposal).unwrap().result
            };
            assert_eq!(result.map(drop), expected);
        };
        for (n, (_, write)) in commands.iter().enumerate() {
            apply(&mut machine, n);
            after.push(machine.membership().clone());
            if *write {
                write_back(&mut machine, &backend);
            }
            if n == stop.index(commands.len()) {
                let tree = open(&backend);
                let at = (tree.applied_index() - BOOTSTRAP_INDEX) as usize;
                prop_assert_eq!(tree.membership(), &after[at]);
                machine = tree;
                for n in at..=n {
                    apply(&mut machine, n);
                }
                prop_assert_eq!(machine.membership(), &after[n + 1]);
            }
        }
        let members = machine.membership();
        prop_assert!(members.members().all(|m| !members.is_removed(m.id)));
        prop_assert_eq!(machine.facts().membership, members.clone());
    }

    #[test]
    fn a_bit_flipped_in_a_row_is_found(at: prop::sample::Index, row: prop::sample::Index, bit in 0..8) {
        let (mut machine, backend) = begun(3);
        machine.apply_change(2, 1, proposal(2, MemberCommand::Remove(3)), |_| Some(some_conf(4)));
        prop_assert!(write_back(&mut machine, &backend));
        let mut rows = Vec::new();
        for kind in [b"c", b"g", b"m"] {
            let next = [kind[0] + 1];
            backend.scan(kind, &next, &mut |key, row| {
                rows.push((key, row));
                Ok(())
            }).unwrap();
        }
        prop_assert_eq!(rows.len(), 4);
        let (key, value) = row.get(&rows);
        let mut flipped = BytesMut::from(value.as_ref());
        let at = at.index(flipped.len());
        flipped[at] ^= 1u8 << bit;
        backend.set(key, flipped.freeze());
        let error = StateMachine::open(Box::new(backend), Config::default()).err().unwrap();
        let named = format!("corrupt row {}", key.escape_ascii());
        prop_assert!(error.to_string().contains(&named), "{}", error);
    }
}

/// etcd's own counting (`api/membership/cluster.go`), written out.
#[test]
fn quorums_are_counted_as_etcd_counts_them() {
    for voters in 0..=7u64 {
        for started in 0..=voters {
            for learners in 0..=1 {
                let mut members: Vec<_> = (1..=voters).map(|id| info(id, false)).collect();
                for member in members.iter_mut().take(started as usize) {
                    member.name = "up".to_owned();
                }
                members.extend((0..learners).map(|n| info(100 + n, true)));
                let m = Membership::new(1, members);
                let enough = |started: u64, all: u64| started > all / 2;
                assert_eq!(
                    m.ready_to_add_voter(),
                    (started == 1 && voters == 1) || enough(started, voters + 1)
                );
                assert_eq!(m.ready_to_promote(), enough(started + 1, voters + 1));
                // The first have started, the last have not.
                if voters > 0 {
                    let without = started - u64::from(started == voters);
                    assert_eq!(m.ready_to_remove_voter(voters), enough(without, voters - 1));
                    let without = started.saturating_sub(1);
                    assert_eq!(m.ready_to_remove_voter(1), enough(without, voters - 1));
                }
            }
        }
    }
}

#[test]
fn a_store_that_knew_no_members_learns_them_where_it_is() {
    let backend = MemoryBackend::new();
    let mut machine = open(&backend);
    machine.advance(1, 1);
    machine.advance(2, 3);
    assert!(write_back(&mut machine, &backend));

    let mut machine = open(&backend);
    assert!(machine.membership().is_empty());
    backend.write(&machine.name_members(Membership::new(7, [info(5, false)])));
    let machine = open(&backend);
    assert_eq!((machine.applied_index(), machine.applied_term()), (2, 3));
    assert_eq!(machine.membership().cluster_id(), 7);
    assert_eq!(machine.membership().conf_state().voters, [5]);
}

#[test]
fn a_new_store_is_the_state_after_the_entry_its_log_begins_behind() {
    let (machine, backend) = begun(2);
    for machine in [machine, open(&backend)] {
        let at = (machine.applied_index(), machine.applied_term());
        assert_eq!(at, (BOOTSTRAP_INDEX, BOOTSTRAP_TERM));
        assert_eq!(machine.revision(), 1);
        assert_eq!(machine.membership().conf_state().voters, [1, 2]);
    }
}

#[test]
fn a_beginning_that_was_interrupted_is_made_again() {
    let (_, backend) = begun(3);
    let mut machine = open(&backend);
    backend.write(&machine.bootstrap(Membership::new(8, [info(9, false)])));
    let machine = open(&backend);
    assert_eq!(machine.membership(), &Membership::new(8, [info(9, false)]));
    assert_eq!(machine.applied_index(), BOOTSTRAP_INDEX);
}

#[test]
fn standing_alone_is_written_though_no_entry_was_applied() {
    let (mut machine, backend) = begun(3);
    machine.stand_alone(2);
    assert!(write_back(&mut machine, &backend));
    assert!(!write_back(&mut machine, &backend));
    let alone = open(&backend);
    assert_eq!(alone.membership(), machine.membership());
    assert_eq!(alone.membership().conf_state().voters, [2]);
    assert_eq!(alone.membership().removed().collect::<Vec<_>>(), [1, 3]);
    assert_eq!(alone.applied_index(), BOOTSTRAP_INDEX);
}

#[test]
fn the_end_of_a_joint_change_is_kept_with_its_index() {
    let (mut machine, backend) = begun(1);
    machine.apply_conf_state(2, 1, some_conf(8));
    assert!(write_back(&mut machine, &backend));
    let again = open(&backend);
    assert_eq!(again.applied_index(), 2);
    assert_eq!(again.membership().conf_state(), &some_conf(8));
}

#[test]
fn what_raft_cannot_do_changes_nothing() {
    let (mut machine, _) = begun(1);
    let before = machine.membership().clone();
    let applied = machine.apply_change(2, 1, proposal(2, MemberCommand::Remove(1)), |_| None);
    assert_eq!(applied.result, Err(Error::NotEnoughStartedMembers));
    assert_eq!(machine.membership(), &before);
    assert_eq!(machine.applied_index(), 2);
}

#[test]
fn a_membership_entry_with_another_command_changes_nothing() {
    let (mut machine, _) = begun(1);
    let put = Proposal {
        id: 9,
        since: None,
        identity: None,
        command: Command::Downgrade(None),
    };
    let applied = machine.apply_change(2, 1, put, |_| unreachable!("raft must not hear of it"));
    assert_eq!(applied.result, Err(Error::NotCapable));
    assert_eq!(machine.applied_index(), 2);
    let again = machine.apply_change(3, 1, proposal(9, MemberCommand::Remove(1)), |_| {
        unreachable!("a copy")
    });
    assert_eq!(again.result, Err(Error::DuplicateProposal));
}
