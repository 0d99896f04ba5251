//! Reading a range: which keys, at which revision, in which order, how many.
//!
//! The order of steps is etcd's (`server/etcdserver/txn/range.go`): fetch,
//! filter, sort, cut at the limit. Here filters and sorting work on the index's
//! numbers wherever they suffice, and values are fetched only for what is left.

use bytes::Bytes;

use crate::backend::BackendError;
use crate::command::{RangeRequest, SortOrder, SortTarget};
use crate::error::Error;
use crate::key_index::{KeyEntry, Rev, Span};
use crate::machine::StateMachine;
use crate::response::{KeyValue, Pair, RangeEnd, RangeReply};
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

impl<'a> Reading<'a> {
    /// Answers a range; see [`StateMachine::range_at`].
    pub(crate) fn range_at(self, r: &'a RangeRequest, current: i64) -> Result<RangeReply, Error> {
        let (chosen, end) = self.choose(r, current)?;
        let kvs = match chosen {
            Chosen::Changes(revs) => self.key_values(&revs)?,
            Chosen::Keys(found) => found.iter().map(Found::key_value).collect(),
            Chosen::Pairs(kvs) => kvs,
        };
        Ok(RangeReply {
            revision: end.revision,
            kvs,
            count: end.count,
            more: end.more,
        })
    }

    /// Answers a range with pairs where they lie, in their order.
    pub(crate) fn range_each(
        self,
        r: &'a RangeRequest,
        mut visit: impl FnMut(Pair<'_>),
    ) -> Result<RangeEnd, Error> {
        let (chosen, end) = self.choose(r, self.revision)?;
        match chosen {
            Chosen::Changes(revs) => {
                self.spend_on(&revs)?;
                self.records.each(revs, |rev, peek| visit(peek.pair(rev)))?;
            }
            Chosen::Keys(found) => found.iter().for_each(|found| visit(found.pair())),
            Chosen::Pairs(kvs) => kvs.iter().for_each(|kv| visit(kv.pair())),
        }
        Ok(end)
    }

    /// Chooses the pairs of an answer, in their order.
    fn choose(self, r: &'a RangeRequest, current: i64) -> Result<(Chosen<'a>, RangeEnd), Error> {
        if r.revision > current {
            return Err(Error::FutureRevision);
        }
        let at = if r.revision <= 0 { current } else { r.revision };
        if at < self.compacted {
            return Err(Error::Compacted);
        }
        let span = Span::new(&r.key, &r.range_end);
        let mut end = RangeEnd {
            revision: current,
            ..RangeEnd::default()
        };
        let chosen = match at == current {
            true => self.choose_now(r, span, &mut end)?,
            false => self.choose_past(r, span, at, &mut end)?,
        };
        Ok((chosen, end))
    }

    fn choose_now(
        self,
        r: &RangeRequest,
        span: Span<'a>,
        end: &mut RangeEnd,
    ) -> Result<Chosen<'a>, Error> {
        let count = self.index.count(span);
        end.count = count as i64;
        if r.count_only {
            return Ok(Chosen::Pairs(Vec::new()));
        }
        let fetch = fetch_limit(r).unwrap_or(usize::MAX);
        self.check_keys(fetch.min(count as usize))?;
        let live = self.walk(span);
        let live = live.filter(|(_, e)| e.is_live() && passes(r, e.create, e.latest.main));
        if is_in_key_order(r) && !r.keys_only {
            let mut revs: Vec<_> = live.map(|(_, e)| e.latest.rev()).take(fetch).collect();
            self.check_budget()?;
            end.more = truncate(&mut revs, r.limit);
            return Ok(Chosen::Changes(revs));
        }
        let mut found: Vec<_> = live.map(Found::new).take(fetch).collect();
        self.check_budget()?;
        if r.sort_target == SortTarget::Value {
            let revs: Vec<_> = found.iter().map(|f| f.rev).collect();
            return Ok(Chosen::Pairs(finish(self.key_values(&revs)?, r, end)));
        }
        sort(&mut found, r, |a, b, target| match target {
            SortTarget::Key | SortTarget::Value => a.key.cmp(b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create.cmp(&b.create),
            SortTarget::Mod => a.rev.main.cmp(&b.rev.main),
        });
        end.more = truncate(&mut found, r.limit);
        Ok(match r.keys_only {
            true => Chosen::Keys(found),
            false => Chosen::Changes(found.iter().map(|f| f.rev).collect()),
        })
    }

    /// Chooses in the past: the index knows only which revision was visible then,
    /// the numbers are with the values.
    fn choose_past(
        self,
        r: &RangeRequest,
        span: Span<'a>,
        at: i64,
        end: &mut RangeEnd,
    ) -> Result<Chosen<'a>, Error> {
        let visible = self.walk(span).filter_map(|(_, e)| e.at(at));
        if r.count_only {
            end.count = visible.count() as i64;
            self.check_budget()?;
            return Ok(Chosen::Pairs(Vec::new()));
        }
        let mut revs: Vec<Rev> = visible.collect();
        self.check_budget()?;
        end.count = revs.len() as i64;
        if is_in_key_order(r) && !is_filtered(r) && !r.keys_only {
            end.more = truncate(&mut revs, r.limit);
            return Ok(Chosen::Changes(revs));
        }
        revs.truncate(fetch_limit(r).unwrap_or(usize::MAX));
        let mut kvs = self.key_values(&revs)?;
        kvs.retain(|kv| passes(r, kv.create_revision, kv.mod_revision));
        Ok(Chosen::Pairs(finish(kvs, r, end)))
    }

    /// Reads the pairs written by some changes.
    pub(crate) fn key_values(self, revs: &[Rev]) -> Result<Vec<KeyValue>, BackendError> {
        self.spend_on(revs)?;
        if revs.len() <= FEW {
            let kv = |rev: &Rev| Ok(self.records.get(*rev)?.into_kv(*rev));
            return revs.iter().map(kv).collect();
        }
        let records = self.records.get_all(revs)?;
        let pairs = records.into_iter().zip(revs);
        Ok(pairs.map(|(record, rev)| record.into_kv(*rev)).collect())
    }
}

/// Is what an answer consists of.
enum Chosen<'a> {
    /// The pairs that some changes wrote.
    Changes(Vec<Rev>),
    /// Keys without their values.
    Keys(Vec<Found<'a>>),
    /// Pairs that had to be read to be chosen.
    Pairs(Vec<KeyValue>),
}

/// Is a live key with the numbers the index has.
struct Found<'a> {
    key: &'a Bytes,
    rev: Rev,
    create: i64,
    version: i64,
    lease: i64,
}

impl<'a> Found<'a> {
    fn new((key, e): (&'a Bytes, &'a KeyEntry)) -> Self {
        Self {
            key,
            rev: e.latest.rev(),
            create: e.create,
            version: e.version,
            lease: e.lease,
        }
    }

    fn pair(&self) -> Pair<'a> {
        Pair {
            key: self.key,
            create_revision: self.create,
            mod_revision: self.rev.main,
            version: self.version,
            value: &[],
            lease: self.lease,
        }
    }

    fn key_value(&self) -> KeyValue {
        KeyValue {
            key: self.key.clone(),
            create_revision: self.create,
            mod_revision: self.rev.main,
            version: self.version,
            value: Bytes::new(),
            lease: self.lease,
        }
    }
}

fn passes(r: &RangeRequest, create: i64, modified: i64) -> bool {
    let within = |n: i64, min: i64, max: i64| (min == 0 || n >= min) && (max == 0 || n <= max);
    within(modified, r.min_mod_revision, r.max_mod_revision)
        && within(create, r.min_create_revision, r.max_create_revision)
}

fn is_filtered(r: &RangeRequest) -> bool {
    r.min_mod_revision != 0
        || r.max_mod_revision != 0
        || r.min_create_revision != 0
        || r.max_create_revision != 0
}

/// Reports whether the order in which keys are found is the one asked for.
fn is_in_key_order(r: &RangeRequest) -> bool {
    let by_key = r.sort_target == SortTarget::Key;
    by_key && matches!(r.sort_order, SortOrder::None | SortOrder::Ascend)
}

/// Returns how many keys suffice: one over the limit, to know whether there is
/// more, if neither filter nor order can bring later keys forward.
fn fetch_limit(r: &RangeRequest) -> Option<usize> {
    let as_found = r.sort_order == SortOrder::None || is_in_key_order(r);
    let limit = usize::try_from(r.limit).ok().filter(|limit| *limit > 0)?;
    (as_found && !is_filtered(r)).then(|| limit.saturating_add(1))
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
fn finish(mut kvs: Vec<KeyValue>, r: &RangeRequest, end: &mut RangeEnd) -> Vec<KeyValue> {
    sort(&mut kvs, r, |a, b, target| match target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(&b.value),
    });
    end.more = truncate(&mut kvs, r.limit);
    if r.keys_only {
        for kv in &mut kvs {
            kv.value = Bytes::new();
        }
    }
    kvs
}
