//! The log's reader, against damaged segments and against records that are
//! well sealed but say strange things.
//!
//! Promised (`disk`): a torn end of the last segment is cut off; every other
//! damage is refused with the file and the offset; what was written before the
//! damage is never lost in silence.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use disk::{Disk, DiskError, Identity, Options, Replayed, SimDisk, Wal};
use member::{EntryKind, HardState, LogEntry};

use super::draw::Draw;

const DIR: &str = "/wal";
const ME: Identity = Identity {
    cluster_id: 0xC1,
    member_id: 0xA1,
};
/// Small, so that a short input makes several.
const SEGMENT_BYTES: u64 = 4096;
/// The most writes and damages one input asks for.
const WRITES_MAX: usize = 24;

fn open(disk: &SimDisk) -> Result<(Wal, Replayed), DiskError> {
    Wal::open(
        Arc::new(disk.clone()),
        Path::new(DIR),
        Options {
            identity: ME,
            segment_bytes: SEGMENT_BYTES,
        },
    )
}

fn segments(disk: &SimDisk) -> Vec<PathBuf> {
    let mut names = disk.list(Path::new(DIR)).expect("the directory is there");
    names.retain(|name| name.ends_with(".wal"));
    names.sort();
    names.iter().map(|name| Path::new(DIR).join(name)).collect()
}

/// How far a file is written: everything up to here is a record's.
fn used(bytes: &[u8]) -> usize {
    let last = bytes.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |at| (at + 1).next_multiple_of(8))
}

/// A log as it was written: its entries, and where each had ended.
struct Written {
    disk: SimDisk,
    entries: Vec<(LogEntry, PathBuf, usize)>,
}

fn write(draw: &mut Draw<'_>) -> Written {
    let disk = SimDisk::new();
    let mut entries = Vec::new();
    let (mut wal, _) = open(&disk).expect("an empty directory");
    let mut index = 0;
    let mut term = 1;
    for _ in 0..1 + draw.below(WRITES_MAX) {
        term += u64::from(draw.byte() / 200);
        let count = 1 + draw.below(4);
        let batch: Vec<LogEntry> = (0..count)
            .map(|_| {
                index += 1;
                let len = match draw.byte() {
                    0..200 => draw.below(64),
                    _ => draw.below(2048),
                };
                // No zeros, which are how an unwritten sector looks.
                let data = vec![(index % 255) as u8 + 1; len];
                LogEntry {
                    term,
                    index,
                    kind: EntryKind::Normal,
                    data: Bytes::from(data),
                }
            })
            .collect();
        let state = HardState {
            term,
            vote: 1,
            commit: index - count as u64,
        };
        let state = (draw.byte().is_multiple_of(2)).then_some(state);
        wal.append(state.as_ref(), &batch).expect("room");
        wal.flush(!draw.byte().is_multiple_of(4))
            .expect("a good disk");
        let file = segments(&disk).pop().expect("a segment");
        let end = used(&disk.bytes(&file).expect("its bytes"));
        entries.extend(batch.into_iter().map(|entry| (entry, file.clone(), end)));
    }
    Written { disk, entries }
}

/// The first byte that differs, taking what a file lacks for zeros.
fn first_difference(old: &[u8], new: &[u8]) -> Option<usize> {
    let at = |bytes: &[u8], place: usize| bytes.get(place).copied().unwrap_or(0);
    (0..old.len().max(new.len())).find(|place| at(old, *place) != at(new, *place))
}

/// Writes a log, damages one segment, and opens it.
pub fn wal(input: &[u8]) {
    let mut draw = Draw::new(input);
    let written = write(&mut draw);
    let files = segments(&written.disk);
    let hit = draw.below(files.len());
    let before = written.disk.bytes(&files[hit]).expect("its bytes");
    let mut after = before.clone();
    for _ in 0..1 + draw.below(3) {
        draw.damage(&mut after);
    }
    let damaged = first_difference(&before, &after);
    written.disk.damage(&files[hit], |bytes| *bytes = after);
    let intact = written
        .entries
        .iter()
        .filter(|(_, file, end)| match file.cmp(&files[hit]) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => damaged.is_none_or(|place| *end <= place),
            std::cmp::Ordering::Greater => damaged.is_none(),
        })
        .count();
    match open(&written.disk) {
        Ok((_, replayed)) => {
            let got = &replayed.recovered.entries;
            assert!(
                got.len() >= intact,
                "{intact} entries were written before the damage, {} came back",
                got.len()
            );
            for (got, (want, ..)) in got.iter().zip(&written.entries) {
                assert_eq!(got, want);
            }
            assert!(got.len() <= written.entries.len());
            if damaged.is_some() && hit + 1 < files.len() {
                panic!("damage in the middle of the log was not seen");
            }
            goes_on(&written.disk, &replayed);
        }
        Err(DiskError::Corrupt { file, offset, .. }) => {
            let place = damaged.expect("nothing was damaged, and it is refused");
            // A segment cut at a record's end shows only where the next begins.
            let next = files.get(hit + 1) == Some(&file) && offset == 0;
            assert!(
                next || (file == files[hit] && offset <= place as u64),
                "{} at {offset}, damaged was {} at {place}",
                file.display(),
                files[hit].display()
            );
        }
        Err(other) => panic!("{other}"),
    }
}

/// A log that was opened opens again with the same content, and takes more.
fn goes_on(disk: &SimDisk, first: &Replayed) {
    let (mut wal, again) = open(disk).expect("what was opened opens again");
    assert_eq!(again.recovered.entries, first.recovered.entries);
    assert!(again.dropped.is_none(), "a torn end is cut off once");
    let Some(index) = again.recovered.last_index().checked_add(1) else {
        return;
    };
    let next = LogEntry {
        term: 1 << 40,
        index,
        kind: EntryKind::Normal,
        data: Bytes::from_static(b"more"),
    };
    wal.append(None, std::slice::from_ref(&next)).expect("room");
    wal.flush(true).expect("a good disk");
    drop(wal);
    let (_, last) = open(disk).expect("what was written opens");
    assert_eq!(last.recovered.entries.last(), Some(&next));
}

/// Opens a segment whose records are sealed as they should be and say anything.
pub fn wal_records(input: &[u8]) {
    let mut draw = Draw::new(input);
    let disk = SimDisk::new();
    disk.create_dir(Path::new(DIR)).expect("a directory");
    let (number, base) = match draw.byte() % 4 {
        0 => (draw.long(), draw.long()),
        _ => (1, 0),
    };
    let mut bytes = Vec::new();
    let mut chain = 0;
    let head = match draw.byte() % 8 {
        0 => draw.bytes(80).to_vec(),
        _ => segment_head(number, base, draw.long() % 4),
    };
    seal(&mut bytes, 0xA1, &head, &mut chain, number, 0);
    while !draw.is_empty() && bytes.len() < 1 << 16 {
        let kind = [0xA1, 0xA2, 0xA3, 0xA3, 0xA3, 0xA4][draw.below(6)];
        let synced = bytes.len() as u32 * u32::from(draw.byte() % 2);
        let payload = match draw.byte() % 4 {
            0 => {
                let len = draw.below(64);
                draw.bytes(len).to_vec()
            }
            1 => [draw.long().to_le_bytes(), draw.long().to_le_bytes()].concat(),
            _ => {
                let mut payload = Vec::new();
                match kind {
                    0xA2 => member::encode_hard_state(
                        &HardState {
                            term: draw.long(),
                            vote: draw.long(),
                            commit: draw.long(),
                        },
                        &mut payload,
                    ),
                    _ => member::encode_entry(
                        &LogEntry {
                            term: 1,
                            index: match draw.byte() {
                                0..250 => base.wrapping_add(u64::from(draw.byte() % 8)),
                                _ => draw.long(),
                            },
                            kind: EntryKind::Normal,
                            data: Bytes::from_static(b"x"),
                        },
                        &mut payload,
                    ),
                }
                payload
            }
        };
        seal(&mut bytes, kind, &payload, &mut chain, number, synced);
    }
    bytes.resize(bytes.len().max(SEGMENT_BYTES as usize), 0);
    let path = Path::new(DIR).join(format!("{number:016x}-{base:016x}.wal"));
    let mut file = disk.create(&path).expect("a file");
    file.write_at(&bytes, 0).expect("a good disk");
    drop(file);
    match open(&disk) {
        Ok((_, replayed)) => goes_on(&disk, &replayed),
        Err(DiskError::Corrupt { file, .. }) => assert_eq!(file, path),
        Err(DiskError::OtherMember { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}

/// The payload of a segment's first record, as `disk` lays it out.
fn segment_head(number: u64, base: u64, term: u64) -> Vec<u8> {
    let mut head = 1u32.to_le_bytes().to_vec();
    for word in [ME.cluster_id, ME.member_id, number, base, term] {
        head.extend(word.to_le_bytes());
    }
    member::encode_hard_state(&HardState::default(), &mut head);
    head
}

/// Appends one record with its checksums, as `disk` lays it out.
fn seal(out: &mut Vec<u8>, kind: u8, payload: &[u8], chain: &mut u32, number: u64, synced: u32) {
    let len = payload.len() as u32;
    let mut body = crc32fast::Hasher::new();
    body.update(&chain.to_le_bytes());
    body.update(&[kind]);
    body.update(&len.to_le_bytes());
    body.update(payload);
    let body = body.finalize();
    let mut head = [0; 32];
    for (at, word) in [body, *chain, synced, len, number as u32]
        .iter()
        .enumerate()
    {
        head[4 + 4 * at..8 + 4 * at].copy_from_slice(&word.to_le_bytes());
    }
    head[24] = kind;
    let sum = crc32fast::hash(&head[4..]);
    head[..4].copy_from_slice(&sum.to_le_bytes());
    out.extend(head);
    out.extend(payload);
    out.push(0xC3);
    out.resize(out.len().next_multiple_of(8), 0);
    *chain = body;
}
