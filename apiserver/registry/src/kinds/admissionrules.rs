//! What webhooks and policies look at: the rules both have, and conditions.

use std::collections::BTreeSet;

use meta::value::str_at;
use meta::{FieldError, names};
use serde_json::{Map, Value, json};

use crate::checks::{all_invalid, no_duplicates, segment_errors, texts};
use crate::podspec::{each, fill};
use crate::validate::{Errors, items, selector};

/// How many conditions there may be.
const CONDITIONS_MAX: usize = 64;

/// Fills in the scope of rules.
pub(super) fn default_rules(map: &mut Map<String, Value>, field: &str) {
    for rule in each(map, field) {
        fill(rule, "scope", "*");
    }
}

/// Checks a text that is one of a few, where it is given.
pub(super) fn choice(object: &Value, field: &str, path: &str, known: &[&str], errors: &mut Errors) {
    let text = str_at(object, field);
    if object.get(field).is_some() && !known.contains(&text) {
        errors.push(FieldError::not_supported(
            format!("{path}.{field}"),
            text,
            known,
        ));
    }
}

/// Checks which writes a policy or a binding is for.
pub(super) fn match_resources(matched: &Value, path: &str, errors: &mut Errors) {
    let known = &["Equivalent", "Exact"];
    choice(matched, "matchPolicy", path, known, errors);
    for field in ["namespaceSelector", "objectSelector"] {
        selector(matched.get(field), &format!("{path}.{field}"), errors);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, one) in items(matched, field).iter().enumerate() {
            let path = format!("{path}.{field}[{index}]");
            let named = texts(one, "resourceNames");
            let at = format!("{path}.resourceNames");
            for (n, name) in named.iter().enumerate() {
                all_invalid(name, &format!("{at}[{n}]"), segment_errors(name), errors);
            }
            no_duplicates(&named, &at, errors);
            rule(one, &path, errors);
        }
    }
}

/// Checks a rule of webhooks and policies: operations, and what they are done to.
pub(super) fn rule(rule: &Value, path: &str, errors: &mut Errors) {
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (field, others) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ] {
        let list = texts(rule, field);
        let path = format!("{path}.{field}");
        if list.is_empty() {
            errors.push(FieldError::required(path.as_str(), ""));
        }
        if list.len() > 1 && list.contains(&"*") {
            let words = format!("if '*' is present, must not specify other {others}");
            errors.push(FieldError::invalid(path.as_str(), json!(list), words));
        }
        for (index, text) in list.into_iter().enumerate() {
            let at = format!("{path}[{index}]");
            if field == "operations" && !OPERATIONS.contains(&text) {
                errors.push(FieldError::not_supported(at, text, &OPERATIONS));
            } else if field == "apiVersions" && text.is_empty() {
                errors.push(FieldError::required(at, ""));
            }
        }
    }
    resources(&texts(rule, "resources"), path, errors);
    let known = &["*", "Cluster", "Namespaced"];
    choice(rule, "scope", path, known, errors);
}

fn resources(list: &[&str], path: &str, errors: &mut Errors) {
    let path = format!("{path}.resources");
    if list.is_empty() {
        errors.push(FieldError::required(path.as_str(), ""));
    }
    let (mut all_of, mut in_all, mut plain) = (BTreeSet::new(), BTreeSet::new(), false);
    for (index, text) in list.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let Some((resource, sub)) = text.split_once('/') else {
            if text.is_empty() {
                errors.push(FieldError::required(at, ""));
            } else {
                plain = *text != "*";
            }
            continue;
        };
        let mut say = |covered: String| {
            let words = format!("if '{covered}' is present, must not specify {text}");
            errors.push(FieldError::invalid(at.as_str(), *text, words));
        };
        if all_of.contains(resource) {
            say(format!("{resource}/*"));
        }
        if in_all.contains(sub) {
            say(format!("*/{sub}"));
        }
        if sub == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            in_all.insert(sub);
        }
    }
    if list.len() > 1 && list.contains(&"*/*") {
        let words = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path.as_str(), json!(list), words));
    }
    if list.contains(&"*") && plain {
        let words = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path.as_str(), json!(list), words));
    }
}

/// Checks the names of conditions, and that there is an expression.
pub(super) fn match_conditions(owner: &Value, path: &str, errors: &mut Errors) {
    let list = items(owner, "matchConditions");
    let path = format!("{path}.matchConditions");
    if list.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(
            path.as_str(),
            list.len(),
            CONDITIONS_MAX,
        ));
    }
    for (index, condition) in list.iter().enumerate() {
        let at = |field: &str| format!("{path}[{index}].{field}");
        if str_at(condition, "expression").trim().is_empty() {
            errors.push(FieldError::required(at("expression"), ""));
        }
        let name = str_at(condition, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        } else {
            let wrong = names::qualified_name_errors(name);
            all_invalid(name, &at("name"), wrong, errors);
        }
    }
    crate::validate::unique(list, &path, "name", errors);
}
