//! Service Auth.
//!
//! Requests here may hold passwords, so none of them is ever logged.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mvcc::{AuthCommand, Permission, PermissionKind, Secret};
use proto::{
    authpb,
    etcdserverpb::{self as pb, auth_server::Auth},
};
use tonic::{Request, Response, Status};

use crate::{RpcError, handle::Handle};

impl Handle {
    /// Proposes the change a request asks for; returns the answer's header.
    async fn change<T>(
        &self,
        request: Request<T>,
        command: impl FnOnce(T) -> AuthCommand,
    ) -> Result<Option<pb::ResponseHeader>, Status> {
        let this = self.for_caller(&request);
        let reply = this.change_auth(command(request.into_inner())).await?;
        Ok(self.header(reply.revision))
    }
}

#[tonic::async_trait]
impl Auth for Handle {
    async fn auth_enable(
        &self,
        request: Request<pb::AuthEnableRequest>,
    ) -> Result<Response<pb::AuthEnableResponse>, Status> {
        let header = self.change(request, |_| AuthCommand::Enable).await?;
        Ok(Response::new(pb::AuthEnableResponse { header }))
    }

    async fn auth_disable(
        &self,
        request: Request<pb::AuthDisableRequest>,
    ) -> Result<Response<pb::AuthDisableResponse>, Status> {
        let header = self.change(request, |_| AuthCommand::Disable).await?;
        Ok(Response::new(pb::AuthDisableResponse { header }))
    }

    async fn user_delete(
        &self,
        request: Request<pb::AuthUserDeleteRequest>,
    ) -> Result<Response<pb::AuthUserDeleteResponse>, Status> {
        let header = self
            .change(request, |r| AuthCommand::UserDelete { name: r.name })
            .await?;
        Ok(Response::new(pb::AuthUserDeleteResponse { header }))
    }

    async fn user_grant_role(
        &self,
        request: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Result<Response<pb::AuthUserGrantRoleResponse>, Status> {
        let header = self
            .change(request, |r| AuthCommand::UserGrantRole {
                user: r.user,
                role: r.role,
            })
            .await?;
        Ok(Response::new(pb::AuthUserGrantRoleResponse { header }))
    }

    async fn user_revoke_role(
        &self,
        request: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Result<Response<pb::AuthUserRevokeRoleResponse>, Status> {
        let header = self
            .change(request, |r| AuthCommand::UserRevokeRole {
                user: r.name,
                role: r.role,
            })
            .await?;
        Ok(Response::new(pb::AuthUserRevokeRoleResponse { header }))
    }

    async fn role_add(
        &self,
        request: Request<pb::AuthRoleAddRequest>,
    ) -> Result<Response<pb::AuthRoleAddResponse>, Status> {
        let header = self
            .change(request, |r| AuthCommand::RoleAdd { name: r.name })
            .await?;
        Ok(Response::new(pb::AuthRoleAddResponse { header }))
    }

    async fn role_delete(
        &self,
        request: Request<pb::AuthRoleDeleteRequest>,
    ) -> Result<Response<pb::AuthRoleDeleteResponse>, Status> {
        let header = self
            .change(request, |r| AuthCommand::RoleDelete { name: r.role })
            .await?;
        Ok(Response::new(pb::AuthRoleDeleteResponse { header }))
    }

    async fn role_grant_permission(
        &self,
        request: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
        let header = self
            .change(request, |r| AuthCommand::RoleGrantPermission {
                role: r.name,
                permission: r.perm.and_then(permission),
            })
            .await?;
        Ok(Response::new(pb::AuthRoleGrantPermissionResponse {
            header,
        }))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<pb::AuthRoleRevokePermissionResponse>, Status> {
        let header = self
            .change(request, |r| AuthCommand::RoleRevokePermission {
                role: r.role,
                key: r.key,
                range_end: r.range_end,
            })
            .await?;
        Ok(Response::new(pb::AuthRoleRevokePermissionResponse {
            header,
        }))
    }

    async fn auth_status(
        &self,
        request: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let (enabled, auth_revision) = Handle::auth_status(&self.for_caller(&request)).await?;
        Ok(Response::new(pb::AuthStatusResponse {
            header: self.header(self.revision()),
            enabled,
            auth_revision,
        }))
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        let request = request.into_inner();
        let (token, revision) =
            Handle::authenticate(self, &request.name, &request.password).await?;
        Ok(Response::new(pb::AuthenticateResponse {
            header: self.header(revision),
            token,
        }))
    }

    async fn user_add(
        &self,
        request: Request<pb::AuthUserAddRequest>,
    ) -> Result<Response<pb::AuthUserAddResponse>, Status> {
        let this = self.for_caller(&request);
        let request = request.into_inner();
        let no_password = request.options.is_some_and(|options| options.no_password);
        let reply = Handle::user_add(&this, request.name, request.password, no_password).await?;
        Ok(Response::new(pb::AuthUserAddResponse {
            header: self.header(reply.revision),
        }))
    }

    async fn user_change_password(
        &self,
        request: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Result<Response<pb::AuthUserChangePasswordResponse>, Status> {
        let this = self.for_caller(&request);
        let request = request.into_inner();
        let hash = hash(&request.hashed_password)?;
        let reply =
            Handle::user_change_password(&this, request.name, request.password, hash).await?;
        Ok(Response::new(pb::AuthUserChangePasswordResponse {
            header: self.header(reply.revision),
        }))
    }

    async fn user_get(
        &self,
        request: Request<pb::AuthUserGetRequest>,
    ) -> Result<Response<pb::AuthUserGetResponse>, Status> {
        let this = self.for_caller(&request);
        let roles = Handle::user_get(&this, &request.into_inner().name).await?;
        Ok(Response::new(pb::AuthUserGetResponse {
            header: self.header(self.revision()),
            roles,
        }))
    }

    async fn user_list(
        &self,
        request: Request<pb::AuthUserListRequest>,
    ) -> Result<Response<pb::AuthUserListResponse>, Status> {
        let users = Handle::user_list(&self.for_caller(&request)).await?;
        Ok(Response::new(pb::AuthUserListResponse {
            header: self.header(self.revision()),
            users,
        }))
    }

    async fn role_get(
        &self,
        request: Request<pb::AuthRoleGetRequest>,
    ) -> Result<Response<pb::AuthRoleGetResponse>, Status> {
        let this = self.for_caller(&request);
        let permissions = Handle::role_get(&this, &request.into_inner().role).await?;
        Ok(Response::new(pb::AuthRoleGetResponse {
            header: self.header(self.revision()),
            perm: permissions.into_iter().map(wire_permission).collect(),
        }))
    }

    async fn role_list(
        &self,
        request: Request<pb::AuthRoleListRequest>,
    ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
        let roles = Handle::role_list(&self.for_caller(&request)).await?;
        Ok(Response::new(pb::AuthRoleListResponse {
            header: self.header(self.revision()),
            roles,
        }))
    }
}

/// Reads a hash given in place of a password.
fn hash(text: &str) -> Result<Secret, RpcError> {
    match STANDARD.decode(text) {
        Ok(hash) => Ok(Secret::new(hash)),
        // What etcd says for it, under the code of what has no other.
        Err(_not_base64) => Err(RpcError {
            code: 2,
            message: "auth: authentication failed, password was given for no password user"
                .to_owned(),
        }),
    }
}

/// Reads a permission; one of a kind nobody knows is none.
fn permission(wire: authpb::Permission) -> Option<Permission> {
    Some(Permission {
        kind: PermissionKind::from_i32(wire.perm_type)?,
        key: wire.key,
        range_end: wire.range_end,
    })
}

fn wire_permission(permission: Permission) -> authpb::Permission {
    authpb::Permission {
        perm_type: permission.kind as i32,
        key: permission.key,
        range_end: permission.range_end,
    }
}
