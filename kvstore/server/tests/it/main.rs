//! A running member, over gRPC and over its handle.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

mod auth;
mod auth_oracle;
mod auth_proof;
mod auth_who;
mod bad_input;
mod cluster;
mod crash;
mod doors;
mod embedded;
mod flags;
mod gateway;
mod hostile;
mod http;
mod kv;
mod large;
mod lease;
mod limits;
mod lock;
mod members;
mod metrics;
mod peer_port;
mod pki;
mod range_stream;
mod refusals;
mod restart;
mod snapshot;
mod snapshot_full;
mod snapshot_tools;
mod start;
mod store;
mod tls;
mod wal_dump;
mod watch;
mod watch_load;
