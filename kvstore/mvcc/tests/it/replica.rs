//! A store sent to another member: it is the same store, goes on as the sender
//! does, and its watchers miss nothing and hear nothing twice.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mvcc::watch::{WatchCreate, WatchHub};
use mvcc::*;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::gen_ops::{command, op};
use crate::props::step;
use crate::world::{World, tiny};

/// Sends a machine's state and opens it with settings of its own.
fn send(machine: &mut StateMachine, config: &Config) -> StateMachine {
    let replica = machine.replica(Duration::ZERO);
    let head = replica.head();
    assert_eq!(head.applied_index, machine.applied_index());
    let rows = MemoryBackend::new();
    let mut import = ReplicaImport::new(config.block_bytes);
    for frame in replica.frames() {
        let frame = frame.unwrap();
        assert!(frame.len() <= mvcc::replica::FRAME_BYTES_MAX);
        if let Some(batch) = import.push(&frame).unwrap() {
            rows.write(&batch);
        }
        assert_eq!(import.head(), Some(&head));
    }
    let last = import.finish().unwrap();
    assert_eq!(
        (last.applied_index, last.revision),
        (head.applied_index, head.revision)
    );
    rows.write(&last);
    StateMachine::open(Box::new(rows), config.clone()).unwrap()
}

fn assert_same(a: &StateMachine, b: &StateMachine) {
    assert_eq!(a.applied_index(), b.applied_index());
    assert_eq!(a.applied_term(), b.applied_term());
    assert_eq!(a.revision(), b.revision());
    assert_eq!(a.compact_revision(), b.compact_revision());
    assert_eq!(a.hash_kv(0), b.hash_kv(0));
    assert_eq!(a.hash_beside_keys(), b.hash_beside_keys());
    assert_eq!(a.facts(), b.facts());
    assert_eq!(a.key_count(), b.key_count());
    for lease in a.leases() {
        assert_eq!(a.lease_keys(lease), b.lease_keys(lease));
        assert_eq!(
            a.lease_ttl(lease, Duration::ZERO),
            b.lease_ttl(lease, Duration::ZERO)
        );
    }
}

/// A proposal as a member would make it, or a copy of an earlier one.
fn proposal(n: u64, since: u64, command: Command) -> Proposal {
    Proposal {
        id: 5_000_000 + n,
        since: Some(since),
        identity: None,
        command,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_copy_goes_on_as_the_original_does(
        before in vec(op(), 1..80),
        after in vec((command(), 0u64..40), 1..40),
        members in 0..3u64,
    ) {
        let mut world = World::new(tiny());
        for op in before {
            step(&mut world, op);
        }
        world.drop_views();
        let a = &mut world.machine;
        change_beside_keys(a, members);
        let b = &mut send(a, &Config { block_bytes: 700, ..tiny() });
        assert_same(a, b);
        let first = a.applied_index() + 1;
        for (n, (command, back)) in after.into_iter().enumerate() {
            let index = first + n as u64;
            // Some are copies of what was applied just before, here or there.
            let id = index.saturating_sub(back / 2);
            let p = proposal(id, index.saturating_sub(back + 1), command);
            let want = a.apply(index, 99, p.clone()).unwrap();
            let got = b.apply(index, 99, p).unwrap();
            prop_assert_eq!((got.result, got.revision), (want.result, want.revision));
            prop_assert_eq!(got.events.len(), want.events.len());
            if n % 7 == 0 {
                while a.compact_step(9).unwrap() == CompactStep::More {}
            }
        }
        assert_same(a, b);
    }

    /// One flipped bit, one frame lost, repeated or moved: refused, never a panic.
    #[test]
    fn a_damaged_stream_is_refused(
        ops in vec(command(), 5..40),
        frame: prop::sample::Index,
        at: prop::sample::Index,
        bit in 0u32..8,
        what in 0..4,
    ) {
        let mut world = World::new(tiny());
        for command in ops {
            world.apply(command);
        }
        let replica = world.machine.replica(Duration::ZERO);
        let mut frames: Vec<Bytes> = replica.frames().map(Result::unwrap).collect();
        let hit = frame.index(frames.len());
        match what {
            0 => {
                let mut bytes = BytesMut::from(frames[hit].as_ref());
                let at = at.index(bytes.len());
                bytes[at] ^= 1u8 << bit;
                frames[hit] = bytes.freeze();
            }
            1 => drop(frames.remove(hit)),
            2 => frames.insert(hit, frames[hit].clone()),
            _ => {
                let cut = at.index(frames[hit].len());
                frames[hit] = frames[hit].slice(..cut);
            }
        }
        let mut import = ReplicaImport::new(500);
        let pushed = frames.iter().try_for_each(|frame| import.push(frame).map(drop));
        prop_assert!(pushed.and_then(|()| import.finish()).is_err());
    }

    #[test]
    fn noise_is_refused(frames in vec(vec(any::<u8>(), 0..80), 1..5)) {
        let mut import = ReplicaImport::new(500);
        let pushed = frames.into_iter().try_for_each(|frame| {
            // Sealed well, so that what is inside is looked at.
            let mut sealed = BytesMut::from(&crc32fast::hash(&frame).to_be_bytes()[..]);
            sealed.extend_from_slice(&frame);
            import.push(&sealed.freeze()).map(drop)
        });
        prop_assert!(pushed.and_then(|()| import.finish()).is_err());
    }
}

/// Users, an alarm, a downgrade and members, so that none of them is forgotten.
fn change_beside_keys(m: &mut StateMachine, members: u64) {
    let mut index = m.applied_index();
    let mut apply = |m: &mut StateMachine, command| {
        index += 1;
        m.apply(index, 98, proposal(index, index - 1, command))
            .unwrap();
    };
    apply(
        m,
        Command::Auth(AuthCommand::RoleAdd {
            name: "r".to_owned(),
        }),
    );
    apply(m, Command::Downgrade(Some("3.5.0".to_owned())));
    apply(
        m,
        Command::LeaseGrant(LeaseGrantRequest { id: 77, ttl: 500 }),
    );
    let checkpoints = vec![(77, 33)];
    apply(
        m,
        Command::LeaseCheckpoint(LeaseCheckpointRequest { checkpoints }),
    );
    for id in 1..=members {
        index += 1;
        let member = MemberInfo {
            id,
            peer_urls: vec![format!("http://m{id}:2380")],
            ..MemberInfo::default()
        };
        let add = Command::Member(MemberCommand::Add(member));
        m.apply_change(index, 98, proposal(index, index - 1, add), |command| {
            Some(ConfState {
                voters: (1..=command.id()).collect(),
                auto_leave: true,
                ..ConfState::default()
            })
        });
    }
}

/// A value larger than a frame goes in parts, beside small ones.
#[test]
fn large_values_go_in_parts() {
    let mut world = World::new(Config::default());
    for (n, size) in [10usize, 3 << 20, 20, 1 << 20, (1 << 20) - 40, 5 << 20]
        .into_iter()
        .enumerate()
    {
        world.apply(Command::Put(PutRequest {
            key: format!("k{n}").into(),
            value: vec![n as u8; size].into(),
            ..PutRequest::default()
        }));
    }
    let copy = send(&mut world.machine, &Config::default());
    assert_same(&world.machine, &copy);
}

/// A stream's memory does not grow with the store: frames and batches are bounded.
#[test]
fn batches_are_handed_out_on_the_way() {
    let mut world = World::new(Config::default());
    for n in 0..300u32 {
        world.apply(Command::Put(PutRequest {
            key: format!("k{n}").into(),
            value: vec![n as u8; 60_000].into(),
            ..PutRequest::default()
        }));
    }
    let mut import = ReplicaImport::new(32 << 10);
    let mut batches = Vec::new();
    for frame in world.machine.replica(Duration::ZERO).frames() {
        if let Some(batch) = import.push(&frame.unwrap()).unwrap() {
            assert!(batch.rows.iter().all(|(key, _)| key[0] == b'b'));
            batches.push(batch.bytes());
        }
    }
    assert!(
        batches.len() >= 3 && batches.iter().all(|bytes| *bytes < 6 << 20),
        "{batches:?}"
    );
    assert!(import.finish().unwrap().bytes() < 6 << 20);
}

// --- watchers across an install ---

fn put(m: &mut StateMachine, n: i64) -> Applied {
    let index = m.applied_index() + 1;
    let put = PutRequest {
        key: format!("k{}", n % 3).into(),
        value: n.to_string().into(),
        ..PutRequest::default()
    };
    m.apply(index, 1, proposal(index, index - 1, Command::Put(put)))
        .unwrap()
}

fn watch(key: &'static str, end: &'static str, start_revision: i64) -> WatchCreate {
    WatchCreate {
        key: key.into(),
        range_end: end.into(),
        start_revision,
        prev_kv: true,
        ..WatchCreate::default()
    }
}

/// Polls a stream to its end; returns the revisions each watch heard of, and those
/// that compaction ended, with its revision.
fn drain(
    hub: &mut WatchHub,
    m: &StateMachine,
    stream: u64,
    heard: &mut Vec<(i64, i64)>,
) -> Vec<(i64, i64)> {
    let mut ended = Vec::new();
    loop {
        let polled = hub.poll(stream, m, 2).unwrap();
        for reply in polled.replies {
            heard.extend(
                reply
                    .events
                    .iter()
                    .map(|e| (reply.watch_id, e.kv.mod_revision)),
            );
            for event in &reply.events {
                let before = event.kv.mod_revision > event.kv.create_revision;
                assert_eq!(
                    event.prev_kv().is_some(),
                    before,
                    "at {}",
                    event.kv.mod_revision
                );
            }
            if reply.canceled {
                ended.push((reply.watch_id, reply.compact_revision));
            }
        }
        if !polled.more {
            return ended;
        }
    }
}

#[test]
fn watchers_go_on_over_an_install_and_miss_nothing() {
    let mut sender = World::new(tiny()).machine;
    let mut follower = World::new(tiny()).machine;
    let mut hub = WatchHub::new(follower.revision());
    let all = hub.create(1, watch("k", "l", 0));
    let one = hub.create(1, watch("k1", "", 0));
    let past = hub.create(1, watch("k", "l", 1));
    let soon = hub.create(1, watch("k", "l", 15));
    let later = hub.create(1, watch("k", "l", 28));
    let slow = hub.create(2, watch("k", "l", 0));
    let mut heard = Vec::new();
    for n in 0..10 {
        put(&mut sender, n);
        let applied = put(&mut follower, n);
        hub.publish(&applied.events, applied.revision, &follower)
            .unwrap();
        if n < 8 {
            assert!(drain(&mut hub, &follower, 1, &mut heard).is_empty());
        }
    }
    // Two revisions wait for stream 1, ten for stream 2. Then a snapshot comes.
    for n in 10..20 {
        put(&mut sender, n);
    }
    let mut follower = send(&mut sender, &tiny());
    assert_eq!(hub.restored(&follower), [1, 2]);
    assert!(drain(&mut hub, &follower, 1, &mut heard).is_empty());
    for n in 20..30 {
        let applied = put(&mut follower, n);
        hub.publish(&applied.events, applied.revision, &follower)
            .unwrap();
    }
    assert!(drain(&mut hub, &follower, 1, &mut heard).is_empty());
    let of = |id: i64| -> Vec<i64> {
        let mine = heard.iter().filter(|(watch, _)| *watch == id);
        mine.map(|(_, revision)| *revision).collect()
    };
    let from = |first: i64| (first..=31).collect::<Vec<_>>();
    assert_eq!(of(all), from(2));
    assert_eq!(of(past), from(2));
    assert_eq!(of(soon), from(15));
    assert_eq!(of(later), from(28));
    assert_eq!(of(one), (2..=31).filter(|r| r % 3 == 0).collect::<Vec<_>>());
    let mut second = Vec::new();
    assert!(drain(&mut hub, &follower, 2, &mut second).is_empty());
    assert_eq!(
        second,
        from(2).into_iter().map(|r| (slow, r)).collect::<Vec<_>>()
    );
    assert_eq!(hub.unsynced_count(), 0);
}

#[test]
fn a_watcher_whose_next_revision_is_compacted_in_the_snapshot_is_told() {
    let mut sender = World::new(tiny()).machine;
    let mut hub = WatchHub::new(sender.revision());
    let live = hub.create(1, watch("k", "l", 0));
    let future = hub.create(1, watch("k", "l", 15));
    let follower = World::new(tiny()).machine;
    for n in 0..20 {
        put(&mut sender, n);
    }
    drain(&mut hub, &follower, 1, &mut Vec::new());
    let index = sender.applied_index() + 1;
    let compact = Command::Compact(CompactRequest {
        revision: 12,
        physical: false,
    });
    sender
        .apply(index, 1, proposal(index, index - 1, compact))
        .unwrap();
    let follower = send(&mut sender, &tiny());
    assert_eq!(hub.restored(&follower), [1]);
    let mut heard = Vec::new();
    assert_eq!(drain(&mut hub, &follower, 1, &mut heard), [(live, 12)]);
    assert_eq!(heard, (15..=21).map(|r| (future, r)).collect::<Vec<_>>());
}
