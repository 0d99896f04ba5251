//! `/metrics`: etcd's names, with numbers that are true.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::{DEADLINE, Store, put_op};

/// What dashboards and alerts of etcd name (contrib/mixin), and what etcd 3.5.1 has
/// beside it, as far as it means something here. Families of peers come with peers.
const FAMILIES: &[(&str, &str)] = &[
    ("etcd_cluster_version", "gauge"),
    ("etcd_debugging_auth_revision", "gauge"),
    ("etcd_debugging_lease_granted_total", "counter"),
    ("etcd_debugging_lease_renewed_total", "counter"),
    ("etcd_debugging_lease_revoked_total", "counter"),
    ("etcd_debugging_mvcc_compact_revision", "gauge"),
    ("etcd_debugging_mvcc_current_revision", "gauge"),
    ("etcd_debugging_mvcc_db_compaction_keys_total", "counter"),
    ("etcd_debugging_mvcc_keys_total", "gauge"),
    ("etcd_debugging_mvcc_pending_events_total", "gauge"),
    ("etcd_debugging_mvcc_range_total", "counter"),
    ("etcd_debugging_mvcc_slow_watcher_total", "gauge"),
    ("etcd_debugging_mvcc_watch_stream_total", "gauge"),
    ("etcd_debugging_mvcc_watcher_total", "gauge"),
    ("etcd_debugging_server_lease_expired_total", "counter"),
    ("etcd_disk_backend_commit_duration_seconds", "histogram"),
    ("etcd_disk_wal_fsync_duration_seconds", "histogram"),
    ("etcd_mvcc_db_total_size_in_bytes", "gauge"),
    ("etcd_mvcc_db_total_size_in_use_in_bytes", "gauge"),
    ("etcd_mvcc_delete_total", "counter"),
    ("etcd_mvcc_put_total", "counter"),
    ("etcd_mvcc_range_total", "counter"),
    ("etcd_mvcc_txn_total", "counter"),
    ("etcd_network_client_grpc_received_bytes_total", "counter"),
    ("etcd_network_client_grpc_sent_bytes_total", "counter"),
    ("etcd_server_apply_duration_seconds", "histogram"),
    ("etcd_server_has_leader", "gauge"),
    ("etcd_server_health_failures", "counter"),
    ("etcd_server_health_success", "counter"),
    ("etcd_server_healthcheck", "gauge"),
    ("etcd_server_healthchecks_total", "counter"),
    ("etcd_server_id", "gauge"),
    ("etcd_server_is_leader", "gauge"),
    ("etcd_server_is_learner", "gauge"),
    ("etcd_server_leader_changes_seen_total", "counter"),
    ("etcd_server_proposals_applied_total", "gauge"),
    ("etcd_server_proposals_committed_total", "gauge"),
    ("etcd_server_proposals_failed_total", "counter"),
    ("etcd_server_proposals_pending", "gauge"),
    ("etcd_server_quota_backend_bytes", "gauge"),
    ("etcd_server_read_indexes_failed_total", "counter"),
    ("etcd_server_request_duration_seconds", "histogram"),
    ("etcd_server_slow_apply_total", "counter"),
    ("etcd_server_slow_read_indexes_total", "counter"),
    ("etcd_server_version", "gauge"),
    ("grpc_server_handled_total", "counter"),
    ("grpc_server_handling_seconds", "histogram"),
    ("grpc_server_msg_received_total", "counter"),
    ("grpc_server_msg_sent_total", "counter"),
    ("grpc_server_started_total", "counter"),
    ("os_fd_limit", "gauge"),
    ("os_fd_used", "gauge"),
    ("process_cpu_seconds_total", "counter"),
    ("process_max_fds", "gauge"),
    ("process_open_fds", "gauge"),
    ("process_resident_memory_bytes", "gauge"),
    ("process_start_time_seconds", "gauge"),
    ("process_virtual_memory_bytes", "gauge"),
];

/// The page, taken apart.
struct Page {
    families: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Page {
    async fn of(store: &Store) -> Self {
        let answer = store.http("GET /metrics", "").await;
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.header("content-type"),
            Some("text/plain; version=0.0.4; charset=utf-8")
        );
        let (mut families, mut samples) = (BTreeMap::new(), BTreeMap::new());
        for line in answer.body.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, kind) = family.split_once(' ').unwrap();
                families.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                samples.insert(name.to_owned(), value.parse().unwrap());
            }
        }
        Self { families, samples }
    }

    #[track_caller]
    fn value(&self, name: &str) -> f64 {
        *self
            .samples
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in {:?}", self.samples))
    }
}

#[tokio::test]
async fn every_family_is_there_under_etcds_name() {
    let store = Store::start_with(|config| config.extensive_metrics = true).await;
    store.kv().await.put("a", "1").await;
    store.http("GET /livez", "").await;
    let page = Page::of(&store).await;
    let found: BTreeSet<_> = page
        .families
        .iter()
        .map(|(name, kind)| (name.as_str(), kind.as_str()))
        .collect();
    let wanted: BTreeSet<_> = FAMILIES.iter().copied().collect();
    let missing: Vec<_> = wanted.difference(&found).collect();
    let unlisted: Vec<_> = found.difference(&wanted).collect();
    assert!(
        missing.is_empty() && unlisted.is_empty(),
        "missing {missing:?}, unlisted {unlisted:?}"
    );
    // The bounds etcd has.
    for bound in ["0.001", "0.002", "8.192", "+Inf"] {
        page.value(&format!(
            "etcd_disk_wal_fsync_duration_seconds_bucket{{le=\"{bound}\"}}"
        ));
    }
    let seconds = "grpc_server_handling_seconds";
    let put = r#"grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary""#;
    assert_eq!(page.value(&format!("{seconds}_count{{{put}}}")), 1.0);
}

#[tokio::test]
async fn operations_are_counted_wherever_they_stand() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    kv.put("a", "1").await;
    kv.get("a").await;
    let txn = proto::etcdserverpb::TxnRequest {
        success: vec![put_op("b", "1"), put_op("c", "1")],
        ..Default::default()
    };
    kv.txn(txn).await.unwrap();
    kv.0.delete_range(crate::store::delete("b", ""))
        .await
        .unwrap();
    let page = Page::of(&store).await;
    for (name, value) in [
        ("etcd_mvcc_put_total", 3.0),
        ("etcd_mvcc_delete_total", 1.0),
        ("etcd_mvcc_range_total", 1.0),
        ("etcd_mvcc_txn_total", 1.0),
        ("etcd_debugging_mvcc_current_revision", 4.0),
        ("etcd_debugging_mvcc_keys_total", 2.0),
        ("etcd_server_has_leader", 1.0),
        ("etcd_server_is_leader", 1.0),
        ("etcd_server_leader_changes_seen_total", 1.0),
        ("etcd_server_quota_backend_bytes", 2_147_483_648.0),
        (r#"etcd_cluster_version{cluster_version="3.5"}"#, 1.0),
        (
            r#"etcd_server_apply_duration_seconds_count{op="Put",success="true",version="v3"}"#,
            1.0,
        ),
    ] {
        assert_eq!(page.value(name), value, "{name}");
    }
    assert!(page.value("etcd_server_proposals_applied_total") >= 3.0);
    assert!(page.value("process_resident_memory_bytes") > 1e6);
    assert!(page.value("process_cpu_seconds_total") >= 0.0);

    kv.compact(4).await.unwrap();
    let page = Page::of(&store).await;
    // The deleted key's one revision; its tombstone stays at the boundary.
    assert_eq!(
        page.value("etcd_debugging_mvcc_db_compaction_keys_total"),
        1.0
    );
    assert_eq!(page.value("etcd_debugging_mvcc_compact_revision"), 4.0);
}

fn watch_of(key: &'static str) -> proto::etcdserverpb::WatchRequest {
    let create = proto::etcdserverpb::WatchCreateRequest {
        key: key.into(),
        ..Default::default()
    };
    proto::etcdserverpb::WatchRequest {
        request_union: Some(
            proto::etcdserverpb::watch_request::RequestUnion::CreateRequest(create),
        ),
    }
}

#[tokio::test]
async fn calls_are_counted_from_beginning_to_end() {
    let store = Store::start().await;
    let label = |method: &str, service: &str, kind: &str| {
        format!(
            r#"grpc_method="{method}",grpc_service="etcdserverpb.{service}",grpc_type="{kind}""#
        )
    };
    let watch = label("Watch", "Watch", "bidi_stream");
    let (put, range) = (label("Put", "KV", "unary"), label("Range", "KV", "unary"));
    let started = |call: &str| format!("grpc_server_started_total{{{call}}}");
    let handled = |code: &str, call: &str| {
        format!("grpc_server_handled_total{{grpc_code=\"{code}\",{call}}}")
    };
    // From the start, at zero, so that a rate knows the first call.
    let page = Page::of(&store).await;
    for name in [started(&put), started(&watch), handled("NotFound", &range)] {
        assert_eq!(page.value(&name), 0.0, "{name}");
    }

    let mut kv = store.kv().await;
    kv.put("a", "1").await;
    kv.range(crate::store::range("", "")).await.unwrap_err();
    let (send, requests) = tokio::sync::mpsc::channel(2);
    send.send(watch_of("a")).await.unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut replies = store
        .watch()
        .await
        .watch(requests)
        .await
        .unwrap()
        .into_inner();
    assert!(replies.message().await.unwrap().unwrap().created);
    kv.put("a", "2").await;
    replies.message().await.unwrap();

    let page = Page::of(&store).await;
    for (name, value) in [
        (started(&put), 2.0),
        (handled("OK", &put), 2.0),
        (started(&range), 1.0),
        (handled("InvalidArgument", &range), 1.0),
        (started(&watch), 1.0),
        (handled("Canceled", &watch), 0.0),
        (format!("grpc_server_msg_received_total{{{watch}}}"), 1.0),
        (format!("grpc_server_msg_sent_total{{{watch}}}"), 2.0),
        ("etcd_debugging_mvcc_watcher_total".to_owned(), 1.0),
        ("etcd_debugging_mvcc_watch_stream_total".to_owned(), 1.0),
        ("etcd_debugging_mvcc_pending_events_total".to_owned(), 0.0),
    ] {
        assert_eq!(page.value(&name), value, "{name}");
    }
    // Two puts of six bytes, an empty range, and the watch's five.
    assert_eq!(
        page.value("etcd_network_client_grpc_received_bytes_total"),
        17.0
    );
    assert!(page.value("etcd_network_client_grpc_sent_bytes_total") > 50.0);

    // A watcher that goes away has cancelled.
    drop((replies, send));
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let page = Page::of(&store).await;
        if page.value(&handled("Canceled", &watch)) == 1.0 {
            assert_eq!(page.value("etcd_debugging_mvcc_watcher_total"), 0.0);
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "the watch goes on");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
