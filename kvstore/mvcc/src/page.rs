//! A long range in pages, all as of one revision.
//!
//! A page costs what it holds and nothing in proportion to the range: nothing is
//! counted, and no more than [`KEYS_LOOKED_AT_MAX`] keys are looked at, however few
//! of them existed at the revision. So whoever reads a million keys holds nobody up.
//!
//! ```text
//! [a, z) at 9, limit 3      a b c | d e f | g        next: d, then g, then none
//! ```

use bytes::Bytes;

use crate::error::Error;
use crate::key_index::Span;
use crate::machine::StateMachine;
use crate::response::KeyValue;

/// Keys of the index that one page passes over at most; the next one goes on.
const KEYS_LOOKED_AT_MAX: usize = 20_000;

/// Asks for the next page of a range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageRequest {
    /// Where the page begins: the start of the range, later [`Page::next`].
    pub key: Bytes,
    /// Empty for one key, `"\0"` for every key from `key` on, else exclusive end.
    pub range_end: Bytes,
    /// The revision to read at; 0 or less for the present one.
    pub revision: i64,
    /// The most pairs.
    pub limit: usize,
    /// The page ends with the pair that brings keys and values to this many bytes.
    pub bytes_max: usize,
    /// Leaves values out.
    pub keys_only: bool,
    /// Leaves pairs out: the page only counts.
    pub count_only: bool,
}

/// Is part of a range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The store's present revision.
    pub revision: i64,
    /// The pairs, in key order.
    pub kvs: Vec<KeyValue>,
    /// How many keys were found: as many as pairs, unless only counting.
    pub found: u64,
    /// Where the range goes on; `None` at its end. Nothing may be there any more.
    pub next: Option<Bytes>,
}

impl StateMachine {
    /// Reads a page.
    pub fn page(&self, r: &PageRequest) -> Result<Page, Error> {
        let current = self.revision();
        if r.revision > current {
            return Err(Error::FutureRevision);
        }
        let at = if r.revision <= 0 { current } else { r.revision };
        if at < self.compact_revision() {
            return Err(Error::Compacted);
        }
        let mut page = Page {
            revision: current,
            ..Page::default()
        };
        let span = Span::new(&r.key, &r.range_end);
        if r.count_only && at == current {
            page.found = self.index.count(span);
            return Ok(page);
        }
        let mut bytes = 0;
        for (looked_at, (key, entry)) in self.index.walk(span).enumerate() {
            let visible = entry.at(at);
            let full = visible.is_some()
                && !r.count_only
                && (page.kvs.len() >= r.limit || bytes >= r.bytes_max);
            if full || looked_at >= KEYS_LOOKED_AT_MAX {
                page.next = Some(key.clone());
                break;
            }
            let Some(rev) = visible else { continue };
            page.found += 1;
            if !r.count_only {
                let mut kv = self.key_value(rev)?;
                if r.keys_only {
                    kv.value = Bytes::new();
                }
                bytes += kv.key.len() + kv.value.len();
                page.kvs.push(kv);
            }
        }
        Ok(page)
    }
}
