//! The store at one moment, written as etcd's database.

use std::io::{Seek, Write};

use bbolt::{WriteError, Writer};
use mvcc::{Facts, View};
use thiserror::Error;

use super::schema;
use crate::edge::plain::cluster_version;

/// Changes between two looks at whether anybody still waits.
const CHANGES_PER_LOOK: usize = 256;

/// Says why a store could not be written.
#[derive(Debug, Error)]
pub(super) enum ExportError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Read(#[from] mvcc::Error),
    #[error("nobody waits for it any more")]
    Unwanted,
}

/// Is one moment of the store.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) view: View,
    pub(crate) facts: Facts,
}

impl Moment {
    /// Writes it all, unless `wanted` says that it is not. Returns what it was
    /// written to, at its end, and its size.
    pub(super) fn write<W: Write + Seek>(
        &self,
        out: W,
        wanted: &dyn Fn() -> bool,
    ) -> Result<(W, u64), ExportError> {
        let mut writer = Writer::new(out)?;
        // Buckets and keys go in ascending order.
        self.alarms(&mut writer)?;
        self.auth(&mut writer)?;
        writer.bucket(schema::CLUSTER.as_bytes())?;
        writer.put(schema::CLUSTER_VERSION, cluster_version().as_bytes())?;
        self.history(&mut writer, wanted)?;
        self.leases(&mut writer)?;
        self.members(&mut writer)?;
        self.meta(&mut writer)?;
        Ok(writer.finish()?)
    }

    fn alarms<W: Write + Seek>(&self, writer: &mut Writer<W>) -> Result<(), ExportError> {
        writer.bucket(schema::ALARM.as_bytes())?;
        let mut rows: Vec<_> = self
            .facts
            .alarms
            .iter()
            .map(|a| schema::put_alarm(*a))
            .collect();
        rows.sort();
        for row in rows {
            writer.put(&row, b"")?;
        }
        Ok(())
    }

    fn auth<W: Write + Seek>(&self, writer: &mut Writer<W>) -> Result<(), ExportError> {
        writer.bucket(schema::AUTH.as_bytes())?;
        writer.put(schema::AUTH_ENABLED, &[u8::from(self.facts.auth.enabled)])?;
        writer.put(
            schema::AUTH_REVISION,
            &self.facts.auth.revision.to_be_bytes(),
        )?;
        writer.bucket(schema::AUTH_ROLES.as_bytes())?;
        let mut roles: Vec<_> = self.facts.auth.roles.iter().collect();
        roles.sort_by(|a, b| a.name.cmp(&b.name));
        for role in roles {
            writer.put(role.name.as_bytes(), &schema::put_role(role))?;
        }
        writer.bucket(schema::AUTH_USERS.as_bytes())?;
        let mut users: Vec<_> = self.facts.auth.users.iter().collect();
        users.sort_by(|a, b| a.name.cmp(&b.name));
        for user in users {
            writer.put(user.name.as_bytes(), &schema::put_user(user))?;
        }
        Ok(())
    }

    fn history<W: Write + Seek>(
        &self,
        writer: &mut Writer<W>,
        wanted: &dyn Fn() -> bool,
    ) -> Result<(), ExportError> {
        writer.bucket(schema::KEY.as_bytes())?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for (nth, change) in self.view.history().enumerate() {
            if nth.is_multiple_of(CHANGES_PER_LOOK) && !wanted() {
                return Err(ExportError::Unwanted);
            }
            let change = change?;
            key.clear();
            schema::put_revision(change.main, change.sub, change.tombstone, &mut key);
            value.clear();
            schema::put_pair(&change, &mut value);
            writer.put(&key, &value)?;
        }
        Ok(())
    }

    fn leases<W: Write + Seek>(&self, writer: &mut Writer<W>) -> Result<(), ExportError> {
        writer.bucket(schema::LEASE.as_bytes())?;
        let mut rows: Vec<_> = self.facts.leases.iter().map(schema::put_lease).collect();
        // A negative id comes after all others there.
        rows.sort();
        for (key, row) in rows {
            writer.put(&key, &row)?;
        }
        Ok(())
    }

    fn members<W: Write + Seek>(&self, writer: &mut Writer<W>) -> Result<(), ExportError> {
        writer.bucket(schema::MEMBERS.as_bytes())?;
        let members = &self.facts.membership;
        let mut rows: Vec<_> = members.members().map(schema::put_member).collect();
        rows.sort();
        for (key, row) in rows {
            writer.put(key.as_bytes(), row.as_bytes())?;
        }
        writer.bucket(schema::MEMBERS_REMOVED.as_bytes())?;
        let mut removed: Vec<_> = members.removed().map(schema::member_key).collect();
        removed.sort();
        for key in removed {
            writer.put(key.as_bytes(), schema::REMOVED)?;
        }
        Ok(())
    }

    fn meta<W: Write + Seek>(&self, writer: &mut Writer<W>) -> Result<(), ExportError> {
        writer.bucket(schema::META.as_bytes())?;
        let conf_state = schema::put_conf_state(self.facts.membership.conf_state());
        writer.put(schema::CONF_STATE, conf_state.as_bytes())?;
        let index = self.view.applied_index().to_be_bytes();
        writer.put(schema::CONSISTENT_INDEX, &index)?;
        // A view shows nothing that compaction took, so here it has finished.
        let compacted = self.view.compact_revision();
        if compacted > 0 {
            let mut mark = Vec::new();
            schema::put_revision(compacted, 0, false, &mut mark);
            writer.put(schema::FINISHED_COMPACT, &mark)?;
            writer.put(schema::SCHEDULED_COMPACT, &mark)?;
        }
        let term = self.view.applied_term().to_be_bytes();
        Ok(writer.put(schema::TERM, &term)?)
    }
}
