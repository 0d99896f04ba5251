//! The kinds that are served: one file each, one line each in `ALL`.

mod addresses;
mod admissionpolicy;
mod admissionrules;
mod apiservice;
mod certificatesigningrequest;
mod componentstatus;
mod configmap;
mod controllerrevision;
mod counts;
mod cronjob;
mod csi;
mod customresourcedefinition;
mod daemonset;
mod deployment;
mod endpoints;
mod endpointslice;
mod event;
mod flowschema;
mod horizontalpodautoscaler;
mod ingress;
mod ipaddress;
mod job;
mod lease;
mod limitrange;
mod namespace;
mod networkpolicy;
mod node;
mod persistentvolume;
mod persistentvolumeclaim;
mod pod;
mod poddisruptionbudget;
mod podtemplate;
pub mod priorityclass;
mod prioritylevel;
mod replicaset;
mod replicationcontroller;
mod resourceclaim;
mod resourcequota;
mod resources;
mod resourceslice;
mod role;
mod rolebinding;
mod runtimeclass;
mod secret;
mod service;
mod serviceaccount;
mod statefulset;
mod storageclass;
mod volumeattachment;
mod volumes;
mod webhookconfiguration;
mod workload;

use crate::kind::{Kind, KindRef};

static ALL: &[&Kind] = &[
    &componentstatus::KIND,
    &configmap::KIND,
    &endpoints::KIND,
    &event::CORE,
    &limitrange::KIND,
    &namespace::KIND,
    &node::KIND,
    &persistentvolumeclaim::KIND,
    &persistentvolume::KIND,
    &pod::KIND,
    &podtemplate::KIND,
    &replicationcontroller::KIND,
    &resourcequota::KIND,
    &secret::KIND,
    &serviceaccount::KIND,
    &service::KIND,
    // apps
    &controllerrevision::KIND,
    &daemonset::KIND,
    &deployment::KIND,
    &replicaset::KIND,
    &customresourcedefinition::KIND,
    &statefulset::KIND,
    // autoscaling
    &horizontalpodautoscaler::V2,
    &horizontalpodautoscaler::V1,
    // batch
    &cronjob::KIND,
    &job::KIND,
    // policy
    &poddisruptionbudget::KIND,
    // discovery.k8s.io
    &endpointslice::KIND,
    // coordination.k8s.io
    &lease::KIND,
    // events.k8s.io
    &event::EVENTS,
    // admissionregistration.k8s.io
    &webhookconfiguration::MUTATING,
    &webhookconfiguration::VALIDATING,
    &admissionpolicy::MUTATING,
    &admissionpolicy::MUTATING_BINDING,
    &admissionpolicy::VALIDATING,
    &admissionpolicy::VALIDATING_BINDING,
    // apiregistration.k8s.io
    &apiservice::KIND,
    // certificates.k8s.io
    &certificatesigningrequest::KIND,
    // flowcontrol.apiserver.k8s.io
    &flowschema::KIND,
    &prioritylevel::KIND,
    // networking.k8s.io
    &ingress::KIND,
    &ingress::CLASS,
    &ipaddress::ADDRESS,
    &ipaddress::CIDR,
    &networkpolicy::KIND,
    // node.k8s.io
    &runtimeclass::KIND,
    // rbac.authorization.k8s.io
    &role::CLUSTER_ROLE,
    &rolebinding::CLUSTER_ROLE_BINDING,
    &role::ROLE,
    &rolebinding::ROLE_BINDING,
    // resource.k8s.io
    &resourceclaim::CLASS,
    &resourceclaim::CLAIM,
    &resourceclaim::TEMPLATE,
    &resourceslice::KIND,
    // scheduling.k8s.io
    &priorityclass::KIND,
    // storage.k8s.io
    &csi::DRIVER,
    &csi::NODE,
    &csi::CAPACITY,
    &storageclass::KIND,
    &storageclass::ATTRIBUTES,
    &volumeattachment::KIND,
];

/// The named groups in the order in which discovery lists them, which is that of
/// upstream's priorities; kubectl asks the first that has a name.
const GROUPS: &[&str] = &[
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "resource.k8s.io",
];

/// Returns the place of a group among the others: the core group first, then
/// the built-in ones, then the rest.
pub fn group_rank(group: &str) -> usize {
    match group {
        "" => 0,
        named => {
            1 + GROUPS
                .iter()
                .position(|g| *g == named)
                .unwrap_or(GROUPS.len())
        }
    }
}

/// Returns all kinds, in the order in which discovery lists them.
pub fn all() -> &'static [&'static Kind] {
    ALL
}

/// Returns all kinds, held.
pub fn held() -> Vec<KindRef> {
    ALL.iter().map(|kind| KindRef::from(*kind)).collect()
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
