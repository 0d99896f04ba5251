//! The nouns: users, roles, permissions, and who a caller is.

use std::fmt;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use super::ROOT;

/// Keeps bytes nobody may print: a password's hash, the random part of a token.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Bytes);

impl Secret {
    /// Wraps the bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes, for comparing, writing and nothing else.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Is who may come in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name; never empty.
    pub name: String,
    /// The bcrypt hash of the password, as bcrypt writes it; empty without one.
    pub password: Secret,
    /// Comes in by certificate only; no password opens.
    pub no_password: bool,
    /// The roles, sorted, each once.
    pub roles: Vec<String>,
}

impl User {
    /// Reports whether the user has a role.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles
            .binary_search_by(|r| r.as_str().cmp(role))
            .is_ok()
    }

    /// Reports whether the user may do everything.
    pub fn is_root(&self) -> bool {
        self.has_role(ROOT)
    }

    /// Takes a role away; returns whether it was there.
    pub(super) fn take_role(&mut self, role: &str) -> bool {
        let found = self.roles.binary_search_by(|r| r.as_str().cmp(role));
        if let Ok(at) = found {
            self.roles.remove(at);
        }
        found.is_ok()
    }
}

/// Is a named set of permissions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Role {
    /// The name; never empty.
    pub name: String,
    /// What it permits, in the order of keys.
    pub permissions: Vec<Permission>,
}

/// Says what a permission permits; the numbers are the protobuf ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PermissionKind {
    /// Reading and watching.
    #[default]
    Read = 0,
    /// Writing and deleting.
    Write = 1,
    /// Both.
    ReadWrite = 2,
}

impl PermissionKind {
    /// Maps the protobuf number; `None` for an unknown one.
    pub fn from_i32(n: i32) -> Option<Self> {
        Some(match n {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::ReadWrite,
            _ => return None,
        })
    }
}

/// Permits something on a key or a range of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permission {
    /// What is permitted.
    pub kind: PermissionKind,
    /// The key or the start of the range.
    pub key: Bytes,
    /// Empty for one key, `"\0"` for every key from `key` on, else exclusive end.
    pub range_end: Bytes,
}

impl Permission {
    /// Returns what `root` may do, as etcd shows it.
    pub(super) fn everything() -> Self {
        Self {
            kind: PermissionKind::ReadWrite,
            key: Bytes::new(),
            range_end: Bytes::from_static(&[0]),
        }
    }

    /// Reports whether it is for exactly this range.
    pub(super) fn is_about(&self, key: &Bytes, range_end: &Bytes) -> bool {
        self.key == key && self.range_end == range_end
    }

    /// Reports whether there is any key in its range (etcd:
    /// `range_perm_cache.go`, isValidPermissionRange).
    pub(super) fn is_valid(&self) -> bool {
        let open = self.range_end.as_ref() == [0];
        !self.key.is_empty() && (self.range_end.is_empty() || open || self.key < self.range_end)
    }
}

/// Says who proposed something: a user as of an auth revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's name; empty for a caller that showed nothing.
    pub user: Arc<str>,
    /// The auth revision at which that was true. What is older than the store's
    /// own is refused; 0 stands for nobody.
    pub revision: u64,
}

impl Identity {
    /// Makes an identity.
    pub fn new(user: impl Into<Arc<str>>, revision: u64) -> Self {
        Self {
            user: user.into(),
            revision,
        }
    }

    /// Returns the identity of a caller that showed nothing.
    pub fn nobody() -> Self {
        // Every proposal of a client has one while nobody is checked: one for all.
        static NOBODY: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));
        Self::new(Arc::clone(&NOBODY), 0)
    }
}
