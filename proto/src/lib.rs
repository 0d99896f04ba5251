//! The wire formats of the store: etcd's v3 gRPC services and messages, and what
//! members say to each other.
//!
//! This leaf crate holds generated code only, but for how messages with a secret in
//! them are printed, and how large the buffers of a call are. The `.proto` text under `proto/` is our own with etcd's public
//! names and field numbers; `build.rs` turns it into prost messages and tonic clients
//! and servers. Everything `bytes` is a [`bytes::Bytes`], which on the receiving side
//! is a slice of the receive buffer: copy it before keeping it for long.
//!
//! Deliberately absent: conversions to and from the store's own types. They
//! live at the edge that needs them (`kvserver`, `apiserver`).

pub mod codec;
mod secret;

/// What clients may call as a `FileDescriptorSet`, for who translates messages by their
/// description (the JSON gateway).
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor_set.bin"));

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

/// Users, roles and permissions (package `authpb`).
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::large_futures,
    clippy::too_many_lines
)]
pub mod authpb {
    tonic::include_proto!("authpb");
}

/// A lease as etcd's database holds it (package `leasepb`).
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::large_futures,
    clippy::too_many_lines
)]
pub mod leasepb {
    tonic::include_proto!("leasepb");
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

/// What members say to each other (package `keelson.peer.v1`).
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::large_futures,
    clippy::too_many_lines
)]
pub mod peer {
    tonic::include_proto!("keelson.peer.v1");
}

/// Locks (package `v3lockpb`).
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::large_futures,
    clippy::too_many_lines
)]
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

/// Elections (package `v3electionpb`).
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::large_futures,
    clippy::too_many_lines
)]
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}

/// The health of a gRPC server (package `grpc.health.v1`).
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::large_futures,
    clippy::too_many_lines
)]
pub mod health {
    tonic::include_proto!("grpc.health.v1");
}
