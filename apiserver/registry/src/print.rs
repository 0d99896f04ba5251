//! Cells of `kubectl get`: the words and forms that many kinds share.

use jiff::Timestamp;
use meta::value::{at, int_at, str_at};
use serde_json::Value;

/// What kubectl prints where there is nothing.
pub const NONE: &str = "<none>";

/// Returns the object's name.
pub fn name(object: &Value) -> Value {
    Value::from(meta::value::name(object))
}

/// Returns the age of an object.
pub fn age(object: &Value, now: Timestamp) -> Value {
    Value::from(since(str_at(object, "metadata.creationTimestamp"), now))
}

/// Returns the time since a moment, in kubectl's words.
pub fn since(moment: &str, now: Timestamp) -> String {
    match meta::time::parse(moment) {
        Some(then) => meta::time::human_duration(now.as_second() - then.as_second()),
        None => "<unknown>".to_owned(),
    }
}

/// Returns a number at a path; zero when absent.
pub fn number(object: &Value, path: &str) -> Value {
    Value::from(int_at(object, path).unwrap_or(0))
}

/// Returns a text at a path, or `<none>`.
pub fn text_or_none(object: &Value, path: &str) -> Value {
    let text = str_at(object, path);
    Value::from(if text.is_empty() { NONE } else { text })
}

/// Returns the number of members of an object or list at a path.
pub fn count(object: &Value, path: &str) -> usize {
    match at(object, path) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    }
}

/// Formats a map of labels as `a=b,c=d`.
pub fn labels(map: Option<&Value>) -> String {
    let Some(Value::Object(map)) = map else {
        return NONE.to_owned();
    };
    if map.is_empty() {
        return NONE.to_owned();
    }
    let pairs: Vec<String> = map
        .iter()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    pairs.join(",")
}

/// Formats a label selector object (`matchLabels`, `matchExpressions`).
pub fn selector(selector: Option<&Value>) -> String {
    match selector.map(meta::LabelSelector::from_value) {
        Some(Ok(selector)) if selector.is_empty() => NONE.to_owned(),
        Some(Ok(selector)) => selector.to_string(),
        Some(Err(_)) => "<error>".to_owned(),
        None => NONE.to_owned(),
    }
}

/// Returns the names and the images of the containers of a pod template.
pub fn containers(pod_spec: Option<&Value>) -> (String, String) {
    let list = pod_spec
        .and_then(|s| s.get("containers"))
        .and_then(Value::as_array);
    let of = |field: &str| {
        let texts: Vec<&str> = list
            .into_iter()
            .flatten()
            .map(|c| str_at(c, field))
            .collect();
        texts.join(",")
    };
    (of("name"), of("image"))
}
