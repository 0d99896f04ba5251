//! The pod specification, which pods have and workloads have templates of:
//! its defaults, its checks and its warnings.

pub mod defaults;
pub mod ephemeral;
pub mod qos;
pub mod validate;
pub mod warnings;

use serde_json::{Map, Value};

/// The fields of a specification that hold containers.
pub const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Sets a field that is absent.
pub fn fill(map: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    if !map.contains_key(name) {
        map.insert(name.to_owned(), value.into());
    }
}

/// Sets a text that is absent or empty.
pub fn fill_text(map: &mut Map<String, Value>, name: &str, value: &str) {
    if map
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .is_empty()
    {
        map.insert(name.to_owned(), Value::from(value));
    }
}

/// Calls a function on every object of a list.
pub fn each<'a>(
    map: &'a mut Map<String, Value>,
    list: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}
