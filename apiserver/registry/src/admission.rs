//! Admission steps that change or refuse an object before it is validated.
//!
//! A list, run in order; a step is one line in it. Steps are pure: those that
//! need state (does the namespace exist, is it being deleted) are the server's
//! own. Upstream's default order is kept.
//!
//! Deliberately absent today: the `kube-api-access` volume with a service
//! account token (there is no token projection yet), image pull secrets of the
//! service account, quotas, pod security, and the `not-ready`
//! taint of new nodes (nothing would take it off).

use meta::Status;
use meta::value::str_at;
use serde_json::{Map, Value, json};

use crate::kind::Kind;
use crate::podspec::defaults::mirror_service_account;
use crate::validate::items;

/// A step: its upstream name and what it does to an object that is created, or
/// changed.
#[derive(Clone, Copy)]
pub struct Step {
    /// The name of the upstream plugin it stands for.
    pub name: &'static str,
    /// Whether it also looks at changes of the object itself.
    pub on_update: bool,
    /// Changes or refuses the object.
    pub admit: fn(&Kind, &mut Value) -> Result<(), Status>,
}

/// The steps in order.
pub const STEPS: &[Step] = &[
    Step {
        name: "ServiceAccount",
        on_update: false,
        admit: service_account,
    },
    Step {
        name: "DefaultTolerationSeconds",
        on_update: true,
        admit: toleration_seconds,
    },
];

/// How long a pod stays on a node that is not ready or unreachable.
pub const TOLERATION_SECONDS: i64 = 300;

/// What a priority class gives to its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The class's name.
    pub name: String,
    /// The priority.
    pub value: i64,
    /// Whether a pod pushes others out.
    pub preemption_policy: String,
}

impl Priority {
    /// Reads a PriorityClass.
    pub fn of(class: &Value) -> Self {
        Self {
            name: meta::value::name(class).to_owned(),
            value: meta::value::int_at(class, "value").unwrap_or(0),
            preemption_policy: match str_at(class, "preemptionPolicy") {
                "" => PREEMPT_LOWER.to_owned(),
                policy => policy.to_owned(),
            },
        }
    }
}

const PREEMPT_LOWER: &str = "PreemptLowerPriority";

/// Runs all steps on an object that is being created.
pub fn admit_create(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    STEPS.iter().try_for_each(|step| (step.admit)(kind, object))
}

/// Runs the steps that look at changes on the new state of an object, which came
/// through the object itself.
pub fn admit_update(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    let mut steps = STEPS.iter().filter(|step| step.on_update);
    steps.try_for_each(|step| (step.admit)(kind, object))
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

/// Gives a pod that is created its priority (upstream: plugin Priority): that
/// of the class it names, else of the class for those that name none, else
/// zero. `class` is what was found.
pub fn prioritise(kind: &Kind, object: &mut Value, class: Option<Priority>) -> Result<(), Status> {
    let name = meta::value::name(object).to_owned();
    let Some(spec) = pod_spec(kind, object) else {
        return Ok(());
    };
    let refuse = |why: String| Err(Status::forbidden(&kind.group_resource(), &name, &why));
    let named = spec
        .get("priorityClassName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let class = match class {
        Some(class) => class,
        None if named.is_empty() => Priority {
            name: String::new(),
            value: 0,
            preemption_policy: PREEMPT_LOWER.to_owned(),
        },
        None => return refuse(format!("no PriorityClass with name {named} was found")),
    };
    let computed = class.value;
    if let Some(given) = spec.get("priority").and_then(Value::as_i64)
        && given != computed
    {
        return refuse(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
        ));
    }
    if let Some(given) = spec.get("preemptionPolicy").and_then(Value::as_str)
        && given != class.preemption_policy
    {
        return refuse(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            class.preemption_policy
        ));
    }
    if !class.name.is_empty() {
        spec.insert("priorityClassName".to_owned(), Value::from(class.name));
    }
    spec.insert("priority".to_owned(), Value::from(computed));
    spec.insert(
        "preemptionPolicy".to_owned(),
        Value::from(class.preemption_policy),
    );
    Ok(())
}

/// Gives a pod that is created what its RuntimeClass says (upstream: plugin
/// RuntimeClass): the overhead, and where it may run. `class` is what was found
/// under the name in the pod.
pub fn run_as_classed(
    kind: &Kind,
    object: &mut Value,
    class: Option<&Value>,
) -> Result<(), Status> {
    let pod = meta::value::name(object).to_owned();
    let Some(spec) = pod_spec(kind, object) else {
        return Ok(());
    };
    let refuse = |why: String| Err(Status::forbidden(&kind.group_resource(), &pod, &why));
    let named = spec
        .get("runtimeClassName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !named.is_empty() && class.is_none() {
        return refuse(format!("pod rejected: RuntimeClass {named:?} not found"));
    }
    let overhead = class.and_then(|c| meta::value::at(c, "overhead.podFixed"));
    let given = spec.get("overhead");
    let has_own = given
        .and_then(Value::as_object)
        .is_some_and(|o| !o.is_empty());
    match overhead {
        None if has_own => {
            return refuse(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                    .to_owned(),
            );
        }
        Some(overhead) if has_own && given != Some(overhead) => {
            return refuse(
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
                    .to_owned(),
            );
        }
        Some(overhead) => {
            spec.insert("overhead".to_owned(), overhead.clone());
        }
        None => {}
    }
    let scheduling = class.and_then(|c| c.get("scheduling"));
    let selector = scheduling
        .and_then(|s| s.get("nodeSelector"))
        .and_then(Value::as_object);
    for (key, value) in selector.into_iter().flatten() {
        let Some(own) = spec
            .entry("nodeSelector")
            .or_insert_with(|| json!({}))
            .as_object_mut()
        else {
            break;
        };
        match own.get(key) {
            Some(is) if is != value => {
                let (is, wanted) = (is.as_str().unwrap_or_default(), value.as_str());
                return refuse(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {is}",
                    wanted.unwrap_or_default()
                ));
            }
            _ => own.insert(key.clone(), value.clone()),
        };
    }
    for toleration in scheduling.map_or(&[][..], |s| items(s, "tolerations")) {
        let own = spec
            .entry("tolerations")
            .or_insert_with(|| json!([]))
            .as_array_mut();
        if let Some(own) = own.filter(|own| !own.contains(toleration)) {
            own.push(toleration.clone());
        }
    }
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
        let admit = |pod: &mut Value| {
            prioritise(pods(), pod, None).unwrap();
            admit_create(pods(), pod).unwrap();
        };
        admit(&mut pod);
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
        admit(&mut pod);
        assert_eq!(pod, once);
    }

    fn class(name: &str, value: i64, policy: &str) -> Priority {
        Priority::of(&json!({
            "metadata": {"name": name}, "value": value, "preemptionPolicy": policy,
        }))
    }

    #[test]
    fn respects_what_is_set() {
        let mut pod = json!({"spec": {"serviceAccountName": "x", "priorityClassName": "gold",
            "tolerations": [{"operator": "Exists"}]}});
        prioritise(pods(), &mut pod, Some(class("gold", 7, "Never"))).unwrap();
        admit_create(pods(), &mut pod).unwrap();
        assert_eq!(pod["spec"]["serviceAccount"], "x");
        assert_eq!(pod["spec"]["priority"], 7);
        assert_eq!(pod["spec"]["preemptionPolicy"], "Never");
        assert_eq!(items(&pod, "spec.tolerations").len(), 1);
    }

    #[test]
    fn gives_the_class_for_those_that_name_none() {
        let mut pod = json!({"spec": {}});
        prioritise(pods(), &mut pod, Some(class("usual", 5, ""))).unwrap();
        assert_eq!(
            pod["spec"],
            json!({"priorityClassName": "usual", "priority": 5, "preemptionPolicy": "PreemptLowerPriority"})
        );
    }

    #[test]
    fn refuses_priorities_of_unknown_origin() {
        for (spec, found, message) in [
            (
                json!({"priorityClassName": "gold"}),
                None,
                "pods \"a\" is forbidden: no PriorityClass with name gold was found",
            ),
            (
                json!({"priority": 5}),
                None,
                "pods \"a\" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name",
            ),
            (
                json!({"priorityClassName": "gold", "preemptionPolicy": "Never"}),
                Some(class("gold", 1, "")),
                "pods \"a\" is forbidden: the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name",
            ),
        ] {
            let mut pod = json!({"metadata": {"name": "a"}, "spec": spec});
            let status = prioritise(pods(), &mut pod, found).unwrap_err();
            assert_eq!((status.code, status.message.as_str()), (403, message));
        }
    }

    #[test]
    fn a_change_that_replaces_the_tolerations_keeps_the_default_ones() {
        let mut pod = json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}});
        admit_update(pods(), &mut pod).unwrap();
        assert_eq!(items(&pod, "spec.tolerations").len(), 3);
        assert_eq!(pod["spec"].get("priority"), None, "is set at the creation");
    }

    #[test]
    fn a_runtime_class_adds_overhead_and_place() {
        let class = json!({"overhead": {"podFixed": {"cpu": "1"}},
            "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}});
        let mut pod = json!({"spec": {"runtimeClassName": "vm", "nodeSelector": {"a": "b"}}});
        run_as_classed(pods(), &mut pod, Some(&class)).unwrap();
        let once = pod.clone();
        assert_eq!(
            pod["spec"],
            json!({"runtimeClassName": "vm", "overhead": {"cpu": "1"}, "nodeSelector": {"a": "b", "vm": "yes"},
                "tolerations": [{"key": "vm", "operator": "Exists"}]})
        );
        run_as_classed(pods(), &mut pod, Some(&class)).unwrap();
        assert_eq!(pod, once);
        for (spec, class, why) in [
            (
                json!({"runtimeClassName": "x"}),
                None,
                "pod rejected: RuntimeClass \"x\" not found",
            ),
            (
                json!({"overhead": {"cpu": "1"}}),
                None,
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ),
            (
                json!({"runtimeClassName": "vm", "overhead": {"cpu": "2"}}),
                Some(&class),
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ),
            (
                json!({"runtimeClassName": "vm", "nodeSelector": {"vm": "no"}}),
                Some(&class),
                "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no",
            ),
        ] {
            let mut pod = json!({"metadata": {"name": "a"}, "spec": spec});
            let status = run_as_classed(pods(), &mut pod, class).unwrap_err();
            assert_eq!(status.message, format!("pods \"a\" is forbidden: {why}"));
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
