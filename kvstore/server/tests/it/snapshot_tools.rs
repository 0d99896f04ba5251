//! Snapshots between a real etcd and ours, with etcd's own tools: the same
//! history, leases and users on either side, HashKV equal at every step.
//!
//! `tests/run` brings the tools and says in `KEELSON_TOOLS` where they are;
//! without them the test says so and passes.

#![allow(clippy::print_stderr, reason = "what a test says goes to its output")]

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use kvserver::snapshot;
use proto::etcdserverpb::{
    self as pb, auth_client::AuthClient, lease_client::LeaseClient,
    maintenance_client::MaintenanceClient,
};
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::{
    snapshot::{hash_kv as snapshot_hash, order, restore, save, serve, url_of},
    store::{DEADLINE, Kv, bytes, delete, op, put},
};

const KEYS: u32 = 3_000;
const LEASES: i64 = 50;

struct Tools {
    etcd: PathBuf,
    etcdctl: PathBuf,
    etcdutl: PathBuf,
}

impl Tools {
    fn find() -> Option<Self> {
        let tool = |name: &str| {
            let dir = std::env::var_os("KEELSON_TOOLS").map(PathBuf::from);
            let path = dir.map(|dir| dir.join(name)).filter(|path| path.exists());
            if path.is_none() {
                eprintln!("cannot run: {name} is not there; run tests/run, which brings it");
            }
            path
        };
        Some(Self {
            etcd: tool("etcd")?,
            etcdctl: tool("etcdctl")?,
            etcdutl: tool("etcdutl")?,
        })
    }

    /// Runs etcdutl; returns what it says.
    fn etcdutl(&self, args: &[&str]) -> String {
        let ran = Command::new(&self.etcdutl).args(args).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }

    fn status(&self, file: &Path) -> serde_json::Value {
        let text = self.etcdutl(&["snapshot", "status", file.to_str().unwrap(), "-w", "json"]);
        serde_json::from_str(&text).unwrap()
    }
}

/// A real etcd; killed when dropped.
struct Etcd {
    child: Child,
    url: String,
    dir: PathBuf,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn free_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

impl Etcd {
    /// Starts a member of its own; the directory may be there already.
    async fn start(tools: &Tools, dir: PathBuf, peer: String) -> Self {
        let url = free_url();
        let child = Command::new(&tools.etcd)
            .arg("--data-dir")
            .arg(&dir)
            .args(["--name", "a", "--initial-cluster", &format!("a={peer}")])
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let etcd = Self { child, url, dir };
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while hash_kv(&etcd.url).await.is_none() {
            assert!(
                tokio::time::Instant::now() < deadline,
                "etcd does not start"
            );
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        etcd
    }

    async fn channel(&self) -> Channel {
        channel(&self.url).await.unwrap()
    }
}

async fn channel(url: &str) -> Option<Channel> {
    let endpoint = Channel::from_shared(url.to_owned()).unwrap();
    endpoint.connect().await.ok()
}

/// Returns hash and compacted revision.
async fn hash_kv(url: &str) -> Option<(u32, i64)> {
    let mut client = MaintenanceClient::new(channel(url).await?);
    let hash = client.hash_kv(pb::HashKvRequest { revision: 0 }).await;
    let hash = hash.ok()?.into_inner();
    Some((hash.hash, hash.compact_revision))
}

async fn leases(url: &str) -> Vec<i64> {
    let mut client = LeaseClient::new(channel(url).await.unwrap());
    let all = client
        .lease_leases(pb::LeaseLeasesRequest {})
        .await
        .unwrap();
    let mut ids: Vec<_> = all.into_inner().leases.iter().map(|l| l.id).collect();
    ids.sort_unstable();
    ids
}

async fn granted(url: &str, id: i64) -> (i64, usize) {
    let mut client = LeaseClient::new(channel(url).await.unwrap());
    let request = pb::LeaseTimeToLiveRequest { id, keys: true };
    let ttl = client
        .lease_time_to_live(request)
        .await
        .unwrap()
        .into_inner();
    (ttl.granted_ttl, ttl.keys.len())
}

async fn batches(kv: &mut Kv, ops: Vec<pb::RequestOp>) {
    for batch in ops.chunks(100) {
        let txn = pb::TxnRequest {
            success: batch.to_vec(),
            ..pb::TxnRequest::default()
        };
        kv.txn(txn).await.unwrap();
    }
}

fn put_leased(n: u32, value: &str) -> pb::RequestOp {
    let mut put = put(&format!("key/{n:05}"), value);
    put.lease = if n.is_multiple_of(7) {
        1_000 + i64::from(n) % LEASES
    } else {
        0
    };
    op(pb::request_op::Request::RequestPut(put))
}

fn delete_one(n: u32) -> pb::RequestOp {
    op(pb::request_op::Request::RequestDeleteRange(delete(
        &format!("key/{n:05}"),
        "",
    )))
}

/// Several revisions, deletions, a compaction, and more of it all after that.
async fn fill(channel: Channel) {
    let mut lease = LeaseClient::new(channel.clone());
    for n in 0..LEASES {
        let (id, ttl) = (1_000 + n, 10_000 + n);
        lease
            .lease_grant(pb::LeaseGrantRequest { ttl, id })
            .await
            .unwrap();
    }
    let mut kv = Kv::new(channel.clone());
    batches(&mut kv, (0..KEYS).map(|n| put_leased(n, "first")).collect()).await;
    batches(
        &mut kv,
        (0..KEYS)
            .step_by(3)
            .map(|n| put_leased(n, "second"))
            .collect(),
    )
    .await;
    batches(&mut kv, (0..KEYS).step_by(50).map(delete_one).collect()).await;
    let revision = kv.put("large", &"x".repeat(500_000)).await;
    kv.compact(revision - 1).await.unwrap();
    batches(
        &mut kv,
        (0..KEYS)
            .step_by(11)
            .map(|n| put_leased(n, "third"))
            .collect(),
    )
    .await;
    batches(&mut kv, (1..KEYS).step_by(53).map(delete_one).collect()).await;

    let mut auth = AuthClient::new(channel);
    let role = pb::AuthRoleAddRequest {
        name: "reads".to_owned(),
    };
    auth.role_add(role).await.unwrap();
    let permission = pb::AuthRoleGrantPermissionRequest {
        name: "reads".to_owned(),
        perm: Some(proto::authpb::Permission {
            perm_type: 0,
            key: bytes("key/"),
            range_end: bytes("key0"),
        }),
    };
    auth.role_grant_permission(permission).await.unwrap();
    for (user, role) in [("root", "root"), ("ann", "reads")] {
        let add = pb::AuthUserAddRequest {
            name: user.to_owned(),
            password: format!("{user}-secret"),
            ..pb::AuthUserAddRequest::default()
        };
        auth.user_add(add).await.unwrap();
        let grant = pb::AuthUserGrantRoleRequest {
            user: user.to_owned(),
            role: role.to_owned(),
        };
        // The role root exists once somebody has it, and only newer ones need it not.
        if auth.user_grant_role(grant.clone()).await.is_err() {
            let add = pb::AuthRoleAddRequest {
                name: role.to_owned(),
            };
            auth.role_add(add).await.unwrap();
            auth.user_grant_role(grant).await.unwrap();
        }
    }
}

fn authenticate(user: &str) -> pb::AuthenticateRequest {
    pb::AuthenticateRequest {
        name: user.to_owned(),
        password: format!("{user}-secret"),
    }
}

#[tokio::test]
async fn there_and_back_again() {
    let Some(tools) = Tools::find() else { return };
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);

    // A real etcd's snapshot, saved and described by us.
    let first = Etcd::start(&tools, path("first"), free_url()).await;
    fill(first.channel().await).await;
    let hash = hash_kv(&first.url).await.unwrap();
    let theirs = path("theirs.db");
    save(&first.url, &theirs).await;
    compare_status(&tools, &theirs);

    // Restored into ours, and once more from the bare database of its directory.
    restore(&order(&theirs, &path("ours"))).unwrap();
    let ours = serve(&path("ours")).await;
    let url = url_of(&ours);
    same_data(&first.url, &url, hash).await;
    same_users(&url).await;
    let database = first.dir.join("member/snap/db");
    drop(first);
    let mut bare = order(&database, &path("bare"));
    bare.skip_hash_check = true;
    restore(&bare).unwrap();
    let copy = serve(&path("bare")).await;
    assert_eq!(snapshot_hash(&url_of(&copy)).await, hash);

    // Ours, saved by etcdctl, described and restored by etcdutl.
    let ours_file = path("ours.db");
    let file = ours_file.to_str().unwrap();
    let ran = Command::new(&tools.etcdctl)
        .args(["--endpoints", &url, "snapshot", "save", file])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    compare_status(&tools, &ours_file);
    let peer = free_url();
    let second = path("second");
    let into = second.to_str().unwrap();
    tools.etcdutl(
        &[
            &[
                "snapshot",
                "restore",
                file,
                "--data-dir",
                into,
                "--name",
                "a",
            ][..],
            &["--initial-cluster", &format!("a={peer}")],
            &["--initial-advertise-peer-urls", &peer],
        ]
        .concat(),
    );
    let second = Etcd::start(&tools, second, peer).await;
    same_data(&url, &second.url, hash).await;
    same_users(&second.url).await;
    still_an_etcd(&tools, &second).await;
}

fn compare_status(tools: &Tools, file: &Path) {
    let ours = snapshot::status(file, &mut |_, _| ()).unwrap();
    let theirs = tools.status(file);
    assert_eq!(theirs["hash"], ours.hash);
    assert_eq!(theirs["revision"], ours.revision);
    assert_eq!(theirs["totalKey"], ours.total_key);
    assert_eq!(theirs["totalSize"], ours.total_size);
}

async fn same_data(one: &str, other: &str, hash: (u32, i64)) {
    assert_eq!(hash_kv(one).await.unwrap(), hash);
    assert_eq!(hash_kv(other).await.unwrap(), hash);
    assert_eq!(leases(one).await, leases(other).await);
    assert_eq!(leases(other).await.len() as i64, LEASES);
    for id in [1_000, 1_000 + LEASES - 1] {
        let found = granted(other, id).await;
        assert_eq!(found, granted(one, id).await);
        assert_eq!(found.0, 9_000 + id);
        assert!(found.1 > 0, "lease {id} lost its keys");
    }
    let all = crate::store::range("\0", "\0");
    let mut answers = Vec::new();
    for url in [one, other] {
        let mut kv = Kv::new(channel(url).await.unwrap());
        let mut answer = kv.range(all.clone()).await.unwrap();
        let header = answer.header.take().unwrap();
        answers.push((header.revision, answer));
    }
    assert_eq!(answers[0], answers[1]);
}

/// The users are there, with their passwords and roles.
async fn same_users(url: &str) {
    let mut auth = AuthClient::connect(url.to_owned()).await.unwrap();
    auth.auth_enable(pb::AuthEnableRequest {}).await.unwrap();
    auth.authenticate(authenticate("ann")).await.unwrap();
    let token = auth.authenticate(authenticate("root")).await.unwrap();
    let mut request = tonic::Request::new(pb::AuthDisableRequest {});
    let token = token.into_inner().token.parse().unwrap();
    request.metadata_mut().insert("token", token);
    auth.auth_disable(request).await.unwrap();
    let request = pb::AuthRoleGetRequest {
        role: "reads".to_owned(),
    };
    let role = auth.role_get(request).await.unwrap().into_inner();
    assert_eq!(role.perm.len(), 1);
    assert_eq!(role.perm[0].range_end, "key0");
}

/// etcd goes on writing to the file we made.
async fn still_an_etcd(tools: &Tools, etcd: &Etcd) {
    let mut kv = Kv::new(etcd.channel().await);
    batches(
        &mut kv,
        (0..10_000).map(|n| put_leased(n, "fourth")).collect(),
    )
    .await;
    let mut maintenance = MaintenanceClient::new(etcd.channel().await);
    maintenance
        .defragment(pb::DefragmentRequest {})
        .await
        .unwrap();
    let again = etcd.dir.with_extension("again.db");
    save(&etcd.url, &again).await;
    compare_status(tools, &again);
}
