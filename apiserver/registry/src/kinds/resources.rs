//! Names and amounts of resources, as limit ranges, quotas and volumes have
//! them (upstream: `pkg/apis/core/helper`).

use meta::quantity::Quantity;
use meta::{FieldError, names};
use serde_json::{Map, Value};

use crate::validate::Errors;

/// What a container may ask for without a prefix.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Resources without a prefix that are known.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Resources that are counted in whole objects.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Tells whether a resource is Kubernetes' own.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Tells whether containers may ask for less than they may use.
pub(super) fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Tells whether a quota knows a name without a prefix.
pub(super) fn is_standard_of_quotas(name: &str) -> bool {
    // A claim's `storage` is asked for, never as such limited.
    (STANDARD.contains(&name) && name != "storage")
        || is_huge_pages(name)
        || name.starts_with("requests.hugepages-")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name_errors(&format!("requests.{name}")).is_empty()
}

/// Checks a resource's name.
pub(super) fn name(text: &str, path: &str, errors: &mut Errors) -> bool {
    let found = names::qualified_name_errors(text);
    let good = found.is_empty();
    for error in found {
        errors.push(FieldError::invalid(path, text, error));
    }
    let known = text.contains('/')
        || STANDARD.contains(&text)
        || is_huge_pages(text)
        || text.starts_with("requests.hugepages-");
    if good && !known {
        let words = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, text, words));
    }
    good && known
}

/// Checks the name of a resource that containers ask for.
pub(super) fn name_of_container(text: &str, path: &str, errors: &mut Errors) {
    let known = text.contains('/') || OF_CONTAINERS.contains(&text) || is_huge_pages(text);
    let found = names::qualified_name_errors(text);
    if !found.is_empty() {
        for error in found {
            errors.push(FieldError::invalid(path, text, error));
        }
    } else if !known {
        let words = "must be a standard resource for containers";
        errors.push(FieldError::invalid(path, text, words));
    } else if !is_native(text) && !is_extended(text) {
        let words = "doesn't follow extended resource name standard";
        errors.push(FieldError::invalid(path, text, words));
    }
}

/// Returns an amount; `None` if it is absent or none.
pub(super) fn amount(map: Option<&Value>, name: &str) -> Option<Quantity> {
    Quantity::from_value(map?.get(name)?).ok()
}

/// Checks an amount of a resource.
pub(super) fn value(resource: &str, value: &Value, path: &str, errors: &mut Errors) {
    let Ok(quantity) = Quantity::from_value(value) else {
        return;
    };
    if quantity.is_negative() {
        errors.push(FieldError::invalid(
            path,
            quantity.to_string(),
            "must be greater than or equal to 0",
        ));
    }
    if (COUNTED.contains(&resource) || is_extended(resource)) && !quantity.is_whole() {
        let words = "must be an integer";
        errors.push(FieldError::invalid(path, quantity.to_string(), words));
    }
}

/// Checks that an amount is above zero.
pub(super) fn positive(value: &Value, path: &str, errors: &mut Errors) -> bool {
    let above = Quantity::from_value(value).is_ok_and(|q| !q.is_negative() && !q.is_zero());
    if !above {
        let text =
            Quantity::from_value(value).map_or_else(|_| value.clone(), |q| q.to_string().into());
        errors.push(FieldError::invalid(path, text, "must be greater than zero"));
    }
    above
}

/// Returns a map of amounts at a path.
pub(super) fn map<'a>(object: &'a Value, path: &str) -> Option<&'a Map<String, Value>> {
    meta::value::at(object, path).and_then(Value::as_object)
}

/// Returns an amount as it is printed, nothing as `0`.
pub(super) fn printed(object: &Value, path: &str, name: &str) -> String {
    let found = amount(meta::value::at(object, path), name);
    found.unwrap_or_default().to_string()
}
