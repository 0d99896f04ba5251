//! What a lone member answers about members and leadership, and what is not served:
//! each says plainly what is missing.

use proto::etcdserverpb::{self as pb, cluster_client::ClusterClient};
use tonic::Code;

use crate::store::{Store, put, refused};

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
    refused(cluster.member_remove(remove(id)).await, 2, alone);

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
    for urls in [&other[..], &urls] {
        let moved = cluster.member_update(update(id, urls)).await.unwrap();
        assert_eq!(moved.into_inner().members[0].peer_ur_ls, urls);
    }

    let add = |peer_urls: &[String]| pb::MemberAddRequest {
        peer_ur_ls: peer_urls.to_vec(),
        is_learner: true,
    };
    let bad = "etcdserver: given member URLs are invalid";
    refused(cluster.member_add(add(&[])).await, 3, bad);
    for url in ["10.0.0.9:2380", "http://10.0.0.9", "http://h:1/path"] {
        refused(cluster.member_add(add(&[url.to_owned()])).await, 3, bad);
    }
    let taken = "etcdserver: Peer URLs already exists";
    refused(cluster.member_add(add(&urls)).await, 9, taken);
    let added = cluster.member_add(add(&other)).await.unwrap().into_inner();
    let learner = added.member.unwrap();
    assert!(learner.is_learner && learner.name.is_empty());
    let many = "etcdserver: too many learner members in cluster";
    let another = ["http://10.0.0.8:2380".to_owned()];
    refused(cluster.member_add(add(&another)).await, 9, many);
    let lags = "etcdserver: can only promote a learner member which is in sync with leader";
    refused(cluster.member_promote(promote(learner.id)).await, 9, lags);

    let list = async |cluster: &mut ClusterClient<_>| {
        let list = pb::MemberListRequest { linearizable: true };
        let members = cluster.member_list(list).await.unwrap();
        let members = members.into_inner().members.into_iter();
        members.map(|member| member.id).collect::<Vec<_>>()
    };
    let mut both = vec![id, learner.id];
    both.sort_unstable();
    assert_eq!(list(&mut cluster).await, both);
    cluster.member_remove(remove(learner.id)).await.unwrap();
    assert_eq!(list(&mut cluster).await, [id]);
    // Who was removed never comes back.
    refused(
        cluster.member_remove(remove(learner.id)).await,
        5,
        NOT_FOUND,
    );
    refused(cluster.member_remove(remove(0)).await, 5, NOT_FOUND);
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
    let moved = maintenance.move_leader(to(id)).await.unwrap();
    assert_eq!(moved.into_inner().header, None, "as etcd");
}

#[tokio::test]
async fn a_downgrade_is_checked_announced_and_called_off() {
    use pb::downgrade_request::DowngradeAction::{Cancel, Enable, Validate};
    let mut store = Store::start().await;
    let ask = async |store: &Store, action: i32, version: &str| {
        let mut maintenance = store.maintenance().await;
        let version = version.to_owned();
        let reply = maintenance.downgrade(pb::DowngradeRequest { action, version });
        reply.await.map(|reply| reply.into_inner().version)
    };
    let (validate, enable, cancel) = (Validate.into(), Enable.into(), Cancel.into());
    let format = "etcdserver: wrong downgrade target version format";
    for bad in ["", "x", "3", "v3.4.0"] {
        refused(ask(&store, validate, bad).await, 3, format);
        refused(ask(&store, enable, bad).await, 3, format);
    }
    let target = "etcdserver: invalid downgrade target version";
    for bad in ["3.3", "3.5.0", "2.4.0"] {
        refused(ask(&store, validate, bad).await, 3, target);
    }
    for good in ["3.4", "3.4.5", "03.4.0-rc.1"] {
        assert_eq!(ask(&store, validate, good).await.unwrap(), "3.5.0");
    }
    let none = "etcdserver: no inflight downgrade job";
    refused(ask(&store, cancel, "").await, 9, none);
    refused(ask(&store, 7, "").await, 2, "etcdserver: unknown method");
    assert_eq!(ask(&store, enable, "3.4").await.unwrap(), "3.5.0");
    let under_way = "etcdserver: cluster has a downgrade job in progress";
    refused(ask(&store, enable, "3.4").await, 9, under_way);
    refused(ask(&store, validate, "3.4").await, 9, under_way);
    store.lose_power().await;
    let mut maintenance = store.maintenance().await;
    let status = maintenance.status(pb::StatusRequest {}).await.unwrap();
    let info = status.into_inner().downgrade_info.unwrap();
    assert_eq!(
        (info.enabled, info.target_version.as_str()),
        (true, "3.4.0")
    );
    assert_eq!(ask(&store, cancel, "").await.unwrap(), "3.5.0");
    refused(ask(&store, cancel, "").await, 9, none);
}

#[tokio::test]
async fn the_hash_of_all_follows_keys_leases_and_nothing_else() {
    // Where clients reach it is part of what is hashed, and must not change.
    let mut store = Store::start_with(|config| {
        config.advertise_client_urls = vec!["http://localhost:2379".to_owned()];
    })
    .await;
    let hash = async |store: &Store| {
        let mut maintenance = store.maintenance().await;
        let reply = maintenance.hash(pb::HashRequest {}).await.unwrap();
        let reply = reply.into_inner();
        (reply.hash, reply.header.unwrap().revision)
    };
    let empty = hash(&store).await;
    assert_eq!(empty.1, 1);
    store.kv().await.put("a", "1").await;
    let written = hash(&store).await;
    assert!(written.0 != empty.0 && written.1 == 2);
    assert_eq!(hash(&store).await, written);
    store.restart().await;
    assert_eq!(hash(&store).await, written, "across a restart too");
    let grant = pb::LeaseGrantRequest { ttl: 600, id: 5 };
    store.lease().await.lease_grant(grant).await.unwrap();
    let leased = hash(&store).await;
    assert!(leased.0 != written.0 && leased.1 == 2);
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
