//! The gRPC edge: etcd's services in front of the [`crate::Handle`].
//!
//! Nothing is decided here. Messages are translated, reply headers filled in, and
//! errors carried over with the code and message the state machine gave them.

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
        let reply = match service {
            "etcdserverpb.KV" => self.kv.call(request).await,
            "etcdserverpb.Watch" if method == "Watch" => {
                return watch::call(&self.handle, request).await;
            }
            "etcdserverpb.Lease" => self.lease.call(request).await,
            "etcdserverpb.Cluster" => self.cluster.call(request).await,
            "etcdserverpb.Maintenance" => self.maintenance.call(request).await,
            _ => return unknown(),
        };
        match reply {
            Ok(reply) => reply,
            Err(never) => match never {},
        }
    }
}

/// Answers a service nobody here knows, as gRPC prescribes.
fn unknown() -> http::Response<Body> {
    tonic::Status::unimplemented("unknown service or method").into_http()
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
