//! PodTemplate: a template that others may point at.

use jiff::Timestamp;
use meta::value::at;
use serde_json::Value;

use crate::kind::{Column, Kind, Strategy};
use crate::podspec;
use crate::print;
use crate::validate::{Errors, same};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "PodTemplate",
    list_kind: "PodTemplateList",
    plural: "podtemplates",
    singular: "podtemplate",
    storage_prefix: "podtemplates",
    definition: "io.k8s.api.core.v1.PodTemplate",
    generation: true,
    returns_deleted: true,
    columns: &[
        Column::name(),
        Column::text("Containers", "The names of the containers."),
        Column::text("Images", "The images of the containers."),
        Column::text("Pod Labels", "The labels of the pods."),
    ],
    strategy: &PodTemplate,
    ..Kind::BASE
};

struct PodTemplate;

impl Strategy for PodTemplate {
    fn default(&self, object: &mut Value) {
        if let Some(Value::Object(spec)) =
            object.get_mut("template").and_then(|t| t.get_mut("spec"))
        {
            podspec::defaults::spec(spec);
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        podspec::validate::template(object.get("template"), "template", errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let spec = |object| at(object, "template.spec");
        match spec(new) {
            Some(found) if !old.is_some_and(|old| same(Some(found), spec(old))) => {
                podspec::warnings::spec(found, "template.spec")
            }
            _ => Vec::new(),
        }
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        let (names, images) = print::containers(at(object, "template.spec"));
        vec![
            print::name(object),
            Value::from(names),
            Value::from(images),
            Value::from(print::labels(at(object, "template.metadata.labels"))),
        ]
    }
}
