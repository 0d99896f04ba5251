//! CSIDriver, CSINode and CSIStorageCapacity (storage.k8s.io/v1).

use std::collections::BTreeSet;

use jiff::Timestamp;
use meta::FieldError;
use meta::quantity::Quantity;
use meta::value::{at, int_at, object_mut, str_at};
use serde_json::{Value, json};

use super::storageclass::GROUP;
use crate::checks::{all_invalid, bool_at, boolean, driver_name, texts};
use crate::kind::{Column, Endpoint, Kind, Strategy};
use crate::podspec::fill;
use crate::print;
use crate::validate::{Errors, IMMUTABLE, immutable, items, same, selector};

/// The longest name by which a driver knows a node.
const NODE_ID_MAX: usize = 256;
/// The shortest and the longest life of a token, in seconds.
const TOKEN_SECONDS: (i64, i64) = (600, 1 << 32);

/// Describes the kind of drivers.
pub(crate) static DRIVER: Kind = Kind {
    group: GROUP,
    kind: "CSIDriver",
    list_kind: "CSIDriverList",
    plural: "csidrivers",
    singular: "csidriver",
    namespaced: false,
    storage_prefix: "csidrivers",
    definition: "io.k8s.api.storage.v1.CSIDriver",
    unconditional_update: false,
    returns_deleted: true,
    columns: &[
        Column::name(),
        boolean("AttachRequired", "Whether volumes are attached to nodes."),
        boolean("PodInfoOnMount", "Whether it is told of the pod."),
        boolean("StorageCapacity", "Whether it says how much there is."),
        Column::text("TokenRequests", "The audiences it needs tokens for."),
        boolean("RequiresRepublish", "Whether it is called again and again."),
        Column::text("Modes", "How its volumes come and go."),
        Column::age(),
    ],
    strategy: &Driver,
    ..Kind::BASE
};

/// Describes the kind of drivers on a node.
pub(crate) static NODE: Kind = Kind {
    group: GROUP,
    kind: "CSINode",
    list_kind: "CSINodeList",
    plural: "csinodes",
    singular: "csinode",
    namespaced: false,
    storage_prefix: "csinodes",
    definition: "io.k8s.api.storage.v1.CSINode",
    unconditional_update: false,
    returns_deleted: true,
    columns: &[
        Column::name(),
        Column::integer("Drivers", "How many drivers there are on the node."),
        Column::age(),
    ],
    strategy: &Node,
    ..Kind::BASE
};

/// Describes the kind of what a driver has left.
pub(crate) static CAPACITY: Kind = Kind {
    group: GROUP,
    kind: "CSIStorageCapacity",
    list_kind: "CSIStorageCapacityList",
    plural: "csistoragecapacities",
    singular: "csistoragecapacity",
    storage_prefix: "csistoragecapacities",
    definition: "io.k8s.api.storage.v1.CSIStorageCapacity",
    unconditional_update: false,
    columns: &[
        Column::name(),
        Column::text("StorageClassName", "The class of the volumes."),
        Column::text("Capacity", "How much can be had."),
    ],
    strategy: &Capacity,
    ..Kind::BASE
};

struct Driver;

impl Strategy for Driver {
    fn default(&self, object: &mut Value) {
        let spec = object_mut(object, "spec");
        fill(spec, "attachRequired", true);
        for field in [
            "podInfoOnMount",
            "storageCapacity",
            "requiresRepublish",
            "seLinuxMount",
        ] {
            fill(spec, field, false);
        }
        fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        let none = spec
            .get("volumeLifecycleModes")
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty);
        if none {
            spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        const POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
        let policy = str_at(object, "spec.fsGroupPolicy");
        if !policy.is_empty() && !POLICIES.contains(&policy) {
            errors.push(FieldError::not_supported(
                "spec.fsGroupPolicy",
                policy,
                &POLICIES,
            ));
        }
        token_requests(object, errors);
        for mode in texts(object, "spec.volumeLifecycleModes") {
            if !matches!(mode, "Persistent" | "Ephemeral") {
                errors.push(FieldError::not_supported(
                    "spec.volumeLifecycleModes",
                    mode,
                    &["Persistent", "Ephemeral"],
                ));
            }
        }
        let period = "spec.nodeAllocatableUpdatePeriodSeconds";
        if let Some(seconds) = int_at(object, period)
            && seconds < 10
        {
            let words = "must be greater than or equal to 10 seconds";
            errors.push(FieldError::invalid(period, seconds, words));
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        let field = "spec.attachRequired";
        if !same(at(new, field), at(old, field)) {
            // Upstream misspells the path.
            errors.push(FieldError::invalid(
                "spec.attachedRequired",
                at(new, field).cloned().unwrap_or_default(),
                IMMUTABLE,
            ));
        }
        immutable(new, old, "spec.volumeLifecycleModes", errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let is = |field: &str| Value::from(bool_at(object, &format!("spec.{field}")));
        let requests: Vec<&str> = items(object, "spec.tokenRequests")
            .iter()
            .map(|r| str_at(r, "audience"))
            .collect();
        let modes = texts(object, "spec.volumeLifecycleModes");
        let attach = at(object, "spec.attachRequired").and_then(Value::as_bool);
        let or = |list: &[&str], none: &str| match list.is_empty() {
            true => Value::from(none),
            false => Value::from(list.join(",")),
        };
        vec![
            print::name(object),
            Value::from(attach.unwrap_or(true)),
            is("podInfoOnMount"),
            is("storageCapacity"),
            or(&requests, "<unset>"),
            is("requiresRepublish"),
            or(&modes, print::NONE),
            print::age(object, now),
        ]
    }
}

fn token_requests(object: &Value, errors: &mut Errors) {
    let mut audiences = BTreeSet::new();
    for (index, request) in items(object, "spec.tokenRequests").iter().enumerate() {
        let at = |field: &str| format!("spec.tokenRequests[{index}].{field}");
        let audience = str_at(request, "audience");
        if !audiences.insert(audience) {
            errors.push(FieldError::duplicate(at("audience"), audience));
            continue;
        }
        let (least, most) = TOKEN_SECONDS;
        let words = match int_at(request, "expirationSeconds") {
            Some(n) if n < least => (n, "may not specify a duration less than 10 minutes"),
            Some(n) if n > most => (n, "may not specify a duration larger than 2^32 seconds"),
            _ => continue,
        };
        errors.push(FieldError::invalid(
            at("expirationSeconds"),
            words.0,
            words.1,
        ));
    }
}

struct Node;

impl Strategy for Node {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        let mut seen = BTreeSet::new();
        for (index, driver) in items(object, "spec.drivers").iter().enumerate() {
            let path = format!("spec.drivers[{index}]");
            let name = str_at(driver, "name");
            driver_name(name, &format!("{path}.name"), errors);
            let id = str_at(driver, "nodeID");
            let at = format!("{path}.nodeID");
            if id.is_empty() {
                errors.push(FieldError::required(at, ""));
            } else if id.len() > NODE_ID_MAX {
                let words = format!("must be {NODE_ID_MAX} characters or less");
                errors.push(FieldError::invalid(at, id, words));
            }
            if let Some(count) = int_at(driver, "allocatable.count")
                && count < 0
            {
                errors.push(FieldError::invalid(
                    format!("{path}.allocatable.count"),
                    count,
                    "must be greater than or equal to 0",
                ));
            }
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
            let mut keys = BTreeSet::new();
            for key in texts(driver, "topologyKeys") {
                if key.is_empty() {
                    errors.push(FieldError::required(path.as_str(), ""));
                }
                if !keys.insert(key) {
                    errors.push(FieldError::duplicate(path.as_str(), key));
                }
                all_invalid(key, &path, meta::names::qualified_name_errors(key), errors);
            }
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        // How many volumes fit may change, nothing else of a driver.
        let fixed = |driver: &Value| {
            let mut driver = driver.clone();
            crate::kind::put(&mut driver, "allocatable", None);
            driver
        };
        for was in items(old, "spec.drivers") {
            let named = |d: &&Value| str_at(d, "name") == str_at(was, "name");
            let Some(is) = items(new, "spec.drivers").iter().find(named) else {
                continue;
            };
            if !same(Some(&fixed(is)), Some(&fixed(was))) {
                errors.push(FieldError::invalid("spec.drivers", fixed(is), IMMUTABLE));
            }
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            Value::from(items(object, "spec.drivers").len()),
            print::age(object, now),
        ]
    }
}

struct Capacity;

impl Strategy for Capacity {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        selector(object.get("nodeTopology"), "nodeTopology", errors);
        let class = str_at(object, "storageClassName");
        let wrong = meta::names::subdomain_errors(class);
        all_invalid(class, "storageClassName", wrong, errors);
        let capacity = object.get("capacity").map(Quantity::from_value);
        if let Some(Ok(quantity)) = capacity
            && quantity.is_negative()
        {
            errors.push(FieldError::invalid(
                "capacity",
                quantity.to_string(),
                "must be greater than or equal to 0",
            ));
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        immutable(new, old, "nodeTopology", errors);
        immutable(new, old, "storageClassName", errors);
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        let capacity = match str_at(object, "capacity") {
            "" => "<unset>",
            text => text,
        };
        vec![
            print::name(object),
            Value::from(str_at(object, "storageClassName")),
            Value::from(capacity),
        ]
    }
}
