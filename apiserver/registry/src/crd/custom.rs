//! The behaviour of a version of a custom resource: what a built-in kind's file
//! says in code, its definition says in data.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use meta::value::{at, set_metadata, str_at};
use meta::{FieldError, GroupVersionKind, Status};
use serde_json::{Value, json};

use super::path::JsonPath;
use super::schema::Structural;
use super::{defaults, lists, prune, publish, validate};
use crate::kind::{Endpoint, Strategy, put};
use crate::openapi::Version;
use crate::print;

/// A printed column of a custom resource.
#[derive(Clone, Debug)]
pub(super) struct CustomColumn {
    /// Its heading and the rest, as a table shows it.
    pub(super) definition: Value,
    /// The type of its cells.
    pub(super) ty: String,
    /// What it shows; nothing where the path cannot be read.
    pub(super) path: Option<JsonPath>,
}

/// The paths of the `scale` subresource, without their first dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// The wanted replicas.
    pub spec_replicas: String,
    /// The replicas there are.
    pub status_replicas: String,
    /// The selector as text, if there is one.
    pub selector: Option<String>,
}

/// The versions of a resource that it may be stored in, by `apiVersion`.
pub(super) type Versions = BTreeMap<String, Arc<Structural>>;

/// One version of a custom resource.
#[derive(Clone, Debug)]
pub struct Custom {
    pub(super) gvk: GroupVersionKind,
    pub(super) schema: Arc<Structural>,
    /// `openAPIV3Schema` as it was written, for the documents.
    pub(super) written: Value,
    /// Whether nothing is ever pruned (a definition from before v1).
    pub(super) keep_all: bool,
    pub(super) has_status: bool,
    pub(super) scale: Option<ScalePaths>,
    pub(super) columns: Vec<CustomColumn>,
    /// The selectable fields, by their names.
    pub(super) selectable: Vec<(&'static str, Option<JsonPath>)>,
    /// All versions.
    pub(super) versions: Arc<Versions>,
    /// The `apiVersion` of the stored form.
    pub(super) storage: String,
    pub(super) deprecation: Option<String>,
    /// Whether the definition is being deleted.
    pub(super) ending: bool,
}

impl Custom {
    /// Turns an object, of whichever version, into this one's form; tells
    /// whether it changed.
    pub(super) fn renew(&self, object: &mut Value) -> bool {
        let mut changed = false;
        let own = self.gvk.api_version();
        let is = str_at(object, "apiVersion").to_owned();
        if !self.keep_all
            && let Some(schema) = self.versions.get(&is)
        {
            changed |= prune::stored(object, schema);
        }
        if is != own {
            put(object, "apiVersion", Some(Value::from(own)));
            changed = true;
            if !self.keep_all {
                changed |= prune::stored(object, &self.schema);
            }
        }
        changed |= defaults::apply(object, &self.schema);
        changed
    }

    /// Checks what the scale subresource counts on.
    fn check_scale(&self, object: &Value, errors: &mut Vec<FieldError>) {
        let Some(scale) = &self.scale else { return };
        for path in [&scale.spec_replicas, &scale.status_replicas] {
            let field = format!(".{path}");
            match at(object, path).filter(|v| !v.is_null()) {
                None => {}
                Some(value) => match value.as_i64() {
                    None => errors.push(accessor(path, value, "int64", 0)),
                    Some(n) if n < 0 => errors.push(FieldError::invalid(
                        field,
                        n,
                        "should be a non-negative integer",
                    )),
                    Some(n) if n > i64::from(i32::MAX) => errors.push(FieldError::invalid(
                        field,
                        n,
                        format!("should be less than or equal to {}", i32::MAX),
                    )),
                    Some(_) => {}
                },
            }
        }
        if let Some(path) = &scale.selector
            && let Some(value) = at(object, path).filter(|v| !v.is_null() && !v.is_string())
        {
            errors.push(accessor(path, value, "string", ""));
        }
    }

    fn check_all(&self, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        errors.extend(validate::object(object, old, &self.schema));
        self.check_scale(object, errors);
        embedded("", object, &self.schema, errors);
        // What an older schema let in twice may stay so until it is changed.
        if old.is_none_or(|old| lists::check(old, &self.schema).is_empty()) {
            errors.extend(lists::check(object, &self.schema));
        }
    }

    fn cell(&self, column: &CustomColumn, object: &Value, now: Timestamp) -> Value {
        let found = column.path.as_ref().and_then(|p| p.first(object));
        let Some(value) = found.filter(|v| !v.is_null()) else {
            return Value::Null;
        };
        match (column.ty.as_str(), value) {
            ("string", Value::String(text)) => Value::from(text.as_str()),
            ("string", other) => Value::from(other.to_string()),
            ("integer", Value::Number(n)) => n
                .as_i64()
                .map_or_else(|| json!(n.as_f64().map(|f| f.trunc())), Value::from),
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(text)) => match meta::time::parse(text) {
                Some(_) => Value::from(print::since(text, now)),
                None => Value::from("<invalid>"),
            },
            _ => Value::Null,
        }
    }
}

/// Words what upstream's accessors say of a value of another type than they
/// look for; what they return of it is the type's zero.
fn accessor(path: &str, value: &Value, wanted: &str, zero: impl Into<Value>) -> FieldError {
    let is = match value {
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        _ => "map[string]interface {}",
    };
    let shown = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    FieldError::invalid(
        format!(".{path}"),
        zero,
        format!(".{path} accessor error: {shown} is of the type {is}, expected {wanted}"),
    )
}

/// Checks that embedded objects say what they are.
fn embedded(path: &str, value: &Value, schema: &Structural, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if schema.embedded {
                for name in ["apiVersion", "kind"] {
                    if str_at(value, name).is_empty() {
                        let field = format!("{path}.{name}");
                        errors.push(FieldError::required(field, "must not be empty"));
                    }
                }
            }
            for (name, item) in map {
                if let Some(schema) = schema.property(name) {
                    let below = match path {
                        "" => name.clone(),
                        path => format!("{path}.{name}"),
                    };
                    embedded(&below, item, schema, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    embedded(&format!("{path}[{index}]"), item, schema, errors);
                }
            }
        }
        _ => {}
    }
}

impl Strategy for Custom {
    fn conform(&self, object: &mut Value) -> Option<Result<Vec<String>, Status>> {
        Some(prune::conform(
            object,
            &self.schema,
            self.keep_all,
            &self.gvk,
        ))
    }

    fn default(&self, object: &mut Value) {
        defaults::apply(object, &self.schema);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        if self.has_status {
            put(object, "status", None);
        }
    }

    fn prepare_for_update(&self, endpoint: Endpoint, new: &mut Value, old: &Value) {
        match endpoint {
            Endpoint::Main if self.has_status => {
                put(new, "status", old.get("status").cloned());
            }
            Endpoint::Status => {
                let status = new.get("status").cloned();
                let of_new = |name: &str| at(new, "metadata").and_then(|m| m.get(name)).cloned();
                let (version, owners) = (of_new("resourceVersion"), of_new("managedFields"));
                *new = old.clone();
                put(new, "status", status);
                set_metadata(new, "resourceVersion", version.unwrap_or_default());
                set_metadata(new, "managedFields", owners.unwrap_or_default());
            }
            _ => {}
        }
    }

    fn reset_fields(&self, endpoint: Endpoint) -> &'static [&'static str] {
        match endpoint {
            Endpoint::Main if self.has_status => &["status"],
            Endpoint::Status => &["metadata", "spec"],
            _ => &[],
        }
    }

    fn validate(&self, object: &Value, errors: &mut Vec<FieldError>) {
        self.check_all(object, None, errors);
    }

    fn validate_change(&self, new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
        self.check_all(new, Some(old), errors);
    }

    fn changes_desired(&self, new: &Value, old: &Value) -> bool {
        let same = |name: &String| name == "metadata" || new.get(name) == old.get(name);
        let members = |o: &Value| -> Vec<String> {
            let map = o.as_object().into_iter().flat_map(|m| m.keys());
            map.cloned().collect()
        };
        !members(new).iter().chain(&members(old)).all(same)
    }

    fn selectable_field(&self, object: &Value, name: &str) -> String {
        let path = self.selectable.iter().find(|(n, _)| *n == name);
        let found = path.and_then(|(_, p)| p.as_ref()?.first(object));
        match found {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let columns = self.columns.iter();
        std::iter::once(print::name(object))
            .chain(columns.map(|c| self.cell(c, object, now)))
            .collect()
    }

    fn column_definitions(&self) -> Option<Vec<Value>> {
        let name = json!({
            "name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": "The object's name, unique within its namespace and resource.",
        });
        let own = self.columns.iter().map(|c| c.definition.clone());
        Some(std::iter::once(name).chain(own).collect())
    }

    fn is_stored_form(&self) -> bool {
        self.storage == self.gvk.api_version()
    }

    fn make_stored(&self, object: &mut Value) {
        if self.is_stored_form() {
            return;
        }
        put(
            object,
            "apiVersion",
            Some(Value::from(self.storage.as_str())),
        );
        if let Some(schema) = self.versions.get(&self.storage).filter(|_| !self.keep_all) {
            prune::stored(object, schema);
        }
    }

    fn make_own(&self, object: &mut Value) {
        // What is read in the stored form has been renewed already.
        if !self.is_stored_form() {
            self.renew(object);
        }
    }

    fn scale(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    fn openapi(&self, version: Version) -> Option<Value> {
        Some(publish::schema(&self.written, version))
    }

    fn ownership(&self, api_version: &str) -> Option<crate::fieldmerge::Schema> {
        let schema = self.versions.get(api_version)?;
        Some(super::ownership::schema(schema))
    }

    fn versions(&self) -> Vec<String> {
        self.versions.keys().cloned().collect()
    }

    fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }

    fn is_ending(&self) -> bool {
        self.ending
    }
}
