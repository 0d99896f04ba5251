//! ControllerRevision (apps/v1): a state a controller may go back to.

use jiff::Timestamp;
use meta::value::{at, str_at};
use meta::{FieldError, GroupVersion};
use serde_json::Value;

use crate::kind::{Column, Endpoint, Kind, Strategy};
use crate::print;
use crate::validate::{Errors, immutable, items, not_negative};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "ControllerRevision",
    list_kind: "ControllerRevisionList",
    plural: "controllerrevisions",
    singular: "controllerrevision",
    storage_prefix: "controllerrevisions",
    definition: "io.k8s.api.apps.v1.ControllerRevision",
    columns: &[
        Column::name(),
        Column::text("Controller", "Whose state it is."),
        Column::text("Revision", "Which of its states."),
        Column::age(),
    ],
    strategy: &ControllerRevision,
    ..Kind::BASE
};

struct ControllerRevision;

impl Strategy for ControllerRevision {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        if object.get("data").is_none() {
            errors.push(FieldError::required("data", "data is mandatory"));
        }
        not_negative(object, "revision", errors);
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        immutable(new, old, "data", errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            Value::from(controller(object)),
            print::number(object, "revision"),
            print::age(object, now),
        ]
    }
}

/// Names the controller as `statefulset.apps/web`.
fn controller(object: &Value) -> String {
    let owners = items(object, "metadata.ownerReferences");
    let controls = |owner: &&Value| at(owner, "controller") == Some(&Value::Bool(true));
    let Some(owner) = owners.iter().find(controls) else {
        return print::NONE.to_owned();
    };
    let kind = str_at(owner, "kind").to_lowercase();
    let name = str_at(owner, "name");
    match GroupVersion::parse(str_at(owner, "apiVersion")) {
        Some(gv) if !gv.group.is_empty() => format!("{kind}.{}/{name}", gv.group),
        _ => format!("{kind}/{name}"),
    }
}
