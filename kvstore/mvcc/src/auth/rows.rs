//! The auth store as rows, and as a whole for backups.
//!
//! ```text
//! u<user> r<role>  one row each      w  switch and revision
//! row = version(1) crc32(4, big endian, of the body) body
//! ```
//!
//! A row that lies decides who may do what, so each carries a checksum.

use bytes::{BufMut, Bytes, BytesMut};

use super::model::{Permission, PermissionKind, Role, Secret, User};
use super::{AuthStore, REVISION_FRESH};
use crate::backend::BackendError;
use crate::wire::{Reader, WireError, put_bytes, put_u64, seal, unseal};

const ROW_VERSION: u8 = 1;
const SWITCH_KEY: &[u8] = b"w";

/// Names a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Row {
    Switch,
    User(String),
    Role(String),
}

impl Row {
    fn key(&self) -> Bytes {
        match self {
            Self::Switch => Bytes::from_static(SWITCH_KEY),
            Self::User(name) => named(b'u', name),
            Self::Role(name) => named(b'r', name),
        }
    }
}

fn named(kind: u8, name: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + name.len());
    key.put_u8(kind);
    key.put_slice(name.as_bytes());
    key.freeze()
}

/// Is a whole auth store, as backups carry it: [`AuthStore::image`] takes one from a
/// running store, [`AuthImage::rows`] makes the rows of a new one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthImage {
    /// Whether callers are checked.
    pub enabled: bool,
    /// The auth revision; 0, as in a backup of a store never asked about it, becomes 1.
    pub revision: u64,
    /// The users, in any order; their roles in any order.
    pub users: Vec<User>,
    /// The roles, in any order; their permissions in any order.
    pub roles: Vec<Role>,
}

impl AuthImage {
    /// Returns the rows to put into the backend of a new store, beside all others,
    /// before [`crate::StateMachine::open`].
    pub fn rows(&self) -> Vec<(Bytes, Bytes)> {
        let mut store = AuthStore {
            enabled: self.enabled,
            revision: self.revision.max(REVISION_FRESH),
            ..AuthStore::default()
        };
        for user in &self.users {
            let mut user = user.clone();
            user.roles.sort();
            user.roles.dedup();
            store.users.insert(user.name.clone(), user);
        }
        for role in &self.roles {
            let mut role = role.clone();
            role.permissions.sort_by(|a, b| a.key.cmp(&b.key));
            store.roles.insert(role.name.clone(), role);
        }
        let users = store.users.keys().cloned().map(Row::User);
        let roles = store.roles.keys().cloned().map(Row::Role);
        let named: Vec<_> = users.chain(roles).chain([Row::Switch]).collect();
        named
            .iter()
            .filter_map(|row| Some((row.key(), store.row(row)?)))
            .collect()
    }
}

impl AuthStore {
    /// Takes the whole store, for a backup.
    pub fn image(&self) -> AuthImage {
        AuthImage {
            enabled: self.enabled,
            revision: self.revision,
            users: self.users.values().cloned().collect(),
            roles: self.roles.values().cloned().collect(),
        }
    }

    /// Returns a row's key and what it holds now, for the next batch.
    pub(crate) fn keyed_row(&self, row: &Row) -> (Bytes, Option<Bytes>) {
        (row.key(), self.row(row))
    }

    fn row(&self, row: &Row) -> Option<Bytes> {
        let mut body = BytesMut::new();
        match row {
            Row::Switch => {
                body.put_u8(u8::from(self.enabled));
                put_u64(&mut body, self.revision);
            }
            Row::User(name) => put_user(&mut body, self.users.get(name)?),
            Row::Role(name) => put_role(&mut body, self.roles.get(name)?),
        }
        Some(seal(ROW_VERSION, &body))
    }

    /// Takes in a row found at the start.
    pub(crate) fn restore_row(&mut self, key: &Bytes, row: Bytes) -> Result<(), BackendError> {
        let bad = |reason: String| BackendError::corrupt(key, reason);
        let body = unseal(row, ROW_VERSION).map_err(bad)?;
        let name = match key.get(1..).map(std::str::from_utf8) {
            Some(Ok(name)) => name.to_owned(),
            _ => return Err(bad("not a name".to_owned())),
        };
        let mut r = Reader::new(body);
        match key.first() {
            Some(b'u') => {
                let user = user(&mut r, name).map_err(bad)?;
                self.users.insert(user.name.clone(), user);
            }
            Some(b'r') => {
                let role = role(&mut r, name).map_err(bad)?;
                self.roles.insert(role.name.clone(), role);
            }
            _ => {
                self.enabled = r.u8().map_err(early).map_err(bad)? != 0;
                self.revision = r.u64().map_err(early).map_err(bad)?;
            }
        }
        match r.remaining() {
            0 => Ok(()),
            left => Err(bad(format!("{left} bytes too long"))),
        }
    }

    /// Unites what everybody may do, once all rows are in.
    pub(crate) fn restored(&mut self) {
        let users: Vec<_> = self.users.keys().cloned().collect();
        for user in users {
            self.unite(&user);
        }
    }
}

fn early(error: WireError) -> String {
    format!("{error:?}")
}

fn put_user(out: &mut BytesMut, user: &User) {
    out.put_u8(u8::from(user.no_password));
    put_bytes(out, user.password.expose());
    put_u64(out, user.roles.len() as u64);
    for role in &user.roles {
        put_bytes(out, role.as_bytes());
    }
}

fn user(r: &mut Reader, name: String) -> Result<User, String> {
    let no_password = r.u8().map_err(early)? != 0;
    let password = Secret::new(r.bytes().map_err(early)?);
    let mut roles = Vec::new();
    for _ in 0..r.u64().map_err(early)? {
        let role = r.bytes().map_err(early)?;
        let role = std::str::from_utf8(&role).map_err(|error| error.to_string())?;
        roles.push(role.to_owned());
    }
    Ok(User {
        name,
        password,
        no_password,
        roles,
    })
}

fn put_role(out: &mut BytesMut, role: &Role) {
    put_u64(out, role.permissions.len() as u64);
    for permission in &role.permissions {
        out.put_u8(permission.kind as u8);
        put_bytes(out, &permission.key);
        put_bytes(out, &permission.range_end);
    }
}

fn role(r: &mut Reader, name: String) -> Result<Role, String> {
    let mut permissions = Vec::new();
    for _ in 0..r.u64().map_err(early)? {
        let kind = r.u8().map_err(early)?;
        permissions.push(Permission {
            kind: PermissionKind::from_i32(i32::from(kind))
                .ok_or_else(|| format!("unknown kind of permission {kind}"))?,
            key: r.bytes().map_err(early)?,
            range_end: r.bytes().map_err(early)?,
        });
    }
    Ok(Role { name, permissions })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> AuthImage {
        let permission = |key: &'static str| Permission {
            kind: PermissionKind::ReadWrite,
            key: Bytes::from_static(key.as_bytes()),
            range_end: Bytes::from_static(b"\0"),
        };
        AuthImage {
            enabled: true,
            revision: 9,
            users: vec![
                User {
                    name: "ann".to_owned(),
                    password: Secret::new("$2a$10$hash"),
                    no_password: false,
                    roles: vec!["a".to_owned(), "b".to_owned()],
                },
                User {
                    name: "root".to_owned(),
                    no_password: true,
                    ..User::default()
                },
            ],
            roles: vec![Role {
                name: "a".to_owned(),
                permissions: vec![permission("k"), permission("m")],
            }],
        }
    }

    fn restore(rows: Vec<(Bytes, Bytes)>) -> Result<AuthStore, BackendError> {
        let mut store = AuthStore::default();
        for (key, row) in rows {
            store.restore_row(&key, row)?;
        }
        store.restored();
        Ok(store)
    }

    #[test]
    fn an_image_survives_its_rows() {
        assert_eq!(restore(image().rows()).unwrap().image(), image());
    }

    #[test]
    fn an_image_is_put_in_order() {
        let mut mixed = image();
        mixed.users.reverse();
        mixed.users[1].roles = vec!["b".to_owned(), "a".to_owned(), "b".to_owned()];
        mixed.roles[0].permissions.reverse();
        assert_eq!(restore(mixed.rows()).unwrap().image(), image());
        mixed.revision = 0;
        assert_eq!(restore(mixed.rows()).unwrap().revision(), 1);
    }

    #[test]
    fn a_damaged_row_is_not_taken() {
        for (key, row) in image().rows() {
            for at in 0..row.len() {
                let mut bad = row.to_vec();
                bad[at] ^= 0x10;
                let error = restore(vec![(key.clone(), Bytes::from(bad))]);
                assert!(error.is_err(), "{key:?} byte {at}");
                let cut = restore(vec![(key.clone(), row.slice(..at))]);
                assert!(cut.is_err(), "{key:?} cut at {at}");
            }
        }
    }

    #[test]
    fn a_hash_is_not_printed() {
        let shown = format!("{:?}", image());
        assert!(!shown.contains("hash"), "{shown}");
    }
}
