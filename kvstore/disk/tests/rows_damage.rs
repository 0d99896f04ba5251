//! Rows in which a bit was flipped, anywhere in the engine's files: refused by name,
//! or without consequence. What is read is never something that was not written.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use disk::Rows;
use mvcc::{Command, Config, LeaseGrantRequest, Proposal, PutRequest, StateMachine};

/// Flips tried; some seconds in a debug build.
const FLIPS: u64 = 150;

/// The entries of the log that made the rows.
const ENTRIES: u64 = 400;

fn apply(machine: &mut StateMachine, index: u64) {
    let command = match index % 40 {
        0 => Command::LeaseGrant(LeaseGrantRequest {
            id: index as i64,
            ttl: 60,
        }),
        _ => Command::Put(PutRequest {
            key: format!("key{}", index % 70).into(),
            value: Bytes::from(vec![index as u8; 300 + index as usize]),
            ..PutRequest::default()
        }),
    };
    let proposal = Proposal {
        id: index,
        since: Some(index - 1),
        identity: None,
        command,
    };
    machine.apply(index, 1, proposal).unwrap();
}

fn build(path: &Path) -> StateMachine {
    let rows = Rows::open(path).unwrap();
    let mut machine = StateMachine::open(Box::new(rows.clone()), Config::default()).unwrap();
    for index in 1..=ENTRIES {
        apply(&mut machine, index);
        if index % 25 == 0 {
            write_back(&mut machine, &rows);
        }
    }
    write_back(&mut machine, &rows);
    machine
}

fn write_back(machine: &mut StateMachine, rows: &Rows) {
    while let Some(job) = machine.take_writeback(usize::MAX) {
        let (batch, written) = job.pack();
        rows.write(&batch).unwrap();
        machine.writeback_done(written);
    }
    rows.flush().unwrap();
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let place = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(file, place).unwrap();
    }
}

#[test]
fn a_bit_flipped_in_the_rows_is_never_read_as_something_else() {
    let home = tempfile::tempdir().unwrap();
    let whole = home.path().join("whole");
    let written = build(&whole);
    let (hash, index) = (written.hash_kv(0).unwrap(), written.applied_index());
    let beside = written.hash_beside_keys();
    drop(written);
    let (mut refused, mut earlier, mut same) = (0, 0, 0);
    let mut random = 7u64;
    for flip in 0..FLIPS {
        let damaged = home.path().join(format!("flip{flip}"));
        copy(&whole, &damaged);
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let all = files(&damaged);
        let file = &all[(random >> 33) as usize % all.len()];
        let mut bytes = fs::read(file).unwrap();
        if bytes.is_empty() {
            continue;
        }
        // Most of the engine's file was never written; look where something is.
        let used = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(1, |at| at + 1);
        let at = (random >> 20) as usize % used;
        bytes[at] ^= 1 << (random >> 60 & 7);
        fs::write(file, bytes).unwrap();
        let opened = std::panic::catch_unwind(|| {
            let rows = Rows::open(&damaged).map_err(|error| error.to_string())?;
            StateMachine::open(Box::new(rows), Config::default()).map_err(|error| error.to_string())
        });
        match opened {
            Ok(Ok(mut machine)) => {
                // What is missing at the end is in the log, or raft finds that it is not.
                let found = machine.applied_index();
                let replayed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    (found + 1..=index).for_each(|index| apply(&mut machine, index));
                }));
                match (replayed, machine.hash_kv(0)) {
                    (Ok(()), Ok(read)) => {
                        let place = format!("flip {flip} at {at} of {}", file.display());
                        assert_eq!(read, hash, "{place}, from {found}");
                        assert_eq!(machine.hash_beside_keys(), beside, "{place}, from {found}");
                        same += u64::from(found == index);
                        earlier += u64::from(found < index);
                    }
                    // A block that is read only now.
                    _ => refused += 1,
                }
            }
            Ok(Err(error)) => {
                assert!(!error.is_empty());
                refused += 1;
            }
            Err(_) => panic!(
                "the engine panicked on flip {flip} at {at} of {}",
                file.display()
            ),
        }
        fs::remove_dir_all(&damaged).unwrap();
    }
    println!(
        "{FLIPS} flips: refused {refused}, an earlier state {earlier}, without consequence {same}"
    );
    assert!(refused > 0);
}
