//! A log that begins anew behind rows that a snapshot brought, with the power lost
//! at every moment of it.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use disk::{
    Base, Disk, DiskError, Dumped, DumpedRecord, Identity, Options, Replayed, RowsHome, SimDisk,
    Wal, dump, install,
};
use member::{EntryKind, HardState, LogEntry};
use proptest::prelude::*;

const DATA: &str = "/data";
const SEGMENT_BYTES: u64 = 4096;
const OPTIONS: Options = Options {
    identity: Identity {
        cluster_id: 0xC1,
        member_id: 0xA1,
    },
    segment_bytes: SEGMENT_BYTES,
};

fn wal_dir() -> PathBuf {
    Path::new(DATA).join("wal")
}

fn home(disk: &SimDisk) -> RowsHome {
    RowsHome::new(Arc::new(disk.clone()), Path::new(DATA))
}

fn open(disk: &SimDisk) -> Result<(Wal, Replayed), DiskError> {
    Wal::open_behind(Arc::new(disk.clone()), &wal_dir(), OPTIONS, &home(disk))
}

fn entry(index: u64, term: u64) -> LogEntry {
    LogEntry {
        term,
        index,
        kind: EntryKind::Normal,
        data: Bytes::from(vec![(index % 250) as u8 + 1; 300]),
    }
}

fn state(term: u64, vote: u64, commit: u64) -> HardState {
    HardState { term, vote, commit }
}

/// Writes rows of which a test can tell whose they are.
fn write_rows(disk: &SimDisk, path: &Path, what: &str) {
    let mut file = disk.create(&path.join("rows")).unwrap();
    file.write_at(what.as_bytes(), 0).unwrap();
    file.sync_all().unwrap();
    disk.sync_dir(path).unwrap();
}

fn rows(disk: &SimDisk, path: &Path) -> Option<String> {
    let bytes = disk.bytes(&path.join("rows"))?;
    Some(String::from_utf8(bytes).unwrap())
}

/// A member with rows after entry 1 and entries 2 to 40 of term 3 in its log.
fn lagging(disk: &SimDisk) -> Wal {
    let first = Path::new(DATA).join("db");
    write_rows(disk, &first, "old");
    home(disk)
        .adopt(&first, Base { index: 1, term: 1 })
        .unwrap();
    let (mut wal, _) = open(disk).unwrap();
    let entries: Vec<_> = (2..=40).map(|index| entry(index, 3)).collect();
    wal.append(Some(&state(3, 7, 30)), &entries).unwrap();
    wal.flush(true).unwrap();
    wal
}

#[test]
fn the_log_goes_on_behind_its_new_beginning() {
    let disk = SimDisk::new();
    let mut wal = lagging(&disk);
    assert!(wal.segment_count() > 1);
    let base = Base { index: 90, term: 5 };
    wal.reset(base, Some(&state(6, 2, 90))).unwrap();
    assert_eq!(wal.segment_count(), 1, "the old ones take room for nothing");
    let after: Vec<_> = (91..=120).map(|index| entry(index, 6)).collect();
    wal.append(Some(&state(6, 2, 100)), &after).unwrap();
    wal.flush(true).unwrap();
    assert!(wal.segment_count() > 1, "segments after it continue it");
    let (_, replayed) = open(&disk.crash(|_| false)).unwrap();
    let log = replayed.recovered;
    assert_eq!((log.base_index, log.base_term), (90, 5));
    assert_eq!(log.entries, after);
    assert_eq!(log.hard_state, state(6, 2, 100));
    wal.release(110).unwrap();
    let (_, replayed) = open(&disk.crash(|_| false)).unwrap();
    assert_eq!(replayed.recovered.last_index(), 120);
}

#[test]
fn nothing_that_was_behind_the_new_beginning_comes_back() {
    let disk = SimDisk::new();
    let mut wal = lagging(&disk);
    // Shorter than the log, and in it: what follows was never committed.
    wal.reset(Base { index: 30, term: 3 }, None).unwrap();
    let (_, replayed) = open(&disk.crash(|_| false)).unwrap();
    assert_eq!(replayed.recovered.last_index(), 30);
    assert!(replayed.recovered.entries.is_empty());
    assert_eq!(replayed.recovered.hard_state, state(3, 7, 30));
}

#[test]
fn a_term_that_the_rows_bring_forgets_the_vote_of_an_older_one() {
    let disk = SimDisk::new();
    let mut wal = lagging(&disk);
    wal.reset(Base { index: 90, term: 5 }, None).unwrap();
    assert_eq!(wal.hard_state(), state(5, 0, 90));
}

#[test]
fn a_log_that_lost_its_beginning_is_refused() {
    let disk = SimDisk::new();
    drop(lagging(&disk));
    for name in disk.list(&wal_dir()).unwrap() {
        disk.remove(&wal_dir().join(name)).unwrap();
    }
    let error = open(&disk).unwrap_err();
    assert!(
        matches!(
            error,
            DiskError::LogBehind {
                last: 0,
                index: 1,
                ..
            }
        ),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Losing power anywhere leaves the old rows with the old log, or the new rows
    /// with a log that begins behind them; and never fewer promises.
    #[test]
    fn an_install_is_done_or_not_done(
        fail in 0u64..6,
        seed: u64,
        odds in 0u64..=4,
        base in prop_oneof![Just(Base { index: 90, term: 5 }), Just(Base { index: 35, term: 4 })],
        state_given: bool,
    ) {
        let disk = SimDisk::new();
        let mut wal = lagging(&disk);
        let home = home(&disk);
        let new = home.fresh().unwrap();
        write_rows(&disk, &new, "new");
        disk.fail_sync(fail);
        let given = state(6, 2, base.index);
        let installed = install(&home, &mut wal, &new, base, state_given.then_some(&given));
        prop_assert_eq!(installed.is_ok(), fail >= 3, "three files are synced");

        let mut random = seed | 1;
        let crashed = disk.crash(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % 4 < odds
        });
        let (mut wal, replayed) = open(&crashed).unwrap();
        let home = self::home(&crashed);
        let pointer = home.pointer().unwrap().unwrap();
        prop_assert!(pointer.settled);
        let (log, found) = (replayed.recovered, rows(&crashed, &home.path(&pointer)));
        if pointer.base == base {
            prop_assert_eq!(found.unwrap(), "new");
            prop_assert_eq!((log.base_index, log.base_term), (base.index, base.term));
            prop_assert!(log.entries.is_empty());
            prop_assert!(log.hard_state.term >= 3.max(base.term));
            prop_assert!(log.hard_state.term > 3 || log.hard_state.vote == 7);
            prop_assert_eq!(log.hard_state.commit, base.index);
        } else {
            prop_assert!(installed.is_err());
            prop_assert_eq!(found.unwrap(), "old");
            prop_assert_eq!(log.last_index(), 40);
            prop_assert_eq!(log.hard_state, state(3, 7, 30));
        }
        // And it goes on from there.
        let next = entry(log.last_index() + 1, 9);
        wal.append(None, std::slice::from_ref(&next)).unwrap();
        wal.flush(true).unwrap();
        let (_, again) = open(&crashed.crash(|_| false)).unwrap();
        prop_assert_eq!(again.recovered.entries.last(), Some(&next));
    }

    /// The dump names every record, changes nothing, and names the damaged one.
    #[test]
    fn a_dump_tells_what_is_there_and_where_it_is_damaged(
        damage in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u32..8)),
    ) {
        let disk = SimDisk::new();
        let mut wal = lagging(&disk);
        wal.append_snapshot(20, 3).unwrap();
        wal.flush(true).unwrap();
        let names = disk.list(&wal_dir()).unwrap();
        let mut hit = None;
        if let Some((file, at, bit)) = damage {
            let path = wal_dir().join(file.get(&names));
            disk.damage(&path, |bytes| {
                let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
                let at = at.index(used);
                bytes[at] ^= 1 << bit;
                hit = Some((path.clone(), at as u64));
            });
        }
        let before: Vec<_> = names.iter().map(|name| disk.bytes(&wal_dir().join(name))).collect();
        let mut seen = Vec::new();
        dump(&disk, &wal_dir(), &mut |dumped| {
            seen.push(dumped);
            ControlFlow::Continue(())
        }).unwrap();
        prop_assert_eq!(disk.list(&wal_dir()).unwrap(), names.clone());
        let after: Vec<_> = names.iter().map(|name| disk.bytes(&wal_dir().join(name))).collect();
        prop_assert_eq!(before, after);
        let bad = seen.iter().find(|d| matches!(d.record, DumpedRecord::Bad { .. }));
        match (hit, bad) {
            (None, None) => {
                let entries = seen.iter().filter(|d| matches!(d.record, DumpedRecord::Entry(_)));
                prop_assert_eq!(entries.count(), 39);
                let begins = seen.iter().any(|d| matches!(d.record, DumpedRecord::Base(Base { index: 1, term: 1 }, _)));
                prop_assert!(begins);
                let snapshot = DumpedRecord::Snapshot(Base { index: 20, term: 3 });
                prop_assert!(seen.iter().any(|d| d.record == snapshot));
            }
            (Some((path, at)), Some(Dumped { file, offset, record: DumpedRecord::Bad { torn, .. } })) => {
                prop_assert!(!torn);
                if *file == path {
                    prop_assert!(*offset <= at && at <= offset + 400, "flipped at {}, found at {}", at, offset);
                }
            }
            (hit, bad) => prop_assert!(false, "{:?} {:?}", hit, bad),
        }
    }
}
