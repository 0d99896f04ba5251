//! Snapshots: the store as one file, in the form etcd gives and takes.
//!
//! ```text
//! running store --view--> export --bbolt--> file --32 KiB blobs--> etcdctl, `save`
//!                                                     |
//! data directory <--rows-- restore <--bbolt reader ---+---> status
//! ```
//!
//! The file is a bbolt database as etcd 3.5 lays it out, and behind it the SHA-256
//! of all that. So etcd's tools read ours and ours read etcd's; revisions, leases,
//! users, alarms and with them HashKV are the same on either side.
//!
//! What is guaranteed: a snapshot is one moment of the store, which goes on
//! meanwhile; memory does not grow with the store; a file that is cut, changed
//! or hostile is refused and leaves no data directory.

mod error;
mod export;
mod file;
mod restore;
mod save;
mod schema;
mod status;
mod stream;

pub(crate) use self::stream::{SNAPSHOTS_MAX, SnapshotStream, begin};
pub use self::{
    error::SnapshotError,
    restore::{Restore, Restored, restore},
    save::{Save, Saved, save},
    status::{SnapshotStatus, status},
};

/// Is told how far a long step is: bytes done, of how many.
pub type Progress<'a> = dyn FnMut(u64, u64) + Send + 'a;
