//! A data directory of ours from a snapshot, ours or etcd's.
//!
//! It is built beside its place and moved there when all of it is on disk, so an
//! interrupted restore leaves nothing that would start. What the snapshot says of
//! members is left out: the flags say who the new cluster is (etcdutl: trims the
//! membership). The rows are the state after an entry the log begins behind, as
//! etcdutl has it: a member that joins later is sent the state, not that entry.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use bbolt::{Db, ReadAt};
use disk::{Base, DataDir, Disk as _, Identity, Options, RealDisk, Rows, Wal};
use mvcc::{BOOTSTRAP_INDEX, BOOTSTRAP_TERM, Facts, Import, Membership, Start};

use super::{Progress, error::SnapshotError, file, schema};
use crate::{cli::named_members, config::Config, identity::Known, join};

/// Bytes of rows written as one batch.
const BATCH_BYTES: usize = 4 << 20;

/// Bytes of rows between two flushes, so that the engine does not hold them all.
const FLUSH_BYTES: usize = 64 << 20;

/// The entry that stands for all before the snapshot: that of a new cluster.
const BASE: Base = Base {
    index: BOOTSTRAP_INDEX,
    term: BOOTSTRAP_TERM,
};

/// Says what to restore, and as whom.
#[derive(Debug, Clone)]
pub struct Restore {
    /// The snapshot.
    pub file: PathBuf,
    /// The directory to make.
    pub data_dir: PathBuf,
    /// The member's name.
    pub name: String,
    /// The members of the new cluster, as `name=url,name=url`.
    pub initial_cluster: String,
    /// The token of the new cluster.
    pub initial_cluster_token: String,
    /// The member's peer URLs.
    pub initial_advertise_peer_urls: Vec<String>,
    /// Takes a file without its hash, or with another's.
    pub skip_hash_check: bool,
    /// Added to the last revision, so that no client sees it go back.
    pub bump_revision: u64,
    /// Marks all history up to the last revision as compacted.
    pub mark_compacted: bool,
}

/// Tells what was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The store's revision.
    pub revision: i64,
    /// The changes of its history.
    pub changes: u64,
    /// The leases.
    pub leases: usize,
    /// The users.
    pub users: usize,
}

/// Makes a data directory from a snapshot.
pub fn restore(order: &Restore, progress: &mut Progress<'_>) -> Result<Restored, SnapshotError> {
    order.check_flags()?;
    let (member, members) = order.member()?;
    check_unused(&order.data_dir)?;
    let (mut opened, size) = file::open(&order.file)?;
    if !order.skip_hash_check {
        file::check_hash(&order.file, &mut opened, size, &mut |done, total| {
            progress(done / 2, total);
        })?;
    }
    let db = file::database(&order.file, opened)?;
    let building = beside(&order.data_dir);
    if building.exists() {
        return Err(SnapshotError::Unfinished(building));
    }
    let built = order.build(&member, members, &db, &building, &mut |done| {
        let total = db.size();
        progress(total / 2 + done.min(total) / 2, total);
    });
    let moved = built.and_then(|restored| {
        settle(&building, &order.data_dir)?;
        Ok(restored)
    });
    if moved.is_err() {
        // What cannot be removed is named by the next attempt.
        let _left = fs::remove_dir_all(&building);
    }
    moved
}

/// Refuses a directory with something in it.
fn check_unused(dir: &Path) -> Result<(), SnapshotError> {
    let empty = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    match empty {
        true => Ok(()),
        false => Err(SnapshotError::DataDirInUse(dir.to_owned())),
    }
}

fn beside(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".restoring");
    dir.with_file_name(name)
}

/// Moves the finished directory to its place.
fn settle(from: &Path, to: &Path) -> Result<(), SnapshotError> {
    fs::rename(from, to).map_err(SnapshotError::io("rename to", to))?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    RealDisk
        .sync_dir(parent)
        .map_err(SnapshotError::io("sync", parent))
}

impl Restore {
    fn check_flags(&self) -> Result<(), SnapshotError> {
        let bumps = self.bump_revision > 0;
        if bumps != self.mark_compacted {
            let text = "--mark-compacted required if --bump-revision > 0";
            return Err(SnapshotError::Flag(text.to_owned()));
        }
        Ok(())
    }

    /// Finds out who the member will be; refuses flags that do not make sense.
    fn member(&self) -> Result<(Known, Membership), SnapshotError> {
        let mut config = Config::new(&self.data_dir);
        config.name = self.name.clone();
        config.initial_cluster = named_members(&self.initial_cluster)?;
        config.initial_cluster_token = self.initial_cluster_token.clone();
        config.initial_advertise_peer_urls = self.initial_advertise_peer_urls.clone();
        let beginning = join::new_cluster(&config)?;
        let known = Known::new(beginning.ids, &config.initial_advertise_peer_urls);
        Ok((known, beginning.membership(&[])))
    }

    fn build<R: ReadAt>(
        &self,
        member: &Known,
        members: Membership,
        db: &Db<R>,
        dir: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Restored, SnapshotError> {
        let dir = DataDir::open(dir)?;
        let rows = Rows::open(&dir.rows())?;
        let reader = Reader {
            path: &self.file,
            db,
        };
        let restored = reader.rows(&rows, members, self.bump_revision, progress)?;
        let options = Options {
            identity: Identity {
                cluster_id: member.ids.cluster,
                member_id: member.ids.member,
            },
            segment_bytes: disk::SEGMENT_BYTES,
        };
        let home = dir.home();
        home.adopt(&dir.rows(), BASE)?;
        // It begins behind the rows.
        drop(Wal::open_behind(
            Arc::new(RealDisk),
            &dir.wal(),
            options,
            &home,
        )?);
        member.note(&dir)?;
        Ok(restored)
    }
}

/// Reads etcd's buckets.
struct Reader<'a, R> {
    path: &'a Path,
    db: &'a Db<R>,
}

impl<R: ReadAt> Reader<'_, R> {
    fn rows(
        &self,
        rows: &Rows,
        members: Membership,
        bump: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Restored, SnapshotError> {
        let mut import = Import::new(mvcc::Config::default().block_bytes);
        let (mut changes, mut bytes, mut unflushed) = (0, 0, 0);
        self.each(schema::KEY, &mut |key, value| {
            let change = schema::change(key, value)?;
            import.push(change).map_err(|error| error.to_string())?;
            changes += 1;
            bytes += (key.len() + value.len()) as u64;
            if import.waiting_bytes() >= BATCH_BYTES {
                unflushed += import.waiting_bytes();
                rows.write(&import.take_batch())?;
                if unflushed >= FLUSH_BYTES {
                    unflushed = 0;
                    rows.flush()?;
                }
                progress(bytes);
            }
            Ok(())
        })?;
        let mut facts = self.facts()?;
        facts.membership = members;
        let start = self.start(import.last_revision(), bump)?;
        let last = import.finish(start, &facts);
        rows.write(&last)?;
        rows.flush()?;
        Ok(Restored {
            revision: last.revision,
            changes,
            leases: facts.leases.len(),
            users: facts.auth.users.len(),
        })
    }

    /// Finds where the new store begins. A compaction that was asked for counts,
    /// finished or not: etcd finishes it when it starts.
    fn start(&self, last: i64, bump: u64) -> Result<Start, SnapshotError> {
        let mut compacted = -1;
        self.each(schema::META, &mut |key, value| {
            if key == schema::SCHEDULED_COMPACT || key == schema::FINISHED_COMPACT {
                let mark = schema::main_revision(value);
                compacted = compacted.max(mark.ok_or("a compaction mark is not a revision")?);
            }
            Ok(())
        })?;
        let mut start = Start {
            applied_index: BASE.index,
            applied_term: BASE.term,
            compacted,
            revision: last.max(compacted).max(1),
        };
        if bump > 0 {
            let bumped = i64::try_from(bump)
                .ok()
                .and_then(|bump| start.revision.checked_add(bump));
            start.revision = bumped.ok_or_else(|| {
                SnapshotError::Flag(format!("--bump-revision: {bump} is too large"))
            })?;
            start.compacted = start.revision;
        }
        Ok(start)
    }

    fn facts(&self) -> Result<Facts, SnapshotError> {
        let mut facts = Facts::default();
        self.each(schema::LEASE, &mut |key, value| {
            facts.leases.push(schema::lease(key, value)?);
            Ok(())
        })?;
        self.each(schema::ALARM, &mut |key, _| {
            facts.alarms.extend(schema::alarm(key)?);
            Ok(())
        })?;
        let auth = &mut facts.auth;
        self.each(schema::AUTH, &mut |key, value| {
            if key == schema::AUTH_ENABLED {
                auth.enabled = value == [1];
            } else if key == schema::AUTH_REVISION {
                let revision = value.try_into().map(u64::from_be_bytes);
                auth.revision = revision.map_err(|_length| "the auth revision is no number")?;
            }
            Ok(())
        })?;
        self.each(schema::AUTH_USERS, &mut |_, value| {
            auth.users.push(schema::user(value)?);
            Ok(())
        })?;
        self.each(schema::AUTH_ROLES, &mut |_, value| {
            auth.roles.push(schema::role(value)?);
            Ok(())
        })?;
        Ok(facts)
    }

    /// Visits the pairs of a bucket; one that is not there is empty.
    fn each(&self, bucket: &'static str, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        let broken = |source| SnapshotError::Database {
            path: self.path.to_owned(),
            source,
        };
        let entries = self.db.bucket(bucket.as_bytes()).map_err(broken)?;
        let Some(mut entries) = entries else {
            return Ok(());
        };
        while let Some(entry) = entries.next_entry().map_err(broken)? {
            visit(entry.key, entry.value).map_err(|failed| match failed {
                Failed::Disk(error) => error.into(),
                Failed::Content(reason) => SnapshotError::Content {
                    path: self.path.to_owned(),
                    bucket,
                    reason,
                },
            })?;
        }
        Ok(())
    }
}

type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Failed> + 'a;

/// Says why a pair could not be taken.
enum Failed {
    Disk(disk::DiskError),
    Content(String),
}

impl From<disk::DiskError> for Failed {
    fn from(error: disk::DiskError) -> Self {
        Self::Disk(error)
    }
}

impl From<String> for Failed {
    fn from(reason: String) -> Self {
        Self::Content(reason)
    }
}

impl From<&str> for Failed {
    fn from(reason: &str) -> Self {
        Self::Content(reason.to_owned())
    }
}
