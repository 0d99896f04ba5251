//! Numbers for dashboards, under the names etcd's dashboards ask for
//! (etcd contrib/mixin).

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use member::{Role, Standing};
use mvcc::Command;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// What tells one kind of gRPC call from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Handled {
    pub(crate) grpc_service: String,
    pub(crate) grpc_method: String,
    pub(crate) grpc_code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabel {
    server_version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IdLabel {
    server_id: String,
}

/// All numbers of one member.
pub(crate) struct Metrics {
    registry: Registry,
    has_leader: Gauge,
    is_leader: Gauge,
    leader_changes: Counter,
    last_leader: AtomicU64,
    pub(crate) proposals_pending: Gauge,
    pub(crate) proposals_applied: Counter,
    pub(crate) proposals_committed: Gauge,
    pub(crate) proposals_failed: Counter,
    pub(crate) wal_fsync: Histogram,
    pub(crate) backend_commit: Histogram,
    puts: Counter,
    deletes: Counter,
    txns: Counter,
    pub(crate) ranges: Counter,
    compactions: Counter,
    lease_granted: Counter,
    lease_revoked: Counter,
    pub(crate) lease_renewed: Counter,
    other: Counter,
    pub(crate) db_size: Gauge,
    pub(crate) db_size_in_use: Gauge,
    pub(crate) keys: Gauge,
    pub(crate) watchers: Gauge,
    pub(crate) slow_watchers: Gauge,
    pub(crate) watch_streams: Gauge,
    pub(crate) current_revision: Gauge,
    pub(crate) compact_revision: Gauge,
    pub(crate) resident_bytes: Gauge,
    pub(crate) handled: Family<Handled, Counter>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Registers a metric under a name and returns it.
macro_rules! register {
    ($registry:expr, $name:literal, $help:literal, $metric:expr) => {{
        let metric = $metric;
        $registry.register($name, $help, metric.clone());
        metric
    }};
}

impl Metrics {
    pub(crate) fn new(version: &str, member_id: u64, quota: u64) -> Arc<Self> {
        let mut r = Registry::default();
        fixed(&mut r, version, member_id, quota);
        // etcd: 1 ms to 8 s.
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 14));
        let mut metrics = Self {
            has_leader: register!(r, "etcd_server_has_leader", "Whether a leader is known", Gauge::default()),
            is_leader: register!(r, "etcd_server_is_leader", "Whether this member leads", Gauge::default()),
            leader_changes: register!(r, "etcd_server_leader_changes_seen", "Changes of leader seen", Counter::default()),
            last_leader: AtomicU64::new(0),
            proposals_pending: register!(r, "etcd_server_proposals_pending", "Proposals waiting to be applied", Gauge::default()),
            proposals_applied: register!(r, "etcd_server_proposals_applied", "Proposals applied", Counter::default()),
            proposals_committed: register!(r, "etcd_server_proposals_committed_total", "Index of the last committed entry", Gauge::default()),
            proposals_failed: register!(r, "etcd_server_proposals_failed", "Proposals that got no answer", Counter::default()),
            wal_fsync: register!(r, "etcd_disk_wal_fsync_duration_seconds", "Latency of log syncs", seconds()),
            backend_commit: register!(r, "etcd_disk_backend_commit_duration_seconds", "Latency of write-backs", seconds()),
            puts: register!(r, "etcd_debugging_mvcc_put", "Puts applied", Counter::default()),
            deletes: register!(r, "etcd_debugging_mvcc_delete", "Deletes applied", Counter::default()),
            txns: register!(r, "etcd_debugging_mvcc_txn", "Transactions applied", Counter::default()),
            ranges: register!(r, "etcd_debugging_mvcc_range", "Ranges answered", Counter::default()),
            compactions: register!(r, "etcd_debugging_mvcc_compactions", "Compactions applied", Counter::default()),
            lease_granted: register!(r, "etcd_debugging_lease_granted", "Leases granted", Counter::default()),
            lease_revoked: register!(r, "etcd_debugging_lease_revoked", "Leases revoked", Counter::default()),
            lease_renewed: register!(r, "etcd_debugging_lease_renewed", "Leases renewed", Counter::default()),
            other: Counter::default(),
            db_size: register!(r, "etcd_mvcc_db_total_size_in_bytes", "Bytes the store takes", Gauge::default()),
            db_size_in_use: register!(r, "etcd_mvcc_db_total_size_in_use_in_bytes", "Bytes of it that are not garbage", Gauge::default()),
            keys: register!(r, "etcd_debugging_mvcc_keys_total", "Live keys", Gauge::default()),
            watchers: register!(r, "etcd_debugging_mvcc_watcher_total", "Watchers", Gauge::default()),
            slow_watchers: register!(r, "etcd_debugging_mvcc_slow_watcher_total", "Watchers reading history", Gauge::default()),
            watch_streams: register!(r, "etcd_debugging_mvcc_watch_stream_total", "Watch streams", Gauge::default()),
            current_revision: register!(r, "etcd_debugging_mvcc_current_revision", "Revision of the store", Gauge::default()),
            compact_revision: register!(r, "etcd_debugging_mvcc_compact_revision", "Compacted revision", Gauge::default()),
            resident_bytes: register!(r, "process_resident_memory_bytes", "Resident memory", Gauge::default()),
            handled: register!(r, "grpc_server_handled", "Calls answered, streams begun", Family::default()),
            registry: Registry::default(),
        };
        metrics.registry = r;
        Arc::new(metrics)
    }

    /// Writes all numbers as text.
    pub(crate) fn text(&self) -> String {
        self.resident_bytes.set(resident_bytes().unwrap_or(0));
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _infallible = encode(&mut text, &self.registry);
        text
    }

    pub(crate) fn standing(&self, standing: &Standing) {
        self.has_leader.set(i64::from(standing.leader != 0));
        self.is_leader.set(i64::from(standing.role == Role::Leader));
        let last = self.last_leader.swap(standing.leader, Ordering::Relaxed);
        if standing.leader != 0 && last != standing.leader {
            self.leader_changes.inc();
        }
    }

    /// Returns the counter of a kind of command.
    pub(crate) fn of_command(&self, command: &Command) -> Counter {
        let counter = match command {
            Command::Put(_) => &self.puts,
            Command::DeleteRange(_) => &self.deletes,
            Command::Txn(_) => &self.txns,
            Command::Compact(_) => &self.compactions,
            Command::LeaseGrant(_) => &self.lease_granted,
            Command::LeaseRevoke(_) => &self.lease_revoked,
            Command::LeaseCheckpoint(_) | Command::AlarmActivate(_) | Command::AlarmDeactivate(_) => &self.other,
        };
        counter.clone()
    }
}

/// Registers what never changes.
fn fixed(registry: &mut Registry, version: &str, member_id: u64, quota: u64) {
    let server = Family::<VersionLabel, Gauge>::default();
    server.get_or_create(&VersionLabel { server_version: version.to_owned() }).set(1);
    registry.register("etcd_server_version", "Version of the API served", server);
    let id = Family::<IdLabel, Gauge>::default();
    id.get_or_create(&IdLabel { server_id: format!("{member_id:x}") }).set(1);
    registry.register("etcd_server_id", "Id of this member", id);
    let bytes = Gauge::<i64>::default();
    bytes.set(i64::try_from(quota).unwrap_or(i64::MAX));
    registry.register("etcd_server_quota_backend_bytes", "Bytes the store may take", bytes);
}

/// Reads resident memory from the kernel; the page size is 4 KiB wherever this runs.
fn resident_bytes() -> Option<i64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: i64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}
