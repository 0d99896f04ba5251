//! What scripts can say about users and roles.
//!
//! `as ann` speaks as ann from then on, with a fresh look at who she is before each
//! command; `as ann rev=3` with one that grew old; `as nobody` with nothing shown;
//! `as internal` as the member itself. Quoted ends: `"0x00"` is no end.

use goldenscript::ArgumentConsumer;
use mvcc::*;

use super::speak::{bytes, flag, number, pos};
use super::{Member, Outcome, refused};

/// Is who speaks.
pub(super) enum Speaker {
    /// The member itself, never checked.
    Internal,
    /// A caller that showed nothing.
    Nobody,
    /// A user, as of an auth revision or of now.
    User(String, Option<u64>),
}

impl Member {
    /// Returns who speaks as proposals carry it.
    pub(super) fn identity(&self) -> Option<Identity> {
        match &self.speaker {
            Speaker::Internal => None,
            Speaker::Nobody => Some(Identity::nobody()),
            Speaker::User(name, revision) => Some(Identity::new(
                name.as_str(),
                revision.unwrap_or(self.machine.auth().revision()),
            )),
        }
    }

    /// Runs a read's check.
    pub(super) fn allowed(
        &self,
        check: impl FnOnce(&StateMachine, &Identity) -> Result<(), Error>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        match self.identity() {
            None => Ok(()),
            Some(who) => refused(check(&self.machine, &who)),
        }
    }
}

pub(super) fn run(m: &mut Member, verb: &str, args: &mut ArgumentConsumer<'_>) -> Outcome {
    match verb {
        "as" => {
            let revision = number(args, "rev")?;
            m.speaker = match pos(args)? {
                "internal" => Speaker::Internal,
                "nobody" => Speaker::Nobody,
                name => Speaker::User(name.to_owned(), (revision > 0).then_some(revision as u64)),
            };
            Ok(String::new())
        }
        "auth" => auth(m, args),
        "user" => user(m, args),
        "role" => role(m, args),
        _ => may(m, args),
    }
}

fn auth(m: &mut Member, args: &mut ArgumentConsumer<'_>) -> Outcome {
    let command = match pos(args)? {
        "status" => {
            let auth = m.machine.auth();
            return Ok(format!("on={} auth={}", auth.enabled(), auth.revision()));
        }
        "enable" => AuthCommand::Enable,
        "disable" => AuthCommand::Disable,
        _ => AuthCommand::Authenticate {
            user: pos(args)?.to_owned(),
            token: Secret::new("prefix"),
        },
    };
    m.apply(Command::Auth(command))
}

fn user(m: &mut Member, args: &mut ArgumentConsumer<'_>) -> Outcome {
    let verb = pos(args)?;
    let name = args.next_pos().unwrap_or_default().to_owned();
    let command = match verb {
        "list" => {
            let names: Vec<_> = m.machine.auth().users().map(|user| &user.name).collect();
            return Ok(format!("{names:?}"));
        }
        "get" => {
            m.allowed(|m, who| m.auth().check_user_get(who, &name))?;
            let user = refused(m.machine.auth().user(&name))?;
            let password = std::str::from_utf8(user.password.expose())?;
            return Ok(format!(
                "roles={:?} password={password:?} no_password={}",
                user.roles, user.no_password
            ));
        }
        "add" => AuthCommand::UserAdd {
            name,
            no_password: flag(args, "no_password")?,
            password: Secret::new(bytes(args.next_pos().unwrap_or_default())),
        },
        "delete" => AuthCommand::UserDelete { name },
        "passwd" => AuthCommand::UserChangePassword {
            name,
            password: Secret::new(bytes(pos(args)?)),
        },
        "grant" => AuthCommand::UserGrantRole {
            user: name,
            role: pos(args)?.to_owned(),
        },
        _ => AuthCommand::UserRevokeRole {
            user: name,
            role: pos(args)?.to_owned(),
        },
    };
    m.apply(Command::Auth(command))
}

fn role(m: &mut Member, args: &mut ArgumentConsumer<'_>) -> Outcome {
    let verb = pos(args)?;
    let name = args.next_pos().unwrap_or_default().to_owned();
    let command = match verb {
        "list" => {
            let names: Vec<_> = m.machine.auth().roles().map(|role| &role.name).collect();
            return Ok(format!("{names:?}"));
        }
        "get" => {
            m.allowed(|m, who| m.auth().check_role_get(who, &name))?;
            let permissions = refused(m.machine.auth().permissions(&name))?;
            return Ok(permissions.iter().map(permission).collect());
        }
        "add" => AuthCommand::RoleAdd { name },
        "delete" => AuthCommand::RoleDelete { name },
        "grant" => AuthCommand::RoleGrantPermission {
            role: name,
            permission: match args.next_pos() {
                None => None,
                Some(kind) => Some(Permission {
                    kind: match kind {
                        "read" => PermissionKind::Read,
                        "write" => PermissionKind::Write,
                        _ => PermissionKind::ReadWrite,
                    },
                    key: bytes(pos(args)?),
                    range_end: bytes(args.next_pos().unwrap_or_default()),
                }),
            },
        },
        _ => AuthCommand::RoleRevokePermission {
            role: name,
            key: bytes(pos(args)?),
            range_end: bytes(args.next_pos().unwrap_or_default()),
        },
    };
    m.apply(Command::Auth(command))
}

fn permission(p: &Permission) -> String {
    format!(
        "{:?} {} {}\n",
        p.kind,
        p.key.escape_ascii(),
        p.range_end.escape_ascii()
    )
}

/// Asks for one of the checks reads make.
fn may(m: &mut Member, args: &mut ArgumentConsumer<'_>) -> Outcome {
    let what = pos(args)?;
    match what {
        "be-root" => m.allowed(|m, who| m.auth().check_root(who))?,
        "be-user" => m.allowed(|m, who| m.auth().check_user(who))?,
        "renew" | "see-lease" => {
            let id = pos(args)?.parse()?;
            m.allowed(|m, who| match what {
                "renew" => m.check_lease_write(who, id),
                _ => m.check_lease_read(who, id),
            })?;
        }
        _ => {
            let access = match what {
                "read" => Access::Read,
                _ => Access::Write,
            };
            let (key, end) = (
                bytes(pos(args)?),
                bytes(args.next_pos().unwrap_or_default()),
            );
            m.allowed(|m, who| m.auth().check_keys(who, access, &key, &end))?;
        }
    }
    Ok("yes".to_owned())
}
