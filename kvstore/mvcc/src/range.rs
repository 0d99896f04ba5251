//! Reading a range: which keys, at which revision, in which order, how many.
//!
//! The order of steps is etcd's (`server/etcdserver/txn/range.go`): fetch,
//! filter, sort, cut at the limit. Here filters and sorting work on the index's
//! numbers wherever they suffice, and values are fetched only for what is left.

use bytes::Bytes;

use crate::backend::BackendError;
use crate::command::{RangeRequest, SortOrder, SortTarget};
use crate::error::Error;
use crate::key_index::{Rev, Span};
use crate::machine::StateMachine;
use crate::response::{KeyValue, RangeReply};
use crate::view::Reading;

/// Up to so many values are read one by one, through the cache of blocks; more
/// are read block by block.
const FEW: usize = 32;

impl StateMachine {
    /// Answers a range.
    pub fn range(&self, r: &RangeRequest) -> Result<RangeReply, Error> {
        self.range_at(r, self.revision)
    }

    /// Answers a range while the present revision is `current`: inside a txn
    /// that has changed something, one more than the store's.
    pub(crate) fn range_at(&self, r: &RangeRequest, current: i64) -> Result<RangeReply, Error> {
        self.reading().range_at(r, current)
    }

    /// Reads the pair written by a change.
    pub(crate) fn key_value(&self, rev: Rev) -> Result<KeyValue, BackendError> {
        Ok(self.values.get(rev)?.into_kv(rev))
    }
}

impl Reading<'_> {
    /// Answers a range; see [`StateMachine::range_at`].
    pub(crate) fn range_at(self, r: &RangeRequest, current: i64) -> Result<RangeReply, Error> {
        if r.revision > current {
            return Err(Error::FutureRevision);
        }
        let revision = if r.revision <= 0 { current } else { r.revision };
        if revision < self.compacted {
            return Err(Error::Compacted);
        }
        let span = Span::new(&r.key, &r.range_end);
        if revision == current {
            self.range_now(r, span, current)
        } else {
            self.range_past(r, span, revision, current)
        }
    }

    fn range_now(
        self,
        r: &RangeRequest,
        span: Span<'_>,
        current: i64,
    ) -> Result<RangeReply, Error> {
        let count = self.index.count(span) as i64;
        if r.count_only {
            return Ok(counted(count, current));
        }
        let live = self.walk(span).filter(|(_, e)| e.is_live());
        let found = live.map(|(key, e)| Found {
            key,
            rev: e.latest.rev(),
            create: e.create,
            version: e.version,
            lease: e.lease,
        });
        let found = found.filter(|f| passes(r, f.create, f.rev.main));
        let mut found: Vec<_> = match fetch_limit(r) {
            Some(limit) => found.take(limit).collect(),
            None => found.collect(),
        };
        self.check_budget()?;
        let by_value = r.sort_target == SortTarget::Value;
        if !by_value {
            sort(&mut found, r, |a, b, target| match target {
                SortTarget::Key | SortTarget::Value => a.key.cmp(b.key),
                SortTarget::Version => a.version.cmp(&b.version),
                SortTarget::Create => a.create.cmp(&b.create),
                SortTarget::Mod => a.rev.main.cmp(&b.rev.main),
            });
            let more = truncate(&mut found, r.limit);
            let kvs = self.resolve(&found, r.keys_only)?;
            return Ok(reply(kvs, count, more, current));
        }
        let kvs = self.resolve(&found, false)?;
        Ok(finish(kvs, r, count, current))
    }

    /// Reads the past: the index knows only which revision was visible then,
    /// the numbers are with the values.
    fn range_past(
        self,
        r: &RangeRequest,
        span: Span<'_>,
        at: i64,
        current: i64,
    ) -> Result<RangeReply, Error> {
        let visible = self.walk(span).filter_map(|(_, e)| e.at(at));
        if r.count_only {
            let count = visible.count() as i64;
            self.check_budget()?;
            return Ok(counted(count, current));
        }
        let revs: Vec<Rev> = visible.collect();
        self.check_budget()?;
        let count = revs.len() as i64;
        let wanted = fetch_limit(r).map_or(revs.len(), |limit| limit.min(revs.len()));
        let mut kvs = self.key_values(&revs[..wanted])?;
        kvs.retain(|kv| passes(r, kv.create_revision, kv.mod_revision));
        Ok(finish(kvs, r, count, current))
    }

    /// Reads the pairs written by some changes.
    pub(crate) fn key_values(self, revs: &[Rev]) -> Result<Vec<KeyValue>, BackendError> {
        if revs.len() > 1 {
            self.spend_on(revs)?;
        }
        if revs.len() <= FEW {
            let kv = |rev: &Rev| Ok(self.records.get(*rev)?.into_kv(*rev));
            return revs.iter().map(kv).collect();
        }
        let records = self.records.get_all(revs)?;
        let pairs = records.into_iter().zip(revs);
        Ok(pairs.map(|(record, rev)| record.into_kv(*rev)).collect())
    }

    fn resolve(self, found: &[Found<'_>], keys_only: bool) -> Result<Vec<KeyValue>, BackendError> {
        if !keys_only {
            let revs: Vec<Rev> = found.iter().map(|f| f.rev).collect();
            return self.key_values(&revs);
        }
        let kv = |f: &Found<'_>| KeyValue {
            key: f.key.clone(),
            create_revision: f.create,
            mod_revision: f.rev.main,
            version: f.version,
            value: Bytes::new(),
            lease: f.lease,
        };
        Ok(found.iter().map(kv).collect())
    }
}

/// Is a live key with the numbers the index has.
struct Found<'a> {
    key: &'a Bytes,
    rev: Rev,
    create: i64,
    version: i64,
    lease: i64,
}

fn passes(r: &RangeRequest, create: i64, modified: i64) -> bool {
    let within = |n: i64, min: i64, max: i64| (min == 0 || n >= min) && (max == 0 || n <= max);
    within(modified, r.min_mod_revision, r.max_mod_revision)
        && within(create, r.min_create_revision, r.max_create_revision)
}

/// Returns how many keys suffice: one over the limit, to know whether there is
/// more, if neither filter nor order can bring later keys forward.
fn fetch_limit(r: &RangeRequest) -> Option<usize> {
    let filtered = r.min_mod_revision != 0
        || r.max_mod_revision != 0
        || r.min_create_revision != 0
        || r.max_create_revision != 0;
    let in_key_order = match r.sort_order {
        SortOrder::None => true,
        SortOrder::Ascend => r.sort_target == SortTarget::Key,
        SortOrder::Descend => false,
    };
    let limit = usize::try_from(r.limit).ok().filter(|limit| *limit > 0)?;
    (in_key_order && !filtered).then(|| limit.saturating_add(1))
}

fn sort<T>(
    items: &mut [T],
    r: &RangeRequest,
    compare: impl Fn(&T, &T, SortTarget) -> std::cmp::Ordering,
) {
    let target = r.sort_target;
    match (r.sort_order, target) {
        (SortOrder::None | SortOrder::Ascend, SortTarget::Key) => {}
        (SortOrder::None | SortOrder::Ascend, _) => items.sort_by(|a, b| compare(a, b, target)),
        (SortOrder::Descend, _) => items.sort_by(|a, b| compare(b, a, target)),
    }
}

fn truncate<T>(items: &mut Vec<T>, limit: i64) -> bool {
    match usize::try_from(limit) {
        Ok(limit) if limit > 0 && items.len() > limit => {
            items.truncate(limit);
            true
        }
        _ => false,
    }
}

/// Sorts, cuts and strips pairs that are already whole.
fn finish(mut kvs: Vec<KeyValue>, r: &RangeRequest, count: i64, current: i64) -> RangeReply {
    sort(&mut kvs, r, |a, b, target| match target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(&b.value),
    });
    let more = truncate(&mut kvs, r.limit);
    if r.keys_only {
        for kv in &mut kvs {
            kv.value = Bytes::new();
        }
    }
    reply(kvs, count, more, current)
}

fn reply(kvs: Vec<KeyValue>, count: i64, more: bool, revision: i64) -> RangeReply {
    RangeReply {
        revision,
        kvs,
        count,
        more,
    }
}

fn counted(count: i64, revision: i64) -> RangeReply {
    reply(Vec::new(), count, false, revision)
}
