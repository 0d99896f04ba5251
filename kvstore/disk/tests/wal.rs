//! The log against a disk that loses, tears, cuts, flips and fails.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use disk::{Disk, DiskError, Identity, Options, Replayed, SimDisk, Wal};
use member::{EntryKind, HardState, LogEntry};
use proptest::prelude::*;

const DIR: &str = "/wal";
const ME: Identity = Identity {
    cluster_id: 0xC1,
    member_id: 0xA1,
};

fn open(disk: &SimDisk, segment_bytes: u64) -> Result<(Wal, Replayed), DiskError> {
    Wal::open(
        Arc::new(disk.clone()),
        Path::new(DIR),
        Options {
            identity: ME,
            segment_bytes,
        },
    )
}

fn entry(index: u64, term: u64, len: usize) -> LogEntry {
    // No zero byte: a whole zero sector in a value looks like one never written.
    let data: Vec<u8> = (0..len)
        .map(|at| ((index as usize * 31 + at * 7) % 255) as u8 + 1)
        .collect();
    LogEntry {
        term,
        index,
        kind: EntryKind::Normal,
        data: Bytes::from(data),
    }
}

fn state(term: u64, commit: u64) -> HardState {
    HardState {
        term,
        vote: 1,
        commit,
    }
}

/// One write: entry sizes, and whether it is synced.
#[derive(Clone, Debug)]
struct Write {
    sizes: Vec<usize>,
    sync: bool,
}

fn writes(most: usize) -> impl Strategy<Value = Vec<Write>> {
    let sizes = prop::collection::vec(prop_oneof![1usize..200, 200usize..3000], 0..5);
    let write = (sizes, prop::bool::weighted(0.8)).prop_map(|(sizes, sync)| Write { sizes, sync });
    prop::collection::vec(write, 1..most)
}

/// Performs the writes; returns all entries, and how many of them are synced.
fn perform(wal: &mut Wal, writes: &[Write]) -> (Vec<LogEntry>, usize) {
    let mut log = Vec::new();
    let mut synced = 0;
    for write in writes {
        let first = log.len();
        for size in &write.sizes {
            log.push(entry(log.len() as u64 + 1, 1, *size));
        }
        wal.append(Some(&state(1, first as u64)), &log[first..])
            .unwrap();
        wal.flush(write.sync).unwrap();
        if write.sync {
            synced = log.len();
        }
    }
    (log, synced)
}

fn wal_files(disk: &SimDisk) -> Vec<PathBuf> {
    let names = disk.list(Path::new(DIR)).unwrap();
    names
        .iter()
        .filter(|name| name.ends_with(".wal"))
        .map(|name| Path::new(DIR).join(name))
        .collect()
}

fn used(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_written_is_read_back(writes in writes(20), segment in 4096u64..40_000) {
        let disk = SimDisk::new();
        let (mut wal, _) = open(&disk, segment).unwrap();
        let (log, _) = perform(&mut wal, &writes);
        drop(wal);
        let (mut wal, replayed) = open(&disk.fork(), segment).unwrap();
        prop_assert_eq!(&replayed.recovered.entries, &log);
        prop_assert_eq!(replayed.recovered.hard_state.term, 1);
        prop_assert!(replayed.dropped.is_none());
        // And it goes on where it stopped.
        let next = entry(log.len() as u64 + 1, 2, 50);
        wal.append(Some(&state(2, 0)), std::slice::from_ref(&next)).unwrap();
        wal.flush(true).unwrap();
    }

    #[test]
    fn a_power_failure_loses_only_what_was_not_synced(
        writes in writes(20),
        segment in 4096u64..40_000,
        seed: u64,
        odds in 0u64..=4,
    ) {
        let disk = SimDisk::new();
        let (mut wal, _) = open(&disk, segment).unwrap();
        let (log, synced) = perform(&mut wal, &writes);
        let mut random = seed | 1;
        let crashed = disk.crash(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % 4 < odds
        });
        let (mut wal, replayed) = open(&crashed, segment).unwrap();
        let found = &replayed.recovered.entries;
        prop_assert!(found.len() >= synced, "{} of {synced} synced entries are left", found.len());
        prop_assert_eq!(&found[..], &log[..found.len()]);
        prop_assert!(replayed.recovered.hard_state.commit <= found.len() as u64);
        // A torn end is cut for good: the log goes on and reads back.
        let next = entry(found.len() as u64 + 1, 2, 700);
        wal.append(None, std::slice::from_ref(&next)).unwrap();
        wal.flush(true).unwrap();
        let (_, again) = open(&crashed.fork(), segment).unwrap();
        prop_assert!(again.dropped.is_none());
        prop_assert_eq!(again.recovered.entries.last(), Some(&next));
    }

    #[test]
    fn a_last_record_cut_short_is_dropped_and_kept_aside(
        writes in writes(10),
        last in 20usize..2000,
        cut in 1usize..2000,
        truncate: bool,
    ) {
        let disk = SimDisk::new();
        let (mut wal, _) = open(&disk, 1 << 16).unwrap();
        let (log, _) = perform(&mut wal, &writes);
        let file = wal_files(&disk).pop().unwrap();
        let before = used(&disk.bytes(&file).unwrap()).next_multiple_of(8);
        wal.append(None, &[entry(log.len() as u64 + 1, 1, last)]).unwrap();
        wal.flush(true).unwrap();
        prop_assume!(wal_files(&disk).pop().unwrap() == file);
        let end = used(&disk.bytes(&file).unwrap());
        let at = end - 1 - cut % (end - before - 1);
        disk.damage(&file, |bytes| if truncate { bytes.truncate(at) } else { bytes[at..].fill(0) });
        let (_, replayed) = open(&disk, 1 << 16).unwrap();
        prop_assert_eq!(&replayed.recovered.entries, &log);
        let dropped = replayed.dropped.unwrap();
        prop_assert_eq!(&dropped.file, &file);
        prop_assert_eq!(dropped.offset, before as u64);
        prop_assert!(disk.bytes(&dropped.copy).unwrap().len() as u64 == dropped.bytes);
        let (_, again) = open(&disk, 1 << 16).unwrap();
        prop_assert!(again.dropped.is_none());
    }

    #[test]
    fn a_flipped_bit_is_refused_with_file_and_place(
        mut writes in writes(12),
        segment in 4096u64..40_000,
        file: prop::sample::Index,
        at: prop::sample::Index,
        bit in 0u32..8,
    ) {
        for write in &mut writes {
            write.sync = true;
        }
        let disk = SimDisk::new();
        let (mut wal, _) = open(&disk, segment).unwrap();
        perform(&mut wal, &writes);
        let files = wal_files(&disk);
        let file = file.get(&files);
        let used = used(&disk.bytes(file).unwrap());
        let at = at.index(used);
        disk.damage(file, |bytes| bytes[at] ^= 1 << bit);
        match open(&disk, segment).map(|(_, replayed)| replayed) {
            Err(DiskError::Corrupt { file: named, offset, .. }) => {
                // The chain may show it at the next record, at the latest at the next segment.
                if &named == file {
                    prop_assert!(offset <= at as u64, "flipped at {}, reported at {}", at, offset);
                    prop_assert!(at as u64 <= offset + 4000);
                }
            }
            Err(other) => prop_assert!(false, "{}", other),
            Ok(replayed) => prop_assert!(false, "accepted: {:?}", replayed.dropped),
        }
    }

    #[test]
    fn hostile_bytes_never_panic(garbage in prop::collection::vec(any::<u8>(), 1..600), at in 0usize..5000) {
        let disk = SimDisk::new();
        let (mut wal, _) = open(&disk, 8192).unwrap();
        perform(&mut wal, &[Write { sizes: vec![900, 900, 900], sync: true }]);
        let file = wal_files(&disk).pop().unwrap();
        disk.damage(&file, |bytes| bytes[at..at + garbage.len()].copy_from_slice(&garbage));
        let _ = open(&disk, 8192);
    }
}

#[test]
fn after_a_failed_sync_nothing_is_written_any_more() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 1 << 16).unwrap();
    wal.append(None, &[entry(1, 1, 10)]).unwrap();
    wal.flush(true).unwrap();
    disk.fail_sync(0);
    wal.append(None, &[entry(2, 1, 10)]).unwrap();
    assert!(matches!(wal.flush(true), Err(DiskError::Sync { .. })));
    assert!(matches!(
        wal.append(None, &[entry(3, 1, 10)]),
        Err(DiskError::Closed)
    ));
    assert!(matches!(wal.flush(true), Err(DiskError::Closed)));
    let (_, replayed) = open(&disk.crash(|_| false), 1 << 16).unwrap();
    assert_eq!(replayed.recovered.entries.len(), 1);
}

#[test]
fn conflicting_entries_are_replaced() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 4096).unwrap();
    let old: Vec<_> = (1..=30).map(|index| entry(index, 1, 300)).collect();
    let new: Vec<_> = (20..=25).map(|index| entry(index, 2, 300)).collect();
    wal.append(Some(&state(1, 10)), &old).unwrap();
    wal.append(Some(&state(2, 10)), &new).unwrap();
    wal.flush(true).unwrap();
    let (_, replayed) = open(&disk, 4096).unwrap();
    let terms: Vec<_> = replayed
        .recovered
        .entries
        .iter()
        .map(|entry| entry.term)
        .collect();
    assert_eq!(terms, [vec![1; 19], vec![2; 6]].concat());
}

/// What a crash leaves of a write that replaces entries and commits the new ones: the
/// old ones, or part of the new, and in no case a commit index that counts on others.
#[test]
fn a_torn_write_commits_nothing_it_did_not_bring() {
    for segment in [1_200, 4_096] {
        let disk = SimDisk::new();
        let (mut wal, _) = open(&disk, segment).unwrap();
        let old: Vec<_> = (1..=9).map(|index| entry(index, 1, 90)).collect();
        let new: Vec<_> = (4..=8).map(|index| entry(index, 2, 150)).collect();
        wal.append(Some(&state(1, 3)), &old).unwrap();
        wal.flush(true).unwrap();
        wal.append(Some(&state(2, 7)), &new).unwrap();
        wal.flush(false).unwrap();
        let whole = disk.fork();
        let mut commits = std::collections::BTreeSet::new();
        for kept in 0..200 {
            let mut sectors = 0;
            let torn = disk.crash(|_| {
                sectors += 1;
                sectors <= kept
            });
            let (wal, replayed) = open(&torn, segment).unwrap();
            let recovered = replayed.recovered;
            let commit = recovered.hard_state.commit;
            let committed = &recovered.entries[..commit as usize];
            assert_eq!(committed[..3], old[..3], "{kept} sectors of {segment}");
            assert_eq!(committed[3..], new[..commit as usize - 3]);
            assert_eq!(wal.hard_state(), recovered.hard_state);
            commits.insert(commit);
        }
        assert_eq!(commits.into_iter().collect::<Vec<_>>(), [3, 7]);
        let (_, replayed) = open(&whole, segment).unwrap();
        assert_eq!(replayed.recovered.hard_state, state(2, 7));
    }
}

#[test]
fn released_segments_are_gone_and_the_rest_still_knows_the_term_before() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 4096).unwrap();
    for index in 1..=100 {
        wal.append(Some(&state(1, index - 1)), &[entry(index, 1, 200)])
            .unwrap();
        wal.flush(true).unwrap();
    }
    let before = wal.segment_count();
    assert!(before > 4, "{before} segments");
    assert!(wal.release(60).unwrap() > 0);
    drop(wal);
    let (mut wal, replayed) = open(&disk.crash(|_| false), 4096).unwrap();
    let recovered = replayed.recovered;
    assert!(
        recovered.base_index <= 60 && recovered.base_index > 30,
        "{}",
        recovered.base_index
    );
    assert_eq!(recovered.base_term, 1);
    assert_eq!(recovered.last_index(), 100);
    assert_eq!(recovered.entries[0].index, recovered.base_index + 1);
    wal.release(100).unwrap();
    assert_eq!(wal.segment_count(), 1, "the one written to always stays");
}

#[test]
fn a_snapshot_marker_starts_the_log_anew() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 1 << 16).unwrap();
    wal.append(
        Some(&state(1, 3)),
        &[entry(1, 1, 10), entry(2, 1, 10), entry(3, 1, 10)],
    )
    .unwrap();
    wal.append_snapshot(50, 4).unwrap();
    wal.append(Some(&state(4, 51)), &[entry(51, 4, 10)])
        .unwrap();
    wal.flush(true).unwrap();
    let (_, replayed) = open(&disk, 1 << 16).unwrap();
    assert_eq!(
        (replayed.recovered.base_index, replayed.recovered.base_term),
        (50, 4)
    );
    assert_eq!(replayed.recovered.entries, [entry(51, 4, 10)]);
}

#[test]
fn a_missing_segment_is_refused() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 4096).unwrap();
    perform(
        &mut wal,
        &vec![
            Write {
                sizes: vec![900, 900],
                sync: true
            };
            12
        ],
    );
    let files = wal_files(&disk);
    assert!(files.len() > 3);
    disk.remove(&files[1]).unwrap();
    let error = open(&disk, 4096).unwrap_err();
    assert!(
        matches!(&error, DiskError::Corrupt { file, .. } if file == &files[2]),
        "{error}"
    );
}

#[test]
fn an_older_segment_cut_short_is_refused() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 4096).unwrap();
    perform(
        &mut wal,
        &vec![
            Write {
                sizes: vec![900, 900],
                sync: true
            };
            12
        ],
    );
    let files = wal_files(&disk);
    disk.damage(&files[1], |bytes| bytes.truncate(2000));
    let error = open(&disk, 4096).unwrap_err();
    assert!(
        matches!(&error, DiskError::Corrupt { file, .. } if file == &files[1]),
        "{error}"
    );
}

#[test]
fn another_members_log_is_refused() {
    let disk = SimDisk::new();
    drop(open(&disk, 4096).unwrap());
    let other = Identity {
        cluster_id: 0xC1,
        member_id: 0xB2,
    };
    let options = Options {
        identity: other,
        segment_bytes: 4096,
    };
    let error = Wal::open(Arc::new(disk), Path::new(DIR), options).unwrap_err();
    assert!(
        matches!(
            error,
            DiskError::OtherMember {
                found_member: 0xA1,
                member: 0xB2,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_spare_segment_is_used_and_a_record_larger_than_a_segment_fits() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 8192).unwrap();
    wal.append(None, &[entry(1, 1, 5000)]).unwrap();
    wal.flush(true).unwrap();
    let mut job = wal.spare_wanted().unwrap();
    assert!(wal.spare_wanted().is_none(), "one at a time");
    job.run();
    wal.offer_spare(job);
    wal.append(None, &[entry(2, 1, 5000), entry(3, 1, 50_000)])
        .unwrap();
    wal.flush(true).unwrap();
    assert_eq!(wal.segment_count(), 3);
    assert!(wal.size_bytes() > 50_000);
    let (_, replayed) = open(&disk.crash(|_| false), 8192).unwrap();
    assert_eq!(replayed.recovered.entries.len(), 3);
}

#[test]
fn only_one_sync_for_a_batch() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 1 << 20).unwrap();
    let before = disk.syncs();
    let batch: Vec<_> = (1..=100).map(|index| entry(index, 1, 300)).collect();
    wal.append(Some(&state(1, 0)), &batch).unwrap();
    wal.flush(true).unwrap();
    assert_eq!(disk.syncs() - before, 1);
    wal.flush(true).unwrap();
    assert_eq!(disk.syncs() - before, 1, "nothing to sync");
}

#[test]
fn a_full_disk_is_named_and_the_next_start_finds_all() {
    let disk = SimDisk::new();
    disk.set_full(true);
    let error = open(&disk, 4096).unwrap_err();
    assert!(matches!(error, DiskError::Full { .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("/wal/next.tmp") && said.contains("no space left"),
        "{said}"
    );
    let left = disk.list(Path::new(DIR)).unwrap();
    assert!(left.is_empty(), "half a segment takes room: {left:?}");
    disk.set_full(false);
    let (mut wal, _) = open(&disk, 4096).unwrap();
    wal.append(Some(&state(1, 0)), &[entry(1, 1, 100)]).unwrap();
    wal.flush(true).unwrap();
    disk.set_full(true);
    let mut index = 2;
    let error = loop {
        // Within the segment made before there is room.
        let written = wal.append(None, &[entry(index, 1, 1000)]);
        match written.and_then(|()| wal.flush(true)) {
            Ok(()) => index += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_full(), "{error}");
    let mut job = wal.spare_wanted().unwrap();
    job.run();
    wal.offer_spare(job);
    assert!(
        wal.spare_wanted().is_none(),
        "it is not tried over and over"
    );
    let (_, replayed) = open(&disk.fork(), 4096).unwrap();
    assert_eq!(replayed.recovered.last_index(), index - 1);
    // Nothing half done is in the way once there is room.
    disk.set_full(false);
    wal.append(None, &[entry(index, 1, 1000)]).unwrap();
    wal.flush(true).unwrap();
    let (_, replayed) = open(&disk.crash(|_| false), 4096).unwrap();
    assert_eq!(replayed.recovered.last_index(), index);
}

/// Writes entries until the next one needs a new segment, has one of another term
/// take the place of the last, and goes on.
fn overwritten_at_a_boundary(disk: &SimDisk) -> (Wal, u64) {
    let (mut wal, _) = open(disk, 4096).unwrap();
    let mut last = 0;
    while wal.segment_count() == 1 {
        last += 1;
        wal.append(Some(&state(1, last - 1)), &[entry(last, 1, 700)])
            .unwrap();
        wal.flush(true).unwrap();
        // The one that would begin the next segment is of the next leader.
        if used(&disk.bytes(&wal_files(disk)[0]).unwrap()) + 800 > 4096 {
            wal.append(Some(&state(2, last - 1)), &[entry(last, 2, 700)])
                .unwrap();
            wal.flush(true).unwrap();
        }
    }
    (wal, last)
}

#[test]
fn a_segment_that_begins_over_an_entry_keeps_the_one_before() {
    let disk = SimDisk::new();
    let (mut wal, last) = overwritten_at_a_boundary(&disk);
    assert_eq!(wal.segment_count(), 2);
    assert_eq!(wal.release(last).unwrap(), 0, "its head names a void entry");
    drop(wal);
    let (mut wal, replayed) = open(&disk.crash(|_| false), 4096).unwrap();
    let found = replayed.recovered.entries.last().unwrap();
    assert_eq!((found.index, found.term), (last, 2));
    assert_eq!(wal.release(last).unwrap(), 0, "nor after a start");
    // The next segment goes on as it should, and the two may go together.
    let mut next = last;
    while wal.segment_count() == 2 {
        next += 1;
        wal.append(None, &[entry(next, 2, 700)]).unwrap();
    }
    wal.flush(true).unwrap();
    assert_eq!(wal.release(next).unwrap(), 2);
}

#[test]
fn what_is_replaced_far_back_keeps_the_segments_up_to_there() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 4096).unwrap();
    let old: Vec<_> = (1..=40).map(|index| entry(index, 1, 300)).collect();
    let new: Vec<_> = (5..=90).map(|index| entry(index, 2, 300)).collect();
    wal.append(Some(&state(1, 4)), &old).unwrap();
    wal.append(Some(&state(2, 4)), &new[..10]).unwrap();
    wal.append(Some(&state(2, 4)), &new[10..]).unwrap();
    wal.flush(true).unwrap();
    let mut before = wal.segment_count();
    for covered in 4..=90 {
        wal.release(covered).unwrap();
        let (_, replayed) = open(&disk.fork(), 4096).unwrap();
        let recovered = replayed.recovered;
        assert!(recovered.base_index <= covered);
        assert_eq!(recovered.last_index(), 90, "covered {covered}");
        let after = recovered
            .entries
            .iter()
            .filter(|entry| entry.index > covered);
        assert!(
            after
                .clone()
                .all(|entry| entry.term == 2 || entry.index < 5)
        );
        assert_eq!(after.count() as u64, 90 - covered);
        before = before.min(wal.segment_count());
    }
    assert_eq!(before, 1, "and they go when nothing from before is needed");
}

#[test]
fn a_log_that_begins_anew_where_an_entry_was_overwritten_opens() {
    let disk = SimDisk::new();
    let (mut wal, last) = overwritten_at_a_boundary(&disk);
    let base = disk::Base {
        index: last + 50,
        term: 3,
    };
    wal.reset(base, None).unwrap();
    let (_, replayed) = open(&disk.crash(|_| false), 4096).unwrap();
    assert_eq!(replayed.recovered.base_index, base.index);
}
