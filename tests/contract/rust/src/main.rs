//! The store as users of the Rust library `etcd-client` see it. The argument
//! names a contract; `CONTRACT_ENDPOINT` is a store nobody has written to.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]

use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmType, Client, CompactionOptions, Compare, CompareOp, ConnectOptions,
    DeleteOptions, Error, EventType, GetOptions, LeaseGrantOptions, LeaseTimeToLiveOptions,
    LockOptions, Permission, ProclaimOptions, PutOptions, ResignOptions, SortOrder, SortTarget,
    Txn, TxnOp, TxnOpResponse, WatchFilterType, WatchOptions, WatchStream,
};

/// How long a contract may take.
const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::main(worker_threads = 2)]
async fn main() {
    let name = std::env::args().nth(1).unwrap();
    let url = format!("http://{}", std::env::var("CONTRACT_ENDPOINT").unwrap());
    let client = Client::connect([&url], None).await.unwrap();
    let contract = async {
        match name.as_str() {
            "key_values" => key_values(client).await,
            "transactions" => transactions(client).await,
            "watches" => watches(client).await,
            "leases" => leases(client).await,
            "locks_and_elections" => locks_and_elections(client, url).await,
            "maintenance" => maintenance(client).await,
            "users" => users(client, url).await,
            other => panic!("no contract is called {other}"),
        }
    };
    tokio::time::timeout(PATIENCE, Box::pin(contract))
        .await
        .unwrap();
}

/// Checks that a call ended with exactly this status.
#[track_caller]
fn refused<T>(answer: Result<T, Error>, code: i32, message: &str) {
    match answer {
        Err(Error::GRpcStatus(status)) => {
            assert_eq!((status.code() as i32, status.message()), (code, message));
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("answered instead of {message:?}"),
    }
}

async fn key_values(mut c: Client) {
    let put = c.put("a", "1", None).await.unwrap();
    assert_eq!(put.header().unwrap().revision(), 2);
    let prev = Some(PutOptions::new().with_prev_key());
    let put = c.put("a", "2", prev).await.unwrap();
    assert_eq!(put.prev_key().unwrap().value(), b"1");
    for key in ["b", "c", "d"] {
        c.put(format!("k/{key}"), key, None).await.unwrap();
    }
    let prefix = || GetOptions::new().with_prefix();
    let got = c.get("k/", Some(prefix().with_limit(2))).await.unwrap();
    assert_eq!((got.kvs().len(), got.more(), got.count()), (2, true, 3));
    let sorted = prefix().with_sort(SortTarget::Mod, SortOrder::Descend);
    let got = c.get("k/", Some(sorted)).await.unwrap();
    let keys: Vec<_> = got.kvs().iter().map(|kv| kv.key_str().unwrap()).collect();
    assert_eq!(keys, ["k/d", "k/c", "k/b"]);
    let got = c.get("k/", Some(prefix().with_count_only())).await.unwrap();
    assert_eq!((got.kvs().len(), got.count()), (0, 3));
    let got = c.get("k/", Some(prefix().with_keys_only())).await.unwrap();
    assert!(got.kvs().iter().all(|kv| kv.value().is_empty()));
    let from = GetOptions::new().with_from_key().with_serializable();
    assert_eq!(c.get("k/c", Some(from)).await.unwrap().count(), 2);
    let window = prefix().with_min_mod_revision(5).with_max_mod_revision(5);
    let got = c.get("k/", Some(window)).await.unwrap();
    assert_eq!(got.kvs()[0].key(), b"k/c");
    let old = GetOptions::new().with_revision(2);
    let got = c.get("a", Some(old)).await.unwrap();
    assert_eq!(got.kvs()[0].value(), b"1");
    assert_eq!(got.header().unwrap().revision(), 6);
    let all = DeleteOptions::new().with_prefix().with_prev_key();
    let gone = c.delete("k/", Some(all)).await.unwrap();
    assert_eq!((gone.deleted(), gone.prev_kvs().len()), (3, 3));
    assert_eq!(gone.header().unwrap().revision(), 7);
    refused(
        c.put("", "x", None).await,
        3,
        "etcdserver: key is not provided",
    );
    let keep = Some(PutOptions::new().with_ignore_value());
    refused(c.put("n", "", keep).await, 3, "etcdserver: key not found");
    let leased = Some(PutOptions::new().with_lease(9));
    let unknown = "etcdserver: requested lease not found";
    refused(c.put("n", "", leased).await, 5, unknown);
    let ahead = Some(GetOptions::new().with_revision(8));
    let future = "etcdserver: mvcc: required revision is a future revision";
    refused(c.get("a", ahead).await, 11, future);
    let physical = Some(CompactionOptions::new().with_physical());
    c.compact(6, physical).await.unwrap();
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    let old = Some(GetOptions::new().with_revision(5));
    refused(c.get("a", old).await, 11, compacted);
    refused(c.compact(6, None).await, 11, compacted);
}

async fn transactions(mut c: Client) {
    c.put("a", "1", None).await.unwrap();
    let txn = Txn::new()
        .when([
            Compare::value("a", CompareOp::Equal, "1"),
            Compare::version("b", CompareOp::Equal, 0),
            Compare::create_revision("a", CompareOp::Less, 3),
            Compare::lease("a", CompareOp::Equal, 0),
        ])
        .and_then([
            TxnOp::put("b", "2", None),
            TxnOp::get("b", None),
            TxnOp::txn(
                Txn::new()
                    .when([Compare::version("b", CompareOp::Greater, 0)])
                    .and_then([TxnOp::put("c", "then", None)])
                    .or_else([TxnOp::put("c", "else", None)]),
            ),
            TxnOp::delete("a", None),
        ])
        .or_else([TxnOp::put("b", "no", None)]);
    let done = c.txn(txn).await.unwrap();
    assert!(done.succeeded());
    assert_eq!(done.header().unwrap().revision(), 3);
    match &done.op_responses()[..] {
        [
            TxnOpResponse::Put(_),
            TxnOpResponse::Get(got),
            TxnOpResponse::Txn(inner),
            TxnOpResponse::Delete(gone),
        ] => {
            assert_eq!(got.kvs()[0].value(), b"2");
            // Comparisons look at the store before the transaction.
            assert!(!inner.succeeded());
            assert_eq!(gone.deleted(), 1);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(c.get("c", None).await.unwrap().kvs()[0].value(), b"else");
    let range = Compare::mod_revision("b", CompareOp::Greater, 2).with_range("d");
    assert!(c.txn(Txn::new().when([range])).await.unwrap().succeeded());
    let missing = Compare::value("none", CompareOp::NotEqual, "x");
    let done = c.txn(Txn::new().when([missing])).await.unwrap();
    assert!(!done.succeeded());
    let twice = [TxnOp::put("x", "1", None), TxnOp::put("x", "2", None)];
    let duplicate = "etcdserver: duplicate key given in txn request";
    refused(c.txn(Txn::new().and_then(twice)).await, 3, duplicate);
    let many: Vec<_> = (0..129)
        .map(|i| TxnOp::get(format!("k{i}"), None))
        .collect();
    let too_many = "etcdserver: too many operations in txn request";
    refused(c.txn(Txn::new().and_then(many)).await, 3, too_many);
    assert_eq!(
        c.get("x", None).await.unwrap().header().unwrap().revision(),
        3
    );
}

/// What a watch shows: kind, key, value, revision, and the value before.
type Seen = (EventType, String, String, i64, Option<String>);

/// Takes events until there are so many.
async fn events(watch: &mut WatchStream, count: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let response = watch.message().await.unwrap().unwrap();
        assert!(!response.canceled(), "{response:?}");
        for event in response.events() {
            let kv = event.kv().unwrap();
            seen.push((
                event.event_type(),
                kv.key_str().unwrap().to_owned(),
                kv.value_str().unwrap().to_owned(),
                kv.mod_revision(),
                event.prev_kv().map(|kv| kv.value_str().unwrap().to_owned()),
            ));
        }
    }
    assert_eq!(seen.len(), count);
    seen
}

async fn created(watch: &mut WatchStream) -> i64 {
    let first = watch.message().await.unwrap().unwrap();
    assert!(first.created() && !first.canceled(), "{first:?}");
    first.watch_id()
}

async fn watches(mut c: Client) {
    let options = WatchOptions::new().with_prefix().with_prev_key();
    let mut watch = c.watch("w/", Some(options)).await.unwrap();
    let id = created(&mut watch).await;
    c.put("w/a", "1", None).await.unwrap();
    c.put("w/a", "2", None).await.unwrap();
    c.delete("w/a", None).await.unwrap();
    let row = |kind, value: &str, revision, prev: Option<&str>| {
        let prev = prev.map(str::to_owned);
        (kind, "w/a".to_owned(), value.to_owned(), revision, prev)
    };
    let all = [
        row(EventType::Put, "1", 2, None),
        row(EventType::Put, "2", 3, Some("1")),
        row(EventType::Delete, "", 4, Some("2")),
    ];
    assert_eq!(events(&mut watch, 3).await, all);
    watch.request_progress().await.unwrap();
    let progress = watch.message().await.unwrap().unwrap();
    assert!(progress.events().is_empty() && !progress.canceled());
    assert_eq!(progress.header().unwrap().revision(), 4);
    // A second watch on the stream, with an id of its own, from the past.
    let past = || WatchOptions::new().with_prefix().with_start_revision(2);
    let only = past()
        .with_watch_id(77)
        .with_filters([WatchFilterType::NoPut]);
    watch.watch("w/", Some(only)).await.unwrap();
    assert_eq!(created(&mut watch).await, 77);
    let gone = events(&mut watch, 1).await;
    assert_eq!(gone, [row(EventType::Delete, "", 4, None)]);
    // The same id again is refused; the stream goes on.
    watch
        .watch("w/", Some(past().with_watch_id(77)))
        .await
        .unwrap();
    let again = watch.message().await.unwrap().unwrap();
    assert!(again.created() && again.canceled());
    assert_eq!(again.watch_id(), -1);
    let duplicate = "mvcc: duplicate watch ID provided on the WatchStream";
    assert_eq!(again.cancel_reason(), duplicate);
    watch.cancel(id).await.unwrap();
    let end = watch.message().await.unwrap().unwrap();
    assert_eq!((end.watch_id(), end.canceled()), (id, true));
    c.put("w/b", "nobody sees a put", None).await.unwrap();
    c.delete("w/b", None).await.unwrap();
    assert_eq!(events(&mut watch, 1).await[0].3, 6);
    let filtered = past().with_filters([WatchFilterType::NoDelete]);
    let mut puts = c.watch("w/", Some(filtered)).await.unwrap();
    created(&mut puts).await;
    let revisions: Vec<_> = events(&mut puts, 3).await.iter().map(|e| e.3).collect();
    assert_eq!(revisions, [2, 3, 5]);
    c.compact(5, None).await.unwrap();
    let mut late = c.watch("w/", Some(past())).await.unwrap();
    created(&mut late).await;
    let told = late.message().await.unwrap().unwrap();
    assert!(told.canceled());
    assert_eq!(told.compact_revision(), 5);
}

async fn leases(mut c: Client) {
    let own = Some(LeaseGrantOptions::new().with_id(4711));
    let lease = c.lease_grant(60, own.clone()).await.unwrap();
    assert_eq!((lease.id(), lease.ttl()), (4711, 60));
    let exists = "etcdserver: lease already exists";
    refused(c.lease_grant(60, own).await, 9, exists);
    let with = || Some(PutOptions::new().with_lease(4711));
    c.put("l/a", "x", with()).await.unwrap();
    c.put("l/b", "x", with()).await.unwrap();
    let keys = Some(LeaseTimeToLiveOptions::new().with_keys());
    let left = c.lease_time_to_live(4711, keys).await.unwrap();
    assert_eq!(left.granted_ttl(), 60);
    // In etcd the order is that of a Go map: another one each time.
    let mut keys = left.keys().to_vec();
    keys.sort();
    assert_eq!(keys, [b"l/a".to_vec(), b"l/b".to_vec()]);
    assert_eq!(c.leases().await.unwrap().leases()[0].id(), 4711);
    let (mut keeper, mut answers) = c.lease_keep_alive(4711).await.unwrap();
    keeper.keep_alive().await.unwrap();
    let alive = answers.message().await.unwrap().unwrap();
    assert_eq!((alive.id(), alive.ttl()), (4711, 60));
    c.lease_revoke(4711).await.unwrap();
    let prefix = Some(GetOptions::new().with_prefix());
    assert_eq!(c.get("l/", prefix).await.unwrap().count(), 0);
    let left = c.lease_time_to_live(4711, None).await.unwrap();
    assert_eq!(left.ttl(), -1);
    let unknown = "etcdserver: requested lease not found";
    refused(c.lease_revoke(4711).await, 5, unknown);
    let long = c.lease_grant(9_000_000_001, None).await;
    refused(long, 11, "etcdserver: too large lease TTL");
    // Expiry deletes, and a watch sees it.
    let short = c.lease_grant(1, None).await.unwrap();
    let bound = Some(PutOptions::new().with_lease(short.id()));
    c.put("l/short", "x", bound).await.unwrap();
    let mut watch = c.watch("l/short", None).await.unwrap();
    created(&mut watch).await;
    assert_eq!(events(&mut watch, 1).await[0].0, EventType::Delete);
}

async fn locks_and_elections(mut c: Client, url: String) {
    let lease = c.lease_grant(30, None).await.unwrap().id();
    let options = Some(LockOptions::new().with_lease(lease));
    let held = c.lock("mutex", options).await.unwrap();
    assert_eq!(held.key(), format!("mutex/{lease:x}").as_bytes());
    let mut other = Client::connect([&url], None).await.unwrap();
    let waiting = tokio::spawn(async move {
        let second = other.lock("mutex", None).await.unwrap();
        other.unlock(second.key()).await.unwrap();
    });
    let prefix = || Some(GetOptions::new().with_prefix());
    while c.get("mutex/", prefix()).await.unwrap().count() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!waiting.is_finished(), "two hold one lock");
    c.unlock(held.key()).await.unwrap();
    waiting.await.unwrap();
    let none = c.leader("boss").await;
    refused(none, 2, "election: no leader");
    let won = c.campaign("boss", "one", lease).await.unwrap();
    let leader = won.leader().unwrap().clone();
    assert_eq!(leader.key(), format!("boss/{lease:x}").as_bytes());
    let now = c.leader("boss").await.unwrap();
    assert_eq!(now.kv().unwrap().value(), b"one");
    let mut observed = c.observe("boss").await.unwrap();
    let first = observed.message().await.unwrap().unwrap();
    assert_eq!(first.kv().unwrap().value(), b"one");
    let mut rival = Client::connect([&url], None).await.unwrap();
    let campaign = tokio::spawn(async move {
        let lease = rival.lease_grant(30, None).await.unwrap().id();
        rival.campaign("boss", "two", lease).await.unwrap();
    });
    while c.get("boss/", prefix()).await.unwrap().count() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mine = ProclaimOptions::new().with_leader(leader.clone());
    c.proclaim("one again", Some(mine)).await.unwrap();
    let next = observed.message().await.unwrap().unwrap();
    assert_eq!(next.kv().unwrap().value(), b"one again");
    assert!(!campaign.is_finished(), "two are elected");
    let resign = ResignOptions::new().with_leader(leader.clone());
    c.resign(Some(resign)).await.unwrap();
    campaign.await.unwrap();
    let next = observed.message().await.unwrap().unwrap();
    assert_eq!(next.kv().unwrap().value(), b"two");
    let mine = ProclaimOptions::new().with_leader(leader);
    let lost = c.proclaim("from the past", Some(mine)).await;
    refused(lost, 2, "election: not leader");
}

async fn maintenance(mut c: Client) {
    c.put("a", "1", None).await.unwrap();
    let members = c.member_list().await.unwrap();
    let [member] = members.members() else {
        panic!("{members:?}");
    };
    assert!(!member.name().is_empty() && !member.is_learner());
    let id = member.id();
    let status = c.status().await.unwrap();
    assert_eq!(status.leader(), id);
    assert!(status.version().starts_with("3."));
    assert!(status.db_size() > 0 && status.raft_used_db_size() > 0);
    assert!(status.raft_index() >= status.raft_applied_index());
    let hash = c.hash_kv(0).await.unwrap();
    let again = c.hash_kv(0).await.unwrap();
    assert_eq!(hash.hash(), again.hash());
    assert_eq!(
        c.hash().await.unwrap().hash(),
        c.hash().await.unwrap().hash()
    );
    c.defragment().await.unwrap();
    let none = c.alarm(AlarmAction::Get, AlarmType::None, None).await;
    assert!(none.unwrap().alarms().is_empty());
    c.alarm(AlarmAction::Activate, AlarmType::Nospace, None)
        .await
        .unwrap();
    let full = "etcdserver: mvcc: database space exceeded";
    refused(c.put("a", "2", None).await, 8, full);
    c.alarm(AlarmAction::Deactivate, AlarmType::Nospace, None)
        .await
        .unwrap();
    c.put("a", "2", None).await.unwrap();
    let mut stream = c.snapshot().await.unwrap();
    let mut bytes = 0;
    let mut left = None;
    while let Some(part) = stream.message().await.unwrap() {
        bytes += part.blob().len();
        left = Some(part.remaining_bytes());
    }
    assert_eq!((bytes % 512, left), (32, Some(0)));
    let unknown = "etcdserver: member not found";
    refused(c.member_remove(7).await, 5, unknown);
    let learner = "etcdserver: can only promote a learner member";
    refused(c.member_promote(id).await, 9, learner);
    refused(
        c.move_leader(7).await,
        9,
        "etcdserver: bad leader transferee",
    );
}

async fn users(mut c: Client, url: String) {
    let rootless = "etcdserver: root user does not exist";
    refused(c.auth_enable().await, 9, rootless);
    c.user_add("root", "pw", None).await.unwrap();
    let taken = "etcdserver: user name already exists";
    refused(c.user_add("root", "pw", None).await, 9, taken);
    let powerless = "etcdserver: root user does not have root role";
    refused(c.auth_enable().await, 9, powerless);
    c.role_add("root").await.unwrap();
    c.user_grant_role("root", "root").await.unwrap();
    c.user_add("dee", "pw", None).await.unwrap();
    c.role_add("r").await.unwrap();
    let permissions = [
        Permission::read("p/").with_prefix(),
        Permission::read_write("z").with_from_key(),
        Permission::write("one"),
    ];
    for permission in &permissions {
        c.role_grant_permission("r", permission.clone())
            .await
            .unwrap();
    }
    let mut granted = c.role_get("r").await.unwrap().permissions();
    granted.sort_by_key(|p| p.key().to_vec());
    assert_eq!(granted.len(), 3);
    assert_eq!(granted[2].range_end(), [0]);
    c.user_grant_role("dee", "r").await.unwrap();
    c.auth_enable().await.unwrap();
    refused(
        c.get("p/a", None).await,
        3,
        "etcdserver: user name is empty",
    );
    let wrong = ConnectOptions::new().with_user("dee", "no");
    let wrong = Client::connect([&url], Some(wrong)).await.map(|_| ());
    let failed = "etcdserver: authentication failed, invalid user ID or password";
    refused(wrong, 3, failed);
    as_dee(&url).await;
    let root = ConnectOptions::new().with_user("root", "pw");
    let mut root = Client::connect([&url], Some(root)).await.unwrap();
    root.user_delete("dee").await.unwrap();
    let last = "etcdserver: invalid auth management";
    refused(root.user_delete("root").await, 3, last);
    refused(root.role_delete("root").await, 3, last);
    root.auth_disable().await.unwrap();
    c.put("anything", "goes", None).await.unwrap();
    let off = ConnectOptions::new().with_user("root", "pw");
    let off = Client::connect([&url], Some(off)).await.map(|_| ());
    refused(off, 9, "etcdserver: authentication is not enabled");
}

async fn as_dee(url: &str) {
    let denied = "etcdserver: permission denied";
    let options = ConnectOptions::new().with_user("dee", "pw");
    let mut dee = Client::connect([url], Some(options)).await.unwrap();
    dee.get("p/a", None).await.unwrap();
    dee.put("zebra", "1", None).await.unwrap();
    dee.put("one", "1", None).await.unwrap();
    refused(dee.get("one", None).await, 7, denied);
    refused(dee.put("p/a", "1", None).await, 7, denied);
    // The value a put replaces is a read.
    let prev = Some(PutOptions::new().with_prev_key());
    refused(dee.put("one", "1", prev).await, 7, denied);
    let from = Some(GetOptions::new().with_from_key());
    dee.get("zoo", from.clone()).await.unwrap();
    refused(dee.get("yes", from).await, 7, denied);
    let mut watch = dee.watch("one", None).await.unwrap();
    let told = watch.message().await.unwrap().unwrap();
    assert!(told.created() && told.canceled());
    assert!(told.cancel_reason().ends_with("permission denied"));
    refused(dee.user_list().await, 7, denied);
    let itself = dee.user_get("dee").await.unwrap();
    assert_eq!(itself.roles(), ["r"]);
}
