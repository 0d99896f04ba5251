//! Random writes, compactions and crashes against a model, seed by seed.
//!
//! Thresholds are tiny, so that within a few hundred writes blocks close and are
//! rewritten, write-backs come by the dozen, and each crash falls at another point
//! of a compaction.

use std::{collections::BTreeMap, time::Duration};

use kvserver::{Handle, WriteBehind};
use mvcc::{CompactRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest, RequestOp};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use crate::store::Store;

const ROUNDS: usize = 12;
const KEYS: u32 = 120;
const LEASES: i64 = 3;

/// create revision, mod revision, version, lease, value length.
type Row = (i64, i64, i64, i64, usize);
type State = BTreeMap<String, Row>;

struct Model {
    /// The state at every revision not yet compacted.
    states: BTreeMap<i64, State>,
    compacted: i64,
}

impl Model {
    fn revision(&self) -> i64 {
        *self.states.keys().next_back().unwrap()
    }

    fn now(&self) -> State {
        self.states[&self.revision()].clone()
    }

    fn commit(&mut self, state: State) -> i64 {
        let revision = self.revision() + 1;
        self.states.insert(revision, state);
        revision
    }
}

async fn read(handle: &Handle, revision: i64) -> State {
    let request = mvcc::RangeRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        revision,
        ..Default::default()
    };
    let reply = handle.range(request).await.unwrap();
    let rows = reply.kvs.into_iter().map(|kv| {
        let key = String::from_utf8(kv.key.to_vec()).unwrap();
        let (create, modified) = (kv.create_revision, kv.mod_revision);
        (
            key,
            (create, modified, kv.version, kv.lease, kv.value.len()),
        )
    });
    rows.collect()
}

/// One transaction of puts and deletes, each key once.
async fn write(handle: &Handle, model: &mut Model, random: &mut StdRng) {
    let mut state = model.now();
    let revision = model.revision() + 1;
    let mut ops = BTreeMap::new();
    let mut changed = false;
    for _ in 0..random.random_range(1..40) {
        let key = format!("k{:03}", random.random_range(0..KEYS));
        if ops.contains_key(&key) {
            continue;
        }
        let op = if random.random_bool(0.5) {
            let len = [0, 10, 60, 400, 3_000][random.random_range(0..5)];
            let lease = [0, 0, random.random_range(1..=LEASES)][random.random_range(0..3)];
            let (create, version) = state.get(&key).map_or((revision, 0), |row| (row.0, row.2));
            let row = (create, revision, version + 1, lease, len);
            state.insert(key.clone(), row);
            changed = true;
            RequestOp::Put(mvcc::PutRequest {
                key: key.clone().into(),
                value: vec![b'v'; len].into(),
                lease,
                ..Default::default()
            })
        } else {
            changed |= state.remove(&key).is_some();
            RequestOp::DeleteRange(DeleteRangeRequest {
                key: key.clone().into(),
                ..Default::default()
            })
        };
        ops.insert(key, op);
    }
    let request = mvcc::TxnRequest {
        success: ops.into_values().collect(),
        ..Default::default()
    };
    let reply = handle.txn(request).await.unwrap();
    if changed {
        model.commit(state);
    }
    assert_eq!(reply.revision, model.revision());
}

async fn compact(handle: &Handle, model: &mut Model, random: &mut StdRng) {
    if model.revision() <= model.compacted {
        return;
    }
    let revision = random.random_range(model.compacted.max(1) + 1..=model.revision().max(2));
    let physical = random.random_bool(0.3);
    let request = CompactRequest { revision, physical };
    if handle.compact(request).await.is_ok() {
        model.compacted = revision;
        model.states = model.states.split_off(&revision);
    }
}

async fn revoke(handle: &Handle, model: &mut Model, random: &mut StdRng) {
    let id = random.random_range(1..=LEASES);
    let mut state = model.now();
    let before = state.len();
    state.retain(|_, row| row.3 != id);
    handle
        .lease_revoke(LeaseRevokeRequest { id })
        .await
        .unwrap();
    if state.len() < before {
        model.commit(state);
    }
    grant(handle, id).await;
}

async fn grant(handle: &Handle, id: i64) {
    let request = LeaseGrantRequest { id, ttl: 100_000 };
    handle.lease_grant(request).await.unwrap();
}

#[track_caller]
fn same(got: &State, want: &State, what: &str) {
    let lost: Vec<_> = want.iter().filter(|(k, _)| !got.contains_key(*k)).collect();
    let back: Vec<_> = got.iter().filter(|(k, _)| !want.contains_key(*k)).collect();
    assert!(
        lost.is_empty() && back.is_empty(),
        "{what}: lost {lost:?}, back {back:?}"
    );
    assert_eq!(got, want, "{what}");
}

async fn run(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut store = Store::start_with(|config| {
        config.listen_client_urls.clear();
        config.wal_segment_bytes = 64 << 10;
        config.write_behind = WriteBehind {
            bytes: 4 << 10,
            interval: Duration::from_millis(1),
            block_bytes: 2 << 10,
            window_bytes: 8 << 10,
        };
    })
    .await;
    let mut model = Model {
        states: BTreeMap::from([(1, State::new())]),
        compacted: 0,
    };
    for id in 1..=LEASES {
        grant(&store.running().handle, id).await;
    }
    for round in 0..ROUNDS {
        let handle = store.running().handle.clone();
        for _ in 0..random.random_range(3..15) {
            write(&handle, &mut model, &mut random).await;
            if random.random_bool(0.2) {
                compact(&handle, &mut model, &mut random).await;
            }
            if random.random_bool(0.05) {
                revoke(&handle, &mut model, &mut random).await;
            }
        }
        if random.random_bool(0.7) {
            compact(&handle, &mut model, &mut random).await;
        }
        let hash = handle.hash_kv(0).await.unwrap();
        drop(handle);
        match random.random_bool(0.7) {
            true => store.lose_power().await,
            false => store.restart().await,
        }
        let handle = store.running().handle.clone();
        let at = format!("seed {seed} round {round} compacted {}", model.compacted);
        assert_eq!(handle.revision(), model.revision(), "{at}");
        assert_eq!(handle.hash_kv(0).await.unwrap(), hash, "{at}");
        same(&read(&handle, 0).await, &model.now(), &at);
        for (revision, state) in &model.states {
            let at = format!("{at} at revision {revision}");
            same(&read(&handle, *revision).await, state, &at);
        }
        for id in 1..=LEASES {
            let lease = handle.lease_time_to_live(id, true).await.unwrap();
            let now = model.now();
            let keys = now
                .iter()
                .filter(|(_, row)| row.3 == id)
                .map(|(key, _)| key);
            assert!(keys.eq(lease.keys.iter()), "{at}: keys of lease {id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_deleted_stays_deleted_and_what_was_written_stays() {
    for seed in 0..6 {
        run(seed).await;
    }
}
