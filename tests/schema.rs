//! What OpenAPI says of every type that is served, against what another project
//! publishes of the same version of Kubernetes: fields, types, formats, what is
//! required, how lists and maps merge, unions, kinds and descriptions.
//!
//! A difference fails unless it is in [`KNOWN`], and so does an entry there that no
//! longer differs. As in `tests/e2e`, a test whose tool is missing says so and passes.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "what a test says goes to its output")]

#[path = "e2e/harness.rs"]
#[allow(dead_code, reason = "the end-to-end tests use the rest of it")]
mod harness;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use harness::{Cluster, Kubectl, alone, need};

type Types = Map<String, Value>;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const GVK: &str = "x-kubernetes-group-version-kind";

/// What may be said otherwise than they say it: where, of what, and why.
const KNOWN: &[(&str, &str, &str)] = &[
    (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        "type",
        "they put what a quantity may be in JSON for what version 2 says, a string",
    ),
    (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        "description",
        "they leave it out with what they put in its place",
    ),
    (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        "type",
        "they put its two types for the format that names them",
    ),
    (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        "description",
        "they leave it out with what they put in its place",
    ),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
        "description",
        "the source of our descriptions says of the event what others say of its object",
    ),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent.object",
        "description",
        "it is in that of the event",
    ),
];

/// Members that must be alike as they are.
const ALIKE: [&str; 6] = [
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-unions",
];

/// Differences: where and of what, and in which words.
#[derive(Default)]
struct Differences(BTreeMap<(String, &'static str), String>);

impl Differences {
    fn check<T: PartialEq + std::fmt::Debug>(
        &mut self,
        place: &str,
        what: &'static str,
        ours: T,
        theirs: T,
    ) {
        if ours != theirs {
            let words = format!("ours {ours:?}, theirs {theirs:?}");
            self.0.insert((place.to_owned(), what), words);
        }
    }

    /// Fails for what is not known, and for what is known and not there.
    fn judge(mut self) {
        for (place, what, reason) in KNOWN {
            let known = self.0.remove(&((*place).to_owned(), *what));
            assert!(known.is_some(), "{place}, {what}, is alike: {reason}");
        }
        let lines: Vec<String> = self
            .0
            .iter()
            .map(|((place, what), words)| format!("{place}, {what}: {words}"))
            .collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }
}

/// Returns what a value may be, in a form both sides can be brought to.
fn form(schema: &Value) -> String {
    if let Some(Value::String(reference)) = schema.get("$ref") {
        return reference.rsplit('/').next().unwrap_or_default().to_owned();
    }
    if let Some(Value::Array(all)) = schema.get("allOf") {
        return all.iter().map(form).collect();
    }
    if let Some(Value::Array(choices)) = schema.get("oneOf") {
        let choices: BTreeSet<String> = choices.iter().map(form).collect();
        return choices.into_iter().collect::<Vec<_>>().join(" or ");
    }
    // They let a field that is not required be null.
    let ty = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().find(|t| *t != "null").and_then(Value::as_str),
        Some(ty) => ty.as_str(),
        None => None,
    };
    let inner = |name| schema.get(name).map(form).unwrap_or_default();
    match ty {
        Some("array") => format!("list of {}", inner("items")),
        Some("object") if schema.get("additionalProperties").is_some() => {
            format!("map of {}", inner("additionalProperties"))
        }
        ty => {
            let format = schema.get("format").and_then(Value::as_str);
            format!("{} {}", ty.unwrap_or("any"), format.unwrap_or_default())
                .trim_end()
                .to_owned()
        }
    }
}

fn texts<'v>(schema: &'v Value, name: &str) -> BTreeSet<&'v str> {
    let list = schema.get(name).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn names(schema: &Value) -> BTreeSet<&str> {
    let fields = schema.get("properties").and_then(Value::as_object);
    fields
        .into_iter()
        .flat_map(Map::keys)
        .map(String::as_str)
        .collect()
}

/// Returns the kinds that a schema names, those of the groups and versions that are
/// served: others' documents are of all there are.
fn kinds(schema: &Value, served: &BTreeSet<(String, String)>) -> BTreeSet<String> {
    let text = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let all = schema
        .get(GVK)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    all.map(|k| (text(k, "group"), text(k, "version"), text(k, "kind")))
        .filter(|(group, version, _)| served.contains(&(group.clone(), version.clone())))
        .map(|(group, version, kind)| format!("{group}/{version} {kind}"))
        .collect()
}

/// Tells whether a definition is the list of a kind's objects, of which our source has
/// no description.
fn is_list(name: &str, schema: &Value) -> bool {
    name.ends_with("List") && schema["properties"].get("items").is_some() && !name.starts_with(META)
}

fn compare(
    found: &mut Differences,
    name: &str,
    (ours, theirs): (&Value, &Value),
    served: &BTreeSet<(String, String)>,
) {
    let described = !is_list(name, ours);
    found.check(name, "fields", names(ours), names(theirs));
    found.check(name, "kinds", kinds(ours, served), kinds(theirs, served));
    found.check(
        name,
        "required",
        texts(ours, "required"),
        texts(theirs, "required"),
    );
    both(found, name, (ours, theirs), described);
    for field in names(ours).intersection(&names(theirs)) {
        let pair = (&ours["properties"][field], &theirs["properties"][field]);
        both(found, &format!("{name}.{field}"), pair, described);
    }
}

/// Compares what is said of types and of fields alike.
fn both(found: &mut Differences, place: &str, (ours, theirs): (&Value, &Value), described: bool) {
    found.check(place, "type", form(ours), form(theirs));
    for what in ALIKE {
        found.check(place, what, ours.get(what), theirs.get(what));
    }
    if described {
        let text = |of: &Value| of["description"].as_str().unwrap_or_default().to_owned();
        found.check(place, "description", text(ours), text(theirs));
    }
}

fn parsed(kubectl: &Kubectl, path: &str) -> Value {
    serde_json::from_str(&kubectl.run_of(&["get", "--raw", path])).unwrap()
}

fn object(value: &Value, pointer: &str) -> Types {
    value.pointer(pointer).unwrap().as_object().unwrap().clone()
}

/// Returns the groups and versions that are served.
fn served(index: &Value) -> BTreeSet<(String, String)> {
    let paths = object(index, "/paths");
    let parts = paths.keys().map(|p| p.split('/').collect::<Vec<_>>());
    parts
        .filter_map(|parts| match parts.as_slice() {
            ["api", version] => Some((String::new(), (*version).to_owned())),
            ["apis", group, version] => Some(((*group).to_owned(), (*version).to_owned())),
            _ => None,
        })
        .collect()
}

#[test]
fn types_are_what_others_publish() {
    let published = need!("kubernetes-types.json");
    let kubectl = need!("kubectl");
    let text = std::fs::read_to_string(published).unwrap();
    let theirs = object(&serde_json::from_str(&text).unwrap(), "/$defs");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let client = cluster.client();
    let index = parsed(&client, "/openapi/v3");
    let served = served(&index);

    let second = object(&parsed(&client, "/openapi/v2"), "/definitions");
    let mut found = Differences::default();
    for (name, schema) in &second {
        match theirs.get(name) {
            Some(other) => compare(&mut found, name, (schema, other), &served),
            None => found.check(name, "definition", "there", "not there"),
        }
    }
    for (name, schema) in &theirs {
        let meant = !kinds(schema, &served).is_empty();
        found.check(
            name,
            "definition",
            meant && !second.contains_key(name),
            false,
        );
    }
    found.judge();
    assert!(second.len() > 500, "{}", second.len());
    third_says_what_second_says(&client, &index, &second);
}

/// Version 3 says of a type what version 2 says, but for the types that are two in one.
fn third_says_what_second_says(client: &Kubectl, index: &Value, second: &Types) {
    let mut found = Differences::default();
    let served = served(index);
    let mut seen = BTreeSet::new();
    for document in object(index, "/paths").values() {
        let path = document["serverRelativeURL"].as_str().unwrap();
        for (name, schema) in object(&parsed(client, path), "/components/schemas") {
            let two = name.ends_with(".Quantity") || name.ends_with(".IntOrString");
            if two {
                assert!(schema["oneOf"].is_array(), "{name}");
            } else {
                compare(&mut found, &name, (&schema, &second[&name]), &served);
            }
            seen.insert(name);
        }
    }
    let lines: Vec<_> = found.0.iter().collect();
    assert!(lines.is_empty(), "{lines:#?}");
    // Groups and what lists them have no document of their own in version 3.
    let apart = second.keys().filter(|name| !seen.contains(*name));
    let apart: Vec<&str> = apart.filter_map(|n| n.strip_prefix(META)).collect();
    assert!(
        apart.iter().all(|n| n.starts_with("API")
            || *n == "GroupVersionForDiscovery"
            || *n == "ServerAddressByClientCIDR"),
        "{apart:?}"
    );
}
