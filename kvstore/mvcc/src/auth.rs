//! Users, roles and what they may do: etcd's auth store (`server/auth/store.go`).
//!
//! It is replicated state like any other. Every change comes through the log as an
//! [`AuthCommand`] and bumps the *auth revision*; every proposal of a client carries
//! an [`Identity`], its user and the auth revision at which that user was looked
//! up, and apply checks it again on every member. So a permission taken away is
//! gone for all that comes after it in the log, whoever proposed it when.
//!
//! ```text
//! user --has--> roles --have--> permissions = kind + key or range of keys
//! ```
//!
//! The role `root` may do everything. Deliberately absent: passwords (only their
//! hashes come here, made before the proposal), tokens and certificates. How a
//! caller proves who it is, is the server's concern.

mod check;
mod codec;
mod command;
mod grants;
mod model;
mod rows;

use std::collections::BTreeMap;

use bytes::Bytes;

use self::grants::Grants;
pub use self::{
    check::Access,
    command::AuthCommand,
    model::{Identity, Permission, PermissionKind, Role, Secret, User},
    rows::AuthImage,
};
pub(crate) use self::{
    codec::{auth_command, name, put_auth_command},
    rows::Row,
};
use crate::error::Error;

/// Names both the user and the role that may do everything.
pub const ROOT: &str = "root";

/// The auth revision of a store where nothing was ever changed.
const REVISION_FRESH: u64 = 1;

/// Holds users, roles and the switch.
///
/// Invariant: `grants` has exactly the users, each with the union of what its roles
/// permit.
#[derive(Debug)]
pub struct AuthStore {
    enabled: bool,
    revision: u64,
    users: BTreeMap<String, User>,
    roles: BTreeMap<String, Role>,
    grants: BTreeMap<String, Grants>,
}

impl Default for AuthStore {
    fn default() -> Self {
        Self {
            enabled: false,
            revision: REVISION_FRESH,
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
            grants: BTreeMap::new(),
        }
    }
}

impl AuthStore {
    /// Reports whether callers are checked.
    pub fn enabled(&self) -> bool {
        self.enabled
    }

    /// Returns the auth revision; 1 when fresh.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Lists the users, by name.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// Returns a user.
    pub fn user(&self, name: &str) -> Result<&User, Error> {
        self.users.get(name).ok_or(Error::UserNotFound)
    }

    /// Lists the roles, by name.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        self.roles.values()
    }

    /// Returns a role.
    pub fn role(&self, name: &str) -> Result<&Role, Error> {
        self.roles.get(name).ok_or(Error::RoleNotFound)
    }

    /// Lists what a role permits. That of `root` is everything and stored nowhere.
    pub fn permissions(&self, role: &str) -> Result<Vec<Permission>, Error> {
        let role = self.role(role)?;
        Ok(match role.name == ROOT {
            true => vec![Permission::everything()],
            false => role.permissions.clone(),
        })
    }

    /// Carries out a change; returns the rows that are no longer what they were.
    pub(crate) fn apply(&mut self, command: &AuthCommand) -> Result<Vec<Row>, Error> {
        match command {
            AuthCommand::Enable => self.enable(),
            AuthCommand::Disable => Ok(self.disable()),
            AuthCommand::Authenticate { user, .. } => self.authenticate(user),
            AuthCommand::UserAdd {
                name,
                password,
                no_password,
            } => self.user_add(name, password, *no_password),
            AuthCommand::UserDelete { name } => self.user_delete(name),
            AuthCommand::UserChangePassword { name, password } => {
                self.user_change_password(name, password)
            }
            AuthCommand::UserGrantRole { user, role } => self.user_grant_role(user, role),
            AuthCommand::UserRevokeRole { user, role } => self.user_revoke_role(user, role),
            AuthCommand::RoleAdd { name } => self.role_add(name),
            AuthCommand::RoleDelete { name } => self.role_delete(name),
            AuthCommand::RoleGrantPermission { role, permission } => {
                self.role_grant(role, permission.as_ref())
            }
            AuthCommand::RoleRevokePermission {
                role,
                key,
                range_end,
            } => self.role_revoke(role, key, range_end),
        }
    }

    /// Turns checking on. Somebody must be able to turn it off again. Alone of all
    /// changes it leaves the auth revision as it is, as in etcd.
    fn enable(&mut self) -> Result<Vec<Row>, Error> {
        if self.enabled {
            return Ok(Vec::new());
        }
        let root = self.users.get(ROOT).ok_or(Error::RootUserNotExist)?;
        if !root.is_root() {
            return Err(Error::RootRoleNotExist);
        }
        self.enabled = true;
        Ok(vec![Row::Switch])
    }

    fn disable(&mut self) -> Vec<Row> {
        if !self.enabled {
            return Vec::new();
        }
        self.enabled = false;
        self.bump(Vec::new())
    }

    /// Confirms that a user whose password was found right may still come in.
    fn authenticate(&self, name: &str) -> Result<Vec<Row>, Error> {
        if !self.enabled {
            return Err(Error::AuthNotEnabled);
        }
        match self.users.get(name) {
            Some(user) if !user.no_password => Ok(Vec::new()),
            _ => Err(Error::AuthFailed),
        }
    }

    fn user_add(
        &mut self,
        name: &str,
        password: &Secret,
        no_password: bool,
    ) -> Result<Vec<Row>, Error> {
        if name.is_empty() {
            return Err(Error::UserEmpty);
        }
        if self.users.contains_key(name) {
            return Err(Error::UserAlreadyExist);
        }
        let password = match no_password {
            true => Secret::default(),
            false => password.clone(),
        };
        let user = User {
            name: name.to_owned(),
            password,
            no_password,
            roles: Vec::new(),
        };
        self.users.insert(name.to_owned(), user);
        self.unite(name);
        Ok(self.bump(vec![Row::User(name.to_owned())]))
    }

    fn user_delete(&mut self, name: &str) -> Result<Vec<Row>, Error> {
        if self.enabled && name == ROOT {
            return Err(Error::InvalidAuthMgmt);
        }
        self.users.remove(name).ok_or(Error::UserNotFound)?;
        self.unite(name);
        Ok(self.bump(vec![Row::User(name.to_owned())]))
    }

    fn user_change_password(&mut self, name: &str, password: &Secret) -> Result<Vec<Row>, Error> {
        let user = self.users.get_mut(name).ok_or(Error::UserNotFound)?;
        user.password = match user.no_password {
            true => Secret::default(),
            false => password.clone(),
        };
        Ok(self.bump(vec![Row::User(name.to_owned())]))
    }

    /// Gives a user a role. One it has is no change, so not even a new revision.
    fn user_grant_role(&mut self, name: &str, role: &str) -> Result<Vec<Row>, Error> {
        let user = self.users.get_mut(name).ok_or(Error::UserNotFound)?;
        if role != ROOT && !self.roles.contains_key(role) {
            return Err(Error::RoleNotFound);
        }
        let Err(at) = user.roles.binary_search_by(|r| r.as_str().cmp(role)) else {
            return Ok(Vec::new());
        };
        user.roles.insert(at, role.to_owned());
        self.unite(name);
        Ok(self.bump(vec![Row::User(name.to_owned())]))
    }

    fn user_revoke_role(&mut self, name: &str, role: &str) -> Result<Vec<Row>, Error> {
        if self.enabled && name == ROOT && role == ROOT {
            return Err(Error::InvalidAuthMgmt);
        }
        let user = self.users.get_mut(name).ok_or(Error::UserNotFound)?;
        if !user.take_role(role) {
            return Err(Error::RoleNotGranted);
        }
        self.unite(name);
        Ok(self.bump(vec![Row::User(name.to_owned())]))
    }

    fn role_add(&mut self, name: &str) -> Result<Vec<Row>, Error> {
        if name.is_empty() {
            return Err(Error::RoleEmpty);
        }
        if self.roles.contains_key(name) {
            return Err(Error::RoleAlreadyExist);
        }
        let role = Role {
            name: name.to_owned(),
            permissions: Vec::new(),
        };
        self.roles.insert(name.to_owned(), role);
        Ok(self.bump(vec![Row::Role(name.to_owned())]))
    }

    /// Deletes a role and takes it from everybody.
    fn role_delete(&mut self, name: &str) -> Result<Vec<Row>, Error> {
        if self.enabled && name == ROOT {
            return Err(Error::InvalidAuthMgmt);
        }
        self.roles.remove(name).ok_or(Error::RoleNotFound)?;
        let mut rows = vec![Row::Role(name.to_owned())];
        for user in self.users_with(name) {
            if let Some(found) = self.users.get_mut(&user) {
                found.take_role(name);
            }
            self.unite(&user);
            rows.push(Row::User(user));
        }
        Ok(self.bump(rows))
    }

    /// Adds a permission, or changes the kind of one for the same range.
    ///
    /// They stay in the order of their keys, later ones behind older ones with the
    /// same key. Only the first with that key is looked at, so a role may hold two of
    /// different kinds for one range, and the wider counts (etcd: auth/store.go,
    /// RoleGrantPermission). Revoking takes both away.
    fn role_grant(
        &mut self,
        role: &str,
        permission: Option<&Permission>,
    ) -> Result<Vec<Row>, Error> {
        let permission = permission.ok_or(Error::PermissionNotGiven)?;
        if !permission.is_valid() {
            return Err(Error::InvalidAuthMgmt);
        }
        let found = self.roles.get_mut(role).ok_or(Error::RoleNotFound)?;
        let known = &mut found.permissions;
        let first = known.partition_point(|p| p.key < permission.key);
        match known.get_mut(first) {
            Some(same) if same.is_about(&permission.key, &permission.range_end) => {
                same.kind = permission.kind;
            }
            _ => {
                let at = known.partition_point(|p| p.key <= permission.key);
                known.insert(at, permission.clone());
            }
        }
        self.unite_role(role);
        Ok(self.bump(vec![Row::Role(role.to_owned())]))
    }

    fn role_revoke(
        &mut self,
        role: &str,
        key: &Bytes,
        range_end: &Bytes,
    ) -> Result<Vec<Row>, Error> {
        let found = self.roles.get_mut(role).ok_or(Error::RoleNotFound)?;
        let before = found.permissions.len();
        found.permissions.retain(|p| !p.is_about(key, range_end));
        if found.permissions.len() == before {
            return Err(Error::PermissionNotGranted);
        }
        self.unite_role(role);
        Ok(self.bump(vec![Row::Role(role.to_owned())]))
    }

    /// Makes a change count: identities from before it are old now.
    fn bump(&mut self, mut rows: Vec<Row>) -> Vec<Row> {
        self.revision += 1;
        rows.push(Row::Switch);
        rows
    }

    /// Unites anew what one user's roles permit.
    fn unite(&mut self, name: &str) {
        match self.users.get(name) {
            Some(user) => {
                let roles = user.roles.iter().filter_map(|role| self.roles.get(role));
                let grants = Grants::unite(roles.flat_map(|role| &role.permissions));
                self.grants.insert(name.to_owned(), grants);
            }
            None => {
                self.grants.remove(name);
            }
        }
    }

    /// Does so for everybody with a role.
    fn unite_role(&mut self, role: &str) {
        for user in self.users_with(role) {
            self.unite(&user);
        }
    }

    fn users_with(&self, role: &str) -> Vec<String> {
        self.users
            .values()
            .filter(|user| user.has_role(role))
            .map(|user| user.name.clone())
            .collect()
    }
}
