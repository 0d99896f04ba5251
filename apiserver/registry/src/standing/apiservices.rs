//! The APIServices of what this server serves itself: one for each version of a
//! built-in group, one for each of a custom resource's.

use meta::value::name;
use serde_json::{Value, json};

use super::{Care, Standing};
use crate::checks::bool_at;
use crate::kinds;
use crate::validate::items;

const GROUP: &str = "apiregistration.k8s.io";
/// Says that an APIService is looked after, and for how long.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// It is for a built-in group.
const BUILTIN: &str = "onstart";
/// It is for a custom resource, and goes with it.
const CUSTOM: &str = "true";
/// Where the groups of custom resources come, and their versions.
const CUSTOM_PRIORITY: (i64, i64) = (1000, 100);

/// Returns those of these group versions, of which a built-in group has no other
/// than built-in ones.
pub fn all<'a>(
    builtin: impl Iterator<Item = (&'a str, &'a str)>,
    custom: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<Standing> {
    let Some(kind) = kinds::find(GROUP, "v1", "apiservices") else {
        return Vec::new();
    };
    let mut all: Vec<Standing> = Vec::new();
    let mut add = |(group, version): (&str, &str), (of_group, of_version), managed| {
        let name = format!("{version}.{group}");
        if all.iter().any(|s: &Standing| s.name() == name) {
            return;
        }
        let mut spec = json!({
            "version": version,
            "groupPriorityMinimum": of_group,
            "versionPriority": of_version,
        });
        if !group.is_empty() {
            spec["group"] = Value::from(group);
        }
        let object = json!({
            "metadata": {"name": name, "labels": {MANAGED: managed}}, "spec": spec,
        });
        all.push(Standing::new(kind, object, Care::Labelled));
    };
    for (group, version) in builtin {
        if let Some(priority) = kinds::group_priority(group) {
            add((group, version), (priority, of(group, version)), BUILTIN);
        }
    }
    for gv in custom {
        add(gv, CUSTOM_PRIORITY, CUSTOM);
    }
    all
}

/// Returns the group and the versions of what a definition serves.
pub fn of_definition(definition: &Value) -> impl Iterator<Item = (&str, &str)> {
    let group = meta::value::str_at(definition, "spec.group");
    items(definition, "spec.versions")
        .iter()
        .filter(|version| bool_at(version, "served"))
        .map(move |version| (group, meta::value::str_at(version, "name")))
}

/// Returns where a version comes among those of its built-in group.
fn of(group: &str, version: &str) -> i64 {
    match (group, version) {
        ("", "v1") => 1,
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io", "v1") => 21,
        _ => 15,
    }
}

/// Tells whether an APIService says that it is looked after.
pub(super) fn is_managed(object: &Value) -> bool {
    matches!(managed(object), BUILTIN | CUSTOM)
}

/// Tells whether an APIService is that of a custom resource which is gone.
pub fn is_left_behind(object: &Value, all: &[Standing]) -> bool {
    managed(object) == CUSTOM && !all.iter().any(|s| s.name() == name(object))
}

fn managed(object: &Value) -> &str {
    meta::value::at(object, "metadata.labels")
        .and_then(|labels| labels.get(MANAGED))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::Due;
    use super::*;

    #[test]
    fn each_version_has_one_and_it_is_put_back() {
        let builtin = kinds::group_versions();
        let custom = [("stable.example.com", "v1"), ("stable.example.com", "v1")];
        let all = all(builtin.iter().copied(), custom.into_iter());
        // All built-in ones but the group of APIServices, and the custom one.
        assert_eq!(all.len(), builtin.len() - 1 + 1);
        for standing in &all {
            let mut errors = Vec::new();
            let strategy = standing.kind.strategy();
            strategy.validate(&standing.object, &mut errors);
            assert!(errors.is_empty(), "{}: {errors:?}", standing.name());
            let mut changed = standing.object.clone();
            assert_eq!(standing.due(Some(&changed)), None);
            changed["spec"]["versionPriority"] = json!(3);
            let due = standing.due(Some(&changed));
            assert_eq!(due, Some(Due::Replace(standing.object.clone())));
            changed["metadata"]["labels"] = json!({});
            assert_eq!(standing.due(Some(&changed)), None, "somebody's own");
        }
        assert_eq!(all[0].name(), "v1.");
        let mut gone = all.last().unwrap().object.clone();
        assert_eq!(name(&gone), "v1.stable.example.com");
        assert!(!is_left_behind(&gone, &all));
        gone["metadata"]["name"] = json!("v1.gone.example.com");
        assert!(is_left_behind(&gone, &all));
        gone["metadata"]["labels"] = json!({});
        assert!(!is_left_behind(&gone, &all));
    }
}
