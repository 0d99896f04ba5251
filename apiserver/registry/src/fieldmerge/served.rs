//! What field merge must know of a built-in kind: its schema, its other
//! versions, and what its endpoints reset.

use std::collections::BTreeMap;
use std::sync::Arc;

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
use crate::kind::{Endpoint, Kind};
use crate::kinds;

/// A built-in kind as one endpoint serves it.
pub struct Served {
    kind: &'static Kind,
    gvk: GroupVersionKind,
    blank: Value,
    schema: Arc<Schema>,
    reset: ResetFields,
}

impl Served {
    /// Describes a kind; `None` for one that the table does not have.
    pub fn new(kind: &'static Kind, endpoint: Endpoint) -> Option<Self> {
        let def = kind.def()?;
        let gvk = kind.gvk();
        let reset = set::of_fields(kind.strategy.reset_fields(endpoint));
        Some(Self {
            kind,
            blank: builtin::blank(def, &gvk),
            schema: Arc::new(builtin::schema(def)),
            reset: versions(kind)
                .map(|version| (version.api_version(), Filter::Exclude(reset.clone())))
                .collect::<BTreeMap<_, _>>(),
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

/// Walks the versions of a kind: those that are stored as the same objects.
fn versions(kind: &'static Kind) -> impl Iterator<Item = &'static Kind> {
    kinds::all()
        .iter()
        .copied()
        .filter(move |other| other.kind == kind.kind && other.storage_prefix == kind.storage_prefix)
}

impl Converter for Served {
    fn convert(&self, object: &Typed, version: &str) -> Result<Typed, ConvertError> {
        let find = |version: &str| versions(self.kind).find(|kind| kind.api_version() == version);
        let (from, _) = meta::value::type_meta(object.value());
        let to = find(version).ok_or(ConvertError::UnknownVersion)?;
        let from = find(from).ok_or(ConvertError::UnknownVersion)?;
        if std::ptr::eq(from, to) {
            return Ok(object.clone());
        }
        let def = to.def().ok_or(ConvertError::UnknownVersion)?;
        let mut value = object.value().as_ref().clone();
        from.to_storage(&mut value);
        to.from_storage(&mut value);
        meta::value::set_type_meta(&mut value, &to.gvk());
        Typed::new(&Arc::new(builtin::schema(def)), value, Duplicates::Allowed)
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
        for kind in kinds::all() {
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
