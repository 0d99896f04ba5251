//! One member of the store as a server: a thin shell around the pure cores.
//!
//! ```text
//! gRPC edge / Handle -> Command -> member (raft) -> WAL thread
//!                       committed -> state machine -> watch hub -> wake the caller
//!                                        |
//!                                        +-> write-back thread -> sled
//! ```
//!
//! Threads: the member core, the RPC edge and its reads share one
//! single-threaded runtime on an OS thread of its own; the log is synced on a
//! second, rows are written behind on a third. An embedded caller
//! ([`Handle`]) reads on its own thread and proposes into the same queue.
//!
//! What is guaranteed: a write is answered only after its log entry was synced
//! and applied; a failed sync ends the process; a linearizable read sees every
//! write answered before it began.
//!
//! Deliberately absent: what a command means (crate `mvcc`), the order of
//! consensus (crate `member`), bytes on disk (crate `disk`), and, today, peers.

mod accept;
mod auth;
pub mod cli;
mod config;
mod core;
mod corruption;
mod driver;
mod edge;
mod fatal;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod grpc;
mod handle;
mod identity;
mod io;
mod join;
mod leadership;
mod leases;
mod listen;
mod members;
mod metrics;
mod open;
mod peer;
mod peers;
mod police;
mod range_stream;
mod ready;
mod room;
mod rpc_error;
mod server;
mod shared;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim;
mod sink;
pub mod snapshot;
mod store;
mod threads;
mod tls;
mod views;
pub mod wal_dump;
mod watch;
mod world;

pub use disk::check_usable;

pub use crate::{
    auth::{AuthToken, JwtOptions, PeerCertificate},
    config::CorruptionChecks,
    config::{AutoCompaction, AutoTls, Compaction, Config, KeepAlive, SocketOptions, StartError},
    config::{QUOTA_BACKEND_BYTES, REQUEST_BYTES_MAX, TXN_OPS_MAX},
    config::{TlsFiles, TlsRules, TlsVersion, WriteBehind},
    handle::{Handle, LeaseTtl, Status},
    rpc_error::RpcError,
    server::{Running, Server},
    watch::WatchStream,
};

/// The version of etcd whose API is served. Clients choose what they ask for by
/// it: the Kubernetes API server wants 3.5.13 or later for progress requests.
pub const API_VERSION: &str = "3.5.21";

/// The version of the storage schema, as etcd 3.6 and later report it.
const STORAGE_VERSION: &str = "3.5.0";
