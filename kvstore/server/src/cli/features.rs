//! Flags of single features, feature gates, and what is unsafe.

use std::{collections::BTreeMap, time::Duration};

use super::{
    flag::{Flag, Kind, Values},
    value,
};
use crate::config::{Compaction, Config, CorruptionChecks, StartError};

const NO_V2: &str = "the v2 API is gone, here as in etcd 3.6";
const CHECKPOINTS: &str = "what is left of a long lease is always recorded and kept";
const NO_BUFFER: &str = "a transaction reads the state it changes, without a copy";
const DEFRAG: &str = "defragmentation does not stop the service";

/// Shortest interval of progress notifications (etcd: v3rpc, minWatchProgressInterval).
const PROGRESS_MIN: Duration = Duration::from_millis(100);

pub(super) const FLAGS: &[Flag] = &[
    Flag::new(
        "feature-gates",
        Kind::Text,
        "",
        "Features as key=bool,key=bool. Known: AllAlpha, AllBeta, CompactHashCheck, FastLeaseKeepAlive, InitialCorruptCheck, LeaseCheckpoint, LeaseCheckpointPersist, PriorityRequest, SetMemberLocalAddr, StopGRPCServiceOnDefrag, TxnModeWriteWithSharedBuffer.",
    ),
    Flag::new(
        "corrupt-check-time",
        Kind::Duration,
        "0s",
        "Time between two comparisons of the members' data.",
    )
    .old("experimental-corrupt-check-time"),
    Flag::new(
        "compact-hash-check-time",
        Kind::Duration,
        "1m",
        "Time between two comparisons of the members' hashes of what was compacted.",
    )
    .old("experimental-compact-hash-check-time"),
    Flag::new(
        "compaction-batch-limit",
        Kind::Count,
        "0",
        "Revisions looked at in one step of compaction; 0 for a size that delays nobody.",
    )
    .old("experimental-compaction-batch-limit"),
    Flag::new(
        "compaction-sleep-interval",
        Kind::Duration,
        "1ms",
        "Pause between two steps of compaction.",
    )
    .old("experimental-compaction-sleep-interval"),
    Flag::new(
        "watch-progress-notify-interval",
        Kind::Duration,
        "10m",
        "How often a quiet watcher that asked for it hears of progress.",
    )
    .old("experimental-watch-progress-notify-interval"),
    Flag::new(
        "downgrade-check-time",
        Kind::Duration,
        "5s",
        "Time between two looks at a downgrade.",
    )
    .old("experimental-downgrade-check-time")
    .nothing("there is one version of the data only"),
    Flag::new(
        "bootstrap-defrag-threshold-megabytes",
        Kind::Count,
        "0",
        "Defragment at the start if it frees this much.",
    )
    .old("experimental-bootstrap-defrag-threshold-megabytes")
    .nothing("space is given back while the member runs"),
    Flag::new(
        "snapshot-catchup-entries",
        Kind::Count,
        "5000",
        "Entries kept for a member that lags; one that lags more gets a snapshot.",
    )
    .old("experimental-snapshot-catchup-entries"),
];

pub(super) const UNSAFE: &[Flag] = &[
    Flag::new(
        "force-new-cluster",
        Kind::Bool,
        "false",
        "Force to create a new one-member cluster out of this member's data.",
    ),
    Flag::new(
        "unsafe-no-fsync",
        Kind::Bool,
        "false",
        "Do not wait for the disk: losing power loses acknowledged writes.",
    ),
];

/// Spellings of etcd 3.4 and 3.5 that are no flags any more.
pub(super) const OLD: &[Flag] = &[
    Flag::new(
        "experimental-initial-corrupt-check",
        Kind::Bool,
        "false",
        "Now --feature-gates=InitialCorruptCheck.",
    ),
    Flag::new(
        "experimental-compact-hash-check-enabled",
        Kind::Bool,
        "false",
        "Now --feature-gates=CompactHashCheck.",
    ),
    Flag::new(
        "experimental-enable-lease-checkpoint",
        Kind::Bool,
        "false",
        "Now --feature-gates=LeaseCheckpoint.",
    )
    .nothing(CHECKPOINTS),
    Flag::new(
        "experimental-enable-lease-checkpoint-persist",
        Kind::Bool,
        "false",
        "Now --feature-gates=LeaseCheckpointPersist.",
    )
    .nothing(CHECKPOINTS),
    Flag::new(
        "experimental-txn-mode-write-with-shared-buffer",
        Kind::Bool,
        "true",
        "Now --feature-gates=TxnModeWriteWithSharedBuffer.",
    )
    .nothing(NO_BUFFER),
    Flag::new(
        "experimental-stop-grpc-service-on-defrag",
        Kind::Bool,
        "false",
        "Now --feature-gates=StopGRPCServiceOnDefrag.",
    )
    .nothing(DEFRAG),
    Flag::new(
        "experimental-enable-v2v3",
        Kind::Text,
        "",
        "Serve v2 requests under a prefix.",
    )
    .refused(NO_V2),
    Flag::new("enable-v2", Kind::Bool, "false", "Accept v2 requests.").refused(NO_V2),
    Flag::new(
        "v2-deprecation",
        Kind::Choice(&["not-yet", "write-only", "write-only-drop-data", "gone"]),
        "write-only",
        "Phase of the v2 store's end.",
    )
    .nothing(NO_V2),
    Flag::new(
        "proxy",
        Kind::Choice(&["off", "readonly", "on"]),
        "off",
        "v2 proxy mode.",
    )
    .refused(NO_V2),
    Flag::new(
        "proxy-failure-wait",
        Kind::Count,
        "5000",
        "Of the v2 proxy.",
    )
    .nothing(NO_V2),
    Flag::new(
        "proxy-refresh-interval",
        Kind::Count,
        "30000",
        "Of the v2 proxy.",
    )
    .nothing(NO_V2),
    Flag::new(
        "proxy-dial-timeout",
        Kind::Count,
        "1000",
        "Of the v2 proxy.",
    )
    .nothing(NO_V2),
    Flag::new(
        "proxy-write-timeout",
        Kind::Count,
        "5000",
        "Of the v2 proxy.",
    )
    .nothing(NO_V2),
    Flag::new("proxy-read-timeout", Kind::Count, "0", "Of the v2 proxy.").nothing(NO_V2),
    Flag::new("debug", Kind::Bool, "false", "Now --log-level=debug.")
        .nothing("it is --log-level=debug now"),
    Flag::new("log-package-levels", Kind::Text, "", "Levels by package.")
        .nothing("levels by package went with capnslog"),
];

const INITIAL_CHECK: &str = "InitialCorruptCheck";
const COMPACT_CHECK: &str = "CompactHashCheck";

/// Feature gates, and why a gate has no effect if it has none (etcd: server/features).
const GATES: &[(&str, &str)] = &[
    ("AllAlpha", "no feature behind a gate differs here"),
    ("AllBeta", "no feature behind a gate differs here"),
    (COMPACT_CHECK, ""),
    (
        "FastLeaseKeepAlive",
        "a lease is kept alive without waiting for the log",
    ),
    (INITIAL_CHECK, ""),
    ("LeaseCheckpoint", CHECKPOINTS),
    ("LeaseCheckpointPersist", CHECKPOINTS),
    (
        "PriorityRequest",
        "the store's own revocations always have room in the queue",
    ),
    (
        "SetMemberLocalAddr",
        "the system chooses the address a connection to a member is made from",
    ),
    ("StopGRPCServiceOnDefrag", DEFRAG),
    ("TxnModeWriteWithSharedBuffer", NO_BUFFER),
];

pub(super) fn apply(
    values: &Values,
    config: &mut Config,
    notes: &mut Vec<String>,
) -> Result<(), StartError> {
    let gates = gates(values.text("feature-gates"), notes)?;
    let on = |gate: &str, old: &'static str| {
        gates.get(gate).copied().unwrap_or(false) || values.boolean(old)
    };
    config.corruption_checks = CorruptionChecks {
        initial: on(INITIAL_CHECK, "experimental-initial-corrupt-check"),
        interval: Some(values.duration("corrupt-check-time")).filter(|time| !time.is_zero()),
        compacted: on(COMPACT_CHECK, "experimental-compact-hash-check-enabled")
            .then(|| values.duration("compact-hash-check-time")),
    };
    config.catch_up_entries = values.count("snapshot-catchup-entries");
    config.watch_progress_interval = match values.duration("watch-progress-notify-interval") {
        // etcd takes none for its default.
        Duration::ZERO => Duration::from_secs(600),
        interval => interval.max(PROGRESS_MIN),
    };
    config.compaction = Compaction {
        batch: usize::try_from(values.count("compaction-batch-limit"))
            .ok()
            .filter(|batch| *batch > 0),
        pause: values.duration("compaction-sleep-interval"),
    };
    if values.is_set("compact-hash-check-time")
        && values.duration("compact-hash-check-time").is_zero()
    {
        return Err(StartError::Flag {
            flag: "compact-hash-check-time",
            reason: "must be >0 (set to 0s)".to_owned(),
        });
    }
    config.force_new_cluster = values.boolean("force-new-cluster");
    config.unsafe_no_fsync = values.boolean("unsafe-no-fsync");
    if config.unsafe_no_fsync {
        notes.push(
            "--unsafe-no-fsync: the log is not synced; losing power will lose data".to_owned(),
        );
    }
    Ok(())
}

fn gates(text: &str, notes: &mut Vec<String>) -> Result<BTreeMap<&'static str, bool>, StartError> {
    let refuse = |reason| {
        Err(StartError::Flag {
            flag: "feature-gates",
            reason,
        })
    };
    let mut on = BTreeMap::new();
    for pair in text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
    {
        let Some((gate, state)) = pair.split_once('=') else {
            return refuse(format!("missing bool value for {pair}"));
        };
        let Some(state) = value::boolean(state.trim()) else {
            return refuse(format!("invalid value of {gate}: {state}"));
        };
        let Some((gate, why)) = GATES.iter().find(|(known, _)| *known == gate.trim()) else {
            return refuse(format!("unrecognized feature gate: {gate}"));
        };
        on.insert(*gate, state);
        if !why.is_empty() {
            notes.push(format!("--feature-gates={pair} has no effect: {why}"));
        }
    }
    if on.get("LeaseCheckpointPersist") == Some(&true) && on.get("LeaseCheckpoint") != Some(&true) {
        let reason = "enabling feature gate LeaseCheckpointPersist requires enabling feature gate \
                      LeaseCheckpoint";
        return refuse(reason.to_owned());
    }
    Ok(on)
}
