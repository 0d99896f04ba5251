//! The watch cache of one resource, as a value.
//!
//! The store is watched once per resource; what it says is [`ingest`]ed here,
//! and from here every list and every client's watch is served. The crate is
//! pure: it decides *what* each watcher must see and keeps it in the watcher's
//! [`Line`]; the driver in `apiserver::storage` owns the clock, the store and
//! the sockets. It waits for nobody: who waits leaves a waker.
//!
//! The rooms: `cacher` is the present, with `window` for what was and
//! `watchers` (and their `index`) for who wants to know; `hub` joins it with
//! the `line`s to clients; `budget` limits how long they may be late; `audit`
//! compares the cache with the store.
//!
//! Promises, which the property tests (`src/model.rs`, `src/storm.rs`) hold it to:
//! 1. a watcher sees every change that concerns it once, in revision order;
//! 2. ADDED, MODIFIED and DELETED follow from (now, before) × selector;
//! 3. DELETED shows the last content under the revision of the deletion;
//! 4. the bookmark that ends initial events is of a revision that all of them,
//!    and the state that was asked for, are contained in;
//! 5. the state is at least as new as the revision the cache says it reached;
//! 6. a snapshot at revision N is the store's state at N, or is refused;
//! 7. after something a watcher was not shown it is shown nothing: a slow one
//!    is closed, never skipped;
//! 8. a bookmark's revision is reached: everything before it was shown;
//! 9. a start older than the window is refused, and one that is not is served:
//!    after a list, from its revision on;
//! 10. an event's bytes are the same for every watcher;
//! 11. the cache equals the store, or an audit says so;
//! 12. a snapshot from before the store's compaction is refused.
//!
//! [`ingest`]: Cacher::ingest

mod audit;
mod budget;
mod cacher;
mod event;
mod hub;
mod index;
mod line;
#[cfg(test)]
mod model;
mod readiness;
mod selector;
mod snapshot;
#[cfg(test)]
mod storm;
mod watchers;
mod window;

pub use audit::{AUDIT_EVERY, Audit, Difference, Verdict, next_audit};
pub use budget::{BUDGET_MAX, LATE_MIN, Laggards};
pub use cacher::{Cacher, Change, Config, Overtaken};
pub use event::{Event, EventType, Held, Slot};
pub use hub::{HELD_BYTES_MAX, Hub, Limits, Round, Sent};
pub use index::WatcherId;
pub use line::{Item, Line, QUEUE_MAX};
pub use selector::Selector;
pub use snapshot::Snapshot;
pub use watchers::{
    BOOKMARK_BEFORE_END, BOOKMARK_EVERY, Beginning, Bookmarks, Initial, Start, WatchSpec,
};
pub use window::{CAPACITY_MAX, CAPACITY_MIN, FRESH_FOR, Missed, TooOld};
