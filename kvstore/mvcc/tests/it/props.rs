//! The machine against the model, under write-back, compaction and crashes.

use mvcc::*;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::gen_ops::{Op, op};
use crate::world::{World, tiny};

fn run(world: &mut World, ops: Vec<Op>) {
    for op in ops {
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
                while world.compact_step(100) != CompactStep::Done {}
            }
            Op::Restart(arrived) => {
                world.restart(arrived);
                world.audit();
            }
        }
    }
    world.audit();
    // Whatever happened, once all is written and compacted the tree alone
    // gives the same store.
    world.done();
    while world.compact_step(7) != CompactStep::Done {}
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
    for round in 0..20 {
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
        while world.compact_step(64) != CompactStep::Done {}
        world.take(usize::MAX);
        world.done();
        sizes.push(world.machine.size_bytes());
    }
    world.audit();
    assert!(sizes[19] <= sizes[2] * 3 / 2, "{sizes:?}");
    assert!(
        sizes[19] < 50 * 300,
        "fifty keys of 100 bytes take {} bytes",
        sizes[19]
    );
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
        while world.compact_step(3) != CompactStep::Done {}
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
                    command: Command::Put(put),
                },
            )
            .unwrap();
    }
    let batch = machine.take_writeback(usize::MAX).unwrap();
    backend.write(&batch);
    for (key, row) in &batch.rows {
        let Some(row) = row else { continue };
        for bad in [row.slice(..row.len() - 1), flip(row)] {
            // The pages of proposal ids carry no checksum of their own.
            if key[0] == b'd' {
                continue;
            }
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
