//! Noticing that a container ended: the shim's pidfd becomes readable.

use std::sync::Arc;

use kubelet_core::runtime::ContainerRun;
use rustix::process::{Pid, PidfdFlags, WaitOptions};

use super::{Shared, blocking, sweep};
use crate::container_dir::ShimRecord;
use crate::proc;

/// Watches one shim until it ends, then settles its container.
pub(super) fn watch(shared: Arc<Shared>, id: String, shim: ShimRecord) {
    tokio::spawn(async move {
        ended(&shim).await;
        settle(&shared, &id).await;
    });
}

/// Waits until the process has ended. A pidfd names one process for good, so
/// once opened and compared with the start time there is no mistaking it.
async fn ended(shim: &ShimRecord) {
    let Some(pid) = Pid::from_raw(shim.pid) else {
        return;
    };
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK) else {
        return;
    };
    if !proc::is_alive(shim.pid, shim.start_ticks) {
        return;
    }
    match proc::watch_readable(pidfd) {
        Ok(fd) => {
            let _readable = fd.readable().await;
        }
        Err(error) => {
            // The relist finds the exit record within a second.
            tracing::warn!(pid = shim.pid, %error, "cannot watch a shim");
            std::future::pending::<()>().await;
        }
    }
}

/// Records how a container ended and tells the agent, once.
pub(super) async fn settle(shared: &Arc<Shared>, id: &str) {
    let found = {
        let table = shared.table();
        table.get(id).map(|e| {
            (
                e.dir.clone(),
                Arc::clone(&e.spec),
                e.shim.clone(),
                e.run.clone(),
            )
        })
    };
    let Some((dir, spec, shim, run)) = found else {
        return;
    };
    if matches!(run, ContainerRun::Exited(_)) {
        return;
    }
    let settled = blocking(move || {
        let exit = sweep::settle_dead(&dir, &spec)?;
        // The agent is the parent of shims it started itself.
        if let Some(pid) = shim.and_then(|s| Pid::from_raw(s.pid)) {
            let _not_ours = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
        Ok(exit)
    })
    .await;
    match settled {
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
