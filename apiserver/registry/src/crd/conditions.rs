//! What the server writes to a definition's status, and when.
//!
//! A pure function of all definitions and of what is served already: whoever
//! calls it again after its writes arrived finds nothing to do. So several
//! servers over one store may do so at once; a write that came too late fails
//! its compare-and-swap, and is judged anew.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use meta::value::{at, object_mut, str_at};
use serde_json::{Value, json};

use super::names::{self, Taken};
use super::resource::schema_of;
use super::{CLEANUP, structural};
use crate::validate::items;

/// All names are the definition's own.
pub const NAMES_ACCEPTED: &str = "NamesAccepted";
/// The resource is served.
pub const ESTABLISHED: &str = "Established";
/// The definition is being deleted.
pub const TERMINATING: &str = "Terminating";
/// A schema is not structural.
const NON_STRUCTURAL: &str = "NonStructuralSchema";
/// A group of the Kubernetes project was used with its leave.
const APPROVED: &str = "KubernetesAPIApprovalPolicyConformant";
/// The annotation that says so.
pub const APPROVAL: &str = "api-approved.kubernetes.io";

/// A condition as it shall be.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Its type.
    pub ty: &'static str,
    /// Whether it is true.
    pub is: bool,
    /// Why, to a machine.
    pub reason: &'static str,
    /// Why, to a person.
    pub message: String,
}

impl Condition {
    /// Describes that a definition is going away.
    pub fn terminating(is: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            ty: TERMINATING,
            is,
            reason,
            message: message.into(),
        }
    }
}

fn find<'d>(definition: &'d Value, ty: &str) -> Option<&'d Value> {
    items(definition, "status.conditions")
        .iter()
        .find(|c| str_at(c, "type") == ty)
}

/// Tells whether a condition is true.
pub fn is_true(definition: &Value, ty: &str) -> bool {
    find(definition, ty).is_some_and(|c| str_at(c, "status") == "True")
}

/// Sets a condition; the time of its transition changes with its status.
pub fn set(definition: &mut Value, condition: &Condition, now: Timestamp) {
    let status = if condition.is { "True" } else { "False" };
    let since = find(definition, condition.ty)
        .filter(|c| str_at(c, "status") == status)
        .map(|c| str_at(c, "lastTransitionTime").to_owned())
        .filter(|t| !t.is_empty())
        .unwrap_or_else(|| meta::time::format(now));
    let new = json!({
        "type": condition.ty, "status": status, "lastTransitionTime": since,
        "reason": condition.reason, "message": condition.message,
    });
    let list = object_mut(definition, "status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    if let Value::Array(list) = list {
        match list.iter_mut().find(|c| str_at(c, "type") == condition.ty) {
            Some(old) => *old = new,
            None => list.push(new),
        }
    }
}

fn unset(definition: &mut Value, ty: &str) {
    if let Some(Value::Array(list)) = object_mut(definition, "status").get_mut("conditions") {
        list.retain(|c| str_at(c, "type") != ty);
    }
}

/// Tells whether a definition is being deleted.
pub fn is_deleted(definition: &Value) -> bool {
    at(definition, "metadata.deletionTimestamp").is_some()
}

/// Tells whether the cleanup has still to be done.
pub fn needs_cleanup(definition: &Value) -> bool {
    is_deleted(definition)
        && items(definition, "metadata.finalizers")
            .iter()
            .any(|f| f == CLEANUP)
}

/// Takes the cleanup's finalizer away.
pub fn cleaned_up(definition: &mut Value) {
    let kept: Vec<Value> = items(definition, "metadata.finalizers")
        .iter()
        .filter(|f| *f != CLEANUP)
        .cloned()
        .collect();
    let kept = if kept.is_empty() {
        Value::Null
    } else {
        Value::Array(kept)
    };
    meta::value::set_metadata(definition, "finalizers", kept);
}

/// Tells whether a definition's resources are to be served.
pub fn is_served(definition: &Value) -> bool {
    is_true(definition, NAMES_ACCEPTED) || is_true(definition, ESTABLISHED)
}

/// Returns the definitions whose status has to be written, as it shall be.
/// `served` are the uids of those whose resources this server serves.
pub fn plan(definitions: &[Value], served: &BTreeSet<String>, now: Timestamp) -> Vec<Value> {
    let mut groups: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for definition in definitions {
        let group = str_at(definition, "spec.group");
        groups.entry(group).or_default().push(definition);
    }
    let mut changed = Vec::new();
    for mut group in groups.into_values() {
        // Who came first has the first choice.
        group.sort_by_key(|d| {
            (
                str_at(d, "metadata.creationTimestamp"),
                meta::value::name(d),
            )
        });
        let mut all: Vec<Value> = group.into_iter().cloned().collect();
        for index in 0..all.len() {
            if is_deleted(&all[index]) {
                continue;
            }
            let mut new = all[index].clone();
            let others = all.iter().enumerate().filter(|(i, _)| *i != index);
            let taken = Taken::by(others.map(|(_, d)| d));
            name(&mut new, &taken, now);
            establish(&mut new, served, now);
            approve(&mut new, now);
            if new != all[index] {
                all[index] = new.clone();
                changed.push(new);
            }
        }
    }
    changed
}

fn name(definition: &mut Value, taken: &Taken, now: Timestamp) {
    let outcome = names::accept(definition, taken);
    object_mut(definition, "status").insert("acceptedNames".to_owned(), outcome.accepted);
    let accepted = outcome.conflict.is_none();
    let (reason, message) = outcome
        .conflict
        .unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    let condition = Condition {
        ty: NAMES_ACCEPTED,
        is: accepted,
        reason,
        message,
    };
    set(definition, &condition, now);
    if is_true(definition, ESTABLISHED) {
        return;
    }
    let (reason, message) = match accepted {
        true => ("Installing", "the initial names have been accepted"),
        false => ("NotAccepted", "not all names are accepted"),
    };
    let condition = Condition {
        ty: ESTABLISHED,
        is: false,
        reason,
        message: message.to_owned(),
    };
    set(definition, &condition, now);
    // Looked at until it is served: no schema that is accepted today fails.
    let wrong = violations(definition);
    match wrong.is_empty() {
        true => unset(definition, NON_STRUCTURAL),
        false => {
            let condition = Condition {
                ty: NON_STRUCTURAL,
                is: true,
                reason: "Violations",
                message: wrong.join(", "),
            };
            set(definition, &condition, now);
        }
    }
}

fn violations(definition: &Value) -> Vec<String> {
    let versions = items(definition, "spec.versions").iter().enumerate();
    versions
        .flat_map(|(index, version)| {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            structural::check(schema_of(version), &path)
        })
        .map(|error| error.to_string())
        .collect()
}

fn establish(definition: &mut Value, served: &BTreeSet<String>, now: Timestamp) {
    let ready = is_true(definition, NAMES_ACCEPTED)
        && !is_true(definition, ESTABLISHED)
        && served.contains(meta::value::uid(definition));
    if ready {
        let condition = Condition {
            ty: ESTABLISHED,
            is: true,
            reason: "InitialNamesAccepted",
            message: "the initial names have been accepted".to_owned(),
        };
        set(definition, &condition, now);
    }
}

/// Tells whether a group is the Kubernetes project's own.
pub fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|own| {
        group == *own
            || group
                .strip_suffix(own)
                .is_some_and(|rest| rest.ends_with('.'))
    })
}

fn approve(definition: &mut Value, now: Timestamp) {
    if !is_protected(str_at(definition, "spec.group")) {
        unset(definition, APPROVED);
        return;
    }
    let said = at(definition, "metadata.annotations")
        .and_then(|a| a.get(APPROVAL))
        .and_then(Value::as_str)
        .unwrap_or_default();
    let (is, reason, message) = if said.starts_with("unapproved") {
        (
            false,
            "UnapprovedAnnotation",
            format!("not approved: {said:?}"),
        )
    } else if is_url(said) {
        (true, "ApprovedAnnotation", format!("approved in {said}"))
    } else {
        let message = format!(
            "protected groups must have approval annotation {APPROVAL:?}, see https://github.com/kubernetes/enhancements/pull/1111"
        );
        (false, "MissingAnnotation", message)
    };
    let condition = Condition {
        ty: APPROVED,
        is,
        reason,
        message,
    };
    set(definition, &condition, now);
}

/// Tells whether a text is a URL with a host.
pub fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    !scheme.is_empty()
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric())
        && !host.is_empty()
        && !text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, created: &str, short: &str) -> Value {
        let kind = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
        json!({
            "metadata": {"name": format!("{name}s.example.com"), "uid": name, "creationTimestamp": created},
            "spec": {"group": "example.com", "names": {"plural": format!("{name}s"), "singular": name,
                "shortNames": [short], "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        })
    }

    fn conditions(definition: &Value) -> Vec<String> {
        items(definition, "status.conditions")
            .iter()
            .map(|c| {
                format!(
                    "{}={} {}",
                    str_at(c, "type"),
                    str_at(c, "status"),
                    str_at(c, "reason")
                )
            })
            .collect()
    }

    /// Writes what is planned, as a server would, until nothing is.
    fn settle(definitions: &mut [Value], served: &BTreeSet<String>) {
        for _ in 0..4 {
            for new in plan(definitions, served, Timestamp::UNIX_EPOCH) {
                let same = |d: &&mut Value| meta::value::uid(d) == meta::value::uid(&new);
                if let Some(slot) = definitions.iter_mut().find(same) {
                    *slot = new;
                }
            }
        }
        assert!(plan(definitions, served, Timestamp::MAX).is_empty());
    }

    #[test]
    fn who_comes_first_is_served_and_who_clashes_is_not() {
        let mut all = vec![
            definition("pear", "2026-01-02T00:00:00Z", "x"),
            definition("apple", "2026-01-01T00:00:00Z", "x"),
        ];
        settle(&mut all, &BTreeSet::new());
        assert_eq!(
            conditions(&all[1]),
            [
                "NamesAccepted=True NoConflicts",
                "Established=False Installing"
            ]
        );
        assert_eq!(
            conditions(&all[0]),
            [
                "NamesAccepted=False ShortNamesConflict",
                "Established=False NotAccepted"
            ]
        );
        assert!(is_served(&all[1]) && !is_served(&all[0]));
        settle(&mut all, &BTreeSet::from(["apple".to_owned()]));
        assert!(is_true(&all[1], ESTABLISHED));
        // The name is free once its owner is gone.
        all.remove(1);
        settle(&mut all, &BTreeSet::from(["pear".to_owned()]));
        assert_eq!(
            conditions(&all[0]),
            [
                "NamesAccepted=True NoConflicts",
                "Established=True InitialNamesAccepted"
            ]
        );
    }

    #[test]
    fn what_is_established_stays_so_and_what_is_deleted_is_left_alone() {
        let mut all = vec![definition("apple", "2026-01-01T00:00:00Z", "a")];
        settle(&mut all, &BTreeSet::from(["apple".to_owned()]));
        all.push(definition("pear", "2026-01-02T00:00:00Z", "p"));
        settle(
            &mut all,
            &BTreeSet::from(["apple".to_owned(), "pear".to_owned()]),
        );
        all[0]["spec"]["names"]["shortNames"] = json!(["p"]);
        settle(&mut all, &BTreeSet::new());
        assert_eq!(
            conditions(&all[0])[0],
            "NamesAccepted=False ShortNamesConflict"
        );
        assert!(is_true(&all[0], ESTABLISHED) && is_served(&all[0]));
        assert_eq!(
            all[0]["status"]["acceptedNames"]["shortNames"],
            json!(["a"])
        );
        meta::value::set_metadata(&mut all[0], "deletionTimestamp", "2026-01-03T00:00:00Z");
        meta::value::set_metadata(&mut all[0], "finalizers", json!(["other", CLEANUP]));
        assert!(needs_cleanup(&all[0]));
        all[0]["spec"]["names"]["shortNames"] = json!(["q"]);
        assert!(plan(&all, &BTreeSet::new(), Timestamp::MAX).is_empty());
        cleaned_up(&mut all[0]);
        assert_eq!(all[0]["metadata"]["finalizers"], json!(["other"]));
    }

    #[test]
    fn groups_of_the_project_need_leave() {
        for (group, protected) in [
            ("k8s.io", true),
            ("x.k8s.io", true),
            ("myk8s.io", false),
            ("a.kubernetes.io", true),
            ("example.com", false),
        ] {
            assert_eq!(is_protected(group), protected, "{group}");
        }
        assert!(is_url("https://github.com/x") && !is_url("yes") && !is_url("https://"));
    }
}
