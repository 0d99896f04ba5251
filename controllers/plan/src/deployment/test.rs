//! Rollouts step by step, and their two bounds under every interleaving.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use serde_json::{Value, json};

use super::status::{AVAILABLE, PROGRESSING};
use super::*;
use crate::object;

/// A Deployment, its sets and a ReplicaSet controller and kubelet of one line
/// each: a set's pods appear at once and become available when told.
pub(super) struct World {
    pub(super) deployment: Deployment,
    pub(super) sets: BTreeMap<String, ReplicaSet>,
    now: Timestamp,
    next_id: i64,
    events: Vec<String>,
}

impl World {
    fn new(replicas: i32, strategy: Value) -> Self {
        let deployment = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "d", "uid": "dep", "generation": 1, "resourceVersion": "1"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "strategy": strategy,
                "progressDeadlineSeconds": 600,
                "revisionHistoryLimit": 10,
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}},
            },
        }))
        .unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        Self {
            deployment,
            sets: BTreeMap::new(),
            now,
            next_id: 0,
            events: Vec::new(),
        }
    }

    pub(super) fn rolling(replicas: i32, surge: &str, unavailable: &str) -> Self {
        let bound = |text: &str| {
            text.parse::<i32>()
                .map_or(json!(text), |number| json!(number))
        };
        let bounds = json!({"maxSurge": bound(surge), "maxUnavailable": bound(unavailable)});
        Self::new(
            replicas,
            json!({"type": "RollingUpdate", "rollingUpdate": bounds}),
        )
    }

    fn plan(&self) -> Plan {
        let sets: Vec<ReplicaSet> = self.sets.values().cloned().collect();
        let observed = Observed {
            deployment: &self.deployment,
            replica_sets: &sets,
            live_pods: &BTreeMap::new(),
        };
        plan(&observed, self.now)
    }

    /// Plans and applies; returns whether anything but events was written.
    pub(super) fn sync(&mut self) -> bool {
        let plan = self.plan();
        let mut wrote = false;
        for write in plan.writes {
            wrote |= !matches!(write, Write::Event { .. });
            self.apply(write);
        }
        self.now = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
        wrote
    }

    fn apply(&mut self, write: Write) {
        match write {
            Write::Create { body, .. } => {
                let mut set: ReplicaSet = serde_json::from_value(body).unwrap();
                self.next_id += 1;
                set.metadata.uid = Some(format!("rs{}", self.next_id));
                set.metadata.generation = Some(1);
                set.metadata.creation_timestamp = Some(self.now.into());
                let name = set.metadata.name.clone().unwrap();
                assert!(
                    self.sets.insert(name, set).is_none(),
                    "a name is created once"
                );
            }
            Write::Replace {
                target,
                body,
                subresource: Some("status"),
            } => {
                assert_eq!(target.gvr.resource, "deployments");
                self.deployment = serde_json::from_value(body).unwrap();
            }
            Write::Replace { target, body, .. } => {
                let mut set: ReplicaSet = serde_json::from_value(body).unwrap();
                set.metadata.generation = set.metadata.generation.map(|number| number + 1);
                self.sets.insert(target.name, set);
            }
            Write::Patch { patch, .. } => {
                for (key, value) in patch["metadata"]["annotations"].as_object().unwrap() {
                    let annotations = self.deployment.metadata.annotations.get_or_insert_default();
                    annotations.insert(key.clone(), value.as_str().unwrap().to_owned());
                }
            }
            Write::Delete { target, .. } => drop(self.sets.remove(&target.name).unwrap()),
            Write::Event { message, .. } => self.events.push(message),
            Write::DeleteCollection { .. } => panic!("a Deployment deletes no collection"),
        }
    }

    /// Runs the ReplicaSet controller: pods come and go, new ones unavailable.
    pub(super) fn run_sets(&mut self) {
        for set in self.sets.values_mut() {
            let size = replicas_of(set);
            let generation = set.metadata.generation;
            let status = set.status.get_or_insert_default();
            status.replicas = size;
            status.available_replicas = status
                .available_replicas
                .map(|available| available.min(size));
            status.ready_replicas = status.available_replicas;
            status.observed_generation = generation;
        }
    }

    /// Makes up to `count` pods of the set with this image available.
    pub(super) fn make_available(&mut self, image: &str, count: i32) {
        for set in self.sets.values_mut().filter(|set| image_of(set) == image) {
            let status = set.status.get_or_insert_default();
            let available = status.available_replicas.unwrap_or(0) + count;
            status.available_replicas = Some(available.clamp(0, status.replicas));
            status.ready_replicas = status.available_replicas;
        }
    }

    pub(super) fn set_image(&mut self, image: &str) {
        let spec = self.deployment.spec.as_mut().unwrap();
        spec.template.spec.as_mut().unwrap().containers[0].image = Some(image.to_owned());
        self.bump();
    }

    pub(super) fn scale(&mut self, replicas: i32) {
        self.deployment.spec.as_mut().unwrap().replicas = Some(replicas);
        self.bump();
    }

    fn bump(&mut self) {
        self.deployment.metadata.generation = self.deployment.metadata.generation.map(|g| g + 1);
    }

    pub(super) fn settle(&mut self) {
        for _ in 0..200 {
            let wrote = self.sync();
            self.run_sets();
            for image in ["v1", "v2", "v3"] {
                self.make_available(image, i32::MAX / 2);
            }
            if !wrote && self.plan().writes.is_empty() {
                return;
            }
        }
        panic!("does not settle: {:#?}", self.plan());
    }

    fn sizes(&self) -> BTreeMap<String, i32> {
        self.sets
            .values()
            .map(|set| (image_of(set), replicas_of(set)))
            .collect()
    }

    pub(super) fn size(&self, image: &str) -> i32 {
        self.sizes().get(image).copied().unwrap_or(0)
    }

    fn reason(&self, type_: &str) -> String {
        let status = self.deployment.status.clone().unwrap_or_default();
        let found = status
            .conditions
            .into_iter()
            .flatten()
            .find(|c| c.type_ == type_);
        found
            .and_then(|condition| condition.reason)
            .unwrap_or_default()
    }

    pub(super) fn totals(&self) -> (i32, i32) {
        (
            self.sets.values().map(replicas_of).sum(),
            self.sets.values().map(available_replicas).sum(),
        )
    }
}

pub(super) fn replicas_of(set: &ReplicaSet) -> i32 {
    spec_replicas(set)
}

fn image_of(set: &ReplicaSet) -> String {
    let template = set.spec.as_ref().unwrap().template.as_ref().unwrap();
    template.spec.as_ref().unwrap().containers[0]
        .image
        .clone()
        .unwrap()
}

#[test]
fn a_new_deployment_creates_one_named_set_and_completes() {
    let mut world = World::rolling(5, "25%", "25%");
    world.sync();
    let (name, set) = world.sets.first_key_value().unwrap();
    assert_eq!(*name, revision::new_set_name(&world.deployment));
    assert_eq!(replicas_of(set), 5);
    let hash = name.strip_prefix("web-").unwrap();
    let spec = set.spec.as_ref().unwrap();
    for labels in [&spec.selector.match_labels, &set.metadata.labels] {
        assert_eq!(
            labels.as_ref().unwrap()[crate::hash::POD_TEMPLATE_HASH],
            hash
        );
    }
    assert_eq!(
        world.events,
        [format!("Scaled up replica set {name} from 0 to 5")]
    );
    assert_eq!(world.reason(PROGRESSING), "NewReplicaSetCreated");
    assert_eq!(world.reason(AVAILABLE), "MinimumReplicasUnavailable");
    assert_eq!(
        revision::annotation(&world.deployment.metadata, revision::REVISION),
        Some("1")
    );
    world.settle();
    assert_eq!(world.reason(PROGRESSING), "NewReplicaSetAvailable");
    assert_eq!(world.reason(AVAILABLE), "MinimumReplicasAvailable");
    let status = world.deployment.status.unwrap();
    assert_eq!(
        (
            status.replicas,
            status.updated_replicas,
            status.available_replicas
        ),
        (Some(5), Some(5), Some(5))
    );
    assert_eq!(status.unavailable_replicas, None);
}

/// The sizes (old, new) after each sync, when every new pod becomes available
/// between two syncs.
#[test]
fn rolling_steps_of_known_shapes() {
    for (replicas, surge, unavailable, expect) in [
        (
            4,
            "1",
            "0",
            vec![
                (4, 1),
                (3, 1),
                (3, 2),
                (2, 2),
                (2, 3),
                (1, 3),
                (1, 4),
                (0, 4),
            ],
        ),
        (
            4,
            "0",
            "1",
            vec![
                (4, 0),
                (3, 0),
                (3, 1),
                (2, 1),
                (2, 2),
                (1, 2),
                (1, 3),
                (0, 3),
                (0, 4),
            ],
        ),
        (
            4,
            "25%",
            "25%",
            vec![(4, 1), (2, 1), (2, 3), (0, 3), (0, 4)],
        ),
        (3, "100%", "0", vec![(3, 3), (0, 3)]),
        (1, "25%", "25%", vec![(1, 1), (0, 1)]),
        (2, "0", "0", vec![(2, 0), (1, 0), (1, 1), (0, 1), (0, 2)]),
    ] {
        let mut world = World::rolling(replicas, surge, unavailable);
        world.settle();
        world.set_image("v2");
        let mut steps = Vec::new();
        while world.size("v1") > 0 || world.size("v2") < replicas {
            world.sync();
            steps.push((world.size("v1"), world.size("v2")));
            world.run_sets();
            world.make_available("v2", 100);
            assert!(
                steps.len() < 50,
                "{replicas} {surge} {unavailable}: {steps:?}"
            );
        }
        steps.dedup();
        assert_eq!(
            steps, expect,
            "{replicas} replicas, surge {surge}, unavailable {unavailable}"
        );
    }
}

#[test]
fn recreate_empties_before_it_fills() {
    let mut world = World::new(3, json!({"type": "Recreate"}));
    world.settle();
    world.set_image("v2");
    world.sync();
    assert_eq!(world.sizes(), BTreeMap::from([("v1".into(), 0)]));
    // The old set's controller has not removed its pods yet: nothing to do.
    world.sync();
    assert_eq!(world.sets.len(), 1);
    world.run_sets();
    world.sync();
    assert_eq!(world.size("v2"), 3);
    world.settle();
    assert_eq!(world.reason(PROGRESSING), "NewReplicaSetAvailable");
}

/// Two active sets come from a cache that did not show the first; a rescale on top
/// must not hold them.
#[test]
fn recreate_recovers_from_two_active_sets_and_a_rescale() {
    let mut world = World::new(3, json!({"type": "Recreate"}));
    world.settle();
    let first = world.sets.clone();
    world.sets.clear();
    world.set_image("v2");
    world.settle();
    world.sets.extend(first);
    world.set_image("v3");
    world.scale(1);
    world.settle();
    assert_eq!(
        world.sizes(),
        BTreeMap::from([("v1".into(), 0), ("v2".into(), 0), ("v3".into(), 1)])
    );
}

#[test]
fn recreate_waits_for_terminating_pods() {
    let mut world = World::new(3, json!({"type": "Recreate"}));
    world.settle();
    world.set_image("v2");
    world.sync();
    world.run_sets();
    let sets: Vec<ReplicaSet> = world.sets.values().cloned().collect();
    let uid = sets[0].metadata.uid.clone().unwrap();
    let live_pods = BTreeMap::from([(uid, 1)]);
    let observed = Observed {
        deployment: &world.deployment,
        replica_sets: &sets,
        live_pods: &live_pods,
    };
    let plan = plan(&observed, world.now);
    assert!(
        !plan
            .writes
            .iter()
            .any(|write| matches!(write, Write::Create { .. })),
        "{plan:#?}"
    );
}

#[test]
fn undo_reuses_the_old_set_and_moves_its_revision() {
    let mut world = World::rolling(3, "1", "0");
    world.settle();
    let first = world.sets.keys().next().unwrap().clone();
    world.set_image("v2");
    world.settle();
    assert_eq!(
        revision::annotation(&world.deployment.metadata, revision::REVISION),
        Some("2")
    );
    world.set_image("v1");
    world.settle();
    assert_eq!(world.sets.len(), 2);
    let set = &world.sets[&first];
    assert_eq!(replicas_of(set), 3);
    assert_eq!(revision::of(set), 3);
    assert_eq!(
        revision::annotation(&set.metadata, revision::REVISION_HISTORY),
        Some("1")
    );
    assert_eq!(
        revision::annotation(&world.deployment.metadata, revision::REVISION),
        Some("3")
    );
}

#[test]
fn history_beyond_the_limit_goes_oldest_first() {
    let mut world = World::rolling(1, "1", "0");
    world
        .deployment
        .spec
        .as_mut()
        .unwrap()
        .revision_history_limit = Some(1);
    for image in ["v1", "v2", "v3"] {
        world.set_image(image);
        world.settle();
    }
    let images: Vec<String> = world.sizes().into_keys().collect();
    assert_eq!(images, ["v2", "v3"]);
}

#[test]
fn scaling_mid_rollout_keeps_proportions() {
    // Upstream's documented example: 10 replicas, surge 3, unavailable 2, scaled
    // to 15 while 8 old and 5 new pods exist; 5 more are shared out 3 to 2.
    let mut world = World::rolling(10, "3", "2");
    world.settle();
    world.set_image("v2");
    for _ in 0..4 {
        world.sync();
        world.run_sets();
    }
    assert_eq!((world.size("v1"), world.size("v2")), (8, 5));
    world.scale(15);
    world.sync();
    assert_eq!((world.size("v1"), world.size("v2")), (11, 7));
    world.settle();
    assert_eq!((world.size("v1"), world.size("v2")), (0, 15));
}

#[test]
fn scaling_a_settled_deployment_touches_one_set() {
    let mut world = World::rolling(2, "25%", "25%");
    world.settle();
    world.events.clear();
    world.scale(5);
    world.settle();
    let name = revision::new_set_name(&world.deployment);
    assert_eq!(
        world.events,
        [format!("Scaled up replica set {name} from 2 to 5")]
    );
    world.events.clear();
    world.scale(0);
    world.settle();
    assert_eq!(
        world.events,
        [format!("Scaled down replica set {name} from 5 to 0")]
    );
}

#[test]
fn paused_scales_but_does_not_roll() {
    let mut world = World::rolling(2, "1", "0");
    world.settle();
    world.deployment.spec.as_mut().unwrap().paused = Some(true);
    world.set_image("v2");
    world.scale(4);
    world.settle();
    assert_eq!(world.sizes(), BTreeMap::from([("v1".into(), 4)]));
    assert_eq!(world.reason(PROGRESSING), "DeploymentPaused");
    world.deployment.spec.as_mut().unwrap().paused = Some(false);
    world.bump();
    world.settle();
    assert_eq!(world.size("v2"), 4);
    assert_eq!(world.reason(PROGRESSING), "NewReplicaSetAvailable");
}

#[test]
fn no_progress_within_the_deadline_is_reported_once() {
    let mut world = World::rolling(2, "1", "0");
    world.settle();
    world.set_image("v2");
    for _ in 0..3 {
        world.sync();
        world.run_sets();
    }
    let wait = world.plan().requeue_after.unwrap();
    assert!(
        wait > SignedDuration::from_secs(500) && wait < SignedDuration::from_secs(602),
        "{wait}"
    );
    world.now = world.now.checked_add(wait).unwrap();
    world.sync();
    assert_eq!(world.reason(PROGRESSING), "ProgressDeadlineExceeded");
    assert_eq!(world.plan(), Plan::default());
    // The rollout can still succeed afterwards.
    world.settle();
    assert_eq!(world.reason(PROGRESSING), "NewReplicaSetAvailable");
}

#[test]
fn a_taken_name_asks_for_another() {
    let mut world = World::rolling(1, "1", "0");
    let name = revision::new_set_name(&world.deployment);
    let stranger: ReplicaSet =
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "d"}})).unwrap();
    let write = status::on_name_taken(&world.deployment, &stranger).unwrap();
    world.apply(write);
    assert_ne!(revision::new_set_name(&world.deployment), name);
    world.settle();
    let ours = world.sets.values().next().unwrap().clone();
    assert_eq!(status::on_name_taken(&world.deployment, &ours), None);
}

#[test]
fn refused_creation_is_told_once() {
    let mut world = World::rolling(1, "1", "0");
    let writes = status::on_create_refused(&world.deployment, "web-x", "quota", world.now);
    assert_eq!(writes.len(), 2);
    writes.into_iter().for_each(|write| world.apply(write));
    assert_eq!(world.reason(PROGRESSING), "ReplicaSetCreateError");
    let again = status::on_create_refused(&world.deployment, "web-x", "quota", world.now);
    assert_eq!(again.len(), 1, "the event only");
}

#[test]
fn a_deleted_deployment_only_reports() {
    let mut world = World::rolling(2, "1", "0");
    world.settle();
    world.set_image("v2");
    world.deployment.metadata.deletion_timestamp = Some(world.now.into());
    let plan = world.plan();
    assert!(
        plan.writes.iter().all(|write| matches!(
            write,
            Write::Replace {
                subresource: Some("status"),
                ..
            }
        )),
        "{plan:#?}"
    );
}

#[test]
fn an_unready_new_template_leaves_the_old_pods() {
    let mut world = World::rolling(4, "25%", "25%");
    world.settle();
    world.set_image("v2");
    for _ in 0..20 {
        world.sync();
        world.run_sets();
    }
    assert_eq!((world.size("v1"), world.size("v2")), (3, 2));
    assert_eq!(world.totals(), (5, 3));
}

#[test]
fn status_of_nothing_is_all_absent() {
    let mut world = World::rolling(0, "1", "0");
    world.settle();
    let status: DeploymentStatus = world.deployment.status.clone().unwrap();
    assert_eq!((status.replicas, status.ready_replicas), (None, None));
    assert_eq!(object::text(&world.deployment.metadata.name), "web");
}
