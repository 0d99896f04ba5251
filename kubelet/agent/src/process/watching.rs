//! Noticing that a shim ended: its pidfd becomes readable. Then it is reaped,
//! here and nowhere else, and its container is settled.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::runtime::ContainerRun;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};

use super::{Shared, blocking, sweep};
use crate::container_dir::ShimRecord;
use crate::proc;

/// How often a shim is looked at whose pidfd cannot be watched.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Watches a shim this agent started until it ends, reaps it, then settles its
/// container.
pub(super) fn watch(shared: Arc<Shared>, id: String, shim: OwnedFd) {
    tokio::spawn(async move {
        ended(shim).await;
        settle(&shared, &id).await;
    });
}

/// Watches a shim an earlier agent started in the same way.
pub(super) fn adopt(shared: Arc<Shared>, id: String, shim: ShimRecord) {
    tokio::spawn(async move {
        loop {
            match open(&shim) {
                Ok(Some(shim)) => break ended(shim).await,
                Ok(None) => break,
                // Out of descriptors: a shim that may live is not settled.
                Err(error) => {
                    tracing::warn!(pid = shim.pid, %error, "cannot watch a shim yet");
                    tokio::time::sleep(LOOK_PERIOD).await;
                }
            }
        }
        settle(&shared, &id).await;
    });
}

/// Opens the shim of a record, `None` if it has ended. A pidfd names one
/// process for good, so once opened and compared with the start time there is
/// no mistaking it.
fn open(shim: &ShimRecord) -> rustix::io::Result<Option<OwnedFd>> {
    let Some(pid) = Pid::from_raw(shim.pid) else {
        return Ok(None);
    };
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => {
            let stat = proc::stat(shim.pid);
            let same = stat.is_some_and(|stat| stat.start_ticks == shim.start_ticks);
            Ok(same.then_some(pidfd))
        }
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits until the process has ended and reaps it.
async fn ended(pidfd: OwnedFd) {
    // The copy is watched: a descriptor handed to the event loop is not given back.
    match pidfd.try_clone().and_then(proc::watch_readable) {
        Ok(watched) => {
            let _readable = watched.readable().await;
        }
        Err(error) => {
            tracing::warn!(%error, "cannot watch a shim; it is looked at every second");
            while is_alive(&pidfd) {
                tokio::time::sleep(LOOK_PERIOD).await;
            }
        }
    }
    // The agent is the parent of the shims it started itself; of others it is not.
    let _not_ours = rustix::process::waitid(
        WaitId::PidFd(pidfd.as_fd()),
        WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
    );
}

fn is_alive(pidfd: &OwnedFd) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&at_once)) == Ok(0)
}

/// Records how a container ended and tells the agent, once.
pub(super) async fn settle(shared: &Arc<Shared>, id: &str) {
    let found = {
        let table = shared.table();
        table
            .get(id)
            .map(|e| (e.dir.clone(), Arc::clone(&e.spec), e.run.clone()))
    };
    let Some((dir, spec, run)) = found else {
        return;
    };
    if matches!(run, ContainerRun::Exited(_)) {
        return;
    }
    match blocking(move || sweep::settle_dead(&dir, &spec)).await {
        Ok(exit) => {
            if let Some(entry) = shared.table().get_mut(id) {
                entry.refresh();
                entry.ended(exit);
            }
            shared.announce(id);
        }
        Err(error) => tracing::error!(id, %error, "cannot record how a container ended"),
    }
}
