//! The one list of paths. A new RPC is a new line.

use std::{collections::HashMap, sync::Arc};

use http::Uri;
use prost_reflect::{DynamicMessage, MessageDescriptor};

use crate::metrics::calls::pool;

/// Each path, behind `/v3/`, and the method it stands for (etcd: the annotations of
/// rpc.proto, v3lock.proto and v3election.proto). RangeStream has none on purpose.
const ROUTES: &[(&str, &str)] = &[
    ("kv/range", "etcdserverpb.KV/Range"),
    ("kv/put", "etcdserverpb.KV/Put"),
    ("kv/deleterange", "etcdserverpb.KV/DeleteRange"),
    ("kv/txn", "etcdserverpb.KV/Txn"),
    ("kv/compaction", "etcdserverpb.KV/Compact"),
    ("watch", "etcdserverpb.Watch/Watch"),
    ("lease/grant", "etcdserverpb.Lease/LeaseGrant"),
    ("lease/revoke", "etcdserverpb.Lease/LeaseRevoke"),
    ("kv/lease/revoke", "etcdserverpb.Lease/LeaseRevoke"),
    ("lease/keepalive", "etcdserverpb.Lease/LeaseKeepAlive"),
    ("lease/timetolive", "etcdserverpb.Lease/LeaseTimeToLive"),
    ("kv/lease/timetolive", "etcdserverpb.Lease/LeaseTimeToLive"),
    ("lease/leases", "etcdserverpb.Lease/LeaseLeases"),
    ("kv/lease/leases", "etcdserverpb.Lease/LeaseLeases"),
    ("cluster/member/add", "etcdserverpb.Cluster/MemberAdd"),
    ("cluster/member/remove", "etcdserverpb.Cluster/MemberRemove"),
    ("cluster/member/update", "etcdserverpb.Cluster/MemberUpdate"),
    ("cluster/member/list", "etcdserverpb.Cluster/MemberList"),
    (
        "cluster/member/promote",
        "etcdserverpb.Cluster/MemberPromote",
    ),
    ("maintenance/alarm", "etcdserverpb.Maintenance/Alarm"),
    ("maintenance/status", "etcdserverpb.Maintenance/Status"),
    (
        "maintenance/defragment",
        "etcdserverpb.Maintenance/Defragment",
    ),
    ("maintenance/hash", "etcdserverpb.Maintenance/Hash"),
    ("maintenance/hashkv", "etcdserverpb.Maintenance/HashKV"),
    ("maintenance/snapshot", "etcdserverpb.Maintenance/Snapshot"),
    (
        "maintenance/transfer-leadership",
        "etcdserverpb.Maintenance/MoveLeader",
    ),
    (
        "maintenance/downgrade",
        "etcdserverpb.Maintenance/Downgrade",
    ),
    ("auth/enable", "etcdserverpb.Auth/AuthEnable"),
    ("auth/disable", "etcdserverpb.Auth/AuthDisable"),
    ("auth/status", "etcdserverpb.Auth/AuthStatus"),
    ("auth/authenticate", "etcdserverpb.Auth/Authenticate"),
    ("auth/user/add", "etcdserverpb.Auth/UserAdd"),
    ("auth/user/get", "etcdserverpb.Auth/UserGet"),
    ("auth/user/list", "etcdserverpb.Auth/UserList"),
    ("auth/user/delete", "etcdserverpb.Auth/UserDelete"),
    ("auth/user/changepw", "etcdserverpb.Auth/UserChangePassword"),
    ("auth/user/grant", "etcdserverpb.Auth/UserGrantRole"),
    ("auth/user/revoke", "etcdserverpb.Auth/UserRevokeRole"),
    ("auth/role/add", "etcdserverpb.Auth/RoleAdd"),
    ("auth/role/get", "etcdserverpb.Auth/RoleGet"),
    ("auth/role/list", "etcdserverpb.Auth/RoleList"),
    ("auth/role/delete", "etcdserverpb.Auth/RoleDelete"),
    ("auth/role/grant", "etcdserverpb.Auth/RoleGrantPermission"),
    ("auth/role/revoke", "etcdserverpb.Auth/RoleRevokePermission"),
    ("lock/lock", "v3lockpb.Lock/Lock"),
    ("lock/unlock", "v3lockpb.Lock/Unlock"),
    ("election/campaign", "v3electionpb.Election/Campaign"),
    ("election/proclaim", "v3electionpb.Election/Proclaim"),
    ("election/leader", "v3electionpb.Election/Leader"),
    ("election/observe", "v3electionpb.Election/Observe"),
    ("election/resign", "v3electionpb.Election/Resign"),
];

/// One path, and what its method takes and gives.
#[derive(Debug)]
pub(super) struct Route {
    /// Where the services have the method.
    pub(super) uri: Uri,
    pub(super) input: MessageDescriptor,
    pub(super) output: MessageDescriptor,
    pub(super) streams_requests: bool,
    pub(super) streams_replies: bool,
}

impl Route {
    /// Makes the request that says nothing.
    pub(super) fn empty_request(&self) -> DynamicMessage {
        DynamicMessage::new(self.input.clone())
    }
}

/// Finds the method behind each path.
pub(super) fn resolve() -> HashMap<&'static str, Arc<Route>> {
    let mut methods = HashMap::new();
    for service in pool().services() {
        for method in service.methods() {
            let name = format!("{}/{}", service.full_name(), method.name());
            methods.insert(name, method);
        }
    }
    let resolved = ROUTES.iter().filter_map(|(path, name)| {
        let method = methods.get(*name)?;
        let route = Route {
            uri: format!("/{name}").parse().ok()?,
            input: method.input(),
            output: method.output(),
            streams_requests: method.is_client_streaming(),
            streams_replies: method.is_server_streaming(),
        };
        Some((*path, Arc::new(route)))
    });
    resolved.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_method_but_range_stream_has_a_path_and_every_path_a_method() {
        assert_eq!(resolve().len(), ROUTES.len());
        let routed: BTreeSet<&str> = ROUTES.iter().map(|(_, name)| *name).collect();
        let offered: BTreeSet<String> = pool()
            .services()
            .flat_map(|service| {
                let name = service.full_name().to_owned();
                let methods: Vec<_> = service
                    .methods()
                    .map(|method| method.name().to_owned())
                    .collect();
                methods
                    .into_iter()
                    .map(move |method| format!("{name}/{method}"))
            })
            .collect();
        let missing: Vec<_> = offered
            .iter()
            .filter(|name| !routed.contains(name.as_str()))
            .collect();
        // Health is grpc.io's service, not etcd's.
        let none = [
            "etcdserverpb.KV/RangeStream",
            "grpc.health.v1.Health/Check",
            "grpc.health.v1.Health/Watch",
        ];
        assert_eq!(missing, none);
    }
}
