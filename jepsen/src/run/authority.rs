//! Who one is, and changes of who may do what.

use checkers::history::{AuthChange, Body, Reply};
use proto::authpb::{self, permission::Type};
use proto::etcdserverpb as pb;
use proto::etcdserverpb::auth_client::AuthClient;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::wire::{Token, reply};

/// Everybody's password; what is tested is what one may do, not who one is.
const PASSWORD: &str = "open";
/// The user and the role that may do all.
pub(super) const ROOT: &str = "root";

/// Says who one is, and returns the token that proves it from then on.
pub(super) async fn log_in(channel: &Channel, user: &str) -> Result<Token, Status> {
    let message = pb::AuthenticateRequest {
        name: user.to_owned(),
        password: PASSWORD.to_owned(),
    };
    let told = AuthClient::new(channel.clone())
        .authenticate(message)
        .await?;
    let token = told.into_inner().token;
    token
        .parse()
        .map_err(|_not_ascii| Status::internal("a token that cannot be sent"))
}

/// Changes who may do what.
#[allow(clippy::too_many_lines, reason = "a table: one arm a change")]
pub(super) async fn change(
    channel: &Channel,
    token: Option<&Token>,
    change: &AuthChange,
) -> Result<Reply, Status> {
    let mut client = AuthClient::new(channel.clone());
    /// Calls one of a dozen methods that differ in their names and messages only.
    macro_rules! ask {
        ($method:ident, $message:expr) => {{
            let mut request = Request::new($message);
            if let Some(token) = token {
                request.metadata_mut().insert("token", token.clone());
            }
            let told = client.$method(request).await?.into_inner();
            Ok(reply(told.header.as_ref(), Body::Done))
        }};
    }
    match change {
        AuthChange::Enable => ask!(auth_enable, pb::AuthEnableRequest {}),
        AuthChange::Disable => ask!(auth_disable, pb::AuthDisableRequest {}),
        AuthChange::AddUser(name) => ask!(
            user_add,
            pb::AuthUserAddRequest {
                name: name.to_string(),
                password: PASSWORD.to_owned(),
                ..pb::AuthUserAddRequest::default()
            }
        ),
        AuthChange::DeleteUser(name) => ask!(
            user_delete,
            pb::AuthUserDeleteRequest {
                name: name.to_string(),
            }
        ),
        AuthChange::ChangePassword(name) => ask!(
            user_change_password,
            pb::AuthUserChangePasswordRequest {
                name: name.to_string(),
                password: PASSWORD.to_owned(),
                ..pb::AuthUserChangePasswordRequest::default()
            }
        ),
        AuthChange::AddRole(name) => ask!(
            role_add,
            pb::AuthRoleAddRequest {
                name: name.to_string(),
            }
        ),
        AuthChange::DeleteRole(name) => ask!(
            role_delete,
            pb::AuthRoleDeleteRequest {
                role: name.to_string(),
            }
        ),
        AuthChange::GrantRole { user, role } => ask!(
            user_grant_role,
            pb::AuthUserGrantRoleRequest {
                user: user.to_string(),
                role: role.to_string(),
            }
        ),
        AuthChange::RevokeRole { user, role } => ask!(
            user_revoke_role,
            pb::AuthUserRevokeRoleRequest {
                name: user.to_string(),
                role: role.to_string(),
            }
        ),
        AuthChange::GrantRange {
            role,
            key,
            end,
            read,
            write,
        } => {
            let kind = match (read, write) {
                (true, true) => Type::Readwrite,
                (false, true) => Type::Write,
                _ => Type::Read,
            };
            let perm = authpb::Permission {
                perm_type: kind.into(),
                key: key.0.clone(),
                range_end: end.0.clone(),
            };
            ask!(
                role_grant_permission,
                pb::AuthRoleGrantPermissionRequest {
                    name: role.to_string(),
                    perm: Some(perm),
                }
            )
        }
        AuthChange::RevokeRange { role, key, end } => ask!(
            role_revoke_permission,
            pb::AuthRoleRevokePermissionRequest {
                role: role.to_string(),
                key: key.0.clone(),
                range_end: end.0.clone(),
            }
        ),
    }
}
