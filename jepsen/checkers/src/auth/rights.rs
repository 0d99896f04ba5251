//! Who may do what: users, their roles, and the ranges of keys these are given.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::history::{AuthChange, Blob, Request};

/// Is what a request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Need {
    key: Blob,
    end: Blob,
    write: bool,
}

impl Need {
    pub(super) fn read(key: &Blob, end: &Blob) -> Self {
        Self {
            key: key.clone(),
            end: end.clone(),
            write: false,
        }
    }

    pub(super) fn write(key: &Blob, end: &Blob) -> Self {
        Self {
            write: true,
            ..Self::read(key, end)
        }
    }
}

/// May read, may write.
type Kind = (bool, bool);

/// Is one state of the rights.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rights {
    enabled: bool,
    users: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    roles: BTreeMap<Arc<str>, BTreeMap<(Blob, Blob), Kind>>,
}

impl Rights {
    /// Is the state after a change.
    pub(super) fn after(mut self, request: &Request) -> Self {
        self.change(request);
        self
    }

    pub(super) fn change(&mut self, request: &Request) {
        let Request::Auth(change) = request else {
            return;
        };
        match change {
            AuthChange::Enable => self.enabled = true,
            AuthChange::Disable => self.enabled = false,
            AuthChange::AddUser(user) => {
                self.users.entry(user.clone()).or_default();
            }
            AuthChange::DeleteUser(user) => {
                self.users.remove(user);
            }
            AuthChange::ChangePassword(_) => {}
            AuthChange::AddRole(role) => {
                self.roles.entry(role.clone()).or_default();
            }
            AuthChange::DeleteRole(role) => {
                self.roles.remove(role);
                self.users.values_mut().for_each(|roles| {
                    roles.remove(role);
                });
            }
            AuthChange::GrantRole { user, role } => {
                self.users
                    .entry(user.clone())
                    .or_default()
                    .insert(role.clone());
            }
            AuthChange::RevokeRole { user, role } => {
                if let Some(roles) = self.users.get_mut(user) {
                    roles.remove(role);
                }
            }
            AuthChange::GrantRange {
                role,
                key,
                end,
                read,
                write,
            } => {
                let ranges = self.roles.entry(role.clone()).or_default();
                ranges.insert((key.clone(), end.clone()), (*read, *write));
            }
            AuthChange::RevokeRange { role, key, end } => {
                if let Some(ranges) = self.roles.get_mut(role) {
                    ranges.remove(&(key.clone(), end.clone()));
                }
            }
        }
    }

    /// Says whether a user may.
    pub(super) fn allows(&self, user: &str, need: &Need) -> bool {
        if !self.enabled {
            return true;
        }
        let roles = self.users.get(user).into_iter().flatten();
        let ranges = roles.filter_map(|role| self.roles.get(role)).flatten();
        let mut ranges: Vec<_> = ranges
            .filter(|(_, (read, write))| if need.write { *write } else { *read })
            .map(|((key, end), _)| bounds(key, end))
            .collect();
        // Ranges that touch are one (etcd's unified range permissions).
        ranges.sort();
        let (mut at, to) = bounds(&need.key, &need.end);
        for (from, until) in ranges {
            if from <= at && until.as_ref().is_none_or(|until| *until > at) {
                match until {
                    None => return true,
                    Some(until) => at = until,
                }
            }
            if to.as_ref().is_some_and(|to| *to <= at) {
                return true;
            }
        }
        false
    }
}

/// Writes a range with both ends; without the second it goes on for ever.
fn bounds(key: &Blob, end: &Blob) -> (Vec<u8>, Option<Vec<u8>>) {
    let until = match &end[..] {
        [] => {
            let mut next = key.to_vec();
            next.push(0);
            Some(next)
        }
        [0] => None,
        end => Some(end.to_vec()),
    };
    (key.to_vec(), until)
}
