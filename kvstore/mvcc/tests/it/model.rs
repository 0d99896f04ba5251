//! The naive model: a list of everything that ever happened, searched from the
//! start for every question. Slow, obvious, and sharing no code with the crate.

use std::collections::BTreeMap;

use bytes::Bytes;
use mvcc::*;

/// Is one change.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) main: i64,
    pub(crate) key: Bytes,
    /// What the key became; `None` for a deletion.
    pub(crate) kv: Option<KeyValue>,
}

pub(crate) type State = BTreeMap<Bytes, KeyValue>;

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) changes: Vec<Change>,
    pub(crate) revision: i64,
    pub(crate) compacted: i64,
    pub(crate) leases: BTreeMap<i64, i64>,
    pub(crate) alarms: Vec<Alarm>,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            changes: Vec::new(),
            revision: 1,
            compacted: -1,
            leases: BTreeMap::new(),
            alarms: Vec::new(),
        }
    }

    /// Replays everything up to and including a revision.
    pub(crate) fn at(&self, revision: i64) -> State {
        let mut state = State::new();
        for c in self.changes.iter().filter(|c| c.main <= revision) {
            match &c.kv {
                Some(kv) => state.insert(c.key.clone(), kv.clone()),
                None => state.remove(&c.key),
            };
        }
        state
    }

    /// Lists what etcd would have on disk after its compaction.
    pub(crate) fn history(&self) -> Vec<mvcc::Change> {
        let mut history = Vec::new();
        let mut sub = 0;
        for (at, c) in self.changes.iter().enumerate() {
            let first = at == 0 || self.changes[at - 1].main != c.main;
            sub = if first { 0 } else { sub + 1 };
            let forgotten = |later: &Change| later.key == c.key && later.main <= self.compacted;
            let kept = match &c.kv {
                Some(_) => c.main > self.compacted || !self.changes[at + 1..].iter().any(forgotten),
                None => c.main >= self.compacted,
            };
            if kept {
                let deleted = KeyValue {
                    key: c.key.clone(),
                    ..KeyValue::default()
                };
                history.push(mvcc::Change {
                    main: c.main,
                    sub,
                    tombstone: c.kv.is_none(),
                    kv: c.kv.clone().unwrap_or(deleted),
                });
            }
        }
        history
    }

    pub(crate) fn apply(&mut self, command: &Command) -> Result<Reply, Error> {
        self.check_alarms(command)?;
        let mut trial = Trial {
            state: self.at(self.revision),
            begin: self.revision,
            changes: Vec::new(),
        };
        let reply = match command {
            Command::Put(p) => {
                self.check_put(&trial.state, p)?;
                Reply::Put(trial.put(p))
            }
            Command::DeleteRange(d) => Reply::DeleteRange(trial.delete(d)),
            Command::Txn(t) => {
                let path = settle(&trial.state, t);
                self.check_txn(&trial.state, t, &mut path.clone().into_iter())?;
                let mut reply = self.run(&mut trial, t, &mut path.into_iter());
                reply.revision = trial.current();
                Reply::Txn(reply)
            }
            Command::Compact(c) => {
                if c.revision <= self.compacted {
                    return Err(Error::Compacted);
                }
                if c.revision > self.revision {
                    return Err(Error::FutureRevision);
                }
                self.compacted = c.revision;
                Reply::Compact(CompactReply {
                    revision: self.revision,
                })
            }
            Command::LeaseGrant(g) => self.grant(g)?,
            Command::LeaseRevoke(r) => {
                self.leases.remove(&r.id).ok_or(Error::LeaseNotFound)?;
                let keys: Vec<_> = trial
                    .state
                    .values()
                    .filter(|kv| kv.lease == r.id)
                    .map(|kv| kv.key.clone())
                    .collect();
                for key in keys {
                    trial.delete(&DeleteRangeRequest {
                        key,
                        ..Default::default()
                    });
                }
                Reply::LeaseRevoke(LeaseReply {
                    revision: trial.current(),
                })
            }
            Command::LeaseCheckpoint(_) => Reply::LeaseCheckpoint(LeaseReply {
                revision: self.revision,
            }),
            Command::AlarmActivate(a) => self.alarm(*a, true),
            Command::AlarmDeactivate(a) => self.alarm(*a, false),
            Command::Auth(_) | Command::Downgrade(_) | Command::Member(_) => {
                panic!("the model knows keys only")
            }
        };
        self.revision = trial.current();
        self.changes.extend(trial.changes);
        Ok(reply)
    }

    fn check_alarms(&self, command: &Command) -> Result<(), Error> {
        let kinds: Vec<_> = self.alarms.iter().map(|a| a.kind).collect();
        let grows = match command {
            Command::Put(_) | Command::LeaseGrant(_) => true,
            Command::Txn(t) => puts(t),
            _ => false,
        };
        match command {
            Command::AlarmActivate(_) | Command::AlarmDeactivate(_) => {}
            _ if kinds.contains(&AlarmKind::Corrupt) => return Err(Error::Corrupt),
            _ if grows && kinds.contains(&AlarmKind::NoSpace) => return Err(Error::NoSpace),
            _ => {}
        }
        Ok(())
    }

    fn grant(&mut self, g: &LeaseGrantRequest) -> Result<Reply, Error> {
        if self.leases.contains_key(&g.id) {
            return Err(Error::LeaseExists);
        }
        let ttl = g.ttl.max(2);
        self.leases.insert(g.id, ttl);
        Ok(Reply::LeaseGrant(LeaseGrantReply {
            revision: self.revision,
            id: g.id,
            ttl,
        }))
    }

    fn alarm(&mut self, alarm: Alarm, on: bool) -> Reply {
        let known = self.alarms.contains(&alarm);
        self.alarms.retain(|a| *a != alarm);
        if on {
            self.alarms.push(alarm);
        }
        Reply::Alarm(AlarmReply {
            revision: self.revision,
            alarms: if on || known { vec![alarm] } else { vec![] },
        })
    }

    pub(crate) fn range(&self, r: &RangeRequest) -> Result<RangeReply, Error> {
        let trial = Trial {
            state: self.at(self.revision),
            begin: self.revision,
            changes: Vec::new(),
        };
        self.range_in(&trial, r)
    }

    fn check_put(&self, state: &State, p: &PutRequest) -> Result<(), Error> {
        if p.lease != 0 && !self.leases.contains_key(&p.lease) {
            return Err(Error::LeaseNotFound);
        }
        if (p.ignore_lease || p.ignore_value) && !state.contains_key(&p.key) {
            return Err(Error::KeyNotFound);
        }
        Ok(())
    }

    fn check_txn(
        &self,
        state: &State,
        t: &TxnRequest,
        path: &mut impl Iterator<Item = bool>,
    ) -> Result<(), Error> {
        let ops = if path.next().unwrap() {
            &t.success
        } else {
            &t.failure
        };
        for op in ops {
            match op {
                RequestOp::Range(r) if r.revision > self.revision => {
                    return Err(Error::FutureRevision);
                }
                RequestOp::Range(r) if r.revision != 0 && r.revision < self.compacted => {
                    return Err(Error::Compacted);
                }
                RequestOp::Put(p) => self.check_put(state, p)?,
                RequestOp::Txn(t) => self.check_txn(state, t, path)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn run(
        &self,
        trial: &mut Trial,
        t: &TxnRequest,
        path: &mut dyn Iterator<Item = bool>,
    ) -> TxnReply {
        let succeeded = path.next().unwrap();
        let ops = if succeeded { &t.success } else { &t.failure };
        let responses = ops
            .iter()
            .map(|op| match op {
                RequestOp::Range(r) => ResponseOp::Range(self.range_in(trial, r).unwrap()),
                RequestOp::Put(p) => ResponseOp::Put(trial.put(p)),
                RequestOp::DeleteRange(d) => ResponseOp::DeleteRange(trial.delete(d)),
                RequestOp::Txn(t) => ResponseOp::Txn(self.run(trial, t, path)),
                RequestOp::Empty => unreachable!(),
            })
            .collect();
        TxnReply {
            revision: 0,
            succeeded,
            responses,
        }
    }

    fn range_in(&self, trial: &Trial, r: &RangeRequest) -> Result<RangeReply, Error> {
        let current = trial.current();
        if r.revision > current {
            return Err(Error::FutureRevision);
        }
        let state = match r.revision {
            n if n > 0 && n < self.compacted => return Err(Error::Compacted),
            n if n > 0 && n < current => self.at(n),
            _ => trial.state.clone(),
        };
        let mut kvs: Vec<_> = state
            .into_values()
            .filter(|kv| inside(&kv.key, &r.key, &r.range_end))
            .collect();
        let count = kvs.len() as i64;
        if r.count_only {
            return Ok(RangeReply {
                revision: current,
                count,
                ..Default::default()
            });
        }
        let within = |n: i64, lo: i64, hi: i64| (lo == 0 || n >= lo) && (hi == 0 || n <= hi);
        let unfiltered = r.min_mod_revision == 0
            && r.max_mod_revision == 0
            && r.min_create_revision == 0
            && r.max_create_revision == 0;
        // etcd fetches one more than the limit, in key order, before sorting by
        // another target with no order given.
        if unfiltered && r.sort_order == SortOrder::None && r.limit > 0 {
            kvs.truncate(r.limit as usize + 1);
        }
        kvs.retain(|kv| within(kv.mod_revision, r.min_mod_revision, r.max_mod_revision));
        kvs.retain(|kv| {
            within(
                kv.create_revision,
                r.min_create_revision,
                r.max_create_revision,
            )
        });
        let descend = r.sort_order == SortOrder::Descend;
        kvs.sort_by(|a, b| {
            let order = match r.sort_target {
                SortTarget::Key => a.key.cmp(&b.key),
                SortTarget::Version => a.version.cmp(&b.version),
                SortTarget::Create => a.create_revision.cmp(&b.create_revision),
                SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
                SortTarget::Value => a.value.cmp(&b.value),
            };
            if descend { order.reverse() } else { order }
        });
        let more = r.limit > 0 && kvs.len() > r.limit as usize;
        if more {
            kvs.truncate(r.limit as usize);
        }
        if r.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
        }
        Ok(RangeReply {
            revision: current,
            kvs,
            count,
            more,
        })
    }
}

/// Is a transaction under way.
struct Trial {
    state: State,
    begin: i64,
    changes: Vec<Change>,
}

impl Trial {
    fn current(&self) -> i64 {
        self.begin + i64::from(!self.changes.is_empty())
    }

    fn put(&mut self, p: &PutRequest) -> PutReply {
        let main = self.begin + 1;
        let old = self.state.get(&p.key).cloned();
        let kv = KeyValue {
            key: p.key.clone(),
            create_revision: old.as_ref().map_or(main, |o| o.create_revision),
            mod_revision: main,
            version: old.as_ref().map_or(1, |o| o.version + 1),
            value: match &old {
                Some(o) if p.ignore_value => o.value.clone(),
                _ => p.value.clone(),
            },
            lease: match &old {
                Some(o) if p.ignore_lease => o.lease,
                _ => p.lease,
            },
        };
        self.state.insert(p.key.clone(), kv.clone());
        self.changes.push(Change {
            main,
            key: p.key.clone(),
            kv: Some(kv),
        });
        PutReply {
            revision: main,
            prev_kv: old.filter(|_| p.prev_kv),
        }
    }

    fn delete(&mut self, d: &DeleteRangeRequest) -> DeleteReply {
        let gone: Vec<_> = self
            .state
            .values()
            .filter(|kv| inside(&kv.key, &d.key, &d.range_end))
            .cloned()
            .collect();
        for kv in &gone {
            self.state.remove(&kv.key);
            self.changes.push(Change {
                main: self.begin + 1,
                key: kv.key.clone(),
                kv: None,
            });
        }
        DeleteReply {
            revision: self.current(),
            deleted: gone.len() as i64,
            prev_kvs: if d.prev_kv { gone } else { vec![] },
        }
    }
}

pub(crate) fn inside(key: &[u8], from: &[u8], end: &[u8]) -> bool {
    match end {
        [] => key == from,
        [0] => key >= from,
        end => key >= from && key < end,
    }
}

fn puts(t: &TxnRequest) -> bool {
    t.success.iter().chain(&t.failure).any(|op| match op {
        RequestOp::Put(_) => true,
        RequestOp::Txn(t) => puts(t),
        _ => false,
    })
}

fn settle(state: &State, t: &TxnRequest) -> Vec<bool> {
    let holds = t.compare.iter().all(|c| {
        let found: Vec<_> = state
            .values()
            .filter(|kv| inside(&kv.key, &c.key, &c.range_end))
            .cloned()
            .collect();
        match (found.is_empty(), &c.target) {
            (true, CompareTarget::Value(_)) => false,
            (true, _) => compare(c, &KeyValue::default()),
            _ => found.iter().all(|kv| compare(c, kv)),
        }
    });
    let mut path = vec![holds];
    for op in if holds { &t.success } else { &t.failure } {
        if let RequestOp::Txn(t) = op {
            path.extend(settle(state, t));
        }
    }
    path
}

fn compare(c: &Compare, kv: &KeyValue) -> bool {
    let order = match &c.target {
        CompareTarget::Version(n) => kv.version.cmp(n),
        CompareTarget::CreateRevision(n) => kv.create_revision.cmp(n),
        CompareTarget::ModRevision(n) => kv.mod_revision.cmp(n),
        CompareTarget::Lease(n) => kv.lease.cmp(n),
        CompareTarget::Value(v) => kv.value.cmp(v),
    };
    match c.result {
        CompareResult::Equal => order.is_eq(),
        CompareResult::Greater => order.is_gt(),
        CompareResult::Less => order.is_lt(),
        CompareResult::NotEqual => order.is_ne(),
    }
}
