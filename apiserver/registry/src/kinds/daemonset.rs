//! DaemonSet (apps/v1).

use jiff::Timestamp;
use meta::value::{at, str_at};
use meta::{FieldError, LabelSelector};
use serde_json::{Value, json};

use super::{counts, workload};
use crate::kind::{Column, Endpoint, Kind, Strategy, Subresource, keep_other_half};
use crate::podspec::{self, fill, fill_text};
use crate::print;
use crate::validate::{Errors, immutable, not_negative, same, selector};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "DaemonSet",
    list_kind: "DaemonSetList",
    plural: "daemonsets",
    singular: "daemonset",
    short_names: &["ds"],
    categories: &["all"],
    subresources: &[Subresource::status("apps", "v1", "DaemonSet")],
    storage_prefix: "daemonsets",
    definition: "io.k8s.api.apps.v1.DaemonSet",
    generation: true,
    columns: &[
        Column::name(),
        Column::integer("Desired", "The number of nodes that should run a pod."),
        Column::integer("Current", "The number of nodes that run one."),
        Column::integer("Ready", "The number of ready pods."),
        Column::integer("Up-to-date", "The number of pods of the current template."),
        Column::integer("Available", "The number of pods ready for long enough."),
        Column::text("Node Selector", "The labels of the nodes."),
        Column::age(),
        Column::wide("Containers", "The names of the containers."),
        Column::wide("Images", "The images of the containers."),
        Column::wide("Selector", "The selector of the pods."),
    ],
    strategy: &DaemonSet,
    ..Kind::BASE
};

/// The annotation that counts the templates there were. Only the server
/// changes it.
const TEMPLATES: &str = "deprecated.daemonset.template.generation";

struct DaemonSet;

impl Strategy for DaemonSet {
    fn reset_fields(&self, endpoint: Endpoint) -> &'static [&'static str] {
        match endpoint {
            Endpoint::Status => &["spec", "metadata.labels"],
            Endpoint::Main => &["status"],
            Endpoint::Finalize | Endpoint::Other => &[],
        }
    }

    fn default(&self, object: &mut Value) {
        let spec = workload::default_template(object);
        fill(spec, "revisionHistoryLimit", 10);
        let strategy = spec.entry("updateStrategy").or_insert_with(|| json!({}));
        let Some(strategy) = strategy.as_object_mut() else {
            return;
        };
        fill_text(strategy, "type", "RollingUpdate");
        if strategy.get("type") == Some(&json!("RollingUpdate")) {
            let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
            if let Some(rolling) = rolling.as_object_mut() {
                fill(rolling, "maxUnavailable", 1);
                fill(rolling, "maxSurge", 0);
            }
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        let status = json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0,
            "numberMisscheduled": 0, "numberReady": 0});
        workload::set_status(object, status);
        count_template(object, 1);
    }

    fn prepare_for_update(&self, endpoint: Endpoint, new: &mut Value, old: &Value) {
        keep_other_half(endpoint, new, old);
        let template = |o| at(o, "spec.template");
        let changed = !same(template(new), template(old));
        count_template(new, templates(old) + i64::from(changed));
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let chosen = at(object, "spec.selector");
        selector(chosen, "spec.selector", errors);
        let empty = json!({});
        let template = at(object, "spec.template").unwrap_or(&empty);
        match chosen.map(LabelSelector::from_value) {
            Some(Ok(chosen)) => workload::chooses(&chosen, template, "spec.template", errors),
            Some(Err(_)) => {}
            None => errors.push(FieldError::invalid(
                "spec.template.metadata.labels",
                at(template, "metadata.labels")
                    .cloned()
                    .unwrap_or(json!({})),
                "`selector` does not match template `labels`",
            )),
        }
        if let Some(value) = chosen.filter(|value| workload::is_empty(value)) {
            let words = "empty selector is invalid for daemonset";
            errors.push(FieldError::invalid("spec.selector", value.clone(), words));
        }
        podspec::validate::template(Some(template), "spec.template", errors);
        workload::runs_for_ever(template, "DaemonSet", errors);
        not_negative(object, "spec.minReadySeconds", errors);
        update_strategy(object, errors);
        not_negative(object, "spec.revisionHistoryLimit", errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if endpoint != Endpoint::Status {
            immutable(new, old, "spec.selector", errors);
            return;
        }
        for field in [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
        ] {
            not_negative(new, &format!("status.{field}"), errors);
        }
        workload::collisions(new, old, errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        workload::warnings(new, old)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (names, images) = print::containers(at(object, "spec.template.spec"));
        vec![
            print::name(object),
            print::number(object, "status.desiredNumberScheduled"),
            print::number(object, "status.currentNumberScheduled"),
            print::number(object, "status.numberReady"),
            print::number(object, "status.updatedNumberScheduled"),
            print::number(object, "status.numberAvailable"),
            Value::from(print::labels(at(object, "spec.template.spec.nodeSelector"))),
            print::age(object, now),
            Value::from(names),
            Value::from(images),
            Value::from(print::selector(at(object, "spec.selector"))),
        ]
    }
}

fn templates(object: &Value) -> i64 {
    let annotations = at(object, "metadata.annotations");
    let text = annotations
        .and_then(|a| a.get(TEMPLATES))
        .and_then(Value::as_str);
    text.and_then(|t| t.parse().ok()).unwrap_or(1)
}

fn count_template(object: &mut Value, count: i64) {
    let metadata = meta::value::metadata_mut(object);
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    crate::kind::put(annotations, TEMPLATES, Some(Value::from(count.to_string())));
}

fn update_strategy(object: &Value, errors: &mut Errors) {
    let path = "spec.updateStrategy";
    let strategy = at(object, path);
    let rolling = match str_at(object, "spec.updateStrategy.type") {
        "OnDelete" => return,
        "RollingUpdate" => strategy.and_then(|s| s.get("rollingUpdate")),
        _ => {
            let given = strategy.cloned().unwrap_or_default();
            let known = ["RollingUpdate", "OnDelete"];
            errors.push(FieldError::not_supported(path, given, &known));
            return;
        }
    };
    let at = |field: &str| format!("{path}.rollingUpdate.{field}");
    let Some(rolling) = rolling else {
        errors.push(FieldError::required(format!("{path}.rollingUpdate"), ""));
        return;
    };
    let fields = ["maxUnavailable", "maxSurge"];
    for check in [counts::check, counts::at_most_all] {
        for field in fields {
            if let Some(value) = rolling.get(field) {
                check(value, &at(field), errors);
            }
        }
    }
    let set = fields.map(|field| counts::amount(rolling.get(field)) != 0);
    match set {
        [true, true] => errors.push(FieldError::invalid(
            at("maxSurge"),
            rolling.get("maxSurge").cloned().unwrap_or_default(),
            "may not be set when maxUnavailable is non-zero",
        )),
        [false, false] => errors.push(FieldError::required(
            at("maxUnavailable"),
            "cannot be 0 when maxSurge is 0",
        )),
        _ => {}
    }
}
