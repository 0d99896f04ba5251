//! A member in a bottle: a machine, its log, its tree, and the model beside it.

use std::time::Duration;

use bytes::Bytes;
use mvcc::*;

use crate::model::Model;

/// Small enough that a few dozen operations fill blocks and push them out of memory.
pub(crate) fn tiny() -> Config {
    Config {
        lease_ttl_min: 2,
        learners_max: 1,
        window_bytes: 300,
        block_cache_bytes: 500,
        block_bytes: 250,
    }
}

pub(crate) struct World {
    pub(crate) machine: StateMachine,
    pub(crate) model: Model,
    backend: MemoryBackend,
    /// Entry n at place n - 1, as it would lie in the log.
    log: Vec<Bytes>,
    flying: Option<PackJob>,
    pub(crate) config: Config,
    views: Vec<Seen>,
    /// The number of views taken, which is the time they are told.
    taken: u64,
}

/// Is a view, half read, and what it must show.
struct Seen {
    view: View,
    model: Model,
    hash: KvHash,
    facts: Facts,
    next: Option<HistoryCursor>,
    read: Vec<Change>,
    /// Let go of: it shows the same as before, or says that it cannot.
    expired: bool,
}

impl World {
    pub(crate) fn new(config: Config) -> Self {
        let backend = MemoryBackend::new();
        Self {
            machine: StateMachine::open(Box::new(backend.clone()), config.clone()).unwrap(),
            model: Model::new(),
            backend,
            log: Vec::new(),
            flying: None,
            config,
            views: Vec::new(),
            taken: 0,
        }
    }

    /// Applies a command to both and compares what they say.
    #[track_caller]
    pub(crate) fn apply(&mut self, command: Command) -> Applied {
        let index = self.log.len() as u64 + 1;
        let proposal = Proposal {
            id: index + 1000,
            since: Some(index - 1),
            identity: None,
            command,
        };
        let raw = proposal.encode();
        self.log.push(raw.clone());
        let want = self.model.apply(&proposal.command);
        let seen = self.model.changes.len();
        let got = self
            .machine
            .apply(index, 1 + index / 50, Proposal::decode(raw).unwrap())
            .unwrap();
        assert_eq!(got.result, want, "{:?}", proposal.command);
        assert_eq!(got.revision, self.model.revision);
        let made = &self.model.changes[seen - got.events.len()..];
        for (event, change) in got.events.iter().zip(made) {
            assert_eq!(event.kv.mod_revision, change.main);
            assert_eq!(event.kv.key, change.key);
            if let Some(kv) = &change.kv {
                assert_eq!(&event.kv, kv);
            }
            assert_eq!(event.kind == EventKind::Put, change.kv.is_some());
        }
        let newest = self
            .model
            .changes
            .iter()
            .filter(|c| c.main == self.model.revision)
            .count();
        assert!(got.events.is_empty() || got.events.len() == newest);
        got
    }

    /// Applies the last proposal's copy: nothing may change.
    pub(crate) fn repeat(&mut self) {
        if let Some(last) = self.log.last().cloned() {
            let index = self.log.len() as u64 + 1;
            self.log.push(last.clone());
            let before = self.machine.revision();
            let got = self
                .machine
                .apply(index, 1 + index / 50, Proposal::decode(last).unwrap())
                .unwrap();
            assert_eq!(got.result, Err(Error::DuplicateProposal));
            assert_eq!(self.machine.revision(), before);
        }
    }

    /// Takes a batch, which is packed when it arrives: whatever the machine does
    /// meanwhile must not show in it.
    pub(crate) fn take(&mut self, bytes_max: usize) {
        if let Some(job) = self.machine.take_writeback(bytes_max) {
            assert!(self.flying.is_none());
            self.flying = Some(job);
            // While a batch is on its way reads must not miss what moved into it.
            self.range_all(self.model.revision);
            self.range_all(self.model.compacted.max(1));
        }
    }

    /// Packs the batch that is on its way.
    fn pack(&mut self) -> Option<(WriteBack, Written)> {
        let (batch, written) = self.flying.take()?.pack();
        let mut keys: Vec<_> = batch.rows.iter().map(|r| &r.0).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), batch.rows.len(), "a key occurs twice");
        assert_eq!(
            batch.applied_term,
            1 + batch.applied_index / 50,
            "term of the batch's last entry"
        );
        Some((batch, written))
    }

    pub(crate) fn done(&mut self) {
        if let Some((batch, written)) = self.pack() {
            self.backend.write(&batch);
            self.machine.writeback_done(written);
            assert_eq!(self.machine.written_index(), batch.applied_index);
            self.audit_tree(&batch);
        }
    }

    /// Opens the tree as a crash right now would leave it, before any replay:
    /// it must be the exact state after the batch's last entry.
    fn audit_tree(&self, batch: &WriteBack) {
        let tree = StateMachine::open(Box::new(self.backend.fork()), self.config.clone()).unwrap();
        assert_eq!(
            (tree.applied_index(), tree.applied_term()),
            (batch.applied_index, batch.applied_term)
        );
        assert_eq!(tree.revision(), batch.revision);
        for revision in tree.compact_revision().max(1)..=batch.revision {
            let all = RangeRequest {
                key: Bytes::from_static(b"\0"),
                range_end: Bytes::from_static(b"\0"),
                revision,
                ..RangeRequest::default()
            };
            let want: Vec<_> = self.model.at(revision).into_values().collect();
            assert_eq!(tree.range(&all).unwrap().kvs, want, "tree at {revision}");
        }
    }

    pub(crate) fn view(&mut self) {
        self.taken += 1;
        let seen = Seen {
            view: self.machine.view(Duration::from_secs(self.taken)),
            model: self.model.clone(),
            hash: self.machine.hash_kv(0).unwrap(),
            facts: self.machine.facts(),
            next: Some(HistoryCursor::default()),
            read: Vec::new(),
            expired: false,
        };
        assert_eq!(seen.facts.alarms, self.machine.alarms());
        self.views.push(seen);
    }

    /// Reads on in one of the views.
    pub(crate) fn look(&mut self, nth: usize, changes: usize) {
        if !self.views.is_empty() {
            let nth = nth % self.views.len();
            self.views[nth].look(changes);
        }
    }

    /// Reads one of the views to its end and lets go of it.
    pub(crate) fn drop_view(&mut self, nth: usize) {
        if !self.views.is_empty() {
            let nth = nth % self.views.len();
            self.views.remove(nth).audit();
        }
    }

    pub(crate) fn drop_views(&mut self) {
        for seen in std::mem::take(&mut self.views) {
            seen.audit();
        }
        assert_eq!(self.machine.view_count(), 0, "a pin is left");
    }

    pub(crate) fn expire_views(&mut self) {
        self.machine
            .expire_views(Duration::from_secs(self.taken + 1));
        for seen in &mut self.views {
            seen.expired = true;
        }
        assert_eq!(self.machine.view_count(), 0);
    }

    /// Takes a step, now and then a thorough one.
    pub(crate) fn compact_step(&mut self, budget: usize) -> CompactStep {
        if self.machine.revision() % 3 == 0 {
            self.machine.waste_nothing();
        }
        self.machine.compact_step(budget).unwrap()
    }

    /// Compacts until nothing is left, but for what views hold back.
    pub(crate) fn compact_all(&mut self, budget: usize) {
        loop {
            match self.compact_step(budget) {
                CompactStep::Done => break,
                CompactStep::More => {}
                CompactStep::Busy if !self.machine.rewrites_ready() => break,
                CompactStep::Busy => {
                    self.take(usize::MAX);
                    self.done();
                }
            }
        }
    }

    /// Dies and comes back; the batch on its way is in the tree or not.
    ///
    /// Views are read to their end before: nothing holds rows for them after.
    pub(crate) fn restart(&mut self, batch_arrived: bool) {
        self.drop_views();
        let hash = self.machine.hash_kv(0);
        if let Some((batch, _)) = self.pack()
            && batch_arrived
        {
            self.backend.write(&batch);
        }
        self.machine =
            StateMachine::open(Box::new(self.backend.clone()), self.config.clone()).unwrap();
        for at in self.machine.applied_index()..self.log.len() as u64 {
            let index = at + 1;
            let proposal = Proposal::decode(self.log[at as usize].clone()).unwrap();
            self.machine.apply(index, 1 + index / 50, proposal).unwrap();
        }
        assert_eq!(self.machine.hash_kv(0), hash);
    }

    /// Counts the rows of the tree that hold revisions.
    pub(crate) fn block_rows(&self) -> usize {
        let mut rows = 0;
        let mut count = |_, _| {
            rows += 1;
            Ok(())
        };
        self.backend.scan(b"b", b"c", &mut count).unwrap();
        rows
    }

    #[track_caller]
    pub(crate) fn range(&self, r: &RangeRequest) {
        assert_eq!(self.machine.range(r), self.model.range(r), "{r:?}");
        let mut is_short = true;
        let visited = visited(|visit| {
            let end = self.machine.range_each_if_short(r, visit)?;
            is_short = end.is_some();
            Ok(end.unwrap_or_default())
        });
        if is_short {
            assert_eq!(visited, self.model.range(r), "{r:?}, visited");
        } else {
            let keys = self.model.at(self.model.revision).len();
            assert!(keys > 500, "{keys} keys are too many");
        }
    }

    /// Compares everything that can be asked.
    #[track_caller]
    pub(crate) fn audit(&self) {
        let (machine, model) = (&self.machine, &self.model);
        assert_eq!(machine.revision(), model.revision);
        assert_eq!(machine.compact_revision(), model.compacted);
        assert_eq!(
            machine.leases(),
            model.leases.keys().copied().collect::<Vec<_>>()
        );
        let mut alarms = model.alarms.clone();
        alarms.sort();
        assert_eq!(machine.alarms(), alarms);
        let now = model.at(model.revision);
        assert_eq!(machine.key_count(), now.len() as u64);
        for id in model.leases.keys() {
            let keys: Vec<_> = now
                .values()
                .filter(|kv| kv.lease == *id)
                .map(|kv| kv.key.clone())
                .collect();
            assert_eq!(machine.lease_keys(*id), keys);
        }
        for revision in model.compacted.max(1)..=model.revision {
            self.range_all(revision);
        }
    }

    #[track_caller]
    fn range_all(&self, revision: i64) {
        self.range(&RangeRequest {
            key: Bytes::from_static(b"\0"),
            range_end: Bytes::from_static(b"\0"),
            revision,
            ..RangeRequest::default()
        });
    }
}

/// Makes a reply of pairs that are visited where they lie.
fn visited(
    each: impl FnOnce(&mut dyn FnMut(Pair<'_>)) -> Result<RangeEnd, Error>,
) -> Result<RangeReply, Error> {
    let mut kvs = Vec::new();
    let end = each(&mut |pair| {
        kvs.push(KeyValue {
            key: Bytes::copy_from_slice(pair.key),
            create_revision: pair.create_revision,
            mod_revision: pair.mod_revision,
            version: pair.version,
            value: Bytes::copy_from_slice(pair.value),
            lease: pair.lease,
        });
    })?;
    Ok(RangeReply {
        revision: end.revision,
        kvs,
        count: end.count,
        more: end.more,
    })
}

impl Seen {
    /// Reads a part of the history.
    fn look(&mut self, changes: usize) {
        let Some(from) = self.next else { return };
        match self.view.history_part(from, changes) {
            Ok((part, next)) => {
                assert!(part.len() <= changes);
                self.read.extend(part);
                self.next = next;
                let want = self.model.history();
                assert_eq!(self.read, want[..self.read.len()], "the history so far");
            }
            Err(error) => self.expect_expired(&error),
        }
    }

    fn expect_expired(&self, error: &Error) {
        assert!(self.expired, "{error}");
        assert_eq!(*error, Error::Timeout);
    }

    /// Compares everything the view shows with the model of its moment.
    fn audit(mut self) {
        while self.next.is_some() {
            let before = self.next;
            self.look(7);
            if self.next == before {
                assert!(self.expired);
                break;
            }
        }
        if self.next.is_none() {
            assert_eq!(self.read, self.model.history());
        }
        let (view, model) = (&self.view, &self.model);
        assert_eq!(view.revision(), model.revision);
        assert_eq!(view.compact_revision(), model.compacted);
        for revision in model.compacted.max(1)..=model.revision + 1 {
            let r = RangeRequest {
                key: Bytes::from_static(b"\0"),
                range_end: Bytes::from_static(b"\0"),
                revision,
                ..RangeRequest::default()
            };
            match view.range(&r) {
                Err(error) if self.expired && error == Error::Timeout => {}
                got => {
                    assert_eq!(got, model.range(&r));
                    assert_eq!(visited(|visit| view.range_each(&r, visit)), got);
                }
            }
        }
        match view.hash_kv(0) {
            Ok(hash) => assert_eq!(hash, self.hash),
            Err(error) => self.expect_expired(&error),
        }
        match view.history().collect::<Result<Vec<_>, _>>() {
            Ok(all) => assert_eq!(all, model.history()),
            Err(error) => self.expect_expired(&error),
        }
    }
}
