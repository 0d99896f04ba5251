//! ResourceClaim, ResourceClaimTemplate and DeviceClass (resource.k8s.io/v1).
//! Expressions are kept and not compiled.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use meta::value::{at, int_at, object_mut, str_at};
use meta::{FieldError, names};
use serde_json::{Map, Value, json};

use crate::checks::{all_invalid, driver_name, node_selector, texts};
use crate::kind::{Column, Endpoint, Kind, Strategy, Subresource, put};
use crate::podspec::{each, fill_text};
use crate::print;
use crate::validate::{Errors, immutable, items, labels, same, unique};

/// The group of devices and claims.
pub(super) const GROUP: &str = "resource.k8s.io";

/// How long the lists of a claim may be.
const LIST_MAX: usize = 32;
/// Among how many requests the first that fits is taken.
const FIRST_AVAILABLE_MAX: usize = 8;
/// By how many a claim may be used at once.
const RESERVED_MAX: usize = 256;
/// The longest expression, and the largest parameters of a driver, in bytes.
const EXPRESSION_MAX: usize = 10 << 10;

const NAME_AND_AGE: &[Column] = &[Column::name(), Column::age()];

/// Describes the kind of claims.
pub(crate) static CLAIM: Kind = Kind {
    group: GROUP,
    kind: "ResourceClaim",
    list_kind: "ResourceClaimList",
    plural: "resourceclaims",
    singular: "resourceclaim",
    subresources: &[Subresource::status(GROUP, "v1", "ResourceClaim")],
    storage_prefix: "resourceclaims",
    definition: "io.k8s.api.resource.v1.ResourceClaim",
    returns_deleted: true,
    columns: &[
        Column::name(),
        Column::text("State", "Whether it is pending, allocated, reserved."),
        Column::age(),
    ],
    strategy: &Claim,
    ..Kind::BASE
};

/// Describes the kind of templates that claims are made from.
pub(crate) static TEMPLATE: Kind = Kind {
    group: GROUP,
    kind: "ResourceClaimTemplate",
    list_kind: "ResourceClaimTemplateList",
    plural: "resourceclaimtemplates",
    singular: "resourceclaimtemplate",
    storage_prefix: "resourceclaimtemplates",
    definition: "io.k8s.api.resource.v1.ResourceClaimTemplate",
    returns_deleted: true,
    columns: NAME_AND_AGE,
    strategy: &Template,
    ..Kind::BASE
};

/// Describes the kind of classes of devices.
pub(crate) static CLASS: Kind = Kind {
    group: GROUP,
    kind: "DeviceClass",
    list_kind: "DeviceClassList",
    plural: "deviceclasses",
    singular: "deviceclass",
    namespaced: false,
    storage_prefix: "deviceclasses",
    definition: "io.k8s.api.resource.v1.DeviceClass",
    generation: true,
    returns_deleted: true,
    columns: NAME_AND_AGE,
    strategy: &DeviceClass,
    ..Kind::BASE
};

fn default_claim(spec: &mut Map<String, Value>) {
    let Some(devices) = spec.get_mut("devices").and_then(Value::as_object_mut) else {
        return;
    };
    for request in each(devices, "requests") {
        if let Some(exactly) = request.get_mut("exactly").and_then(Value::as_object_mut) {
            default_request(exactly);
        }
        each(request, "firstAvailable").for_each(default_request);
    }
}

fn default_request(request: &mut Map<String, Value>) {
    fill_text(request, "allocationMode", "ExactCount");
    let exact = request.get("allocationMode") == Some(&json!("ExactCount"));
    let count = request.get("count").and_then(Value::as_i64).unwrap_or(0);
    if exact && count == 0 {
        request.insert("count".to_owned(), Value::from(1));
    }
    for toleration in each(request, "tolerations") {
        fill_text(toleration, "operator", "Equal");
    }
}

struct Claim;

impl Strategy for Claim {
    fn default(&self, object: &mut Value) {
        default_claim(object_mut(object, "spec"));
    }

    fn prepare_for_create(&self, object: &mut Value) {
        put(object, "status", Some(json!({})));
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        claim(at(object, "spec.devices"), "spec.devices", errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        immutable(new, old, "spec", errors);
        if endpoint == Endpoint::Status {
            status(new, old, errors);
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let going = at(object, "metadata.deletionTimestamp").is_some();
        let mut states = Vec::new();
        if going {
            states.push("deleted");
        }
        if at(object, "status.allocation").is_some() {
            states.push("allocated");
            if !items(object, "status.reservedFor").is_empty() {
                states.push("reserved");
            }
        } else if !going {
            states.push("pending");
        }
        vec![
            print::name(object),
            Value::from(states.join(",")),
            print::age(object, now),
        ]
    }
}

struct Template;

impl Strategy for Template {
    fn default(&self, object: &mut Value) {
        let spec = object_mut(object, "spec").get_mut("spec");
        if let Some(spec) = spec.and_then(Value::as_object_mut) {
            default_claim(spec);
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        let metadata = "spec.metadata.labels";
        labels(at(object, metadata), metadata, errors);
        let path = "spec.spec.devices";
        claim(at(object, path), path, errors);
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        immutable(new, old, "spec", errors);
    }
}

struct DeviceClass;

impl Strategy for DeviceClass {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        selectors(object, "spec.selectors", "spec.selectors", errors);
        let list = items(object, "spec.config");
        at_most(list.len(), LIST_MAX, "spec.config", errors);
        for (index, one) in list.iter().enumerate() {
            configuration(one, &format!("spec.config[{index}]"), errors);
        }
        let path = "spec.extendedResourceName";
        if let Some(name) = at(object, path).and_then(Value::as_str) {
            let domain = name.split_once('/').map(|(domain, _)| domain);
            let extended = domain.is_some_and(|d| {
                d != "kubernetes.io"
                    && !d.ends_with(".kubernetes.io")
                    && !name.starts_with("requests.")
            });
            if !extended || !names::qualified_name_errors(name).is_empty() {
                let words = "must be a valid extended resource name";
                errors.push(FieldError::invalid(path, name, words));
            }
        }
    }
}

/// Checks how many elements a list has.
pub(super) fn at_most(count: usize, most: usize, path: &str, errors: &mut Errors) {
    if count > most {
        errors.push(FieldError::too_many(path, count, most));
    }
}

/// Checks a DNS label that is required.
pub(super) fn label(text: &str, path: &str, errors: &mut Errors) {
    all_invalid(text, path, names::label_errors(text), errors);
}

fn claim(devices: Option<&Value>, path: &str, errors: &mut Errors) {
    let Some(devices) = devices else { return };
    let requests = items(devices, "requests");
    at_most(
        requests.len(),
        LIST_MAX,
        &format!("{path}.requests"),
        errors,
    );
    for (index, one) in requests.iter().enumerate() {
        request(one, &format!("{path}.requests[{index}]"), errors);
    }
    duplicates(requests, &format!("{path}.requests"), errors);
    let known = request_names(devices);
    let constraints = items(devices, "constraints");
    let at = format!("{path}.constraints");
    at_most(constraints.len(), LIST_MAX, &at, errors);
    for (index, one) in constraints.iter().enumerate() {
        constraint(one, &known, &format!("{at}[{index}]"), errors);
    }
    let config = items(devices, "config");
    let at = format!("{path}.config");
    at_most(config.len(), LIST_MAX, &at, errors);
    for (index, one) in config.iter().enumerate() {
        let at = format!("{at}[{index}]");
        references(one, &known, &at, errors);
        configuration(one, &at, errors);
    }
}

/// Reports elements whose name stands a second time.
pub(super) fn duplicates(list: &[Value], path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, item) in list.iter().enumerate() {
        let name = str_at(item, "name");
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), name));
        }
    }
}

fn request(request: &Value, path: &str, errors: &mut Errors) {
    label(str_at(request, "name"), &format!("{path}.name"), errors);
    let first = items(request, "firstAvailable");
    match (request.get("exactly"), first.is_empty()) {
        (None, true) => errors.push(FieldError::required(
            path,
            "exactly one of `exactly` or `firstAvailable` is required",
        )),
        (Some(_), false) => errors.push(FieldError::invalid(
            path,
            Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        )),
        (Some(exactly), true) => wanted(exactly, &format!("{path}.exactly"), errors),
        (None, false) => {
            let path = format!("{path}.firstAvailable");
            at_most(first.len(), FIRST_AVAILABLE_MAX, &path, errors);
            for (index, one) in first.iter().enumerate() {
                let path = format!("{path}[{index}]");
                label(str_at(one, "name"), &format!("{path}.name"), errors);
                wanted(one, &path, errors);
            }
            duplicates(first, &path, errors);
        }
    }
}

fn wanted(request: &Value, path: &str, errors: &mut Errors) {
    let class = str_at(request, "deviceClassName");
    let at = format!("{path}.deviceClassName");
    if class.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else {
        all_invalid(class, &at, names::subdomain_errors(class), errors);
    }
    selectors(request, "selectors", &format!("{path}.selectors"), errors);
    let count = int_at(request, "count").unwrap_or(0);
    match str_at(request, "allocationMode") {
        "All" if count != 0 => errors.push(FieldError::invalid(
            format!("{path}.count"),
            count,
            "must not be specified when allocationMode is 'All'",
        )),
        "ExactCount" if count <= 0 => errors.push(FieldError::invalid(
            format!("{path}.count"),
            count,
            "must be greater than zero",
        )),
        "All" | "ExactCount" => {}
        other => errors.push(FieldError::not_supported(
            format!("{path}.allocationMode"),
            other,
            &["All", "ExactCount"],
        )),
    }
    for (index, one) in items(request, "tolerations").iter().enumerate() {
        toleration(one, &format!("{path}.tolerations[{index}]"), errors);
    }
}

fn toleration(toleration: &Value, path: &str, errors: &mut Errors) {
    let (key, value) = (str_at(toleration, "key"), str_at(toleration, "value"));
    if !key.is_empty() {
        let wrong = names::qualified_name_errors(key);
        all_invalid(key, &format!("{path}.key"), wrong, errors);
    }
    match str_at(toleration, "operator") {
        "Exists" if !value.is_empty() => errors.push(FieldError::invalid(
            format!("{path}.value"),
            value,
            "must be empty for operator `Exists`",
        )),
        "Exists" => {}
        "Equal" => {
            let wrong = names::label_value_errors(value);
            all_invalid(value, &format!("{path}.value"), wrong, errors);
        }
        "" => errors.push(FieldError::required(format!("{path}.operator"), "")),
        other => errors.push(FieldError::not_supported(
            format!("{path}.operator"),
            other,
            &["Equal", "Exists"],
        )),
    }
    let effect = str_at(toleration, "effect");
    if !matches!(effect, "" | "None" | "NoExecute" | "NoSchedule") {
        errors.push(FieldError::not_supported(
            format!("{path}.effect"),
            effect,
            &["NoExecute", "NoSchedule", "None"],
        ));
    }
}

fn selectors(owner: &Value, field: &str, path: &str, errors: &mut Errors) {
    let list = items(owner, field);
    at_most(list.len(), LIST_MAX, path, errors);
    for (index, one) in list.iter().enumerate() {
        if one.get("cel").is_none() {
            errors.push(FieldError::required(format!("{path}[{index}].cel"), ""));
        }
        if str_at(one, "cel.expression").len() > EXPRESSION_MAX {
            errors.push(FieldError::too_long(
                format!("{path}[{index}].cel.expression"),
                EXPRESSION_MAX,
            ));
        }
    }
}

/// The requests of a claim, each with those it may choose from.
type Known<'a> = BTreeMap<&'a str, Vec<&'a str>>;

fn request_names(devices: &Value) -> Known<'_> {
    let of = |request| {
        let first = items(request, "firstAvailable").iter();
        first.map(|one| str_at(one, "name")).collect()
    };
    items(devices, "requests")
        .iter()
        .map(|request| (str_at(request, "name"), of(request)))
        .collect()
}

fn references(owner: &Value, known: &Known<'_>, path: &str, errors: &mut Errors) {
    let list = texts(owner, "requests");
    at_most(list.len(), LIST_MAX, &format!("{path}.requests"), errors);
    for (index, name) in list.iter().enumerate() {
        reference(name, known, &format!("{path}.requests[{index}]"), errors);
    }
    crate::checks::no_duplicates(&list, &format!("{path}.requests"), errors);
}

fn reference(name: &str, known: &Known<'_>, path: &str, errors: &mut Errors) {
    const WORDS: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let segments: Vec<&str> = name.split('/').collect();
    let found = match segments.as_slice() {
        [request] => known.contains_key(request),
        [request, sub] => known.get(request).is_some_and(|subs| subs.contains(sub)),
        _ => {
            errors.push(FieldError::invalid(path, name, WORDS));
            return;
        }
    };
    for segment in segments {
        label(segment, path, errors);
    }
    if !found {
        errors.push(FieldError::invalid(path, name, WORDS));
    }
}

fn constraint(constraint: &Value, known: &Known<'_>, path: &str, errors: &mut Errors) {
    references(constraint, known, path, errors);
    let given: Vec<&str> = ["matchAttribute", "distinctAttribute"]
        .into_iter()
        .filter(|field| constraint.get(*field).is_some())
        .collect();
    let Some(field) = given.first() else {
        errors.push(FieldError::required(
            path,
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
        ));
        return;
    };
    let (name, path) = (str_at(constraint, field), format!("{path}.{field}"));
    if name.is_empty() {
        errors.push(FieldError::required(path, "name is required"));
    } else if !name.contains('/') {
        let words = "must include a domain";
        errors.push(FieldError::invalid(path, name, words));
    }
}

fn configuration(config: &Value, path: &str, errors: &mut Errors) {
    let path = format!("{path}.opaque");
    let Some(opaque) = config.get("opaque") else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    driver_name(str_at(opaque, "driver"), &format!("{path}.driver"), errors);
    let at = format!("{path}.parameters");
    match opaque.get("parameters") {
        None | Some(Value::Null) => errors.push(FieldError::required(at, "")),
        Some(parameters) => {
            let text = parameters.to_string();
            if text.len() > EXPRESSION_MAX {
                errors.push(FieldError::too_long(at.as_str(), EXPRESSION_MAX));
            }
            if !parameters.is_object() {
                let words = "parameters must be a valid JSON object";
                errors.push(FieldError::invalid(at, text, words));
            }
        }
    }
}

fn status(new: &Value, old: &Value, errors: &mut Errors) {
    const RESERVED: &str = "status.reservedFor";
    let reserved = items(new, RESERVED);
    at_most(reserved.len(), RESERVED_MAX, RESERVED, errors);
    for (index, user) in reserved.iter().enumerate() {
        for field in ["resource", "name", "uid"] {
            if str_at(user, field).is_empty() {
                let path = format!("{RESERVED}[{index}].{field}");
                errors.push(FieldError::required(path, ""));
            }
        }
    }
    unique(reserved, RESERVED, "uid", errors);
    let (is, was) = (at(new, "status.allocation"), at(old, "status.allocation"));
    if !reserved.is_empty() && is.is_none() {
        errors.push(FieldError::forbidden(
            RESERVED,
            "may not be specified when `allocated` is not set",
        ));
    }
    let before = items(old, RESERVED);
    let joins = |user: &Value| !before.iter().any(|b| same(Some(b), Some(user)));
    if at(new, "metadata.deletionTimestamp").is_some() && reserved.iter().any(joins) {
        errors.push(FieldError::forbidden(
            RESERVED,
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
        ));
    }
    match (is, was) {
        (Some(_), Some(_)) => immutable(new, old, "status.allocation", errors),
        (Some(allocation), None) => check_allocation(new, allocation, errors),
        _ => {}
    }
}

fn check_allocation(object: &Value, allocation: &Value, errors: &mut Errors) {
    const PATH: &str = "status.allocation";
    let empty = json!({});
    let known = request_names(at(object, "spec.devices").unwrap_or(&empty));
    let results = items(allocation, "devices.results");
    let path = format!("{PATH}.devices.results");
    at_most(results.len(), LIST_MAX, &path, errors);
    for (index, result) in results.iter().enumerate() {
        let at = |field: &str| format!("{path}[{index}].{field}");
        reference(str_at(result, "request"), &known, &at("request"), errors);
        driver_name(str_at(result, "driver"), &at("driver"), errors);
        pool_name(str_at(result, "pool"), &at("pool"), errors);
        label(str_at(result, "device"), &at("device"), errors);
    }
    if let Some(selector) = allocation.get("nodeSelector") {
        node_selector(selector, &format!("{PATH}.nodeSelector"), errors);
    }
}

/// Checks the name of a pool: subdomains between slashes.
pub(super) fn pool_name(name: &str, path: &str, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if name.len() > names::SUBDOMAIN_MAX {
        errors.push(FieldError::too_long(path, names::SUBDOMAIN_MAX));
    }
    for part in name.split('/') {
        all_invalid(part, path, names::subdomain_errors(part), errors);
    }
}
