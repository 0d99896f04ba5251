//! A new store from a history told in order: what a snapshot becomes.
//!
//! Changes come in revision order and leave as rows, a batch at a time, so
//! memory does not grow with the history. The state row is in the last batch: a
//! tree that lacks it does not open. What compaction had not deleted yet in the
//! old store may be among the changes; [`crate::StateMachine::open`] leaves it
//! out of sight and compaction deletes it.

use bytes::Bytes;
use thiserror::Error as ThisError;

use crate::backend::WriteBack;
use crate::block::{Builder, Record, row_key};
use crate::dedupe;
use crate::durable::{STATE_KEY, alarm_key, encode_state, meta_key};
use crate::key_index::Rev;
use crate::lessor;
use crate::machine::Durable;
use crate::values::Rows;
use crate::view::{Change, Facts};

/// Says why a change cannot follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
pub enum ImportError {
    /// The revisions do not ascend from 1.
    #[error("revision {main}.{sub} does not follow {last_main}.{last_sub}")]
    Order {
        /// The revision.
        main: i64,
        /// The place in it.
        sub: u32,
        /// The revision before.
        last_main: i64,
        /// The place in that.
        last_sub: u32,
    },
    /// A pair says that it was written at another revision.
    #[error("the pair at revision {main} says it was written at {found}")]
    Modified {
        /// Where it is.
        main: i64,
        /// What it says.
        found: i64,
    },
}

/// Says where a new store begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The log index that the rows are the state after, and its term.
    pub applied_index: u64,
    /// That entry's term.
    pub applied_term: u64,
    /// The compacted revision; -1 for none.
    pub compacted: i64,
    /// The store's revision, if it is above the last change's.
    pub revision: i64,
}

/// Builds the rows of a new store.
pub struct Import {
    block_bytes: usize,
    builder: Builder,
    last: Rev,
    rows: Rows,
    bytes: usize,
}

impl Import {
    /// Begins one, with blocks of some size.
    pub fn new(block_bytes: usize) -> Self {
        Self {
            block_bytes,
            builder: Builder::default(),
            last: Rev::default(),
            rows: Rows::new(),
            bytes: 0,
        }
    }

    /// Adds a change; its revision must be above the one before.
    ///
    /// A pair without a key is none: `etcdutl snapshot restore --bump-revision`
    /// leaves one to carry the revision it made up, and only that counts.
    pub fn push(&mut self, change: Change) -> Result<(), ImportError> {
        let rev = Rev::new(change.main, change.sub);
        if rev <= self.last || rev.main < 1 {
            return Err(ImportError::Order {
                main: rev.main,
                sub: rev.sub,
                last_main: self.last.main,
                last_sub: self.last.sub,
            });
        }
        self.last = rev;
        let kv = change.kv;
        if kv.key.is_empty() {
            return Ok(());
        }
        if !change.tombstone && kv.mod_revision != rev.main {
            return Err(ImportError::Modified {
                main: rev.main,
                found: kv.mod_revision,
            });
        }
        let record = match change.tombstone {
            true => Record {
                key: kv.key,
                tombstone: true,
                ..Record::default()
            },
            false => Record {
                key: kv.key,
                value: kv.value,
                create: kv.create_revision,
                version: kv.version,
                lease: kv.lease,
                tombstone: false,
            },
        };
        self.builder.push(rev, &record);
        if self.builder.bytes() >= self.block_bytes {
            self.close_block();
        }
        Ok(())
    }

    /// Returns the main revision of the last change; 0 before the first.
    pub fn last_revision(&self) -> i64 {
        self.last.main
    }

    /// Counts the bytes of the rows that wait to be taken.
    pub fn waiting_bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the rows that wait, to be written as one batch.
    pub fn take_batch(&mut self) -> WriteBack {
        self.bytes = 0;
        WriteBack {
            token: 0,
            applied_index: 0,
            applied_term: 0,
            revision: 0,
            rows: std::mem::take(&mut self.rows),
        }
    }

    /// Ends the history; returns the last batch, with everything that is not
    /// history in it.
    pub fn finish(mut self, start: Start, facts: &Facts) -> WriteBack {
        let start = Start {
            revision: self
                .last
                .main
                .max(start.compacted)
                .max(start.revision)
                .max(1),
            ..start
        };
        for (key, row) in fact_rows(&start, facts, &[]) {
            self.push_row(key, row);
        }
        WriteBack {
            applied_index: start.applied_index,
            applied_term: start.applied_term,
            revision: start.revision,
            ..self.take_batch()
        }
    }

    /// Adds a row of what is not history. No change may follow.
    pub(crate) fn push_row(&mut self, key: Bytes, row: Bytes) {
        self.close_block();
        self.bytes += key.len() + row.len();
        self.rows.push((key, Some(row)));
    }

    fn close_block(&mut self) {
        if let Some((first, _, data)) = self.builder.finish() {
            self.bytes += data.len();
            self.rows.push((row_key(first), Some(data)));
        }
    }
}

impl Default for Start {
    fn default() -> Self {
        Self {
            applied_index: 0,
            applied_term: 0,
            compacted: -1,
            revision: 1,
        }
    }
}

/// Builds the rows of all that is not history; that of the state is the last.
pub(crate) fn fact_rows(
    start: &Start,
    facts: &Facts,
    recent: &[(u64, u64)],
) -> Vec<(Bytes, Bytes)> {
    let leases = facts.leases.iter().map(|lease| {
        let row = lessor::encode_row(lease.ttl, lease.remaining);
        (lessor::row_key(lease.id), row)
    });
    let alarms = facts
        .alarms
        .iter()
        .map(|alarm| (alarm_key(*alarm), Bytes::new()));
    let meta = facts
        .meta
        .iter()
        .map(|(name, row)| (meta_key(name), row.clone()));
    let mut rows: Vec<_> = leases.chain(alarms).chain(meta).collect();
    rows.extend(facts.auth.rows());
    rows.extend(facts.membership.rows());
    rows.extend(dedupe::rows_of(recent));
    let durable = Durable {
        token: 0,
        index: start.applied_index,
        term: start.applied_term,
        revision: start.revision,
        compacted: start.compacted,
    };
    let state = encode_state(&durable, recent.len() as u64);
    rows.push((Bytes::from_static(STATE_KEY), state));
    rows
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::auth::{AuthImage, User};
    use crate::backend::MemoryBackend;
    use crate::command::{
        Alarm, AlarmKind, Command, CompactRequest, DeleteRangeRequest, LeaseGrantRequest, Proposal,
        PutRequest,
    };
    use crate::machine::{Config, StateMachine};

    fn key(n: i64) -> Bytes {
        Bytes::from(format!("key{n}"))
    }

    fn example() -> StateMachine {
        let mut machine =
            StateMachine::open(Box::new(MemoryBackend::new()), Config::default()).unwrap();
        let mut commands = vec![
            Command::LeaseGrant(LeaseGrantRequest { id: 7, ttl: 100 }),
            Command::LeaseGrant(LeaseGrantRequest { id: -7, ttl: 50 }),
        ];
        for n in 0..300 {
            commands.push(Command::Put(PutRequest {
                key: key(n % 70),
                value: Bytes::from(vec![n as u8; 50]),
                lease: if n % 3 == 0 { 7 } else { 0 },
                ..PutRequest::default()
            }));
            if n % 20 == 0 {
                commands.push(delete(n % 70));
            }
            if n == 200 {
                commands.push(Command::Compact(CompactRequest {
                    revision: 150,
                    physical: false,
                }));
            }
        }
        commands.push(Command::AlarmActivate(Alarm {
            member: 8,
            kind: AlarmKind::NoSpace,
        }));
        for (index, command) in (1..).zip(commands) {
            apply(&mut machine, index, command);
        }
        machine
    }

    fn apply(machine: &mut StateMachine, id: u64, command: Command) -> i64 {
        let proposal = Proposal {
            id,
            since: None,
            identity: None,
            command,
        };
        let applied = machine.apply(id, 1, proposal).unwrap();
        applied.result.unwrap();
        applied.revision
    }

    fn delete(n: i64) -> Command {
        Command::DeleteRange(DeleteRangeRequest {
            key: key(n),
            ..DeleteRangeRequest::default()
        })
    }

    fn import(machine: &mut StateMachine, start: Start) -> StateMachine {
        let view = machine.view(Duration::ZERO);
        let mut facts = machine.facts();
        facts.meta.push(("m".to_owned(), Bytes::from_static(b"v")));
        facts.auth = AuthImage {
            revision: 5,
            users: vec![User {
                name: "ann".to_owned(),
                ..User::default()
            }],
            ..AuthImage::default()
        };
        let rows = MemoryBackend::new();
        let mut import = Import::new(500);
        for change in view.history() {
            import.push(change.unwrap()).unwrap();
            if import.waiting_bytes() > 2_000 {
                rows.write(&import.take_batch());
            }
        }
        rows.write(&import.finish(start, &facts));
        StateMachine::open(Box::new(rows), Config::default()).unwrap()
    }

    #[test]
    fn the_new_store_is_the_old_one() {
        let mut old = example();
        let start = Start {
            applied_index: 3,
            applied_term: 2,
            compacted: old.compact_revision(),
            revision: 0,
        };
        let new = import(&mut old, start);
        assert_eq!((new.applied_index(), new.applied_term()), (3, 2));
        assert_eq!(new.revision(), old.revision());
        assert_eq!(new.hash_kv(0), old.hash_kv(0));
        assert_eq!(new.hash_kv(170), old.hash_kv(170));
        assert_eq!(new.key_count(), old.key_count());
        assert_eq!(new.facts().leases, old.facts().leases);
        assert_eq!(new.lease_keys(7), old.lease_keys(7));
        assert_eq!(new.facts().alarms, old.facts().alarms);
        assert_eq!(new.facts().meta[0].1, "v");
        assert_eq!(new.facts().auth.users[0].name, "ann");
    }

    #[test]
    fn a_revision_above_the_last_is_kept() {
        let mut old = example();
        let start = Start {
            compacted: 9_000,
            revision: 9_000,
            ..Start::default()
        };
        let mut new = import(&mut old, start);
        assert_eq!((new.revision(), new.compact_revision()), (9_000, 9_000));
        assert_eq!(new.key_count(), old.key_count());
        let revision = apply(&mut new, 1, delete(1));
        assert_eq!(revision, 9_001);
    }

    #[test]
    fn disorder_is_refused() {
        let change = |main, sub, found| Change {
            main,
            sub,
            tombstone: false,
            kv: crate::response::KeyValue {
                key: key(1),
                mod_revision: found,
                ..Default::default()
            },
        };
        let mut import = Import::new(500);
        assert!(import.push(change(0, 1, 0)).is_err());
        import.push(change(5, 1, 5)).unwrap();
        let order = import.push(change(5, 1, 5)).unwrap_err();
        assert_eq!(order.to_string(), "revision 5.1 does not follow 5.1");
        let modified = import.push(change(6, 0, 5)).unwrap_err();
        assert_eq!(modified, ImportError::Modified { main: 6, found: 5 });
    }
}
