//! Watching the room left on disk, so that a full disk closes the store for writes
//! before it ends the process.
//!
//! A member that cannot write its log must stop. Where that would leave no quorum,
//! whoever leads raises NOSPACE first: writes are refused while there still is room to
//! compact, to delete and to serve. As long as the members with room are a quorum the
//! cluster goes on without the full one, which only says so in its log; etcd has no
//! such check, and its alarm is about `--quota-backend-bytes` alone.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use mvcc::{Alarm, AlarmKind};

use crate::{handle::Handle, rpc_error::RpcError};

/// How often the room is measured, and the members are asked about theirs.
const INTERVAL: Duration = Duration::from_secs(1);

/// How much room there is to be by default: what may be queued to be written behind
/// the log, at most.
const RESERVE_BYTES: u64 = 256 << 20;

/// On a small file system the reserve is this part of it.
const RESERVE_PART: u64 = 8;

/// What one file system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    free: u64,
    total: u64,
}

impl Room {
    fn of(path: &Path) -> std::io::Result<Self> {
        let found = rustix::fs::statvfs(path)?;
        Ok(Self {
            free: found.f_bavail.saturating_mul(found.f_frsize),
            total: found.f_blocks.saturating_mul(found.f_frsize),
        })
    }

    fn is_low(self, reserve: Option<u64>) -> bool {
        self.free < reserve.unwrap_or((self.total / RESERVE_PART).min(RESERVE_BYTES))
    }
}

/// Whether a voter has room; none if it does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    member: u64,
    low: Option<bool>,
}

/// Returns the voters to raise the alarm for: all that are low, if those that are known
/// to have room are no quorum.
fn to_alarm(voters: &[Said]) -> Vec<u64> {
    let quorum = voters.len() / 2 + 1;
    let with_room = voters.iter().filter(|v| v.low == Some(false)).count();
    if with_room >= quorum {
        return Vec::new();
    }
    let low = voters.iter().filter(|voter| voter.low == Some(true));
    low.map(|voter| voter.member).collect()
}

/// Looks from time to time, as long as this member runs.
pub(crate) async fn watch(handle: Handle) {
    let config = &handle.shared.config;
    if config.disk_reserve_bytes == Some(0) {
        return;
    }
    let mut paths = vec![config.data_dir.clone()];
    paths.extend(config.wal_dir.clone());
    loop {
        let low = measure(paths.clone(), config.disk_reserve_bytes).await;
        if handle.shared.note_room(low) != low {
            match low {
                true => tracing::error!(
                    data_dir = %config.data_dir.display(),
                    "the disk is nearly full: a member that cannot write its log stops"
                ),
                false => tracing::info!("the disk has room again"),
            }
        }
        if let Err(error) = raise_alarms(&handle, low).await {
            tracing::warn!(%error, "the alarm for want of space could not be raised");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Says whether one of the directories has little room left. A disk that does not
/// answer holds up nothing but the next look.
async fn measure(paths: Vec<PathBuf>, reserve: Option<u64>) -> bool {
    let measured = tokio::task::spawn_blocking(move || {
        let rooms = paths.iter().map(|path| Room::of(path));
        rooms.flatten().any(|room| room.is_low(reserve))
    });
    measured.await.unwrap_or(false)
}

/// Raises the alarm if this member leads and a quorum might be lost.
async fn raise_alarms(handle: &Handle, own_low: bool) -> Result<(), RpcError> {
    let (leads, voters, raised) = handle.shared.with(|core| {
        let voters = core.machine.membership().members();
        let voters: Vec<u64> = voters.filter(|m| !m.learner).map(|m| m.id).collect();
        (core.leads(), voters, core.machine.alarms())
    })?;
    if !leads {
        return Ok(());
    }
    let own = handle.shared.ids.member;
    let asked = voters.into_iter().map(async |member| {
        let low = match member == own {
            true => Some(own_low),
            false => ask(handle, member).await,
        };
        Said { member, low }
    });
    let said = futures::future::join_all(asked).await;
    for member in to_alarm(&said) {
        let alarm = Alarm {
            member,
            kind: AlarmKind::NoSpace,
        };
        if !raised.contains(&alarm) {
            tracing::error!(member = %format!("{member:x}"), "too few members have room on disk: closing the store for writes");
            handle.set_alarm(alarm, true).await?;
        }
    }
    Ok(())
}

async fn ask(handle: &Handle, member: u64) -> Option<bool> {
    let peers = handle.shared.peers.get()?;
    let asked = tokio::time::timeout(INTERVAL, peers.status(member)).await;
    Some(asked.ok()?.ok()?.low_on_disk)
}

#[cfg(test)]
mod test {
    use super::*;

    fn said(low: &[Option<bool>]) -> Vec<Said> {
        let numbered = (1..).zip(low);
        numbered
            .map(|(member, low)| Said { member, low: *low })
            .collect()
    }

    #[test]
    fn alone_it_is_closed_before_it_is_full() {
        assert_eq!(to_alarm(&said(&[Some(true)])), [1]);
        assert!(to_alarm(&said(&[Some(false)])).is_empty());
    }

    #[test]
    fn one_of_three_may_fill_up() {
        let (low, well, silent) = (Some(true), Some(false), None);
        assert!(to_alarm(&said(&[low, well, well])).is_empty());
        assert_eq!(to_alarm(&said(&[low, well, low])), [1, 3]);
        // The silent one may have stopped, so nobody else must.
        assert_eq!(to_alarm(&said(&[silent, low, well])), [2]);
        assert!(to_alarm(&said(&[silent, silent, well])).is_empty());
    }

    #[test]
    fn a_small_disk_needs_less_room() {
        let mib = |free: u64, total: u64| Room {
            free: free << 20,
            total: total << 20,
        };
        assert!(mib(255, 100_000).is_low(None));
        assert!(!mib(257, 100_000).is_low(None));
        assert!(mib(20, 192).is_low(None));
        assert!(!mib(25, 192).is_low(None));
        assert!(!mib(20, 192).is_low(Some(10 << 20)));
        assert!(Room::of(Path::new("/")).unwrap().total > 0);
    }
}
