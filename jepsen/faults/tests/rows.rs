//! What the store's rows promise to be durable is still there after a power cut.
//!
//! sled says "flushed" after `sync_file_range`, which promises neither the size of the
//! file nor that the disk wrote what it took: rows that the log had been released for
//! were gone, and the member refused to start.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

use disk::Rows;
use faults::FaultFs;
use faults::faultfs::{Names, Unsynced};
use mvcc::WriteBack;
use rand::SeedableRng;
use rand::rngs::StdRng;

fn batch(number: u64) -> WriteBack {
    WriteBack {
        token: number,
        applied_index: number,
        applied_term: 1,
        revision: 1,
        rows: vec![(
            format!("key {number}").into(),
            Some(format!("row {number}").into()),
        )],
    }
}

#[test]
fn flushed_rows_survive_a_power_cut() {
    let mut rng = StdRng::seed_from_u64(1);
    for unsynced in [Unsynced::Lost, Unsynced::Torn] {
        let mut fs = match FaultFs::mount(Names::FoldersOnly) {
            Ok(fs) => fs,
            Err(why) => return eprintln!("cannot run: {why}"),
        };
        let path = fs.data();
        for round in 0..5 {
            let rows = Rows::open(&path).unwrap();
            for number in 0..round * 20 {
                let found = mvcc::backend::Backend::get(&rows, format!("key {number}").as_bytes());
                let found = found.unwrap();
                assert_eq!(
                    found.as_deref(),
                    Some(format!("row {number}").as_bytes()),
                    "{unsynced:?}, round {round}"
                );
            }
            for number in round * 20..(round + 1) * 20 {
                rows.write(&batch(number)).unwrap();
                rows.flush().unwrap();
            }
            drop(rows);
            fs.cut_power(unsynced, &mut rng).unwrap();
        }
        assert!(fs.counts().syncs > 0);
    }
}
