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
/// upstream's priorities; kubectl asks the first that has a name. The group of
/// APIServices has no APIService, and so no priority.
const GROUPS: &[(&str, Option<i64>)] = &[
    ("apiregistration.k8s.io", None),
    ("apps", Some(17_800)),
    ("events.k8s.io", Some(17_750)),
    ("authentication.k8s.io", Some(17_700)),
    ("authorization.k8s.io", Some(17_600)),
    ("autoscaling", Some(17_500)),
    ("batch", Some(17_400)),
    ("certificates.k8s.io", Some(17_300)),
    ("networking.k8s.io", Some(17_200)),
    ("policy", Some(17_100)),
    ("rbac.authorization.k8s.io", Some(17_000)),
    ("storage.k8s.io", Some(16_800)),
    ("admissionregistration.k8s.io", Some(16_700)),
    ("apiextensions.k8s.io", Some(16_700)),
    ("scheduling.k8s.io", Some(16_600)),
    ("coordination.k8s.io", Some(16_500)),
    ("node.k8s.io", Some(16_300)),
    ("discovery.k8s.io", Some(16_200)),
    ("flowcontrol.apiserver.k8s.io", Some(16_100)),
    ("resource.k8s.io", Some(15_900)),
];
/// The priority of the core group.
const CORE_PRIORITY: i64 = 18_000;

/// Returns the place of a group among the others: the core group first, then
/// the built-in ones, then the rest.
pub fn group_rank(group: &str) -> usize {
    match group {
        "" => 0,
        named => {
            1 + GROUPS
                .iter()
                .position(|(group, _)| *group == named)
                .unwrap_or(GROUPS.len())
        }
    }
}

/// Returns the priority of a built-in group, by which APIServices are ordered.
pub fn group_priority(group: &str) -> Option<i64> {
    match group {
        "" => Some(CORE_PRIORITY),
        named => GROUPS.iter().find(|(group, _)| *group == named)?.1,
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
