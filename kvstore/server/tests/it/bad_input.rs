//! What must be refused, with etcd's codes and messages, leaving the store as it was:
//! tables, one row for each request, each asked of a member as a client would.
//!
//! Elsewhere: what takes more than one call (`refusals`), starts that are refused (`start`, `flags`), what the HTTP/2 edge does
//! with frames (`limits`, `hostile`), every RPC for every user (`auth`).

use prost::Message;
use proto::etcdserverpb::{self as pb, request_op::Request};

use crate::{
    limits::call_raw,
    store::{Store, bytes, delete, op, put, put_op, range},
};

/// A request and what it is refused with.
struct Row {
    what: &'static str,
    /// The service of package `etcdserverpb` and the method.
    path: &'static str,
    request: Vec<u8>,
    code: i32,
    message: &'static str,
}

fn row(
    what: &'static str,
    path: &'static str,
    request: &impl Message,
    (code, message): (i32, &'static str),
) -> Row {
    Row {
        what,
        path,
        request: request.encode_to_vec(),
        code,
        message,
    }
}

const NO_KEY: (i32, &str) = (3, "etcdserver: key is not provided");
const NO_SUCH_KEY: (i32, &str) = (3, "etcdserver: key not found");
pub(crate) const NO_LEASE: (i32, &str) = (5, "etcdserver: requested lease not found");
const TOO_LARGE: (i32, &str) = (3, "etcdserver: request is too large");
pub(crate) const COMPACTED: (i32, &str) =
    (11, "etcdserver: mvcc: required revision has been compacted");
const FUTURE: (i32, &str) = (
    11,
    "etcdserver: mvcc: required revision is a future revision",
);
const DUPLICATE: (i32, &str) = (3, "etcdserver: duplicate key given in txn request");
const TOO_MANY: (i32, &str) = (3, "etcdserver: too many operations in txn request");
const NO_MEMBER: (i32, &str) = (5, "etcdserver: member not found");
const BAD_URLS: (i32, &str) = (3, "etcdserver: given member URLs are invalid");

/// The store the rows are asked of: `a` was put at revisions 2 to 5, history up to 3
/// is compacted, and there is a lease 5.
pub(crate) async fn furnished() -> Store {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    for _ in 0..4 {
        kv.put("a", "x").await;
    }
    kv.compact(3).await.unwrap();
    let grant = pb::LeaseGrantRequest { ttl: 600, id: 5 };
    store.lease().await.lease_grant(grant).await.unwrap();
    store
}

/// Asks each row and looks that nothing came of it and the next is served.
async fn all_are_refused(store: &Store, rows: Vec<Row>) {
    let hash = async || {
        let mut maintenance = store.maintenance().await;
        let hash = maintenance.hash(pb::HashRequest {}).await.unwrap();
        hash.into_inner().hash
    };
    let (revision, before) = (store.running().handle.revision(), hash().await);
    for row in rows {
        let path = format!("/etcdserverpb.{}", row.path);
        let status = call_raw(store, &path, row.request.into()).await;
        assert_eq!(
            (status.code() as i32, status.message()),
            (row.code, row.message),
            "{}",
            row.what
        );
        assert_eq!(store.running().handle.revision(), revision, "{}", row.what);
    }
    assert_eq!(hash().await, before, "something was written");
    assert_eq!(store.kv().await.get("a").await.unwrap(), "x");
}

#[tokio::test]
async fn puts() {
    let ignoring = |put: pb::PutRequest| pb::PutRequest {
        ignore_value: true,
        ..put
    };
    let keeping = |lease, put: pb::PutRequest| pb::PutRequest {
        ignore_lease: true,
        lease,
        ..put
    };
    let leased = |lease| pb::PutRequest {
        lease,
        ..put("a", "y")
    };
    let rows = vec![
        row("an empty key", "KV/Put", &put("", "x"), NO_KEY),
        row(
            "ignore_value and a value",
            "KV/Put",
            &ignoring(put("a", "y")),
            (3, "etcdserver: value is provided"),
        ),
        row(
            "ignore_lease and a lease",
            "KV/Put",
            &keeping(5, put("a", "y")),
            (3, "etcdserver: lease is provided"),
        ),
        row(
            "ignore_value on a missing key",
            "KV/Put",
            &ignoring(put("b", "")),
            NO_SUCH_KEY,
        ),
        row(
            "ignore_lease on a missing key",
            "KV/Put",
            &keeping(0, put("b", "y")),
            NO_SUCH_KEY,
        ),
        row("a missing lease", "KV/Put", &leased(77), NO_LEASE),
        row("a negative lease", "KV/Put", &leased(-77), NO_LEASE),
        row(
            "more than --max-request-bytes",
            "KV/Put",
            &put("a", &"x".repeat(1_600_000)),
            TOO_LARGE,
        ),
        row(
            "one byte more than --max-request-bytes",
            "KV/Put",
            &put("a", &"x".repeat(1_572_864 - 6)),
            TOO_LARGE,
        ),
    ];
    all_are_refused(&furnished().await, rows).await;
}

#[tokio::test]
async fn ranges_and_compactions() {
    let at = |revision| pb::RangeRequest {
        revision,
        ..range("a", "")
    };
    let sorted = |sort_order, sort_target| pb::RangeRequest {
        sort_order,
        sort_target,
        ..range("a", "")
    };
    let compact = |revision| pb::CompactionRequest {
        revision,
        physical: false,
    };
    let unsorted = (3, "etcdserver: invalid sort option");
    let rows = vec![
        row("a range without a key", "KV/Range", &range("", ""), NO_KEY),
        row("an end without a key", "KV/Range", &range("", "b"), NO_KEY),
        row("an unknown order", "KV/Range", &sorted(9, 0), unsorted),
        row("an unknown target", "KV/Range", &sorted(1, 9), unsorted),
        row("a compacted revision", "KV/Range", &at(2), COMPACTED),
        row("a future revision", "KV/Range", &at(6), FUTURE),
        row("compacted again", "KV/Compact", &compact(3), COMPACTED),
        row("compacted long ago", "KV/Compact", &compact(2), COMPACTED),
        row("compacted to nothing", "KV/Compact", &compact(0), COMPACTED),
        row("compacted to less", "KV/Compact", &compact(-2), COMPACTED),
        row("compacted ahead", "KV/Compact", &compact(6), FUTURE),
        row(
            "deleted without a key",
            "KV/DeleteRange",
            &delete("", ""),
            NO_KEY,
        ),
    ];
    all_are_refused(&furnished().await, rows).await;
}

#[allow(clippy::too_many_lines, reason = "a table, one case after the other")]
#[tokio::test]
async fn transactions() {
    let then = |success| pb::TxnRequest {
        success,
        ..pb::TxnRequest::default()
    };
    let otherwise = |failure| pb::TxnRequest {
        failure,
        ..pb::TxnRequest::default()
    };
    let many = |count: usize| {
        (0..count)
            .map(|key| put_op(&format!("k{key}"), "x"))
            .collect()
    };
    let deleted = |key: &str, end: &str| op(Request::RequestDeleteRange(delete(key, end)));
    let nested = |txn| op(Request::RequestTxn(txn));
    let nothing = || pb::RequestOp { request: None };
    let leased = op(Request::RequestPut(pb::PutRequest {
        lease: 77,
        ..put("b", "x")
    }));
    let read = |revision| {
        op(Request::RequestRange(pb::RangeRequest {
            revision,
            ..range("a", "")
        }))
    };
    let keyless = pb::TxnRequest {
        compare: vec![pb::Compare::default()],
        ..pb::TxnRequest::default()
    };
    let compares = pb::TxnRequest {
        compare: vec![
            pb::Compare {
                key: bytes("a"),
                ..pb::Compare::default()
            };
            129
        ],
        ..pb::TxnRequest::default()
    };
    let twice = || vec![put_op("b", "1"), put_op("b", "2")];
    let asked = |what, txn: pb::TxnRequest, says| row(what, "KV/Txn", &txn, says);
    let inside = nested(then(vec![put_op("b", "2")]));
    let rows = vec![
        asked("a key put twice", then(twice()), DUPLICATE),
        asked("twice in the other branch", otherwise(twice()), DUPLICATE),
        asked(
            "a put of what is deleted",
            then(vec![put_op("b", "1"), deleted("a", "c")]),
            DUPLICATE,
        ),
        asked(
            "twice, once inside",
            then(vec![put_op("b", "1"), inside]),
            DUPLICATE,
        ),
        asked("129 operations", then(many(129)), TOO_MANY),
        asked("129 in the other branch", otherwise(many(129)), TOO_MANY),
        asked("129 inside", then(vec![nested(then(many(129)))]), TOO_MANY),
        asked("129 comparisons", compares, TOO_MANY),
        asked("an empty operation", then(vec![nothing()]), NO_SUCH_KEY),
        asked(
            "an empty one not taken",
            otherwise(vec![nothing()]),
            NO_SUCH_KEY,
        ),
        asked(
            "an empty one inside",
            then(vec![nested(then(vec![nothing()]))]),
            NO_SUCH_KEY,
        ),
        asked("a put without a key", then(vec![put_op("", "x")]), NO_KEY),
        asked("a comparison without a key", keyless, NO_KEY),
        asked(
            "a put with a missing lease",
            then(vec![put_op("c", "1"), leased]),
            NO_LEASE,
        ),
        asked(
            "a compacted revision",
            then(vec![put_op("c", "1"), read(2)]),
            COMPACTED,
        ),
        asked(
            "a future revision",
            then(vec![put_op("c", "1"), read(9)]),
            FUTURE,
        ),
    ];
    let store = furnished().await;
    all_are_refused(&store, rows).await;
    let beside = store.kv().await.get("c").await;
    assert_eq!(
        beside, None,
        "the put beside a refused one is not there either"
    );
}

#[allow(clippy::too_many_lines, reason = "a table, one case after the other")]
#[tokio::test]
async fn leases_members_and_users() {
    let grant = |id, ttl| pb::LeaseGrantRequest { ttl, id };
    let store = furnished().await;
    let own = store.running().handle.ids().0;
    let promote = |id| pb::MemberPromoteRequest { id };
    let update = pb::MemberUpdateRequest {
        id: 7,
        peer_ur_ls: vec!["http://127.0.0.1:1".to_owned()],
    };
    let add = |urls: &[&str]| pb::MemberAddRequest {
        peer_ur_ls: urls.iter().map(ToString::to_string).collect(),
        is_learner: false,
    };
    let rows = vec![
        row(
            "an id in use",
            "Lease/LeaseGrant",
            &grant(5, 60),
            (9, "etcdserver: lease already exists"),
        ),
        row(
            "too long",
            "Lease/LeaseGrant",
            &grant(6, 9_000_000_001),
            (11, "etcdserver: too large lease TTL"),
        ),
        row(
            "revoked unknown",
            "Lease/LeaseRevoke",
            &pb::LeaseRevokeRequest { id: 77 },
            NO_LEASE,
        ),
        row(
            "removed unknown",
            "Cluster/MemberRemove",
            &pb::MemberRemoveRequest { id: 7 },
            NO_MEMBER,
        ),
        row(
            "promoted unknown",
            "Cluster/MemberPromote",
            &promote(7),
            NO_MEMBER,
        ),
        row(
            "a voter promoted",
            "Cluster/MemberPromote",
            &promote(own),
            (9, "etcdserver: can only promote a learner member"),
        ),
        row(
            "updated unknown",
            "Cluster/MemberUpdate",
            &update,
            NO_MEMBER,
        ),
        row(
            "added without a URL",
            "Cluster/MemberAdd",
            &add(&[]),
            BAD_URLS,
        ),
        row(
            "added with a bad URL",
            "Cluster/MemberAdd",
            &add(&["127.0.0.1:1"]),
            BAD_URLS,
        ),
        row(
            "led by a stranger",
            "Maintenance/MoveLeader",
            &pb::MoveLeaderRequest { target_id: 7 },
            (9, "etcdserver: bad leader transferee"),
        ),
        row(
            "hashed ahead",
            "Maintenance/HashKV",
            &pb::HashKvRequest { revision: 9 },
            FUTURE,
        ),
        row(
            "hashed of old",
            "Maintenance/HashKV",
            &pb::HashKvRequest { revision: 2 },
            COMPACTED,
        ),
        row(
            "authentication without root",
            "Auth/AuthEnable",
            &pb::AuthEnableRequest {},
            (9, "etcdserver: root user does not exist"),
        ),
        row(
            "authenticated while it is off",
            "Auth/Authenticate",
            &pb::AuthenticateRequest::default(),
            (9, "etcdserver: authentication is not enabled"),
        ),
        row(
            "a user without a name",
            "Auth/UserAdd",
            &pb::AuthUserAddRequest::default(),
            (3, "etcdserver: user name is empty"),
        ),
        row(
            "a role without a name",
            "Auth/RoleAdd",
            &pb::AuthRoleAddRequest::default(),
            (3, "etcdserver: role name is empty"),
        ),
    ];
    all_are_refused(&store, rows).await;
}

/// Transactions nested ninety deep overflow no stack: decoding stops first.
#[tokio::test]
async fn a_transaction_nested_too_deep() {
    let store = furnished().await;
    let mut deep = pb::TxnRequest::default();
    for _ in 0..90 {
        deep = pb::TxnRequest {
            success: vec![op(Request::RequestTxn(deep))],
            ..pb::TxnRequest::default()
        };
    }
    assert!(store.kv().await.txn(deep).await.is_err());
    store.kv().await.put("a", "still here").await;
}
