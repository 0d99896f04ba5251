//! Clients that show who they are, and a store where it matters.

use kvserver::Config;
use proto::{
    authpb,
    etcdserverpb::{
        self as pb, auth_client::AuthClient, cluster_client::ClusterClient, kv_client::KvClient,
        lease_client::LeaseClient, maintenance_client::MaintenanceClient,
        watch_client::WatchClient,
    },
};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use crate::store::{Store, bytes, refused};

/// Adds a token to every request.
#[derive(Clone)]
pub(crate) struct WithToken(Option<MetadataValue<Ascii>>, &'static str);

impl Interceptor for WithToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert(self.1, token.clone());
        }
        Ok(request)
    }
}

pub(crate) type Conn = InterceptedService<Channel, WithToken>;

/// A client with or without a token.
#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
    shows: WithToken,
}

impl Client {
    pub(crate) async fn nobody(store: &Store) -> Self {
        Self::over(store.channel().await)
    }

    pub(crate) fn over(channel: Channel) -> Self {
        Self {
            channel,
            shows: WithToken(None, "token"),
        }
    }

    /// The same client with a token.
    pub(crate) fn with(&self, token: &str) -> Self {
        self.with_in("token", token)
    }

    pub(crate) fn with_in(&self, field: &'static str, token: &str) -> Self {
        Self {
            channel: self.channel.clone(),
            shows: WithToken(Some(token.parse().unwrap()), field),
        }
    }

    /// The same client after a login.
    pub(crate) async fn login(&self, user: &str, password: &str) -> Self {
        self.with(&self.token(user, password).await.unwrap())
    }

    pub(crate) async fn token(&self, user: &str, password: &str) -> Result<String, Status> {
        let request = pb::AuthenticateRequest {
            name: user.to_owned(),
            password: password.to_owned(),
        };
        Ok(self.auth().authenticate(request).await?.into_inner().token)
    }

    pub(crate) fn auth(&self) -> AuthClient<Conn> {
        AuthClient::with_interceptor(self.channel.clone(), self.shows.clone())
    }

    pub(crate) fn kv(&self) -> KvClient<Conn> {
        KvClient::with_interceptor(self.channel.clone(), self.shows.clone())
    }

    pub(crate) fn lease(&self) -> LeaseClient<Conn> {
        LeaseClient::with_interceptor(self.channel.clone(), self.shows.clone())
    }

    pub(crate) fn watch(&self) -> WatchClient<Conn> {
        WatchClient::with_interceptor(self.channel.clone(), self.shows.clone())
    }

    pub(crate) fn maintenance(&self) -> MaintenanceClient<Conn> {
        MaintenanceClient::with_interceptor(self.channel.clone(), self.shows.clone())
    }

    pub(crate) fn cluster(&self) -> ClusterClient<Conn> {
        ClusterClient::with_interceptor(self.channel.clone(), self.shows.clone())
    }

    async fn user_add(&self, name: &str, password: &str) {
        let request = pb::AuthUserAddRequest {
            name: name.to_owned(),
            password: password.to_owned(),
            ..pb::AuthUserAddRequest::default()
        };
        self.auth().user_add(request).await.unwrap();
    }

    pub(crate) async fn role(&self, role: &str, grants: &[(i32, &str, &str)]) {
        let request = pb::AuthRoleAddRequest {
            name: role.to_owned(),
        };
        self.auth().role_add(request).await.unwrap();
        for (kind, key, range_end) in grants {
            let request = grant_permission(role, *kind, key, range_end);
            self.auth().role_grant_permission(request).await.unwrap();
        }
    }

    async fn grant(&self, user: &str, role: &str) {
        let request = pb::AuthUserGrantRoleRequest {
            user: user.to_owned(),
            role: role.to_owned(),
        };
        self.auth().user_grant_role(request).await.unwrap();
    }

    pub(crate) async fn enable(&self) {
        let request = pb::AuthEnableRequest {};
        self.auth().auth_enable(request).await.unwrap();
    }

    pub(crate) async fn change_password(&self, user: &str, password: &str) -> Result<(), Status> {
        let request = pb::AuthUserChangePasswordRequest {
            name: user.to_owned(),
            password: password.to_owned(),
            ..pb::AuthUserChangePasswordRequest::default()
        };
        self.auth().user_change_password(request).await.map(drop)
    }

    pub(crate) async fn status(&self) -> Result<(bool, u64), Status> {
        let reply = self.auth().auth_status(pb::AuthStatusRequest {}).await?;
        let reply = reply.into_inner();
        Ok((reply.enabled, reply.auth_revision))
    }
}

pub(crate) fn grant_permission(
    role: &str,
    kind: i32,
    key: &str,
    range_end: &str,
) -> pb::AuthRoleGrantPermissionRequest {
    pb::AuthRoleGrantPermissionRequest {
        name: role.to_owned(),
        perm: Some(authpb::Permission {
            perm_type: kind,
            key: bytes(key),
            range_end: bytes(range_end),
        }),
    }
}

pub(crate) const READ: i32 = 0;
pub(crate) const WRITE: i32 = 1;
pub(crate) const BOTH: i32 = 2;

pub(crate) const EMPTY: (i32, &str) = (3, "etcdserver: user name is empty");
pub(crate) const DENIED: (i32, &str) = (7, "etcdserver: permission denied");
pub(crate) const INVALID: (i32, &str) = (16, "etcdserver: invalid auth token");
pub(crate) const FAILED: (i32, &str) = (
    3,
    "etcdserver: authentication failed, invalid user ID or password",
);

#[track_caller]
pub(crate) fn says<T: std::fmt::Debug>(result: Result<T, Status>, (code, message): (i32, &str)) {
    refused(result, code, message);
}

/// Little work for each hash, so that tests are not all hashing.
pub(crate) fn cheap(config: &mut Config) {
    config.bcrypt_cost = 4;
}

/// A store with authentication on: root with password "rp", and ann ("ap"), who may
/// read and write keys from "a" to "b" and read "r".
pub(crate) async fn guarded() -> (Store, Client) {
    let store = Store::start_with(cheap).await;
    let nobody = Client::nobody(&store).await;
    furnish(&nobody).await;
    (store, nobody)
}

pub(crate) async fn furnish(nobody: &Client) {
    nobody.user_add("root", "rp").await;
    nobody.grant("root", "root").await;
    nobody.user_add("ann", "ap").await;
    nobody.role("a", &[(BOTH, "a", "b"), (READ, "r", "")]).await;
    nobody.grant("ann", "a").await;
    nobody.enable().await;
}
