//! What a runtime reports: the container instances of one pod.
//!
//! An instance is one run of a container; a restart makes a new instance with
//! the next `attempt`. The runtime keeps the newest instance and the one before
//! it, so that `lastState` and `kubectl logs --previous` have an answer.

use jiff::Timestamp;

/// How many instances of one container are kept, the newest included.
/// Older ones are removed, logs too (upstream keeps one dead container per
/// container, `MaxPerPodContainer`).
pub const INSTANCES_KEPT: usize = 2;

/// How a container instance ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerExit {
    /// Exit code; 128 + signal when a signal ended it, 128 when it never started.
    pub exit_code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When its process started, if it did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Timestamp,
    /// Reason as users know it: `Completed`, `Error`, `StartError`.
    pub reason: String,
    /// A message for people, possibly empty.
    pub message: String,
}

/// Where a container instance is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerRun {
    /// The intent is recorded, its process has not started yet.
    Created,
    /// Its process runs.
    Running {
        /// When its process started.
        started_at: Timestamp,
    },
    /// Its process has ended.
    Exited(ContainerExit),
}

/// One run of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerInstance {
    /// The runtime's id, without scheme.
    pub id: String,
    /// The container's name in the pod spec.
    pub name: String,
    /// How many instances of this container came before.
    pub attempt: u32,
    /// The image as written in the spec it was started from.
    pub image: String,
    /// What the image resolved to.
    pub image_id: String,
    /// [`crate::pod::spec_hash`] of the spec it was started from.
    pub spec_hash: String,
    /// When the intent was recorded.
    pub created_at: Timestamp,
    /// Where it is in its life.
    pub run: ContainerRun,
}

impl ContainerInstance {
    /// Reports whether the instance still has, or may yet get, a process.
    pub fn is_alive(&self) -> bool {
        !matches!(self.run, ContainerRun::Exited(_))
    }

    /// Returns how it ended, if it has.
    pub fn exit(&self) -> Option<&ContainerExit> {
        match &self.run {
            ContainerRun::Exited(exit) => Some(exit),
            ContainerRun::Created | ContainerRun::Running { .. } => None,
        }
    }
}

/// All instances of one pod's containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRuntime {
    /// The instances, in no particular order.
    pub containers: Vec<ContainerInstance>,
}

impl PodRuntime {
    /// Returns all instances of a container, newest first.
    pub fn instances(&self, name: &str) -> Vec<&ContainerInstance> {
        let mut found: Vec<_> = self.containers.iter().filter(|c| c.name == name).collect();
        found.sort_by(|a, b| {
            (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id))
        });
        found
    }

    /// Returns the newest instance of a container.
    pub fn latest(&self, name: &str) -> Option<&ContainerInstance> {
        self.containers
            .iter()
            .filter(|c| c.name == name)
            .max_by_key(|c| (c.attempt, c.created_at, &c.id))
    }

    /// Returns the instance before the newest one.
    pub fn previous(&self, name: &str) -> Option<&ContainerInstance> {
        self.instances(name).get(1).copied()
    }

    /// Reports whether any instance is alive.
    pub fn any_alive(&self) -> bool {
        self.containers.iter().any(ContainerInstance::is_alive)
    }

    /// Replaces or adds one instance.
    pub fn upsert(&mut self, instance: ContainerInstance) {
        match self.containers.iter_mut().find(|c| c.id == instance.id) {
            Some(slot) => *slot = instance,
            None => self.containers.push(instance),
        }
    }

    /// Forgets one instance.
    pub fn forget(&mut self, id: &str) {
        self.containers.retain(|c| c.id != id);
    }
}
