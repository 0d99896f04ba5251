//! What may be asked of the auth store: everything that changes it.

use bytes::Bytes;

use super::model::{Permission, Secret};

/// Changes users, roles or the switch. Field meanings are etcd's
/// (`api/etcdserverpb/rpc.proto`, service Auth).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthCommand {
    /// Begins to check callers.
    Enable,
    /// Stops checking them.
    Disable,
    /// Lets a user in whose password was checked before. It goes through the log so
    /// that every member comes to know the token, which is this prefix and the
    /// entry's index.
    Authenticate {
        /// The user.
        user: String,
        /// The token's random part; empty when tokens are signed instead.
        token: Secret,
    },
    /// Adds a user.
    UserAdd {
        /// The name.
        name: String,
        /// The password's hash.
        password: Secret,
        /// Makes a user no password opens.
        no_password: bool,
    },
    /// Deletes a user.
    UserDelete {
        /// The name.
        name: String,
    },
    /// Replaces a password.
    UserChangePassword {
        /// The user.
        name: String,
        /// The new password's hash.
        password: Secret,
    },
    /// Gives a user a role.
    UserGrantRole {
        /// The user.
        user: String,
        /// The role.
        role: String,
    },
    /// Takes a role from a user.
    UserRevokeRole {
        /// The user.
        user: String,
        /// The role.
        role: String,
    },
    /// Adds a role without permissions.
    RoleAdd {
        /// The name.
        name: String,
    },
    /// Deletes a role, also from those who have it.
    RoleDelete {
        /// The name.
        name: String,
    },
    /// Adds a permission to a role.
    RoleGrantPermission {
        /// The role.
        role: String,
        /// The permission; without one the command is refused.
        permission: Option<Permission>,
    },
    /// Takes a permission from a role.
    RoleRevokePermission {
        /// The role.
        role: String,
        /// The permission's key.
        key: Bytes,
        /// The permission's range end.
        range_end: Bytes,
    },
}
