//! Ending what a killed shim left behind.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::Signal;

use super::{RuntimeError, file_error};
use crate::container_dir::{
    CONTAINER_ID_VARIABLE, ContainerDir, ContainerSpec, ExitRecord, ShimRecord, StateRecord,
};
use crate::proc::{self, Stat};

/// How long killed processes may take to disappear before they are given up
/// on; only one stuck in the kernel takes longer, and it is logged.
const SWEEP_WAIT: Duration = Duration::from_secs(5);
/// Pause between two looks at the process table.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// Returns how a container whose shim is gone ended. If the shim could not
/// write it, kills what is left of the container and writes it in its place.
pub(super) fn settle_dead(
    dir: &ContainerDir,
    spec: &ContainerSpec,
) -> Result<ExitRecord, RuntimeError> {
    if let Some(exit) = dir.exit().map_err(file_error(dir.path()))? {
        return Ok(exit);
    }
    let shim = dir.shim().map_err(file_error(dir.path()))?;
    let state = dir.state().map_err(file_error(dir.path()))?;
    sweep(&spec.id, shim.as_ref(), state.as_ref());
    let exit = ExitRecord {
        exit_code: 137,
        signal: Some(9),
        started_at: state.map(|s| s.started_at),
        finished_at: Timestamp::now(),
        reason: "Error".to_owned(),
        message: "the container's shim was killed; its processes were ended".to_owned(),
    };
    // The end is a fact whether it can be recorded or not: the directory may have
    // been removed, the disk may be full. Without a record the next agent comes
    // to the same result.
    if let Err(error) = dir.write_exit(&exit) {
        tracing::warn!(id = spec.id, %error, "cannot record how a container ended");
    }
    Ok(exit)
}

/// Kills every process of a container and waits until none is left.
pub(super) fn sweep(id: &str, shim: Option<&ShimRecord>, state: Option<&StateRecord>) {
    let deadline = Instant::now() + SWEEP_WAIT;
    loop {
        let table = proc::all();
        let left = members(&table, id, shim, state);
        if left.is_empty() {
            return;
        }
        left.iter().for_each(|pid| proc::signal(*pid, Signal::KILL));
        if Instant::now() >= deadline {
            tracing::error!(id, ?left, "processes of a container do not end");
            return;
        }
        std::thread::sleep(SWEEP_PAUSE);
    }
}

/// Finds the living processes of a container whose shim is dead.
fn members(
    table: &BTreeMap<i32, Stat>,
    id: &str,
    shim: Option<&ShimRecord>,
    state: Option<&StateRecord>,
) -> Vec<i32> {
    let this_boot = shim.is_some_and(|s| s.boot_id == proc::boot_id());
    // A session's id is not given to a new process while the session lives; if
    // the pid now belongs to another process, the session was empty.
    let session = shim.filter(|s| {
        this_boot
            && table
                .get(&s.pid)
                .is_none_or(|stat| stat.start_ticks == s.start_ticks)
    });
    let process = state.filter(|s| {
        this_boot
            && table
                .get(&s.pid)
                .is_some_and(|stat| stat.start_ticks == s.start_ticks)
    });
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let is_member = |pid: i32, stat: &Stat| {
        session.is_some_and(|s| stat.session == s.pid && stat.start_ticks >= s.start_ticks)
            || process.is_some_and(|s| pid == s.pid || proc::descends(table, pid, s.pid))
            || proc::environ(pid, CONTAINER_ID_VARIABLE).is_some_and(|mark| mark == id)
    };
    table
        .iter()
        .filter(|(pid, stat)| **pid > 1 && **pid != own && !stat.zombie)
        .filter(|(pid, stat)| is_member(**pid, stat))
        .map(|(pid, _)| *pid)
        .collect()
}
