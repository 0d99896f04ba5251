//! What must be refused, with etcd's words, where it takes more than one call to see
//! it: on a watch stream, of a user, as JSON, by a full store. One row for each case.

use proto::etcdserverpb::{self as pb, request_op::Request};

use crate::{
    auth_who::{Client, DENIED, FAILED, INVALID, guarded},
    bad_input::{COMPACTED, NO_LEASE, furnished},
    store::{Store, delete, op, put, put_op, range, refused},
    watch::{Client as Watcher, on},
};

const FULL: (i32, &str) = (8, "etcdserver: mvcc: database space exceeded");

/// What a refused watch is told: whether it is the first reply, its id, the revision
/// it could start at, and why.
type Told = (bool, i64, i64, &'static str);

#[tokio::test]
async fn watches() {
    let store = furnished().await;
    let from = |start_revision| pb::WatchCreateRequest {
        start_revision,
        ..on("a", "")
    };
    let named = |watch_id| pb::WatchCreateRequest {
        watch_id,
        ..on("a", "")
    };
    let empty = "mvcc: watcher range is empty";
    let twice = "mvcc: duplicate watch ID provided on the WatchStream";
    let rows: Vec<(&str, pb::WatchCreateRequest, Told)> = vec![
        ("a compacted start", from(2), (false, 0, 3, "")),
        ("an end below the key", on("b", "a"), (true, -1, 0, empty)),
        ("an end at the key", on("b", "b"), (true, -1, 0, empty)),
        ("an id in use", named(7), (true, -1, 0, twice)),
    ];
    for (what, create, told) in rows {
        let mut watch = Watcher::open(&store).await;
        let in_use = watch.create(named(7)).await;
        assert!(in_use.created && !in_use.canceled, "{what}");
        let mut reply = watch.create(create).await;
        assert!(reply.created, "{what}");
        if !told.0 {
            assert!(!reply.canceled, "{what}");
            reply = watch.next().await;
        }
        let reason = reply.cancel_reason.as_str();
        let got = (
            reply.created,
            reply.watch_id,
            reply.compact_revision,
            reason,
        );
        assert!(reply.canceled, "{what}");
        assert_eq!(got, told, "{what}");
        // The stream goes on, and with it the other watch.
        store.kv().await.put("a", what).await;
        let reply = watch.next().await;
        assert_eq!((reply.watch_id, reply.events.len()), (7, 1), "{what}");
    }
}

#[tokio::test]
async fn who_may_not() {
    let (store, nobody) = guarded().await;
    let old = nobody.login("ann", "ap").await;
    let root = nobody.login("root", "rp").await;
    root.change_password("ann", "changed").await.unwrap();
    let invented = nobody.with("invented.7");
    let wrong = nobody.token("ann", "ap").await.map(drop);
    let unknown = nobody.token("who", "ap").await.map(drop);
    let ann = nobody.login("ann", "changed").await;
    let inside = |key: &str| pb::TxnRequest {
        success: vec![op(Request::RequestTxn(pb::TxnRequest {
            success: vec![put_op(key, "1")],
            ..pb::TxnRequest::default()
        }))],
        ..pb::TxnRequest::default()
    };
    let read = async |client: &Client| client.kv().range(range("a", "")).await.map(drop);
    let write = async |client: &Client, key| client.kv().txn(inside(key)).await.map(drop);
    let rows = [
        ("a wrong password", wrong, FAILED),
        ("an unknown user", unknown, FAILED),
        ("an invented token", read(&invented).await, INVALID),
        (
            "a token from before the password was changed",
            read(&old).await,
            INVALID,
        ),
        (
            "a put inside a txn, outside the grant",
            write(&ann, "z").await,
            DENIED,
        ),
    ];
    for (what, result, (code, message)) in rows {
        let status = result.expect_err(what);
        assert_eq!(
            (status.code() as i32, status.message()),
            (code, message),
            "{what}"
        );
    }
    write(&ann, "aa").await.unwrap();
    assert_eq!(store.running().handle.revision(), 2);
}

#[allow(clippy::too_many_lines, reason = "a table, one case after the other")]
#[tokio::test]
async fn texts_of_the_gateway() {
    let store = furnished().await;
    let rows: &[(&str, &str, &str, u16, u8, &str)] = &[
        (
            "no base64",
            "kv/range",
            r#"{"key":"not base64!"}"#,
            400,
            3,
            "illegal base64 data at input byte 3",
        ),
        (
            "half of base64",
            "kv/range",
            r#"{"key":"YQ"}"#,
            400,
            3,
            "illegal base64 data at input byte 0",
        ),
        (
            "a number for bytes",
            "kv/range",
            r#"{"key":5}"#,
            400,
            3,
            "json: cannot unmarshal number into Go value of type []uint8",
        ),
        (
            "half a text",
            "kv/range",
            r#"{"key":"#,
            400,
            3,
            "unexpected EOF",
        ),
        (
            "a list",
            "kv/range",
            "[]",
            400,
            3,
            "json: cannot unmarshal array into Go value of type map[string]json.RawMessage",
        ),
        (
            "no key",
            "kv/range",
            "{}",
            400,
            3,
            "etcdserver: key is not provided",
        ),
        (
            "a fraction",
            "kv/range",
            r#"{"key":"YQ==","limit":1.5}"#,
            400,
            3,
            "json: cannot unmarshal number 1.5 into Go value of type int64",
        ),
        (
            "a compacted revision",
            "kv/range",
            r#"{"key":"YQ==","revision":2}"#,
            400,
            11,
            COMPACTED.1,
        ),
        (
            "an unknown lease",
            "lease/revoke",
            r#"{"ID":77}"#,
            404,
            5,
            NO_LEASE.1,
        ),
    ];
    for (what, path, body, http, code, message) in rows {
        let answer = store.http(&format!("POST /v3/{path}"), body).await;
        let wanted =
            format!("{{\"error\":\"{message}\",\"code\":{code},\"message\":\"{message}\"}}");
        assert_eq!((answer.status, answer.body), (*http, wanted), "{what}");
    }
    assert_eq!(store.kv().await.get("a").await.unwrap(), "x");
}

#[allow(clippy::too_many_lines, reason = "a table, one case after the other")]
#[tokio::test]
async fn a_full_store_refuses_writes_and_lets_space_be_made() {
    let store = Store::start_with(|config| config.quota_backend_bytes = 200_000).await;
    let mut kv = store.kv().await;
    let mut written = 0;
    let error = loop {
        match kv
            .0
            .put(put(&format!("k{written}"), &"x".repeat(10_000)))
            .await
        {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "the quota is never reached");
    };
    assert_eq!((error.code() as i32, error.message()), FULL);
    let mut maintenance = store.maintenance().await;
    let get = pb::AlarmRequest::default();
    let alarms = || async {
        let mut maintenance = store.maintenance().await;
        maintenance
            .alarm(pb::AlarmRequest::default())
            .await
            .unwrap()
            .into_inner()
            .alarms
    };
    let deadline = tokio::time::Instant::now() + crate::store::DEADLINE;
    while alarms().await.is_empty() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "no alarm was raised"
        );
        tokio::task::yield_now().await;
    }
    let txn = |success| pb::TxnRequest {
        success,
        ..pb::TxnRequest::default()
    };
    let grant = pb::LeaseGrantRequest { ttl: 60, id: 5 };
    refused(kv.0.put(put("small", "x")).await, FULL.0, FULL.1);
    refused(
        kv.txn(txn(vec![put_op("small", "x")])).await,
        FULL.0,
        FULL.1,
    );
    refused(store.lease().await.lease_grant(grant).await, FULL.0, FULL.1);
    assert_eq!(kv.get("k0").await.unwrap().len(), 10_000, "reads go on");
    kv.txn(txn(vec![op(Request::RequestRange(range("k0", "")))]))
        .await
        .unwrap();
    kv.txn(txn(vec![op(Request::RequestDeleteRange(delete("k1", "")))]))
        .await
        .unwrap();
    kv.0.delete_range(delete("k", "l")).await.unwrap();
    let revision = store.running().handle.revision();
    kv.compact(revision).await.unwrap();
    let member_id = store.running().handle.ids().0;
    let clear = pb::AlarmRequest {
        action: pb::alarm_request::AlarmAction::Deactivate.into(),
        member_id,
        alarm: pb::AlarmType::Nospace.into(),
    };
    maintenance.alarm(clear).await.unwrap();
    assert!(
        maintenance
            .alarm(get)
            .await
            .unwrap()
            .into_inner()
            .alarms
            .is_empty()
    );
    kv.put("small", "x").await;
}
