//! Whom a container runs as, and what of its `securityContext` nothing enforces.
//!
//! A process of the machine can be given another user and group, nothing more.
//! What asks for less privilege is done or refused; the rest is named, so that
//! the agent can say that it is ignored.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, SeccompProfile, SecurityContext};
use serde::{Deserialize, Serialize};

use crate::pod;

/// A user and a group. Supplementary groups are dropped with the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAs {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Why a container cannot run as its spec asks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    /// Nothing names a user and the default is root.
    #[error(
        "container has runAsNonRoot and image will run as root (pod: {pod:?}, container: {container})"
    )]
    ImageRunsAsRoot {
        /// The pod, as messages name it.
        pod: String,
        /// The container.
        container: String,
    },
    /// The spec names root and forbids it.
    #[error("container's runAsUser breaks non-root policy (pod: {pod:?}, container: {container})")]
    UserIsRoot {
        /// The pod, as messages name it.
        pod: String,
        /// The container.
        container: String,
    },
    /// The kubelet is not root.
    #[error(
        "{field} {wanted} is not possible: the kubelet runs as {own} and may not change that \
         (run keelson as root, or leave {field} out)"
    )]
    MayNotChange {
        /// The field of the spec.
        field: &'static str,
        /// What it asks for.
        wanted: u32,
        /// What the kubelet has.
        own: u32,
    },
    /// A number no system has.
    #[error("{field} {value} is out of range")]
    OutOfRange {
        /// The field of the spec.
        field: &'static str,
        /// What it says.
        value: i64,
    },
}

/// Decides whom a container runs as, `None` if it is the kubelet's own user and
/// group `own`. The container's fields win over the pod's. A user without a
/// group gets `primary_group`'s (its entry in the user database), else the
/// group of the same number: never the kubelet's, which is root's.
pub fn run_as(
    pod: &Pod,
    container: &Container,
    own: RunAs,
    primary_group: impl FnOnce(u32) -> Option<u32>,
) -> Result<Option<RunAs>, SecurityError> {
    let ours = container.security_context.as_ref();
    let shared = pod::spec(pod).and_then(|s| s.security_context.as_ref());
    let user = ours.and_then(|c| c.run_as_user);
    let user = id("runAsUser", user.or(shared.and_then(|c| c.run_as_user)))?;
    let group = ours.and_then(|c| c.run_as_group);
    let group = id("runAsGroup", group.or(shared.and_then(|c| c.run_as_group)))?;
    let non_root = ours.and_then(|c| c.run_as_non_root);
    let non_root = non_root.or(shared.and_then(|c| c.run_as_non_root));

    let uid = user.unwrap_or(own.uid);
    if non_root == Some(true) && uid == 0 {
        let (pod, container) = (pod::full_name(pod), container.name.clone());
        return Err(match user {
            Some(_) => SecurityError::UserIsRoot { pod, container },
            None => SecurityError::ImageRunsAsRoot { pod, container },
        });
    }
    let gid = match group {
        Some(gid) => gid,
        None if uid == own.uid => own.gid,
        None => primary_group(uid).unwrap_or(uid),
    };
    let wanted = RunAs { uid, gid };
    if wanted == own {
        return Ok(None);
    }
    if own.uid != 0 {
        let (field, wanted, own) = if uid == own.uid {
            ("runAsGroup", gid, own.gid)
        } else {
            ("runAsUser", uid, own.uid)
        };
        return Err(SecurityError::MayNotChange { field, wanted, own });
    }
    Ok(Some(wanted))
}

/// The highest number means "no change" to the system.
fn id(field: &'static str, value: Option<i64>) -> Result<Option<u32>, SecurityError> {
    let Some(value) = value else {
        return Ok(None);
    };
    match u32::try_from(value) {
        Ok(id) if id != u32::MAX => Ok(Some(id)),
        _ => Err(SecurityError::OutOfRange { field, value }),
    }
}

/// Lists the fields of a pod's security contexts that a plain process cannot
/// be held to, by their names in the API, sorted.
pub fn unenforced(pod: &Pod) -> Vec<&'static str> {
    let mut found = BTreeSet::new();
    let mut note = |name, is_set: bool| {
        if is_set {
            found.insert(name);
        }
    };
    if let Some(context) = pod::spec(pod).and_then(|s| s.security_context.as_ref()) {
        note("appArmorProfile", context.app_armor_profile.is_some());
        note("fsGroup", context.fs_group.is_some());
        note("seLinuxOptions", context.se_linux_options.is_some());
        note("seccompProfile", confines(context.seccomp_profile.as_ref()));
        let groups = context.supplemental_groups.as_ref();
        note("supplementalGroups", groups.is_some_and(|g| !g.is_empty()));
        let sysctls = context.sysctls.as_ref();
        note("sysctls", sysctls.is_some_and(|s| !s.is_empty()));
    }
    let contexts = pod::all_containers(pod).filter_map(|c| c.security_context.as_ref());
    for context in contexts {
        of_container(context, &mut note);
    }
    found.into_iter().collect()
}

fn of_container(context: &SecurityContext, note: &mut impl FnMut(&'static str, bool)) {
    let escalation = context.allow_privilege_escalation;
    note("allowPrivilegeEscalation", escalation == Some(false));
    note("appArmorProfile", context.app_armor_profile.is_some());
    let capabilities = context.capabilities.as_ref().is_some_and(|c| {
        let lists = [c.add.as_ref(), c.drop.as_ref()];
        lists.into_iter().flatten().any(|list| !list.is_empty())
    });
    note("capabilities", capabilities);
    note("privileged", context.privileged == Some(true));
    note("procMount", context.proc_mount.is_some());
    let read_only = context.read_only_root_filesystem;
    note("readOnlyRootFilesystem", read_only == Some(true));
    note("seLinuxOptions", context.se_linux_options.is_some());
    note("seccompProfile", confines(context.seccomp_profile.as_ref()));
}

fn confines(profile: Option<&SeccompProfile>) -> bool {
    profile.is_some_and(|p| p.type_ != "Unconfined")
}

#[cfg(test)]
mod test {
    use serde_json::{Value, json};

    use super::*;

    const ROOT: RunAs = RunAs { uid: 0, gid: 0 };
    const USER: RunAs = RunAs { uid: 500, gid: 50 };

    fn pod(shared: Value, own: Value) -> Pod {
        let container = json!({"name": "app", "image": "host", "securityContext": own});
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
            "spec": {"securityContext": shared, "containers": [container]},
        }))
        .unwrap()
    }

    fn decide(own: RunAs, shared: Value, context: Value) -> Result<Option<RunAs>, String> {
        let pod = pod(shared, context);
        let passwd = |uid| (uid == 33).then_some(34);
        run_as(&pod, &pod::containers(&pod)[0], own, passwd).map_err(|e| e.to_string())
    }

    #[test]
    fn root_becomes_who_the_spec_names() {
        let cases = [
            (json!({}), json!({}), None),
            (json!({"runAsUser": 0}), json!({}), None),
            (json!({"runAsUser": 33}), json!({}), Some((33, 34))),
            (json!({"runAsUser": 44}), json!({}), Some((44, 44))),
            (
                json!({"runAsUser": 44, "runAsGroup": 5}),
                json!({"runAsUser": 33}),
                Some((33, 5)),
            ),
            (json!({}), json!({"runAsGroup": 7}), Some((0, 7))),
            (
                json!({"runAsNonRoot": true}),
                json!({"runAsUser": 33}),
                Some((33, 34)),
            ),
        ];
        for (shared, own, wanted) in cases {
            let wanted = wanted.map(|(uid, gid)| RunAs { uid, gid });
            assert_eq!(decide(ROOT, shared.clone(), own), Ok(wanted), "{shared}");
        }
    }

    #[test]
    fn root_is_refused_where_the_spec_forbids_it() {
        let forbidden = json!({"runAsNonRoot": true});
        assert_eq!(
            decide(ROOT, forbidden.clone(), json!({})).unwrap_err(),
            "container has runAsNonRoot and image will run as root \
             (pod: \"web_ns(u)\", container: app)"
        );
        assert_eq!(
            decide(ROOT, forbidden.clone(), json!({"runAsUser": 0})).unwrap_err(),
            "container's runAsUser breaks non-root policy (pod: \"web_ns(u)\", container: app)"
        );
        assert_eq!(
            decide(ROOT, forbidden.clone(), json!({"runAsNonRoot": false})),
            Ok(None)
        );
        assert_eq!(decide(USER, forbidden, json!({})), Ok(None));
    }

    #[test]
    fn who_is_not_root_cannot_become_another() {
        for (field, wanted, own) in [("runAsUser", 0, 500), ("runAsGroup", 7, 50)] {
            let message = decide(USER, json!({}), json!({field: wanted})).unwrap_err();
            let begin = format!("{field} {wanted} is not possible: the kubelet runs as {own} ");
            assert!(message.starts_with(&begin), "{message}");
        }
        let same = json!({"runAsUser": 500, "runAsGroup": 50});
        assert_eq!(decide(USER, same, json!({})), Ok(None));
        for value in [-1, i64::from(u32::MAX), 1 << 40] {
            assert!(decide(ROOT, json!({"runAsUser": value}), json!({})).is_err());
        }
    }

    #[test]
    fn what_is_ignored_is_named_once() {
        let restricted = json!({"allowPrivilegeEscalation": false, "privileged": false,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}});
        let shared = json!({"fsGroup": 5, "seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(
            unenforced(&pod(shared, restricted)),
            [
                "allowPrivilegeEscalation",
                "capabilities",
                "fsGroup",
                "seccompProfile"
            ]
        );
        let harmless = json!({"allowPrivilegeEscalation": true, "runAsUser": 5,
            "capabilities": {}, "seccompProfile": {"type": "Unconfined"}});
        assert!(unenforced(&pod(json!({"supplementalGroups": []}), harmless)).is_empty());
    }
}
