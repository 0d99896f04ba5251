//! CustomResourceDefinition: the kind that makes kinds. What is made of one is
//! in [`crate::crd`].

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, object_mut, str_at};
use serde_json::{Value, json};

use crate::crd::conditions::{self, Condition};
use crate::crd::{CLEANUP, GROUP, PLURAL, check};
use crate::kind::{
    Column, Endpoint, Kind, STATUS_VERBS, Strategy, Subresource, keep_other_half, put,
};
use crate::print;
use crate::validate::{Errors, items, same};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: GROUP,
    kind: "CustomResourceDefinition",
    list_kind: "CustomResourceDefinitionList",
    plural: PLURAL,
    singular: "customresourcedefinition",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    namespaced: false,
    subresources: &[Subresource {
        name: "status",
        group: GROUP,
        version: "v1",
        kind: "CustomResourceDefinition",
        verbs: STATUS_VERBS,
    }],
    storage_prefix: "apiextensions.k8s.io/customresourcedefinitions",
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    unconditional_update: false,
    generation: true,
    columns: &[
        Column::name(),
        Column {
            ty: "date",
            ..Column::text(
                "Created At",
                "The time at which the server created the object.",
            )
        },
    ],
    strategy: &Definition,
    ..Kind::BASE
};

struct Definition;

impl Strategy for Definition {
    fn default(&self, object: &mut Value) {
        let kind = str_at(object, "spec.names.kind").to_owned();
        let spec = object_mut(object, "spec");
        let conversion = spec.entry("conversion").or_insert_with(|| json!({}));
        if str_at(conversion, "strategy").is_empty() {
            put(conversion, "strategy", Some(Value::from("None")));
        }
        let names = spec.entry("names").or_insert_with(|| json!({}));
        if str_at(names, "singular").is_empty() && !kind.is_empty() {
            put(names, "singular", Some(Value::from(kind.to_lowercase())));
        }
        if str_at(names, "listKind").is_empty() && !kind.is_empty() {
            put(names, "listKind", Some(Value::from(format!("{kind}List"))));
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        let status = json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": []});
        put(object, "status", Some(status));
        store_versions(object);
    }

    fn prepare_for_update(&self, endpoint: Endpoint, new: &mut Value, old: &Value) {
        keep_other_half(endpoint, new, old);
        if endpoint == Endpoint::Main {
            store_versions(new);
        }
    }

    fn reset_fields(&self, endpoint: Endpoint) -> &'static [&'static str] {
        match endpoint {
            Endpoint::Main => &["status"],
            Endpoint::Status => &["metadata", "spec"],
            _ => &[],
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        check::definition(object, errors);
        check::change(object, None, errors);
    }

    fn validate_change(&self, new: &Value, old: &Value, errors: &mut Errors) {
        // A status alone is not refused for what its definition says: that was
        // let in, perhaps by another server.
        if same(new.get("spec"), old.get("spec")) {
            status(new, errors);
        } else {
            check::definition(new, errors);
            check::change(new, Some(old), errors);
        }
    }

    fn changes_desired(&self, new: &Value, old: &Value) -> bool {
        !same(new.get("spec"), old.get("spec"))
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut found = Vec::new();
        for (index, version) in items(new, "spec.versions").iter().enumerate() {
            if let Some(schema) = at(version, "schema.openAPIV3Schema")
                && has_rules(schema)
            {
                found.push(format!(
                    "spec.versions[{index}].schema.openAPIV3Schema: x-kubernetes-validations are kept but not evaluated by this server"
                ));
            }
        }
        if str_at(new, "spec.conversion.strategy") == "Webhook" {
            found.push(
                "spec.conversion.strategy: webhooks are not called by this server; objects are converted as by None"
                    .to_owned(),
            );
        }
        found
    }

    fn before_delete(&self, object: &mut Value) {
        let metadata = object_mut(object, "metadata");
        let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Value::Array(list) = list
            && !list.iter().any(|f| f == CLEANUP)
        {
            list.push(Value::from(CLEANUP));
        }
    }

    fn on_delete(&self, object: &mut Value) {
        let when = meta::time::parse(str_at(object, "metadata.deletionTimestamp"));
        let pending = Condition::terminating(
            true,
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        );
        conditions::set(object, &pending, when.unwrap_or(Timestamp::UNIX_EPOCH));
    }

    fn cells(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            Value::from(str_at(object, "metadata.creationTimestamp")),
        ]
    }
}

/// Notes that objects may be stored in the version that is stored now.
fn store_versions(object: &mut Value) {
    let stored = items(object, "spec.versions")
        .iter()
        .find(|v| v.get("storage") == Some(&Value::Bool(true)))
        .map(|v| Value::from(str_at(v, "name")));
    let Some(stored) = stored else { return };
    let list = object_mut(object, "status")
        .entry("storedVersions")
        .or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    if let Value::Array(list) = list
        && !list.contains(&stored)
    {
        list.push(stored);
    }
}

fn status(object: &Value, errors: &mut Vec<FieldError>) {
    let mut all = Errors::new();
    check::definition(object, &mut all);
    errors.extend(all.into_iter().filter(|e| e.field.starts_with("status.")));
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            !items(schema, "x-kubernetes-validations").is_empty() || map.values().any(has_rules)
        }
        Value::Array(list) => list.iter().any(has_rules),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::{self, CreateFacts, DeleteOptions, DeleteStep};

    fn created() -> Value {
        let mut object = json!({"metadata": {"name": "crontabs.stable.example.com"},
            "spec": {"group": "stable.example.com", "scope": "Namespaced",
                "names": {"plural": "crontabs", "kind": "CronTab"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        Definition.default(&mut object);
        let facts = CreateFacts {
            namespace: None,
            uid: "u".to_owned(),
            now: Timestamp::UNIX_EPOCH,
            random: 0,
        };
        rest::before_create(&KIND, &mut object, &facts).unwrap();
        object
    }

    #[test]
    fn defaults_and_status() {
        let object = created();
        assert_eq!(
            object["spec"]["names"],
            json!({"plural": "crontabs", "kind": "CronTab", "singular": "crontab", "listKind": "CronTabList"})
        );
        assert_eq!(object["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(object["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(object["metadata"]["generation"], 1);
    }

    #[test]
    fn a_new_stored_version_is_added_and_the_old_must_stay() {
        let old = created();
        let mut new = old.clone();
        let mut second = new["spec"]["versions"][0].clone();
        second["name"] = json!("v2");
        new["spec"]["versions"][0]["storage"] = json!(false);
        new["spec"]["versions"].as_array_mut().unwrap().push(second);
        rest::before_update(&KIND, Endpoint::Main, &mut new, &old).unwrap();
        assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
        assert_eq!(new["metadata"]["generation"], 2);
        let mut newer = new.clone();
        newer["spec"]["versions"].as_array_mut().unwrap().remove(0);
        let refused = rest::before_update(&KIND, Endpoint::Main, &mut newer, &new).unwrap_err();
        assert!(
            refused
                .message
                .contains("missing from spec.versions; v1 was previously")
        );
    }

    #[test]
    fn a_deletion_waits_for_the_cleanup() {
        let mut object = created();
        let options = DeleteOptions::default();
        let step = rest::begin_delete(&KIND, &mut object, &options, Timestamp::UNIX_EPOCH);
        assert_eq!(step, DeleteStep::Update);
        assert_eq!(object["metadata"]["finalizers"], json!([CLEANUP]));
        assert!(conditions::is_true(&object, conditions::TERMINATING));
        assert!(conditions::needs_cleanup(&object));
        let again = rest::begin_delete(&KIND, &mut object, &options, Timestamp::UNIX_EPOCH);
        assert_eq!(again, DeleteStep::Pending);
    }

    #[test]
    fn rules_that_are_not_evaluated_are_said() {
        let mut object = created();
        assert!(Definition.warnings(&object, None).is_empty());
        object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] =
            json!({"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self != ''"}]}});
        assert_eq!(Definition.warnings(&object, None).len(), 1);
    }
}
