//! What field merge must know of a kind, built in or custom: its schema, its other
//! versions, and what its endpoints reset. Made once for each endpoint and kept.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use meta::GroupVersionKind;
use serde_json::Value;

use super::builtin;
use super::chain::Writer;
use super::reset::{Filter, ResetFields};
use super::schema::Schema;
use super::set;
use super::typed::{Duplicates, Typed};
use super::update::{ConvertError, Converter};
use crate::kind::{Conversion, Endpoint, Kind};
use crate::kinds;
use crate::table::table;

/// A kind as one endpoint serves it.
pub struct Served {
    gvk: GroupVersionKind,
    blank: Value,
    schema: Arc<Schema>,
    reset: ResetFields,
    versions: Vec<Version>,
}

/// A version in which the objects of a kind are served.
struct Version {
    api_version: String,
    gvk: GroupVersionKind,
    schema: Arc<Schema>,
    conversion: Option<Conversion>,
}

impl Served {
    /// Describes a kind; `None` for one of which no schema is known.
    pub fn new(kind: &Kind, endpoint: Endpoint) -> Option<Self> {
        let gvk = kind.gvk();
        let reset = set::of_fields(kind.strategy().reset_fields(endpoint));
        let (blank, versions) = match kind.is_custom() {
            true => {
                let mut blank = Value::Object(serde_json::Map::new());
                meta::value::set_type_meta(&mut blank, &gvk);
                (blank, custom_versions(kind))
            }
            false => (builtin::blank(kind.def()?, &gvk), builtin_versions(kind)),
        };
        let own = gvk.api_version();
        let schema = versions
            .iter()
            .find(|v| v.api_version == own)?
            .schema
            .clone();
        let excluded = |version: &Version| {
            let filter = Filter::Exclude(reset.clone());
            (version.api_version.clone(), filter)
        };
        Some(Self {
            blank,
            schema,
            reset: versions.iter().map(excluded).collect::<BTreeMap<_, _>>(),
            gvk,
            versions,
        })
    }

    /// Describes what a subresource exchanges in place of the object; `None` for
    /// a definition that the table does not have.
    pub fn exchanged(definition: &str, gvk: GroupVersionKind) -> Option<Self> {
        let def = table().id(definition)?;
        let schema = Arc::new(builtin::schema(def));
        Some(Self {
            blank: builtin::blank(def, &gvk),
            schema: schema.clone(),
            reset: ResetFields::new(),
            versions: vec![Version {
                api_version: gvk.api_version(),
                gvk: gvk.clone(),
                schema,
                conversion: None,
            }],
            gvk,
        })
    }

    /// Returns a writer through this endpoint.
    pub fn writer<'a>(
        &'a self,
        manager: &'a str,
        subresource: &'a str,
        now: Timestamp,
    ) -> Writer<'a> {
        Writer {
            manager,
            subresource,
            gvk: &self.gvk,
            blank: &self.blank,
            schema: &self.schema,
            converter: self,
            reset: &self.reset,
            now,
        }
    }
}

/// A kind as each of its endpoints serves it. Each is described when it is first
/// written through, and only then.
#[derive(Default)]
pub struct Endpoints {
    main: OnceLock<Option<Served>>,
    status: OnceLock<Option<Served>>,
    finalize: OnceLock<Option<Served>>,
    other: OnceLock<Option<Served>>,
}

impl Endpoints {
    /// Returns a kind, which has to be the same one always, as an endpoint serves
    /// it; `None` for one that the table does not have.
    pub fn get(&self, kind: &Kind, endpoint: Endpoint) -> Option<&Served> {
        let slot = match endpoint {
            Endpoint::Main => &self.main,
            Endpoint::Status => &self.status,
            Endpoint::Finalize => &self.finalize,
            Endpoint::Other => &self.other,
        };
        slot.get_or_init(|| Served::new(kind, endpoint)).as_ref()
    }
}

impl std::fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Endpoints")
    }
}

/// Walks the versions of a built-in kind: those that are stored as the same
/// objects.
pub(crate) fn versions(kind: &Kind) -> impl Iterator<Item = &'static Kind> {
    let (name, prefix) = (kind.kind, kind.storage_prefix);
    kinds::all()
        .iter()
        .copied()
        .filter(move |other| other.kind == name && other.storage_prefix == prefix)
}

fn builtin_versions(kind: &Kind) -> Vec<Version> {
    let version = |kind: &Kind| {
        Some(Version {
            api_version: kind.api_version(),
            gvk: kind.gvk(),
            schema: Arc::new(builtin::schema(kind.def()?)),
            conversion: kind.conversion,
        })
    };
    versions(kind).filter_map(version).collect()
}

/// Lists the versions of a custom resource, which differ in name and schema.
fn custom_versions(kind: &Kind) -> Vec<Version> {
    let strategy = kind.strategy();
    let version = |api_version: String| {
        let (_, version) = api_version.split_once('/')?;
        Some(Version {
            gvk: GroupVersionKind::new(kind.group, version, kind.kind),
            schema: Arc::new(strategy.ownership(&api_version)?),
            conversion: None,
            api_version,
        })
    };
    strategy
        .versions()
        .into_iter()
        .filter_map(version)
        .collect()
}

impl Converter for Served {
    fn convert(&self, object: &Typed, version: &str) -> Result<Typed, ConvertError> {
        let find = |version: &str| {
            let found = self.versions.iter().find(|v| v.api_version == version);
            found.ok_or(ConvertError::UnknownVersion)
        };
        let (from, _) = meta::value::type_meta(object.value());
        let (from, to) = (find(from)?, find(version)?);
        if std::ptr::eq(from, to) {
            return Ok(object.clone());
        }
        let mut value = object.value().as_ref().clone();
        if let Some(conversion) = from.conversion {
            (conversion.to_storage)(&mut value);
        }
        if let Some(conversion) = to.conversion {
            (conversion.from_storage)(&mut value);
        }
        meta::value::set_type_meta(&mut value, &to.gvk);
        Typed::new(&to.schema, value, Duplicates::Allowed)
            .map_err(|problems| ConvertError::Failed(problems.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{apply, entries, update};
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn every_kind_can_be_merged() {
        for kind in kinds::all().iter().copied() {
            let served = Served::new(kind, Endpoint::Main).unwrap();
            let config = json!({"apiVersion": kind.api_version(), "kind": kind.kind,
                "metadata": {"name": "a", "labels": {"x": "y"}}});
            let applied = apply(None, &config, &served.writer("m", "", at(1)), false).unwrap();
            let managed = entries::Managed::of(&applied.object).unwrap();
            let sets: Vec<_> = managed.0.values().map(|o| o.set.to_string()).collect();
            assert_eq!(sets, [".metadata.labels.x"], "{}", kind.kind);
        }
    }

    #[test]
    fn an_endpoint_is_described_once() {
        let kind = kinds::find_kind("v1", "Pod").unwrap();
        let endpoints = Endpoints::default();
        let all = [
            Endpoint::Main,
            Endpoint::Status,
            Endpoint::Finalize,
            Endpoint::Other,
        ];
        let get = |endpoint| std::ptr::from_ref(endpoints.get(kind, endpoint).unwrap());
        let first: Vec<_> = all.into_iter().map(get).collect();
        let again: Vec<_> = all.into_iter().map(get).collect();
        assert_eq!(first, again);
        let scale = GroupVersionKind::new("autoscaling", "v1", "Scale");
        assert!(Served::exchanged("io.k8s.api.autoscaling.v1.Scale", scale.clone()).is_some());
        assert!(Served::exchanged("none", scale).is_none());
    }

    #[test]
    fn endpoints_own_only_what_they_write() {
        let kind = kinds::find_kind("apps/v1", "Deployment").unwrap();
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {"replicas": 1}, "status": {"replicas": 1}});
        for (endpoint, through, owned) in [
            (
                Endpoint::Main,
                "",
                ".metadata.labels\n.metadata.labels.x\n.spec.replicas",
            ),
            (Endpoint::Status, "status", ".status.replicas"),
        ] {
            let served = Served::new(kind, endpoint).unwrap();
            let written = update(None, object.clone(), &served.writer("m", through, at(1)));
            let managed = entries::Managed::of(&written).unwrap();
            let sets: Vec<_> = managed.0.values().map(|o| o.set.to_string()).collect();
            assert_eq!(sets, [owned]);
        }
    }

    #[test]
    fn a_custom_resource_is_owned_in_any_of_its_versions() {
        let schema = |extra: &str| {
            json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                "properties": {"tags": {"type": "array", "x-kubernetes-list-type": "set",
                    "items": {"type": "string"}}, extra: {"type": "string"}}},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}})
        };
        let version = |name: &str, storage: bool| {
            json!({"name": name, "served": true, "storage": storage, "schema": schema(name),
                "subresources": {"status": {}}})
        };
        let definition = json!({"spec": {"group": "example.com", "scope": "Namespaced",
                "versions": [version("v1", true), version("v2", false)]},
            "status": {"acceptedNames": {"plural": "things", "singular": "thing", "kind": "Thing",
                "listKind": "ThingList"}}});
        let resource = crate::crd::CustomResource::of(&definition).unwrap();
        let served =
            |index: usize, endpoint| Served::new(&resource.kinds[index], endpoint).unwrap();
        assert_eq!(resource.kinds[0].version, "v2");
        let (two, one) = (served(0, Endpoint::Main), served(1, Endpoint::Main));
        let config = json!({"apiVersion": "example.com/v1", "kind": "Thing",
            "metadata": {"name": "x"}, "spec": {"tags": ["a"]}, "status": {"y": 1}});
        let first = apply(None, &config, &one.writer("one", "", at(1)), false).unwrap();
        let mut live = first.object;
        meta::value::set_metadata(&mut live, "uid", "u");
        live["apiVersion"] = json!("example.com/v2");
        let config = json!({"apiVersion": "example.com/v2", "kind": "Thing",
            "metadata": {"name": "x"}, "spec": {"tags": ["b"]}});
        let both = apply(Some(&live), &config, &two.writer("two", "", at(2)), false).unwrap();
        assert_eq!(both.object["spec"]["tags"], json!(["a", "b"]));
        let managed = entries::Managed::of(&both.object).unwrap();
        let owned: Vec<_> = managed
            .0
            .iter()
            .map(|(id, owned)| format!("{} {} {}", id.manager, owned.api_version, owned.set))
            .collect();
        assert_eq!(
            owned,
            [
                "one example.com/v1 .spec.tags[=\"a\"]",
                "two example.com/v2 .spec.tags[=\"b\"]"
            ]
        );
    }

    #[test]
    fn an_event_is_owned_in_either_version() {
        let core = kinds::find_kind("v1", "Event").unwrap();
        let new = kinds::find_kind("events.k8s.io/v1", "Event").unwrap();
        let (core, new) = (
            Served::new(core, Endpoint::Main).unwrap(),
            Served::new(new, Endpoint::Main).unwrap(),
        );
        let config = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": "e", "namespace": "n"}, "note": "it is", "reason": "So"});
        let first = apply(None, &config, &new.writer("one", "", at(1)), false).unwrap();
        let mut live = first.object;
        meta::value::set_metadata(&mut live, "uid", "u");
        // The other endpoint shows the same object in its own version.
        let kind = kinds::find_kind("events.k8s.io/v1", "Event").unwrap();
        kind.to_storage(&mut live);
        let config = json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "e", "namespace": "n"}, "message": "it is not"});
        let refused = apply(Some(&live), &config, &core.writer("two", "", at(2)), false);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "Apply failed with 1 conflict: conflict with \"one\": .note"
        );
        let forced = apply(Some(&live), &config, &core.writer("two", "", at(2)), true).unwrap();
        let managed = entries::Managed::of(&forced.object).unwrap();
        let owned: Vec<_> = managed
            .0
            .iter()
            .map(|(id, owned)| format!("{} {} {}", id.manager, owned.api_version, owned.set))
            .collect();
        assert_eq!(owned, ["one events.k8s.io/v1 .reason", "two v1 .message"]);
        let gone = json!([{"manager": "old", "operation": "Apply", "apiVersion": "v1beta1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:reason": {}}}]);
        meta::value::set_metadata(&mut live, "managedFields", gone);
        let applied = apply(Some(&live), &config, &core.writer("two", "", at(3)), false).unwrap();
        assert_eq!(entries::Managed::of(&applied.object).unwrap().0.len(), 1);
    }
}
