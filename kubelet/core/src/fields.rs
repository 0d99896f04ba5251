//! Values taken from the pod itself: `fieldRef` and `resourceFieldRef`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::pod;

/// What the node knows and a pod may ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node's name.
    pub node_name: String,
    /// The node's address.
    pub host_ip: String,
    /// The pod's address; the node's own under the `process` runtime.
    pub pod_ip: String,
    /// What the node offers of cpu, in thousandths; the limit of those who name none.
    pub allocatable_cpu_milli: i64,
    /// What the node offers of memory, in bytes.
    pub allocatable_memory_bytes: i64,
}

/// Why a reference has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The path names nothing a pod offers.
    #[error("unsupported fieldPath: {0}")]
    UnsupportedPath(String),
    /// The resource is not one a pod may ask for.
    #[error("unsupported container resource : {0}")]
    UnsupportedResource(String),
    /// The container to look at does not exist.
    #[error("container {0} not found")]
    NoContainer(String),
    /// A quantity does not parse.
    #[error("quantity {0:?} is not valid")]
    Quantity(String),
}

/// Resolves a `fieldRef` path.
pub fn field(pod: &Pod, facts: &NodeFacts, path: &str) -> Result<String, FieldError> {
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => pod.metadata.labels.as_ref(),
            "metadata.annotations" => pod.metadata.annotations.as_ref(),
            _ => return Err(FieldError::UnsupportedPath(path.to_owned())),
        };
        return Ok(map.and_then(|m| m.get(key)).cloned().unwrap_or_default());
    }
    let spec = pod::spec(pod);
    Ok(match path {
        "metadata.name" => pod::name(pod).to_owned(),
        "metadata.namespace" => pod::namespace(pod).to_owned(),
        "metadata.uid" => pod::uid(pod).to_owned(),
        "metadata.labels" => format_map(pod.metadata.labels.as_ref()),
        "metadata.annotations" => format_map(pod.metadata.annotations.as_ref()),
        "spec.nodeName" => spec
            .and_then(|s| s.node_name.clone())
            .unwrap_or_else(|| facts.node_name.clone()),
        "spec.serviceAccountName" => spec
            .and_then(|s| s.service_account_name.clone())
            .unwrap_or_default(),
        "status.hostIP" | "status.hostIPs" => facts.host_ip.clone(),
        "status.podIP" | "status.podIPs" => facts.pod_ip.clone(),
        _ => return Err(FieldError::UnsupportedPath(path.to_owned())),
    })
}

/// Splits `metadata.labels['key']` into map and key.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// Formats labels or annotations as downward API files hold them: sorted
/// `key="value"` lines, the value quoted.
fn format_map(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<_> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    lines.join("\n")
}

/// Resolves a `resourceFieldRef`; a container that names no limit gets the
/// node's (upstream `ExtractResourceValueByContainerNameAndNodeAllocatable`).
pub fn resource(
    pod: &Pod,
    facts: &NodeFacts,
    own_name: &str,
    selector: &ResourceFieldSelector,
) -> Result<String, FieldError> {
    let name = selector
        .container_name
        .as_deref()
        .filter(|n| !n.is_empty())
        .unwrap_or(own_name);
    let container =
        pod::container(pod, name).ok_or_else(|| FieldError::NoContainer(name.to_owned()))?;
    let unsupported = || FieldError::UnsupportedResource(selector.resource.clone());
    let (side, resource) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|r| r.limits.as_ref());
    let requests = resources.and_then(|r| r.requests.as_ref());
    let of = |map: Option<&BTreeMap<String, Quantity>>| map.and_then(|m| m.get(resource)).cloned();
    let (quantity, fallback) = match side {
        "limits" => (of(limits), true),
        // The API defaults requests to limits, per resource.
        "requests" => (of(requests).or_else(|| of(limits)), false),
        _ => return Err(unsupported()),
    };
    let node_milli = match resource {
        "cpu" => i128::from(facts.allocatable_cpu_milli),
        "memory" => i128::from(facts.allocatable_memory_bytes) * 1000,
        "ephemeral-storage" => 0,
        _ => return Err(unsupported()),
    };
    let milli = match quantity {
        Some(quantity) => quantity_milli(&quantity.0)?,
        None if fallback => node_milli,
        None => 0,
    };
    let divisor = match selector
        .divisor
        .as_ref()
        .map(|d| quantity_milli(&d.0))
        .transpose()?
    {
        Some(d) if d > 0 => d,
        Some(_) | None => 1000,
    };
    // Rounded up, as upstream does: a fraction of a core counts as one.
    Ok(((milli + divisor - 1) / divisor).to_string())
}

/// Parses a quantity into thousandths, rounding up.
pub fn quantity_milli(text: &str) -> Result<i128, FieldError> {
    let bad = || FieldError::Quantity(text.to_owned());
    let split = text
        .char_indices()
        .find(|(_, c)| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
        .map_or(text.len(), |(at, _)| at);
    let (number, suffix) = text.split_at(split);
    let (numerator, denominator): (i128, i128) = match suffix {
        "n" => (1, 1_000_000),
        "u" => (1, 1000),
        "m" => (1, 1),
        "" => (1000, 1),
        "k" => (1000_i128.pow(2), 1),
        "M" => (1000_i128.pow(3), 1),
        "G" => (1000_i128.pow(4), 1),
        "T" => (1000_i128.pow(5), 1),
        "P" => (1000_i128.pow(6), 1),
        "Ki" => (1000 << 10, 1),
        "Mi" => (1000 << 20, 1),
        "Gi" => (1000 << 30, 1),
        "Ti" => (1000 << 40, 1),
        "Pi" => (1000 << 50, 1),
        _ => return Err(bad()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 || whole.len() > 18 || (whole.is_empty() && fraction.is_empty()) {
        return Err(bad());
    }
    let digits: i128 = format!("{whole}{fraction}")
        .parse()
        .map_err(|_unused| bad())?;
    let scale = 10_i128.pow(u32::try_from(fraction.len()).map_err(|_unused| bad())?);
    let denominator = denominator * scale;
    Ok((digits * numerator + denominator - 1).div_euclid(denominator))
}

#[cfg(test)]
mod test {
    use serde_json::json;

    use super::*;

    fn sample() -> (Pod, NodeFacts) {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-1",
                "labels": {"app": "web", "tier": "a\"b"}},
            "spec": {"nodeName": "n1", "serviceAccountName": "default", "containers": [
                {"name": "c", "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "64Mi"}}}]},
        }))
        .unwrap();
        let facts = NodeFacts {
            node_name: "n1".into(),
            host_ip: "10.0.0.1".into(),
            pod_ip: "10.0.0.2".into(),
            allocatable_cpu_milli: 2000,
            allocatable_memory_bytes: 1 << 30,
        };
        (pod, facts)
    }

    #[test]
    fn field_paths() {
        let (pod, facts) = sample();
        let cases = [
            ("metadata.name", "web"),
            ("metadata.namespace", "shop"),
            ("metadata.uid", "u-1"),
            ("metadata.labels['app']", "web"),
            ("metadata.labels['none']", ""),
            ("metadata.labels", "app=\"web\"\ntier=\"a\\\"b\""),
            ("spec.nodeName", "n1"),
            ("spec.serviceAccountName", "default"),
            ("status.hostIP", "10.0.0.1"),
            ("status.podIP", "10.0.0.2"),
        ];
        for (path, expected) in cases {
            assert_eq!(field(&pod, &facts, path).unwrap(), expected, "{path}");
        }
        let error = field(&pod, &facts, "spec.containers").unwrap_err();
        assert_eq!(error.to_string(), "unsupported fieldPath: spec.containers");
    }

    #[test]
    fn resources_are_divided_rounded_up_and_fall_back_to_the_node() {
        let (pod, facts) = sample();
        let ask = |resource: &str, divisor: &str| {
            let selector = ResourceFieldSelector {
                resource: resource.into(),
                divisor: (!divisor.is_empty()).then(|| Quantity(divisor.into())),
                ..ResourceFieldSelector::default()
            };
            resource_of(&pod, &facts, &selector)
        };
        fn resource_of(pod: &Pod, facts: &NodeFacts, s: &ResourceFieldSelector) -> String {
            resource(pod, facts, "c", s).unwrap()
        }
        assert_eq!(ask("limits.cpu", ""), "2");
        assert_eq!(ask("limits.cpu", "1m"), "1500");
        assert_eq!(ask("requests.memory", "1Mi"), "64");
        assert_eq!(ask("limits.memory", ""), (1_u64 << 30).to_string());
        assert_eq!(ask("requests.cpu", "1m"), "1500");
    }

    #[test]
    fn quantities() {
        for (text, milli) in [
            ("1", 1000),
            ("100m", 100),
            ("0.5", 500),
            ("1Ki", 1_024_000),
            ("1k", 1_000_000),
            ("1500u", 2),
        ] {
            assert_eq!(quantity_milli(text), Ok(milli), "{text}");
        }
        for bad in ["", "x", "1Xi", "--1", "1.2.3"] {
            assert!(quantity_milli(bad).is_err(), "{bad}");
        }
    }
}
