//! The sync loop: one event at a time, each applied to the pods it concerns.
//!
//! `select` is the only place that waits; `apply` never does. What has to wait
//! is an effect: a task that reports back with another event. A pod's own
//! decisions are in [`entry`], which returns the effects it wants, so that the
//! whole of it can be tested without a runtime or an API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::pod;
use kubelet_core::probe::ProbeKind;
use kubelet_core::worker::GRACE_SECONDS_REMOVED;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::effects::{Context, Started, seconds, until};
use crate::probing::ProbeOutcome;
use crate::runtime::{PodContainer, RuntimeError, now};

mod entry;
mod inbox;
mod question;
mod status_patch;
mod task;

use entry::{Effect, PodEntry};
pub(crate) use inbox::{Inbox, PodChange};
pub(crate) use question::{LogAnswer, LogQuestion, StreamAnswer, StreamQuestion};

/// How often the runtime is asked for everything (upstream's PLEG, 1 s). Its
/// own events come at once; this finds what they missed.
const RELIST_PERIOD: Duration = Duration::from_secs(1);
/// How many results of effects wait to be applied; beyond this their tasks wait.
const RESULTS_MAX: usize = 1024;
/// How many questions of the server wait to be answered; beyond this its
/// connections wait.
const QUESTIONS_MAX: usize = 64;
/// After how many relists directories of forgotten pods are looked for.
const SWEEP_RELISTS: u64 = 60;

/// One thing that happened.
pub(crate) enum Event {
    /// A pod of this node appeared, changed or vanished in the API.
    Pod(PodChange),
    /// Every pod the API server had at the start has been seen.
    PodsSynced,
    /// A container changed.
    Container(Box<PodContainer>),
    /// The runtime listed everything.
    Relisted(Vec<PodContainer>),
    /// It is time to list everything.
    RelistDue,
    /// A pod's next deadline has come.
    Tick,
    /// Directories and volumes are made, or not.
    SetUpDone {
        uid: String,
        result: Result<(), String>,
    },
    /// A container was started, or not.
    StartDone {
        uid: String,
        container: String,
        started: Started,
    },
    /// A container was stopped, or not.
    KillDone {
        uid: String,
        container: String,
        id: String,
        result: Result<(), String>,
    },
    /// A probe ran.
    ProbeDone {
        uid: String,
        container: String,
        id: String,
        kind: ProbeKind,
        outcome: ProbeOutcome,
    },
    /// An ended container was removed, or not.
    RemoveDone {
        uid: String,
        id: String,
        result: Result<(), String>,
    },
    /// A status was written, or not.
    StatusWritten {
        uid: String,
        result: Result<Box<Pod>, client::Error>,
    },
    /// A pod's directories are removed, or not.
    TornDown {
        uid: String,
        result: Result<(), String>,
    },
    /// The API server confirmed a deletion, or not.
    Deleted {
        uid: String,
        result: Result<(), client::Error>,
    },
    /// A container no pod claims was dealt with, or not.
    OrphanDone { id: String },
    /// The server wants a log.
    Log(LogQuestion, oneshot::Sender<LogAnswer>),
    /// The server wants to know where a stream goes.
    Stream(StreamQuestion, oneshot::Sender<StreamAnswer>),
    /// The server wants the pods.
    List(oneshot::Sender<Vec<Arc<Pod>>>),
}

/// The loop with all it knows.
pub(crate) struct Driver {
    context: Arc<Context>,
    inbox: Arc<Inbox>,
    runtime_events: mpsc::Receiver<PodContainer>,
    results: mpsc::Receiver<Event>,
    results_sender: mpsc::Sender<Event>,
    questions: mpsc::Receiver<Event>,
    pods: BTreeMap<String, PodEntry>,
    /// Containers of pods the API has not shown (yet), by pod UID.
    unclaimed: BTreeMap<String, Vec<PodContainer>>,
    /// Containers without a pod that are being ended.
    orphans: BTreeSet<String>,
    pods_synced: bool,
    relisting: bool,
    relists: u64,
    token: CancellationToken,
}

impl Driver {
    /// Makes the loop; questions are sent to the returned sender.
    pub(crate) fn new(
        context: Arc<Context>,
        inbox: Arc<Inbox>,
        runtime_events: mpsc::Receiver<PodContainer>,
        known: Vec<PodContainer>,
        token: CancellationToken,
    ) -> (Self, mpsc::Sender<Event>) {
        let (results_sender, results) = mpsc::channel(RESULTS_MAX);
        let (questions_sender, questions) = mpsc::channel(QUESTIONS_MAX);
        let mut unclaimed: BTreeMap<String, Vec<PodContainer>> = BTreeMap::new();
        for container in known {
            unclaimed
                .entry(container.pod_uid.clone())
                .or_default()
                .push(container);
        }
        let driver = Driver {
            context,
            inbox,
            runtime_events,
            results,
            results_sender,
            questions,
            pods: BTreeMap::new(),
            unclaimed,
            orphans: BTreeSet::new(),
            pods_synced: false,
            relisting: false,
            relists: 0,
            token,
        };
        (driver, questions_sender)
    }

    /// Runs until cancelled. Containers keep running, as when a kubelet restarts.
    pub(crate) async fn run(mut self) {
        let mut relist = tokio::time::interval(RELIST_PERIOD);
        relist.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while let Some(event) = self.select(&mut relist).await {
            self.apply(event);
        }
    }

    /// Waits for the next event; `None` when it is time to end.
    async fn select(&mut self, relist: &mut tokio::time::Interval) -> Option<Event> {
        let wake_at = self.pods.values().filter_map(PodEntry::wake_at).min();
        let sleep = wake_at.map_or(Duration::from_secs(3600), |at| until(at, now()));
        tokio::select! {
            () = self.token.cancelled() => None,
            Some(result) = self.results.recv() => Some(result),
            Some(container) = self.runtime_events.recv() => Some(Event::Container(Box::new(container))),
            event = self.inbox.next() => Some(event),
            Some(question) = self.questions.recv() => Some(question),
            _ = relist.tick() => Some(Event::RelistDue),
            () = tokio::time::sleep(sleep) => Some(Event::Tick),
        }
    }

    /// Applies one event.
    fn apply(&mut self, event: Event) {
        match event {
            Event::Pod(change) => self.pod_changed(change),
            Event::PodsSynced => self.pods_synced = true,
            Event::Container(container) => self.container_changed(*container),
            Event::Relisted(list) => self.relisted(list),
            Event::RelistDue => self.relist(),
            Event::Tick => self.tick(),
            Event::Log(question, answer) => {
                let _asker_left = answer.send(question.answer(&self.pods, &*self.context.runtime));
            }
            Event::Stream(question, answer) => {
                let _asker_left = answer.send(question.answer(&self.pods));
            }
            Event::List(answer) => {
                let pods = self.pods.values().map(|e| Arc::clone(e.pod())).collect();
                let _asker_left = answer.send(pods);
            }
            Event::OrphanDone { id } => {
                self.orphans.remove(&id);
            }
            Event::SetUpDone { uid, result } => {
                self.with(&uid, |e, now| e.set_up_done(result, now))
            }
            Event::StartDone {
                uid,
                container,
                started,
            } => {
                self.with(&uid, |e, now| e.start_done(&container, started, now));
            }
            Event::KillDone {
                uid,
                container,
                id,
                result,
            } => {
                self.with(&uid, |e, _| e.kill_done(&container, &id, result));
            }
            Event::ProbeDone {
                uid,
                container,
                id,
                kind,
                outcome,
            } => {
                let failed = outcome.success == Some(false);
                let message = outcome.message.clone();
                self.with(&uid, |e, _| e.probe_done(&container, &id, kind, &outcome));
                if failed && let Some(entry) = self.pods.get(&uid) {
                    let text = format!("{} probe failed: {message}", kind.title());
                    self.context
                        .events
                        .warning(entry.pod(), &container, "Unhealthy", text);
                }
            }
            Event::RemoveDone { uid, id, result } => {
                self.with(&uid, |e, now| e.remove_done(&id, result, now));
            }
            Event::StatusWritten { uid, result } => {
                self.with(&uid, |e, now| e.status_written(result, now));
            }
            Event::TornDown { uid, result } => self.with(&uid, |e, now| e.torn_down(result, now)),
            Event::Deleted { uid, result } => self.with(&uid, |e, now| e.deleted(result, now)),
        }
    }

    /// Changes one pod's entry and lets it decide what comes next.
    fn with(&mut self, uid: &str, change: impl FnOnce(&mut PodEntry, Timestamp)) {
        if let Some(entry) = self.pods.get_mut(uid) {
            change(entry, now());
            self.sync(uid);
        }
    }

    fn sync(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        let effects = entry.sync(&self.context.facts, now());
        let pod = Arc::clone(entry.pod());
        for effect in effects {
            self.perform(&pod, effect);
        }
    }

    fn pod_changed(&mut self, change: PodChange) {
        let uid = pod::uid(change.pod()).to_owned();
        match change {
            PodChange::Latest(pod) => match self.pods.get_mut(&uid) {
                Some(entry) => entry.observe(pod, now()),
                None => {
                    let mut entry = PodEntry::new(pod, now());
                    for container in self.unclaimed.remove(&uid).unwrap_or_default() {
                        entry.container(container.instance);
                    }
                    self.pods.insert(uid.clone(), entry);
                }
            },
            PodChange::Gone(pod) => {
                if let Some(entry) = self.pods.get_mut(&uid) {
                    entry.gone(&pod, now());
                }
            }
        }
        self.sync(&uid);
    }

    fn container_changed(&mut self, container: PodContainer) {
        let uid = container.pod_uid.clone();
        match self.pods.get_mut(&uid) {
            Some(entry) => {
                if entry.container(container.instance) {
                    self.sync(&uid);
                }
            }
            None => {
                let list = self.unclaimed.entry(uid).or_default();
                list.retain(|c| c.instance.id != container.instance.id);
                list.push(container);
            }
        }
    }

    fn relist(&mut self) {
        if self.relisting {
            return;
        }
        self.relisting = true;
        let context = Arc::clone(&self.context);
        self.spawn(async move { Event::Relisted(context.runtime.relist().await) });
    }

    fn relisted(&mut self, list: Vec<PodContainer>) {
        self.relisting = false;
        self.relists += 1;
        let listed: BTreeSet<String> = list.iter().map(|c| c.instance.id.clone()).collect();
        list.into_iter()
            .for_each(|container| self.container_changed(container));
        // Only once every pod was seen is a container without one an orphan.
        if !self.pods_synced {
            return;
        }
        let unclaimed = std::mem::take(&mut self.unclaimed);
        let orphans = unclaimed.into_values().flatten();
        for container in orphans.filter(|c| listed.contains(&c.instance.id)) {
            self.end_orphan(container);
        }
        if self.relists % SWEEP_RELISTS == 1 {
            self.sweep_directories();
        }
    }

    /// Ends a container whose pod no longer exists and removes its traces.
    fn end_orphan(&mut self, container: PodContainer) {
        let id = container.instance.id.clone();
        if !self.orphans.insert(id.clone()) {
            return;
        }
        let pod = format!("{}/{}", container.pod_namespace, container.pod_name);
        tracing::info!(id, pod, "ending a container whose pod no longer exists");
        let grace = seconds(container.grace_seconds.min(GRACE_SECONDS_REMOVED));
        let context = Arc::clone(&self.context);
        self.spawn(async move {
            let runtime = &context.runtime;
            let ended = runtime.stop(&id, grace).await;
            let removed = match ended {
                Ok(()) => runtime.remove(&id).await,
                // Removed since it was listed.
                Err(RuntimeError::NotFound(_)) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = removed {
                tracing::warn!(id, %error, "cannot end an orphaned container yet");
            }
            if let Err(error) = context.tear_down(&container.pod_uid).await {
                tracing::warn!(uid = container.pod_uid, %error, "cannot remove a pod's directory");
            }
            Event::OrphanDone { id }
        });
    }

    /// Removes the directories of pods that are neither known nor have
    /// containers. They are listed here and not in a task: a pod that arrives
    /// meanwhile is known before its directory is made.
    fn sweep_directories(&self) {
        let dir = self.context.root.join("pods");
        let items = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let stale: Vec<_> = items
            .filter(|item| {
                let uid = item.file_name().to_string_lossy().into_owned();
                !self.pods.contains_key(&uid) && !self.unclaimed.contains_key(&uid)
            })
            .map(|item| item.path())
            .collect();
        if !stale.is_empty() {
            tokio::task::spawn_blocking(move || {
                for path in stale {
                    let _next_time = std::fs::remove_dir_all(path);
                }
            });
        }
    }

    fn tick(&mut self) {
        let now = now();
        let due = self
            .pods
            .iter()
            .filter(|(_, e)| e.wake_at().is_some_and(|at| at <= now));
        let due: Vec<String> = due.map(|(uid, _)| uid.clone()).collect();
        due.iter().for_each(|uid| self.sync(uid));
    }

    /// Begins one effect.
    fn perform(&mut self, pod: &Arc<Pod>, effect: Effect) {
        match effect {
            Effect::Forget => {
                self.pods.remove(pod::uid(pod));
            }
            Effect::Tell {
                container,
                warning,
                reason,
                message,
            } if warning => {
                self.context
                    .events
                    .warning(pod, &container, reason, message);
            }
            Effect::Tell {
                container,
                reason,
                message,
                ..
            } => {
                self.context.events.normal(pod, &container, reason, message);
            }
            Effect::Warn { reason, message } => {
                self.context.events.pod_warning(pod, reason, message);
            }
            Effect::Task(task) => {
                let (context, pod) = (Arc::clone(&self.context), Arc::clone(pod));
                self.spawn(task::carry_out(context, pod, task));
            }
        }
    }

    fn spawn(&self, effect: impl Future<Output = Event> + Send + 'static) {
        let (sender, token) = (self.results_sender.clone(), self.token.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                event = effect => {
                    let _ended = sender.send(event).await;
                }
            }
        });
    }
}
