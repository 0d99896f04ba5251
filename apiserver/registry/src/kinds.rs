//! The kinds that are served: one file each, one line each in `ALL`.

mod configmap;
mod deployment;
mod event;
mod lease;
mod namespace;
mod node;
mod pod;
mod replicaset;
mod secret;
mod service;
mod serviceaccount;
mod workload;

use crate::kind::Kind;

static ALL: &[&Kind] = &[
    &configmap::KIND,
    &event::CORE,
    &namespace::KIND,
    &node::KIND,
    &pod::KIND,
    &secret::KIND,
    &service::KIND,
    &serviceaccount::KIND,
    &deployment::KIND,
    &replicaset::KIND,
    &lease::KIND,
    &event::EVENTS,
];

/// Returns all kinds, in the order in which discovery lists them.
pub fn all() -> &'static [&'static Kind] {
    ALL
}

/// Returns the kind that serves a resource.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    ALL.iter()
        .copied()
        .find(|k| k.group == group && k.version == version && k.plural == plural)
}

/// Returns the kind of a body's `apiVersion` and `kind`.
pub fn find_kind(api_version: &str, kind: &str) -> Option<&'static Kind> {
    ALL.iter()
        .copied()
        .find(|k| k.kind == kind && k.api_version() == api_version)
}

/// Returns the group versions, in discovery's order, each once.
pub fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    for kind in ALL {
        if !found.contains(&(kind.group, kind.version)) {
            found.push((kind.group, kind.version));
        }
    }
    found
}

#[cfg(test)]
mod tests;
