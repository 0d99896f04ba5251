//! Numbers for dashboards and alerts, under the names etcd's ask for (etcd
//! contrib/mixin).
//!
//! What changes with every call is counted where it happens; what a member knows
//! anyway is asked when somebody scrapes ([`text`]).

pub(crate) mod apply;
pub(crate) mod calls;
pub(crate) mod process;
pub(crate) mod text;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use member::{Role, Standing};
use mvcc::Reply;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use self::{apply::Applies, calls::Calls};
use crate::{API_VERSION, config::Config, peers::Meters};

/// A cluster goes by the smallest minor version of its members.
pub(crate) const CLUSTER_VERSION: &str = "3.5";

/// A number with a fraction.
type FloatGauge = Gauge<f64, AtomicU64>;

/// What tells one health check from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Check {
    name: &'static str,
    r#type: &'static str,
}

/// How often a health check went how.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CheckOutcome {
    name: &'static str,
    status: &'static str,
    r#type: &'static str,
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

impl Zero for FloatGauge {
    fn zero() -> Self {
        Self::default()
    }
}

impl Zero for Family<Check, Gauge> {
    fn zero() -> Self {
        Self::default()
    }
}

impl Zero for Family<CheckOutcome, Counter> {
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
            /// The gRPC calls.
            pub(crate) calls: Calls,
            /// What was applied.
            pub(crate) applies: Applies,
            /// The links between members.
            pub(crate) network: Meters,
            $(pub(crate) $field: $kind,)*
        }

        impl Metrics {
            pub(crate) fn new(config: &Config, member_id: u64) -> Arc<Self> {
                let mut registry = Registry::default();
                fixed(&mut registry, config, member_id);
                let calls = Calls::register(&mut registry, config.extensive_metrics);
                let applies = Applies::register(&mut registry);
                let network = Meters::register(&mut registry);
                $(
                    let $field = <$kind>::zero();
                    registry.register($name, $help, $field.clone());
                )*
                Arc::new(Self { registry, last_leader: AtomicU64::new(0), calls, applies, network, $($field,)* })
            }
        }
    };
}

metrics! {
    has_leader: Gauge = "etcd_server_has_leader", "Whether a leader is known";
    is_leader: Gauge = "etcd_server_is_leader", "Whether this member leads";
    is_learner: Gauge = "etcd_server_is_learner", "Whether this member is a learner";
    leader_changes: Counter = "etcd_server_leader_changes_seen", "Changes of leader seen";
    proposals_pending: Gauge = "etcd_server_proposals_pending", "Proposals waiting to be applied";
    proposals_applied: Gauge = "etcd_server_proposals_applied_total", "Index of the last applied entry";
    proposals_committed: Gauge = "etcd_server_proposals_committed_total", "Index of the last committed entry";
    proposals_failed: Counter = "etcd_server_proposals_failed", "Proposals that got no answer";
    read_indexes_failed: Counter = "etcd_server_read_indexes_failed", "Linearizable reads that were refused";
    slow_read_indexes: Counter = "etcd_server_slow_read_indexes", "Linearizable reads that had to ask twice";
    health_success: Gauge = "etcd_server_health_success", "Health checks that went well";
    health_failures: Gauge = "etcd_server_health_failures", "Health checks that failed";
    health_checks: Family<Check, Gauge> = "etcd_server_healthcheck", "How each check of livez and readyz went last";
    health_outcomes: Family<CheckOutcome, Counter> = "etcd_server_healthchecks", "How often each check of livez and readyz went how";
    wal_fsync: Histogram = "etcd_disk_wal_fsync_duration_seconds", "Latency of log syncs";
    backend_commit: Histogram = "etcd_disk_backend_commit_duration_seconds", "Latency of write-backs";
    lease_granted: Counter = "etcd_debugging_lease_granted", "Leases granted";
    lease_revoked: Counter = "etcd_debugging_lease_revoked", "Leases revoked";
    lease_renewed: Counter = "etcd_debugging_lease_renewed", "Leases renewed";
    lease_expired: Counter = "etcd_debugging_server_lease_expired", "Leases whose time ran out";
    db_size: Gauge = "etcd_mvcc_db_total_size_in_bytes", "Bytes the store takes";
    db_size_in_use: Gauge = "etcd_mvcc_db_total_size_in_use_in_bytes", "Bytes of it that are not garbage";
    keys: Gauge = "etcd_debugging_mvcc_keys_total", "Live keys";
    watchers: Gauge = "etcd_debugging_mvcc_watcher_total", "Watchers";
    slow_watchers: Gauge = "etcd_debugging_mvcc_slow_watcher_total", "Watchers reading history";
    watch_streams: Gauge = "etcd_debugging_mvcc_watch_stream_total", "Watch streams";
    pending_events: Gauge = "etcd_debugging_mvcc_pending_events_total", "Events waiting for their watcher";
    compacted_keys: Gauge = "etcd_debugging_mvcc_db_compaction_keys_total", "Revisions of keys that compaction deleted";
    current_revision: Gauge = "etcd_debugging_mvcc_current_revision", "Revision of the store";
    compact_revision: Gauge = "etcd_debugging_mvcc_compact_revision", "Compacted revision";
    auth_revision: Gauge = "etcd_debugging_auth_revision", "Revision of users and roles";
    resident_bytes: Gauge = "process_resident_memory_bytes", "Resident memory";
    virtual_bytes: Gauge = "process_virtual_memory_bytes", "Virtual memory";
    cpu_seconds: FloatGauge = "process_cpu_seconds_total", "Processor time spent";
    start_time: FloatGauge = "process_start_time_seconds", "When the process began, in Unix time";
    open_fds: Gauge = "process_open_fds", "Open file descriptors";
    max_fds: Gauge = "process_max_fds", "File descriptors that may be open";
    os_fd_used: Gauge = "os_fd_used", "Open file descriptors";
    os_fd_limit: Gauge = "os_fd_limit", "File descriptors that may be open";
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn standing(&self, standing: &Standing) {
        self.has_leader.set(i64::from(standing.leader != 0));
        self.is_leader.set(i64::from(standing.role == Role::Leader));
        let last = self.last_leader.swap(standing.leader, Ordering::Relaxed);
        if standing.leader != 0 && last != standing.leader {
            self.leader_changes.inc();
        }
    }

    /// Notes whether this member only learns.
    pub(crate) fn learner(&self, learner: bool) {
        self.is_learner.set(i64::from(learner));
    }

    /// Notes how a check of a probe went.
    pub(crate) fn health_check(&self, probe: &'static str, name: &'static str, well: bool) {
        let check = Check {
            name,
            r#type: probe,
        };
        self.health_checks
            .get_or_create(&check)
            .set(i64::from(well));
        let outcome = CheckOutcome {
            name,
            status: if well { "success" } else { "error" },
            r#type: probe,
        };
        self.health_outcomes.get_or_create(&outcome).inc();
    }

    /// Counts what came of a command.
    pub(crate) fn carried_out(&self, result: &Result<Reply, mvcc::Error>) {
        match result {
            Ok(Reply::LeaseGrant(_)) => drop(self.lease_granted.inc()),
            Ok(Reply::LeaseRevoke(_)) => drop(self.lease_revoked.inc()),
            _ => {}
        }
    }
}

/// Registers what never changes.
fn fixed(registry: &mut Registry, config: &Config, member_id: u64) {
    let named = |label: &'static str, value: String| {
        let family = Family::<[(&'static str, String); 1], Gauge>::default();
        family.get_or_create(&[(label, value)]).set(1);
        family
    };
    registry.register(
        "etcd_server_version",
        "Version of the API served",
        named("server_version", API_VERSION.to_owned()),
    );
    registry.register(
        "etcd_cluster_version",
        "Version that all members understand",
        named("cluster_version", CLUSTER_VERSION.to_owned()),
    );
    registry.register(
        "etcd_server_id",
        "Id of this member",
        named("server_id", format!("{member_id:x}")),
    );
    let bytes = Gauge::<i64>::default();
    bytes.set(i64::try_from(config.quota_backend_bytes).unwrap_or(i64::MAX));
    registry.register(
        "etcd_server_quota_backend_bytes",
        "Bytes the store may take",
        bytes,
    );
}
