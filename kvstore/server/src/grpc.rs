//! The gRPC edge: etcd's services in front of the [`crate::Handle`].
//!
//! Nothing is decided here. Messages are translated, reply headers filled in, and
//! errors carried over with the code and message the state machine gave them.

mod cluster;
pub(crate) mod convert;
mod kv;
mod lease;
mod maintenance;
mod watch;
mod watch_codec;

use proto::etcdserverpb::{
    ResponseHeader, cluster_server::ClusterServer, kv_server::KvServer, lease_server::LeaseServer,
    maintenance_server::MaintenanceServer,
};
use tonic::body::Body;
use tower::Service as _;

use crate::{edge::Reply, handle::Handle};

/// Bytes a message may have beyond the largest request (etcd: grpcOverheadBytes).
const OVERHEAD_BYTES: usize = 512 << 10;

/// The services, routed by path.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    handle: Handle,
    kv: KvServer<Handle>,
    lease: LeaseServer<Handle>,
    cluster: ClusterServer<Handle>,
    maintenance: MaintenanceServer<Handle>,
}

impl Services {
    pub(crate) fn new(handle: Handle) -> Self {
        let limit = handle.shared.config.max_request_bytes + OVERHEAD_BYTES;
        Self {
            kv: KvServer::new(handle.clone()).max_decoding_message_size(limit),
            lease: LeaseServer::new(handle.clone()),
            cluster: ClusterServer::new(handle.clone()),
            maintenance: MaintenanceServer::new(handle.clone()),
            handle,
        }
    }

    /// Answers one call; `service` and `method` are the halves of its path.
    pub(crate) async fn call(
        &mut self,
        service: &str,
        method: &str,
        request: http::Request<hyper::body::Incoming>,
    ) -> Reply {
        if let Some(missing) = unsupported(service, method) {
            return unimplemented(missing);
        }
        let reply = match service {
            "etcdserverpb.KV" => self.kv.call(request).await,
            "etcdserverpb.Watch" => {
                return watch::call(&self.handle, request).await;
            }
            "etcdserverpb.Lease" => self.lease.call(request).await,
            "etcdserverpb.Cluster" => self.cluster.call(request).await,
            "etcdserverpb.Maintenance" => self.maintenance.call(request).await,
            _ => return unimplemented("unknown service"),
        };
        match reply {
            Ok(reply) => reply,
            Err(never) => match never {},
        }
    }
}

/// Says what is missing behind the calls of etcd that are not answered here.
fn unsupported(service: &str, method: &str) -> Option<&'static str> {
    let known: &[&str] = match service {
        "etcdserverpb.KV" => &["Range", "Put", "DeleteRange", "Txn", "Compact"],
        "etcdserverpb.Watch" => &["Watch"],
        "etcdserverpb.Lease" => &[
            "LeaseGrant",
            "LeaseRevoke",
            "LeaseKeepAlive",
            "LeaseTimeToLive",
            "LeaseLeases",
        ],
        "etcdserverpb.Cluster" => &[
            "MemberAdd",
            "MemberRemove",
            "MemberUpdate",
            "MemberPromote",
            "MemberList",
        ],
        "etcdserverpb.Maintenance" => match method {
            "Snapshot" => {
                return Some(
                    "etcdserver: snapshots over the network are not supported by this version; \
                     stop the member and copy its data directory",
                );
            }
            "Hash" => {
                return Some(
                    "etcdserver: hashing the whole backend is not supported by this version; \
                     use HashKV",
                );
            }
            "Downgrade" => {
                return Some("etcdserver: downgrades are not supported by this version");
            }
            _ => &["Alarm", "Status", "Defragment", "HashKV", "MoveLeader"],
        },
        "etcdserverpb.Auth" => {
            return Some(
                "etcdserver: users and roles are not supported by this version; \
                 use client certificates (--client-cert-auth)",
            );
        }
        "v3lockpb.Lock" | "v3electionpb.Election" => {
            return Some(
                "etcdserver: locks and elections on the server are not supported by this \
                 version; the client library makes them of leases and transactions",
            );
        }
        _ => return Some("unknown service"),
    };
    (!known.contains(&method)).then_some("unknown method")
}

/// Answers a call nobody here carries out, as gRPC prescribes.
fn unimplemented(missing: &'static str) -> http::Response<Body> {
    tonic::Status::unimplemented(missing).into_http()
}

impl Handle {
    /// Makes a reply header (etcd: v3rpc/header.go).
    pub(crate) fn header(&self, revision: i64) -> Option<ResponseHeader> {
        let (member_id, cluster_id) = self.ids();
        Some(ResponseHeader {
            cluster_id,
            member_id,
            revision,
            raft_term: self.term(),
        })
    }
}
