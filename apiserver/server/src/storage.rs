//! How the API server keeps objects: the store behind one trait, one
//! [`ResourceStore`] per resource over it.
//!
//! ```text
//! write -> ResourceStore -> Store (compare and swap on mod_revision)
//! Store.watch -> feed task -> watchcache::Cacher.ingest -> bounded queues -> WatchStream
//! read  -> ResourceStore -> wait for the cacher to reach a revision -> snapshot
//! ```
//!
//! The rooms: [`store`] is the trait and its errors; [`memory`], [`embedded`]
//! and [`etcd`] implement it; [`resource`] is what the verbs call; [`feed`] is
//! the one task per resource that moves changes; `own` keeps what is being written, so
//! that nobody decodes it, and `trees` what was changed last as JSON; [`testing`] is
//! the conformance suite every store passes. Nothing here knows a kind or HTTP.

mod audit;
pub mod compactor;
mod continuation;
pub mod embedded;
pub mod etcd;
mod feed;
mod items;
mod leases;
mod list;
pub mod memory;
pub mod metrics;
mod own;
mod read;
pub mod request;
pub mod resource;
pub mod store;
pub mod testing;
mod trees;
mod watch;
mod write;

pub use compactor::Compactor;
pub(crate) use continuation::check as check_token;
pub use items::{Items, Listing};
pub use metrics::{CacheMetrics, Series, SeriesKind, Value as SeriesValue};
pub use request::{
    ListRequest, ListResult, Preconditions, ReadVersion, UpdateOutcome, VersionMatch, WatchRequest,
};
pub use resource::{Read, Reader, ResourceConfig, ResourceStore};
pub use store::{Store, StoreError};
pub use watch::{WatchItem, WatchStream};
pub use watchcache::{Event, EventType, Selector, Slot};
