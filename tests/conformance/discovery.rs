//! What the server says of itself: versions, groups, resources.

use serde_json::{Value, json};

use crate::api::Api;
use crate::crds::{Definition, anything};
use crate::harness::until;

const AGGREGATED: &str =
    "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList,application/json";

pub(crate) fn server_version(api: &Api) {
    let version = api.get("/version").ok();
    for part in ["major", "minor"] {
        let text = version[part].as_str().unwrap();
        let digits = text.trim_end_matches('+');
        assert!(digits.parse::<u32>().is_ok(), "{part}: {version}");
    }
    assert!(version["gitVersion"].as_str().unwrap().starts_with('v'));
}

/// Tells whether a group is one of the server's own.
fn is_ours(group: &Value) -> bool {
    !group["name"].as_str().unwrap().ends_with("example.com")
}

pub(crate) fn discovery_preferred(api: &Api) {
    let groups = api.get("/apis").ok();
    let groups = groups["groups"].as_array().unwrap();
    assert!(groups.len() > 3, "{groups:?}");
    // Those of other tests come and go.
    for group in groups.iter().filter(|g| is_ours(g)) {
        let alone = api
            .get(&format!("/apis/{}", group["name"].as_str().unwrap()))
            .ok();
        let preferred = &alone["preferredVersion"];
        assert_eq!(preferred, &group["preferredVersion"]);
        let versions = alone["versions"].as_array().unwrap();
        assert!(versions.contains(preferred), "{alone}");
    }
}

pub(crate) fn discovery_resources(api: &Api) {
    let groups = api.get("/apis").ok();
    let groups = groups["groups"].as_array().unwrap();
    for group in groups.iter().filter(|g| is_ours(g)) {
        for version in group["versions"].as_array().unwrap() {
            let name = version["groupVersion"].as_str().unwrap();
            let list = api.get(&format!("/apis/{name}")).ok();
            assert_eq!(list["groupVersion"], name);
            let resources = list["resources"].as_array().unwrap();
            let whole = |r: &Value| {
                let text = |field: &str| r[field].as_str().is_some_and(|t| !t.is_empty());
                text("name") && text("kind") && r["verbs"].is_array()
            };
            assert!(!resources.is_empty(), "{list}");
            assert!(resources.iter().all(whole), "{list}");
        }
    }
    let core = api.get("/api/v1").ok();
    assert_eq!(core["groupVersion"], "v1");
}

pub(crate) fn crd_in_discovery(api: &Api) {
    let subject = crate::kinds::Subject::new(
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
    )
    .status(json!({}));
    crate::kinds::discovered(api, &subject);
}

/// Finds a resource in an aggregated discovery document.
fn resource<'a>(document: &'a Value, group: &str, version: &str, name: &str) -> Option<&'a Value> {
    let items = document["items"].as_array()?;
    let group = items
        .iter()
        .find(|g| g["metadata"]["name"].as_str().unwrap_or_default() == group)?;
    let versions = group["versions"].as_array()?;
    let version = versions.iter().find(|v| v["version"] == version)?;
    let resources = version["resources"].as_array()?;
    resources.iter().find(|r| r["resource"] == name)
}

/// The built-in resources that every cluster has.
const BUILT_IN: &[(&str, &str, &str)] = &[
    ("", "v1", "namespaces"),
    ("", "v1", "nodes"),
    ("", "v1", "persistentvolumes"),
    ("", "v1", "pods"),
    ("", "v1", "services"),
    ("apps", "v1", "daemonsets"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "statefulsets"),
    ("batch", "v1", "jobs"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    (
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
    ),
    ("rbac.authorization.k8s.io", "v1", "clusterroles"),
    ("scheduling.k8s.io", "v1", "priorityclasses"),
];

pub(crate) fn aggregated_discovery(api: &Api) {
    let core = api.get_as("/api", AGGREGATED).ok();
    let groups = api.get_as("/apis", AGGREGATED).ok();
    for (group, version, name) in BUILT_IN {
        let document = if group.is_empty() { &core } else { &groups };
        let found = resource(document, group, version, name)
            .unwrap_or_else(|| panic!("no {group}/{version} {name}"));
        assert!(found["responseKind"]["kind"].is_string(), "{found}");
        assert!(found["scope"] == "Namespaced" || found["scope"] == "Cluster");
        assert!(found["verbs"].as_array().unwrap().contains(&json!("list")));
    }
}

pub(crate) fn aggregated_discovery_accept(api: &Api) {
    for path in ["/api", "/apis"] {
        let answer = api.get_as(path, AGGREGATED);
        let kind = answer.headers["content-type"].to_str().unwrap();
        assert_eq!(
            kind,
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        );
        let document = answer.ok();
        assert_eq!(document["kind"], "APIGroupDiscoveryList");
        assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2");
        let (group, version, name) = if path == "/api" {
            BUILT_IN[0]
        } else {
            BUILT_IN[6]
        };
        assert!(resource(&document, group, version, name).is_some());
        // Whoever does not ask for it gets what there always was.
        let plain = api.get_as(path, "application/json").ok();
        assert_ne!(plain["kind"], "APIGroupDiscoveryList");
    }
}

fn with_definition(api: &Api, accept: &str) {
    let definition = Definition::new(api, &anything());
    until("the custom resource in discovery", || {
        let document = api.get_as("/apis", accept).ok();
        let found = resource(&document, &definition.group, "v1", &definition.plural);
        match found {
            Some(found) => {
                assert_eq!(found["responseKind"]["kind"], definition.kind);
                Ok(())
            }
            None => Err(definition.name()),
        }
    });
    assert!(api.delete(&definition.own_path()).code < 300);
    until("the custom resource to leave discovery", || {
        let document = api.get_as("/apis", accept).ok();
        match resource(&document, &definition.group, "v1", &definition.plural) {
            Some(found) => Err(found.to_string()),
            None => Ok(()),
        }
    });
}

pub(crate) fn aggregated_discovery_of_crds(api: &Api) {
    with_definition(api, AGGREGATED);
}

pub(crate) fn aggregated_discovery_accept_for_crds(api: &Api) {
    with_definition(
        api,
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    );
}

pub(crate) fn table_406(api: &Api) {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    api.post(path, &review).ok();
    let answer = api.post_as(
        path,
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        &review,
    );
    assert_eq!(answer.code, 406, "{}", answer.text());
}
