//! Auth commands in the log. The rules of [`crate::codec`] hold: a tag or a field is
//! never renumbered.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::AuthCommand;
use super::model::{Permission, PermissionKind, Secret};
use crate::codec::{CodecError, flag, unknown};
use crate::wire::{Reader, put_bytes};

/// Appends a command.
pub(crate) fn put_auth_command(out: &mut BytesMut, c: &AuthCommand) {
    match c {
        AuthCommand::Enable => out.put_u8(1),
        AuthCommand::Disable => out.put_u8(2),
        AuthCommand::Authenticate { user, token } => {
            put_parts(out, 3, &[user.as_bytes(), token.expose()]);
        }
        AuthCommand::UserAdd {
            name,
            password,
            no_password,
        } => {
            put_parts(out, 4, &[name.as_bytes(), password.expose()]);
            out.put_u8(u8::from(*no_password));
        }
        AuthCommand::UserDelete { name } => put_parts(out, 5, &[name.as_bytes()]),
        AuthCommand::UserChangePassword { name, password } => {
            put_parts(out, 6, &[name.as_bytes(), password.expose()]);
        }
        AuthCommand::UserGrantRole { user, role } => {
            put_parts(out, 7, &[user.as_bytes(), role.as_bytes()]);
        }
        AuthCommand::UserRevokeRole { user, role } => {
            put_parts(out, 8, &[user.as_bytes(), role.as_bytes()]);
        }
        AuthCommand::RoleAdd { name } => put_parts(out, 9, &[name.as_bytes()]),
        AuthCommand::RoleDelete { name } => put_parts(out, 10, &[name.as_bytes()]),
        AuthCommand::RoleGrantPermission { role, permission } => {
            put_parts(out, 11, &[role.as_bytes()]);
            out.put_u8(u8::from(permission.is_some()));
            if let Some(p) = permission {
                put_parts(out, p.kind as u8, &[&p.key, &p.range_end]);
            }
        }
        AuthCommand::RoleRevokePermission {
            role,
            key,
            range_end,
        } => put_parts(out, 12, &[role.as_bytes(), key, range_end]),
    }
}

fn put_parts(out: &mut BytesMut, tag: u8, parts: &[&[u8]]) {
    out.put_u8(tag);
    for part in parts {
        put_bytes(out, part);
    }
}

/// Reads a command.
pub(crate) fn auth_command(r: &mut Reader) -> Result<AuthCommand, CodecError> {
    Ok(match r.u8()? {
        1 => AuthCommand::Enable,
        2 => AuthCommand::Disable,
        3 => AuthCommand::Authenticate {
            user: name(r, "user")?,
            token: secret(r)?,
        },
        4 => AuthCommand::UserAdd {
            name: name(r, "user")?,
            password: secret(r)?,
            no_password: flag(r)?,
        },
        5 => AuthCommand::UserDelete {
            name: name(r, "user")?,
        },
        6 => AuthCommand::UserChangePassword {
            name: name(r, "user")?,
            password: secret(r)?,
        },
        7 => AuthCommand::UserGrantRole {
            user: name(r, "user")?,
            role: name(r, "role")?,
        },
        8 => AuthCommand::UserRevokeRole {
            user: name(r, "user")?,
            role: name(r, "role")?,
        },
        9 => AuthCommand::RoleAdd {
            name: name(r, "role")?,
        },
        10 => AuthCommand::RoleDelete {
            name: name(r, "role")?,
        },
        11 => AuthCommand::RoleGrantPermission {
            role: name(r, "role")?,
            permission: match flag(r)? {
                true => Some(permission(r)?),
                false => None,
            },
        },
        12 => AuthCommand::RoleRevokePermission {
            role: name(r, "role")?,
            key: copied(r)?,
            range_end: copied(r)?,
        },
        tag => return Err(unknown("auth command", u64::from(tag))),
    })
}

fn permission(r: &mut Reader) -> Result<Permission, CodecError> {
    let kind = r.u8()?;
    Ok(Permission {
        kind: PermissionKind::from_i32(i32::from(kind))
            .ok_or(unknown("kind of permission", u64::from(kind)))?,
        key: copied(r)?,
        range_end: copied(r)?,
    })
}

/// Reads bytes that will stay for long, without the rest of their entry.
fn copied(r: &mut Reader) -> Result<Bytes, CodecError> {
    Ok(Bytes::copy_from_slice(&r.bytes()?))
}

fn secret(r: &mut Reader) -> Result<Secret, CodecError> {
    Ok(Secret::new(copied(r)?))
}

/// Reads a name.
pub(crate) fn name(r: &mut Reader, what: &'static str) -> Result<String, CodecError> {
    let bytes = r.bytes()?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(CodecError::NotText(what)),
    }
}
