//! ReplicaSet (apps/v1).

use jiff::Timestamp;
use meta::value::{at, int_at};
use serde_json::Value;

use super::workload;
use crate::kind::{Column, Endpoint, Kind, STATUS_VERBS, Strategy, Subresource};
use crate::podspec::fill;
use crate::print;
use crate::validate::{Errors, immutable};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "ReplicaSet",
    list_kind: "ReplicaSetList",
    plural: "replicasets",
    singular: "replicaset",
    short_names: &["rs"],
    categories: &["all"],
    subresources: &[
        workload::SCALE,
        Subresource {
            name: "status",
            group: "apps",
            version: "v1",
            kind: "ReplicaSet",
            verbs: STATUS_VERBS,
        },
    ],
    storage_prefix: "replicasets",
    definition: "io.k8s.api.apps.v1.ReplicaSet",
    generation: true,
    selectable: &["status.replicas"],
    columns: &[
        Column::name(),
        Column::integer("Desired", "The number of pods wanted."),
        Column::integer("Current", "The number of pods there are."),
        Column::integer("Ready", "The number of ready pods."),
        Column::age(),
        Column::wide("Containers", "The names of the containers."),
        Column::wide("Images", "The images of the containers."),
        Column::wide("Selector", "The selector of the pods."),
    ],
    strategy: &ReplicaSet,
    ..Kind::BASE
};

struct ReplicaSet;

impl Strategy for ReplicaSet {
    fn default(&self, object: &mut Value) {
        let spec = workload::default_template(object);
        fill(spec, "replicas", 1);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        workload::reset_status(object);
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        workload::validate(object, "replicaset", errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if endpoint != Endpoint::Status {
            immutable(new, old, "spec.selector", errors);
            return;
        }
        let counts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        workload::counts(new, &counts, "readyReplicas", errors);
    }

    fn selectable_field(&self, object: &Value, name: &str) -> String {
        int_at(object, name).unwrap_or(0).to_string()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        workload::warnings(new, old)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (names, images) = print::containers(at(object, "spec.template.spec"));
        vec![
            print::name(object),
            print::number(object, "spec.replicas"),
            print::number(object, "status.replicas"),
            print::number(object, "status.readyReplicas"),
            print::age(object, now),
            Value::from(names),
            Value::from(images),
            Value::from(print::selector(at(object, "spec.selector"))),
        ]
    }
}
