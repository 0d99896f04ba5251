//! Secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use meta::FieldError;
use meta::value::{object_mut, str_at};
use serde_json::Value;

use super::configmap::{DATA_MAX, check_data, check_frozen};
use crate::kind::{Column, Endpoint, Kind, Strategy, put};
use crate::print;
use crate::validate::{Errors, IMMUTABLE};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "Secret",
    list_kind: "SecretList",
    plural: "secrets",
    singular: "secret",
    storage_prefix: "secrets",
    definition: "io.k8s.api.core.v1.Secret",
    selectable: &["type"],
    columns: &[
        Column::name(),
        Column::text("Type", "What the data is for."),
        Column::integer("Data", "The number of entries."),
        Column::age(),
    ],
    strategy: &Secret,
    ..Kind::BASE
};

/// The keys that a type of secret must have.
const REQUIRED: [(&str, &[&str]); 6] = [
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
    ("bootstrap.kubernetes.io/token", &[]),
    ("Opaque", &[]),
];

struct Secret;

impl Strategy for Secret {
    fn default(&self, object: &mut Value) {
        if str_at(object, "type").is_empty() {
            put(object, "type", Some(Value::from("Opaque")));
        }
        // `stringData` is a way to write `data`; it is never read back.
        let Some(Value::Object(texts)) = object.get("stringData").cloned() else {
            return;
        };
        let data = object_mut(object, "data");
        for (key, text) in texts {
            let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
            data.insert(key, Value::from(encoded));
        }
        put(object, "stringData", None);
    }

    fn moves(&self, object: &Value) -> bool {
        object.get("stringData").is_some()
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        // Three bytes of data are four of base64.
        if check_data(object, "data", errors) / 4 * 3 > DATA_MAX {
            errors.push(FieldError::too_long("data", DATA_MAX));
        }
        let data = object.get("data").and_then(Value::as_object);
        let wanted = REQUIRED
            .iter()
            .find(|(ty, _)| *ty == str_at(object, "type"));
        for key in wanted.map_or(&[] as &[&str], |(_, keys)| keys) {
            if !data.is_some_and(|d| d.contains_key(*key)) {
                errors.push(FieldError::required(format!("data[{key}]"), ""));
            }
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if str_at(new, "type") != str_at(old, "type") {
            errors.push(FieldError::invalid("type", str_at(new, "type"), IMMUTABLE));
        }
        check_frozen(new, old, &["data"], errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            Value::from(str_at(object, "type")),
            Value::from(print::count(object, "data")),
            print::age(object, now),
        ]
    }
}
