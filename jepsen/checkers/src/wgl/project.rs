//! What an operation means to one key: what the key must have been, and what it is
//! after. Versions and revisions are left out, but for naming values.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    history::{
        Blob, Body, Compare, History, Is, Kv, Op, Outcome, Request, Target, Time, Txn, TxnOp,
    },
    model::{lock_key, within},
    witness::is_stale,
};

/// Is the number of a value; 0 is no value.
pub(super) type State = u32;

/// How many keys there may be for reads of ranges to say which are absent. With more
/// keys each such read would have to be looked at once for every key.
const ABSENT_KEYS_MAX: usize = 64;

/// Is all that happened to one key.
#[derive(Debug)]
pub(super) struct Register {
    pub(super) key: Blob,
    pub(super) steps: Vec<Step>,
}

/// Is one operation as this key sees it.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Its place in the history.
    pub(super) op: usize,
    pub(super) call: Time,
    /// [`Time::MAX`] if nobody knows whether it happened.
    pub(super) ret: Time,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    /// It happened, so this held, and this was written.
    Known(Vec<Must>, Option<State>),
    /// If all this holds the first is written, else the second.
    Either(Vec<Must>, Option<State>, Option<State>),
    /// One of both is written.
    Any(Option<State>, Option<State>),
}

/// Is what a key must be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Must {
    Be(State),
    /// Be there, and not this.
    NotBe(State),
    /// Not be this, or not be there.
    Differ(State),
    Exist,
}

impl Must {
    fn holds(self, state: State) -> bool {
        match self {
            Self::Be(value) => state == value,
            Self::NotBe(value) => state != 0 && state != value,
            Self::Differ(value) => state != value,
            Self::Exist => state != 0,
        }
    }

    /// Is the opposite.
    fn not(self) -> Self {
        match self {
            Self::Be(value) => Self::Differ(value),
            Self::Differ(value) => Self::Be(value),
            Self::Exist => Self::Be(0),
            // Absent, or this: no condition of the list says so; saying less is right.
            Self::NotBe(_) => Self::Differ(State::MAX),
        }
    }
}

impl Step {
    pub(super) fn unknown(&self) -> bool {
        self.ret == Time::MAX
    }

    /// Says whether it may change the key.
    pub(super) fn writes(&self) -> bool {
        !matches!(self.kind, Kind::Known(_, None))
    }

    /// Returns the state after one of the ways this may go: `None` when there are no
    /// more ways, `Some(None)` when this one is not possible.
    pub(super) fn alternative(&self, which: usize, state: State) -> Option<Option<State>> {
        let all = |list: &[Must]| list.iter().all(|must| must.holds(state));
        match (&self.kind, which) {
            (Kind::Known(musts, effect), 0) => Some(all(musts).then(|| effect.unwrap_or(state))),
            (Kind::Either(musts, yes, no), 0) => {
                let effect = if all(musts) { yes } else { no };
                Some(Some(effect.unwrap_or(state)))
            }
            (Kind::Any(one, _), 0) => Some(Some(one.unwrap_or(state))),
            (Kind::Any(_, other), 1) => Some(Some(other.unwrap_or(state))),
            _ => None,
        }
    }
}

/// Is a history taken apart by keys.
pub(super) struct Projection {
    pub(super) registers: Vec<Register>,
    /// The values by their numbers.
    values: Vec<Blob>,
}

impl Projection {
    /// Takes a history apart. Keys that go with leases are left out: they end by
    /// themselves.
    pub(super) fn of(history: &History) -> Self {
        let mut names = Names::of(history);
        let mut steps: BTreeMap<Blob, Vec<Step>> = BTreeMap::new();
        for (at, op) in history.ops.iter().enumerate() {
            if matches!(op.outcome, Outcome::Fail(_)) || is_stale(&op.request) {
                continue;
            }
            for (key, kind) in names.look(op).kinds {
                let step = Step {
                    op: at,
                    call: op.call,
                    ret: if op.unknown() { Time::MAX } else { op.ret },
                    kind,
                };
                match steps.get_mut(&key) {
                    Some(steps) => steps.push(step),
                    None => drop(steps.insert(key, vec![step])),
                }
            }
        }
        let registers = steps
            .into_iter()
            .filter(|(key, _)| !names.skipped.contains(key))
            .filter(|(_, steps)| steps.iter().any(|step| !step.unknown()))
            .map(|(key, steps)| Register { key, steps })
            .collect();
        Self {
            registers,
            values: names.values.into_keys_in_order(),
        }
    }

    /// Shows a value.
    pub(super) fn show(&self, state: State) -> String {
        match usize::try_from(state).ok().and_then(|at| at.checked_sub(1)) {
            None => "absent".to_owned(),
            Some(at) => self
                .values
                .get(at)
                .map_or_else(String::new, Blob::to_string),
        }
    }
}

#[derive(Default)]
struct Values(BTreeMap<Blob, State>);

impl Values {
    fn number(&mut self, value: &Blob) -> State {
        let next = State::try_from(self.0.len()).unwrap_or(State::MAX - 1) + 1;
        match self.0.get(value) {
            Some(number) => *number,
            None => {
                self.0.insert(value.clone(), next);
                next
            }
        }
    }

    fn into_keys_in_order(self) -> Vec<Blob> {
        let mut pairs: Vec<_> = self.0.into_iter().collect();
        pairs.sort_by_key(|(_, number)| *number);
        pairs.into_iter().map(|(value, _)| value).collect()
    }
}

/// Knows the values, and what revisions are called.
struct Names {
    values: Values,
    /// Which keys there are, and which of them are left out.
    keys: BTreeSet<Blob>,
    skipped: BTreeSet<Blob>,
    /// The value that a key had with a mod revision.
    versions: BTreeMap<(Blob, i64), State>,
    /// Keys under which some value is written twice.
    repeated: BTreeSet<Blob>,
    written: BTreeSet<(Blob, State)>,
}

#[derive(Default)]
struct Look {
    kinds: BTreeMap<Blob, Kind>,
}

impl Names {
    fn of(history: &History) -> Self {
        let mut names = Self {
            values: Values::default(),
            keys: BTreeSet::new(),
            skipped: BTreeSet::new(),
            versions: BTreeMap::new(),
            repeated: BTreeSet::new(),
            written: BTreeSet::new(),
        };
        for op in &history.ops {
            match &op.request {
                Request::Lock { name, lease } => {
                    names.skipped.insert(lock_key(name, *lease));
                }
                request => names.know(request, op),
            }
        }
        names
    }

    fn know(&mut self, request: &Request, op: &Op) {
        let reply = op.reply();
        match request {
            Request::Put(put) => {
                let put = TxnOp::Put(put.clone());
                let revision = reply.map_or(0, |reply| reply.revision);
                self.know_op(&put, reply.map(|reply| &reply.body), revision);
            }
            Request::Range(range) => {
                if let Some(Body::Range { kvs, .. }) = reply.map(|reply| &reply.body)
                    && !range.keys_only
                {
                    kvs.iter().for_each(|kv| self.know_kv(kv));
                }
            }
            Request::Txn(txn) => {
                let revision = reply.map_or(0, |reply| reply.revision);
                self.know_txn(txn, reply.map(|reply| &reply.body), revision);
            }
            Request::Delete(delete) if delete.end.is_empty() => {
                self.keys.insert(delete.key.clone());
            }
            _ => {}
        }
    }

    fn know_txn(&mut self, txn: &Txn, body: Option<&Body>, revision: i64) {
        let (succeeded, results) = match body {
            Some(Body::Txn { succeeded, results }) => (Some(*succeeded), &results[..]),
            _ => (None, &[][..]),
        };
        for (branch, ops) in [(true, &txn.success), (false, &txn.failure)] {
            for (at, op) in ops.iter().enumerate() {
                let result = results.get(at).filter(|_| succeeded == Some(branch));
                self.know_op(op, result, revision);
            }
        }
    }

    fn know_op(&mut self, op: &TxnOp, body: Option<&Body>, revision: i64) {
        match (op, body) {
            (TxnOp::Put(put), _) => {
                self.keys.insert(put.key.clone());
                if put.lease != 0 || put.ignore_lease || put.ignore_value {
                    self.skipped.insert(put.key.clone());
                }
                let value = self.values.number(&put.value);
                if !self.written.insert((put.key.clone(), value)) {
                    self.repeated.insert(put.key.clone());
                }
                if body.is_some() && revision > 0 {
                    self.versions.insert((put.key.clone(), revision), value);
                }
            }
            (TxnOp::Range(range), Some(Body::Range { kvs, .. })) if !range.keys_only => {
                kvs.iter().for_each(|kv| self.know_kv(kv));
            }
            (TxnOp::Txn(nested), body) => self.know_txn(nested, body, revision),
            _ => {}
        }
    }

    fn know_kv(&mut self, kv: &Kv) {
        let value = self.values.number(&kv.value);
        self.keys.insert(kv.key.clone());
        if kv.lease != 0 {
            self.skipped.insert(kv.key.clone());
        }
        self.versions.insert((kv.key.clone(), kv.modified), value);
    }

    /// Says what one operation means to each key it is about.
    fn look(&mut self, op: &Op) -> Look {
        let body = op.reply().map(|reply| &reply.body);
        let mut look = Look::default();
        match &op.request {
            Request::Range(range) if range.revision > 0 => {}
            Request::Range(range) => {
                let op = TxnOp::Range(range.clone());
                self.look_known(std::slice::from_ref(&op), body, &mut look);
            }
            Request::Put(put) => {
                let op = TxnOp::Put(put.clone());
                self.look_known(std::slice::from_ref(&op), body, &mut look);
            }
            Request::Delete(delete) => {
                let op = TxnOp::Delete(delete.clone());
                self.look_known(std::slice::from_ref(&op), body, &mut look);
            }
            Request::Txn(txn) => match body {
                Some(body) => self.look_txn(txn, body, &mut look),
                None => self.look_guess(txn, &mut look),
            },
            _ => {}
        }
        look.kinds.retain(|key, _| !self.skipped.contains(key));
        look
    }

    /// Looks at operations that happened, or (without an answer) would.
    fn look_known(&mut self, ops: &[TxnOp], body: Option<&Body>, look: &mut Look) {
        let bodies = body.map(std::slice::from_ref);
        let mut known = BTreeMap::new();
        self.do_ops(ops, bodies, &mut known);
        for (key, (musts, effect)) in known {
            if body.is_some() || effect.is_some() {
                look.kinds.insert(key, Kind::Known(musts, effect));
            }
        }
    }

    fn look_txn(&mut self, txn: &Txn, body: &Body, look: &mut Look) {
        let mut known = BTreeMap::new();
        self.do_txn(txn, body, &mut known);
        for (key, (musts, effect)) in known {
            look.kinds.insert(key, Kind::Known(musts, effect));
        }
    }

    fn do_txn(
        &mut self,
        txn: &Txn,
        body: &Body,
        known: &mut BTreeMap<Blob, (Vec<Must>, Option<State>)>,
    ) {
        let Body::Txn { succeeded, results } = body else {
            return;
        };
        for compare in &txn.compare {
            // If it failed and there are several conditions, any may have failed.
            let sure = *succeeded || txn.compare.len() == 1;
            if let Some(must) = self.must(compare).filter(|_| sure) {
                let (must, exact) = must;
                let must = if *succeeded { must } else { must.not() };
                if *succeeded || exact {
                    let entry = known.entry(compare.key.clone()).or_default();
                    if entry.1.is_none() {
                        entry.0.push(must);
                    }
                }
            }
        }
        let ops = if *succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        self.do_ops(ops, Some(results), known);
    }

    fn do_ops(
        &mut self,
        ops: &[TxnOp],
        bodies: Option<&[Body]>,
        known: &mut BTreeMap<Blob, (Vec<Must>, Option<State>)>,
    ) {
        for (at, op) in ops.iter().enumerate() {
            let body = bodies.and_then(|bodies| bodies.get(at));
            match op {
                TxnOp::Put(put) => {
                    let value = self.values.number(&put.value);
                    if let Some(Body::Put { prev: Some(prev) }) = body {
                        let prev = self.values.number(&prev.value);
                        learn(known, &put.key, Must::Be(prev));
                    } else if put.prev_kv && body.is_some() {
                        learn(known, &put.key, Must::Be(0));
                    }
                    known.entry(put.key.clone()).or_default().1 = Some(value);
                }
                TxnOp::Delete(delete) => {
                    let single = delete.end.is_empty();
                    let keys: Vec<_> = if single {
                        vec![delete.key.clone()]
                    } else {
                        let within = |key: &&Blob| within(key, &delete.key, &delete.end);
                        self.keys.iter().filter(within).cloned().collect()
                    };
                    for key in keys {
                        match body {
                            Some(Body::Delete { deleted: 0, .. }) => {
                                learn(known, &key, Must::Be(0));
                            }
                            Some(_) if single => learn(known, &key, Must::Exist),
                            _ => {}
                        }
                        known.entry(key).or_default().1 = Some(0);
                    }
                }
                TxnOp::Range(range) if range.revision > 0 => {}
                TxnOp::Range(range) if range.keys_only || range.count_only => {}
                TxnOp::Range(range) => {
                    if let Some(Body::Range { kvs, more, .. }) = body {
                        self.read(&range.key, &range.end, kvs, *more, known);
                    }
                }
                TxnOp::Txn(nested) => {
                    if let Some(body) = body {
                        self.do_txn(nested, body, known);
                    }
                }
            }
        }
    }

    fn read(
        &mut self,
        key: &Blob,
        end: &Blob,
        kvs: &[Kv],
        more: bool,
        known: &mut BTreeMap<Blob, (Vec<Must>, Option<State>)>,
    ) {
        for kv in kvs {
            let value = self.values.number(&kv.value);
            learn(known, &kv.key, Must::Be(value));
        }
        if end.is_empty() && kvs.is_empty() {
            learn(known, key, Must::Be(0));
        } else if !end.is_empty() && !more && self.keys.len() <= ABSENT_KEYS_MAX {
            for other in &self.keys {
                if within(other, key, end) && !kvs.iter().any(|kv| kv.key == *other) {
                    learn(known, other, Must::Be(0));
                }
            }
        }
    }

    /// Looks at a transaction of unknown outcome.
    fn look_guess(&mut self, txn: &Txn, look: &mut Look) {
        let nested = |op: &TxnOp| matches!(op, TxnOp::Txn(_));
        let (mut yes, mut no) = (BTreeMap::new(), BTreeMap::new());
        self.do_ops(&txn.success, None, &mut yes);
        self.do_ops(&txn.failure, None, &mut no);
        let mut deep = BTreeMap::new();
        for op in txn
            .success
            .iter()
            .chain(&txn.failure)
            .filter(|op| nested(op))
        {
            self.deep_writes(op, &mut deep);
        }
        let keys: BTreeSet<_> = yes.keys().chain(no.keys()).cloned().collect();
        for key in keys {
            let effect = |map: &BTreeMap<Blob, (Vec<Must>, Option<State>)>| {
                map.get(&key).and_then(|(_, effect)| *effect)
            };
            let (yes, no) = (effect(&yes), effect(&no));
            let here = txn.compare.iter().all(|compare| compare.key == key);
            let musts: Option<Vec<_>> = txn
                .compare
                .iter()
                .map(|compare| self.must(compare).filter(|(_, exact)| *exact))
                .map(|must| must.map(|(must, _)| must))
                .collect();
            let kind = match musts {
                Some(musts) if here => Kind::Either(musts, yes, no),
                _ => Kind::Any(yes, no),
            };
            look.kinds.insert(key, kind);
        }
        // What is written by a nested transaction of unknown outcome is too much to
        // follow; its keys are left alone from here on.
        self.skipped.extend(deep.into_keys());
    }

    fn deep_writes(&self, op: &TxnOp, found: &mut BTreeMap<Blob, ()>) {
        match op {
            TxnOp::Put(put) => drop(found.insert(put.key.clone(), ())),
            TxnOp::Delete(delete) => {
                let keys = self.keys.iter();
                let swept = keys.filter(|key| within(key, &delete.key, &delete.end));
                found.extend(swept.map(|key| (key.clone(), ())));
            }
            TxnOp::Txn(txn) => {
                for op in txn.success.iter().chain(&txn.failure) {
                    self.deep_writes(op, found);
                }
            }
            TxnOp::Range(_) => {}
        }
    }

    /// Says what a condition means to its key, and whether exactly that: else it only
    /// follows from the condition.
    fn must(&mut self, compare: &Compare) -> Option<(Must, bool)> {
        if !compare.end.is_empty() {
            return None;
        }
        let zero = match compare.to {
            Target::Version(0) | Target::Create(0) | Target::Mod(0) => true,
            Target::Mod(revision) => {
                let key = (compare.key.clone(), revision);
                let value = *self.versions.get(&key)?;
                // A value that is written twice does not tell its revision.
                let exact = !self.repeated.contains(&compare.key);
                return match compare.is {
                    Is::Equal => Some((Must::Be(value), exact)),
                    Is::NotEqual if exact => Some((Must::Differ(value), true)),
                    _ => None,
                };
            }
            Target::Value(ref value) => {
                let value = self.values.number(value);
                return match compare.is {
                    Is::Equal => Some((Must::Be(value), true)),
                    Is::NotEqual => Some((Must::NotBe(value), true)),
                    _ => None,
                };
            }
            _ => false,
        };
        match compare.is {
            Is::Equal if zero => Some((Must::Be(0), true)),
            Is::NotEqual | Is::Greater if zero => Some((Must::Exist, true)),
            _ => None,
        }
    }
}

/// Adds what a key must have been before the operation; after its own write an
/// operation tells nothing of that.
fn learn(known: &mut BTreeMap<Blob, (Vec<Must>, Option<State>)>, key: &Blob, must: Must) {
    let entry = known.entry(key.clone()).or_default();
    if entry.1.is_none() && !entry.0.contains(&must) {
        entry.0.push(must);
    }
}
