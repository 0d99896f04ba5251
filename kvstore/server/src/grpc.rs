//! The gRPC edge: etcd's services in front of the [`crate::Handle`].
//!
//! Nothing is decided here. Messages are translated, reply headers filled in, and
//! errors carried over with the code and message the state machine gave them.

mod auth;
mod body;
mod cluster;
pub(crate) mod convert;
mod downgrade;
mod election;
mod health;
mod kv;
pub(crate) mod large;
mod lease;
mod lock;
mod maintenance;
mod pairs;
mod queue;
mod watch;
pub(crate) mod watch_codec;

use proto::etcdserverpb::{
    ResponseHeader, auth_server::AuthServer, cluster_server::ClusterServer, kv_server::KvServer,
    lease_server::LeaseServer, maintenance_server::MaintenanceServer,
};
use proto::{
    health::health_server::HealthServer, v3electionpb::election_server::ElectionServer,
    v3lockpb::lock_server::LockServer,
};
use tonic::Status;
use tower::Service as _;

use crate::{
    edge::{Reply, call::CallBody},
    handle::Handle,
    rpc_error::RpcError,
};

/// Bytes a message may have beyond the largest request (etcd: grpcOverheadBytes).
const OVERHEAD_BYTES: usize = 512 << 10;

/// The services, routed by path.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    handle: Handle,
    /// Bytes a message may have. [`CallBody`] enforces it; tonic's own limits are off.
    pub(crate) message_bytes_max: usize,
    kv: KvServer<Handle>,
    lease: LeaseServer<Handle>,
    cluster: ClusterServer<Handle>,
    maintenance: MaintenanceServer<Handle>,
    auth: AuthServer<Handle>,
    lock: LockServer<Handle>,
    election: ElectionServer<Handle>,
    health: HealthServer<Handle>,
}

impl Services {
    pub(crate) fn new(handle: Handle) -> Self {
        const OFF: usize = usize::MAX;
        let one = || handle.clone();
        Self {
            message_bytes_max: handle.shared.config.max_request_bytes + OVERHEAD_BYTES,
            kv: KvServer::new(one()).max_decoding_message_size(OFF),
            lease: LeaseServer::new(one()).max_decoding_message_size(OFF),
            cluster: ClusterServer::new(one()).max_decoding_message_size(OFF),
            maintenance: MaintenanceServer::new(one()).max_decoding_message_size(OFF),
            auth: AuthServer::new(one()).max_decoding_message_size(OFF),
            lock: LockServer::new(one()).max_decoding_message_size(OFF),
            election: ElectionServer::new(one()).max_decoding_message_size(OFF),
            health: HealthServer::new(one()).max_decoding_message_size(OFF),
            handle,
        }
    }

    /// Answers one call; `service` and `method` are the halves of its path.
    pub(crate) async fn call(
        &self,
        service: &str,
        method: &str,
        request: http::Request<CallBody>,
    ) -> Reply {
        if let Some(status) = unsupported(service, method) {
            return status.into_http();
        }
        if self.handle.shared.is_learner() && !answered_by_learners(service, method) {
            return Status::from(RpcError::from(mvcc::Error::NotSupportedForLearner)).into_http();
        }
        self.handle.await_token(request.headers()).await;
        let needs_leader = requires_leader(request.headers());
        if needs_leader && !self.handle.shared.leadership.exists() {
            return Status::from(RpcError::from(mvcc::Error::NoLeader)).into_http();
        }
        // Taken before the call begins, so that no loss in between is missed.
        let lost = needs_leader.then(|| self.handle.shared.leadership.lost());
        let reply = match service {
            "etcdserverpb.KV" => self.kv.clone().call(request).await,
            "etcdserverpb.Watch" => Ok(watch::call(&self.handle, request).await),
            "etcdserverpb.Lease" => self.lease.clone().call(request).await,
            "etcdserverpb.Cluster" => self.cluster.clone().call(request).await,
            "etcdserverpb.Maintenance" => self.maintenance.clone().call(request).await,
            "etcdserverpb.Auth" => self.auth.clone().call(request).await,
            "v3lockpb.Lock" => self.lock.clone().call(request).await,
            "v3electionpb.Election" => self.election.clone().call(request).await,
            "grpc.health.v1.Health" => self.health.clone().call(request).await,
            _ => return unknown_service(service).into_http(),
        };
        let reply = match reply {
            Ok(reply) => large::put_in_place(reply),
            Err(never) => match never {},
        };
        match lost {
            Some(lost) if is_stream(service, method) => {
                reply.map(|body| body::bind_to_leader(body, lost))
            }
            _ => reply,
        }
    }
}

/// Says whether the caller rather hears of a lost leader than waits for the next.
fn requires_leader(headers: &http::HeaderMap) -> bool {
    headers
        .get("hasleader")
        .is_some_and(|value| value == "true")
}

/// Says whether a learner answers a call; of ranges only serializable ones, which is
/// seen later (etcd: v3rpc/interceptor.go, util.go, `isRPCSupportedForLearner`).
fn answered_by_learners(service: &str, method: &str) -> bool {
    matches!(
        (service, method),
        ("etcdserverpb.KV", "Range" | "RangeStream")
            | ("etcdserverpb.Maintenance", "Status" | "Snapshot")
    )
}

/// Says whether the answer to a call is a stream.
fn is_stream(service: &str, method: &str) -> bool {
    matches!(
        (service, method),
        ("etcdserverpb.KV", "RangeStream")
            | ("etcdserverpb.Watch", "Watch")
            | ("etcdserverpb.Lease", "LeaseKeepAlive")
            | ("etcdserverpb.Maintenance", "Snapshot")
            | ("v3electionpb.Election", "Observe")
            | ("grpc.health.v1.Health", "Watch")
    )
}

/// Refuses the calls that are not answered here, in the words of grpc-go
/// (server.go, `handleStream`).
fn unsupported(service: &str, method: &str) -> Option<Status> {
    let known: &[&str] = match service {
        "etcdserverpb.KV" => &[
            "Range",
            "RangeStream",
            "Put",
            "DeleteRange",
            "Txn",
            "Compact",
        ],
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
        "etcdserverpb.Maintenance" => &[
            "Alarm",
            "Status",
            "Defragment",
            "Hash",
            "HashKV",
            "Snapshot",
            "MoveLeader",
            "Downgrade",
        ],
        "etcdserverpb.Auth" => &[
            "AuthEnable",
            "AuthDisable",
            "AuthStatus",
            "Authenticate",
            "UserAdd",
            "UserGet",
            "UserList",
            "UserDelete",
            "UserChangePassword",
            "UserGrantRole",
            "UserRevokeRole",
            "RoleAdd",
            "RoleGet",
            "RoleList",
            "RoleDelete",
            "RoleGrantPermission",
            "RoleRevokePermission",
        ],
        "v3lockpb.Lock" => &["Lock", "Unlock"],
        "v3electionpb.Election" => &["Campaign", "Proclaim", "Leader", "Observe", "Resign"],
        "grpc.health.v1.Health" => &["Check", "Watch"],
        _ => return Some(unknown_service(service)),
    };
    (!known.contains(&method))
        .then(|| Status::unimplemented(format!("unknown method {method} for service {service}")))
}

fn unknown_service(service: &str) -> Status {
    Status::unimplemented(format!("unknown service {service}"))
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
