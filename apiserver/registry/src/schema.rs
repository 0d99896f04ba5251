//! Walks a value along its definition: checks types, drops nulls, finds and
//! prunes unknown fields.
//!
//! It does what decoding into a Go struct does: a wrong type is an error
//! naming the field, a `null` is as if absent, a field the type does not have
//! is dropped and, when the caller asks (`fieldValidation`), reported.
//!
//! Limit: at most [`MAX_UNKNOWN`] unknown fields are reported; all are pruned.

use jiff::Timestamp;
use meta::GroupVersionKind;
use meta::quantity::{Quantity, QuantityError};
use serde_json::{Map, Value};

use crate::table::{DefId, Definition, Table, Type, table};

/// The most unknown fields that are reported.
pub const MAX_UNKNOWN: usize = 64;

/// The types that have no fields in Go either, so that whatever stands in one is unknown.
/// The others without fields hold anything, or are no objects.
const WITHOUT_FIELDS: &[&str] =
    &["io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceStatus"];

/// The type of the schemas of custom resources.
const JSON_SCHEMA: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// A value that its type cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// A value of another JSON type.
    #[error(
        "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {expected}"
    )]
    Mismatch {
        /// The type that has the field.
        owner: String,
        /// The field's path.
        path: String,
        /// What stands there.
        found: &'static str,
        /// Of which of Go's kinds that is.
        kind: &'static str,
        /// What should.
        expected: &'static str,
    },
    /// A text that is no quantity.
    #[error("{path}: {error}")]
    Quantity {
        /// The field's path.
        path: String,
        /// Why it is none.
        error: QuantityError,
    },
}

impl TypeError {
    /// Words the error as the API server does for a body of a kind.
    pub fn message(&self, gvk: &GroupVersionKind) -> String {
        format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {self}",
            kind = gvk.kind,
            version = gvk.version
        )
    }
}

/// Checks a value against a definition, prunes what the definition does not
/// know and returns the paths of that.
pub fn conform(def: DefId, value: &mut Value) -> Result<Vec<String>, TypeError> {
    conform_but(def, value, &|_| false)
}

/// Does as [`conform`], but leaves out the members of which is known that they conform.
pub fn conform_but(
    def: DefId,
    value: &mut Value,
    known: &dyn Fn(&str) -> bool,
) -> Result<Vec<String>, TypeError> {
    let mut walk = Walk {
        table: table(),
        path: Vec::new(),
        unknown: Vec::new(),
        owner: table().get(def),
        known,
    };
    walk.definition(def, value)?;
    Ok(walk.unknown)
}

enum Segment<'v> {
    Field(&'static str),
    Key(&'v str),
    Index(usize),
}

struct Walk<'v> {
    table: &'static Table,
    path: Vec<Segment<'v>>,
    unknown: Vec<String>,
    owner: &'static Definition,
    /// Which members of the whole are left out.
    known: &'v dyn Fn(&str) -> bool,
}

impl<'v> Walk<'v> {
    fn path_to(&self, last: &str) -> String {
        let mut text = String::new();
        let key = |text: &mut String, key: &str| {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(key);
        };
        for segment in &self.path {
            match segment {
                Segment::Field(name) => key(&mut text, name),
                Segment::Key(name) => key(&mut text, name),
                Segment::Index(at) => text.push_str(&format!("[{at}]")),
            }
        }
        if !last.is_empty() {
            key(&mut text, last);
        }
        text
    }

    fn error(&self, found: &Value, expected: &'static str) -> TypeError {
        let (found, kind) = match found {
            Value::Null => ("null", "null"),
            Value::Bool(_) => ("bool", "bool"),
            Value::Number(number) if number.is_i64() => ("number", "int64"),
            Value::Number(_) => ("number", "float64"),
            Value::String(_) => ("string", "string"),
            Value::Array(_) => ("array", "slice"),
            Value::Object(_) => ("object", "map"),
        };
        TypeError::Mismatch {
            owner: self.owner.short_name().to_owned(),
            path: self.path_to(""),
            found,
            kind,
            expected,
        }
    }

    fn error_text(&self, expected: &'static str) -> TypeError {
        self.error(&Value::String(String::new()), expected)
    }

    fn definition(&mut self, id: DefId, value: &'v mut Value) -> Result<(), TypeError> {
        let definition = self.table.get(id);
        if let Some(schema) = definition.name.strip_prefix(JSON_SCHEMA)
            && !schema.is_empty()
        {
            return self.schema_or(schema, value);
        }
        if definition.fields.is_empty() && !WITHOUT_FIELDS.contains(&definition.name) {
            return self.value(&definition.ty, value);
        }
        if !value.is_object() {
            return Err(self.error(value, "object"));
        }
        let Value::Object(map) = value else {
            return Ok(());
        };
        let goes =
            |(name, value): (&String, &Value)| value.is_null() || definition.field(name).is_none();
        if map.iter().any(goes) {
            self.prune(definition, map);
        }
        for (name, value) in map.iter_mut() {
            let Some(field) = definition.field(name) else {
                continue;
            };
            if self.path.is_empty() && (self.known)(name) {
                continue;
            }
            let outer = std::mem::replace(&mut self.owner, definition);
            self.path.push(Segment::Field(field.name));
            self.value(&field.ty, value)?;
            self.path.pop();
            self.owner = outer;
        }
        Ok(())
    }

    /// Drops nulls and what a type does not know, and notes the latter.
    fn prune(&mut self, definition: &Definition, map: &mut Map<String, Value>) {
        map.retain(|name, value| {
            if definition.field(name).is_some() {
                return !value.is_null();
            }
            if self.unknown.len() < MAX_UNKNOWN {
                self.unknown.push(self.path_to(name));
            }
            false
        });
    }

    /// Walks what is a schema or something else, as the rest of its type's name says.
    fn schema_or(&mut self, other: &str, value: &'v mut Value) -> Result<(), TypeError> {
        let schema = self.table.id(JSON_SCHEMA);
        match (other, value) {
            (_, schema_of @ Value::Object(_)) => match schema {
                Some(id) => self.definition(id, schema_of),
                None => Ok(()),
            },
            ("OrBool", Value::Bool(_)) => Ok(()),
            ("OrArray", Value::Array(items)) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.path.push(Segment::Index(at));
                    self.schema_or("", item)?;
                    self.path.pop();
                }
                Ok(())
            }
            ("OrStringArray", Value::Array(items)) => {
                match items.iter().find(|item| !item.is_string()) {
                    Some(found) => Err(self.error(found, "string")),
                    None => Ok(()),
                }
            }
            (_, found) => Err(self.error(found, "v1.JSONSchemaProps")),
        }
    }

    fn value(&mut self, ty: &'static Type, value: &'v mut Value) -> Result<(), TypeError> {
        match (ty, value) {
            (Type::Any, _) => Ok(()),
            (Type::Ref(id), value) => self.definition(*id, value),
            (Type::Object, Value::Object(_)) => Ok(()),
            (Type::Quantity, found @ (Value::String(_) | Value::Number(_))) => {
                // What is stored is the canonical form, as upstream's types do.
                let quantity =
                    Quantity::from_value(found).map_err(|error| TypeError::Quantity {
                        path: self.path_to(""),
                        error,
                    })?;
                *found = Value::from(quantity.to_string());
                Ok(())
            }
            (Type::Array(inner), Value::Array(items)) => {
                for (at, item) in items.iter_mut().enumerate() {
                    if item.is_null() {
                        *item = zero(self.table, inner);
                    }
                    self.path.push(Segment::Index(at));
                    self.value(inner, item)?;
                    self.path.pop();
                }
                Ok(())
            }
            (Type::Map(inner), Value::Object(map)) => {
                for (key, item) in map.iter_mut() {
                    if item.is_null() {
                        *item = zero(self.table, inner);
                    }
                    self.path.push(Segment::Key(key));
                    self.value(inner, item)?;
                    self.path.pop();
                }
                Ok(())
            }
            (Type::Byte, Value::String(text)) => {
                *text = base64(text).ok_or_else(|| self.error_text("[]byte"))?;
                Ok(())
            }
            (Type::DateTime | Type::MicroTime, Value::String(text)) => {
                // Stored in UTC and with a fixed number of digits: clients written
                // in Go cannot read a MicroTime with any other.
                let time = parse_time(text).ok_or_else(|| self.error_text("time.Time"))?;
                match ty {
                    Type::MicroTime => *text = meta::time::format_micro(time),
                    // In that form already, where nothing is to be converted.
                    _ if text.len() == SECONDS.len() => {}
                    _ => *text = meta::time::format(time),
                }
                Ok(())
            }
            (scalar, found) => match mismatch(scalar, found) {
                Some(expected) => Err(self.error(found, expected)),
                None => Ok(()),
            },
        }
    }
}

/// Returns the Go type that was expected when a scalar is not of its type.
fn mismatch(ty: &Type, value: &Value) -> Option<&'static str> {
    let (fits, expected) = match ty {
        Type::String => (value.is_string(), "string"),
        Type::Byte => (false, "[]byte"),
        Type::DateTime | Type::MicroTime => (false, "time.Time"),
        Type::Int32 => (is_int32(value), "int32"),
        Type::Int64 => (value.is_i64(), "int64"),
        Type::Number => (value.is_number(), "float64"),
        Type::Boolean => (value.is_boolean(), "bool"),
        Type::IntOrString => (value.is_string() || is_int32(value), "intstr.IntOrString"),
        Type::Quantity => (value.is_string() || value.is_number(), "resource.Quantity"),
        Type::Object | Type::Map(_) => (value.is_object(), "map[string]interface {}"),
        Type::Array(_) => (value.is_array(), "[]interface {}"),
        Type::Any | Type::Ref(_) => (true, ""),
    };
    (!fits).then_some(expected)
}

/// Returns bytes in the one form in which they are stored. Go, which reads them
/// before it writes them, skips line breaks and does not look at bits that are too
/// many.
fn base64(text: &str) -> Option<String> {
    use base64::Engine as _;
    use base64::alphabet;
    use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
    const AS_GO: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    let bytes = match text.contains(['\n', '\r']) {
        true => AS_GO.decode(text.replace(['\n', '\r'], "")),
        false => AS_GO.decode(text),
    };
    bytes.ok().map(|bytes| STANDARD.encode(bytes))
}

fn is_int32(value: &Value) -> bool {
    value.as_i64().is_some_and(|n| i32::try_from(n).is_ok())
}

/// The form of a time of whole seconds in UTC.
const SECONDS: &[u8] = b"0000-00-00T00:00:00Z";

/// Parses a time in the one form that Go reads: `2006-01-02T15:04:05Z`, with an
/// optional fraction, and an offset in place of `Z`.
fn parse_time(text: &str) -> Option<Timestamp> {
    let (head, tail) = text.as_bytes().split_at_checked(SECONDS.len() - 1)?;
    let (shape, _) = SECONDS.split_at(SECONDS.len() - 1);
    let fits = |bytes: &[u8], shape: &[u8]| {
        bytes.len() == shape.len()
            && bytes.iter().zip(shape).all(|(b, s)| match s {
                b'0' => b.is_ascii_digit(),
                other => b == other,
            })
    };
    let zone = match tail.strip_prefix(b".") {
        Some(fraction) => {
            let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
            fraction.get(digits..).filter(|_| digits > 0)?
        }
        None => tail,
    };
    let offset = zone == b"Z" || fits(zone, b"+00:00") || fits(zone, b"-00:00");
    if fits(head, shape) && offset {
        meta::time::parse(text)
    } else {
        None
    }
}

/// Returns what Go makes of a `null` inside a list or a map.
fn zero(table: &Table, ty: &Type) -> Value {
    match ty {
        Type::Any => Value::Null,
        Type::String | Type::Byte => Value::from(""),
        Type::DateTime | Type::MicroTime => Value::Null,
        Type::Int32 | Type::Int64 | Type::IntOrString => Value::from(0),
        Type::Quantity => Value::from("0"),
        Type::Number => Value::from(0.0),
        Type::Boolean => Value::from(false),
        Type::Array(_) => Value::Array(Vec::new()),
        Type::Object | Type::Map(_) => Value::Object(serde_json::Map::new()),
        Type::Ref(id) => {
            let definition = table.get(*id);
            if definition.fields.is_empty() {
                zero(table, &definition.ty)
            } else {
                Value::Object(serde_json::Map::new())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> DefId {
        table().id("io.k8s.api.core.v1.Pod").unwrap()
    }

    #[test]
    fn prunes_and_names_unknown_fields() {
        let mut value = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "creationTimestamp": null},
            "spec": {"foo": 1, "containers": [{"name": "c", "imagePullPolcy": "Always", "env": null}]},
            "bar": {},
        });
        let unknown = conform(pod(), &mut value).unwrap();
        assert_eq!(
            unknown,
            ["bar", "spec.foo", "spec.containers[0].imagePullPolcy"]
        );
        assert_eq!(
            value,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                "spec": {"containers": [{"name": "c"}]}})
        );
    }

    #[test]
    fn names_the_field_of_a_wrong_type() {
        for (spec, message) in [
            (
                json!({"containers": {}}),
                "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []interface {}",
            ),
            (
                json!({"containers": [{"ports": [{"containerPort": "80"}]}]}),
                "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers[0].ports[0].containerPort of type int32",
            ),
            (
                json!({"nodeSelector": {"a": true}}),
                "json: cannot unmarshal bool into Go struct field PodSpec.spec.nodeSelector.a of type string",
            ),
            (
                json!({"priority": 2_147_483_648_u64}),
                "json: cannot unmarshal number into Go struct field PodSpec.spec.priority of type int32",
            ),
        ] {
            let error = conform(pod(), &mut json!({"spec": spec})).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        let error = conform(pod(), &mut json!([])).unwrap_err();
        assert!(matches!(
            error,
            TypeError::Mismatch {
                found: "array",
                expected: "object",
                ..
            }
        ));
    }

    #[test]
    fn checks_formats() {
        let secret = table().id("io.k8s.api.core.v1.Secret").unwrap();
        assert!(conform(secret, &mut json!({"data": {"a": "YQ=="}})).is_ok());
        assert!(conform(secret, &mut json!({"data": {"a": "%"}})).is_err());
        for wrapped in ["YQ\r\n==", "YR=="] {
            let mut object = json!({"data": {"a": wrapped}});
            conform(secret, &mut object).unwrap();
            assert_eq!(object["data"]["a"], "YQ==", "{wrapped:?}");
        }
        let time = |t: &str| conform(pod(), &mut json!({"metadata": {"creationTimestamp": t}}));
        assert!(time("2026-01-01T00:00:00Z").is_ok());
        for bad in [
            "now",
            "2026-01-01",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "2026-01-01t00:00:00z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+00",
            "2026-01-01T00:00:00Z[UTC]",
            "é",
        ] {
            assert!(time(bad).is_err(), "{bad}");
        }
        let mut limits = json!({"spec": {"containers": [
            {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
             "livenessProbe": {"httpGet": {"port": "http"}}}]}});
        assert!(conform(pod(), &mut limits).is_ok());
        assert_eq!(
            limits["spec"]["containers"][0]["resources"]["limits"]["cpu"],
            "1"
        );
        limits["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("much");
        assert!(matches!(
            conform(pod(), &mut limits),
            Err(TypeError::Quantity { .. })
        ));
        limits["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("2");
        limits["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"] = json!(true);
        assert!(conform(pod(), &mut limits).is_err());
    }

    #[test]
    fn schemas_inside_schemas_are_of_their_type() {
        let name =
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";
        let within = |schema: Value| {
            let mut object =
                json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
            conform(table().id(name).unwrap(), &mut object).is_ok()
        };
        for good in [
            json!({"additionalProperties": false, "items": {"type": "string"}}),
            json!({"additionalProperties": {"type": "string"}, "items": [{"type": "string"}]}),
            json!({"properties": {"a": {"dependencies": {"b": ["c"], "d": {"type": "string"}}}}}),
        ] {
            assert!(within(good.clone()), "{good}");
        }
        for bad in [
            json!({"additionalProperties": "a"}),
            json!({"additionalProperties": {"type": 5}}),
            json!({"items": true}),
            json!({"items": [1]}),
            json!({"properties": {"a": {"dependencies": {"b": [1]}}}}),
        ] {
            assert!(!within(bad.clone()), "{bad}");
        }
    }

    #[test]
    fn what_has_no_fields_keeps_none() {
        let name =
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";
        let mut object = json!({"spec": {"versions": [{"subresources": {"status": {"a": 1}}}]}});
        let unknown = conform(table().id(name).unwrap(), &mut object);
        assert_eq!(unknown.unwrap(), ["spec.versions[0].subresources.status.a"]);
        let kept = &object["spec"]["versions"][0]["subresources"];
        assert_eq!(kept, &json!({"status": {}}));
    }

    #[test]
    fn times_are_stored_in_one_form() {
        let lease = table().id("io.k8s.api.coordination.v1.Lease").unwrap();
        let mut value = json!({"metadata": {"creationTimestamp": "2026-01-01T02:00:00.75+02:00"},
            "spec": {"renewTime": "2026-01-01T00:00:00Z", "acquireTime": "2026-01-01T00:00:00.1234567-01:00"}});
        conform(lease, &mut value).unwrap();
        assert_eq!(
            value["metadata"]["creationTimestamp"],
            "2026-01-01T00:00:00Z"
        );
        assert_eq!(value["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
        assert_eq!(value["spec"]["acquireTime"], "2026-01-01T01:00:00.123456Z");
    }

    #[test]
    fn nulls_in_collections_are_zero_values() {
        let map = table().id("io.k8s.api.core.v1.ConfigMap").unwrap();
        let mut value = json!({"data": {"a": null}, "metadata": null});
        conform(map, &mut value).unwrap();
        assert_eq!(value, json!({"data": {"a": ""}}));
    }
}
