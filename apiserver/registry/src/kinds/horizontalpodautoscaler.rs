//! HorizontalPodAutoscaler, served twice from one storage: autoscaling/v2, which
//! is what is stored, and autoscaling/v1, which knows no metric but the use of
//! CPU and keeps what else there is in annotations.

mod convert;
mod print;
mod validate;

use jiff::Timestamp;
use meta::value::{at, object_mut};
use serde_json::{Map, Value, json};

use super::workload;
use crate::kind::{Column, Conversion, Endpoint, Kind, Strategy, Subresource};
use crate::podspec::fill;
use crate::validate::Errors;

const COLUMNS: &[Column] = &[
    Column::name(),
    Column::text("Reference", "What is scaled."),
    Column::text("Targets", "What is measured of what is aimed at."),
    Column::text("MinPods", "The fewest pods."),
    Column::text("MaxPods", "The most pods."),
    Column::text("Replicas", "The number of pods there are."),
    Column::age(),
];

/// Describes autoscaling/v2's kind.
pub(crate) static V2: Kind = Kind {
    group: "autoscaling",
    version: "v2",
    kind: "HorizontalPodAutoscaler",
    list_kind: "HorizontalPodAutoscalerList",
    plural: "horizontalpodautoscalers",
    singular: "horizontalpodautoscaler",
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource::status(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
    )],
    storage_prefix: "horizontalpodautoscalers",
    definition: "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    columns: COLUMNS,
    strategy: &Autoscaler,
    ..Kind::BASE
};

/// Describes autoscaling/v1's kind.
pub(crate) static V1: Kind = Kind {
    group: "autoscaling",
    kind: "HorizontalPodAutoscaler",
    list_kind: "HorizontalPodAutoscalerList",
    plural: "horizontalpodautoscalers",
    singular: "horizontalpodautoscaler",
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource::status(
        "autoscaling",
        "v1",
        "HorizontalPodAutoscaler",
    )],
    storage_prefix: "horizontalpodautoscalers",
    conversion: Some(Conversion {
        to_storage: convert::to_v2,
        from_storage: convert::to_v1,
    }),
    definition: "io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler",
    columns: COLUMNS,
    strategy: &OldAutoscaler,
    ..Kind::BASE
};

struct Autoscaler;

impl Strategy for Autoscaler {
    fn default(&self, object: &mut Value) {
        let spec = object_mut(object, "spec");
        fill(spec, "minReplicas", 1);
        let metrics = spec.get("metrics").and_then(Value::as_array);
        if metrics.is_none_or(Vec::is_empty) {
            spec.insert("metrics".to_owned(), json!([convert::cpu(80)]));
        }
        if let Some(Value::Object(behavior)) = spec.get_mut("behavior") {
            default_behavior(behavior);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        workload::set_status(object, json!({"desiredReplicas": 0}));
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        validate::spec(at(object, "spec").unwrap_or(&Value::Null), errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, _: &Value, errors: &mut Errors) {
        if endpoint == Endpoint::Status {
            for field in ["currentReplicas", "desiredReplicas"] {
                crate::validate::not_negative(new, &format!("status.{field}"), errors);
            }
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        print::cells(object, now)
    }
}

/// The old version, which becomes the new one for everything it does.
struct OldAutoscaler;

impl OldAutoscaler {
    fn new_form(object: &Value) -> Value {
        let mut converted = object.clone();
        convert::to_v2(&mut converted);
        converted
    }

    fn through(object: &mut Value, change: impl FnOnce(&mut Value)) {
        convert::to_v2(object);
        change(object);
        convert::to_v1(object);
    }
}

impl Strategy for OldAutoscaler {
    fn default(&self, object: &mut Value) {
        Self::through(object, |object| Autoscaler.default(object));
    }

    fn prepare_for_create(&self, object: &mut Value) {
        Self::through(object, |object| Autoscaler.prepare_for_create(object));
    }

    fn prepare_for_update(&self, endpoint: Endpoint, new: &mut Value, old: &Value) {
        // Annotations hold parts of both halves, so the halves are told apart
        // in the new form.
        let old = Self::new_form(old);
        Self::through(new, |new| {
            Autoscaler.prepare_for_update(endpoint, new, &old)
        });
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        Autoscaler.validate(&Self::new_form(object), errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        Autoscaler.validate_update(endpoint, new, old, errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        print::cells(&Self::new_form(object), now)
    }
}

/// Fills in how fast it scales where something is said of that.
fn default_behavior(behavior: &mut Map<String, Value>) {
    let doubling = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let up = json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, doubling]);
    for (direction, policies) in [("scaleUp", up), ("scaleDown", json!([doubling]))] {
        let rules = behavior
            .entry(direction)
            .or_insert_with(|| json!({}))
            .as_object_mut();
        let Some(rules) = rules else { continue };
        if direction == "scaleUp" {
            fill(rules, "stabilizationWindowSeconds", 0);
        }
        fill(rules, "selectPolicy", "Max");
        let given = rules.get("policies").and_then(Value::as_array);
        if given.is_none() {
            rules.insert("policies".to_owned(), policies);
        }
    }
}
