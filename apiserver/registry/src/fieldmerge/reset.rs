//! Fields that an endpoint resets before it writes: nobody can own them
//! through it. The main endpoint resets `status`, the status endpoint `spec`.

use std::collections::BTreeMap;

use super::element::PathElement;
use super::set::{Node, Set};

/// The filter of each version of a kind, by `apiVersion`.
pub type ResetFields = BTreeMap<String, Filter>;

/// Which fields can be owned through an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All but these and what is below them.
    Exclude(Set),
    /// Only what is at, on the way to, or below one of these.
    Include(Vec<Vec<Pattern>>),
}

/// A path element of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Any element.
    Any,
    /// This element.
    Element(PathElement),
}

impl Pattern {
    fn matches(&self, element: &PathElement) -> bool {
        match self {
            Self::Any => true,
            Self::Element(own) => own == element,
        }
    }
}

impl Filter {
    /// Returns what the filter leaves of a set.
    pub fn apply(&self, set: &Set) -> Set {
        match self {
            Self::Exclude(excluded) => set.recursive_difference(excluded),
            Self::Include(patterns) => {
                let patterns: Vec<&[Pattern]> = patterns.iter().map(Vec::as_slice).collect();
                matching(set, &patterns)
            }
        }
    }
}

fn matching(set: &Set, patterns: &[&[Pattern]]) -> Set {
    if patterns.iter().any(|pattern| pattern.is_empty()) {
        return set.clone();
    }
    let mut out = Set::new();
    for (element, node) in &set.nodes {
        let rest: Vec<&[Pattern]> = patterns
            .iter()
            .filter_map(|pattern| pattern.split_first())
            .filter(|(first, _)| first.matches(element))
            .map(|(_, rest)| rest)
            .collect();
        if !rest.is_empty() {
            let node = Node {
                member: node.member,
                below: matching(&node.below, &rest),
            };
            out.put(element.clone(), node);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::set::of_fields;
    use super::*;

    #[test]
    fn filters_leave_out_whole_subtrees() {
        let set = of_fields(&["spec.a", "status", "status.b", "statusx"]);
        let filter = Filter::Exclude(of_fields(&["status"]));
        assert_eq!(filter.apply(&set), of_fields(&["spec.a", "statusx"]));
    }

    #[test]
    fn filters_keep_what_matches() {
        let field = |name: &str| Pattern::Element(PathElement::field(name));
        let filter = Filter::Include(vec![
            vec![field("spec"), Pattern::Any, field("resources")],
            vec![field("metadata"), field("name")],
        ]);
        let set = of_fields(&[
            "spec",
            "spec.a",
            "spec.a.resources.cpu",
            "spec.b.image",
            "metadata.labels.x",
            "metadata.name",
            "status",
        ]);
        let left = of_fields(&["spec", "spec.a", "spec.a.resources.cpu", "metadata.name"]);
        assert_eq!(filter.apply(&set), left);
        assert!(Filter::Include(Vec::new()).apply(&set).is_empty());
    }
}
