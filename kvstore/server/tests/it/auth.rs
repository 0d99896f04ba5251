//! Users, roles and tokens over the wire.
//!
//! The messages and codes are those of etcd; `auth_oracle.rs` compares whole sessions
//! with a real one.

use bytes::Bytes;
use proto::{
    authpb,
    etcdserverpb::{self as pb, watch_request::RequestUnion},
};
use tokio_stream::StreamExt as _;

use crate::{
    auth_who::{
        Client, DENIED, EMPTY, FAILED, INVALID, WRITE, cheap, furnish, grant_permission, guarded,
        says,
    },
    store::{DEADLINE, Store, bytes, delete, op, put, put_op, range},
};

#[tokio::test]
async fn nothing_works_without_a_name() {
    let (_store, nobody) = guarded().await;
    says(nobody.kv().put(put("a", "1")).await, EMPTY);
    says(nobody.kv().range(range("a", "")).await, EMPTY);
    says(nobody.kv().delete_range(delete("a", "")).await, EMPTY);
    says(
        nobody.kv().compact(pb::CompactionRequest::default()).await,
        EMPTY,
    );
    let txn = pb::TxnRequest {
        success: vec![put_op("a", "1")],
        ..pb::TxnRequest::default()
    };
    says(nobody.kv().txn(txn).await, EMPTY);
    let grant = pb::LeaseGrantRequest { id: 0, ttl: 60 };
    says(nobody.lease().lease_grant(grant).await, EMPTY);
    let leases = pb::LeaseLeasesRequest {};
    says(nobody.lease().lease_leases(leases).await, EMPTY);
    let members = pb::MemberListRequest::default();
    says(nobody.cluster().member_list(members).await, EMPTY);
    let status = pb::StatusRequest {};
    says(nobody.maintenance().status(status).await, EMPTY);
    let alarms = pb::AlarmRequest::default();
    says(nobody.maintenance().alarm(alarms).await, EMPTY);
    let hash = pb::HashKvRequest::default();
    says(nobody.maintenance().hash_kv(hash).await, EMPTY);
    let users = pb::AuthUserListRequest {};
    says(nobody.auth().user_list(users).await, EMPTY);
    let off = pb::AuthDisableRequest {};
    says(nobody.auth().auth_disable(off).await, EMPTY);
    // Whether all this is on, anybody may ask.
    assert_eq!(nobody.status().await.unwrap(), (true, 8));
}

#[tokio::test]
async fn an_invented_token_is_nobodys() {
    let (_store, nobody) = guarded().await;
    for token in ["abcdefghijklmnop.9", "x", "", "root", "a.b.c"] {
        let liar = nobody.with(token);
        says(liar.kv().put(put("a", "1")).await, INVALID);
        says(liar.kv().range(range("a", "")).await, INVALID);
        says(
            liar.maintenance().status(pb::StatusRequest {}).await,
            INVALID,
        );
        says(liar.status().await, INVALID);
    }
}

#[tokio::test]
async fn a_user_reaches_what_its_roles_permit() {
    let (_store, nobody) = guarded().await;
    let ann = nobody.login("ann", "ap").await;
    let root = nobody.login("root", "rp").await;
    ann.kv().put(put("a", "1")).await.unwrap();
    ann.kv().put(put("az", "1")).await.unwrap();
    says(ann.kv().put(put("b", "1")).await, DENIED);
    says(ann.kv().put(put("r", "1")).await, DENIED);
    root.kv().put(put("r", "1")).await.unwrap();
    ann.kv().range(range("r", "")).await.unwrap();
    let found = ann.kv().range(range("a", "b")).await.unwrap().into_inner();
    assert_eq!(found.count, 2);
    says(ann.kv().range(range("a", "c")).await, DENIED);
    says(ann.kv().range(range("a", "\0")).await, DENIED);
    let mut local = range("b", "");
    local.serializable = true;
    says(ann.kv().range(local).await, DENIED);
    says(ann.kv().delete_range(delete("a", "c")).await, DENIED);
    // Compaction and the members are root's affair.
    let compact = pb::CompactionRequest {
        revision: 2,
        physical: false,
    };
    says(ann.kv().compact(compact).await, DENIED);
    root.kv().compact(compact).await.unwrap();
    let defragment = pb::DefragmentRequest {};
    says(ann.maintenance().defragment(defragment).await, DENIED);
    ann.maintenance()
        .status(pb::StatusRequest {})
        .await
        .unwrap();
    let alarms = pb::AlarmRequest::default();
    ann.maintenance().alarm(alarms).await.unwrap();
    let raise = pb::AlarmRequest {
        action: 1,
        alarm: 1,
        ..pb::AlarmRequest::default()
    };
    says(ann.maintenance().alarm(raise).await, DENIED);
    let members = pb::MemberListRequest::default();
    ann.cluster().member_list(members).await.unwrap();
    let remove = pb::MemberRemoveRequest { id: 1 };
    says(ann.cluster().member_remove(remove).await, DENIED);
}

#[tokio::test]
async fn every_part_of_a_txn_is_asked_for() {
    let (_store, nobody) = guarded().await;
    let ann = nobody.login("ann", "ap").await;
    let txn = |success, failure| pb::TxnRequest {
        success,
        failure,
        ..pb::TxnRequest::default()
    };
    let read = |key: &str| op(pb::request_op::Request::RequestRange(range(key, "")));
    let nest = |inner| op(pb::request_op::Request::RequestTxn(inner));
    let fine = txn(vec![put_op("a", "1"), read("r")], vec![read("a")]);
    ann.kv().txn(fine).await.unwrap();
    for bad in [
        txn(vec![put_op("b", "1")], vec![]),
        txn(vec![], vec![put_op("b", "1")]),
        txn(vec![read("b")], vec![]),
        txn(vec![nest(txn(vec![put_op("b", "1")], vec![]))], vec![]),
        txn(vec![nest(txn(vec![], vec![read("b")]))], vec![]),
    ] {
        says(ann.kv().txn(bad).await, DENIED);
    }
    let compare = pb::Compare {
        key: bytes("b"),
        ..pb::Compare::default()
    };
    let condition = pb::TxnRequest {
        compare: vec![compare],
        success: vec![read("a")],
        ..pb::TxnRequest::default()
    };
    says(ann.kv().txn(condition.clone()).await, DENIED);
    says(
        ann.kv().txn(txn(vec![nest(condition)], vec![])).await,
        DENIED,
    );
}

#[tokio::test]
async fn a_token_ends_with_its_password() {
    let (_store, nobody) = guarded().await;
    let root = nobody.login("root", "rp").await;
    let ann = nobody.login("ann", "ap").await;
    ann.kv().put(put("a", "1")).await.unwrap();
    // Other changes leave it alone: it stands for the user as of now.
    root.role("other", &[]).await;
    ann.kv().put(put("a", "2")).await.unwrap();
    root.change_password("ann", "new").await.unwrap();
    says(ann.kv().put(put("a", "3")).await, INVALID);
    says(nobody.token("ann", "ap").await, FAILED);
    let ann = nobody.login("ann", "new").await;
    ann.kv().put(put("a", "4")).await.unwrap();
    let gone = pb::AuthUserDeleteRequest {
        name: "ann".to_owned(),
    };
    root.auth().user_delete(gone).await.unwrap();
    says(ann.kv().put(put("a", "5")).await, INVALID);
    says(nobody.token("ann", "new").await, FAILED);
}

#[tokio::test]
async fn a_token_ends_unless_it_is_used() {
    let store = Store::start_with(|config| {
        cheap(config);
        config.auth_token_ttl = std::time::Duration::from_millis(700);
    })
    .await;
    let nobody = Client::nobody(&store).await;
    furnish(&nobody).await;
    let ann = nobody.login("ann", "ap").await;
    let began = std::time::Instant::now();
    // Used more often than that it goes on.
    while began.elapsed() < std::time::Duration::from_millis(1500) {
        ann.kv().range(range("a", "")).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    says(ann.kv().range(range("a", "")).await, INVALID);
}

#[tokio::test]
async fn turning_it_off_forgets_the_tokens() {
    let (_store, nobody) = guarded().await;
    let root = nobody.login("root", "rp").await;
    let off = pb::AuthDisableRequest {};
    root.auth().auth_disable(off).await.unwrap();
    nobody.kv().put(put("zz", "1")).await.unwrap();
    // While it is off nobody looks at tokens.
    root.kv().put(put("zz", "2")).await.unwrap();
    let not_on = (9, "etcdserver: authentication is not enabled");
    says(nobody.token("root", "rp").await, not_on);
    nobody.enable().await;
    says(root.kv().put(put("zz", "3")).await, INVALID);
}

#[tokio::test]
async fn passwords_that_do_not_open() {
    let (_store, nobody) = guarded().await;
    says(nobody.token("ann", "rp").await, FAILED);
    says(nobody.token("ann", "").await, FAILED);
    says(nobody.token("", "").await, FAILED);
    says(nobody.token("ghost", "ap").await, FAILED);
    let root = nobody.login("root", "rp").await;
    let by_certificate = pb::AuthUserAddRequest {
        name: "cert".to_owned(),
        options: Some(authpb::UserAddOptions { no_password: true }),
        ..pb::AuthUserAddRequest::default()
    };
    root.auth().user_add(by_certificate).await.unwrap();
    let none = "auth: authentication failed, password was given for no password user";
    says(nobody.token("cert", "x").await, (2, none));
    let long = root.change_password("ann", &"p".repeat(73)).await;
    says(long, (2, "bcrypt: password length exceeds 72 bytes"));
}

#[tokio::test]
async fn a_hash_may_be_given_for_a_password() {
    use base64::Engine as _;
    let (_store, nobody) = guarded().await;
    let root = nobody.login("root", "rp").await;
    let hash = bcrypt::hash("known only here", 4).unwrap();
    let change = |hash: String| pb::AuthUserChangePasswordRequest {
        name: "ann".to_owned(),
        password: String::new(),
        hashed_password: hash,
    };
    let coded = base64::engine::general_purpose::STANDARD.encode(hash);
    root.auth()
        .user_change_password(change(coded))
        .await
        .unwrap();
    nobody.login("ann", "known only here").await;
    let bad = root
        .auth()
        .user_change_password(change("?".to_owned()))
        .await;
    assert_eq!(bad.unwrap_err().code(), tonic::Code::Unknown);
}

#[tokio::test]
async fn a_token_also_comes_as_http_has_it() {
    let (_store, nobody) = guarded().await;
    let token = nobody.token("ann", "ap").await.unwrap();
    let plain = nobody.with_in("authorization", &token);
    plain.kv().put(put("a", "1")).await.unwrap();
    let bearer = nobody.with_in("authorization", &format!("Bearer {token}"));
    bearer.kv().put(put("a", "2")).await.unwrap();
}

/// Opens a watch and returns its first reply.
async fn first_reply(client: &Client, key: &str, range_end: &str) -> pb::WatchResponse {
    let create = pb::WatchCreateRequest {
        key: bytes(key),
        range_end: bytes(range_end),
        ..pb::WatchCreateRequest::default()
    };
    let request = pb::WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    let requests = tokio_stream::once(request).chain(tokio_stream::pending());
    let mut replies = client.watch().watch(requests).await.unwrap().into_inner();
    let reply = tokio::time::timeout(DEADLINE, replies.message()).await;
    reply.unwrap().unwrap().unwrap()
}

#[tokio::test]
async fn a_watch_is_for_what_may_be_read() {
    let (_store, nobody) = guarded().await;
    let ann = nobody.login("ann", "ap").await;
    for (key, range_end) in [("a", ""), ("a", "b"), ("aa", "ab"), ("r", "")] {
        let reply = first_reply(&ann, key, range_end).await;
        assert!(reply.created && !reply.canceled, "{key} {range_end}");
    }
    let denied = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
    // The last one: a grant for one key is not for all after it (GHSA-xg4h-6gfc-h4m8).
    for (key, range_end) in [("b", ""), ("a", "c"), ("a", "\0"), ("", "\0"), ("r", "\0")] {
        let reply = first_reply(&ann, key, range_end).await;
        assert!(reply.created && reply.canceled, "{key} {range_end}");
        assert_eq!((reply.watch_id, reply.cancel_reason.as_str()), (-1, denied));
    }
    let reply = first_reply(&nobody, "a", "").await;
    let empty = "rpc error: code = InvalidArgument desc = etcdserver: user name is empty";
    assert_eq!((reply.watch_id, reply.cancel_reason.as_str()), (-1, empty));
    let reply = first_reply(&nobody.with("x.1"), "a", "").await;
    let invalid = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token";
    assert_eq!(reply.cancel_reason, invalid);
    let root = nobody.login("root", "rp").await;
    assert!(!first_reply(&root, "", "\0").await.canceled);
}

#[tokio::test]
async fn a_lease_is_its_keys() {
    let (_store, nobody) = guarded().await;
    let root = nobody.login("root", "rp").await;
    let ann = nobody.login("ann", "ap").await;
    for id in [1, 2] {
        let grant = pb::LeaseGrantRequest { id, ttl: 600 };
        ann.lease().lease_grant(grant).await.unwrap();
    }
    let leased = |key: &str, lease: i64| pb::PutRequest {
        lease,
        ..put(key, "1")
    };
    ann.kv().put(leased("a", 1)).await.unwrap();
    root.kv().put(leased("b", 2)).await.unwrap();
    says(ann.kv().put(leased("a", 2)).await, DENIED);
    let look = |id, keys| pb::LeaseTimeToLiveRequest { id, keys };
    let seen = ann.lease().lease_time_to_live(look(1, true)).await.unwrap();
    assert_eq!(seen.into_inner().keys, [Bytes::from_static(b"a")]);
    says(ann.lease().lease_time_to_live(look(2, true)).await, DENIED);
    ann.lease()
        .lease_time_to_live(look(2, false))
        .await
        .unwrap();
    says(
        nobody.lease().lease_time_to_live(look(1, false)).await,
        EMPTY,
    );
    says(
        ann.lease().lease_leases(pb::LeaseLeasesRequest {}).await,
        DENIED,
    );
    let all = root.lease().lease_leases(pb::LeaseLeasesRequest {}).await;
    assert_eq!(all.unwrap().into_inner().leases.len(), 2);
    for (id, fine) in [(1, true), (2, false), (3, true)] {
        let asked = tokio_stream::once(pb::LeaseKeepAliveRequest { id });
        let mut replies = ann
            .lease()
            .lease_keep_alive(asked)
            .await
            .unwrap()
            .into_inner();
        match replies.message().await {
            Ok(reply) => assert!(fine && reply.unwrap().ttl == if id == 1 { 600 } else { 0 }),
            refused => {
                assert!(!fine);
                says(refused, DENIED);
            }
        }
    }
    let revoke = |id| pb::LeaseRevokeRequest { id };
    says(ann.lease().lease_revoke(revoke(2)).await, DENIED);
    says(nobody.lease().lease_revoke(revoke(1)).await, EMPTY);
    ann.lease().lease_revoke(revoke(1)).await.unwrap();
    root.lease().lease_revoke(revoke(2)).await.unwrap();
}

#[tokio::test]
async fn everybody_sees_themselves() {
    let (_store, nobody) = guarded().await;
    let ann = nobody.login("ann", "ap").await;
    let user = |name: &str| pb::AuthUserGetRequest {
        name: name.to_owned(),
    };
    let role = |role: &str| pb::AuthRoleGetRequest {
        role: role.to_owned(),
    };
    let me = ann.auth().user_get(user("ann")).await.unwrap();
    assert_eq!(me.into_inner().roles, ["a"]);
    says(ann.auth().user_get(user("root")).await, DENIED);
    let mine = ann.auth().role_get(role("a")).await.unwrap().into_inner();
    assert_eq!(mine.perm.len(), 2);
    says(ann.auth().role_get(role("root")).await, DENIED);
    says(
        ann.auth().user_list(pb::AuthUserListRequest {}).await,
        DENIED,
    );
    says(
        ann.auth().role_list(pb::AuthRoleListRequest {}).await,
        DENIED,
    );
}

#[tokio::test]
async fn what_was_changed_outlives_a_loss_of_power() {
    let (mut store, nobody) = guarded().await;
    let root = nobody.login("root", "rp").await;
    root.kv().put(put("b", "1")).await.unwrap();
    let before = nobody.status().await.unwrap();
    drop((nobody, root));
    store.lose_power().await;
    let nobody = Client::nobody(&store).await;
    says(nobody.kv().range(range("b", "")).await, EMPTY);
    let ann = nobody.login("ann", "ap").await;
    says(ann.kv().range(range("b", "")).await, DENIED);
    drop((nobody, ann));
    // And from rows instead of the log.
    store.restart().await;
    let nobody = Client::nobody(&store).await;
    let ann = nobody.login("ann", "ap").await;
    says(ann.kv().range(range("b", "")).await, DENIED);
    assert_eq!(ann.status().await.unwrap(), before);
}

#[tokio::test]
async fn the_process_itself_is_not_checked() {
    let (store, _nobody) = guarded().await;
    let handle = &store.running().handle;
    let put = mvcc::PutRequest {
        key: bytes("anything"),
        ..mvcc::PutRequest::default()
    };
    handle.put(put).await.unwrap();
    assert!(handle.hash_kv(0).await.is_ok());
}

/// A lease runs out by the store's own doing, whoever may do what.
#[tokio::test]
async fn a_lease_runs_out_under_authentication() {
    let (store, nobody) = guarded().await;
    let root = nobody.login("root", "rp").await;
    let grant = pb::LeaseGrantRequest { id: 7, ttl: 1 };
    root.lease().lease_grant(grant).await.unwrap();
    let handle = &store.running().handle;
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !handle.leases().unwrap().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the lease stays");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn grants_that_cannot_be() {
    let (_store, nobody) = guarded().await;
    let root = nobody.login("root", "rp").await;
    let none = pb::AuthRoleGrantPermissionRequest {
        name: "a".to_owned(),
        perm: None,
    };
    let not_given = (3, "etcdserver: permission not given");
    says(root.auth().role_grant_permission(none).await, not_given);
    let unknown = grant_permission("a", 9, "k", "");
    says(root.auth().role_grant_permission(unknown).await, not_given);
    let backwards = grant_permission("a", WRITE, "b", "a");
    let invalid = (3, "etcdserver: invalid auth management");
    says(root.auth().role_grant_permission(backwards).await, invalid);
}
