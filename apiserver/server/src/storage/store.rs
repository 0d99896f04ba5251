//! The raw store: keys, bytes, revisions, compare and swap, and one kind of
//! watch. It does not know Kubernetes; nothing above it knows etcd.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

/// How long a watch is given to be refused.
const LEARN_TIMEOUT: Duration = Duration::from_secs(1);

/// A key's value and the revision that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kv {
    /// The key.
    pub key: String,
    /// The value; empty in a keys-only list.
    pub value: Bytes,
    /// The revision of the last write.
    pub mod_revision: u64,
}

/// What a linearizable read of one key found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// The store's revision when it was read.
    pub revision: u64,
    /// The key, unless absent.
    pub kv: Option<Kv>,
}

/// A page to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// The prefix all keys have.
    pub prefix: String,
    /// The first key; empty for the first of the prefix.
    pub start: String,
    /// The most keys to return; zero for all.
    pub limit: usize,
    /// The revision to read at; zero for the newest, linearizably.
    pub revision: u64,
    /// Leaves the values out.
    pub keys_only: bool,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The revision the page was read at.
    pub revision: u64,
    /// The keys, in order.
    pub kvs: Vec<Kv>,
    /// Whether keys with the prefix follow.
    pub more: bool,
    /// How many keys there are from `start` on, this page included.
    pub count: u64,
}

/// What a compare-and-swap did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cas {
    /// It was written at this revision.
    Done(u64),
    /// The key was not as expected; it is this (`None`: absent). Nothing was
    /// written.
    Conflict(Option<Kv>),
}

/// One change a watch reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEvent {
    /// The key.
    pub key: String,
    /// The new value; `None` for a deletion. (What was before, the cacher
    /// knows; the store is not asked to send it again.)
    pub value: Option<Bytes>,
    /// The revision of the change.
    pub revision: u64,
}

/// What a watch says next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchBatch {
    /// Changes in order; a revision's changes are never split over batches.
    Events(Vec<StoreEvent>),
    /// Every change up to this revision has been reported.
    Progress(u64),
}

/// A running watch; dropping it ends it.
#[async_trait]
pub trait StoreWatch: Send {
    /// Waits for the next batch. Safe to cancel: nothing is lost.
    async fn next(&mut self) -> Result<WatchBatch, StoreError>;

    /// Asks for a [`WatchBatch::Progress`] as soon as possible. May be lost.
    fn request_progress(&mut self);
}

/// Why the store did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The revision was compacted; the oldest left, when known.
    #[error("required revision has been compacted")]
    Compacted(Option<u64>),
    /// The revision is not there yet.
    #[error("required revision is a future revision")]
    Future,
    /// The request is larger than the store takes.
    #[error("request is too large")]
    TooLarge,
    /// The store is full.
    #[error("database space exceeded")]
    NoSpace,
    /// The store has too much to do; the request was not carried out.
    #[error("too many requests")]
    Busy,
    /// The store could not be reached; the request was not carried out.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The store did not say whether the request was carried out.
    #[error("the store did not answer: {0}")]
    Unknown(String),
    /// The watch or the connection is over; resuming it is safe.
    #[error("the store's stream ended: {0}")]
    Ended(String),
    /// Anything else, in the store's words.
    #[error("{0}")]
    Other(String),
}

/// A replicated, revisioned key space.
///
/// Writes are never repeated by an implementation unless the error proves that
/// the first attempt was not carried out, or only one of them can be; reads may
/// be. Objects have an id of their own from the start, so that nobody else
/// creates the same bytes.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Reads one key, linearizably.
    async fn get(&self, key: &str) -> Result<Got, StoreError>;

    /// Reads keys with a prefix, in order.
    async fn list(&self, page: PageRequest) -> Result<Page, StoreError>;

    /// Writes a key if its `mod_revision` is `expected`; zero means absent. With
    /// `ttl` the key vanishes after about so many seconds.
    async fn put(
        &self,
        key: &str,
        value: Bytes,
        expected: u64,
        ttl: Option<u64>,
    ) -> Result<Cas, StoreError>;

    /// Deletes a key if its `mod_revision` is `expected`.
    async fn delete(&self, key: &str, expected: u64) -> Result<Cas, StoreError>;

    /// Watches keys with a prefix from a revision on, that revision included.
    async fn watch(&self, prefix: &str, from: u64) -> Result<Box<dyn StoreWatch>, StoreError>;

    /// Returns the newest revision, linearizably.
    async fn current_revision(&self) -> Result<u64, StoreError>;

    /// Forgets history before a revision.
    async fn compact(&self, revision: u64) -> Result<(), StoreError>;

    /// Returns before which revision history is forgotten; zero if it is not,
    /// or if that cannot be found out. Known to the store alone, whoever made it
    /// forget.
    async fn compacted_revision(&self) -> Result<u64, StoreError> {
        // Nobody has such a key. A watch of it from the beginning is refused
        // with what is left, when it is made or soon after.
        let refused = async {
            let mut watch = self.watch("\0", 1).await?;
            loop {
                if self.reports_progress() {
                    watch.request_progress();
                }
                match watch.next().await? {
                    WatchBatch::Progress(_) if self.reports_progress() => return Ok(0),
                    WatchBatch::Progress(_) | WatchBatch::Events(_) => {}
                }
            }
        };
        let learnt = tokio::time::timeout(LEARN_TIMEOUT, refused).await;
        let learnt = learnt.unwrap_or(Ok(0));
        match learnt {
            Err(StoreError::Compacted(revision)) => Ok(revision.unwrap_or(0)),
            learnt => learnt,
        }
    }

    /// Tells whether a requested progress report can be trusted and relied on.
    /// (etcd before 3.4.31 and 3.5.13 may report progress before the events
    /// it covers; etcd issue 15220.)
    fn reports_progress(&self) -> bool;
}

impl StoreError {
    /// Turns the error into what a client of the API sees.
    pub fn into_status(self) -> meta::Status {
        use meta::{Reason, Status};
        match self {
            Self::Compacted(_) => {
                Status::expired("The resourceVersion for the provided list is too old.")
            }
            Self::Future | Self::Other(_) => Status::internal(self),
            Self::TooLarge => Status::failure(
                Reason::RequestEntityTooLarge,
                format!(
                    "Request entity too large: limit is {}, unless the store was started with another",
                    kvserver::REQUEST_BYTES_MAX
                ),
            ),
            Self::NoSpace => Status::internal("etcdserver: mvcc: database space exceeded"),
            Self::Busy => {
                Status::failure(Reason::TooManyRequests, self.to_string()).with_retry_after(1)
            }
            Self::Unavailable(_) | Self::Ended(_) => {
                Status::failure(Reason::ServiceUnavailable, self.to_string()).with_retry_after(1)
            }
            // It may have happened; saying "try again" would be wrong.
            Self::Unknown(_) => Status::failure(
                Reason::Timeout,
                format!(
                    "request did not complete, it may or may not have been carried out: {self}"
                ),
            ),
        }
    }
}

/// etcd's words for what this crate acts on (`api/v3rpc/rpctypes/error.go`).
pub(super) mod words {
    pub(in super::super) const COMPACTED: &str =
        "etcdserver: mvcc: required revision has been compacted";
    pub(in super::super) const FUTURE: &str =
        "etcdserver: mvcc: required revision is a future revision";
    pub(in super::super) const LEASE_NOT_FOUND: &str = "etcdserver: requested lease not found";
    const TOO_LARGE: &str = "etcdserver: request is too large";
    const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
    const BUSY: &str = "etcdserver: too many requests";

    use super::StoreError;

    /// Recognises an error whose words alone say what happened.
    pub(in super::super) fn recognise(message: &str) -> Option<StoreError> {
        Some(match message {
            COMPACTED => StoreError::Compacted(None),
            FUTURE => StoreError::Future,
            TOO_LARGE => StoreError::TooLarge,
            NO_SPACE => StoreError::NoSpace,
            BUSY => StoreError::Busy,
            _ => return None,
        })
    }
}
