//! A range in chunks, for lists that would not fit one reply.
//!
//! All chunks are of one revision, the one that was current when the first was
//! read, unless the request names another. Each chunk is read for itself, when the
//! one before it was taken, and apart from the core if it is much: a client that
//! does not read costs one chunk of memory. A compaction of that revision in between ends
//! the stream with etcd's error (etcd: v3_server.go, `rangeStream`).

use mvcc::{KeyValue, Page, PageRequest, RangeRequest};

use crate::{handle::Handle, rpc_error::RpcError};

/// Pairs of the first chunk. The next ones are doubled or halved towards the size
/// of the largest request (etcd: initialStreamChunkLimit).
const FIRST_CHUNK_PAIRS: usize = 10;

/// Most pairs of a chunk, however small they are.
const CHUNK_PAIRS_MAX: usize = 10_000;

/// Part of a range.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) kvs: Vec<KeyValue>,
    /// What only the last chunk tells.
    pub(crate) end: Option<End>,
}

/// What is known once the range was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The store's revision when the first chunk was read.
    pub(crate) revision: i64,
    /// Whether the limit cut something off.
    pub(crate) more: bool,
    /// How many keys are in the range, whatever the limit left.
    pub(crate) count: u64,
}

/// Reads a range chunk by chunk.
#[derive(Debug)]
pub(crate) struct RangeStream {
    handle: Handle,
    page: PageRequest,
    linearizable: bool,
    /// Pairs that may still be sent; none is no limit.
    left: Option<u64>,
    /// The store's revision at the first page.
    revision: Option<i64>,
    sent: u64,
    ended: bool,
}

impl RangeStream {
    /// Begins to read. Order and filters of the request are ignored.
    pub(crate) fn new(handle: &Handle, request: RangeRequest) -> Self {
        let page = PageRequest {
            key: request.key,
            range_end: request.range_end,
            revision: request.revision,
            limit: FIRST_CHUNK_PAIRS,
            bytes_max: 2 * handle.shared.config.max_request_bytes,
            keys_only: request.keys_only,
            count_only: request.count_only,
        };
        Self {
            handle: handle.clone(),
            page,
            linearizable: !request.serializable,
            left: u64::try_from(request.limit).ok().filter(|limit| *limit > 0),
            revision: None,
            sent: 0,
            ended: false,
        }
    }

    /// Reads the next chunk; none after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Chunk>, RpcError> {
        if self.ended {
            return Ok(None);
        }
        if self.page.count_only {
            let end = self.end(0).await?;
            return Ok(self.last(Vec::new(), false, end));
        }
        loop {
            let limit = self.page.limit;
            if let Some(left) = self.left {
                self.page.limit = limit.min(usize::try_from(left).unwrap_or(limit));
            }
            let page = self.read().await?;
            let pairs = page.kvs.len() as u64;
            self.sent += pairs;
            self.left = self.left.map(|left| left - pairs);
            self.page.limit = next_limit(limit, &page.kvs, self.page.bytes_max / 2);
            let Some(next) = page.next else {
                return Ok(self.last(page.kvs, false, self.sent));
            };
            self.page.key = next;
            if self.left == Some(0) {
                let count = self.end(self.sent).await?;
                return Ok(self.last(page.kvs, count > self.sent, count));
            }
            if !page.kvs.is_empty() {
                return Ok(Some(Chunk {
                    kvs: page.kvs,
                    end: None,
                }));
            }
        }
    }

    fn last(&mut self, kvs: Vec<KeyValue>, more: bool, count: u64) -> Option<Chunk> {
        self.ended = true;
        let end = End {
            revision: self.revision.unwrap_or_default(),
            more,
            count,
        };
        Some(Chunk {
            kvs,
            end: Some(end),
        })
    }

    /// Counts the rest of the range, beside what was sent.
    async fn end(&mut self, sent: u64) -> Result<u64, RpcError> {
        self.page.count_only = true;
        let mut count = sent;
        loop {
            let page = self.read().await?;
            count += page.found;
            match page.next {
                Some(next) => self.page.key = next,
                None => return Ok(count),
            }
        }
    }

    /// Reads a page; the first one says at which revision all others are read.
    async fn read(&mut self) -> Result<Page, RpcError> {
        let Some(_) = self.revision else {
            let first = self
                .handle
                .range_page(&self.page, self.linearizable)
                .await?;
            self.revision = Some(first.revision);
            if self.page.revision <= 0 {
                self.page.revision = first.revision;
            }
            return Ok(first);
        };
        // Others get their turn between two pages.
        tokio::task::yield_now().await;
        self.handle.range_page(&self.page, false).await
    }
}

/// Chooses the number of pairs so that a chunk comes close to a size. Between half
/// and twice of it nothing is changed.
fn next_limit(limit: usize, kvs: &[KeyValue], bytes: usize) -> usize {
    /// What a pair takes on the wire beside its key and value, about.
    const PAIR_OVERHEAD_BYTES: usize = 24;
    let size: usize = kvs
        .iter()
        .map(|kv| kv.key.len() + kv.value.len() + PAIR_OVERHEAD_BYTES)
        .sum();
    let limit = match size {
        size if size < bytes / 2 => limit * 2,
        size if size > bytes * 2 => limit / 2,
        _ => limit,
    };
    limit.clamp(1, CHUNK_PAIRS_MAX)
}
