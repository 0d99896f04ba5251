//! Sets of paths: what a manager owns, what a comparison found.
//!
//! A set is a tree. A node says whether its own path is in the set, and holds
//! the paths below it; the one does not imply the other: whoever owns
//! `.spec.replicas` need not own `.spec`, and the other way round. No node is
//! there for nothing: each is a member or leads to one. The root is never a
//! member: nobody owns a whole object.

use std::collections::BTreeMap;
use std::fmt;

use super::element::{self, Path, PathElement};
use super::schema::{Schema, TypeId};

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    pub(super) nodes: BTreeMap<PathElement, Node>,
}

/// What a set knows of one path element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// Whether the path that ends here is in the set.
    pub(super) member: bool,
    /// The paths that go on from here.
    pub(super) below: Set,
}

impl Node {
    fn is_needed(&self) -> bool {
        self.member || !self.below.is_empty()
    }
}

impl Set {
    /// Returns the empty set.
    pub const fn new() -> Self {
        Self {
            nodes: BTreeMap::new(),
        }
    }

    /// Tells whether no path is in the set.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Counts the paths in the set.
    pub fn len(&self) -> usize {
        self.nodes
            .values()
            .map(|node| usize::from(node.member) + node.below.len())
            .sum()
    }

    /// Adds a path, and nothing else: not the paths that lead to it.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        // Looking first saves copying an element that is there.
        if !self.nodes.contains_key(first) {
            self.nodes.insert(first.clone(), Node::default());
        }
        if let Some(node) = self.nodes.get_mut(first) {
            if rest.is_empty() {
                node.member = true;
            } else {
                node.below.insert(rest);
            }
        }
    }

    /// Tells whether a path is in the set.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        let Some((last, above)) = path.split_last() else {
            return false;
        };
        let mut set = self;
        for element in above {
            let Some(node) = set.nodes.get(element) else {
                return false;
            };
            set = &node.below;
        }
        set.contains_element(last)
    }

    /// Tells whether the path of this one element is in the set.
    pub fn contains_element(&self, element: &PathElement) -> bool {
        self.nodes.get(element).is_some_and(|node| node.member)
    }

    /// Returns what the set has below an element; `None` when that is nothing.
    pub fn below(&self, element: &PathElement) -> Option<&Self> {
        self.nodes
            .get(element)
            .map(|node| &node.below)
            .filter(|set| !set.is_empty())
    }

    /// Adds a subtree. What would be there for nothing is not added.
    pub(super) fn put(&mut self, element: PathElement, node: Node) {
        if node.is_needed() {
            self.nodes.insert(element, node);
        }
    }

    /// Returns the paths that are in either set.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        for (element, node) in &other.nodes {
            match self.nodes.get_mut(element) {
                Some(ours) => {
                    ours.member |= node.member;
                    ours.below = std::mem::take(&mut ours.below).union(&node.below);
                }
                None => {
                    self.nodes.insert(element.clone(), node.clone());
                }
            }
        }
        self
    }

    /// Returns the paths that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::new();
        for (element, node) in &self.nodes {
            if let Some(theirs) = other.nodes.get(element) {
                let both = Node {
                    member: node.member && theirs.member,
                    below: node.below.intersection(&theirs.below),
                };
                out.put(element.clone(), both);
            }
        }
        out
    }

    /// Returns the paths that are in this set and not in the other, each path on
    /// its own: without `.a`, `.a.b` stays.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut out = Self::new();
        for (element, node) in &self.nodes {
            let left = match other.nodes.get(element) {
                None => node.clone(),
                Some(theirs) => Node {
                    member: node.member && !theirs.member,
                    below: node.below.difference(&theirs.below),
                },
            };
            out.put(element.clone(), left);
        }
        out
    }

    /// Returns the paths of this set that are neither in the other nor below one
    /// of its paths: without `.a`, `.a.b` goes too.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let mut out = Self::new();
        for (element, node) in &self.nodes {
            match other.nodes.get(element) {
                None => out.put(element.clone(), node.clone()),
                Some(theirs) if theirs.member => {}
                Some(theirs) => {
                    let left = Node {
                        member: node.member,
                        below: node.below.recursive_difference(&theirs.below),
                    };
                    out.put(element.clone(), left);
                }
            }
        }
        out
    }

    /// Returns the paths below which the set has no other.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let mut out = Self::new();
        for (element, node) in &self.nodes {
            let leaf = Node {
                member: node.member && node.below.is_empty(),
                below: node.below.leaves(),
            };
            out.put(element.clone(), leaf);
        }
        out
    }

    /// Adds the declared fields that lead to a path of the set. A struct's field
    /// that is itself a struct or a list is in no set that a value gives, since
    /// nobody owns it; where fields are removed it has to count as had by
    /// whoever has something inside. The keys of maps are members anyway.
    #[must_use]
    pub fn with_named_fields(&self, schema: &Schema, ty: Option<TypeId>) -> Self {
        let atom = ty.map(|ty| schema.atom(ty));
        let map = atom.and_then(|atom| atom.map.as_ref());
        let list = atom.and_then(|atom| atom.list.as_ref());
        let mut out = Self::new();
        for (element, node) in &self.nodes {
            let (declared, inner) = match element {
                PathElement::Field(name) => (
                    map.is_some_and(|map| map.fields.contains_key(name.as_str())),
                    map.and_then(|map| map.field(name)),
                ),
                PathElement::Key(_) => (false, list.map(|list| list.element)),
                PathElement::Value(_) | PathElement::Index(_) => (false, None),
            };
            let node = Node {
                member: node.member || declared && !node.below.is_empty(),
                below: node.below.with_named_fields(schema, inner),
            };
            out.put(element.clone(), node);
        }
        out
    }

    /// Walks the paths: those that end at a level before those that go on from
    /// it, each in the order of the elements.
    pub fn paths(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.collect(&mut Vec::new(), &mut found);
        found
    }

    fn collect(&self, above: &mut Path, found: &mut Vec<Path>) {
        for (element, _) in self.nodes.iter().filter(|(_, node)| node.member) {
            above.push(element.clone());
            found.push(above.clone());
            above.pop();
        }
        for (element, node) in &self.nodes {
            above.push(element.clone());
            node.below.collect(above, found);
            above.pop();
        }
    }
}

impl<'p> FromIterator<&'p Path> for Set {
    fn from_iter<I: IntoIterator<Item = &'p Path>>(paths: I) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(path);
        }
        set
    }
}

impl fmt::Display for Set {
    /// Formats one path a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, path) in self.paths().iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&element::display(path))?;
        }
        Ok(())
    }
}

/// Makes the set of some dotted paths of fields: `["metadata.name", "status"]`.
pub fn of_fields(paths: &[&str]) -> Set {
    let mut set = Set::new();
    for path in paths {
        let path: Path = path.split('.').map(PathElement::field).collect();
        set.insert(&path);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_and_its_child_are_two_paths() {
        let both = of_fields(&["a", "a.b", "a.c", "d.e"]);
        assert_eq!(both.len(), 4);
        assert!(both.contains(&[PathElement::field("a")]));
        assert!(!both.contains(&[PathElement::field("d")]));
        assert!(!both.contains(&[]));
        assert_eq!(
            both.difference(&of_fields(&["a"])),
            of_fields(&["a.b", "a.c", "d.e"])
        );
        assert_eq!(
            both.difference(&of_fields(&["a.b", "d.e"])),
            of_fields(&["a", "a.c"])
        );
        assert_eq!(
            both.recursive_difference(&of_fields(&["a"])),
            of_fields(&["d.e"])
        );
        assert_eq!(
            both.recursive_difference(&of_fields(&["a.b", "d.e.f"])),
            of_fields(&["a", "a.c", "d.e"])
        );
        assert_eq!(both.leaves(), of_fields(&["a.b", "a.c", "d.e"]));
        assert_eq!(
            both.intersection(&of_fields(&["a", "d"])),
            of_fields(&["a"])
        );
    }

    #[test]
    fn nothing_stays_for_nothing() {
        let set = of_fields(&["a.b.c"]);
        assert!(set.difference(&set).is_empty());
        assert!(set.recursive_difference(&of_fields(&["a"])).is_empty());
        assert!(set.intersection(&of_fields(&["a.b"])).is_empty());
        let mut empty = Set::new();
        empty.insert(&[]);
        assert!(empty.is_empty());
    }

    #[test]
    fn paths_that_end_come_before_those_that_go_on() {
        let set = of_fields(&["a.x", "b", "c", "c.y"]);
        assert_eq!(set.to_string(), ".b\n.c\n.a.x\n.c.y");
    }
}
