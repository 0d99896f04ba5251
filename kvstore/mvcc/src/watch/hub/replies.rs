//! Replies that carry no events.

use crate::watch::WatchReply;

/// Stands in a reply for "no watch" (etcd `clientv3.InvalidWatchID`).
pub(super) const NO_WATCH: i64 = -1;

/// Builds the refusal of a creation.
pub(super) fn refusal(revision: i64, reason: String) -> WatchReply {
    WatchReply {
        watch_id: NO_WATCH,
        revision,
        created: true,
        canceled: true,
        cancel_reason: reason,
        ..WatchReply::default()
    }
}

/// Builds the answer to a request for progress.
pub(super) fn progress(revision: i64) -> WatchReply {
    WatchReply {
        watch_id: NO_WATCH,
        revision,
        ..WatchReply::default()
    }
}

/// Builds the end of a watch whose past is gone; etcd leaves its header empty.
pub(super) fn compacted(watch_id: i64, compact_revision: i64) -> WatchReply {
    WatchReply {
        watch_id,
        canceled: true,
        compact_revision,
        ..WatchReply::default()
    }
}
