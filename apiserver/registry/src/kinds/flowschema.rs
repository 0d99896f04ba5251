//! FlowSchema (flowcontrol.apiserver.k8s.io/v1). Requests do not queue by it.

use jiff::Timestamp;
use meta::value::{at, int_at, object_mut, str_at};
use meta::{FieldError, names};
use serde_json::{Value, json};

use crate::checks::{all_invalid, conditions, texts};
use crate::kind::{Column, Kind, Strategy, Subresource, put};
use crate::print;
use crate::validate::{Errors, items};

/// The group of what orders requests.
pub(super) const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The precedence of a schema that names none, and the lowest there is.
const PRECEDENCE: (i64, i64) = (1000, 10_000);
const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: GROUP,
    kind: "FlowSchema",
    list_kind: "FlowSchemaList",
    plural: "flowschemas",
    singular: "flowschema",
    namespaced: false,
    subresources: &[Subresource::status(GROUP, "v1", "FlowSchema")],
    storage_prefix: "flowschemas",
    definition: "io.k8s.api.flowcontrol.v1.FlowSchema",
    generation: true,
    columns: &[
        Column::name(),
        Column::text("PriorityLevel", "The level of its requests."),
        Column::text("MatchingPrecedence", "Which schema comes first: the lower."),
        Column::text("DistinguisherMethod", "What tells its flows apart."),
        Column::age(),
        Column::text("MissingPL", "Whether its level does not exist."),
    ],
    strategy: &FlowSchema,
    ..Kind::BASE
};

struct FlowSchema;

impl Strategy for FlowSchema {
    fn default(&self, object: &mut Value) {
        let spec = object_mut(object, "spec");
        let given = spec.get("matchingPrecedence").and_then(Value::as_i64);
        if given.unwrap_or(0) == 0 {
            spec.insert("matchingPrecedence".to_owned(), Value::from(PRECEDENCE.0));
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        put(object, "status", Some(json!({})));
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        precedence(object, errors);
        if let Some(method) = at(object, "spec.distinguisherMethod")
            && !matches!(str_at(method, "type"), "ByNamespace" | "ByUser")
        {
            errors.push(FieldError::not_supported(
                "spec.distinguisherMethod.type",
                str_at(method, "type"),
                &["ByNamespace", "ByUser"],
            ));
        }
        let path = "spec.priorityLevelConfiguration.name";
        let level = str_at(object, path);
        if level.is_empty() {
            errors.push(FieldError::required(
                path,
                "must reference a priority level",
            ));
        } else {
            all_invalid(level, path, names::subdomain_errors(level), errors);
        }
        for (index, rule) in items(object, "spec.rules").iter().enumerate() {
            let path = format!("spec.rules[{index}]");
            if items(rule, "subjects").is_empty() {
                errors.push(FieldError::required(
                    format!("{path}.subjects"),
                    "subjects must contain at least one value",
                ));
            }
            for (n, one) in items(rule, "subjects").iter().enumerate() {
                subject(one, &format!("{path}.subjects[{n}]"), errors);
            }
            let (resources, others) = (
                items(rule, "resourceRules"),
                items(rule, "nonResourceRules"),
            );
            if resources.is_empty() && others.is_empty() {
                errors.push(FieldError::required(
                    path.as_str(),
                    "at least one of resourceRules and nonResourceRules has to be non-empty",
                ));
            }
            for (n, one) in resources.iter().enumerate() {
                resource_rule(one, &format!("{path}.resourceRules[{n}]"), errors);
            }
            for (n, one) in others.iter().enumerate() {
                non_resource_rule(one, &format!("{path}.nonResourceRules[{n}]"), errors);
            }
        }
        conditions(object, "must not be empty", errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let dangling = items(object, "status.conditions")
            .iter()
            .find(|c| str_at(c, "type") == "Dangling")
            .map_or("?", |c| str_at(c, "status"));
        vec![
            print::name(object),
            Value::from(str_at(object, "spec.priorityLevelConfiguration.name")),
            print::number(object, "spec.matchingPrecedence"),
            print::text_or_none(object, "spec.distinguisherMethod.type"),
            print::age(object, now),
            Value::from(dangling),
        ]
    }
}

fn precedence(object: &Value, errors: &mut Errors) {
    const PATH: &str = "spec.matchingPrecedence";
    let number = int_at(object, PATH).unwrap_or(0);
    let mut say = |words: String| errors.push(FieldError::invalid(PATH, number, words));
    if number <= 0 {
        say("must be a positive value".to_owned());
    }
    if number > PRECEDENCE.1 {
        say(format!("must not be greater than {}", PRECEDENCE.1));
    }
    if number == 1 && meta::value::name(object) != "exempt" {
        say("only the schema named 'exempt' may have matchingPrecedence 1".to_owned());
    }
}

fn subject(subject: &Value, path: &str, errors: &mut Errors) {
    const KINDS: [(&str, &str); 3] = [
        ("Group", "group"),
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
    ];
    let kind = str_at(subject, "kind");
    if !KINDS.iter().any(|(k, _)| *k == kind) {
        errors.push(FieldError::not_supported(
            format!("{path}.kind"),
            kind,
            &KINDS.map(|(k, _)| k),
        ));
        return;
    }
    for (other, field) in KINDS {
        let path = format!("{path}.{field}");
        match (other == kind, subject.get(field)) {
            (true, None) => errors.push(FieldError::required(
                path,
                format!("{field} is required when subject kind is '{kind}'"),
            )),
            (true, Some(who)) => named(who, kind, &path, errors),
            (false, Some(_)) => errors.push(FieldError::forbidden(
                path,
                format!("{field} is forbidden when subject kind is not '{other}'"),
            )),
            (false, None) => {}
        }
    }
}

fn named(who: &Value, kind: &str, path: &str, errors: &mut Errors) {
    let (name, namespace) = (str_at(who, "name"), str_at(who, "namespace"));
    let at = |field: &str| format!("{path}.{field}");
    if name.is_empty() {
        errors.push(FieldError::required(at("name"), ""));
    }
    if kind != "ServiceAccount" {
        return;
    }
    if !matches!(name, "" | "*") {
        all_invalid(name, &at("name"), names::subdomain_errors(name), errors);
    }
    if namespace.is_empty() {
        errors.push(FieldError::required(
            at("namespace"),
            "must specify namespace for service account",
        ));
    } else {
        let wrong = names::label_errors(namespace);
        all_invalid(namespace, &at("namespace"), wrong, errors);
    }
}

/// Checks a list in which `*` stands alone; tells whether it does.
fn wildcard(list: &[&str], path: &str, what: &str, errors: &mut Errors) -> bool {
    let present = list.contains(&"*");
    if present && list.len() > 1 {
        errors.push(FieldError::invalid(
            path,
            json!(list),
            format!("if '*' is present, must not specify other {what}"),
        ));
    }
    present
}

fn verbs(rule: &Value, path: &str, errors: &mut Errors) {
    let path = format!("{path}.verbs");
    let list = texts(rule, "verbs");
    if list.is_empty() {
        errors.push(FieldError::required(
            path,
            "verbs must contain at least one value",
        ));
    } else if !wildcard(&list, &path, "verbs", errors) && !list.iter().all(|v| VERBS.contains(v)) {
        errors.push(FieldError::not_supported(path, json!(list), &VERBS));
    }
}

fn resource_rule(rule: &Value, path: &str, errors: &mut Errors) {
    verbs(rule, path, errors);
    for (field, one, others) in [
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ] {
        let list = texts(rule, field);
        let path = format!("{path}.{field}");
        if list.is_empty() {
            let words = format!("resource rules must supply at least one {one}");
            errors.push(FieldError::required(path.as_str(), words));
        }
        wildcard(&list, &path, others, errors);
    }
    let list = texts(rule, "namespaces");
    let path = format!("{path}.namespaces");
    if list.is_empty() && !crate::checks::bool_at(rule, "clusterScope") {
        errors.push(FieldError::required(
            path,
            "resource rules that are not cluster scoped must supply at least one namespace",
        ));
    } else if !wildcard(&list, &path, "namespaces", errors) {
        for (index, name) in list.into_iter().enumerate() {
            for error in names::label_errors(name) {
                errors.push(FieldError::invalid(
                    format!("{path}[{index}]"),
                    name,
                    format!("each member of this list must be '*' or a DNS-1123 label; {error}"),
                ));
            }
        }
    }
}

fn non_resource_rule(rule: &Value, path: &str, errors: &mut Errors) {
    verbs(rule, path, errors);
    let list = texts(rule, "nonResourceURLs");
    let path = format!("{path}.nonResourceURLs");
    if list.is_empty() {
        errors.push(FieldError::required(
            path,
            "nonResourceURLs must contain at least one value",
        ));
    } else if !wildcard(&list, &path, "non-resource URLs", errors) {
        for (index, url) in list.into_iter().enumerate() {
            if let Some(words) = url_error(url) {
                let at = format!("{path}[{index}]");
                errors.push(FieldError::invalid(at, url, words));
            }
        }
    }
}

fn url_error(url: &str) -> Option<&'static str> {
    let stars = url.matches('*').count();
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || (stars == 1 && !url.ends_with("/*")) => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}
