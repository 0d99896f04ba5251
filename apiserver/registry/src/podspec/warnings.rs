//! What the writer of a pod specification is warned about: what is accepted
//! and hardly meant (upstream: `pkg/api/pod/warnings.go`).

use std::collections::BTreeSet;

use meta::quantity::Quantity;
use meta::value::{int_at, str_at};
use serde_json::Value;

use crate::validate::items;

/// Node labels that were renamed.
const RENAMED_LABELS: [(&str, &str, &str); 4] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "v1.17",
        "topology.kubernetes.io/region",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "v1.17",
        "topology.kubernetes.io/zone",
    ),
];

/// Returns the warnings about a specification; `path` is where it stands.
pub fn spec(spec: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (label, since, instead) in RENAMED_LABELS {
        if spec
            .get("nodeSelector")
            .and_then(|s| s.get(label))
            .is_some()
        {
            found.push(format!(
                "{path}.nodeSelector[{label}]: deprecated since {since}; use {instead:?} instead"
            ));
        }
    }
    if int_at(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        found.push(format!(
            "{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    for list in ["initContainers", "containers"] {
        for (index, container) in items(spec, list).iter().enumerate() {
            self::container(container, &format!("{path}.{list}[{index}]"), &mut found);
        }
    }
    found
}

fn container(container: &Value, path: &str, found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, variable) in items(container, "env").iter().enumerate() {
        let name = str_at(variable, "name");
        // A value that refers to the earlier one is meant.
        if !seen.insert(name) && !str_at(variable, "value").contains(&format!("$({name})")) {
            found.push(format!(
                "{path}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
    for kind in ["limits", "requests"] {
        let Some(resources) = container.get("resources").and_then(|r| r.get(kind)) else {
            continue;
        };
        for name in ["memory", "ephemeral-storage"] {
            let quantity = resources.get(name).map(Quantity::from_value);
            if let Some(Ok(quantity)) = quantity
                && !quantity.is_whole()
            {
                found.push(format!(
                    "{path}.resources.{kind}[{name}]: fractional byte value {:?} is invalid, must be an integer",
                    quantity.to_string()
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn warns() {
        let found = super::spec(
            &json!({
                "nodeSelector": {"beta.kubernetes.io/os": "linux"},
                "containers": [{
                    "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"},
                        {"name": "B", "value": "x"}, {"name": "B", "value": "$(B):y"}],
                    "resources": {"limits": {"memory": "100m", "cpu": "100m"}},
                }],
            }),
            "spec",
        );
        assert_eq!(
            found,
            [
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
                "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            ]
        );
        assert!(super::spec(&json!({"containers": [{}]}), "spec").is_empty());
    }
}
