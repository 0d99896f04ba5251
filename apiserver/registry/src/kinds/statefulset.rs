//! StatefulSet (apps/v1).

use jiff::Timestamp;
use meta::value::{at, int_at, object_mut, str_at};
use meta::{FieldError, LabelSelector, names};
use serde_json::{Value, json};

use super::{counts, persistentvolumeclaim, workload};
use crate::kind::{Column, Endpoint, Kind, Strategy, Subresource, put};
use crate::podspec::{self, fill, fill_text};
use crate::print;
use crate::validate::{Errors, items, not_negative, same, selector};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "StatefulSet",
    list_kind: "StatefulSetList",
    plural: "statefulsets",
    singular: "statefulset",
    short_names: &["sts"],
    categories: &["all"],
    subresources: &[
        workload::SCALE,
        Subresource::status("apps", "v1", "StatefulSet"),
    ],
    storage_prefix: "statefulsets",
    definition: "io.k8s.api.apps.v1.StatefulSet",
    generation: true,
    columns: &[
        Column::name(),
        Column::text("Ready", "The number of ready pods of those wanted."),
        Column::age(),
        Column::wide("Containers", "The names of the containers."),
        Column::wide("Images", "The images of the containers."),
    ],
    strategy: &StatefulSet,
    ..Kind::BASE
};

/// The fields of a specification that may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

struct StatefulSet;

impl Strategy for StatefulSet {
    fn default(&self, object: &mut Value) {
        let spec = workload::default_template(object);
        fill(spec, "replicas", 1);
        fill(spec, "revisionHistoryLimit", 10);
        fill_text(spec, "podManagementPolicy", "OrderedReady");
        let strategy = spec.entry("updateStrategy").or_insert_with(|| json!({}));
        if let Some(strategy) = strategy.as_object_mut() {
            fill_text(strategy, "type", "RollingUpdate");
            if strategy.get("type") == Some(&json!("RollingUpdate")) {
                let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
                if let Some(rolling) = rolling.as_object_mut() {
                    fill(rolling, "partition", 0);
                }
            }
        }
        let policy = "persistentVolumeClaimRetentionPolicy";
        let policy = spec.entry(policy).or_insert_with(|| json!({}));
        if let Some(policy) = policy.as_object_mut() {
            fill_text(policy, "whenDeleted", "Retain");
            fill_text(policy, "whenScaled", "Retain");
        }
        let claims = spec.get_mut("volumeClaimTemplates");
        for claim in claims.and_then(Value::as_array_mut).into_iter().flatten() {
            put(claim, "apiVersion", Some(Value::from("v1")));
            put(claim, "kind", Some(Value::from("PersistentVolumeClaim")));
            persistentvolumeclaim::defaults(claim);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        workload::set_status(object, json!({"replicas": 0, "availableReplicas": 0}));
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        policies(object, errors);
        update_strategy(object, errors);
        for field in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
            not_negative(object, &format!("spec.{field}"), errors);
        }
        not_negative(object, "spec.ordinals.start", errors);
        let service = str_at(object, "spec.serviceName");
        if !service.is_empty() {
            for error in names::label_errors(service) {
                errors.push(FieldError::invalid("spec.serviceName", service, error));
            }
        }
        let chosen = at(object, "spec.selector");
        match chosen {
            None => errors.push(FieldError::required("spec.selector", "")),
            Some(value) => {
                selector(Some(value), "spec.selector", errors);
                if workload::is_empty(value) {
                    let words = "empty selector is invalid for statefulset";
                    errors.push(FieldError::invalid("spec.selector", value.clone(), words));
                }
            }
        }
        let empty = json!({});
        let template = at(object, "spec.template").unwrap_or(&empty);
        if let Some(Ok(chosen)) = chosen.map(LabelSelector::from_value)
            && !chosen.is_empty()
        {
            workload::chooses(&chosen, template, "spec.template", errors);
        }
        podspec::validate::template(Some(&with_claims(object)), "spec.template", errors);
        workload::runs_for_ever(template, "StatefulSet", errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if endpoint == Endpoint::Status {
            let fields = [
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
            ];
            workload::counts(new, &fields, "status.readyReplicas", errors);
            workload::collisions(new, old, errors);
            return;
        }
        let rest = |object: &Value| {
            let mut spec = object.get("spec").cloned().unwrap_or_default();
            MUTABLE.iter().for_each(|field| put(&mut spec, field, None));
            spec
        };
        if !same(Some(&rest(new)), Some(&rest(old))) {
            errors.push(FieldError::forbidden(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            ));
        }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        workload::named_warnings(new, old)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (names, images) = print::containers(at(object, "spec.template.spec"));
        let number = |path: &str| int_at(object, path).unwrap_or(0);
        let (ready, wanted) = (number("status.readyReplicas"), number("spec.replicas"));
        vec![
            print::name(object),
            Value::from(format!("{ready}/{wanted}")),
            print::age(object, now),
            Value::from(names),
            Value::from(images),
        ]
    }
}

/// Returns the template with a volume for each claim, which the containers may
/// mount.
fn with_claims(object: &Value) -> Value {
    let mut template = at(object, "spec.template").cloned().unwrap_or_default();
    let claims = items(object, "spec.volumeClaimTemplates");
    if claims.is_empty() || !template.is_object() {
        return template;
    }
    let spec = object_mut(&mut template, "spec");
    let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
    if let Value::Array(volumes) = volumes {
        for claim in claims {
            let name = meta::value::name(claim);
            // A claim takes the place of a volume of its name.
            volumes.retain(|volume| str_at(volume, "name") != name);
            let source = json!({"claimName": name});
            volumes.push(json!({"name": name, "persistentVolumeClaim": source}));
        }
    }
    template
}

fn policies(object: &Value, errors: &mut Errors) {
    let policy = str_at(object, "spec.podManagementPolicy");
    match policy {
        "" => errors.push(FieldError::required("spec.podManagementPolicy", "")),
        "OrderedReady" | "Parallel" => {}
        other => errors.push(FieldError::invalid(
            "spec.podManagementPolicy",
            other,
            "must be 'OrderedReady' or 'Parallel'",
        )),
    }
    for field in ["whenDeleted", "whenScaled"] {
        let path = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
        let text = str_at(object, &path);
        if !matches!(text, "Retain" | "Delete") {
            let known = ["Retain", "Delete"];
            errors.push(FieldError::not_supported(path, text, &known));
        }
    }
}

fn update_strategy(object: &Value, errors: &mut Errors) {
    let path = "spec.updateStrategy";
    let rolling = at(object, "spec.updateStrategy.rollingUpdate");
    match str_at(object, "spec.updateStrategy.type") {
        "" => errors.push(FieldError::required(path, "")),
        "OnDelete" => {
            if let Some(rolling) = rolling {
                errors.push(FieldError::invalid(
                    format!("{path}.rollingUpdate"),
                    rolling.clone(),
                    "only allowed for updateStrategy 'RollingUpdate'",
                ));
            }
        }
        "RollingUpdate" => {
            not_negative(object, &format!("{path}.rollingUpdate.partition"), errors);
            let Some(most) = rolling.and_then(|r| r.get("maxUnavailable")) else {
                return;
            };
            let path = format!("{path}.rollingUpdate.maxUnavailable");
            counts::check(most, &path, errors);
            if counts::amount(Some(most)) == 0 {
                errors.push(FieldError::invalid(
                    path.as_str(),
                    most.clone(),
                    "cannot be 0",
                ));
            }
            counts::at_most_all(most, &path, errors);
        }
        _ => errors.push(FieldError::invalid(
            path,
            at(object, path).cloned().unwrap_or_default(),
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
}
