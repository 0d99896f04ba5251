//! Who owns whom: a graph by uid, built from the metadata of every object.
//!
//! An owner that was named but not yet seen is a *virtual* node: its own event
//! may simply come later, from another watch. A virtual node is looked at, and a
//! live read that finds nothing removes it, which frees its dependents.
//!
//! Invariants: `a` lists `b` as dependent exactly if `b` is in the graph and names
//! `a` as owner; every owner named by a node is in the graph, at least virtually.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::{Identity, is_deleting_dependents, is_orphaning_dependents};

/// Is one thing to look at because of an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attempt {
    /// See whether this object must go.
    Delete(String),
    /// Take this object's reference out of its dependents.
    Orphan(String),
}

#[derive(Clone, Debug)]
struct Node {
    identity: Identity,
    owners: Vec<OwnerReference>,
    dependents: BTreeSet<String>,
    /// Tells that only references to the object were seen so far.
    is_virtual: bool,
    being_deleted: bool,
    deleting_dependents: bool,
    orphaning_dependents: bool,
}

/// Is what the graph knows of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Tells that only references to the object were seen so far.
    pub is_virtual: bool,
    /// Tells that the object has a deletion timestamp.
    pub being_deleted: bool,
    /// Tells that it waits for its dependents.
    pub deleting_dependents: bool,
}

/// Keeps the owners and dependents of every object seen.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: BTreeMap<String, Node>,
}

impl Graph {
    /// Takes in an object that was added or changed.
    pub fn upsert(&mut self, identity: Identity, metadata: &ObjectMeta) -> Vec<Attempt> {
        let uid = identity.uid.clone();
        let owners = metadata.owner_references.clone().unwrap_or_default();
        let mut attempts = Vec::new();
        let previous = self
            .nodes
            .get(&uid)
            .map(|node| node.owners.clone())
            .unwrap_or_default();
        self.unlink(&uid, &previous, &owners, &mut attempts);
        let node = self.nodes.entry(uid.clone()).or_insert_with(|| Node {
            identity: identity.clone(),
            owners: Vec::new(),
            dependents: BTreeSet::new(),
            is_virtual: false,
            being_deleted: false,
            deleting_dependents: false,
            orphaning_dependents: false,
        });
        // What a reference said of the object may have been wrong; the object's
        // own event is the truth.
        node.identity = identity;
        node.is_virtual = false;
        node.owners = owners.clone();
        node.being_deleted = metadata.deletion_timestamp.is_some();
        let starts_orphaning = !node.orphaning_dependents && is_orphaning_dependents(metadata);
        node.orphaning_dependents = is_orphaning_dependents(metadata);
        let starts_deleting = !node.deleting_dependents && is_deleting_dependents(metadata);
        node.deleting_dependents = is_deleting_dependents(metadata);
        let dependents: Vec<String> = node.dependents.iter().cloned().collect();
        if starts_orphaning {
            attempts.push(Attempt::Orphan(uid.clone()));
        }
        if starts_deleting {
            attempts.extend(dependents.into_iter().map(Attempt::Delete));
            attempts.push(Attempt::Delete(uid.clone()));
        }
        self.link(&uid, &owners, &mut attempts);
        attempts
    }

    /// Takes the object out of owners it no longer names, or no longer blocks.
    fn unlink(
        &mut self,
        uid: &str,
        previous: &[OwnerReference],
        next: &[OwnerReference],
        attempts: &mut Vec<Attempt>,
    ) {
        for old in previous {
            let kept = next.iter().find(|new| new.uid == old.uid);
            if kept.is_none()
                && let Some(owner) = self.nodes.get_mut(&old.uid)
            {
                owner.dependents.remove(uid);
            }
            let blocked = old.block_owner_deletion == Some(true);
            let blocks = kept.is_some_and(|new| new.block_owner_deletion == Some(true));
            if blocked && !blocks {
                attempts.push(Attempt::Delete(old.uid.clone()));
            }
            if kept.is_none() {
                self.drop_if_unused(&old.uid);
            }
        }
    }

    /// Puts the object under its owners, creating virtual ones for those not seen.
    fn link(&mut self, uid: &str, owners: &[OwnerReference], attempts: &mut Vec<Attempt>) {
        let Some(namespace) = self
            .nodes
            .get(uid)
            .map(|node| node.identity.namespace.clone())
        else {
            return;
        };
        for owner in owners {
            if let Some(node) = self.nodes.get_mut(&owner.uid) {
                node.dependents.insert(uid.to_owned());
                // A reference that disagrees with the object it names is wrong or
                // points across namespaces; a live read decides about it.
                if !node.is_virtual && !agrees(&node.identity, owner, &namespace) {
                    attempts.push(Attempt::Delete(uid.to_owned()));
                }
                if node.deleting_dependents {
                    attempts.push(Attempt::Delete(uid.to_owned()));
                }
                // An owner that is only known from references may be known to be
                // gone: whoever joins it late must not wait for another event.
                if node.is_virtual {
                    attempts.push(Attempt::Delete(owner.uid.clone()));
                }
                continue;
            }
            let identity = Identity {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
                namespace: namespace.clone(),
                name: owner.name.clone(),
                uid: owner.uid.clone(),
            };
            let node = Node {
                identity,
                owners: Vec::new(),
                dependents: BTreeSet::from([uid.to_owned()]),
                is_virtual: true,
                being_deleted: false,
                deleting_dependents: false,
                orphaning_dependents: false,
            };
            self.nodes.insert(owner.uid.clone(), node);
            attempts.push(Attempt::Delete(owner.uid.clone()));
        }
    }

    /// Takes in that an object is gone, seen by its watch or by a live read.
    pub fn remove(&mut self, uid: &str) -> Vec<Attempt> {
        let Some(node) = self.nodes.remove(uid) else {
            return Vec::new();
        };
        let mut attempts: Vec<Attempt> = Vec::new();
        for owner in &node.owners {
            if let Some(parent) = self.nodes.get_mut(&owner.uid) {
                parent.dependents.remove(uid);
                if parent.deleting_dependents {
                    attempts.push(Attempt::Delete(owner.uid.clone()));
                }
            }
            self.drop_if_unused(&owner.uid);
        }
        for dependent in &node.dependents {
            attempts.push(Attempt::Delete(dependent.clone()));
        }
        // Dependents still name the object; it stays as a virtual node so that
        // the graph's invariant holds until they are gone or let go.
        if !node.dependents.is_empty() {
            let rest = Node {
                owners: Vec::new(),
                is_virtual: true,
                being_deleted: false,
                deleting_dependents: false,
                orphaning_dependents: false,
                ..node
            };
            self.nodes.insert(uid.to_owned(), rest);
        }
        attempts
    }

    /// A virtual node exists for its dependents' sake only.
    fn drop_if_unused(&mut self, uid: &str) {
        if self
            .nodes
            .get(uid)
            .is_some_and(|node| node.is_virtual && node.dependents.is_empty())
        {
            self.nodes.remove(uid);
        }
    }

    /// Returns how the object is identified, if it is known.
    pub fn identity(&self, uid: &str) -> Option<&Identity> {
        self.nodes.get(uid).map(|node| &node.identity)
    }

    /// Returns what is known of the object.
    pub fn facts(&self, uid: &str) -> Option<Facts> {
        self.nodes.get(uid).map(|node| Facts {
            is_virtual: node.is_virtual,
            being_deleted: node.being_deleted,
            deleting_dependents: node.deleting_dependents,
        })
    }

    /// Returns the uids of the objects that name this one as owner.
    pub fn dependents(&self, uid: &str) -> Vec<String> {
        self.nodes
            .get(uid)
            .map(|node| node.dependents.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Says what [`super::decide::decide`] asks about dependents.
    pub fn dependents_summary(&self, uid: &str) -> super::decide::Dependents {
        let Some(node) = self.nodes.get(uid) else {
            return super::decide::Dependents::default();
        };
        super::decide::Dependents {
            any: !node.dependents.is_empty(),
            any_deleting_dependents: node.dependents.iter().any(|dependent| {
                self.nodes
                    .get(dependent)
                    .is_some_and(|node| node.deleting_dependents)
            }),
        }
    }

    /// Returns the dependents that hold back the object's foreground deletion.
    pub fn blocking_dependents(&self, uid: &str) -> Vec<String> {
        let blocks = |dependent: &String| {
            self.nodes.get(dependent).is_some_and(|node| {
                node.owners
                    .iter()
                    .any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
            })
        };
        self.dependents(uid).into_iter().filter(blocks).collect()
    }

    /// Returns how many objects are known, virtual ones included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Tells whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// Tells whether a reference describes the object it names. The version may
/// differ: one object is served under several.
fn agrees(identity: &Identity, reference: &OwnerReference, namespace: &str) -> bool {
    let group = |api_version: &str| {
        api_version
            .rsplit_once('/')
            .map(|(group, _)| group.to_owned())
    };
    identity.kind == reference.kind
        && identity.name == reference.name
        && group(&identity.api_version) == group(&reference.api_version)
        && (identity.namespace.is_empty() || identity.namespace == namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gc::{FOREGROUND, ORPHAN};

    fn identity(uid: &str) -> Identity {
        Identity {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "d".into(),
            name: uid.into(),
            uid: uid.into(),
        }
    }

    fn owned_by(owners: &[&str]) -> ObjectMeta {
        let reference = |uid: &&str| OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: (*uid).into(),
            uid: (*uid).into(),
            block_owner_deletion: Some(true),
            controller: None,
        };
        ObjectMeta {
            owner_references: Some(owners.iter().map(reference).collect()),
            ..ObjectMeta::default()
        }
    }

    fn deleting(finalizer: &str) -> ObjectMeta {
        ObjectMeta {
            deletion_timestamp: Some(jiff::Timestamp::UNIX_EPOCH.into()),
            finalizers: Some(vec![finalizer.into()]),
            ..ObjectMeta::default()
        }
    }

    fn delete(uids: &[&str]) -> Vec<Attempt> {
        uids.iter()
            .map(|uid| Attempt::Delete((*uid).into()))
            .collect()
    }

    #[test]
    fn owner_first_then_dependent_then_owner_gone() {
        let mut graph = Graph::default();
        assert_eq!(graph.upsert(identity("owner"), &ObjectMeta::default()), []);
        assert_eq!(graph.upsert(identity("child"), &owned_by(&["owner"])), []);
        assert_eq!(graph.remove("owner"), delete(&["child"]));
        assert!(graph.facts("owner").unwrap().is_virtual);
        assert_eq!(graph.remove("child"), []);
        assert!(graph.is_empty());
    }

    #[test]
    fn an_unseen_owner_is_virtual_until_seen() {
        let mut graph = Graph::default();
        assert_eq!(
            graph.upsert(identity("child"), &owned_by(&["owner"])),
            delete(&["owner"])
        );
        assert!(graph.facts("owner").unwrap().is_virtual);
        graph.upsert(identity("owner"), &ObjectMeta::default());
        assert!(!graph.facts("owner").unwrap().is_virtual);
        assert_eq!(graph.dependents("owner"), ["child"]);
    }

    #[test]
    fn a_live_read_that_finds_no_owner_frees_the_dependents() {
        let mut graph = Graph::default();
        graph.upsert(identity("child"), &owned_by(&["owner"]));
        assert_eq!(graph.remove("owner"), delete(&["child"]));
        // The child has lost its reference: nothing is left of the owner.
        graph.upsert(identity("child"), &ObjectMeta::default());
        assert_eq!(graph.len(), 1);
    }

    /// A controller whose cache is behind creates dependents of an owner that is
    /// gone already.
    #[test]
    fn a_dependent_that_comes_after_its_owner_went_is_looked_at() {
        let mut graph = Graph::default();
        graph.upsert(identity("owner"), &ObjectMeta::default());
        graph.upsert(identity("early"), &owned_by(&["owner"]));
        graph.remove("owner");
        assert_eq!(
            graph.upsert(identity("late"), &owned_by(&["owner"])),
            delete(&["owner"])
        );
        assert_eq!(graph.remove("owner"), delete(&["early", "late"]));
    }

    #[test]
    fn foreground_deletion_looks_at_dependents_and_then_at_the_owner() {
        let mut graph = Graph::default();
        graph.upsert(identity("owner"), &ObjectMeta::default());
        graph.upsert(identity("a"), &owned_by(&["owner"]));
        graph.upsert(identity("b"), &owned_by(&["owner"]));
        assert_eq!(
            graph.upsert(identity("owner"), &deleting(FOREGROUND)),
            delete(&["a", "b", "owner"])
        );
        // The same event again starts nothing.
        assert_eq!(graph.upsert(identity("owner"), &deleting(FOREGROUND)), []);
        assert_eq!(graph.blocking_dependents("owner"), ["a", "b"]);
        assert_eq!(graph.remove("a"), delete(&["owner"]));
        // A dependent that appears meanwhile is looked at, too.
        assert_eq!(
            graph.upsert(identity("c"), &owned_by(&["owner"])),
            delete(&["c"])
        );
        // One that stops blocking frees the owner.
        let mut loose = owned_by(&["owner"]);
        loose.owner_references.as_mut().unwrap()[0].block_owner_deletion = None;
        assert!(
            graph
                .upsert(identity("b"), &loose)
                .contains(&Attempt::Delete("owner".into()))
        );
        assert_eq!(graph.blocking_dependents("owner"), ["c"]);
    }

    #[test]
    fn orphaning_is_asked_for_once() {
        let mut graph = Graph::default();
        graph.upsert(identity("owner"), &ObjectMeta::default());
        graph.upsert(identity("a"), &owned_by(&["owner"]));
        assert_eq!(
            graph.upsert(identity("owner"), &deleting(ORPHAN)),
            [Attempt::Orphan("owner".into())]
        );
        assert_eq!(graph.upsert(identity("owner"), &deleting(ORPHAN)), []);
    }

    #[test]
    fn a_reference_across_namespaces_is_looked_at() {
        let mut graph = Graph::default();
        graph.upsert(identity("owner"), &ObjectMeta::default());
        let stranger = Identity {
            namespace: "other".into(),
            ..identity("child")
        };
        assert_eq!(
            graph.upsert(stranger, &owned_by(&["owner"])),
            delete(&["child"])
        );
    }
}
