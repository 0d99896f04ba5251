//! The wire formats of the store: etcd's v3 gRPC services and messages.
//!
//! This leaf crate holds generated code only. The `.proto` text under `proto/`
//! is our own with etcd's public names and field numbers; `build.rs` turns it
//! into prost messages and tonic clients and servers. Everything `bytes` is a
//! [`bytes::Bytes`], which on the receiving side is a slice of the receive
//! buffer: copy it before keeping it for long.
//!
//! Deliberately absent: conversions to and from the store's own types. They
//! live at the edge that needs them (`kvserver`, `apiserver`).

/// The stored row and the change to it (package `mvccpb`).
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::large_futures,
    clippy::too_many_lines
)]
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// The services and their messages (package `etcdserverpb`).
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::large_futures,
    clippy::too_many_lines
)]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}
