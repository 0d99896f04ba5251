//! Admission steps that change or refuse an object before it is validated.
//!
//! A list, run in order; a step is one line in it. Steps are pure: those that
//! need state (does the namespace exist, is it being deleted) are the server's
//! own. Upstream's default order is kept.
//!
//! Deliberately absent today: the `kube-api-access` volume with a service
//! account token (there is no token projection yet), image pull secrets of the
//! service account, limit ranges, quotas, pod security, and the `not-ready`
//! taint of new nodes (nothing would take it off).

use meta::Status;
use meta::value::str_at;
use serde_json::{Map, Value, json};

use crate::kind::Kind;
use crate::podspec::defaults::mirror_service_account;
use crate::validate::items;

/// A step: its upstream name and what it does to an object that is created.
#[derive(Clone, Copy)]
pub struct Step {
    /// The name of the upstream plugin it stands for.
    pub name: &'static str,
    /// Changes or refuses the object.
    pub admit: fn(&Kind, &mut Value) -> Result<(), Status>,
}

/// The steps in order.
pub const STEPS: &[Step] = &[
    Step {
        name: "ServiceAccount",
        admit: service_account,
    },
    Step {
        name: "Priority",
        admit: priority,
    },
    Step {
        name: "DefaultTolerationSeconds",
        admit: toleration_seconds,
    },
];

/// How long a pod stays on a node that is not ready or unreachable.
pub const TOLERATION_SECONDS: i64 = 300;

/// The priorities of the classes that are always there.
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

/// Runs all steps on an object that is being created.
pub fn admit_create(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    STEPS.iter().try_for_each(|step| (step.admit)(kind, object))
}

fn pod_spec<'a>(kind: &Kind, object: &'a mut Value) -> Option<&'a mut Map<String, Value>> {
    if kind.group.is_empty() && kind.plural == "pods" {
        object.get_mut("spec").and_then(Value::as_object_mut)
    } else {
        None
    }
}

fn service_account(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    if let Some(spec) = pod_spec(kind, object) {
        let name = spec
            .get("serviceAccountName")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if name.is_empty() {
            spec.insert("serviceAccountName".to_owned(), Value::from("default"));
        }
        mirror_service_account(spec);
    }
    Ok(())
}

fn priority(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    let name = meta::value::name(object).to_owned();
    let Some(spec) = pod_spec(kind, object) else {
        return Ok(());
    };
    let class = spec
        .get("priorityClassName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let refuse = |why: String| Err(Status::forbidden(&kind.group_resource(), &name, &why));
    let computed = if class.is_empty() {
        0
    } else {
        match SYSTEM_CLASSES.iter().find(|(name, _)| *name == class) {
            Some((_, priority)) => *priority,
            None => return refuse(format!("no PriorityClass with name {class} was found")),
        }
    };
    if let Some(given) = spec.get("priority").and_then(Value::as_i64)
        && given != computed
    {
        return refuse(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
        ));
    }
    spec.insert("priority".to_owned(), Value::from(computed));
    spec.entry("preemptionPolicy")
        .or_insert_with(|| Value::from("PreemptLowerPriority"));
    Ok(())
}

fn toleration_seconds(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    if pod_spec(kind, object).is_none() {
        return Ok(());
    }
    let mut added = Vec::new();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerated = items(object, "spec.tolerations").iter().any(|t| {
            matches!(str_at(t, "effect"), "" | "NoExecute")
                && (str_at(t, "key") == key
                    || (str_at(t, "key").is_empty() && str_at(t, "operator") == "Exists"))
        });
        if !tolerated {
            added.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS,
            }));
        }
    }
    if let Some(spec) = pod_spec(kind, object)
        && !added.is_empty()
    {
        let list = spec
            .entry("tolerations")
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = list {
            list.extend(added);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> &'static Kind {
        crate::kinds::find("", "v1", "pods").unwrap()
    }

    #[test]
    fn completes_a_pod_once() {
        let mut pod = json!({"metadata": {"name": "a"}, "spec": {}});
        admit_create(pods(), &mut pod).unwrap();
        assert_eq!(pod["spec"]["serviceAccountName"], "default");
        assert_eq!(pod["spec"]["serviceAccount"], "default");
        assert_eq!(pod["spec"]["priority"], 0);
        assert_eq!(pod["spec"]["preemptionPolicy"], "PreemptLowerPriority");
        let tolerations = items(&pod, "spec.tolerations");
        assert_eq!(tolerations.len(), 2);
        assert!(
            tolerations
                .iter()
                .all(|t| t["tolerationSeconds"] == TOLERATION_SECONDS)
        );
        let once = pod.clone();
        admit_create(pods(), &mut pod).unwrap();
        assert_eq!(pod, once);
    }

    #[test]
    fn respects_what_is_set() {
        let mut pod = json!({"spec": {"serviceAccountName": "x", "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}]}});
        admit_create(pods(), &mut pod).unwrap();
        assert_eq!(pod["spec"]["serviceAccount"], "x");
        assert_eq!(pod["spec"]["priority"], 2_000_001_000_i64);
        assert_eq!(items(&pod, "spec.tolerations").len(), 1);
    }

    #[test]
    fn refuses_priorities_of_unknown_origin() {
        for (spec, message) in [
            (
                json!({"priorityClassName": "gold"}),
                "pods \"a\" is forbidden: no PriorityClass with name gold was found",
            ),
            (
                json!({"priority": 5}),
                "pods \"a\" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name",
            ),
        ] {
            let mut pod = json!({"metadata": {"name": "a"}, "spec": spec});
            let status = admit_create(pods(), &mut pod).unwrap_err();
            assert_eq!((status.code, status.message.as_str()), (403, message));
        }
    }

    #[test]
    fn leaves_other_kinds_alone() {
        let kind = crate::kinds::find("apps", "v1", "deployments").unwrap();
        let mut object = json!({"spec": {"template": {"spec": {}}}});
        let before = object.clone();
        admit_create(kind, &mut object).unwrap();
        assert_eq!(object, before);
    }
}
