//! VolumeAttachment (storage.k8s.io/v1).

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, int_at, str_at};
use serde_json::{Value, json};

use super::storageclass::GROUP;
use crate::checks::{all_invalid, bool_at, boolean, driver_name};
use crate::kind::{Column, Endpoint, Kind, Strategy, Subresource, put};
use crate::print;
use crate::validate::{Errors, immutable};

/// The largest sum of the keys and values a driver may note.
const METADATA_MAX: usize = 256 << 10;
/// The longest message of an error.
const MESSAGE_MAX: usize = 1024;

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: GROUP,
    kind: "VolumeAttachment",
    list_kind: "VolumeAttachmentList",
    plural: "volumeattachments",
    singular: "volumeattachment",
    namespaced: false,
    subresources: &[Subresource::status(GROUP, "v1", "VolumeAttachment")],
    storage_prefix: "volumeattachments",
    definition: "io.k8s.api.storage.v1.VolumeAttachment",
    unconditional_update: false,
    returns_deleted: true,
    columns: &[
        Column::name(),
        Column {
            format: "name",
            ..Column::text("Attacher", "The driver that attaches it.")
        },
        Column::text("PV", "The volume."),
        Column::text("Node", "Where it is attached."),
        boolean("Attached", "Whether it is attached."),
        Column::age(),
    ],
    strategy: &VolumeAttachment,
    ..Kind::BASE
};

struct VolumeAttachment;

impl Strategy for VolumeAttachment {
    fn prepare_for_create(&self, object: &mut Value) {
        put(object, "status", Some(json!({"attached": false})));
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        driver_name(str_at(object, "spec.attacher"), "spec.attacher", errors);
        let path = "spec.source";
        let words = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        let name = at(object, "spec.source.persistentVolumeName").and_then(Value::as_str);
        match (name, at(object, "spec.source.inlineVolumeSpec").is_some()) {
            (None, false) => errors.push(FieldError::required(path, words)),
            (Some(_), true) => errors.push(FieldError::forbidden(path, words)),
            (Some(""), false) => errors.push(FieldError::required(
                "spec.source.persistentVolumeName",
                "must specify non empty persistentVolumeName",
            )),
            (Some(name), false) => {
                let wrong = meta::names::subdomain_errors(name);
                all_invalid(name, "spec.source.persistentVolumeName", wrong, errors);
            }
            (None, true) => {}
        }
        let node = str_at(object, "spec.nodeName");
        let wrong = meta::names::subdomain_errors(node);
        all_invalid(node, "spec.nodeName", wrong, errors);
        let noted = at(object, "status.attachmentMetadata").and_then(Value::as_object);
        let size = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
        if noted.into_iter().flatten().map(size).sum::<usize>() > METADATA_MAX {
            errors.push(FieldError::too_long(
                "status.attachmentMetadata",
                METADATA_MAX,
            ));
        }
        for field in ["attachError", "detachError"] {
            let path = format!("status.{field}");
            if str_at(object, &format!("{path}.message")).len() > MESSAGE_MAX {
                errors.push(FieldError::too_long(
                    format!("{path}.message"),
                    METADATA_MAX,
                ));
            }
            if let Some(code) = int_at(object, &format!("{path}.errorCode"))
                && code < 0
            {
                errors.push(FieldError::invalid(
                    format!("{path}.errorCode"),
                    code,
                    "must be between 0 and 2147483647, inclusive",
                ));
            }
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        immutable(new, old, "spec", errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let text = |path: &str| Value::from(str_at(object, path));
        vec![
            print::name(object),
            text("spec.attacher"),
            text("spec.source.persistentVolumeName"),
            text("spec.nodeName"),
            Value::from(bool_at(object, "status.attached")),
            print::age(object, now),
        ]
    }
}
