//! What the log costs without waiting for its disk: records made, chained, checksummed
//! and handed to the kernel. `cargo bench -p disk`.

#![allow(
    clippy::unwrap_used,
    reason = "a bench fails where it finds a surprise"
)]

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput};
use disk::{Identity, Options, RealDisk, Unsynced, Wal};
use member::{EntryKind, HardState, LogEntry, decode_entry, encode_entry};

/// Bytes of a put of a small object, as it is in an entry.
const ENTRY_BYTES: usize = 360;

/// Small, so that one is begun, and the oldest released, as often as it is in a log
/// that is busy.
const SEGMENT_BYTES: u64 = 4 << 20;

fn entry(index: u64) -> LogEntry {
    LogEntry {
        term: 1,
        index,
        kind: EntryKind::Normal,
        data: Bytes::from_static(&[b'v'; ENTRY_BYTES]),
    }
}

fn encoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("entry");
    group.throughput(Throughput::Bytes(ENTRY_BYTES as u64));
    let one = entry(1_000_000);
    let mut out = Vec::with_capacity(1_024);
    group.bench_function("encode", |b| {
        b.iter(|| {
            out.clear();
            encode_entry(black_box(&one), &mut out);
        });
    });
    let bytes = Bytes::from(out.clone());
    group.bench_function("decode", |b| {
        b.iter(|| decode_entry(black_box(&bytes).clone()).unwrap());
    });
    group.finish();
}

/// One write of some entries.
fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("wal append and write");
    for count in [1_u64, 16, 256] {
        group.throughput(Throughput::Elements(count));
        let options = Options {
            identity: Identity::default(),
            segment_bytes: SEGMENT_BYTES,
        };
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(Unsynced(RealDisk));
        let (mut wal, _new) = Wal::open(disk, dir.path(), options).unwrap();
        let (mut index, mut segments) = (0, 1);
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| {
                let entries: Vec<_> = (index + 1..=index + count).map(entry).collect();
                let state = HardState {
                    term: 1,
                    vote: 1,
                    commit: index,
                };
                index += count;
                wal.append(Some(&state), &entries).unwrap();
                wal.flush(true).unwrap();
                if wal.segment_count() > segments {
                    wal.release(index).unwrap();
                    segments = wal.segment_count();
                }
            });
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    encoding(&mut criterion);
    append(&mut criterion);
    criterion.final_summary();
}
