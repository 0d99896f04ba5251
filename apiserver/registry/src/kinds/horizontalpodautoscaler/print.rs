//! The row of an autoscaler: TARGETS says of each metric what is measured and
//! what is aimed at.

use jiff::Timestamp;
use meta::quantity::Quantity;
use meta::value::{at, int_at, str_at};
use serde_json::Value;

use crate::print;
use crate::validate::items;

/// How many metrics are shown.
const SHOWN: usize = 2;

/// Returns the cells of an object in the new form.
pub(super) fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = str_at(object, "spec.scaleTargetRef.kind");
    let name = str_at(object, "spec.scaleTargetRef.name");
    let min = int_at(object, "spec.minReplicas");
    vec![
        print::name(object),
        Value::from(format!("{kind}/{name}")),
        Value::from(targets(object)),
        Value::from(min.map_or_else(|| "<unset>".to_owned(), |min| min.to_string())),
        print::number(object, "spec.maxReplicas"),
        print::number(object, "status.currentReplicas"),
        print::age(object, now),
    ]
}

fn targets(object: &Value) -> String {
    let metrics = items(object, "spec.metrics");
    if metrics.is_empty() {
        return print::NONE.to_owned();
    }
    let current = items(object, "status.currentMetrics");
    let shown = metrics
        .iter()
        .enumerate()
        .take(SHOWN)
        .map(|(index, metric)| self::metric(metric, current.get(index)))
        .collect::<Vec<_>>()
        .join(", ");
    match metrics.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

fn metric(metric: &Value, status: Option<&Value>) -> String {
    let field = match str_at(metric, "type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let found = status.and_then(|s| s.get(field));
    let amount = |holder: Option<&Value>, path: &str| {
        let value = holder.and_then(|h| at(h, path))?;
        Quantity::from_value(value).ok().map(|q| q.to_string())
    };
    let percent = |holder: Option<&Value>, path: &str| {
        holder
            .and_then(|h| int_at(h, path))
            .map(|p| format!("{p}%"))
    };
    let source = metric.get(field);
    let unknown = || "<unknown>".to_owned();
    let name = source.map_or("", |s| str_at(s, "name"));
    let average = amount(source, "target.averageValue");
    match (field, average) {
        ("resource" | "containerResource", Some(target)) => {
            let current = amount(found, "current.averageValue").unwrap_or_else(unknown);
            format!("{name}: {current}/{target}")
        }
        ("resource" | "containerResource", None) => {
            let current = percent(found, "current.averageUtilization").unwrap_or_else(unknown);
            let target = percent(source, "target.averageUtilization");
            let target = target.unwrap_or_else(|| "<auto>".to_owned());
            format!("{name}: {current}/{target}")
        }
        ("pods", target) => {
            let current = amount(found, "current.averageValue").unwrap_or_else(unknown);
            format!("{current}/{}", target.unwrap_or_else(|| "0".to_owned()))
        }
        (_, Some(target)) => {
            let current = amount(found, "current.averageValue").unwrap_or_else(unknown);
            format!("{current}/{target} (avg)")
        }
        (_, None) => {
            let current = amount(found, "current.value").unwrap_or_else(unknown);
            let target = amount(source, "target.value").unwrap_or_else(|| "0".to_owned());
            format!("{current}/{target}")
        }
    }
}
