//! RuntimeClass (node.k8s.io/v1).

use jiff::Timestamp;
use meta::FieldError;
use meta::quantity::Quantity;
use meta::value::{at, str_at};
use serde_json::Value;

use crate::checks::{all_invalid, label_map};
use crate::kind::{Column, Endpoint, Kind, Strategy};
use crate::podspec::validate::toleration;
use crate::print;
use crate::validate::{Errors, immutable, items};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    list_kind: "RuntimeClassList",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    namespaced: false,
    storage_prefix: "runtimeclasses",
    definition: "io.k8s.api.node.v1.RuntimeClass",
    unconditional_update: false,
    columns: &[
        Column::name(),
        Column::text("Handler", "What the container runtime calls it."),
        Column::age(),
    ],
    strategy: &RuntimeClass,
    ..Kind::BASE
};

struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        let handler = str_at(object, "handler");
        let wrong = meta::names::label_errors(handler);
        all_invalid(handler, "handler", wrong, errors);
        let overhead = at(object, "overhead.podFixed").and_then(Value::as_object);
        for (name, amount) in overhead.into_iter().flatten() {
            if let Ok(quantity) = Quantity::from_value(amount)
                && quantity.is_negative()
            {
                errors.push(FieldError::invalid(
                    format!("overhead.limits[{name}]"),
                    quantity.to_string(),
                    "must be greater than or equal to 0",
                ));
            }
        }
        let Some(scheduling) = object.get("scheduling") else {
            return;
        };
        label_map(scheduling, "scheduling", "nodeSelector", errors);
        for (index, one) in items(scheduling, "tolerations").iter().enumerate() {
            toleration(one, &format!("scheduling.tolerations[{index}]"), errors);
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        immutable(new, old, "handler", errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            Value::from(str_at(object, "handler")),
            print::age(object, now),
        ]
    }
}
