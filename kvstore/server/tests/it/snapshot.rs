//! Snapshots of a running member: what is sent, what a file is refused for, and
//! that a restored store is the one it was taken from.

use std::{fs, path::Path, path::PathBuf, time::Duration};

use kvserver::{
    Config, Running, Server,
    snapshot::{self, Restore, Save, SnapshotError},
};
use proto::etcdserverpb::{
    self as pb, auth_client::AuthClient, maintenance_client::MaintenanceClient,
};
use sha2::{Digest as _, Sha256};
use tokio_stream::StreamExt as _;

use crate::store::{Store, put_op};

pub(crate) fn order(file: &Path, data_dir: &Path) -> Restore {
    Restore {
        file: file.to_owned(),
        data_dir: data_dir.to_owned(),
        name: "default".to_owned(),
        initial_cluster: "default=http://localhost:2380".to_owned(),
        initial_cluster_token: "etcd-cluster".to_owned(),
        initial_advertise_peer_urls: vec!["http://localhost:2380".to_owned()],
        skip_hash_check: false,
        bump_revision: 0,
        mark_compacted: false,
    }
}

pub(crate) async fn save(url: &str, file: &Path) -> snapshot::Saved {
    let order = save_order(url, file);
    snapshot::save(&order, &mut |_, _| ()).await.unwrap()
}

fn save_order(url: &str, file: &Path) -> Save {
    Save {
        endpoint: url.to_owned(),
        file: file.to_owned(),
        cacert: None,
        cert: None,
        user: None,
    }
}

/// Starts a member in a directory and serves clients.
pub(crate) async fn serve(data_dir: &Path) -> Running {
    let mut config = Config::new(data_dir);
    config.listen_client_urls = vec!["http://127.0.0.1:0".to_owned()];
    Server::start(config).await.unwrap()
}

pub(crate) fn url_of(running: &Running) -> String {
    format!("http://{}", running.client_addr.unwrap())
}

/// Returns the hash of the whole history and the compacted revision.
pub(crate) async fn hash_kv(url: &str) -> (u32, i64) {
    let mut client = MaintenanceClient::connect(url.to_owned()).await.unwrap();
    let hash = client.hash_kv(pb::HashKvRequest { revision: 0 }).await;
    let hash = hash.unwrap().into_inner();
    (hash.hash, hash.compact_revision)
}

pub(crate) fn restore(order: &Restore) -> Result<snapshot::Restored, SnapshotError> {
    snapshot::restore(order, &mut |_, _| ())
}

/// Fills a store with some of everything; returns its revision.
async fn fill(store: &Store) -> i64 {
    let mut kv = store.kv().await;
    let mut lease = store.lease().await;
    for id in [100, 200] {
        let grant = pb::LeaseGrantRequest { ttl: 3_000, id };
        lease.lease_grant(grant).await.unwrap();
    }
    for round in 0..4 {
        for batch in 0..10 {
            let ops = (0..100).map(|n| {
                let mut op = put_op(&format!("k{batch}-{n}"), &format!("{round} {n}"));
                if let Some(pb::request_op::Request::RequestPut(put)) = &mut op.request {
                    put.lease = if n == 7 { 100 } else { 0 };
                }
                op
            });
            let txn = pb::TxnRequest {
                success: ops.collect(),
                ..pb::TxnRequest::default()
            };
            kv.txn(txn).await.unwrap();
        }
    }
    let delete = crate::store::delete("k3", "k4");
    kv.0.delete_range(delete).await.unwrap();
    kv.compact(25).await.unwrap();
    kv.put("large", &"x".repeat(300_000)).await
}

#[tokio::test]
async fn a_snapshot_is_sent_as_etcd_sends_it() {
    let store = Store::start().await;
    fill(&store).await;
    let mut client = store.maintenance().await;
    let request = pb::SnapshotRequest {};
    let stream = client.snapshot(request).await.unwrap().into_inner();
    let messages: Vec<_> = stream.map(|message| message.unwrap()).collect().await;
    let (last, blobs) = messages.split_last().unwrap();
    let total: u64 = blobs.iter().map(|m| m.blob.len() as u64).sum();
    assert_eq!(total % 4096, 0);
    let mut left = total;
    let mut hash = Sha256::new();
    for (nth, message) in blobs.iter().enumerate() {
        left -= message.blob.len() as u64;
        assert_eq!(message.remaining_bytes, left);
        assert!(message.blob.len() == 32 << 10 || nth + 1 == blobs.len());
        assert_eq!(message.version, "3.5.0");
        hash.update(&message.blob);
    }
    assert_eq!(left, 0);
    assert_eq!(last.remaining_bytes, 0);
    assert_eq!(last.blob.as_ref(), hash.finalize().as_slice());
}

#[tokio::test]
async fn a_restored_store_is_the_one_saved() {
    let store = Store::start().await;
    let revision = fill(&store).await;
    let alarm = mvcc_alarm();
    let handle = &store.running().handle;
    handle.set_alarm(alarm, true).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    let saved = save(&store.url(), &file).await;
    assert_eq!(saved.bytes, fs::metadata(&file).unwrap().len());
    assert_eq!(saved.bytes % 512, 32);

    let status = snapshot::status(&file, &mut |_, _| ()).unwrap();
    assert_eq!(status.revision, revision);
    assert_eq!(status.total_size + 32, saved.bytes);

    let data_dir = dir.path().join("restored");
    let restored = restore(&order(&file, &data_dir)).unwrap();
    assert_eq!((restored.revision, restored.leases), (revision, 2));
    let error = restore(&order(&file, &data_dir)).unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");

    let old = hash_kv(&store.url()).await;
    // Twice, so that what the first start wrote counts too.
    for _ in 0..2 {
        let copy = serve(&data_dir).await;
        assert_eq!(hash_kv(&url_of(&copy)).await, old);
        assert_eq!(copy.handle.leases().unwrap(), [100, 200]);
        let lease = copy.handle.lease_time_to_live(100, true).await.unwrap();
        assert_eq!((lease.granted_ttl, lease.keys.len()), (3_000, 9));
        assert_eq!(copy.handle.alarms(None).unwrap(), [alarm]);
        copy.shutdown().await;
    }
}

fn mvcc_alarm() -> mvcc::Alarm {
    mvcc::Alarm {
        member: 77,
        kind: mvcc::AlarmKind::NoSpace,
    }
}

#[tokio::test]
async fn a_snapshot_is_one_moment_while_writes_go_on() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    // Both keys change in one transaction, always to the same value.
    let both = |n: u64| pb::TxnRequest {
        success: vec![
            put_op("a", &n.to_string()),
            put_op("b", &n.to_string()),
            put_op(&format!("fill{}", n % 500), &"x".repeat(500)),
        ],
        ..pb::TxnRequest::default()
    };
    for n in 0..500 {
        kv.txn(both(n)).await.unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    let url = store.url();
    let saving = save(&url, &file);
    tokio::pin!(saving);
    let mut n = 500;
    loop {
        tokio::select! {
            _saved = &mut saving => break,
            done = kv.txn(both(n)) => drop(done.unwrap()),
        }
        n += 1;
        if n % 50 == 0 {
            kv.compact(n as i64 - 100).await.unwrap();
        }
    }
    assert!(n > 500, "nothing was written meanwhile");
    let data_dir = dir.path().join("restored");
    let restored = restore(&order(&file, &data_dir)).unwrap();
    let copy = Server::start(Config::new(&data_dir)).await.unwrap();
    assert_eq!(copy.handle.revision(), restored.revision);
    let get = |key: &'static str| {
        let handle = copy.handle.clone();
        async move {
            let request = mvcc::RangeRequest {
                key: key.into(),
                ..mvcc::RangeRequest::default()
            };
            handle.range(request).await.unwrap().kvs.remove(0)
        }
    };
    let (a, b) = (get("a").await, get("b").await);
    assert_eq!((a.value, a.mod_revision), (b.value, b.mod_revision));
    assert_eq!(a.mod_revision, restored.revision);
}

#[tokio::test]
async fn revisions_can_be_bumped() {
    let store = Store::start().await;
    let revision = fill(&store).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    save(&store.url(), &file).await;
    let mut bumped = order(&file, &dir.path().join("restored"));
    bumped.bump_revision = 1_000;
    let error = restore(&bumped).unwrap_err().to_string();
    assert!(error.contains("--mark-compacted"), "{error}");
    bumped.mark_compacted = true;
    assert_eq!(restore(&bumped).unwrap().revision, revision + 1_000);
    let copy = Server::start(Config::new(&bumped.data_dir)).await.unwrap();
    assert_eq!(copy.handle.revision(), revision + 1_000);
    let request = mvcc::RangeRequest {
        key: "large".into(),
        revision,
        ..mvcc::RangeRequest::default()
    };
    let error = copy.handle.range(request).await.unwrap_err();
    assert!(error.to_string().contains("compacted"), "{error}");
}

#[tokio::test]
async fn bad_files_are_refused_and_leave_nothing() {
    let store = Store::start().await;
    fill(&store).await;
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good.db");
    save(&store.url(), &good).await;
    let good = fs::read(good).unwrap();
    let bare = good[..good.len() - 32].to_vec();
    let mut flipped = good.clone();
    flipped[5_000] ^= 1;
    let mut strange = bare.clone();
    // A page that calls itself by another number, and no hash to tell.
    strange[3 * 4096] ^= 0x40;
    let cases: [(&str, Vec<u8>, bool, &str); 7] = [
        ("bare", bare.clone(), false, "snapshot missing hash"),
        ("flipped", flipped, false, "expected sha256"),
        (
            "cut",
            good[..good.len() / 2].to_vec(),
            false,
            "snapshot missing hash",
        ),
        (
            "cut-unchecked",
            bare[..bare.len() / 2].to_vec(),
            true,
            "truncated",
        ),
        ("strange", strange, true, "page 3"),
        ("empty", Vec::new(), true, "not a bbolt file"),
        ("text", b"hello".repeat(5_000), true, "not a bbolt file"),
    ];
    for (name, bytes, skip_hash_check, why) in cases {
        let file = dir.path().join(name);
        fs::write(&file, bytes).unwrap();
        let mut order = order(&file, &dir.path().join("never"));
        order.skip_hash_check = skip_hash_check;
        let error = restore(&order).unwrap_err().to_string();
        assert!(
            error.contains(why) && !error.contains('\n'),
            "{name}: {error}"
        );
        let left: Vec<PathBuf> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect();
        assert!(left.is_empty(), "{name} left {left:?}");
    }
    let file = dir.path().join("bare");
    let mut unchecked = order(&file, &dir.path().join("restored"));
    unchecked.skip_hash_check = true;
    restore(&unchecked).unwrap();
    unchecked.initial_cluster = "c=http://localhost:2380,b=http://b:2380".to_owned();
    unchecked.data_dir = dir.path().join("never");
    let error = restore(&unchecked).unwrap_err().to_string();
    assert!(error.contains("couldn't find local name"), "{error}");
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_place() {
    let store = Store::start().await;
    fill(&store).await;
    let mut client = store.maintenance().await;
    // More than there are places, one after the other, none read to its end.
    let deadline = tokio::time::Instant::now() + crate::store::DEADLINE;
    let mut begun = 0;
    while begun < 12 {
        match client.snapshot(pb::SnapshotRequest {}).await {
            Ok(stream) => {
                drop(stream);
                begun += 1;
            }
            Err(status) => {
                assert_eq!(status.message(), "etcdserver: too many requests");
                assert!(tokio::time::Instant::now() < deadline, "no place came free");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

#[tokio::test]
async fn with_users_only_root_may_have_a_snapshot() {
    let store = Store::start().await;
    let mut auth = AuthClient::new(store.channel().await);
    let add = pb::AuthUserAddRequest {
        name: "root".to_owned(),
        password: "secret".to_owned(),
        ..pb::AuthUserAddRequest::default()
    };
    auth.user_add(add).await.unwrap();
    let grant = pb::AuthUserGrantRoleRequest {
        user: "root".to_owned(),
        role: "root".to_owned(),
    };
    auth.user_grant_role(grant).await.unwrap();
    auth.auth_enable(pb::AuthEnableRequest {}).await.unwrap();

    let dir = tempfile::tempdir().unwrap();
    let mut order = save_order(&store.url(), &dir.path().join("s.db"));
    let refused = snapshot::save(&order, &mut |_, _| ()).await.unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("user name is empty"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    order.user = Some(("root".to_owned(), "secret".to_owned()));
    snapshot::save(&order, &mut |_, _| ()).await.unwrap();

    // The copy asks for the same password.
    let data_dir = dir.path().join("restored");
    assert_eq!(
        restore(&self::order(&order.file, &data_dir)).unwrap().users,
        1
    );
    let copy = serve(&data_dir).await;
    let mut auth = AuthClient::connect(url_of(&copy)).await.unwrap();
    let mut request = pb::AuthenticateRequest {
        name: "root".to_owned(),
        password: "wrong".to_owned(),
    };
    auth.authenticate(request.clone()).await.unwrap_err();
    request.password = "secret".to_owned();
    auth.authenticate(request).await.unwrap();
}
