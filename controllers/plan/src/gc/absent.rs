//! Owners known to be gone, so that a thousand dependents cost one read.

use std::collections::{BTreeMap, VecDeque};

/// Bounds the cache; beyond it the owner remembered longest is forgotten and
/// costs one more read (upstream's LRU has the same size).
pub const ABSENT_OWNERS_MAX: usize = 500;

/// Names an owner. The namespace is the dependent's for namespaced owners and
/// empty for cluster-scoped ones: the same uid and name in another namespace is
/// another, and an invalid, reference (kubernetes/kubernetes#65200).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbsentOwner {
    /// Is the `apiVersion` of the reference.
    pub api_version: String,
    /// Is the kind of the reference.
    pub kind: String,
    /// Is where the owner was looked for.
    pub namespace: String,
    /// Is the name of the reference.
    pub name: String,
    /// Is the uid of the reference.
    pub uid: String,
}

/// Remembers absent owners, the most recent ones.
#[derive(Debug, Default)]
pub struct AbsentOwners {
    known: BTreeMap<AbsentOwner, ()>,
    order: VecDeque<AbsentOwner>,
}

impl AbsentOwners {
    /// Remembers an owner. A uid never comes back, so there is no way to forget.
    pub fn insert(&mut self, owner: AbsentOwner) {
        if self.known.insert(owner.clone(), ()).is_some() {
            return;
        }
        self.order.push_back(owner);
        if self.order.len() > ABSENT_OWNERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Tells whether an owner is known to be absent.
    pub fn contains(&self, owner: &AbsentOwner) -> bool {
        self.known.contains_key(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: usize, namespace: &str) -> AbsentOwner {
        AbsentOwner {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: namespace.into(),
            name: "p".into(),
            uid: uid.to_string(),
        }
    }

    #[test]
    fn remembers_by_namespace_and_forgets_the_oldest() {
        let mut owners = AbsentOwners::default();
        for uid in 0..=ABSENT_OWNERS_MAX {
            owners.insert(owner(uid, "a"));
            owners.insert(owner(uid, "a"));
        }
        assert!(!owners.contains(&owner(0, "a")));
        assert!(owners.contains(&owner(1, "a")));
        assert!(!owners.contains(&owner(1, "b")));
    }
}
