//! Who may do what: the checks of reads, and of commands as they are applied.
//!
//! The rules are those of etcd's auth applier (`server/etcdserver/apply/auth.go`)
//! and of its read paths (`v3_server.go`). Each asks for every key a request could
//! touch or tell of, whichever branch of a transaction will run.

use bytes::Bytes;

use super::{AuthCommand, AuthStore, Identity};
use crate::command::{Command, DeleteRangeRequest, LeaseId, PutRequest, RequestOp, TxnRequest};
use crate::error::Error;
use crate::machine::StateMachine;

/// Says what is to be done to keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Their values are told.
    Read,
    /// They are changed.
    Write,
}

impl AuthStore {
    /// Refuses a caller that may not do this to a whole range; `range_end` is as
    /// requests have it.
    pub fn check_keys(
        &self,
        who: &Identity,
        access: Access,
        key: &[u8],
        range_end: &[u8],
    ) -> Result<(), Error> {
        if !self.enabled {
            return Ok(());
        }
        if who.revision == 0 {
            return Err(Error::UserEmpty);
        }
        if who.revision < self.revision {
            return Err(Error::AuthOldRevision);
        }
        let name: &str = &who.user;
        let (Some(user), Some(grants)) = (self.users.get(name), self.grants.get(name)) else {
            return Err(Error::PermissionDenied);
        };
        let spans = match access {
            Access::Read => &grants.read,
            Access::Write => &grants.write,
        };
        match user.is_root() || spans.cover(key, range_end) {
            true => Ok(()),
            false => Err(Error::PermissionDenied),
        }
    }

    /// Refuses a caller that may not read a range.
    pub fn check_read(&self, who: &Identity, key: &[u8], range_end: &[u8]) -> Result<(), Error> {
        self.check_keys(who, Access::Read, key, range_end)
    }

    /// Refuses everybody without the role `root`. It asks what is so now, whatever
    /// the identity's revision, as etcd does.
    pub fn check_root(&self, who: &Identity) -> Result<(), Error> {
        if !self.enabled {
            return Ok(());
        }
        if who.user.is_empty() {
            return Err(Error::UserEmpty);
        }
        match self.user(&who.user)?.is_root() {
            true => Ok(()),
            false => Err(Error::PermissionDenied),
        }
    }

    /// Refuses a caller that showed nothing.
    pub fn check_user(&self, who: &Identity) -> Result<(), Error> {
        match self.enabled && who.user.is_empty() {
            true => Err(Error::UserEmpty),
            false => Ok(()),
        }
    }

    /// Lets everybody see themselves, and `root` see all.
    pub fn check_user_get(&self, who: &Identity, name: &str) -> Result<(), Error> {
        self.check_root(who)
            .or_else(|refused| (*who.user == *name).then_some(()).ok_or(refused))
    }

    /// Lets everybody see their roles, and `root` see all.
    pub fn check_role_get(&self, who: &Identity, role: &str) -> Result<(), Error> {
        let has = |user: &str| self.users.get(user).is_some_and(|user| user.has_role(role));
        self.check_root(who)
            .or_else(|refused| has(&who.user).then_some(()).ok_or(refused))
    }

    /// Refuses a caller that may not do this to every one of some keys.
    fn check_each(&self, who: &Identity, access: Access, keys: &[Bytes]) -> Result<(), Error> {
        if !self.enabled || self.check_root(who).is_ok() {
            return Ok(());
        }
        keys.iter()
            .try_for_each(|key| self.check_keys(who, access, key, b""))
    }
}

impl StateMachine {
    /// Returns users, roles and whether callers are checked.
    pub fn auth(&self) -> &AuthStore {
        &self.auth
    }

    /// Refuses a transaction of which any part, at any depth, is not permitted.
    pub fn check_txn(&self, who: &Identity, r: &TxnRequest) -> Result<(), Error> {
        if !self.auth.enabled() {
            return Ok(());
        }
        for c in &r.compare {
            // What comes out of a comparison tells of the value (CVE-2026-33343
            // was that nested ones were not looked at).
            self.auth.check_read(who, &c.key, &c.range_end)?;
        }
        for op in r.success.iter().chain(&r.failure) {
            match op {
                RequestOp::Range(q) => self.auth.check_read(who, &q.key, &q.range_end)?,
                RequestOp::Put(q) => self.check_put(who, q)?,
                RequestOp::DeleteRange(q) => self.check_delete(who, q)?,
                RequestOp::Txn(q) => self.check_txn(who, q)?,
                RequestOp::Empty => {}
            }
        }
        Ok(())
    }

    /// Refuses to renew or end a lease with a key the caller may not write.
    pub fn check_lease_write(&self, who: &Identity, id: LeaseId) -> Result<(), Error> {
        self.check_lease(who, Access::Write, id)
    }

    /// Refuses to tell of a lease with a key the caller may not read.
    pub fn check_lease_read(&self, who: &Identity, id: LeaseId) -> Result<(), Error> {
        self.check_lease(who, Access::Read, id)
    }

    fn check_lease(&self, who: &Identity, access: Access, id: LeaseId) -> Result<(), Error> {
        if !self.auth.enabled() {
            return Ok(());
        }
        // A lease without keys is anybody's, but not nobody's.
        self.auth.check_user(who)?;
        self.auth.check_each(who, access, &self.lessor.keys(id))
    }

    /// Refuses a command its proposer may not have carried out, as things are when
    /// it is applied.
    pub(crate) fn check_command(&self, who: &Identity, command: &Command) -> Result<(), Error> {
        if !self.auth.enabled() {
            return Ok(());
        }
        match command {
            Command::Put(r) => self.check_put(who, r),
            Command::DeleteRange(r) => self.check_delete(who, r),
            Command::Txn(r) => self.check_txn(who, r),
            Command::LeaseGrant(_) => self.auth.check_user(who),
            Command::LeaseRevoke(r) => self.check_lease_write(who, r.id),
            // Proposed by the store itself, on behalf of nobody.
            Command::LeaseCheckpoint(_) => Ok(()),
            Command::Auth(AuthCommand::Authenticate { .. }) => Ok(()),
            Command::Compact(_)
            | Command::AlarmActivate(_)
            | Command::AlarmDeactivate(_)
            | Command::Downgrade(_)
            | Command::Member(_)
            | Command::Auth(_) => self.auth.check_root(who),
        }
    }

    /// Asks for all keys of the lease too: who attaches a key to a lease decides
    /// with it when the others go.
    fn check_put(&self, who: &Identity, r: &PutRequest) -> Result<(), Error> {
        self.auth.check_keys(who, Access::Write, &r.key, b"")?;
        if r.lease != 0 {
            self.check_lease_write(who, r.lease)?;
        }
        match r.prev_kv {
            true => self.auth.check_read(who, &r.key, b""),
            false => Ok(()),
        }
    }

    fn check_delete(&self, who: &Identity, r: &DeleteRangeRequest) -> Result<(), Error> {
        self.auth
            .check_keys(who, Access::Write, &r.key, &r.range_end)?;
        match r.prev_kv {
            true => self.auth.check_read(who, &r.key, &r.range_end),
            false => Ok(()),
        }
    }
}
