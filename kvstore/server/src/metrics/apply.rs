//! Counts what the state machine carried out: entries and requests by kind and time,
//! operations by kind wherever they stood.

use std::{sync::OnceLock, time::Duration};

use mvcc::{AuthCommand, Command, Error, Reply, ResponseOp, TxnReply};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// What an entry or a request asks for, in etcd's words; `unknown` is for what it has
/// no word for.
const OPS: [&str; 24] = [
    "Put",
    "DeleteRange",
    "Txn",
    "Compaction",
    "LeaseGrant",
    "LeaseRevoke",
    "Alarm",
    "unknown",
    "Range",
    "ReadonlyTxn",
    "AuthEnable",
    "AuthDisable",
    "Authenticate",
    "AuthUserAdd",
    "AuthUserDelete",
    "AuthUserChangePassword",
    "AuthUserGrantRole",
    "AuthUserRevokeRole",
    "AuthRoleAdd",
    "AuthRoleDelete",
    "AuthRoleGrantPermission",
    "AuthRoleRevokePermission",
    "DowngradeInfoSet",
    "ClusterMemberAttrSet",
];

/// The places of what never becomes an entry in [`OPS`].
pub(crate) const RANGE: usize = 8;
pub(crate) const READONLY_TXN: usize = 9;

/// What tells one kind of entry from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Applied {
    op: &'static str,
    success: &'static str,
    version: &'static str,
}

/// What tells one kind of request from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Requested {
    success: &'static str,
    r#type: &'static str,
}

type Seconds<L> = Family<L, Histogram, fn() -> Histogram>;

/// The histograms of [`OPS`], failed and done, from their first use on.
#[derive(Debug, Default)]
struct Known([[OnceLock<Histogram>; 2]; OPS.len()]);

impl Known {
    fn observe(
        &self,
        op: usize,
        well: bool,
        time: Duration,
        make: impl FnOnce(&'static str, &'static str) -> Histogram,
    ) {
        let well = usize::from(well);
        let histogram = self.0[op][well].get_or_init(|| make(OPS[op], ["false", "true"][well]));
        histogram.observe(time.as_secs_f64());
    }
}

/// Counters of entries, of requests, and of the operations in them.
#[derive(Debug)]
pub(crate) struct Applies {
    seconds: Seconds<Applied>,
    known: Known,
    requests: Seconds<Requested>,
    known_requests: Known,
    slow: Counter,
    pub(crate) puts: Counter,
    pub(crate) deletes: Counter,
    pub(crate) ranges: Counter,
    txns: Counter,
}

impl Applies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        // etcd: 0.1 ms to 52 s.
        let buckets: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 20));
        // etcd: 1 ms to 8 s.
        let longer: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 14));
        let applies = Self {
            seconds: Family::new_with_constructor(buckets),
            known: Known::default(),
            requests: Family::new_with_constructor(longer),
            known_requests: Known::default(),
            slow: Counter::default(),
            puts: Counter::default(),
            deletes: Counter::default(),
            ranges: Counter::default(),
            txns: Counter::default(),
        };
        registry.register(
            "etcd_server_apply_duration_seconds",
            "How long entries took to apply",
            applies.seconds.clone(),
        );
        registry.register(
            "etcd_server_request_duration_seconds",
            "How long reads and writes took to be answered",
            applies.requests.clone(),
        );
        let counters = [
            (
                "etcd_server_slow_apply",
                "Entries slow to apply",
                &applies.slow,
            ),
            (
                "etcd_mvcc_put",
                "Puts applied, alone or in a transaction",
                &applies.puts,
            ),
            (
                "etcd_mvcc_delete",
                "Deletes applied, alone or in a transaction",
                &applies.deletes,
            ),
            (
                "etcd_mvcc_range",
                "Ranges read, alone or in a transaction",
                &applies.ranges,
            ),
            (
                "etcd_debugging_mvcc_range",
                "Ranges read, alone or in a transaction",
                &applies.ranges,
            ),
            (
                "etcd_mvcc_txn",
                "Transactions of more than one operation",
                &applies.txns,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        applies
    }

    /// Counts an entry that took `time` to apply.
    pub(crate) fn applied(
        &self,
        op: usize,
        result: &Result<Reply, Error>,
        time: Duration,
        slow: bool,
    ) {
        self.known.observe(op, result.is_ok(), time, |op, success| {
            self.seconds.get_or_create_owned(&Applied {
                op,
                success,
                version: "v3",
            })
        });
        if slow {
            self.slow.inc();
        }
        match result {
            Ok(Reply::Put(_)) => drop(self.puts.inc()),
            Ok(Reply::DeleteRange(_)) => drop(self.deletes.inc()),
            Ok(Reply::Txn(reply)) => self.txn(reply),
            _ => {}
        }
    }

    /// Counts a request that took `time` to be answered.
    pub(crate) fn requested(&self, op: usize, well: bool, time: Duration) {
        self.known_requests
            .observe(op, well, time, |r#type, success| {
                self.requests
                    .get_or_create_owned(&Requested { success, r#type })
            });
    }

    /// Counts the operations of a transaction (etcd: mvcc/metrics_txn.go).
    pub(crate) fn txn(&self, reply: &TxnReply) {
        let mut counts = [0; 3];
        count(reply, &mut counts);
        let [puts, deletes, ranges] = counts;
        self.puts.inc_by(puts);
        self.deletes.inc_by(deletes);
        self.ranges.inc_by(ranges);
        if puts + deletes + ranges > 1 {
            self.txns.inc();
        }
    }
}

fn count(reply: &TxnReply, counts: &mut [u64; 3]) {
    for response in &reply.responses {
        match response {
            ResponseOp::Put(_) => counts[0] += 1,
            ResponseOp::DeleteRange(_) => counts[1] += 1,
            ResponseOp::Range(_) => counts[2] += 1,
            ResponseOp::Txn(reply) => count(reply, counts),
        }
    }
}

/// Returns the place of a command in [`OPS`].
pub(crate) fn op(command: &Command) -> usize {
    match command {
        Command::Put(_) => 0,
        Command::DeleteRange(_) => 1,
        Command::Txn(_) => 2,
        Command::Compact(_) => 3,
        Command::LeaseGrant(_) => 4,
        Command::LeaseRevoke(_) => 5,
        Command::AlarmActivate(_) | Command::AlarmDeactivate(_) => 6,
        Command::LeaseCheckpoint(_) => 7,
        Command::Auth(command) => match command {
            AuthCommand::Enable => 10,
            AuthCommand::Disable => 11,
            AuthCommand::Authenticate { .. } => 12,
            AuthCommand::UserAdd { .. } => 13,
            AuthCommand::UserDelete { .. } => 14,
            AuthCommand::UserChangePassword { .. } => 15,
            AuthCommand::UserGrantRole { .. } => 16,
            AuthCommand::UserRevokeRole { .. } => 17,
            AuthCommand::RoleAdd { .. } => 18,
            AuthCommand::RoleDelete { .. } => 19,
            AuthCommand::RoleGrantPermission { .. } => 20,
            AuthCommand::RoleRevokePermission { .. } => 21,
        },
        Command::Downgrade(_) => 22,
        Command::Member(_) => 23,
    }
}
