//! The scheduler as a process: feeds the pure scheduler and performs what it decides.
//!
//! One task owns queue, cache and cycle; `select` waits for the next [`Action`],
//! `apply` performs it without waiting for anything. Informer handlers only mark keys;
//! what changed is found by comparing the store with what the scheduler knew, so a
//! lost or doubled notice does no harm. Calls to the API run beside the loop and
//! report back.

mod calls;
#[cfg(test)]
mod test;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::leader_election::{self, ElectionConfig};
use client::{
    Client, EventRecorder, EventType, InformerOptions, KubeObject, ObjectKey, SharedInformer,
    WorkQueue,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use scheduler::preemption::{Preemption, preempt};
use scheduler::{Cache, Choice, ClusterEvent, Cycle, PodInfo, QueuedPod, ScheduleError};
use scheduler::{NodeInfo, SchedulingQueue};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::calls::{Calls, Failure, Finished};
use crate::ManagerError;

/// Is the scheduler pods name when they name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
const LEASE_NAMESPACE: &str = "kube-system";
const LEASE_NAME: &str = "kube-scheduler";
/// Bounds the API calls under way (bindings, reports). At the limit no further pod is
/// taken from the queue until one of them ends.
const API_CALLS_MAX: usize = 64;

/// Says for whom to schedule, and whether to contend for the Lease.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// Schedules pods whose `schedulerName` is this.
    pub name: String,
    /// Acts only while holding the scheduler's Lease.
    pub leader_elect: bool,
    /// Identifies this process among the candidates.
    pub identity: String,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            name: DEFAULT_SCHEDULER.to_owned(),
            leader_elect: false,
            identity: crate::options::default_identity(),
        }
    }
}

/// Schedules pods until the token is cancelled.
///
/// With election, waits for the Lease first, and returns an error when it is lost:
/// the process must end then, since another may act already.
pub async fn run_scheduler(
    client: Client,
    options: SchedulerOptions,
    token: CancellationToken,
) -> Result<(), ManagerError> {
    if !options.leader_elect {
        run(client, options, token).await;
        return Ok(());
    }
    let config = ElectionConfig::new(LEASE_NAMESPACE, LEASE_NAME, options.identity.clone());
    let work = client.clone();
    leader_election::run(client, config, token, |leading| run(work, options, leading)).await?;
    Ok(())
}

async fn run(client: Client, options: SchedulerOptions, token: CancellationToken) {
    let mut scheduler = Scheduler::new(client, options);
    scheduler.nodes.spawn(token.clone());
    scheduler.pods.spawn(token.clone());
    tokio::select! {
        () = token.cancelled() => return,
        () = async { tokio::join!(scheduler.nodes.synced(), scheduler.pods.synced()); } => {}
    }
    tracing::info!(scheduler = scheduler.options.name, "scheduler started");
    loop {
        match scheduler.select(&token).await {
            Action::Stop => return,
            action => scheduler.apply(action),
        }
    }
}

/// Is an object whose state may have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Changed {
    Node(ObjectKey),
    Pod(ObjectKey),
}

/// Is the next thing to do.
enum Action {
    Stop,
    Changed(Changed),
    Finished(Box<Finished>),
    Schedule,
    /// A wait in the queue may be over.
    Tick,
}

struct Scheduler {
    options: SchedulerOptions,
    nodes: SharedInformer<Node>,
    pods: SharedInformer<Pod>,
    changes: WorkQueue<Changed>,
    cache: Cache,
    queue: SchedulingQueue,
    cycle: Cycle,
    /// Is the state of each pod as last taken into queue or cache.
    known: BTreeMap<ObjectKey, Arc<PodInfo>>,
    calls: Calls,
    running: JoinSet<Finished>,
    recorder: EventRecorder,
    origin: Instant,
}

impl Scheduler {
    fn new(client: Client, options: SchedulerOptions) -> Self {
        let nodes = SharedInformer::<Node>::new(&client, InformerOptions::all());
        let pods = SharedInformer::<Pod>::new(&client, InformerOptions::all());
        let changes = WorkQueue::default();
        let marked: WorkQueue<Changed> = changes.clone();
        nodes.add_handler(move |event| marked.add(Changed::Node(event.key())));
        let marked: WorkQueue<Changed> = changes.clone();
        pods.add_handler(move |event| marked.add(Changed::Pod(event.key())));
        let recorder = EventRecorder::new(client.clone(), &options.name, None);
        Self {
            calls: Calls {
                client,
                recorder: recorder.clone(),
                scheduler: options.name.clone(),
            },
            options,
            nodes,
            pods,
            changes,
            cache: Cache::default(),
            queue: SchedulingQueue::default(),
            cycle: Cycle::default(),
            known: BTreeMap::new(),
            running: JoinSet::new(),
            recorder,
            origin: Instant::now(),
        }
    }

    /// Waits for the next action. Changes go first, so that a cycle decides by the
    /// newest state.
    async fn select(&mut self, token: &CancellationToken) -> Action {
        let may_schedule = self.running.len() < API_CALLS_MAX && self.queue.has_ready();
        let due = self.queue.next_due();
        tokio::select! {
            biased;
            () = token.cancelled() => Action::Stop,
            Some(changed) = self.changes.get() => Action::Changed(changed),
            Some(finished) = self.running.join_next() => finished.map_or_else(
                // A call that panicked leaves its pod in flight; the pod is lost to the
                // scheduler, so its loss must not go unseen.
                |error| std::panic::resume_unwind(Box::new(error.to_string())),
                |finished| Action::Finished(Box::new(finished)),
            ),
            () = std::future::ready(()), if may_schedule => Action::Schedule,
            () = tokio::time::sleep_until(self.origin + due.unwrap_or_default()),
                if due.is_some() && !may_schedule => Action::Tick,
        }
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Changed(changed) => {
                match &changed {
                    Changed::Node(key) => self.node_changed(key),
                    Changed::Pod(key) => self.pod_changed(key),
                }
                self.changes.done(&changed);
            }
            Action::Finished(finished) => self.finished(*finished),
            Action::Schedule => self.schedule(),
            Action::Tick => self.queue.flush(self.now()),
            Action::Stop => {}
        }
    }

    // === What changed ===

    fn node_changed(&mut self, key: &ObjectKey) {
        let Some(node) = self.nodes.store().get(key) else {
            return self.cache.remove_node(&key.name);
        };
        let old = self.cache.set_node(&node);
        let new = Arc::new(NodeInfo::new(&node));
        match old {
            None => self.tell(ClusterEvent::NodeAdded(new)),
            Some(old) if !old.offers_like(&new) => {
                self.tell(ClusterEvent::NodeChanged {
                    old: Arc::new(old),
                    new,
                });
            }
            Some(_) => {}
        }
    }

    fn pod_changed(&mut self, key: &ObjectKey) {
        let new = self
            .pods
            .store()
            .get(key)
            .map(|pod| Arc::new(PodInfo::new(pod)));
        let old = match &new {
            Some(new) => self.known.insert(key.clone(), Arc::clone(new)),
            None => self.known.remove(key),
        };
        if let Some(old) = &old
            && new.as_ref().is_none_or(|new| new.uid != old.uid)
        {
            self.pod_gone(old);
        }
        let Some(new) = new else { return };
        let old = old.filter(|old| old.uid == new.uid);
        if new.is_terminal() || (new.node_name.is_empty() && new.is_deleting()) {
            self.pod_gone(&new);
        } else if !new.node_name.is_empty() {
            self.pod_assigned(old.as_deref(), new);
        } else if self.is_ours(&new) {
            if !new.nominated_node.is_empty() {
                self.cycle.nominate(Arc::clone(&new), &new.nominated_node);
            } else if old.is_some_and(|old| !old.nominated_node.is_empty()) {
                self.cycle.clear_nomination(&new.uid);
            }
            self.queue.update(new, self.now());
        }
    }

    /// Stops counting a pod that is gone or ended, wherever it was.
    fn pod_gone(&mut self, pod: &PodInfo) {
        self.queue.delete(&pod.uid);
        self.cycle.clear_nomination(&pod.uid);
        if let Some(gone) = self.cache.remove_pod(&pod.uid) {
            self.tell(ClusterEvent::AssignedPodGone(gone));
        }
    }

    fn pod_assigned(&mut self, old: Option<&PodInfo>, new: Arc<PodInfo>) {
        self.queue.delete(&new.uid);
        self.cycle.clear_nomination(&new.uid);
        self.cache.add_pod(Arc::clone(&new));
        if old.is_some_and(|old| !old.node_name.is_empty() && old.requests != new.requests) {
            self.tell(ClusterEvent::AssignedPodShrank(new));
        }
    }

    fn is_ours(&self, pod: &PodInfo) -> bool {
        let name = pod
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.scheduler_name.as_deref());
        name.unwrap_or(DEFAULT_SCHEDULER) == self.options.name
    }

    fn tell(&mut self, event: ClusterEvent) {
        let now = self.now();
        let cycle = &self.cycle;
        self.queue
            .on_event(event, &|by, pod, event| cycle.may_help(by, pod, event), now);
    }

    // === One pod ===

    fn schedule(&mut self) {
        let now = self.now();
        let Some(queued) = self.queue.pop(now) else {
            return;
        };
        match self
            .cycle
            .schedule(&queued.pod, &self.cache, rand::random())
        {
            Ok(choice) => self.bind(queued, choice),
            Err(error) => self.rejected(queued, error),
        }
    }

    fn bind(&mut self, queued: QueuedPod, choice: Choice) {
        self.cache.assume(Arc::clone(&queued.pod), &choice.node);
        let calls = self.calls.clone();
        self.running
            .spawn(async move { calls.bind(queued, choice.node).await });
    }

    fn rejected(&mut self, queued: QueuedPod, error: ScheduleError) {
        let pod = Arc::clone(&queued.pod);
        let mut failure = Failure {
            pod: Arc::clone(&pod),
            reason: "Unschedulable",
            message: String::new(),
            nominate: None,
            victims: Vec::new(),
        };
        // Without a plugin that rejected it, any event tries the pod again.
        let mut rejected_by = BTreeSet::new();
        match error {
            ScheduleError::NoNodes => failure.message = ScheduleError::NoNodes.to_string(),
            ScheduleError::Fit(mut fit) => {
                let preemption = preempt(&self.cycle, &pod, &self.cache, &fit);
                fit.post_filter = preemption.message().map(str::to_owned);
                match preemption {
                    Preemption::NotEligible(_) => {}
                    Preemption::NoHelp(_) => {
                        self.cycle.clear_nomination(&pod.uid);
                        failure.nominate = Some(String::new());
                    }
                    Preemption::Victims { node, pods } => {
                        self.cycle.nominate(Arc::clone(&pod), &node);
                        failure.nominate = Some(node);
                        failure.victims = pods;
                    }
                }
                failure.message = fit.to_string();
                rejected_by = fit.rejected_by;
            }
        }
        let now = self.now();
        let cycle = &self.cycle;
        self.queue.reject(
            queued,
            rejected_by,
            &|by, pod, event| cycle.may_help(by, pod, event),
            now,
        );
        self.report(failure);
    }

    fn report(&mut self, failure: Failure) {
        let about = client::object_reference(&*failure.pod.pod);
        self.recorder.event(
            &about,
            EventType::Warning,
            "FailedScheduling",
            failure.message.clone(),
        );
        let calls = self.calls.clone();
        self.running
            .spawn(async move { calls.report(failure).await });
    }

    fn finished(&mut self, finished: Finished) {
        match finished {
            Finished::Reported => {}
            Finished::Bound {
                queued,
                node,
                result: Ok(()),
            } => {
                let pod = &queued.pod;
                self.queue.done(&pod.uid);
                let about = client::object_reference(&*pod.pod);
                let message = format!("Successfully assigned {} to {node}", pod.key());
                self.recorder
                    .event(&about, EventType::Normal, "Scheduled", message);
            }
            Finished::Bound {
                queued,
                result: Err(error),
                ..
            } => {
                self.binding_failed(queued, &error);
            }
        }
    }

    fn binding_failed(&mut self, mut queued: QueuedPod, error: &client::Error) {
        let uid = queued.pod.uid.clone();
        let room = Arc::clone(&queued.pod);
        let freed = self.cache.forget(&uid);
        let newest = self.known.get(&queued.pod.pod.key()).cloned();
        let waiting = newest.filter(|pod| {
            pod.uid == uid && pod.node_name.is_empty() && !pod.is_terminal() && !pod.is_deleting()
        });
        match waiting {
            // Gone, or bound after all: nothing is left to do for it.
            None => self.queue.done(&uid),
            Some(newest) => {
                queued.pod = Arc::clone(&newest);
                self.queue.fail(queued, self.now());
                tracing::debug!(pod = newest.key(), %error, "binding failed");
                self.report(Failure {
                    pod: newest,
                    reason: "SchedulerError",
                    message: format!("binding rejected: {error}"),
                    nominate: None,
                    victims: Vec::new(),
                });
            }
        }
        if freed {
            self.tell(ClusterEvent::AssignedPodGone(room));
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}
