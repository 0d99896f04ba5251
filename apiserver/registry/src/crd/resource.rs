//! A definition as what is served of it: a kind for each version, and how what
//! is stored is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use meta::value::{at, str_at};
use meta::{GroupResource, GroupVersionKind};
use serde_json::{Value, json};

use super::custom::{Custom, CustomColumn, ScalePaths, Versions};
use super::path::JsonPath;
use super::schema::Structural;
use super::{conditions, intern};
use crate::kind::{ALL_VERBS, Kind, STATUS_VERBS, Subresource};
use crate::validate::items;

/// A custom resource, ready to be served.
#[derive(Clone, Debug)]
pub struct CustomResource {
    /// The versions that are served, the preferred one first.
    pub kinds: Vec<Arc<Kind>>,
    /// The version that is stored, whether it is served or not.
    pub stored: Arc<Kind>,
    /// Reads what is stored.
    pub renewer: Renewer,
    /// The resource, for messages.
    pub resource: GroupResource,
    /// Where objects lie in the store, below `/registry/`.
    pub storage_prefix: &'static str,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
}

/// Brings stored objects, of whichever version and schema they were written
/// with, into the form in which they are stored today.
#[derive(Clone, Debug)]
pub struct Renewer(Arc<Custom>);

impl Renewer {
    /// Renews an object; tells whether it changed.
    pub fn renew(&self, object: &mut Value) -> bool {
        self.0.renew(object)
    }

    /// Finds the values of the selectable fields of a renewed object.
    pub fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        use crate::kind::Strategy as _;
        let fields = self.0.selectable.iter();
        fields
            .map(|(name, _)| (*name, self.0.selectable_field(object, name)))
            .collect()
    }
}

/// The schema of a version, as it was written.
pub(super) fn schema_of(version: &Value) -> &Value {
    static NOTHING: Value = Value::Null;
    at(version, "schema.openAPIV3Schema").unwrap_or(&NOTHING)
}

/// The facts that the versions of a definition share.
struct Shared<'d> {
    definition: &'d Value,
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    keep_all: bool,
    versions: Arc<Versions>,
    storage: String,
    ending: bool,
}

impl CustomResource {
    /// Reads a definition; `None` for one whose names were not accepted, that
    /// stores no version, or that is in the way of a built-in kind.
    pub fn of(definition: &Value) -> Option<Self> {
        let names = at(definition, "status.acceptedNames")?;
        let (group, plural) = (str_at(definition, "spec.group"), str_at(names, "plural"));
        let kind = str_at(names, "kind");
        if plural.is_empty() || kind.is_empty() {
            return None;
        }
        let api_version = |v: &Value| format!("{group}/{}", str_at(v, "name"));
        let written = items(definition, "spec.versions");
        let is_stored = |v: &&Value| v.get("storage") == Some(&Value::Bool(true));
        let stored = written.iter().find(is_stored)?;
        let versions: BTreeMap<String, Arc<Structural>> = written
            .iter()
            .map(|v| (api_version(v), Arc::new(Structural::parse(schema_of(v)))))
            .collect();
        let shared = Shared {
            definition,
            group: intern::text(group),
            kind: intern::text(kind),
            plural: intern::text(plural),
            namespaced: str_at(definition, "spec.scope") != "Cluster",
            keep_all: at(definition, "spec.preserveUnknownFields") == Some(&Value::Bool(true)),
            versions: Arc::new(versions),
            storage: api_version(stored),
            ending: conditions::is_true(definition, conditions::TERMINATING),
        };
        // Built-in kinds keep what is theirs.
        let builtin = crate::kinds::all().iter().map(|k| k.storage_prefix);
        if builtin.into_iter().any(|p| p == shared.storage_prefix()) {
            return None;
        }
        let is_served = |v: &&Value| v.get("served") == Some(&Value::Bool(true));
        let mut kinds: Vec<Arc<Kind>> = written
            .iter()
            .filter(is_served)
            .map(|v| Arc::new(shared.kind(v)))
            .collect();
        kinds.sort_by(|a, b| super::Priority(a.version).cmp(&super::Priority(b.version)));
        Some(Self {
            kinds,
            stored: Arc::new(shared.kind(stored)),
            renewer: Renewer(Arc::new(shared.custom(stored))),
            resource: GroupResource::new(group, plural),
            storage_prefix: shared.storage_prefix(),
            namespaced: shared.namespaced,
        })
    }
}

impl Shared<'_> {
    fn storage_prefix(&self) -> &'static str {
        intern::text(&format!("{}/{}", self.group, self.plural))
    }

    fn custom(&self, version: &Value) -> Custom {
        let name = str_at(version, "name");
        let gvk = GroupVersionKind::new(self.group, name, self.kind);
        let schema = self.versions.get(&gvk.api_version()).cloned();
        let deprecated = version.get("deprecated") == Some(&Value::Bool(true));
        let deprecation = deprecated.then(|| match str_at(version, "deprecationWarning") {
            "" => format!("{} {} is deprecated", gvk.api_version(), self.kind),
            said => said.to_owned(),
        });
        Custom {
            schema: schema.unwrap_or_default(),
            gvk,
            written: schema_of(version).clone(),
            keep_all: self.keep_all,
            has_status: at(version, "subresources.status").is_some(),
            scale: scale_of(version),
            columns: columns_of(version),
            selectable: selectable_of(version),
            versions: self.versions.clone(),
            storage: self.storage.clone(),
            deprecation,
            ending: self.ending,
        }
    }

    fn kind(&self, version: &Value) -> Kind {
        let custom = self.custom(version);
        let names = at(self.definition, "status.acceptedNames");
        let name = intern::text(str_at(version, "name"));
        let text = |field: &str| intern::text(names.map_or("", |n| str_at(n, field)));
        let list = |field: &str| {
            let texts = names.map_or(&[] as &[Value], |n| items(n, field));
            intern::list(texts.iter().filter_map(Value::as_str))
        };
        let mut reversed: Vec<&str> = self.group.split('.').collect();
        reversed.reverse();
        let definition = format!("{}.{name}.{}", reversed.join("."), self.kind);
        Kind {
            group: self.group,
            version: name,
            kind: self.kind,
            list_kind: text("listKind"),
            plural: self.plural,
            singular: text("singular"),
            short_names: list("shortNames"),
            categories: list("categories"),
            namespaced: self.namespaced,
            verbs: ALL_VERBS,
            subresources: self.subresources(name, &custom),
            storage_prefix: self.storage_prefix(),
            definition: intern::text(&definition),
            unconditional_update: false,
            generation: true,
            selectable: intern::list(custom.selectable.iter().map(|(n, _)| *n)),
            columns: &[],
            custom: Some(Arc::new(custom)),
            ..Kind::BASE
        }
    }

    fn subresources(&self, version: &'static str, custom: &Custom) -> &'static [Subresource] {
        let mut found = Vec::new();
        if custom.has_status {
            found.push(Subresource {
                name: "status",
                group: self.group,
                version,
                kind: self.kind,
                verbs: STATUS_VERBS,
            });
        }
        if custom.scale.is_some() {
            found.push(Subresource {
                name: "scale",
                group: "autoscaling",
                version: "v1",
                kind: "Scale",
                verbs: STATUS_VERBS,
            });
        }
        intern::subresources(found)
    }
}

fn scale_of(version: &Value) -> Option<ScalePaths> {
    let scale = at(version, "subresources.scale")?;
    let path = |name: &str| str_at(scale, name).trim_start_matches('.').to_owned();
    Some(ScalePaths {
        spec_replicas: path("specReplicasPath"),
        status_replicas: path("statusReplicasPath"),
        selector: Some(path("labelSelectorPath")).filter(|p| !p.is_empty()),
    })
}

fn columns_of(version: &Value) -> Vec<CustomColumn> {
    let age = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let own = items(version, "additionalPrinterColumns");
    let written = if own.is_empty() { age.as_array() } else { None };
    let written = written.map_or(own, Vec::as_slice);
    written
        .iter()
        .map(|column| {
            let path = str_at(column, "jsonPath");
            let description = match str_at(column, "description") {
                "" => format!("Custom resource definition column (in JSONPath format): {path}"),
                said => said.to_owned(),
            };
            CustomColumn {
                definition: json!({
                    "name": str_at(column, "name"), "type": str_at(column, "type"),
                    "format": str_at(column, "format"), "description": description,
                    "priority": column.get("priority").and_then(Value::as_i64).unwrap_or(0),
                }),
                ty: str_at(column, "type").to_owned(),
                path: JsonPath::parse(path).ok(),
            }
        })
        .collect()
}

fn selectable_of(version: &Value) -> Vec<(&'static str, Option<JsonPath>)> {
    items(version, "selectableFields")
        .iter()
        .map(|field| str_at(field, "jsonPath"))
        .map(|path| {
            let name = intern::text(path.trim_start_matches('.'));
            (name, JsonPath::parse(path).ok())
        })
        .collect()
}
