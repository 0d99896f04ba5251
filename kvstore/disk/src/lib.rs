//! What the store keeps on disk: the log, the rows, and the directory they are in.
//!
//! ```text
//! <data-dir>/VERSION     the format of everything beside it
//! <data-dir>/LOCK        held while a process uses the directory
//! <data-dir>/MEMBER      who the member is (crate `kvserver`)
//! <data-dir>/fixtures/   certificates it made for itself (crate `kvserver`)
//! <data-dir>/wal/        the replicated log, in segments ([`Wal`]), unless elsewhere
//! <data-dir>/ROWS        which directory of rows counts ([`RowsHome`])
//! <data-dir>/db/         rows written behind the log ([`Rows`]): sled, and heap/ for
//!                        large ones; db-1/ and so on are rows that a snapshot brought
//! ```
//!
//! What is guaranteed:
//! - what [`Wal::flush`] synced is there after any crash, or opening refuses;
//! - only a write the last crash tore is ever dropped, and a copy of it is kept;
//! - every other damage is refused with the file and the byte offset;
//! - after a failed sync nothing more is written: the caller ends the process,
//!   because the kernel may have thrown the pages away (the fsync lesson of 2018);
//! - rows and the applied index they reflect change in one atomic batch;
//! - a directory is synced after every create, rename and remove in it.
//!
//! All file access of the log goes through [`Disk`], so that [`SimDisk`] can lose,
//! tear and fail.

mod dir;
mod error;
mod file;
mod rows;
mod rows_home;
mod simulated;
mod wal;

pub use crate::{
    dir::{DataDir, FORMAT, check_usable, in_use, rows_on_disk},
    error::DiskError,
    file::{Disk, File, RealDisk, Unsynced},
    rows::{Defragmentation, Rows, Tidied},
    rows_home::{RowsHome, RowsPointer, install},
    simulated::{Keep, PowerCut, SimDisk},
    wal::{
        Base, Dropped, Dumped, DumpedRecord, Identity, Options, Replayed, SEGMENT_BYTES, SpareJob,
        Wal, dump,
    },
};
