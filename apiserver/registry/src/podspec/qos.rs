//! The quality-of-service class of a pod, from its containers' resources
//! (upstream: `pkg/apis/core/v1/helper/qos`).

use std::collections::BTreeMap;

use meta::quantity::Quantity;
use serde_json::Value;

use crate::validate::items;

/// Returns `Guaranteed`, `Burstable` or `BestEffort`.
pub fn class(spec: &Value) -> &'static str {
    let mut requests: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut limits: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut guaranteed = true;
    for container in items(spec, "initContainers")
        .iter()
        .chain(items(spec, "containers"))
    {
        add(container, "requests", &mut requests);
        let limited = add(container, "limits", &mut limits);
        guaranteed &= limited == 2;
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let equal = requests
        .iter()
        .all(|(name, request)| limits.get(name) == Some(request));
    if guaranteed && equal && requests.len() == limits.len() {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Adds a container's resources to a sum; returns how many count.
fn add<'a>(container: &'a Value, kind: &str, sum: &mut BTreeMap<&'a str, Quantity>) -> usize {
    let mut counted = 0;
    let map = container
        .get("resources")
        .and_then(|r| r.get(kind))
        .and_then(Value::as_object);
    for (name, value) in map.into_iter().flatten() {
        let Ok(quantity) = Quantity::from_value(value) else {
            continue;
        };
        if !matches!(name.as_str(), "cpu" | "memory") || quantity.is_zero() {
            continue;
        }
        counted += 1;
        let total = sum.entry(name).or_default();
        *total = total.plus(quantity);
    }
    counted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes() {
        let of = |resources: &[Value]| {
            let containers: Vec<Value> =
                resources.iter().map(|r| json!({"resources": r})).collect();
            class(&json!({"containers": containers}))
        };
        let full = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(of(&[json!({})]), "BestEffort");
        assert_eq!(
            of(&[json!({"limits": full, "requests": full})]),
            "Guaranteed"
        );
        assert_eq!(
            of(&[json!({"limits": full, "requests": {"cpu": "1000m", "memory": "1024Mi"}})]),
            "Guaranteed"
        );
        assert_eq!(
            of(&[json!({"limits": full, "requests": full}), json!({})]),
            "Burstable"
        );
        assert_eq!(of(&[json!({"requests": {"cpu": "1"}})]), "Burstable");
        assert_eq!(
            of(&[json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}})]),
            "Burstable"
        );
        assert_eq!(of(&[json!({"requests": {"cpu": "0"}})]), "BestEffort");
    }
}
