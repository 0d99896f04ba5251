//! A long range in pages, all as of one revision.
//!
//! A page costs what it holds and nothing in proportion to the range: nothing is
//! counted, and no more than [`KEYS_LOOKED_AT_MAX`] keys are looked at, however few
//! of them existed at the revision. A short page is read where the machine is, one
//! whose values are in many blocks from a view, on another thread. So whoever reads
//! a million keys holds nobody up.
//!
//! ```text
//! [a, z) at 9, limit 3      a b c | d e f | g        next: d, then g, then none
//! ```

use bytes::Bytes;

use crate::error::Error;
use crate::key_index::Span;
use crate::machine::StateMachine;
use crate::response::KeyValue;
use crate::view::{Reading, View, if_short, short};

/// Keys of the index that one page passes over at most; the next one goes on.
const KEYS_LOOKED_AT_MAX: usize = 20_000;

/// Values are read until, by the average of their blocks, they are this many times
/// the bytes wanted: what is read and not sent is bounded, and blocks are read once
/// for a whole page.
const GUESSED_BYTES: usize = 4;

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
        self.reading().page(r)
    }

    /// Reads a page if that takes little reading; if not, answers nothing: then
    /// [`View::page`] does, apart from the machine.
    pub fn page_if_short(&self, r: &PageRequest) -> Result<Option<Page>, Error> {
        let budget = short();
        if_short(self.reading().within(&budget).page(r))
    }
}

impl View {
    /// Reads a page as [`StateMachine::page`] did at that moment.
    pub fn page(&self, r: &PageRequest) -> Result<Page, Error> {
        self.reading().page(r)
    }
}

impl Reading<'_> {
    fn page(self, r: &PageRequest) -> Result<Page, Error> {
        let current = self.revision;
        if r.revision > current {
            return Err(Error::FutureRevision);
        }
        let at = if r.revision <= 0 { current } else { r.revision };
        if at < self.compacted {
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
        let guess_max = r.bytes_max.saturating_mul(GUESSED_BYTES);
        let (mut revs, mut guess) = (Vec::new(), 0);
        for (looked_at, (key, entry)) in self.walk(span).enumerate() {
            let visible = entry.at(at);
            let full =
                visible.is_some() && !r.count_only && (revs.len() >= r.limit || guess >= guess_max);
            if full || looked_at >= KEYS_LOOKED_AT_MAX {
                page.next = Some(key.clone());
                break;
            }
            let Some(rev) = visible else { continue };
            page.found += 1;
            if !r.count_only {
                guess += self.records.guess_bytes(rev);
                revs.push(rev);
            }
        }
        self.check_budget()?;
        let mut bytes = 0;
        for mut kv in self.key_values(&revs)? {
            if bytes >= r.bytes_max {
                page.found = page.kvs.len() as u64;
                page.next = Some(kv.key);
                break;
            }
            if r.keys_only {
                kv.value = Bytes::new();
            }
            bytes += kv.key.len() + kv.value.len();
            page.kvs.push(kv);
        }
        Ok(page)
    }
}
