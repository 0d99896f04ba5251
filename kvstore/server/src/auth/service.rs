//! What the Auth service asks of a member.

use mvcc::{AuthCommand, AuthReply, Command, Error, Permission, Reply, Secret};

use super::{
    password,
    tokens::{random_prefix, simple_token},
};
use crate::{
    handle::{Handle, unexpected},
    rpc_error::RpcError,
};

/// How often a password is checked again because users or roles changed meanwhile.
/// After that the client is told so, and may try again itself.
const AUTHENTICATE_TRIES_MAX: usize = 8;

impl Handle {
    /// Changes users, roles or the switch.
    pub(crate) async fn change_auth(&self, command: AuthCommand) -> Result<AuthReply, RpcError> {
        match self.propose(Command::Auth(command)).await? {
            Reply::Auth(reply) => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    /// Adds a user. Only the hash of the password goes further.
    pub(crate) async fn user_add(
        &self,
        name: String,
        password: String,
        no_password: bool,
    ) -> Result<AuthReply, RpcError> {
        let password = match no_password {
            true => Secret::default(),
            false => password::hash(password, self.shared.config.bcrypt_cost).await?,
        };
        self.change_auth(AuthCommand::UserAdd {
            name,
            password,
            no_password,
        })
        .await
    }

    /// Replaces a password, or, without one, the hash itself.
    pub(crate) async fn user_change_password(
        &self,
        name: String,
        password: String,
        hash: Secret,
    ) -> Result<AuthReply, RpcError> {
        let password = match password.is_empty() {
            true => hash,
            false => password::hash(password, self.shared.config.bcrypt_cost).await?,
        };
        self.change_auth(AuthCommand::UserChangePassword { name, password })
            .await
    }

    /// Gives a token for a password; returns it with the header's revision.
    ///
    /// The password is checked here, then the login goes through the log. If users
    /// or roles changed between the two, the password may be wrong by now, so it is
    /// checked again (etcd: `v3_server.go`, Authenticate).
    pub(crate) async fn authenticate(
        &self,
        user: &str,
        password: &str,
    ) -> Result<(String, i64), RpcError> {
        self.catch_up().await?;
        for _ in 0..AUTHENTICATE_TRIES_MAX {
            let (hash, checked) = self.password_of(user)?;
            if !password::verify(password.to_owned(), hash).await? {
                tracing::info!(user, "invalid password");
                return Err(Error::AuthFailed.into());
            }
            let prefix = match &self.shared.jwt {
                Some(_) => String::new(),
                None => random_prefix(),
            };
            let command = Command::Auth(AuthCommand::Authenticate {
                user: user.to_owned(),
                token: Secret::new(prefix.clone()),
            });
            let reply = match self.propose_as(None, command).await? {
                Reply::Auth(reply) => reply,
                other => return Err(unexpected(&other)),
            };
            if reply.auth_revision != checked {
                continue;
            }
            let token = match &self.shared.jwt {
                None => simple_token(&prefix, reply.index),
                Some(jwt) => {
                    let (jwt, user) = (std::sync::Arc::clone(jwt), user.to_owned());
                    password::apart(move || jwt.sign(&user, checked))
                        .await?
                        .map_err(|reason| password::unknown(format!("auth: {reason}")))?
                }
            };
            return Ok((token, reply.revision));
        }
        Err(Error::AuthOldRevision.into())
    }

    /// Returns the hash a password must fit, and the auth revision it is of.
    fn password_of(&self, user: &str) -> Result<(Secret, u64), RpcError> {
        self.shared.with(|core| {
            let auth = core.machine.auth();
            if !auth.enabled() {
                return Err(Error::AuthNotEnabled.into());
            }
            let Ok(user) = auth.user(user) else {
                return Err(Error::AuthFailed.into());
            };
            if user.no_password {
                // etcd has no code for it.
                return Err(password::unknown(
                    "auth: authentication failed, password was given for no password user"
                        .to_owned(),
                ));
            }
            Ok((user.password.clone(), auth.revision()))
        })?
    }

    /// Tells whether callers are checked, and the auth revision. Anybody may ask.
    pub(crate) async fn auth_status(&self) -> Result<(bool, u64), RpcError> {
        self.read_linearizable(
            |_, _| Ok(()),
            |machine| Ok((machine.auth().enabled(), machine.auth().revision())),
        )
        .await
    }

    /// Lists a user's roles.
    pub(crate) async fn user_get(&self, name: &str) -> Result<Vec<String>, RpcError> {
        self.read_linearizable(
            |machine, who| machine.auth().check_user_get(who, name),
            |machine| Ok(machine.auth().user(name)?.roles.clone()),
        )
        .await
    }

    /// Lists the users.
    pub(crate) async fn user_list(&self) -> Result<Vec<String>, RpcError> {
        self.read_linearizable(
            |machine, who| machine.auth().check_root(who),
            |machine| Ok(machine.auth().users().map(|u| u.name.clone()).collect()),
        )
        .await
    }

    /// Lists a role's permissions.
    pub(crate) async fn role_get(&self, name: &str) -> Result<Vec<Permission>, RpcError> {
        self.read_linearizable(
            |machine, who| machine.auth().check_role_get(who, name),
            |machine| machine.auth().permissions(name),
        )
        .await
    }

    /// Lists the roles.
    pub(crate) async fn role_list(&self) -> Result<Vec<String>, RpcError> {
        self.read_linearizable(
            |machine, who| machine.auth().check_root(who),
            |machine| Ok(machine.auth().roles().map(|r| r.name.clone()).collect()),
        )
        .await
    }
}
