//! Flags of the member itself: its name, its directories, its listeners, its limits.

use std::time::Duration;

use super::flag::{Flag, Kind, Values};
use crate::config::{Config, KeepAlive, QUOTA_BACKEND_BYTES, SocketOptions, StartError};

/// Longest election timeout (etcd: embed, maxElectionMs).
const ELECTION_MS_MAX: u64 = 50_000;

/// Largest request and largest quota etcd does not warn of.
const REQUEST_BYTES_RECOMMENDED: usize = 10 << 20;
const QUOTA_BYTES_RECOMMENDED: u64 = 8 << 30;

pub(super) const FLAGS: &[Flag] = &[
    Flag::new(
        "name",
        Kind::Text,
        "default",
        "Human-readable name for this member.",
    ),
    Flag::new(
        "data-dir",
        Kind::Text,
        "",
        "Path to the data directory; ${name}.etcd if not given.",
    ),
    Flag::new(
        "wal-dir",
        Kind::Text,
        "",
        "Path to a directory for the log alone.",
    ),
    Flag::new(
        "snapshot-count",
        Kind::Count,
        "10000",
        "Number of committed transactions to trigger a snapshot.",
    )
    .nothing("rows are written behind the log all the time, and the log is released as they are"),
    Flag::new(
        "heartbeat-interval",
        Kind::Count,
        "100",
        "Time (in milliseconds) of a heartbeat interval.",
    ),
    Flag::new(
        "election-timeout",
        Kind::Count,
        "1000",
        "Time (in milliseconds) for an election to time out.",
    ),
    Flag::new(
        "initial-election-tick-advance",
        Kind::Bool,
        "true",
        "Whether to fast-forward initial election ticks on boot for faster election.",
    )
    .nothing("a member that is alone stands for election at once; others wait for a leader first"),
    Flag::new(
        "listen-peer-urls",
        Kind::List,
        "http://localhost:2380",
        "List of URLs to listen on for peer traffic.",
    ),
    Flag::new(
        "listen-client-urls",
        Kind::List,
        "http://localhost:2379",
        "List of URLs to listen on for client traffic, gRPC and, unless --listen-client-http-urls is given, HTTP.",
    ),
    Flag::new(
        "listen-client-http-urls",
        Kind::List,
        "",
        "List of URLs to listen on for HTTP client traffic only. With it --listen-client-urls serve gRPC only.",
    ),
    Flag::new(
        "max-snapshots",
        Kind::Count,
        "5",
        "Maximum number of snapshot files to retain.",
    )
    .nothing("there are no snapshot files"),
    Flag::new(
        "max-wals",
        Kind::Count,
        "5",
        "Maximum number of log files to retain.",
    )
    .nothing("a segment of the log goes when its last change is in the rows"),
    Flag::new(
        "memory-mlock",
        Kind::Bool,
        "false",
        "Enable to keep the pages of the store in RAM.",
    )
    .old("experimental-memory-mlock")
    .nothing("no file is mapped into memory, so there is none to lock"),
    Flag::new(
        "quota-backend-bytes",
        Kind::Number,
        "0",
        "Size of the store above which it raises an alarm and refuses writes; 0 for 2 GiB, negative for no limit.",
    ),
    Flag::new(
        "disk-reserve-bytes",
        Kind::Number,
        "-1",
        "Room on disk below which it raises an alarm and refuses writes, unless a quorum of members has more; 0 for never, negative for an eighth of the disk and 256 MiB at most.",
    ),
    Flag::new(
        "backend-bbolt-freelist-type",
        Kind::Text,
        "map",
        "Type of freelist that bbolt uses.",
    )
    .nothing("the rows are not in a bbolt file"),
    Flag::new(
        "backend-batch-interval",
        Kind::Duration,
        "",
        "Maximum time before a backend transaction is committed.",
    )
    .nothing("rows are written behind the log at their own pace"),
    Flag::new(
        "backend-batch-limit",
        Kind::Count,
        "0",
        "Maximum operations before a backend transaction is committed.",
    )
    .nothing("rows are written behind the log at their own pace"),
    Flag::new(
        "max-txn-ops",
        Kind::Count,
        "128",
        "Maximum number of operations permitted in a transaction.",
    ),
    Flag::new(
        "max-request-bytes",
        Kind::Count,
        "1572864",
        "Maximum client request size in bytes the server will accept.",
    ),
    Flag::new(
        "max-concurrent-streams",
        Kind::Count,
        "10000",
        "Maximum number of calls a client can have under way on one connection (etcd: no limit).",
    ),
    Flag::new(
        "grpc-keepalive-min-time",
        Kind::Duration,
        "5s",
        "Shortest time a client may leave between two pings.",
    ),
    Flag::new(
        "grpc-keepalive-interval",
        Kind::Duration,
        "2h",
        "How often the server pings a client to see whether its connection is alive (0 to disable).",
    ),
    Flag::new(
        "grpc-keepalive-timeout",
        Kind::Duration,
        "20s",
        "How long a client may take to answer that ping (0 to disable).",
    ),
    Flag::new(
        "socket-reuse-port",
        Kind::Bool,
        "false",
        "Set SO_REUSEPORT on listeners, so that several processes can share a port.",
    ),
    Flag::new(
        "socket-reuse-address",
        Kind::Bool,
        "false",
        "Set SO_REUSEADDR on listeners, so that an address in TIME_WAIT can be bound (always on here, as on every Unix in Go).",
    ),
    Flag::new(
        "raft-read-timeout",
        Kind::Duration,
        "5s",
        "Read timeout of a connection between members.",
    )
    .nothing("a member that does not answer pings within an election timeout is dialled again"),
    Flag::new(
        "raft-write-timeout",
        Kind::Duration,
        "5s",
        "Write timeout of a connection between members.",
    )
    .nothing("a member that does not answer pings within an election timeout is dialled again"),
];

pub(super) fn apply(
    values: &Values,
    config: &mut Config,
    notes: &mut Vec<String>,
) -> Result<(), StartError> {
    config.wal_dir = values.path("wal-dir");
    config.listen_peer_urls = values.list("listen-peer-urls");
    config.listen_client_urls = values.list("listen-client-urls");
    config.listen_client_http_urls = values.list("listen-client-http-urls");
    times(values, config)?;
    limits(values, config, notes);
    config.keep_alive = KeepAlive {
        min_time: values.duration("grpc-keepalive-min-time"),
        interval: values.duration("grpc-keepalive-interval"),
        timeout: values.duration("grpc-keepalive-timeout"),
    };
    config.socket = SocketOptions {
        reuse_port: values.boolean("socket-reuse-port"),
    };
    if config.name == "default" {
        notes.push(
            "it isn't recommended to use default name, please set a value for --name".to_owned(),
        );
    }
    if values.is_set("name") && values.text("name").is_empty() {
        return Err(StartError::Flag {
            flag: "name",
            reason: "must not be empty".to_owned(),
        });
    }
    Ok(())
}

/// Checks heartbeat against election (etcd: embed, Validate).
fn times(values: &Values, config: &mut Config) -> Result<(), StartError> {
    let heartbeat = values.count("heartbeat-interval");
    let election = values.count("election-timeout");
    let refuse = |flag, reason| Err(StartError::Flag { flag, reason });
    if heartbeat == 0 {
        return refuse("heartbeat-interval", "must be >0 (set to 0ms)".to_owned());
    }
    if election == 0 {
        return refuse("election-timeout", "must be >0 (set to 0ms)".to_owned());
    }
    if heartbeat.saturating_mul(5) > election {
        let reason = format!(
            "[{election}ms] should be at least as 5 times as --heartbeat-interval[{heartbeat}ms]"
        );
        return refuse("election-timeout", reason);
    }
    if election > ELECTION_MS_MAX {
        let reason =
            format!("[{election}ms] is too long, and should be set less than {ELECTION_MS_MAX}ms");
        return refuse("election-timeout", reason);
    }
    config.heartbeat_interval = Duration::from_millis(heartbeat);
    config.election_timeout = Duration::from_millis(election);
    Ok(())
}

fn limits(values: &Values, config: &mut Config, notes: &mut Vec<String>) {
    let size = |name| usize::try_from(values.count(name)).unwrap_or(usize::MAX);
    config.max_request_bytes = size("max-request-bytes");
    config.max_txn_ops = size("max-txn-ops");
    config.max_concurrent_streams =
        u32::try_from(values.count("max-concurrent-streams")).unwrap_or(u32::MAX);
    config.quota_backend_bytes = match values.number("quota-backend-bytes") {
        0 => QUOTA_BACKEND_BYTES,
        bytes => u64::try_from(bytes).unwrap_or(u64::MAX),
    };
    config.disk_reserve_bytes = u64::try_from(values.number("disk-reserve-bytes")).ok();
    if config.max_request_bytes > REQUEST_BYTES_RECOMMENDED {
        notes.push(format!(
            "--max-request-bytes={} exceeds the recommended {REQUEST_BYTES_RECOMMENDED}",
            config.max_request_bytes
        ));
    }
    if (QUOTA_BYTES_RECOMMENDED + 1..u64::MAX).contains(&config.quota_backend_bytes) {
        notes.push(format!(
            "--quota-backend-bytes={} exceeds the recommended maximum of {QUOTA_BYTES_RECOMMENDED}",
            config.quota_backend_bytes
        ));
    }
}
