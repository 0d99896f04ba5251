//! ResourceSlice (resource.k8s.io/v1): the devices of a driver.

use jiff::Timestamp;
use meta::value::{at, int_at, object_mut, str_at};
use meta::{FieldError, names};
use serde_json::{Value, json};

use super::resourceclaim::{GROUP, at_most, duplicates, label, pool_name};
use crate::checks::{all_invalid, driver_name, node_selector};
use crate::kind::{Column, Endpoint, Facts, Kind, Strategy};
use crate::podspec::{each, fill};
use crate::print;
use crate::validate::{Errors, immutable, items};

/// How many devices a slice has, and when they are more than plain ones.
const DEVICES_MAX: (usize, usize) = (128, 64);
/// How many sets of counters a slice has.
const COUNTERS_MAX: usize = 8;
/// How many attributes and capacities a device has together.
const ATTRIBUTES_MAX: usize = 32;
/// How many taints a device has.
const TAINTS_MAX: usize = 16;
/// The longest attribute.
const VALUE_MAX: usize = 64;

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: GROUP,
    kind: "ResourceSlice",
    list_kind: "ResourceSliceList",
    plural: "resourceslices",
    singular: "resourceslice",
    namespaced: false,
    storage_prefix: "resourceslices",
    definition: "io.k8s.api.resource.v1.ResourceSlice",
    generation: true,
    returns_deleted: true,
    selectable: &["spec.driver", "spec.nodeName"],
    columns: &[
        Column::name(),
        Column::text("Node", "The node of the devices."),
        Column::text("Driver", "The driver of the devices."),
        Column::text("Pool", "The pool the devices belong to."),
        Column::age(),
    ],
    strategy: &Slice,
    ..Kind::BASE
};

struct Slice;

impl Strategy for Slice {
    fn stamp(&self, _: Endpoint, new: &mut Value, _: Option<&Value>, facts: &Facts<'_>) {
        for device in each(object_mut(new, "spec"), "devices") {
            for taint in each(device, "taints") {
                fill(taint, "timeAdded", meta::time::format(facts.now));
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        driver_name(str_at(object, "spec.driver"), "spec.driver", errors);
        pool(object, errors);
        where_they_are(object, errors);
        let devices = items(object, "spec.devices");
        let counters = items(object, "spec.sharedCounters");
        if !counters.is_empty() && !devices.is_empty() {
            errors.push(FieldError::invalid(
                "spec",
                "",
                "only one of `sharedCounters` or `devices` is allowed",
            ));
        }
        let advanced = devices
            .iter()
            .any(|d| !items(d, "taints").is_empty() || !items(d, "consumesCounters").is_empty());
        let most = if advanced {
            DEVICES_MAX.1
        } else {
            DEVICES_MAX.0
        };
        at_most(devices.len(), most, "spec.devices", errors);
        let each_chooses = at(object, "spec.perDeviceNodeSelection") == Some(&json!(true));
        for (index, one) in devices.iter().enumerate() {
            device(one, each_chooses, &format!("spec.devices[{index}]"), errors);
        }
        duplicates(devices, "spec.devices", errors);
        at_most(counters.len(), COUNTERS_MAX, "spec.sharedCounters", errors);
        for (index, set) in counters.iter().enumerate() {
            let path = format!("spec.sharedCounters[{index}]");
            label(str_at(set, "name"), &format!("{path}.name"), errors);
            if print::count(set, "counters") == 0 {
                errors.push(FieldError::required(format!("{path}.counters"), ""));
            }
        }
        duplicates(counters, "spec.sharedCounters", errors);
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        for path in ["spec.pool.name", "spec.driver", "spec.nodeName"] {
            immutable(new, old, path, errors);
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let text = |path: &str| Value::from(str_at(object, path));
        vec![
            print::name(object),
            text("spec.nodeName"),
            text("spec.driver"),
            text("spec.pool.name"),
            print::age(object, now),
        ]
    }
}

fn pool(object: &Value, errors: &mut Errors) {
    pool_name(str_at(object, "spec.pool.name"), "spec.pool.name", errors);
    let number = |field: &str| int_at(object, &format!("spec.pool.{field}")).unwrap_or(0);
    let count = number("resourceSliceCount");
    if count <= 0 {
        let words = "must be greater than zero";
        errors.push(FieldError::invalid(
            "spec.pool.resourceSliceCount",
            count,
            words,
        ));
    }
    let generation = number("generation");
    if generation < 0 {
        let words = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(
            "spec.pool.generation",
            generation,
            words,
        ));
    }
}

/// Collects by which of the fields it is said where devices can be used.
fn chosen(owner: &Value, path: &str, fields: &[&str], errors: &mut Errors) -> Vec<String> {
    let mut set = Vec::new();
    for field in fields {
        let at = format!("{path}.{field}");
        match owner.get(*field) {
            None => continue,
            Some(Value::String(node)) if node.is_empty() => {
                let words = match path {
                    "spec" => "must be either unset or set to a non-empty string",
                    _ => "must not be empty",
                };
                errors.push(FieldError::invalid(at, "", words));
                continue;
            }
            Some(Value::String(node)) => {
                all_invalid(node, &at, names::subdomain_errors(node), errors);
            }
            Some(Value::Bool(true)) => {}
            Some(Value::Bool(false)) => {
                let words = "must be either unset or set to true";
                errors.push(FieldError::invalid(at, false, words));
                continue;
            }
            Some(selector) => node_selector(selector, &at, errors),
        }
        set.push(format!("`{field}`"));
    }
    set
}

fn where_they_are(object: &Value, errors: &mut Errors) {
    const FIELDS: [&str; 4] = [
        "nodeName",
        "nodeSelector",
        "allNodes",
        "perDeviceNodeSelection",
    ];
    let empty = json!({});
    let spec = object.get("spec").unwrap_or(&empty);
    let set = chosen(spec, "spec", &FIELDS, errors);
    let all = FIELDS.map(|f| format!("`{f}`")).join(", ");
    let words = format!("exactly one of {all} is required");
    let terms = "spec.nodeSelector.nodeSelectorTerms";
    if at(object, terms).is_some() && items(object, terms).len() != 1 {
        errors.push(FieldError::invalid(
            terms,
            json!(items(object, terms)),
            "must have exactly one node selector term",
        ));
    }
    match set.len() {
        0 => errors.push(FieldError::required("spec", words)),
        1 => {}
        _ => errors.push(FieldError::invalid(
            "spec",
            format!("{{{}}}", set.join(", ")),
            format!("{words}, but multiple fields are set"),
        )),
    }
}

fn device(device: &Value, each_chooses: bool, path: &str, errors: &mut Errors) {
    const FIELDS: [&str; 3] = ["nodeName", "nodeSelector", "allNodes"];
    label(str_at(device, "name"), &format!("{path}.name"), errors);
    let count = print::count(device, "attributes") + print::count(device, "capacity");
    if count > ATTRIBUTES_MAX {
        let words = format!(
            "the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}"
        );
        errors.push(FieldError::invalid(path, count, words));
    }
    for field in ["attributes", "capacity"] {
        let map = device.get(field).and_then(Value::as_object);
        for (name, value) in map.into_iter().flatten() {
            let at = format!("{path}.{field}[{name}]");
            all_invalid(name, &at, attribute_name_errors(name), errors);
            if field == "attributes" {
                attribute(value, &at, errors);
            }
        }
    }
    at_most(
        items(device, "taints").len(),
        TAINTS_MAX,
        &format!("{path}.taints"),
        errors,
    );
    for (index, one) in items(device, "taints").iter().enumerate() {
        taint(one, &format!("{path}.taints[{index}]"), errors);
    }
    let words = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    if each_chooses {
        match chosen(device, path, &FIELDS, errors).as_slice() {
            [] => errors.push(FieldError::required(path, words)),
            [_] => {}
            set => errors.push(FieldError::invalid(
                path,
                format!("{{{}}}", set.join(", ")),
                words,
            )),
        }
    } else if FIELDS.iter().any(|f| device.get(*f).is_some()) {
        errors.push(FieldError::invalid(
            path,
            Value::Null,
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
        ));
    }
}

/// Returns what is wrong with the name of an attribute: an identifier, behind
/// a domain if it is not the driver's own.
fn attribute_name_errors(name: &str) -> Vec<String> {
    let (domain, id) = match name.split_once('/') {
        Some((domain, id)) => (Some(domain), id),
        None => (None, name),
    };
    let mut errors = match domain {
        Some("") => vec!["the domain must not be empty".to_owned()],
        Some(domain) => names::subdomain_errors(domain),
        None => Vec::new(),
    };
    let letter = |b: u8| b == b'_' || b.is_ascii_alphabetic();
    if id.is_empty() {
        errors.push("the name must not be empty".to_owned());
    } else if !id.bytes().next().is_some_and(letter)
        || !id.bytes().all(|b| letter(b) || b.is_ascii_digit())
    {
        errors.push("a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')".to_owned());
    }
    errors
}

fn attribute(value: &Value, path: &str, errors: &mut Errors) {
    const WORDS: &str = "exactly one value must be specified";
    let set = value.as_object().map_or(0, |map| map.len());
    if set != 1 {
        let shown = if set == 0 { json!("") } else { value.clone() };
        errors.push(FieldError::invalid(path, shown, WORDS));
    }
    for field in ["string", "version"] {
        if str_at(value, field).len() > VALUE_MAX {
            errors.push(FieldError::too_long(format!("{path}.{field}"), VALUE_MAX));
        }
    }
}

fn taint(taint: &Value, path: &str, errors: &mut Errors) {
    let (key, value) = (str_at(taint, "key"), str_at(taint, "value"));
    all_invalid(
        key,
        &format!("{path}.key"),
        names::qualified_name_errors(key),
        errors,
    );
    all_invalid(
        value,
        &format!("{path}.value"),
        names::label_value_errors(value),
        errors,
    );
    let at = format!("{path}.effect");
    match str_at(taint, "effect") {
        "" => errors.push(FieldError::required(at, "")),
        "None" | "NoExecute" | "NoSchedule" => {}
        other => errors.push(FieldError::not_supported(
            at,
            other,
            &["NoExecute", "NoSchedule", "None"],
        )),
    }
}
