//! Watches: who wants to hear of which keys, and what they have not heard yet.
//!
//! The hub is pure and belongs to the thread that applies. The shell has one
//! task per client stream: [`WatchHub::publish`] says which streams have
//! something, the task calls [`WatchHub::poll`] until `more` is false.
//!
//! ```text
//! publish -> Interest -> Watcher.pending --poll--> replies       (synced)
//!                           | full
//!                           v
//!                        history ---------poll--> replies       (behind)
//! ```
//!
//! A watcher is never dropped for being slow and nobody waits for it: past its
//! limit it leaves the live path and reads history at its own pace. Only
//! compaction ends it.

mod history;
mod hub;
mod interest;
mod watcher;

use std::sync::Arc;

use bytes::Bytes;

pub use hub::WatchHub;
pub use watcher::WatchLimits;

use crate::response::Event;

/// Names a client's watch stream; the shell chooses it, unique per hub.
pub type StreamId = u64;

/// Asks for a watch. An empty key means the key `"\0"`; the hub does the mapping.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchCreate {
    /// The key or the start of the range.
    pub key: Bytes,
    /// Empty for one key, `"\0"` for every key from `key` on, else exclusive end.
    pub range_end: Bytes,
    /// The first revision of interest; 0 means from now on.
    pub start_revision: i64,
    /// The wanted id, 0 to have one chosen.
    pub watch_id: i64,
    /// Asks for periodic progress replies.
    pub progress_notify: bool,
    /// Asks for the pair before each change.
    pub prev_kv: bool,
    /// Leaves puts out.
    pub filter_put: bool,
    /// Leaves deletes out.
    pub filter_delete: bool,
    /// Permits splitting large replies; carried for the edge, which splits.
    pub fragment: bool,
}

/// Is one message of a watch stream.
#[derive(Debug, Clone, Default)]
pub struct WatchReply {
    /// The watch; -1 for a refused creation and for a requested progress reply.
    pub watch_id: i64,
    /// The header's revision; 0 where etcd leaves it 0.
    pub revision: i64,
    /// Confirms a creation.
    pub created: bool,
    /// Ends the watch.
    pub canceled: bool,
    /// The compacted revision, when that ended the watch; else 0.
    pub compact_revision: i64,
    /// Why it ended.
    pub cancel_reason: String,
    /// Whether the edge may split this reply.
    pub fragment: bool,
    /// Whether the edge encodes `event.prev_kv()` (already filled).
    pub prev_kv: bool,
    /// The changes; all of a revision are in one reply.
    pub events: Vec<Arc<Event>>,
}

/// Is what one poll yields.
#[derive(Debug, Clone, Default)]
pub struct Polled {
    /// Messages in the order in which they must be sent.
    pub replies: Vec<WatchReply>,
    /// Poll again without waiting to be told.
    pub more: bool,
}
