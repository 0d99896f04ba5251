//! What the rows hold in memory while small ones come as fast as they can. In a process
//! of its own, whose memory is that of the one test.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]

use bytes::Bytes;
use disk::Rows;
use mvcc::WriteBack;

const BATCHES: u64 = 15;
const ROWS: u64 = 4_000;

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() >> 10
}

/// Keys of leases: anywhere, so that each is on another page than the one before.
fn key(n: u64) -> Bytes {
    let anywhere = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [b"l".as_slice(), &anywhere.to_be_bytes()].concat().into()
}

#[test]
fn what_a_batch_replaced_is_freed_before_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let rows = Rows::open(&dir.path().join("db")).unwrap();
    let before = resident_mb();
    for token in 1..=BATCHES {
        let numbers = (token - 1) * ROWS..token * ROWS;
        let batch = WriteBack {
            token,
            applied_index: token,
            applied_term: 1,
            revision: 1,
            rows: numbers
                .map(|n| (key(n), Some(Bytes::from_static(&[7; 16]))))
                .collect(),
        };
        rows.write(&batch).unwrap();
        rows.flush().unwrap();
    }
    let grown = resident_mb().saturating_sub(before);
    // With the garbage of all batches it is over 200.
    assert!(grown < 120, "{grown} MB for {} small rows", BATCHES * ROWS);
}
