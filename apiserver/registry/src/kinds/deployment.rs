//! Deployment (apps/v1).

use jiff::Timestamp;
use meta::FieldError;
use meta::intstr::IntOrString;
use meta::value::{at, int_at, str_at};
use serde_json::{Value, json};

use super::workload;
use crate::kind::{Column, Endpoint, Kind, STATUS_VERBS, Strategy, Subresource};
use crate::podspec::{fill, fill_text};
use crate::print;
use crate::validate::{Errors, immutable, not_negative, one_of, same};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "Deployment",
    list_kind: "DeploymentList",
    plural: "deployments",
    singular: "deployment",
    short_names: &["deploy"],
    categories: &["all"],
    subresources: &[
        workload::SCALE,
        Subresource {
            name: "status",
            group: "apps",
            version: "v1",
            kind: "Deployment",
            verbs: STATUS_VERBS,
        },
    ],
    storage_prefix: "deployments",
    definition: "io.k8s.api.apps.v1.Deployment",
    generation: true,
    columns: &[
        Column::name(),
        Column::text("Ready", "The number of ready pods of those wanted."),
        Column::integer("Up-to-date", "The number of pods of the current template."),
        Column::integer("Available", "The number of pods ready for long enough."),
        Column::age(),
        Column::wide("Containers", "The names of the containers."),
        Column::wide("Images", "The images of the containers."),
        Column::wide("Selector", "The selector of the pods."),
    ],
    strategy: &Deployment,
    ..Kind::BASE
};

struct Deployment;

impl Strategy for Deployment {
    fn reset_fields(&self, endpoint: Endpoint) -> &'static [&'static str] {
        match endpoint {
            Endpoint::Status => &["spec", "metadata.labels"],
            Endpoint::Main => &["status"],
            Endpoint::Finalize | Endpoint::Other => &[],
        }
    }

    fn default(&self, object: &mut Value) {
        let spec = workload::default_template(object);
        fill(spec, "replicas", 1);
        fill(spec, "revisionHistoryLimit", 10);
        fill(spec, "progressDeadlineSeconds", 600);
        let strategy = spec.entry("strategy").or_insert_with(|| json!({}));
        if let Some(strategy) = strategy.as_object_mut() {
            fill_text(strategy, "type", "RollingUpdate");
            if strategy.get("type") == Some(&json!("RollingUpdate")) {
                let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
                if let Some(rolling) = rolling.as_object_mut() {
                    fill(rolling, "maxUnavailable", "25%");
                    fill(rolling, "maxSurge", "25%");
                }
            }
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        workload::reset_status(object);
    }

    fn changes_desired(&self, new: &Value, old: &Value) -> bool {
        let annotations = |o| at(o, "metadata.annotations");
        !same(new.get("spec"), old.get("spec")) || !same(annotations(new), annotations(old))
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        workload::validate(object, "deployment", errors);
        not_negative(object, "spec.revisionHistoryLimit", errors);
        not_negative(object, "spec.progressDeadlineSeconds", errors);
        if let Some(deadline) = int_at(object, "spec.progressDeadlineSeconds")
            && deadline <= int_at(object, "spec.minReadySeconds").unwrap_or(0)
        {
            errors.push(FieldError::invalid(
                "spec.progressDeadlineSeconds",
                deadline,
                "must be greater than minReadySeconds",
            ));
        }
        update_strategy(object, errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if endpoint != Endpoint::Status {
            immutable(new, old, "spec.selector", errors);
            return;
        }
        for field in [
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
        ] {
            not_negative(new, &format!("status.{field}"), errors);
        }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        workload::warnings(new, old)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (names, images) = print::containers(at(object, "spec.template.spec"));
        let number = |path: &str| int_at(object, path).unwrap_or(0);
        vec![
            print::name(object),
            Value::from(format!(
                "{}/{}",
                number("status.readyReplicas"),
                number("spec.replicas")
            )),
            print::number(object, "status.updatedReplicas"),
            print::number(object, "status.availableReplicas"),
            print::age(object, now),
            Value::from(names),
            Value::from(images),
            Value::from(print::selector(at(object, "spec.selector"))),
        ]
    }
}

fn update_strategy(object: &Value, errors: &mut Errors) {
    let ty = str_at(object, "spec.strategy.type");
    one_of(
        ty,
        "spec.strategy.type",
        &["Recreate", "RollingUpdate"],
        errors,
    );
    let rolling = at(object, "spec.strategy.rollingUpdate");
    if ty == "Recreate" && rolling.is_some() {
        errors.push(FieldError::forbidden(
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        ));
        return;
    }
    let Some(rolling) = rolling else { return };
    let mut both_zero = true;
    for field in ["maxUnavailable", "maxSurge"] {
        let path = format!("spec.strategy.rollingUpdate.{field}");
        match rolling.get(field).and_then(IntOrString::from_value) {
            Some(IntOrString::Int(number)) => {
                both_zero &= number == 0;
                if number < 0 {
                    errors.push(FieldError::invalid(
                        path,
                        number,
                        "must be greater than or equal to 0",
                    ));
                }
            }
            Some(text @ IntOrString::String(_)) => match text.percent() {
                Some(percent) => {
                    both_zero &= percent == 0;
                    if field == "maxUnavailable" && percent > 100 {
                        errors.push(FieldError::invalid(
                            path,
                            text.to_value(),
                            "must not be greater than 100%",
                        ));
                    }
                }
                None => {
                    both_zero = false;
                    errors.push(FieldError::invalid(
                        path,
                        text.to_value(),
                        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                    ));
                }
            },
            None => {}
        }
    }
    if both_zero {
        errors.push(FieldError::invalid(
            "spec.strategy.rollingUpdate.maxUnavailable",
            rolling
                .get("maxUnavailable")
                .cloned()
                .unwrap_or(Value::from(0)),
            "may not be 0 when `maxSurge` is 0",
        ));
    }
}
