//! Starting one container: intent, links, shim; and removing its files again.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use indexmap::IndexMap;
use jiff::Timestamp;
use kubelet_core::runtime::ContainerInstance;
use kubelet_core::security::RunAs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags};

use super::{Entry, RuntimeError, Shared, blocking, file_error, sweep, watching};
use crate::container_dir::{CONTAINER_ID_VARIABLE, ContainerDir, ContainerSpec, missing_is_fine};
use crate::identity;
use crate::runtime::{Mount, StartRequest};
use crate::shim::{LOG_FILES_MAX, READY_LINE, rotated};

/// How long a shim may take to report that the container started, in seconds.
/// It takes milliseconds; a machine this slow is better told than waited for.
const READY_SECONDS_MAX: i64 = 30;

/// Starts one container and watches it.
pub(super) async fn start(
    shared: &Arc<Shared>,
    request: StartRequest,
) -> Result<ContainerInstance, RuntimeError> {
    let permit = Arc::clone(&shared.starts).acquire_owned().await;
    let permit = permit.map_err(|_closed| RuntimeError::Closed)?;
    let id = new_id();
    let worker = Arc::clone(shared);
    let task_id = id.clone();
    let outcome = blocking(move || {
        // Held to the very end of the work, also if nobody waits for it any more.
        let _permit = permit;
        start_blocking(&worker, &task_id, &request)
    })
    .await;
    let shim = match outcome {
        Ok(shim) => shim,
        Err(error) => {
            shared.table().remove(&id);
            return Err(error);
        }
    };
    let instance = shared.table().get(&id).map(Entry::instance);
    // Also if the container has ended already: somebody must reap its shim.
    watching::watch(Arc::clone(shared), id.clone(), shim);
    instance.ok_or(RuntimeError::NotFound(id))
}

/// Starts one container; returns the pidfd of its shim.
fn start_blocking(
    shared: &Shared,
    id: &str,
    request: &StartRequest,
) -> Result<OwnedFd, RuntimeError> {
    let spec = container_spec(shared, id, request);
    let dir =
        ContainerDir::create(&shared.containers, &spec).map_err(file_error(&shared.containers))?;
    let working_dir = spec.working_dir.clone();
    shared
        .table()
        .insert(id.to_owned(), Entry::new(dir.clone(), spec));
    let started = link_mounts(&dir.rootfs(), &request.mounts)
        .and_then(|()| make_inside(&dir.rootfs(), &working_dir))
        .and_then(|()| hand_over(&dir, request.run_as))
        .map_err(file_error(&dir.rootfs()))
        .and_then(|()| start_shim(&shared.shim_command, &dir));
    let shim = match started {
        Ok(shim) => shim,
        Err(error) => {
            discard(&dir, id);
            return Err(error);
        }
    };
    if let Some(entry) = shared.table().get_mut(id) {
        entry.refresh();
        // A record that cannot be read is read again when the shim has ended.
        if let Ok(Some(exit)) = dir.exit() {
            entry.ended(exit);
        }
    }
    Ok(shim)
}

/// Removes a container that could not be started, with anything that did start.
fn discard(dir: &ContainerDir, id: &str) {
    let (shim, state) = (dir.shim().ok().flatten(), dir.state().ok().flatten());
    sweep::sweep(id, shim.as_ref(), state.as_ref());
    if let Ok(Some(lock)) = dir.try_lock()
        && let Err(error) = dir.remove(&lock)
    {
        tracing::warn!(id, %error, "cannot remove a container that did not start");
    }
}

/// Starts the shim and waits until it says that the outcome can be read;
/// returns its pidfd. A shim that does not say so is killed and reaped.
fn start_shim(command: &[OsString], dir: &ContainerDir) -> Result<OwnedFd, RuntimeError> {
    let program = command.first().cloned().unwrap_or_default();
    let shim_error = |source| RuntimeError::Shim {
        program: program.to_string_lossy().into_owned(),
        source,
    };
    let errors_path = dir.path().join("shim.log");
    let errors = File::create(&errors_path).map_err(file_error(&errors_path))?;
    let (mut reader, writer) = io::pipe().map_err(shim_error)?;
    let spawn = |program: &OsString, writer: Stdio, errors: Stdio| {
        Command::new(program)
            .args(command.iter().skip(1))
            .arg(dir.path())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(errors)
            .spawn()
    };
    let copies = || -> io::Result<(Stdio, Stdio)> {
        Ok((writer.try_clone()?.into(), errors.try_clone()?.into()))
    };
    let (out, err) = copies().map_err(shim_error)?;
    let mut child = match spawn(&program, out, err) {
        Ok(child) => child,
        // The program was replaced on disk while it runs (an upgrade, a build).
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (out, err) = copies().map_err(shim_error)?;
            spawn(&OsString::from("/proc/self/exe"), out, err).map_err(|_same| shim_error(error))?
        }
        Err(error) => return Err(shim_error(error)),
    };
    drop(writer);
    // Until it is reaped the pid is the child's alone.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pidfd = pid.map_or(Err(rustix::io::Errno::SRCH), |pid| {
        rustix::process::pidfd_open(pid, PidfdFlags::empty())
    });
    let started = pidfd
        .map_err(|e| shim_error(e.into()))
        .and_then(|pidfd| wait_ready(&mut reader, dir).map(|()| pidfd));
    if started.is_err() {
        let _ended = child.kill();
        let _reaped = child.wait();
    }
    started
}

fn wait_ready(reader: &mut io::PipeReader, dir: &ContainerDir) -> Result<(), RuntimeError> {
    let silent = |why: &str| {
        let log = fs::read_to_string(dir.path().join("shim.log")).unwrap_or_default();
        RuntimeError::ShimSilent(format!("{why} {}", log.trim()).trim().to_owned())
    };
    let mut said = Vec::new();
    let mut buffer = [0_u8; 64];
    while !said.ends_with(READY_LINE) {
        let timeout = Timespec {
            tv_sec: READY_SECONDS_MAX,
            tv_nsec: 0,
        };
        let fd = reader.as_fd();
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Err(silent("it is too slow")),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(silent(&io::Error::from(error).to_string())),
        }
        match reader.read(&mut buffer) {
            Ok(0) => return Err(silent("it ended")),
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(error) => return Err(silent(&error.to_string())),
        }
    }
    Ok(())
}

fn container_spec(shared: &Shared, id: &str, request: &StartRequest) -> ContainerSpec {
    let rootfs = shared.containers.join(id).join("rootfs");
    let image_dir = request.resolved.directory.as_deref();
    let command = if request.command.is_empty() {
        &request.resolved.entrypoint
    } else {
        &request.command
    };
    let log_path = shared
        .log_dir
        .join("pods")
        .join(format!(
            "{}_{}_{}",
            request.pod_namespace, request.pod_name, request.pod_uid
        ))
        .join(&request.container)
        .join(format!("{}.log", request.attempt));
    ContainerSpec {
        id: id.to_owned(),
        pod_uid: request.pod_uid.clone(),
        pod_namespace: request.pod_namespace.clone(),
        pod_name: request.pod_name.clone(),
        grace_seconds: request.grace_seconds,
        container: request.container.clone(),
        attempt: request.attempt,
        spec_hash: request.spec_hash.clone(),
        image: request.image.clone(),
        image_id: request.resolved.image_id.clone(),
        created_at: Timestamp::now(),
        argv: command.iter().chain(&request.args).cloned().collect(),
        env: environment(id, request, &rootfs),
        working_dir: working_dir(request, &rootfs, image_dir),
        log_path,
        run_as: request.run_as,
        stdin: request.stdin,
        stdin_once: request.stdin_once,
        tty: request.tty,
    }
}

/// Lets the container's user into its directory and gives it the rootfs.
fn hand_over(dir: &ContainerDir, run_as: Option<RunAs>) -> io::Result<()> {
    let Some(who) = run_as else {
        return Ok(());
    };
    // The records inside have modes of their own.
    identity::let_in([dir.path()], who)?;
    identity::give(&dir.rootfs(), who)
}

/// The whole environment: PATH and HOME of the machine, the host name, what
/// the spec says, and where the mounts are.
fn environment(id: &str, request: &StartRequest, rootfs: &Path) -> Vec<(String, String)> {
    let host = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    let mut env = IndexMap::new();
    env.insert(
        "PATH".to_owned(),
        host("PATH", "/usr/local/bin:/usr/bin:/bin"),
    );
    env.insert("HOME".to_owned(), host("HOME", "/"));
    env.insert("HOSTNAME".to_owned(), request.hostname.clone());
    env.extend(request.env.iter().cloned());
    if let Some(dir) = &request.resolved.directory {
        let path = env.get("PATH").cloned().unwrap_or_default();
        let (dir, bin) = (dir.display(), dir.join("bin"));
        let bin = if bin.is_dir() {
            format!("{}:", bin.display())
        } else {
            String::new()
        };
        env.insert("PATH".to_owned(), format!("{dir}:{bin}{path}"));
    }
    for mount in &request.mounts {
        let name = mount
            .volume
            .to_uppercase()
            .replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        env.insert(
            format!("KEELSON_MOUNT_{name}"),
            mount.source.display().to_string(),
        );
    }
    env.insert("KEELSON_ROOTFS".to_owned(), rootfs.display().to_string());
    env.insert(CONTAINER_ID_VARIABLE.to_owned(), id.to_owned());
    env.into_iter().collect()
}

/// Where the command is started: the spec's `workingDir` inside the rootfs if
/// a mount covers it, on the machine if it exists there, else made inside the
/// rootfs; without one the image's directory or the rootfs.
fn working_dir(request: &StartRequest, rootfs: &Path, image_dir: Option<&Path>) -> PathBuf {
    let Some(wanted) = request.working_dir.as_deref().filter(|dir| !dir.is_empty()) else {
        return image_dir.unwrap_or(rootfs).to_owned();
    };
    let wanted = Path::new(wanted);
    let mounted = request.mounts.iter().any(|m| wanted.starts_with(&m.path));
    if !mounted && wanted.is_absolute() && wanted.is_dir() {
        return wanted.to_owned();
    }
    rootfs.join(relative(wanted))
}

/// Makes the working directory if it lies inside the rootfs.
fn make_inside(rootfs: &Path, dir: &Path) -> io::Result<()> {
    if dir.starts_with(rootfs) {
        fs::create_dir_all(dir)
    } else {
        Ok(())
    }
}

/// Links every mount below the rootfs, outer ones first.
fn link_mounts(rootfs: &Path, mounts: &[Mount]) -> io::Result<()> {
    let mut mounts: Vec<_> = mounts.iter().collect();
    mounts.sort_by_key(|m| Path::new(&m.path).components().count());
    for mount in mounts {
        let link = rootfs.join(relative(Path::new(&mount.path)));
        if link == rootfs {
            continue;
        }
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent)?;
        }
        match symlink(&mount.source, &link) {
            // A mount inside another volume: an earlier attempt made the link there.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result?,
        }
    }
    Ok(())
}

/// Keeps the plain components of a path, so that it cannot leave the rootfs.
fn relative(path: &Path) -> PathBuf {
    path.components()
        .filter(|c| matches!(c, Component::Normal(_)))
        .collect()
}

/// Removes an ended container's directory and log files.
pub(super) fn remove_files(dir: &ContainerDir, log_path: &Path) -> Result<(), RuntimeError> {
    if dir.path().exists() {
        let lock = dir.try_lock().map_err(file_error(dir.path()))?;
        // The shim wrote the exit record and is about to end.
        let lock =
            lock.ok_or_else(|| RuntimeError::StillRunning(dir.path().display().to_string()))?;
        dir.remove(&lock).map_err(file_error(dir.path()))?;
    }
    for age in 0..LOG_FILES_MAX {
        let path = rotated(log_path, age);
        fs::remove_file(&path)
            .or_else(missing_is_fine)
            .map_err(file_error(&path))?;
    }
    // Empty directories of the container and the pod go too; others stay.
    for parent in log_path.ancestors().skip(1).take(2) {
        let _not_empty = fs::remove_dir(parent);
    }
    Ok(())
}

/// Makes an id as container runtimes do: 64 hexadecimal digits.
fn new_id() -> String {
    let bytes: [u8; 32] = rand::random();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
