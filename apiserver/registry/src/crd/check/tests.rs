//! Definitions that are refused, and with which words.

use serde_json::json;

use super::*;

fn crontabs(schema: Value) -> Value {
    json!({
        "metadata": {"name": "crontabs.stable.example.com"},
        "spec": {"group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "listKind": "CronTabList"},
            "conversion": {"strategy": "None"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        "status": {"storedVersions": ["v1"]},
    })
}

fn plain() -> Value {
    crontabs(
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "image": {"type": "string"}, "replicas": {"type": "integer"}, "labels": {"type": "object",
            "additionalProperties": {"type": "string"}}}}}}),
    )
}

#[track_caller]
fn says(object: &Value, wanted: &[&str]) {
    let mut errors = Errors::new();
    definition(object, &mut errors);
    change(object, None, &mut errors);
    let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(said, wanted);
}

#[test]
fn a_plain_definition_is_fine() {
    says(&plain(), &[]);
}

#[test]
fn names_fit() {
    let mut object = plain();
    object["metadata"]["name"] = json!("crontab.stable.example.com");
    object["spec"]["group"] = json!("stable");
    object["spec"]["scope"] = json!("Everywhere");
    object["spec"]["names"]["listKind"] = json!("CronTab");
    object["spec"]["names"]["shortNames"] = json!(["C_T"]);
    let mut errors = Errors::new();
    definition(&object, &mut errors);
    let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        said[..3],
        [
            "metadata.name: Invalid value: \"crontab.stable.example.com\": must be spec.names.plural+\".\"+spec.group",
            "spec.group: Invalid value: \"stable\": should be a domain with at least one dot",
            "spec.scope: Unsupported value: \"Everywhere\": supported values: \"Cluster\", \"Namespaced\"",
        ]
    );
    assert!(
        said[3].starts_with("spec.names.shortNames[0]: Invalid value: \"C_T\": a DNS-1035 label")
    );
    assert_eq!(
        said[4],
        "spec.names.listKind: Invalid value: \"CronTab\": kind and listKind may not be the same"
    );
}

#[test]
fn one_version_is_stored_and_all_have_schemas() {
    let mut object = plain();
    let mut second = object["spec"]["versions"][0].clone();
    second["schema"] = json!({});
    object["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(second);
    object["status"]["storedVersions"] = json!(["v1", "v0"]);
    let versions = object["spec"]["versions"].to_string();
    says(
        &object,
        &[
            "spec.versions[1].schema.openAPIV3Schema: Required value: schemas are required",
            &format!("spec.versions: Invalid value: {versions}: must contain unique version names"),
            &format!(
                "spec.versions: Invalid value: {versions}: must have exactly one version marked as storage version"
            ),
            "status.storedVersions[1]: Invalid value: \"v0\": missing from spec.versions; v0 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from status.storedVersions",
        ],
    );
}

#[test]
fn schemas_are_looked_at_where_upstream_has_them() {
    let object = crontabs(
        json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"a": {}, "ports": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["protocol"], "items": {"type": "object",
                "properties": {"protocol": {"type": "string"}}}}}}}}),
    );
    const SPEC: &str = "spec.validation.openAPIV3Schema.properties[spec].properties";
    says(
        &object,
        &[
            &format!(
                "{SPEC}[a].type: Required value: must not be empty for specified object fields"
            ),
            &format!(
                "{SPEC}[ports].items.properties[protocol].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            ),
        ],
    );
    // Not shared by all versions, it stands where it was written.
    let mut object = plain();
    let mut second = object["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "properties": {"spec": {"type": "text"}}});
    object["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(second);
    says(
        &object,
        &[
            "spec.versions[1].schema.openAPIV3Schema.properties[spec].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ],
    );
}

#[test]
fn subresources_columns_and_selectable_fields() {
    let mut object = plain();
    object["spec"]["versions"][0]["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": "spec.x", "statusReplicasPath": ".spec.y"}});
    object["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{"name": "A", "type": "text", "jsonPath": ".spec.image"}]);
    object["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.image"},
        {"jsonPath": ".spec.labels"}, {"jsonPath": ".spec.none"}, {"jsonPath": ".spec.image"}]);
    says(
        &object,
        &[
            "spec.subresources.scale.specReplicasPath: Invalid value: \"spec.x\": must be a simple json path starting with .",
            "spec.subresources.scale.statusReplicasPath: Invalid value: \".spec.y\": should be a json path under .status",
            "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer,number,string",
            "spec.selectableFields[1].jsonPath: Invalid value: \".spec.labels\": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            "spec.selectableFields[2].jsonPath: Invalid value: \".spec.none\": is an invalid path: does not refer to a valid field: none",
            "spec.selectableFields[3].jsonPath: Duplicate value: \".spec.image\"",
        ],
    );
}

#[test]
fn groups_of_the_project_need_leave_and_pruning_is_not_switched_off() {
    let mut object = plain();
    object["spec"]["group"] = json!("x.k8s.io");
    object["metadata"]["name"] = json!("crontabs.x.k8s.io");
    object["spec"]["preserveUnknownFields"] = json!(true);
    says(
        &object,
        &[
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ],
    );
}

#[test]
fn what_is_established_keeps_its_scope() {
    let old = plain();
    let mut new = plain();
    new["spec"]["scope"] = json!("Cluster");
    new["spec"]["names"]["plural"] = json!("tabs");
    let said = |old: &Value| {
        let mut errors = Errors::new();
        change(&new, Some(old), &mut errors);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        said(&old),
        ["spec.names.plural: Invalid value: \"tabs\": field is immutable"]
    );
    let mut established = old;
    established["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    assert_eq!(
        said(&established)[0],
        "spec.scope: Invalid value: \"Cluster\": field is immutable"
    );
}
