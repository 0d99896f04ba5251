//! Node selectors and tolerations, read once per pod.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};
use meta::labels::{Operator, Requirement};

use crate::node::NodeInfo;

const NAME_FIELD: &str = "metadata.name";

/// Is what a node must be like: `nodeSelector` and required node affinity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequiredNodes {
    /// Are labels the node must have.
    pub labels: BTreeMap<String, String>,
    /// Are terms of which one must match; none if the pod has no required affinity.
    pub terms: Option<Vec<Term>>,
}

/// Is one term: all its requirements must hold. A term that cannot be read, or has no
/// requirement, matches nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Term {
    labels: Vec<Requirement>,
    names: Vec<Requirement>,
    valid: bool,
}

/// Is a term that a node had better match.
#[derive(Clone, Debug, PartialEq)]
pub struct PreferredTerm {
    /// Is how much a match counts.
    pub weight: i64,
    /// Is the term.
    pub term: Term,
}

impl RequiredNodes {
    /// Reads a pod's requirements.
    pub fn of(spec: &PodSpec) -> Self {
        let required = spec
            .affinity
            .as_ref()
            .and_then(|a| a.node_affinity.as_ref())
            .and_then(|a| {
                a.required_during_scheduling_ignored_during_execution
                    .as_ref()
            });
        Self {
            labels: spec.node_selector.clone().unwrap_or_default(),
            terms: required.map(|r| r.node_selector_terms.iter().map(Term::of).collect()),
        }
    }

    /// Tells whether any node will do.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.terms.is_none()
    }

    /// Tells whether a node will do.
    pub fn matches(&self, node: &NodeInfo) -> bool {
        self.labels
            .iter()
            .all(|(k, v)| node.labels.get(k) == Some(v))
            && self
                .terms
                .as_ref()
                .is_none_or(|terms| terms.iter().any(|t| t.matches(node)))
    }

    /// Returns the only nodes that can do, if the terms name them; none if they do
    /// not narrow by name.
    pub fn names(&self) -> Option<BTreeSet<String>> {
        let terms = self.terms.as_ref().filter(|terms| !terms.is_empty())?;
        let mut all = BTreeSet::new();
        for term in terms {
            let mut listed = term.names.iter().filter(|r| r.operator == Operator::In);
            let first = listed.next()?.values.clone();
            all.extend(listed.fold(first, |names, r| &names & &r.values));
        }
        Some(all)
    }
}

impl Term {
    /// Reads a term.
    pub fn of(term: &NodeSelectorTerm) -> Self {
        let read = |list: &Option<Vec<NodeSelectorRequirement>>| {
            list.iter()
                .flatten()
                .map(requirement)
                .collect::<Option<Vec<_>>>()
        };
        let (labels, names) = (read(&term.match_expressions), read(&term.match_fields));
        let (Some(labels), Some(names)) = (labels, names) else {
            return Self::default();
        };
        let fields_known = names
            .iter()
            .all(|r| r.key == NAME_FIELD && matches!(r.operator, Operator::In | Operator::NotIn));
        let valid = fields_known && !(labels.is_empty() && names.is_empty());
        Self {
            labels,
            names,
            valid,
        }
    }

    /// Tells whether a node matches.
    pub fn matches(&self, node: &NodeInfo) -> bool {
        let named = |r: &Requirement| r.values.contains(&node.name) == (r.operator == Operator::In);
        self.valid
            && self.labels.iter().all(|r| r.matches(&node.labels))
            && self.names.iter().all(named)
    }
}

fn requirement(requirement: &NodeSelectorRequirement) -> Option<Requirement> {
    let operator = match requirement.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return None,
    };
    let values = requirement.values.iter().flatten().cloned().collect();
    Some(Requirement {
        key: requirement.key.clone(),
        operator,
        values,
    })
}

/// Reads the terms a pod prefers; one of no weight or no requirement counts nothing.
pub fn preferred_nodes(spec: &PodSpec) -> Vec<PreferredTerm> {
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref());
    let preferred = affinity.and_then(|a| {
        a.preferred_during_scheduling_ignored_during_execution
            .as_ref()
    });
    preferred
        .into_iter()
        .flatten()
        .map(|p| PreferredTerm {
            weight: p.weight.into(),
            term: Term::of(&p.preference),
        })
        .filter(|p| p.weight != 0 && p.term.valid)
        .collect()
}

/// Tells whether one of the tolerations tolerates a taint.
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|t| {
        let effect = t.effect.as_deref().unwrap_or_default();
        let key = t.key.as_deref().unwrap_or_default();
        let value = t.value.as_deref().unwrap_or_default();
        if !effect.is_empty() && effect != taint.effect {
            return false;
        }
        if !key.is_empty() && key != taint.key {
            return false;
        }
        match t.operator.as_deref().unwrap_or_default() {
            // Without a key it tolerates everything.
            "Exists" => true,
            "" | "Equal" => !key.is_empty() && value == taint.value.as_deref().unwrap_or_default(),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, labels: &[(&str, &str)]) -> NodeInfo {
        NodeInfo {
            name: name.into(),
            labels: labels
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect(),
            ..NodeInfo::default()
        }
    }

    fn required(terms: serde_json::Value) -> RequiredNodes {
        let spec = json!({"containers": [], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        RequiredNodes::of(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn terms_are_alternatives_and_requirements_are_not() {
        let r = required(json!([
            {"matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["a", "b"]},
                {"key": "cores", "operator": "Gt", "values": ["8"]}]},
            {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
        ]));
        assert!(r.matches(&node("n", &[("zone", "b"), ("cores", "16")])));
        assert!(!r.matches(&node("n", &[("zone", "b"), ("cores", "8")])));
        assert!(r.matches(&node("n", &[("gpu", "")])));
        assert!(!r.matches(&node("n", &[])));
    }

    #[test]
    fn empty_and_unreadable_terms_match_nothing() {
        assert!(!required(json!([{}])).matches(&node("n", &[])));
        assert!(!required(json!([])).matches(&node("n", &[])));
        let odd = json!([{"matchExpressions": [{"key": "k", "operator": "Near"}]}]);
        assert!(!required(odd).matches(&node("n", &[("k", "v")])));
    }

    #[test]
    fn names_narrow_only_if_every_term_names_nodes() {
        let by_name = |values: &[&str]| {
            json!({"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": values}]})
        };
        let r = required(json!([by_name(&["a"]), by_name(&["b"])]));
        assert_eq!(r.names(), Some(["a".to_owned(), "b".to_owned()].into()));
        assert!(r.matches(&node("a", &[])) && !r.matches(&node("c", &[])));
        let open = json!({"matchExpressions": [{"key": "k", "operator": "Exists"}]});
        assert_eq!(required(json!([by_name(&["a"]), open])).names(), None);
    }

    #[test]
    fn tolerations() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"}))
                .unwrap();
        let cases = [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (
                json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}),
                true,
            ),
            (
                json!({"key": "k", "operator": "Equal", "value": "w"}),
                false,
            ),
            (
                json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (json!({"key": "j", "operator": "Exists"}), false),
        ];
        for (toleration, expected) in cases {
            let list = [serde_json::from_value(toleration.clone()).unwrap()];
            assert_eq!(tolerates(&list, &taint), expected, "{toleration}");
        }
        assert!(!tolerates(&[], &taint));
    }
}
