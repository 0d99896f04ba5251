//! What a lone member answers where etcd would change members, and what is not
//! served yet: each says plainly what is missing.

use proto::etcdserverpb::{self as pb, cluster_client::ClusterClient};
use tonic::Code;

use crate::store::{Store, put, refused};

const NO_CHANGES: &str = "etcdserver: member changes are not supported by this version";
const NOT_FOUND: &str = "etcdserver: member not found";

#[tokio::test]
async fn membership_of_one() {
    let store = Store::start().await;
    let mut cluster = ClusterClient::new(store.channel().await);
    let id = store.running().handle.ids().0;
    let urls = store.config.initial_advertise_peer_urls.clone();

    let remove = |id| pb::MemberRemoveRequest { id };
    refused(cluster.member_remove(remove(7)).await, 5, NOT_FOUND);
    let alone = "etcdserver: re-configuration failed due to not enough started members";
    refused(cluster.member_remove(remove(id)).await, 9, alone);

    let promote = |id| pb::MemberPromoteRequest { id };
    refused(cluster.member_promote(promote(7)).await, 5, NOT_FOUND);
    let voter = "etcdserver: can only promote a learner member";
    refused(cluster.member_promote(promote(id)).await, 9, voter);

    let update = |id, peer_urls: &[String]| pb::MemberUpdateRequest {
        id,
        peer_ur_ls: peer_urls.to_vec(),
    };
    let other = ["http://10.0.0.9:2380".to_owned()];
    refused(cluster.member_update(update(7, &urls)).await, 5, NOT_FOUND);
    refused(
        cluster.member_update(update(id, &other)).await,
        12,
        NO_CHANGES,
    );
    let same = cluster.member_update(update(id, &urls)).await.unwrap();
    assert_eq!(same.into_inner().members[0].peer_ur_ls, urls);

    let add = |peer_urls: &[String]| pb::MemberAddRequest {
        peer_ur_ls: peer_urls.to_vec(),
        is_learner: false,
    };
    let bad = "etcdserver: given member URLs are invalid";
    refused(cluster.member_add(add(&[])).await, 3, bad);
    for url in ["10.0.0.9:2380", "http://10.0.0.9", "http://h:1/path"] {
        refused(cluster.member_add(add(&[url.to_owned()])).await, 3, bad);
    }
    let taken = "etcdserver: Peer URLs already exists";
    refused(cluster.member_add(add(&urls)).await, 9, taken);
    refused(cluster.member_add(add(&other)).await, 12, NO_CHANGES);

    let list = pb::MemberListRequest { linearizable: true };
    let members = cluster
        .member_list(list)
        .await
        .unwrap()
        .into_inner()
        .members;
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].id, id);
}

#[tokio::test]
async fn leadership_of_one() {
    let store = Store::start().await;
    let mut maintenance = store.maintenance().await;
    let id = store.running().handle.ids().0;
    let to = |target_id| pb::MoveLeaderRequest { target_id };
    refused(
        maintenance.move_leader(to(7)).await,
        9,
        "etcdserver: bad leader transferee",
    );
    maintenance.move_leader(to(id)).await.unwrap();
}

/// Calls a method nobody declared, with an empty message.
async fn call(store: &Store, path: &'static str) -> tonic::Status {
    let mut client = tonic::client::Grpc::new(store.channel().await);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<pb::StatusRequest, pb::StatusRequest>::default();
    let request = tonic::Request::new(pb::StatusRequest {});
    let path = http::uri::PathAndQuery::from_static(path);
    client.unary(request, path, codec).await.unwrap_err()
}

#[tokio::test]
async fn what_is_missing_says_so() {
    let store = Store::start().await;
    for (path, words) in [
        ("/etcdserverpb.Maintenance/Nonsense", "unknown method"),
        ("/etcdserverpb.Watch/Nonsense", "unknown method"),
        ("/etcdserverpb.Auth/AuthEnable", "users and roles"),
        ("/etcdserverpb.Auth/Authenticate", "users and roles"),
        ("/nobody.Knows/It", "unknown service"),
    ] {
        let status = call(&store, path).await;
        assert_eq!(status.code(), Code::Unimplemented, "{path}");
        assert!(status.message().contains(words), "{path}: {status}");
    }
}

#[tokio::test]
async fn sizes_are_of_the_disk_and_never_nothing() {
    let mut store = Store::start().await;
    let status = async |store: &Store| {
        let mut maintenance = store.maintenance().await;
        let status = maintenance.status(pb::StatusRequest {}).await.unwrap();
        status.into_inner()
    };
    let fresh = status(&store).await;
    assert!(fresh.db_size > 0 && fresh.db_size_in_use > 0, "{fresh:?}");
    let mut kv = store.kv().await;
    for n in 0..100 {
        let key = format!("k{}", n % 10);
        kv.0.put(put(&key, &"v".repeat(10_000))).await.unwrap();
    }
    let full = status(&store).await;
    assert!(full.db_size >= fresh.db_size + 900_000, "{full:?}");
    assert!(full.db_size_in_use <= full.db_size);
    store.restart().await;
    let after = status(&store).await;
    let on_disk = files(&store.config.data_dir.join("db"));
    assert_eq!(after.db_size, on_disk, "nothing waits: the files are all");
    assert!(after.db_size >= 1_000_000, "{after:?}");
    store.kv().await.compact(101).await.unwrap();
    let compacted = status(&store).await;
    assert!(compacted.db_size_in_use > 0);
}

fn files(dir: &std::path::Path) -> i64 {
    let entries = std::fs::read_dir(dir).unwrap();
    let sizes = entries.map(|entry| {
        let entry = entry.unwrap();
        let found = entry.metadata().unwrap();
        match found.is_dir() {
            true => files(&entry.path()),
            false => i64::try_from(found.len()).unwrap(),
        }
    });
    sizes.sum()
}
