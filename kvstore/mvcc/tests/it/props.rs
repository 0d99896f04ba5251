//! The machine against the model, under write-back, compaction and crashes.

use mvcc::*;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::gen_ops::{Op, op};
use crate::world::{World, tiny};

pub(crate) fn step(world: &mut World, op: Op) {
    match op {
        Op::Apply(command) => {
            world.apply(command);
        }
        Op::Repeat => world.repeat(),
        Op::Range(r) => world.range(&r),
        Op::Take(bytes_max) => world.take(bytes_max),
        Op::Done => world.done(),
        Op::CompactStep(budget) => {
            world.compact_step(budget);
        }
        Op::CompactAll => {
            world.done();
            world.compact_all(100);
        }
        Op::Restart(arrived) => {
            world.restart(arrived);
            world.audit();
        }
        Op::View => world.view(),
        Op::Look(nth, changes) => world.look(nth, changes),
        Op::Drop(nth) => world.drop_view(nth),
        Op::Expire => world.expire_views(),
    }
}

fn run(world: &mut World, ops: Vec<Op>) {
    for op in ops {
        step(world, op);
    }
    world.audit();
    world.drop_views();
    // Whatever happened, once all is written and compacted the tree alone
    // gives the same store.
    world.done();
    world.compact_all(7);
    world.audit();
    world.take(usize::MAX);
    world.done();
    world.restart(false);
    assert_eq!(world.machine.dirty_bytes(), 0, "nothing was replayed");
    world.audit();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_machine_is_the_model(ops in vec(op(), 1..120)) {
        run(&mut World::new(tiny()), ops);
    }

    /// The same state whatever the blocks and caches are: determinism over
    /// members with different settings.
    #[test]
    fn settings_do_not_matter(ops in vec(op(), 1..60)) {
        run(&mut World::new(Config { window_bytes: 0, block_cache_bytes: 0, block_bytes: 1, ..tiny() }), ops.clone());
        run(&mut World::new(Config::default()), ops);
    }
}

/// A store that lives on rewritten keys must not grow: compaction gives the
/// room back, in rows and in bytes.
#[test]
fn compaction_returns_space() {
    let mut world = World::new(Config {
        block_bytes: 4096,
        window_bytes: 0,
        ..Config::default()
    });
    let mut sizes = Vec::new();
    for round in 0..8 {
        for n in 0..200 {
            let key = format!("key{}", n % 50).into();
            let value = vec![round as u8; 100].into();
            world.apply(Command::Put(PutRequest {
                key,
                value,
                ..PutRequest::default()
            }));
        }
        world.take(usize::MAX);
        world.done();
        let revision = world.machine.revision();
        world.apply(Command::Compact(CompactRequest {
            revision,
            physical: false,
        }));
        world.compact_all(64);
        world.take(usize::MAX);
        world.done();
        sizes.push(world.machine.size_bytes());
    }
    world.audit();
    assert!(sizes[7] <= sizes[2] * 3 / 2, "{sizes:?}");
    assert!(
        sizes[7] < 50 * 300,
        "fifty keys of 100 bytes take {} bytes",
        sizes[7]
    );
}

/// A fifth that is garbage stays in its blocks, until somebody wants that too.
#[test]
fn a_thorough_compaction_leaves_little_garbage() {
    let mut world = World::new(Config {
        block_bytes: 4096,
        window_bytes: 0,
        ..Config::default()
    });
    let put = |world: &mut World, n: u32| {
        world.apply(Command::Put(PutRequest {
            key: format!("key{n:04}").into(),
            value: vec![7; 100].into(),
            ..PutRequest::default()
        }));
    };
    // Ends at a revision at which the world takes no thorough step unasked.
    (0..1_000).for_each(|n| put(&mut world, n));
    (0..1_000).step_by(5).for_each(|n| put(&mut world, n));
    world.take(usize::MAX);
    world.done();
    let revision = world.machine.revision();
    assert_ne!(revision % 3, 0);
    world.apply(Command::Compact(CompactRequest {
        revision,
        physical: false,
    }));
    world.compact_all(64);
    let before = world.machine.size_bytes() - world.machine.size_in_use_bytes();
    assert!(before > 150 * 100, "{before}");
    world.machine.waste_nothing();
    world.compact_all(64);
    let after = world.machine.size_bytes() - world.machine.size_in_use_bytes();
    assert!(after < before / 10, "{before} {after}");
    world.audit();
}

/// Deleted keys leave nothing behind once compaction has passed them: not the
/// values, not the tombstones, not the open block's old row.
#[test]
fn deleted_keys_leave_nothing() {
    let mut world = World::new(Config {
        window_bytes: 0,
        ..tiny()
    });
    let settle = |world: &mut World| {
        world.compact_all(3);
        world.take(usize::MAX);
        world.done();
    };
    for round in 0..3 {
        for n in 0..40 {
            let put = PutRequest {
                key: format!("k{n}").into(),
                value: "value".into(),
                ..PutRequest::default()
            };
            world.apply(Command::Put(put));
            if n % 7 == 0 {
                settle(&mut world);
            }
        }
        world.apply(Command::DeleteRange(DeleteRangeRequest {
            key: "k".into(),
            range_end: "l".into(),
            prev_kv: false,
        }));
        if round == 1 {
            settle(&mut world);
        }
        let revision = world.machine.revision();
        world.apply(Command::Compact(CompactRequest {
            revision,
            physical: false,
        }));
        settle(&mut world);
    }
    // The tombstones at the compacted revision stay until the next compaction.
    world.apply(Command::Put(PutRequest {
        key: "last".into(),
        ..PutRequest::default()
    }));
    let revision = world.machine.revision();
    world.apply(Command::Compact(CompactRequest {
        revision,
        physical: false,
    }));
    settle(&mut world);
    world.audit();
    assert_eq!(world.block_rows(), 1);
    world.restart(false);
    world.audit();
    assert!(
        world.machine.size_bytes() < 100,
        "{}",
        world.machine.size_bytes()
    );
}

/// A crash between a compaction and its work loses the work, not the garbage:
/// opening finds it again.
#[test]
fn a_restart_finds_the_garbage_again() {
    let mut world = World::new(tiny());
    for n in 0..200 {
        let put = PutRequest {
            key: format!("k{}", n % 2).into(),
            value: "a value of some length".into(),
            ..PutRequest::default()
        };
        world.apply(Command::Put(put));
    }
    let revision = world.machine.revision();
    world.apply(Command::Compact(CompactRequest {
        revision,
        physical: false,
    }));
    world.take(usize::MAX);
    world.done();
    let before = world.block_rows();
    assert!(before > 20, "{before}");
    world.restart(false);
    assert!(world.machine.size_in_use_bytes() < world.machine.size_bytes() / 10);
    world.compact_all(5);
    world.take(usize::MAX);
    world.done();
    world.audit();
    assert_eq!(world.block_rows(), 1);
}

/// A value that compaction forgot may stay on disk in a block that is otherwise
/// live. The tombstone over it must stay as long, or opening the tree brings
/// the key back to life.
#[test]
fn a_deleted_key_stays_dead_while_its_value_is_on_disk() {
    let mut world = World::new(Config {
        window_bytes: 0,
        ..tiny()
    });
    let put = |world: &mut World, key: &str| {
        let (key, value) = (key.to_owned().into(), "value".into());
        world.apply(Command::Put(PutRequest {
            key,
            value,
            ..PutRequest::default()
        }));
    };
    let settle = |world: &mut World| {
        let revision = world.machine.revision();
        world.apply(Command::Compact(CompactRequest {
            revision,
            physical: false,
        }));
        world.compact_all(3);
        world.take(usize::MAX);
        world.done();
    };
    for key in ["a", "b", "x", "c", "d", "e", "f", "g", "h"] {
        put(&mut world, key);
    }
    world.take(usize::MAX);
    world.done();
    let delete = |key: &str| {
        Command::DeleteRange(DeleteRangeRequest {
            key: key.to_owned().into(),
            ..DeleteRangeRequest::default()
        })
    };
    world.apply(delete("x"));
    put(&mut world, "i");
    settle(&mut world);
    world.restart(false);
    world.audit();
    // Once the block is rewritten, both go.
    for key in ["a", "b", "c", "d", "e", "f"] {
        world.apply(delete(key));
    }
    put(&mut world, "j");
    settle(&mut world);
    put(&mut world, "k");
    settle(&mut world);
    world.restart(false);
    world.audit();
    assert!(
        world.machine.size_bytes() < 400,
        "{}",
        world.machine.size_bytes()
    );
}

/// While a view holds back the rewritten row that lacks a value, the tombstone
/// over that value must reach the tree, or a crash brings the key back.
#[test]
fn a_tombstone_waits_for_rows_that_a_view_holds_back() {
    let mut world = World::new(Config {
        window_bytes: 0,
        ..tiny()
    });
    let put = |world: &mut World, key: String| {
        world.apply(Command::Put(PutRequest {
            key: key.into(),
            value: "value".into(),
            ..PutRequest::default()
        }));
    };
    for n in 0..40 {
        put(&mut world, format!("k{n}"));
    }
    world.take(usize::MAX);
    world.done();
    world.apply(Command::DeleteRange(DeleteRangeRequest {
        key: "k".into(),
        range_end: "l".into(),
        ..DeleteRangeRequest::default()
    }));
    put(&mut world, "last".to_owned());
    let revision = world.machine.revision();
    world.apply(Command::Compact(CompactRequest {
        revision,
        physical: false,
    }));
    world.view();
    while world.compact_step(5) == CompactStep::More {}
    assert!(world.machine.has_rewrites());
    // Every batch is opened as a crash would leave it.
    world.take(usize::MAX);
    world.done();
    world.audit();
    world.drop_views();
    world.compact_all(5);
    world.take(usize::MAX);
    world.done();
    world.audit();
    assert_eq!(world.block_rows(), 1);
}

#[test]
fn damage_in_the_tree_is_refused() {
    let backend = MemoryBackend::new();
    let mut machine = StateMachine::open(Box::new(backend.clone()), tiny()).unwrap();
    for n in 1..50u64 {
        let put = PutRequest {
            key: format!("k{n}").into(),
            value: "v".into(),
            ..PutRequest::default()
        };
        machine
            .apply(
                n,
                1,
                Proposal {
                    id: n,
                    since: None,
                    identity: None,
                    command: Command::Put(put),
                },
            )
            .unwrap();
    }
    let (batch, _) = machine.take_writeback(usize::MAX).unwrap().pack();
    backend.write(&batch);
    for (key, row) in &batch.rows {
        let Some(row) = row else { continue };
        for bad in [row.slice(..row.len() - 1), flip(row)] {
            let damaged = backend.fork();
            damaged.set(key, bad);
            let opened = StateMachine::open(Box::new(damaged), tiny());
            assert!(
                matches!(opened, Err(BackendError::Corrupt { .. })),
                "{:?}",
                key
            );
        }
    }
    let foreign = backend.fork();
    foreign.set(b"zebra", "".into());
    assert!(StateMachine::open(Box::new(foreign), tiny()).is_err());
}

fn flip(row: &bytes::Bytes) -> bytes::Bytes {
    let mut raw = row.to_vec();
    let last = raw.len() - 1;
    raw[last] ^= 1;
    raw.into()
}

/// Leases fill no block, and must reach the tree all the same, a part at a time: while
/// a batch is taken in, the tree holds copies of all it touches.
#[test]
fn leases_alone_are_written_back_in_parts() {
    let mut world = World::new(Config::default());
    for id in 1..=3_000 {
        world.apply(Command::LeaseGrant(LeaseGrantRequest { id, ttl: 60 }));
    }
    let before = world.machine.dirty_bytes();
    assert!(before >= 3_000 << 10, "{before} bytes");
    let mut batches = 0;
    let mut left = before;
    while left > 0 {
        world.take(1 << 20);
        world.done();
        let now = world.machine.dirty_bytes();
        assert!(now < left && left - now <= 1 << 20, "{left} to {now}");
        left = now;
        batches += 1;
    }
    assert_eq!(batches, 3);
    world.restart(true);
    world.audit();
}
