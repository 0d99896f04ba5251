//! ReplicationController: the oldest of the workloads, whose selector is a
//! plain map of labels.

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, int_at};
use serde_json::{Value, json};

use super::workload;
use crate::kind::{Column, Endpoint, Kind, Propagation, Strategy, Subresource};
use crate::podspec::{self, fill};
use crate::print;
use crate::validate::{Errors, not_negative};

/// Describes the kind. Its pods stay when it is deleted without a word about
/// them, as they did before there were propagation policies.
pub(crate) static KIND: Kind = Kind {
    kind: "ReplicationController",
    list_kind: "ReplicationControllerList",
    plural: "replicationcontrollers",
    singular: "replicationcontroller",
    short_names: &["rc"],
    categories: &["all"],
    subresources: &[
        workload::SCALE,
        Subresource::status("", "v1", "ReplicationController"),
    ],
    storage_prefix: "controllers",
    definition: "io.k8s.api.core.v1.ReplicationController",
    generation: true,
    propagation: Propagation::Orphan,
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
    strategy: &ReplicationController,
    ..Kind::BASE
};

struct ReplicationController;

impl Strategy for ReplicationController {
    fn default(&self, object: &mut Value) {
        let labels = at(object, "spec.template.metadata.labels").cloned();
        let spec = workload::default_template(object);
        fill(spec, "replicas", 1);
        let Some(labels) = labels.filter(|l| l.as_object().is_some_and(|m| !m.is_empty())) else {
            return;
        };
        let chosen = spec.get("selector").and_then(Value::as_object);
        if chosen.is_none_or(serde_json::Map::is_empty) {
            spec.insert("selector".to_owned(), labels.clone());
        }
        workload::default_labels(object, labels);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        workload::set_status(object, json!({"replicas": 0}));
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        not_negative(object, "spec.minReadySeconds", errors);
        not_negative(object, "spec.replicas", errors);
        let chosen = at(object, "spec.selector").and_then(Value::as_object);
        let Some(chosen) = chosen.filter(|m| !m.is_empty()) else {
            errors.push(FieldError::required("spec.selector", ""));
            return;
        };
        let Some(template) = at(object, "spec.template") else {
            errors.push(FieldError::required("spec.template", ""));
            return;
        };
        let labels = at(template, "metadata.labels");
        let fits = |(key, value): (&String, &Value)| labels.and_then(|l| l.get(key)) == Some(value);
        if !chosen.iter().all(fits) {
            errors.push(FieldError::invalid(
                "spec.template.metadata.labels",
                labels.cloned().unwrap_or_else(|| json!({})),
                "`selector` does not match template `labels`",
            ));
        }
        podspec::validate::template(Some(template), "spec.template", errors);
        workload::runs_for_ever(template, "ReplicationController", errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, _: &Value, errors: &mut Errors) {
        if endpoint == Endpoint::Status {
            let counts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
            workload::counts(new, &counts, "readyReplicas", errors);
        }
    }

    fn selectable_field(&self, object: &Value, name: &str) -> String {
        int_at(object, name).unwrap_or(0).to_string()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        workload::named_warnings(new, old)
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
            Value::from(print::labels(at(object, "spec.selector"))),
        ]
    }
}
