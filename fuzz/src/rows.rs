//! The rows a state machine starts from, damaged as a disk may damage them, and
//! log entries nobody encoded.
//!
//! Promised (`mvcc`): a damaged row is refused by name; whatever is taken in can
//! be read, changed, compacted and written back without a panic.

use std::time::Duration;

use bytes::Bytes;
use mvcc::{
    Alarm, AlarmKind, Backend, Command, CompactStep, Config, LeaseGrantRequest, MemoryBackend,
    Proposal, PutRequest, RangeRequest, StateMachine,
};

use super::draw::Draw;

fn config() -> Config {
    Config {
        // Small, so that short inputs make several blocks and read them back.
        window_bytes: 512,
        block_bytes: 512,
        block_cache_bytes: 1024,
        ..Config::default()
    }
}

/// Writes rows, damages them, opens them, and uses what opened.
pub fn rows(input: &[u8]) {
    let mut draw = Draw::new(input);
    let backend = MemoryBackend::new();
    let written = write(&mut draw, &backend);
    let mut rows = Vec::new();
    backend
        .scan(b"", b"", &mut |key, row| {
            rows.push((key, row));
            Ok(())
        })
        .expect("memory has no faults");
    let damaged = damage(&mut draw, rows);
    let backend = MemoryBackend::new();
    for (key, row) in &damaged.rows {
        backend.set(key, row.clone());
    }
    match StateMachine::open(Box::new(backend.clone()), config()) {
        Ok(machine) => {
            assert!(!damaged.unsealed, "a broken checksum was not seen");
            if damaged.count == 0 {
                assert_eq!(machine.revision(), written);
            }
            use_it(&mut draw, machine, &backend);
        }
        Err(error) => assert!(damaged.count > 0, "good rows refused: {error}"),
    }
}

/// Makes a machine with a history and writes it back; returns its revision.
fn write(draw: &mut Draw<'_>, backend: &MemoryBackend) -> i64 {
    let mut machine =
        StateMachine::open(Box::new(backend.clone()), config()).expect("no rows are good rows");
    let mut index = 0;
    for step in 0..1 + draw.below(60) {
        let key = Bytes::from(format!("k{}", draw.byte() % 16));
        let command = match draw.byte() % 10 {
            0 => Command::LeaseGrant(LeaseGrantRequest {
                id: i64::from(draw.byte() % 4) + 1,
                ttl: 60,
            }),
            1 => Command::DeleteRange(mvcc::DeleteRangeRequest {
                key,
                ..Default::default()
            }),
            2 => Command::Compact(mvcc::CompactRequest {
                revision: i64::from(draw.byte()),
                physical: false,
            }),
            kind => Command::Put(PutRequest {
                key,
                value: Bytes::from(vec![b'v'; draw.byte().into()]),
                lease: if kind == 3 {
                    i64::from(draw.byte() % 4)
                } else {
                    0
                },
                ..Default::default()
            }),
        };
        index += 1;
        apply(&mut machine, index, command);
        if draw.byte().is_multiple_of(4) || step == 0 {
            write_back(&mut machine, backend);
        }
    }
    write_back(&mut machine, backend);
    machine.revision()
}

fn apply(machine: &mut StateMachine, index: u64, command: Command) {
    let proposal = Proposal {
        id: index,
        since: Some(index - 1),
        identity: None,
        command,
    };
    let encoded = proposal.encode();
    let proposal = Proposal::decode(encoded).expect("what was encoded");
    // An error of the backend is a good answer where a row was damaged.
    drop(machine.apply(index, 1, proposal));
}

fn write_back(machine: &mut StateMachine, backend: &MemoryBackend) {
    while let Some(job) = machine.take_writeback(2048) {
        let (batch, written) = job.pack();
        backend.write(&batch);
        machine.writeback_done(written);
    }
}

struct Damaged {
    rows: Vec<(Bytes, Bytes)>,
    count: usize,
    /// Whether a row with a checksum was changed and its checksum was not.
    unsealed: bool,
}

fn damage(draw: &mut Draw<'_>, mut rows: Vec<(Bytes, Bytes)>) -> Damaged {
    let count = draw.below(4);
    let mut unsealed = false;
    for _ in 0..count {
        if rows.is_empty() {
            break;
        }
        let at = draw.below(rows.len());
        let (key, row) = rows[at].clone();
        match draw.byte() % 8 {
            0 => {
                // A row lost.
                rows.remove(at);
            }
            1 => {
                // A row under another name.
                let mut name = key.to_vec();
                draw.damage(&mut name);
                rows[at].0 = Bytes::from(name);
            }
            2 => {
                // Another row, of any kind.
                let name = [b"ldaurwxsbmgce"[draw.below(13)]];
                let len = draw.below(20);
                let name = [&name[..], draw.bytes(len)].concat();
                let len = draw.below(40);
                rows.push((name.into(), Bytes::copy_from_slice(draw.bytes(len))));
            }
            kind => {
                let mut bytes = row.to_vec();
                draw.damage(&mut bytes);
                let sealed = matches!(key.first(), Some(b'b' | b's' | b'e' | b'm' | b'g' | b'c'));
                if sealed && kind.is_multiple_of(2) && bytes.len() > 5 {
                    let sum = crc32fast::hash(&bytes[5..]).to_be_bytes();
                    bytes[1..5].copy_from_slice(&sum);
                } else if sealed && bytes != row[..] {
                    // Of two rows of one name the later counts.
                    unsealed = !rows[at + 1..].iter().any(|(name, _)| *name == key);
                }
                rows[at].1 = Bytes::from(bytes);
            }
        }
        if unsealed {
            // Later damage could mend this one; one is enough.
            return Damaged {
                rows,
                count,
                unsealed,
            };
        }
    }
    Damaged {
        rows,
        count,
        unsealed,
    }
}

/// Everything a member does with a machine must end, well or with an error.
fn use_it(draw: &mut Draw<'_>, mut machine: StateMachine, backend: &MemoryBackend) {
    let now = machine.revision();
    for revision in [0, now, machine.compact_revision(), now.saturating_sub(3), 1] {
        drop(machine.range(&RangeRequest {
            key: Bytes::from_static(b"\0"),
            range_end: Bytes::from_static(b"\0"),
            revision,
            ..Default::default()
        }));
    }
    drop(machine.hash_kv(0));
    drop(machine.leases());
    machine.promote(Duration::ZERO, Duration::ZERO);
    drop(machine.expired(Duration::from_secs(1 << 40), 10));
    let mut index = machine.applied_index();
    let commands = [
        Command::Put(PutRequest {
            key: Bytes::from_static(b"k1"),
            value: Bytes::from_static(b"new"),
            prev_kv: true,
            ..Default::default()
        }),
        Command::DeleteRange(mvcc::DeleteRangeRequest {
            key: Bytes::from_static(b"\0"),
            range_end: Bytes::from_static(b"\0"),
            prev_kv: draw.byte().is_multiple_of(2),
        }),
        Command::Compact(mvcc::CompactRequest {
            revision: now,
            physical: true,
        }),
        Command::AlarmActivate(Alarm {
            member: 1,
            kind: AlarmKind::NoSpace,
        }),
    ];
    for command in commands {
        index = index.saturating_add(1);
        apply(&mut machine, index, command);
    }
    for _ in 0..100 {
        match machine.compact_step(16) {
            Ok(CompactStep::Done) => break,
            Ok(CompactStep::More | CompactStep::Busy) => {}
            Err(_) => return,
        }
    }
    write_back(&mut machine, backend);
}
