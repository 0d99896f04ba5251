//! Taking over what an earlier agent left: the table in [`super`]'s docs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Entry, RuntimeError, blocking, file_error, sweep};
use crate::container_dir::{CONTAINER_ID_VARIABLE, ContainerDir, STAGING_PREFIX};
use crate::proc;

/// How long a shim that holds the lock may take to say which process it is.
/// Writing that is the first thing it does.
const SHIM_WAIT: Duration = Duration::from_secs(5);
/// Pause between two looks.
const SHIM_PAUSE: Duration = Duration::from_millis(5);

/// Reads every container directory and settles what is unfinished.
pub(super) async fn recover(containers: PathBuf) -> Result<Vec<Entry>, RuntimeError> {
    blocking(move || {
        fs::create_dir_all(&containers).map_err(file_error(&containers))?;
        let mut entries = Vec::new();
        for item in fs::read_dir(&containers).map_err(file_error(&containers))? {
            let path = item.map_err(file_error(&containers))?.path();
            match recover_one(&path) {
                Ok(entry) => entries.extend(entry),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "cannot take over a container");
                }
            }
        }
        end_strays(&entries);
        Ok(entries)
    })
    .await
}

fn recover_one(path: &Path) -> Result<Option<Entry>, RuntimeError> {
    let name = path
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    if name.starts_with(STAGING_PREFIX) {
        fs::remove_dir_all(path).map_err(file_error(path))?;
        return Ok(None);
    }
    let dir = ContainerDir::new(path);
    let deadline = Instant::now() + SHIM_WAIT;
    loop {
        // The lock comes first: whoever holds it may be writing the rest.
        let lock = dir.try_lock().map_err(file_error(path))?;
        let Ok(spec) = dir.spec() else {
            // A removal was cut short, or the record is damaged: whatever
            // still bears the mark ends, and the rest of the directory goes.
            if let Some(lock) = lock {
                sweep::sweep(name, None, None);
                dir.remove(&lock).map_err(file_error(path))?;
            }
            return Ok(None);
        };
        let mut entry = Entry::new(dir.clone(), spec);
        entry.refresh();
        if let Some(exit) = dir.exit().map_err(file_error(path))? {
            entry.ended(exit);
            return Ok(Some(entry));
        }
        match lock {
            Some(lock) if entry.shim.is_none() => {
                dir.remove(&lock).map_err(file_error(path))?;
                return Ok(None);
            }
            Some(_lock) => {
                let exit = sweep::settle_dead(&dir, &entry.spec)?;
                entry.ended(exit);
                return Ok(Some(entry));
            }
            None if entry.shim.is_some() && entry.state.is_some() => return Ok(Some(entry)),
            None if Instant::now() >= deadline => {
                tracing::warn!(id = %entry.spec.id, "a shim is slow; it is watched as it is");
                return Ok(entry.shim.is_some().then_some(entry));
            }
            None => std::thread::sleep(SHIM_PAUSE),
        }
    }
}

/// Kills processes that bear a container's mark outside its shim: commands an
/// earlier agent ran beside the container, such as probes.
fn end_strays(entries: &[Entry]) {
    let shims: BTreeMap<&str, Option<i32>> = entries
        .iter()
        .map(|e| (e.spec.id.as_str(), e.watched().map(|shim| shim.pid)))
        .collect();
    if shims.is_empty() {
        return;
    }
    let table = proc::all();
    for (pid, stat) in table.iter().filter(|(_, stat)| !stat.zombie) {
        let Some(mark) = proc::environ(*pid, CONTAINER_ID_VARIABLE) else {
            continue;
        };
        let Some(shim) = shims.get(mark.as_str()) else {
            continue;
        };
        let supervised = shim.is_some_and(|shim| {
            *pid == shim || stat.session == shim || proc::descends(&table, *pid, shim)
        });
        if !supervised {
            tracing::info!(
                pid,
                container = mark,
                "ending a process left beside its container"
            );
            proc::signal(*pid, Signal::KILL);
        }
    }
}
