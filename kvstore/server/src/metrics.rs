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

/// Makes a metric at its zero.
trait Zero {
    fn zero() -> Self;
}

impl Zero for Counter {
    fn zero() -> Self {
        Self::default()
    }
}

impl Zero for Gauge {
    fn zero() -> Self {
        Self::default()
    }
}

impl Zero for Family<Handled, Counter> {
    fn zero() -> Self {
        Self::default()
    }
}

impl Zero for Histogram {
    fn zero() -> Self {
        // etcd: 1 ms to 8 s.
        Self::new(exponential_buckets(0.001, 2.0, 14))
    }
}

/// Declares the table once: field, kind, name, meaning. Counters get `_total`
/// behind their name when written out.
macro_rules! metrics {
    ($($field:ident: $kind:ty = $name:literal, $help:literal;)*) => {
        /// All numbers of one member.
        pub(crate) struct Metrics {
            registry: Registry,
            last_leader: AtomicU64,
            /// Counts what no dashboard asks for.
            other: Counter,
            $(pub(crate) $field: $kind,)*
        }

        impl Metrics {
            pub(crate) fn new(version: &str, member_id: u64, quota: u64) -> Arc<Self> {
                let mut registry = Registry::default();
                fixed(&mut registry, version, member_id, quota);
                $(
                    let $field = <$kind>::zero();
                    registry.register($name, $help, $field.clone());
                )*
                let other = Counter::default();
                Arc::new(Self { registry, last_leader: AtomicU64::new(0), other, $($field,)* })
            }
        }
    };
}

metrics! {
    has_leader: Gauge = "etcd_server_has_leader", "Whether a leader is known";
    is_leader: Gauge = "etcd_server_is_leader", "Whether this member leads";
    leader_changes: Counter = "etcd_server_leader_changes_seen", "Changes of leader seen";
    proposals_pending: Gauge = "etcd_server_proposals_pending", "Proposals waiting to be applied";
    proposals_applied: Counter = "etcd_server_proposals_applied", "Proposals applied";
    proposals_committed: Gauge = "etcd_server_proposals_committed_total", "Index of the last committed entry";
    proposals_failed: Counter = "etcd_server_proposals_failed", "Proposals that got no answer";
    wal_fsync: Histogram = "etcd_disk_wal_fsync_duration_seconds", "Latency of log syncs";
    backend_commit: Histogram = "etcd_disk_backend_commit_duration_seconds", "Latency of write-backs";
    puts: Counter = "etcd_debugging_mvcc_put", "Puts applied";
    deletes: Counter = "etcd_debugging_mvcc_delete", "Deletes applied";
    txns: Counter = "etcd_debugging_mvcc_txn", "Transactions applied";
    ranges: Counter = "etcd_debugging_mvcc_range", "Ranges answered";
    compactions: Counter = "etcd_debugging_mvcc_compactions", "Compactions applied";
    lease_granted: Counter = "etcd_debugging_lease_granted", "Leases granted";
    lease_revoked: Counter = "etcd_debugging_lease_revoked", "Leases revoked";
    lease_renewed: Counter = "etcd_debugging_lease_renewed", "Leases renewed";
    db_size: Gauge = "etcd_mvcc_db_total_size_in_bytes", "Bytes the store takes";
    db_size_in_use: Gauge = "etcd_mvcc_db_total_size_in_use_in_bytes", "Bytes of it that are not garbage";
    keys: Gauge = "etcd_debugging_mvcc_keys_total", "Live keys";
    watchers: Gauge = "etcd_debugging_mvcc_watcher_total", "Watchers";
    slow_watchers: Gauge = "etcd_debugging_mvcc_slow_watcher_total", "Watchers reading history";
    watch_streams: Gauge = "etcd_debugging_mvcc_watch_stream_total", "Watch streams";
    current_revision: Gauge = "etcd_debugging_mvcc_current_revision", "Revision of the store";
    compact_revision: Gauge = "etcd_debugging_mvcc_compact_revision", "Compacted revision";
    resident_bytes: Gauge = "process_resident_memory_bytes", "Resident memory";
    handled: Family<Handled, Counter> = "grpc_server_handled", "Calls answered, streams begun";
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
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
            Command::LeaseCheckpoint(_)
            | Command::AlarmActivate(_)
            | Command::AlarmDeactivate(_)
            | Command::Auth(_) => &self.other,
        };
        counter.clone()
    }
}

/// Registers what never changes.
fn fixed(registry: &mut Registry, version: &str, member_id: u64, quota: u64) {
    let server = Family::<VersionLabel, Gauge>::default();
    server
        .get_or_create(&VersionLabel {
            server_version: version.to_owned(),
        })
        .set(1);
    registry.register("etcd_server_version", "Version of the API served", server);
    let id = Family::<IdLabel, Gauge>::default();
    id.get_or_create(&IdLabel {
        server_id: format!("{member_id:x}"),
    })
    .set(1);
    registry.register("etcd_server_id", "Id of this member", id);
    let bytes = Gauge::<i64>::default();
    bytes.set(i64::try_from(quota).unwrap_or(i64::MAX));
    registry.register(
        "etcd_server_quota_backend_bytes",
        "Bytes the store may take",
        bytes,
    );
}

/// Reads resident memory from the kernel; the page size is 4 KiB wherever this runs.
fn resident_bytes() -> Option<i64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: i64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}
