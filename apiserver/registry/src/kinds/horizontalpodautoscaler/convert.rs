//! The way between the two versions (upstream:
//! `pkg/apis/autoscaling/v1/conversion.go`). What the old version has no field
//! for goes into annotations in the old version's spelling, and comes back.

use meta::value::{at, set_metadata, str_at};
use serde_json::{Map, Value, json};

use crate::kind::put;

const OLD: &str = "autoscaling/v1";
const NEW: &str = "autoscaling/v2";

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// Returns the metric that the old version has a field for.
pub(super) fn cpu(percent: i64) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": percent}}})
}

/// Returns the use of CPU a metric aims at; `None` for other metrics.
fn cpu_of(metric: &Value) -> Option<&Value> {
    let of_cpu = str_at(metric, "type") == "Resource" && str_at(metric, "resource.name") == "cpu";
    at(metric, "resource.target.averageUtilization").filter(|_| of_cpu)
}

/// Turns an object of the new version into one of the old.
pub(super) fn to_v1(object: &mut Value) {
    if str_at(object, "apiVersion") != NEW {
        return;
    }
    put(object, "apiVersion", Some(Value::from(OLD)));
    let mut kept = Vec::new();
    if let Some(spec) = object.get_mut("spec") {
        let metrics = take_list(spec, "metrics");
        let percent = metrics.iter().find_map(cpu_of).cloned();
        put(spec, "targetCPUUtilizationPercentage", percent);
        let others = metrics.iter().filter(|m| cpu_of(m).is_none());
        kept.push((METRICS, list(others.map(old_metric))));
        let behavior = spec.get("behavior").map(capitals);
        kept.push((BEHAVIOR, behavior));
        put(spec, "behavior", None);
    }
    if let Some(status) = object.get_mut("status") {
        let current = take_list(status, "currentMetrics");
        let path = "resource.current.averageUtilization";
        let of_cpu = |m: &&Value| str_at(m, "resource.name") == "cpu";
        let used = current.iter().filter(of_cpu).find_map(|m| at(m, path));
        put(status, "currentCPUUtilizationPercentage", used.cloned());
        // The old version says that there are none, the new one nothing.
        if status.get("currentReplicas").is_none() {
            put(status, "currentReplicas", Some(Value::from(0)));
        }
        kept.push((CURRENT, list(current.iter().map(old_status))));
        let conditions = take_list(status, "conditions");
        kept.push((CONDITIONS, list(conditions.into_iter())));
    }
    let mut annotations = own_annotations(object);
    for (name, value) in kept {
        if let Some(value) = value {
            annotations.insert(name.to_owned(), Value::from(value.to_string()));
        }
    }
    set_annotations(object, annotations);
}

/// Turns an object of the old version into one of the new.
pub(super) fn to_v2(object: &mut Value) {
    if str_at(object, "apiVersion") == NEW {
        return;
    }
    put(object, "apiVersion", Some(Value::from(NEW)));
    let kept = |name: &str| -> Option<Value> {
        let annotations = at(object, "metadata.annotations")?;
        serde_json::from_str(annotations.get(name)?.as_str()?).ok()
    };
    let all = |value: Option<Value>, new: fn(&Value) -> Value| match value {
        Some(Value::Array(items)) => Some(items.iter().map(new).collect::<Value>()),
        _ => None,
    };
    let metrics = all(kept(METRICS), new_metric).and_then(|v| sound("spec", "metrics", v));
    let behavior = kept(BEHAVIOR).map(|b| small_letters(&b));
    let behavior = behavior.and_then(|b| sound("spec", "behavior", b));
    let current = all(kept(CURRENT), new_status);
    let current = current.and_then(|c| sound("status", "currentMetrics", c));
    let conditions = kept(CONDITIONS).and_then(|c| sound("status", "conditions", c));
    let annotations = own_annotations(object);
    meta::value::object_mut(object, "spec");
    let spec = &mut object["spec"];
    let percent = meta::value::int_at(spec, "targetCPUUtilizationPercentage");
    let kept = metrics.as_ref().and_then(Value::as_array);
    let mut all: Vec<Value> = kept.cloned().unwrap_or_default();
    all.extend(percent.map(cpu));
    if all.is_empty() {
        all.push(cpu(80));
    }
    put(spec, "metrics", Some(Value::from(all)));
    put(spec, "targetCPUUtilizationPercentage", None);
    if let Some(behavior) = behavior {
        put(spec, "behavior", Some(behavior));
    }
    if object.get("status").is_some() || current.is_some() || conditions.is_some() {
        meta::value::object_mut(object, "status");
        let status = &mut object["status"];
        let used = meta::value::int_at(status, "currentCPUUtilizationPercentage");
        let measured = used.map(|used| {
            json!([{"type": "Resource",
                "resource": {"name": "cpu", "current": {"averageUtilization": used}}}])
        });
        // The annotation knows more than the field.
        put(status, "currentMetrics", current.or(measured));
        put(status, "currentCPUUtilizationPercentage", None);
        if status.get("currentReplicas") == Some(&json!(0)) {
            put(status, "currentReplicas", None);
        }
        put(status, "conditions", conditions);
    }
    set_annotations(object, annotations);
}

/// Returns a part of an object if it has the right types; what an annotation
/// says is anybody's.
fn sound(half: &str, field: &str, part: Value) -> Option<Value> {
    let mut object = json!({half: {field: part}});
    crate::schema::conform(super::V2.def()?, &mut object).ok()?;
    at(&object, &format!("{half}.{field}")).cloned()
}

/// Returns the annotations but for those that carry parts of the new version.
fn own_annotations(object: &Value) -> Map<String, Value> {
    let found = at(object, "metadata.annotations").and_then(Value::as_object);
    let mut own = found.cloned().unwrap_or_default();
    for name in [METRICS, CURRENT, CONDITIONS, BEHAVIOR] {
        own.remove(name);
    }
    own
}

fn set_annotations(object: &mut Value, annotations: Map<String, Value>) {
    let had = at(object, "metadata.annotations").is_some();
    match annotations.is_empty() {
        false => set_metadata(object, "annotations", Value::Object(annotations)),
        true if had => set_metadata(object, "annotations", Value::Null),
        true => {}
    }
}

fn take_list(holder: &mut Value, name: &str) -> Vec<Value> {
    match holder.as_object_mut().and_then(|map| map.remove(name)) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn list(items: impl Iterator<Item = Value>) -> Option<Value> {
    let items: Vec<Value> = items.collect();
    (!items.is_empty()).then(|| Value::from(items))
}

/// The kinds of metric: type, field, and what the old version calls the metric's
/// name and selector, where it has them.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
    ("External", "external"),
];

/// Moves a value from one path to another, if it is there.
fn take_over(from: &Value, path: &str, to: &mut Value, name: &str) {
    if let Some(value) = at(from, path) {
        put(to, name, Some(value.clone()));
    }
}

/// What the fields of a metric are called: in the new version, and in the old.
fn names(field: &str, prefix: &str) -> Vec<(&'static str, String)> {
    let aim = |rest: &str| format!("{prefix}{rest}");
    let mut all: Vec<(&'static str, String)> = match field {
        "resource" => vec![("name", "name".to_owned())],
        "containerResource" => ["name", "container"].map(|n| (n, n.to_owned())).to_vec(),
        "object" => vec![("describedObject", "target".to_owned())],
        _ => Vec::new(),
    };
    if matches!(field, "object" | "pods" | "external") {
        let selector = if field == "external" {
            "metricSelector"
        } else {
            "selector"
        };
        all.push(("metric.name", "metricName".to_owned()));
        all.push(("metric.selector", selector.to_owned()));
    }
    match field {
        "object" => {
            all.push(("*.value", aim("Value")));
            all.push(("*.averageValue", "averageValue".to_owned()));
        }
        "external" => {
            all.push(("*.value", aim("Value")));
            all.push(("*.averageValue", aim("AverageValue")));
        }
        "pods" => all.push(("*.averageValue", aim("AverageValue"))),
        _ => {
            all.push(("*.averageUtilization", aim("AverageUtilization")));
            all.push(("*.averageValue", aim("AverageValue")));
        }
    }
    all
}

fn old_form(metric: &Value, holder: &str, prefix: &str) -> Value {
    let mut old = json!({"type": str_at(metric, "type")});
    for (_, field) in SOURCES {
        let Some(source) = metric.get(field) else {
            continue;
        };
        let mut made = json!({});
        for (new, name) in names(field, prefix) {
            take_over(source, &new.replace('*', holder), &mut made, &name);
        }
        put(&mut old, field, Some(made));
    }
    old
}

fn new_form(metric: &Value, holder: &str, prefix: &str) -> Value {
    let mut new = json!({"type": str_at(metric, "type")});
    for (_, field) in SOURCES {
        let Some(source) = metric.get(field) else {
            continue;
        };
        let mut made = json!({});
        for (path, name) in names(field, prefix) {
            let Some(value) = source.get(&name).filter(|v| !v.is_null()) else {
                continue;
            };
            match path.replace('*', holder).split_once('.') {
                None => put(&mut made, path, Some(value.clone())),
                Some((outer, inner)) => {
                    meta::value::object_mut(&mut made, outer)
                        .insert(inner.to_owned(), value.clone());
                }
            }
        }
        put(&mut new, field, Some(made));
    }
    new
}

fn old_metric(metric: &Value) -> Value {
    old_form(metric, "target", "target")
}

fn old_status(status: &Value) -> Value {
    old_form(status, "current", "current")
}

fn new_status(status: &Value) -> Value {
    new_form(status, "current", "current")
}

/// Returns a metric in the new form; the type of its target follows from what
/// is aimed at.
fn new_metric(metric: &Value) -> Value {
    let mut new = new_form(metric, "target", "target");
    for (_, field) in SOURCES {
        let Some(source) = new.get_mut(field) else {
            continue;
        };
        let target = meta::value::object_mut(source, "target");
        // A zero stands for a value that is not aimed at.
        if target.contains_key("averageValue") && is_zero(target.get("value")) {
            target.remove("value");
        }
        let ty = if target.contains_key("averageUtilization") {
            "Utilization"
        } else if target.contains_key("averageValue") {
            "AverageValue"
        } else if matches!(field, "object" | "external") {
            "Value"
        } else {
            "AverageValue"
        };
        target.insert("type".to_owned(), Value::from(ty));
    }
    new
}

fn is_zero(value: Option<&Value>) -> bool {
    value
        .map(meta::quantity::Quantity::from_value)
        .is_some_and(|q| q.is_ok_and(meta::quantity::Quantity::is_zero))
}

/// Spells the fields of a behaviour with capitals, as upstream writes a type
/// without names for JSON.
fn capitals(value: &Value) -> Value {
    renamed(value, |name| {
        let (first, rest) = name.split_at(name.chars().next().map_or(0, char::len_utf8));
        first.to_uppercase() + rest
    })
}

fn small_letters(value: &Value) -> Value {
    renamed(value, |name| {
        let (first, rest) = name.split_at(name.chars().next().map_or(0, char::len_utf8));
        first.to_lowercase() + rest
    })
}

/// Renames the members of objects; what is null is left out.
fn renamed(value: &Value, name: fn(&str) -> String) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(_, inner)| !inner.is_null())
            .map(|(key, inner)| (name(key), renamed(inner, name)))
            .collect(),
        Value::Array(items) => items.iter().map(|inner| renamed(inner, name)).collect(),
        other => other.clone(),
    }
}
