//! Containers as supervised local processes.
//!
//! Each container has a directory ([`container_dir`](crate::container_dir)
//! lists its files) and a [`shim`](crate::shim) beside its process. The agent
//! only starts shims, watches them through pidfds, and signals process groups;
//! it can be killed at any moment and started again.
//!
//! # What a process does not have
//!
//! A process has no mount namespace, no network namespace, no root file system
//! and no limits of its own. It sees the machine's files and the machine's
//! network: the pod's address is the node's, and two pods cannot listen on one
//! port. Its volumes are directories of the agent; what the spec mounts at
//! `/etc/config` is reachable in three ways: relative to the working directory
//! (`etc/config`), below `$KEELSON_ROOTFS`, and by name in
//! `$KEELSON_MOUNT_<VOLUME>`. The absolute path itself is the machine's.
//! `readOnly` is not enforced, `resources` neither. Of `securityContext` the
//! user and the group are (see `identity`); an event names what is ignored.
//!
//! # Races, and what answers them
//!
//! | the agent, or a shim, is killed | found at the next start | answer |
//! |---|---|---|
//! | while a directory is made | `.new-*` | removed |
//! | before the shim is started | a directory, lock free, no `shim.json` | removed; the attempt is made again |
//! | before the shim took the lock | the same; the shim finds no `spec.json` later and gives up | removed |
//! | between `shim.json` and `state.json` | lock held | waited for: the shim goes on by itself |
//! | while the container runs | lock held, `state.json` | adopted: the pidfd is watched again |
//! | after the container ended | `exit.json` | reported, exactly once, with its exit code |
//! | (the shim) while the container runs | lock free, `shim.json`, no `exit.json` | the container's processes are found by pid and start time, by session and by the mark in their environment, and killed; exit code 137 |
//! | (the agent) during an exec probe or `kubectl exec` | a marked process outside every shim | killed |

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use kubelet_core::runtime::{ContainerExit, ContainerInstance, ContainerRun};
use rustix::process::Signal;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::container_dir::{ContainerDir, ContainerSpec, ExitRecord, ShimRecord, StateRecord};
use crate::error::AgentError;
use crate::images::{ImageError, ImageMap, ResolvedImage};
use crate::proc;
use crate::runtime::{ExecOutput, PodContainer, Runtime, RuntimeError, StartRequest};
use crate::session::{Session, Wanted};

mod attach;
mod exec;
mod interactive;
mod launch;
mod recover;
mod root_lock;
mod sweep;
mod watching;

pub(crate) use root_lock::RootLock;

/// How many shims are started at the same time; others wait their turn. More
/// would only compete for the processors.
const STARTS_MAX: usize = 4;
/// How many runtime events wait for the agent; beyond this they are dropped,
/// the relist a second later finds what they said.
const EVENTS_MAX: usize = 1024;
/// How long a killed container, and then a killed shim, may take to be gone.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// Runs containers as supervised local processes.
#[derive(Clone)]
pub struct ProcessRuntime {
    shared: Arc<Shared>,
}

struct Shared {
    containers: PathBuf,
    log_dir: PathBuf,
    shim_command: Vec<OsString>,
    image_map: ImageMap,
    table: Mutex<BTreeMap<String, Entry>>,
    events: mpsc::Sender<PodContainer>,
    starts: Arc<Semaphore>,
}

/// A running container: where it is, what it is, and whether it has ended.
type RunningContainer = (ContainerDir, Arc<ContainerSpec>, watch::Receiver<bool>);

/// One container the runtime knows.
struct Entry {
    dir: ContainerDir,
    spec: Arc<ContainerSpec>,
    shim: Option<ShimRecord>,
    state: Option<StateRecord>,
    run: ContainerRun,
    exited: watch::Sender<bool>,
    term_sent: bool,
}

impl ProcessRuntime {
    /// Opens the runtime of a root directory: takes over, settles or removes
    /// what an earlier one left. Changes of containers arrive at the receiver.
    pub async fn open(
        root: &Path,
        log_dir: &Path,
        shim_command: Vec<OsString>,
        image_map: ImageMap,
    ) -> Result<(Self, mpsc::Receiver<PodContainer>), RuntimeError> {
        let containers = root.join("containers");
        let found = recover::recover(containers.clone()).await?;
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let shared = Arc::new(Shared {
            containers,
            log_dir: log_dir.to_owned(),
            shim_command,
            image_map,
            table: Mutex::new(BTreeMap::new()),
            events,
            starts: Arc::new(Semaphore::new(STARTS_MAX)),
        });
        for entry in found {
            let id = entry.spec.id.clone();
            let watched = entry.watched();
            shared.table().insert(id.clone(), entry);
            if let Some(shim) = watched {
                watching::adopt(Arc::clone(&shared), id, shim);
            }
        }
        Ok((ProcessRuntime { shared }, receiver))
    }

    /// Finds a container that runs.
    fn running(&self, id: &str) -> Result<RunningContainer, RuntimeError> {
        let table = self.shared.table();
        let entry = table
            .get(id)
            .ok_or_else(|| RuntimeError::NotFound(id.to_owned()))?;
        if !matches!(entry.run, ContainerRun::Running { .. }) {
            return Err(RuntimeError::NotRunning(id.to_owned()));
        }
        Ok((
            entry.dir.clone(),
            Arc::clone(&entry.spec),
            entry.exited.subscribe(),
        ))
    }

    async fn stop_one(&self, id: &str, grace: Duration) -> Result<(), RuntimeError> {
        let (mut exited, state, first) = {
            let mut table = self.shared.table();
            let entry = table
                .get_mut(id)
                .ok_or_else(|| RuntimeError::NotFound(id.to_owned()))?;
            if let ContainerRun::Exited(_) = entry.run {
                return Ok(());
            }
            entry.refresh();
            let first = !entry.term_sent;
            entry.term_sent = true;
            (entry.exited.subscribe(), entry.state.clone(), first)
        };
        if let Some(state) = state {
            let signal = |signal| {
                if proc::is_alive(state.pid, state.start_ticks) {
                    proc::signal_group(state.pid, signal);
                }
            };
            if first {
                signal(Signal::TERM);
            }
            if gone(&mut exited, grace).await {
                return Ok(());
            }
            signal(Signal::KILL);
            if gone(&mut exited, KILL_WAIT).await {
                return Ok(());
            }
        }
        // No process is known, or killing it was not enough: without its shim
        // the container is swept.
        let shim = self.shared.table().get(id).and_then(|e| e.shim.clone());
        if let Some(shim) = shim.filter(|s| proc::is_alive(s.pid, s.start_ticks)) {
            proc::signal(shim.pid, Signal::KILL);
        }
        if gone(&mut exited, KILL_WAIT).await {
            return Ok(());
        }
        Err(RuntimeError::StillRunning(id.to_owned()))
    }

    async fn remove_one(&self, id: &str) -> Result<(), RuntimeError> {
        let (dir, log_path) = {
            let table = self.shared.table();
            let Some(entry) = table.get(id) else {
                return Ok(());
            };
            if !matches!(entry.run, ContainerRun::Exited(_)) {
                return Err(RuntimeError::StillRunning(id.to_owned()));
            }
            (entry.dir.clone(), entry.spec.log_path.clone())
        };
        let removed = blocking(move || launch::remove_files(&dir, &log_path)).await;
        removed?;
        self.shared.table().remove(id);
        Ok(())
    }

    /// Looks again at every container that is not known to have ended.
    async fn relist_all(&self) -> Vec<PodContainer> {
        let ended: Vec<String> = {
            let mut table = self.shared.table();
            let alive = table
                .iter_mut()
                .filter(|(_, e)| !matches!(e.run, ContainerRun::Exited(_)));
            alive
                .filter_map(|(id, entry)| {
                    entry.refresh();
                    let exited = entry.dir.exit().is_ok_and(|exit| exit.is_some());
                    exited.then(|| id.clone())
                })
                .collect()
        };
        for id in ended {
            watching::settle(&self.shared, &id).await;
        }
        self.shared
            .table()
            .values()
            .map(Entry::pod_container)
            .collect()
    }
}

/// Waits until the container has ended, at most for a time.
async fn gone(exited: &mut watch::Receiver<bool>, wait: Duration) -> bool {
    matches!(
        tokio::time::timeout(wait, exited.wait_for(|gone| *gone)).await,
        Ok(Ok(_))
    )
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        // No code panics while it holds the table half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the agent how a container is now.
    fn announce(&self, id: &str) {
        let container = self.table().get(id).map(Entry::pod_container);
        if let Some(container) = container {
            let _full = self.events.try_send(container);
        }
    }
}

impl Entry {
    fn new(dir: ContainerDir, spec: ContainerSpec) -> Self {
        Entry {
            dir,
            spec: Arc::new(spec),
            shim: None,
            state: None,
            run: ContainerRun::Created,
            exited: watch::Sender::new(false),
            term_sent: false,
        }
    }

    /// Reads the files of a container that has not ended as far as is known.
    fn refresh(&mut self) {
        if self.shim.is_none() {
            self.shim = self.dir.shim().ok().flatten();
        }
        if self.state.is_none() {
            self.state = self.dir.state().ok().flatten();
            if let Some(state) = &self.state {
                self.run = ContainerRun::Running {
                    started_at: state.started_at,
                };
            }
        }
    }

    fn ended(&mut self, exit: ExitRecord) {
        self.run = ContainerRun::Exited(ContainerExit {
            exit_code: exit.exit_code,
            signal: exit.signal,
            started_at: exit.started_at,
            finished_at: exit.finished_at,
            reason: exit.reason,
            message: exit.message,
        });
        self.exited.send_replace(true);
    }

    fn watched(&self) -> Option<ShimRecord> {
        match self.run {
            ContainerRun::Exited(_) => None,
            ContainerRun::Created | ContainerRun::Running { .. } => self.shim.clone(),
        }
    }

    fn instance(&self) -> ContainerInstance {
        ContainerInstance {
            id: self.spec.id.clone(),
            name: self.spec.container.clone(),
            attempt: self.spec.attempt,
            image: self.spec.image.clone(),
            image_id: self.spec.image_id.clone(),
            spec_hash: self.spec.spec_hash.clone(),
            created_at: self.spec.created_at,
            run: self.run.clone(),
        }
    }

    fn pod_container(&self) -> PodContainer {
        PodContainer {
            pod_uid: self.spec.pod_uid.clone(),
            pod_namespace: self.spec.pod_namespace.clone(),
            pod_name: self.spec.pod_name.clone(),
            grace_seconds: self.spec.grace_seconds,
            instance: self.instance(),
        }
    }
}

impl Runtime for ProcessRuntime {
    fn version(&self) -> String {
        format!("process://{}", crate::VERSION)
    }

    fn resolve_image(&self, image: &str, has_command: bool) -> Result<ResolvedImage, ImageError> {
        self.shared.image_map.resolve(image, has_command)
    }

    fn start(
        &self,
        request: StartRequest,
    ) -> BoxFuture<'_, Result<ContainerInstance, RuntimeError>> {
        launch::start(&self.shared, request).boxed()
    }

    fn stop(&self, id: &str, grace: Duration) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let id = id.to_owned();
        async move { self.stop_one(&id, grace).await }.boxed()
    }

    fn remove(&self, id: &str) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let id = id.to_owned();
        async move { self.remove_one(&id).await }.boxed()
    }

    fn relist(&self) -> BoxFuture<'_, Vec<PodContainer>> {
        self.relist_all().boxed()
    }

    fn exec(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<ExecOutput, RuntimeError>> {
        let spec = self.shared.table().get(id).map(|e| Arc::clone(&e.spec));
        let id = id.to_owned();
        async move {
            let spec = spec.ok_or(RuntimeError::NotFound(id))?;
            exec::exec(&spec, command, timeout).await
        }
        .boxed()
    }

    fn run(
        &self,
        id: &str,
        command: Vec<String>,
        wanted: Wanted,
    ) -> BoxFuture<'_, Result<Session, RuntimeError>> {
        let running = self.running(id);
        async move {
            let (_, spec, ended) = running?;
            interactive::start(&spec, &self.shared.shim_command, command, wanted, ended).await
        }
        .boxed()
    }

    fn attach(&self, id: &str, wanted: Wanted) -> BoxFuture<'_, Result<Session, RuntimeError>> {
        let running = self.running(id);
        async move {
            let (dir, _, _) = running?;
            attach::join(dir.path(), wanted).await
        }
        .boxed()
    }

    fn connect(&self, _pod_uid: &str, port: u16) -> BoxFuture<'_, io::Result<TcpStream>> {
        // A pod's network is the machine's.
        async move { TcpStream::connect(("localhost", port)).await }.boxed()
    }

    fn log_path(&self, id: &str) -> Option<PathBuf> {
        self.shared.table().get(id).map(|e| e.spec.log_path.clone())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {
            let all = u32::try_from(STARTS_MAX).unwrap_or(u32::MAX);
            let _none_under_way = self.shared.starts.acquire_many(all).await;
            self.shared.starts.close();
        }
        .boxed()
    }

    fn is_alive(&self, id: &str) -> bool {
        let table = self.shared.table();
        table
            .get(id)
            .is_some_and(|e| !matches!(e.run, ContainerRun::Exited(_)))
    }
}

/// Stops every container of a root directory that no agent is using, as when
/// the whole program is to leave nothing behind; returns how many there were.
/// None gets more grace than `grace_max`.
pub async fn stop_all(root_dir: &Path, grace_max: Duration) -> Result<usize, AgentError> {
    let _lock = RootLock::take(root_dir)?;
    let log_dir = root_dir.join("logs");
    let (runtime, _events) =
        ProcessRuntime::open(root_dir, &log_dir, Vec::new(), ImageMap::default()).await?;
    let alive: Vec<_> = runtime
        .relist()
        .await
        .into_iter()
        .filter(|c| c.instance.is_alive())
        .collect();
    let stops = alive.iter().map(|container| {
        let grace = Duration::from_secs(container.grace_seconds.unsigned_abs());
        runtime.stop(&container.instance.id, grace.min(grace_max))
    });
    for stopped in futures::future::join_all(stops).await {
        stopped?;
    }
    Ok(alive.len())
}

/// Runs file work off the event loop.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(RuntimeError::Exec(format!("internal task failed: {error}"))),
    }
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> RuntimeError {
    let path = path.to_owned();
    move |source| RuntimeError::File { path, source }
}
