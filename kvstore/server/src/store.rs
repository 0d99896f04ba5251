//! Reading a member's data back, and giving a new or older one its beginning.
//!
//! ```text
//! new        rows with the first members, after BOOTSTRAP_INDEX -> pointer -> log
//! joining    nothing: the leader sends it all
//! older      what the log holds is applied and written back, then the member is named
//! forced     what is committed is applied and written back, then the others are gone
//! ```
//!
//! Each of them may be interrupted anywhere and is then done again.

use std::{path::PathBuf, sync::Arc};

use disk::{Base, DataDir, Identity, Options, RealDisk, Rows, RowsHome, Wal};
use member::{EntryKind, HardState, Recovered};
use mvcc::{BOOTSTRAP_INDEX, BOOTSTRAP_TERM, MemberInfo, Membership, StateMachine};

use crate::{
    config::{Config, StartError},
    identity::Ids,
};

/// Bytes of one batch where everything is written back at once.
const WRITEBACK_BYTES: usize = 8 << 20;

/// Says how a store without data begins.
#[derive(Clone, Debug)]
pub(crate) enum Beginning {
    /// As one of the first members of a new cluster.
    New(Membership),
    /// As a member that others took in.
    Joining,
}

/// Where a member's data is: a directory that it holds, or a simulated one.
#[derive(Debug)]
pub(crate) struct Place {
    /// What the log is written to.
    pub(crate) disk: Arc<dyn disk::Disk>,
    /// The directory of the log.
    pub(crate) wal: PathBuf,
    /// The directory of the rows that count.
    pub(crate) rows: PathBuf,
    /// The way to let other rows count.
    pub(crate) home: RowsHome,
}

impl Place {
    /// Returns where the data of a directory is.
    pub(crate) fn of(dir: &DataDir, config: &Config) -> Self {
        Self {
            disk: match config.unsafe_no_fsync {
                false => Arc::new(RealDisk),
                true => Arc::new(disk::Unsynced(RealDisk)),
            },
            wal: dir.wal(),
            rows: dir.rows(),
            home: dir.home(),
        }
    }
}

/// Everything of a member that is on disk.
pub(crate) struct Store {
    pub(crate) rows: Rows,
    pub(crate) machine: StateMachine,
    pub(crate) wal: Wal,
    pub(crate) recovered: Recovered,
}

impl Store {
    /// Opens the store of a place, making it if there is none.
    pub(crate) fn open(
        config: &Config,
        ids: Ids,
        place: &Place,
        beginning: Beginning,
    ) -> Result<Self, StartError> {
        let rows = place.home.open_rows(&place.rows)?;
        let mut machine = open_machine(config, &rows)?;
        let unused = Wal::identity(&*place.disk, &place.wal)?.is_none();
        if unused {
            begin(place, &rows, &mut machine, beginning)?;
        }
        let options = Options {
            identity: Identity {
                cluster_id: ids.cluster,
                member_id: ids.member,
            },
            segment_bytes: config.wal_segment_bytes,
        };
        let disk = Arc::clone(&place.disk);
        let (wal, replayed) = Wal::open_behind(disk, &place.wal, options, &place.home)?;
        let mut store = Self {
            rows,
            machine,
            wal,
            recovered: replayed.recovered,
        };
        store.check_rows(config, place)?;
        store.check_entries(config)?;
        if !unused && store.machine.membership().is_empty() && !store.waits_for_snapshot() {
            store.name_the_member(config, ids)?;
        }
        if config.force_new_cluster && !unused {
            store.stand_alone(config, ids)?;
        }
        Ok(store)
    }

    /// Refuses rows that lost what they began with: the engine gives back an earlier
    /// state, or none, where one of its files is damaged. What they lost is read again
    /// from the log, if that still holds it; if not, they are refused.
    fn check_rows(&self, config: &Config, place: &Place) -> Result<(), StartError> {
        let applied = self.machine.applied_index();
        let began = place
            .home
            .pointer()?
            .map_or(0, |pointer| pointer.base.index);
        let log = self.recovered.base_index;
        if applied >= began.max(log) {
            return Ok(());
        }
        let (rows, wal) = (&place.rows, &place.wal);
        let reason = format!(
            "the rows in {} are the state after entry {applied}, but had come after entry {began} \
             and the log in {} begins behind entry {log}: the rows are damaged",
            rows.display(),
            wal.display()
        );
        Err(StartError::Backend {
            dir: config.data_dir.clone(),
            source: mvcc::BackendError::Io(reason),
        })
    }

    /// Reports whether it joined and was sent nothing yet. The log of a store of an
    /// older build begins with entries.
    fn waits_for_snapshot(&self) -> bool {
        self.machine.applied_index() == 0 && self.recovered.last_index() == 0
    }

    /// Refuses a log with an entry this version cannot read, before anything is applied.
    fn check_entries(&self, config: &Config) -> Result<(), StartError> {
        let applied = self.machine.applied_index();
        for entry in &self.recovered.entries {
            let normal = entry.kind == EntryKind::Normal;
            if entry.index > applied && normal && !entry.data.is_empty() {
                mvcc::Proposal::decode(entry.data.clone()).map_err(|source| StartError::Entry {
                    dir: config.data_dir.clone(),
                    index: entry.index,
                    source,
                })?;
            }
        }
        Ok(())
    }

    /// Gives a store of a build that knew no members its one member. All its log is
    /// applied first, and the log then begins behind it: whoever joins is sent the
    /// state, and no entry from before there were members.
    fn name_the_member(&mut self, config: &Config, ids: Ids) -> Result<(), StartError> {
        // A lone voter's entries are committed when they are on its disk.
        self.apply_up_to(config, u64::MAX)?;
        let base = self.base();
        self.wal.append_snapshot(base.index, base.term)?;
        self.wal.flush(true)?;
        self.recovered.base_index = base.index;
        self.recovered.base_term = base.term;
        let member = MemberInfo {
            id: ids.member,
            name: config.name.clone(),
            peer_urls: config.initial_advertise_peer_urls.clone(),
            ..MemberInfo::default()
        };
        let named = self
            .machine
            .name_members(Membership::new(ids.cluster, [member]));
        self.rows.write(&named)?;
        self.rows.flush()?;
        tracing::info!(
            index = base.index,
            "took over a store of a version that knew no members"
        );
        Ok(())
    }

    /// Makes the member the only one of its cluster, which keeps its id and all that
    /// was committed. What was not is dropped, and the others are removed for good
    /// (etcd: bootstrap, `--force-new-cluster`).
    fn stand_alone(&mut self, config: &Config, ids: Ids) -> Result<(), StartError> {
        if self.machine.membership().is_empty() {
            return Err(StartError::Flag {
                flag: "force-new-cluster",
                reason: format!(
                    "{} holds nothing of a cluster yet, so none can be made of it",
                    config.data_dir.display()
                ),
            });
        }
        let last = self.recovered.last_index();
        self.apply_up_to(config, self.recovered.hard_state.commit)?;
        let conf = self.machine.membership().conf_state();
        if conf.voters == [ids.member] && conf.voters_outgoing.is_empty() {
            // What a lone voter wrote was committed by that, written down or not.
            self.apply_up_to(config, last)?;
        }
        let before = self.machine.membership().members().len();
        self.machine.stand_alone(ids.member);
        write_everything_back(&mut self.machine, &self.rows)?;
        let base = self.base();
        let hard_state = HardState {
            commit: base.index,
            ..self.recovered.hard_state
        };
        self.wal.reset(base, Some(&hard_state))?;
        self.recovered = Recovered {
            hard_state,
            base_index: base.index,
            base_term: base.term,
            entries: Vec::new(),
        };
        tracing::warn!(
            removed = before - 1,
            dropped = last.saturating_sub(base.index),
            "forced a new cluster of this member alone"
        );
        Ok(())
    }

    /// Returns the entry that the rows are the state after.
    fn base(&self) -> Base {
        Base {
            index: self.machine.applied_index(),
            term: self.machine.applied_term(),
        }
    }

    /// Applies what the log holds, up to an index, and brings it all to the rows.
    /// Nobody watches, and raft hears nothing: who votes is decided afterwards.
    fn apply_up_to(&mut self, config: &Config, index: u64) -> Result<(), StartError> {
        let applied = self.machine.applied_index();
        let mut entries = std::mem::take(&mut self.recovered.entries);
        let rest = entries.partition_point(|entry| entry.index <= index);
        self.recovered.entries = entries.split_off(rest);
        entries.retain(|entry| entry.index > applied);
        for entry in entries {
            let (index, term) = (entry.index, entry.term);
            let data = match entry.kind {
                EntryKind::Normal => Ok(entry.data),
                _ => member::decode_change(&entry).map(|change| change.context),
            };
            let data = data.map_err(|error| StartError::Change {
                dir: config.data_dir.clone(),
                index,
                reason: error.to_string(),
            })?;
            if data.is_empty() {
                self.machine.advance(index, term);
                continue;
            }
            let proposal = mvcc::Proposal::decode(data).map_err(|source| StartError::Entry {
                dir: config.data_dir.clone(),
                index,
                source,
            })?;
            match entry.kind {
                EntryKind::Normal => {
                    let applied = self.machine.apply(index, term, proposal);
                    applied.map_err(|source| StartError::Backend {
                        dir: config.data_dir.clone(),
                        source,
                    })?;
                }
                _ => {
                    let kept = self.machine.membership().conf_state().clone();
                    self.machine
                        .apply_change(index, term, proposal, |_| Some(kept));
                }
            }
            if self.machine.dirty_bytes() >= WRITEBACK_BYTES {
                write_everything_back(&mut self.machine, &self.rows)?;
            }
        }
        Ok(write_everything_back(&mut self.machine, &self.rows)?)
    }
}

/// Gives a store that was never used its first rows. The log comes after them, and
/// until there is one all this is done again.
fn begin(
    place: &Place,
    rows: &Rows,
    machine: &mut StateMachine,
    beginning: Beginning,
) -> Result<(), StartError> {
    let Beginning::New(membership) = beginning else {
        return Ok(());
    };
    if machine.applied_index() > BOOTSTRAP_INDEX {
        return Err(StartError::Flag {
            flag: "data-dir",
            reason: format!(
                "the rows in {} are the state after entry {}, but there is no log in {}; the log \
                 they came with must be there",
                place.rows.display(),
                machine.applied_index(),
                place.wal.display()
            ),
        });
    }
    let batch = machine.bootstrap(membership);
    rows.write(&batch)?;
    rows.flush()?;
    let base = Base {
        index: BOOTSTRAP_INDEX,
        term: BOOTSTRAP_TERM,
    };
    Ok(place.home.adopt(&place.rows, base)?)
}

pub(crate) fn open_machine(config: &Config, rows: &Rows) -> Result<StateMachine, StartError> {
    let machine_config = mvcc::Config {
        // etcd: lease, minLeaseTTL = ceil(3 * election ticks / 2 * heartbeat).
        lease_ttl_min: i64::try_from((config.election_timeout * 3 / 2).as_millis().div_ceil(1000))
            .unwrap_or(2),
        learners_max: config.max_learners,
        block_bytes: config.write_behind.block_bytes,
        window_bytes: config.write_behind.window_bytes,
        ..mvcc::Config::default()
    };
    StateMachine::open(Box::new(rows.clone()), machine_config).map_err(|source| {
        StartError::Backend {
            dir: config.data_dir.clone(),
            source,
        }
    })
}

/// Turns raft's configuration as it is kept into raft's own.
pub(crate) fn for_raft(c: &mvcc::ConfState) -> member::ConfState {
    member::ConfState {
        voters: c.voters.clone(),
        learners: c.learners.clone(),
        voters_outgoing: c.voters_outgoing.clone(),
        learners_next: c.learners_next.clone(),
        auto_leave: c.auto_leave,
    }
}

/// Turns raft's configuration into the form in which it is kept.
pub(crate) fn to_keep(c: member::ConfState) -> mvcc::ConfState {
    mvcc::ConfState {
        voters: c.voters,
        learners: c.learners,
        voters_outgoing: c.voters_outgoing,
        learners_next: c.learners_next,
        auto_leave: c.auto_leave,
    }
}

/// Brings all that was applied to the rows, durably.
pub(crate) fn write_everything_back(
    machine: &mut StateMachine,
    rows: &Rows,
) -> Result<(), disk::DiskError> {
    while let Some(job) = machine.take_writeback(WRITEBACK_BYTES) {
        let (batch, written) = job.pack();
        rows.write(&batch)?;
        machine.writeback_done(written);
    }
    rows.flush()
}

#[cfg(test)]
mod test;
