//! MutatingWebhookConfiguration and ValidatingWebhookConfiguration
//! (admissionregistration.k8s.io/v1). They are kept and checked; nobody is
//! called.

use std::collections::BTreeSet;

use jiff::Timestamp;
use meta::value::{int_at, str_at};
use meta::{FieldError, names};
use serde_json::{Value, json};

use crate::checks::{all_invalid, fully_qualified, texts};
use crate::kind::{Column, Kind, Strategy};
use crate::podspec::{each, fill};
use crate::print;
use crate::validate::{Errors, items, selector};

use super::admissionrules::{choice, default_rules, match_conditions, rule};

/// The group of what stands in the way of writes.
pub(super) const GROUP: &str = "admissionregistration.k8s.io";
/// For how long a webhook is waited for when it does not say, in seconds.
const TIMEOUT_SECONDS: i64 = 10;
/// The category that kubectl knows these by.
pub(super) const CATEGORIES: &[&str] = &["api-extensions"];

const COLUMNS: &[Column] = &[
    Column::name(),
    Column::integer("Webhooks", "How many webhooks it has."),
    Column::age(),
];

/// Describes the kind of webhooks that change objects.
pub(crate) static MUTATING: Kind = Kind {
    group: GROUP,
    kind: "MutatingWebhookConfiguration",
    list_kind: "MutatingWebhookConfigurationList",
    plural: "mutatingwebhookconfigurations",
    singular: "mutatingwebhookconfiguration",
    categories: CATEGORIES,
    namespaced: false,
    storage_prefix: "mutatingwebhookconfigurations",
    definition: "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration",
    unconditional_update: false,
    generation: true,
    columns: COLUMNS,
    strategy: &Configuration { mutating: true },
    ..Kind::BASE
};

/// Describes the kind of webhooks that only refuse.
pub(crate) static VALIDATING: Kind = Kind {
    group: GROUP,
    kind: "ValidatingWebhookConfiguration",
    list_kind: "ValidatingWebhookConfigurationList",
    plural: "validatingwebhookconfigurations",
    singular: "validatingwebhookconfiguration",
    categories: CATEGORIES,
    namespaced: false,
    storage_prefix: "validatingwebhookconfigurations",
    definition: "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
    unconditional_update: false,
    generation: true,
    columns: COLUMNS,
    strategy: &Configuration { mutating: false },
    ..Kind::BASE
};

struct Configuration {
    mutating: bool,
}

impl Strategy for Configuration {
    fn default(&self, object: &mut Value) {
        let Some(map) = object.as_object_mut() else {
            return;
        };
        for hook in each(map, "webhooks") {
            fill(hook, "failurePolicy", "Fail");
            fill(hook, "matchPolicy", "Equivalent");
            fill(hook, "namespaceSelector", json!({}));
            fill(hook, "objectSelector", json!({}));
            fill(hook, "timeoutSeconds", TIMEOUT_SECONDS);
            if self.mutating {
                fill(hook, "reinvocationPolicy", "Never");
            }
            default_rules(hook, "rules");
            let service = hook
                .get_mut("clientConfig")
                .and_then(|c| c.get_mut("service"))
                .and_then(Value::as_object_mut);
            if let Some(service) = service {
                fill(service, "port", 443);
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let mut seen = BTreeSet::new();
        for (index, hook) in items(object, "webhooks").iter().enumerate() {
            let path = format!("webhooks[{index}]");
            webhook(hook, &path, self.mutating, errors);
            let name = str_at(hook, "name");
            if !name.is_empty() && !seen.insert(name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            Value::from(items(object, "webhooks").len()),
            print::age(object, now),
        ]
    }
}

fn webhook(hook: &Value, path: &str, mutating: bool, errors: &mut Errors) {
    fully_qualified(str_at(hook, "name"), &format!("{path}.name"), errors);
    for (index, one) in items(hook, "rules").iter().enumerate() {
        rule(one, &format!("{path}.rules[{index}]"), errors);
    }
    choice(hook, "failurePolicy", path, &["Fail", "Ignore"], errors);
    choice(hook, "matchPolicy", path, &["Equivalent", "Exact"], errors);
    if hook.get("sideEffects").is_none() {
        errors.push(FieldError::required(
            format!("{path}.sideEffects"),
            "must specify one of None, NoneOnDryRun",
        ));
    }
    choice(hook, "sideEffects", path, &["None", "NoneOnDryRun"], errors);
    if let Some(seconds) = int_at(hook, "timeoutSeconds")
        && !(1..=30).contains(&seconds)
    {
        errors.push(FieldError::invalid(
            format!("{path}.timeoutSeconds"),
            seconds,
            "the timeout value must be between 1 and 30 seconds",
        ));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        selector(hook.get(field), &format!("{path}.{field}"), errors);
    }
    if mutating {
        let known = &["IfNeeded", "Never"];
        choice(hook, "reinvocationPolicy", path, known, errors);
    }
    client(hook, path, errors);
    match_conditions(hook, path, errors);
    review_versions(hook, &format!("{path}.admissionReviewVersions"), errors);
}

fn client(hook: &Value, path: &str, errors: &mut Errors) {
    let path = format!("{path}.clientConfig");
    let config = hook.get("clientConfig");
    let of = |field: &str| config.and_then(|c| c.get(field));
    match (of("url"), of("service")) {
        (Some(url), None) => {
            let url = url.as_str().unwrap_or_default();
            webhook_url(url, &format!("{path}.url"), errors);
        }
        (None, Some(service)) => webhook_service(service, &format!("{path}.service"), errors),
        _ => errors.push(FieldError::required(
            path,
            "exactly one of url or service is required",
        )),
    }
}

fn webhook_url(url: &str, path: &str, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    if scheme != "https" {
        errors.push(FieldError::invalid(
            path,
            scheme,
            format!("'https' is the only allowed URL scheme{FORM}"),
        ));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.strip_prefix("//").unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        let words = format!("host must be provided{FORM}");
        errors.push(FieldError::invalid(path, "", words));
    }
    for (part, words) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            errors.push(FieldError::invalid(path, part, words));
        }
    }
}

fn webhook_service(service: &Value, path: &str, errors: &mut Errors) {
    for field in ["name", "namespace"] {
        if str_at(service, field).is_empty() {
            errors.push(FieldError::required(
                format!("{path}.{field}"),
                format!("service {field} is required"),
            ));
        }
    }
    let port = int_at(service, "port").unwrap_or(0);
    if !(1..=65535).contains(&port) {
        errors.push(FieldError::invalid(
            format!("{path}.port"),
            port,
            "port is not valid: must be between 1 and 65535, inclusive",
        ));
    }
    let url = str_at(service, "path");
    let path = format!("{path}.path");
    let mut say = |words: String| errors.push(FieldError::invalid(path.as_str(), url, words));
    match url {
        "" | "/" => return,
        "//" => return say("segment[0] may not be empty".to_owned()),
        _ => {}
    }
    if !url.starts_with('/') {
        say("must start with a '/'".to_owned());
    }
    let inner = url.get(1..).unwrap_or_default();
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    for (index, step) in inner.split('/').enumerate() {
        if step.is_empty() {
            say(format!("segment[{index}] may not be empty"));
            continue;
        }
        for error in names::subdomain_errors(step) {
            say(format!("segment[{index}]: {error}"));
        }
    }
}

fn review_versions(hook: &Value, path: &str, errors: &mut Errors) {
    const KNOWN: [&str; 2] = ["v1", "v1beta1"];
    let versions = texts(hook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(
            path,
            format!("must specify one of {}", KNOWN.join(", ")),
        ));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        let at = format!("{path}[{index}]");
        if !seen.insert(version) {
            errors.push(FieldError::invalid(at, *version, "duplicate version"));
            continue;
        }
        all_invalid(version, &at, names::label_1035_errors(version), errors);
    }
    if !versions.iter().any(|v| KNOWN.contains(v)) {
        errors.push(FieldError::invalid(
            path,
            json!(versions),
            format!("must include at least one of {}", KNOWN.join(", ")),
        ));
    }
}
