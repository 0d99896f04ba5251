//! What etcd promises for one client at a time: the sequential specification.
//!
//! Written from etcd's documentation and the behaviour of its 3.5, without a line
//! of the product, so that a mistake has to be made twice to be missed. The model
//! keeps every past state; compaction only forbids to look.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use crate::history::{
    Blob, Body, Compare, Delete, Event, Is, Kv, LeaseId, Put, Range, Refusal, Reply, Request,
    Target, Txn, TxnOp,
};

/// Is the whole state of a store.
#[derive(Debug, Clone)]
pub struct Store {
    revision: i64,
    compacted: i64,
    live: BTreeMap<Blob, Kv>,
    /// Every version of every key, in order; `None` is a deletion.
    past: BTreeMap<Blob, Vec<(i64, Option<Kv>)>>,
    keeps_past: bool,
    leases: BTreeMap<LeaseId, Lease>,
}

/// Is a lease.
#[derive(Debug, Clone, Default)]
pub struct Lease {
    /// Seconds.
    pub ttl: i64,
    /// The keys that go with it.
    pub keys: BTreeSet<Blob>,
}

/// Is what a request did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied {
    /// The answer, but for the revision.
    pub body: Body,
    /// What changed, each with the pair before.
    pub events: Vec<Event>,
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// Is an empty store, whose revision is 1 (etcd's is never 0).
    pub fn new() -> Self {
        Self {
            revision: 1,
            compacted: 0,
            live: BTreeMap::new(),
            past: BTreeMap::new(),
            keeps_past: true,
            leases: BTreeMap::new(),
        }
    }

    /// Is an empty store that can be read only as it is now; ten times smaller
    /// after a million writes.
    pub fn without_past() -> Self {
        Self {
            keeps_past: false,
            ..Self::new()
        }
    }

    /// Returns the revision of the last write.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns the first revision that can be read.
    pub fn compacted(&self) -> i64 {
        self.compacted
    }

    /// Returns what is stored now.
    pub fn live(&self) -> &BTreeMap<Blob, Kv> {
        &self.live
    }

    /// Returns a lease.
    pub fn lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(&id)
    }

    /// Does one request, and says what etcd answers.
    ///
    /// # Errors
    /// What etcd refuses.
    pub fn apply(&mut self, request: &Request) -> Result<Applied, Refusal> {
        let mut turn = Turn {
            main: self.revision + 1,
            events: Vec::new(),
        };
        let body = match request {
            Request::Range(range) => self.range(range, self.revision)?,
            Request::Put(put) => {
                self.check_put(put)?;
                self.put(put, &mut turn)
            }
            Request::Delete(delete) => self.delete(delete, &mut turn),
            Request::Txn(txn) => {
                let path = self.decide(txn);
                self.check_txn(txn, &path)?;
                self.txn(txn, &path, &mut turn)?
            }
            Request::Grant { id, ttl } => self.grant(*id, *ttl)?,
            Request::Revoke { id } => self.revoke(*id, &mut turn)?,
            Request::KeepAlive { id } => {
                let ttl = self.leases.get(id).map_or(0, |lease| lease.ttl);
                Body::Lease { id: *id, ttl }
            }
            Request::TimeToLive { id } => {
                let ttl = self.leases.get(id).map_or(-1, |lease| lease.ttl);
                Body::Lease { id: *id, ttl }
            }
            Request::Compact { revision } => self.compact(*revision)?,
            Request::Lock { name, lease } => self.lock(name, *lease, &mut turn)?,
            Request::Unlock { key } => {
                self.remove(key, &mut turn);
                Body::Done
            }
            Request::Auth(_) => Body::Done,
        };
        if !turn.events.is_empty() {
            self.revision = turn.main;
        }
        let events = turn.events;
        Ok(Applied { body, events })
    }

    /// Does one request and returns the whole answer.
    ///
    /// # Errors
    /// What etcd refuses.
    pub fn reply(&mut self, request: &Request) -> Result<Reply, Refusal> {
        let body = self.apply(request)?.body;
        let revision = self.revision;
        Ok(Reply { revision, body })
    }

    /// Takes back what was just applied.
    pub fn undo(&mut self, events: &[Event]) {
        for event in events.iter().rev() {
            let key = &event.kv.key;
            let now = self.live.remove(key);
            self.detach(now.as_ref());
            if let Some(before) = &event.prev {
                self.live.insert(key.clone(), (**before).clone());
                if let Some(lease) = self.leases.get_mut(&before.lease) {
                    lease.keys.insert(key.clone());
                }
            }
            if let Some(versions) = self.past.get_mut(key) {
                versions.pop();
            }
        }
        if !events.is_empty() {
            self.revision -= 1;
        }
    }

    /// Takes changes as they are, whatever asked for them, as the next revision.
    pub fn follow(&mut self, events: &[Event]) {
        let mut turn = Turn {
            main: self.revision + 1,
            events: Vec::new(),
        };
        for event in events {
            if event.delete {
                self.remove(&event.kv.key, &mut turn);
            } else {
                self.store(event.kv.clone(), &mut turn);
            }
        }
        self.revision = turn.main;
    }

    /// Makes a lease exist, as something not in the history did.
    pub fn ensure_lease(&mut self, id: LeaseId, ttl: i64) {
        self.leases.entry(id).or_default().ttl = ttl;
    }

    /// Makes a lease that has no keys end, as time does.
    pub fn end_lease(&mut self, id: LeaseId) {
        self.leases.remove(&id);
    }

    /// Reads, where `now` is the revision that a read of no revision sees.
    fn range(&self, range: &Range, now: i64) -> Result<Body, Refusal> {
        self.check_range(range, now)?;
        let at = if range.revision > 0 {
            range.revision
        } else {
            now
        };
        let limit = usize::try_from(range.limit).unwrap_or(0);
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut kvs = Vec::new();
        let mut count = 0;
        let mut take = |kv: &Kv| {
            count += 1;
            if !range.count_only && kvs.len() < limit {
                let mut kv = kv.clone();
                if range.keys_only {
                    kv.value = Blob::EMPTY;
                }
                kvs.push(kv);
            }
        };
        if at >= self.revision {
            span(&self.live, &range.key, &range.end).for_each(|(_, kv)| take(kv));
        } else {
            for (_, versions) in span(&self.past, &range.key, &range.end) {
                let until = versions.partition_point(|(revision, _)| *revision <= at);
                if let Some((_, Some(kv))) = until.checked_sub(1).and_then(|at| versions.get(at)) {
                    take(kv);
                }
            }
        }
        let more = !range.count_only && count > limit;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        Ok(Body::Range { kvs, count, more })
    }

    fn check_range(&self, range: &Range, now: i64) -> Result<(), Refusal> {
        if range.revision > now {
            return Err(Refusal::FutureRevision);
        }
        if range.revision > 0 && range.revision < self.compacted {
            return Err(Refusal::Compacted);
        }
        Ok(())
    }

    fn check_put(&self, put: &Put) -> Result<(), Refusal> {
        if (put.ignore_value || put.ignore_lease) && !self.live.contains_key(&put.key) {
            return Err(Refusal::KeyNotFound);
        }
        if put.lease != 0 && !self.leases.contains_key(&put.lease) {
            return Err(Refusal::LeaseNotFound);
        }
        Ok(())
    }

    fn put(&mut self, put: &Put, turn: &mut Turn) -> Body {
        let before = self.live.get(&put.key);
        let kv = Kv {
            key: put.key.clone(),
            value: match before {
                Some(before) if put.ignore_value => before.value.clone(),
                _ => put.value.clone(),
            },
            create: before.map_or(turn.main, |kv| kv.create),
            modified: turn.main,
            version: before.map_or(1, |kv| kv.version + 1),
            lease: match before {
                Some(before) if put.ignore_lease => before.lease,
                _ => put.lease,
            },
        };
        let prev = self.store(kv, turn);
        Body::Put {
            prev: prev.filter(|_| put.prev_kv),
        }
    }

    /// Stores a pair, notes the event and returns what was there.
    fn store(&mut self, kv: Kv, turn: &mut Turn) -> Option<Box<Kv>> {
        let (key, old) = (kv.key.clone(), self.live.insert(kv.key.clone(), kv.clone()));
        self.detach(old.as_ref());
        if let Some(lease) = self.leases.get_mut(&kv.lease) {
            lease.keys.insert(key.clone());
        }
        if self.keeps_past {
            let versions = self.past.entry(key).or_default();
            versions.push((turn.main, Some(kv.clone())));
        }
        let prev = old.map(Box::new);
        turn.events.push(Event {
            delete: false,
            kv,
            prev: prev.clone(),
        });
        prev
    }

    fn detach(&mut self, kv: Option<&Kv>) {
        if let Some(kv) = kv
            && let Some(lease) = self.leases.get_mut(&kv.lease)
        {
            lease.keys.remove(&kv.key);
        }
    }

    fn remove(&mut self, key: &Blob, turn: &mut Turn) -> Option<Kv> {
        let old = self.live.remove(key)?;
        self.detach(Some(&old));
        if self.keeps_past {
            let versions = self.past.entry(key.clone()).or_default();
            versions.push((turn.main, None));
        }
        turn.events.push(Event {
            delete: true,
            kv: Kv {
                key: key.clone(),
                modified: turn.main,
                ..Kv::default()
            },
            prev: Some(Box::new(old.clone())),
        });
        Some(old)
    }

    fn delete(&mut self, delete: &Delete, turn: &mut Turn) -> Body {
        let keys = span(&self.live, &delete.key, &delete.end);
        let keys: Vec<_> = keys.map(|(key, _)| key.clone()).collect();
        let deleted = i64::try_from(keys.len()).unwrap_or(i64::MAX);
        let prev = keys.iter().filter_map(|key| self.remove(key, turn));
        let mut prev: Vec<_> = prev.collect();
        if !delete.prev_kv {
            prev.clear();
        }
        Body::Delete { deleted, prev }
    }

    /// Decides which way a transaction goes: one answer for it and, in order, those
    /// of the transactions nested in what it does. All is decided before anything
    /// is done (etcd's `compareToPath`).
    fn decide(&self, txn: &Txn) -> Vec<bool> {
        let holds = txn.compare.iter().all(|compare| self.holds(compare));
        let mut path = vec![holds];
        for op in branch(txn, holds) {
            if let TxnOp::Txn(nested) = op {
                path.extend(self.decide(nested));
            }
        }
        path
    }

    /// Says whether a condition holds.
    pub fn holds(&self, compare: &Compare) -> bool {
        let mut any = false;
        for (_, kv) in span(&self.live, &compare.key, &compare.end) {
            any = true;
            if !agrees(compare, kv) {
                return false;
            }
        }
        // A value that is not there agrees with nothing, all else counts as 0.
        any || (!matches!(compare.to, Target::Value(_)) && agrees(compare, &Kv::default()))
    }

    fn check_txn(&self, txn: &Txn, path: &[bool]) -> Result<(), Refusal> {
        self.check_branch(txn, &mut path.iter().copied())
    }

    fn check_branch(
        &self,
        txn: &Txn,
        path: &mut impl Iterator<Item = bool>,
    ) -> Result<(), Refusal> {
        let holds = path.next().unwrap_or_default();
        for op in branch(txn, holds) {
            match op {
                TxnOp::Range(range) => self.check_range(range, self.revision)?,
                TxnOp::Put(put) => self.check_put(put)?,
                TxnOp::Delete(_) => {}
                TxnOp::Txn(nested) => self.check_branch(nested, path)?,
            }
        }
        Ok(())
    }

    fn txn(&mut self, txn: &Txn, path: &[bool], turn: &mut Turn) -> Result<Body, Refusal> {
        self.do_branch(txn, &mut path.iter().copied(), turn)
    }

    fn do_branch(
        &mut self,
        txn: &Txn,
        path: &mut impl Iterator<Item = bool>,
        turn: &mut Turn,
    ) -> Result<Body, Refusal> {
        let succeeded = path.next().unwrap_or_default();
        let mut results = Vec::new();
        for op in branch(txn, succeeded) {
            results.push(match op {
                // What this transaction wrote can be read in it.
                TxnOp::Range(range) => self.range(range, self.revision)?,
                TxnOp::Put(put) => self.put(put, turn),
                TxnOp::Delete(delete) => self.delete(delete, turn),
                TxnOp::Txn(nested) => self.do_branch(nested, path, turn)?,
            });
        }
        Ok(Body::Txn { succeeded, results })
    }

    fn grant(&mut self, id: LeaseId, ttl: i64) -> Result<Body, Refusal> {
        if self.leases.contains_key(&id) {
            return Err(Refusal::LeaseExists);
        }
        let keys = BTreeSet::new();
        self.leases.insert(id, Lease { ttl, keys });
        Ok(Body::Lease { id, ttl })
    }

    fn revoke(&mut self, id: LeaseId, turn: &mut Turn) -> Result<Body, Refusal> {
        let lease = self.leases.remove(&id).ok_or(Refusal::LeaseNotFound)?;
        for key in &lease.keys {
            self.remove(key, turn);
        }
        Ok(Body::Done)
    }

    fn compact(&mut self, revision: i64) -> Result<Body, Refusal> {
        if revision <= self.compacted {
            return Err(Refusal::Compacted);
        }
        if revision > self.revision {
            return Err(Refusal::FutureRevision);
        }
        self.compacted = revision;
        Ok(Body::Done)
    }

    /// Enters the queue for a lock; it is held by the oldest key of its name.
    fn lock(&mut self, name: &Blob, lease: LeaseId, turn: &mut Turn) -> Result<Body, Refusal> {
        let put = Put {
            key: lock_key(name, lease),
            lease,
            ..Put::default()
        };
        if !self.live.contains_key(&put.key) {
            self.check_put(&put)?;
            self.put(&put, turn);
        }
        Ok(Body::Lock { key: put.key })
    }
}

/// Names the key by which a lease waits for a lock (`concurrency.Mutex`).
pub fn lock_key(name: &Blob, lease: LeaseId) -> Blob {
    let mut key = name.to_vec();
    key.extend_from_slice(format!("/{lease:x}").as_bytes());
    key.into()
}

struct Turn {
    /// The revision that a write of this turn gets.
    main: i64,
    events: Vec<Event>,
}

fn branch(txn: &Txn, holds: bool) -> &[TxnOp] {
    if holds { &txn.success } else { &txn.failure }
}

fn agrees(compare: &Compare, kv: &Kv) -> bool {
    let order = match &compare.to {
        Target::Version(given) => kv.version.cmp(given),
        Target::Create(given) => kv.create.cmp(given),
        Target::Mod(given) => kv.modified.cmp(given),
        Target::Lease(given) => kv.lease.cmp(given),
        Target::Value(given) => kv.value.cmp(given),
    };
    match compare.is {
        Is::Equal => order.is_eq(),
        Is::NotEqual => order.is_ne(),
        Is::Greater => order.is_gt(),
        Is::Less => order.is_lt(),
    }
}

/// Says whether a key is in a range as etcd writes it.
pub fn within(name: &[u8], key: &[u8], end: &[u8]) -> bool {
    match end {
        [] => name == key,
        [0] => name >= key,
        end => name >= key && name < end,
    }
}

/// Walks over the keys of a range.
fn span<'a, V>(
    map: &'a BTreeMap<Blob, V>,
    key: &Blob,
    end: &Blob,
) -> btree_map::Range<'a, Blob, V> {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let (key, end) = (&key[..], &end[..]);
    let upper = match end {
        [] => Included(key),
        [0] => Unbounded,
        // A range that ends before it begins is empty, and no panic.
        end => Excluded(end.max(key)),
    };
    map.range::<[u8], _>((Included(key), upper))
}

#[cfg(test)]
mod tests;
