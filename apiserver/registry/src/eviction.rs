//! Evictions: deletions that disruption budgets may forbid (upstream:
//! `pkg/registry/core/pod/storage/eviction.go`).

use jiff::Timestamp;
use meta::value::{at, int_at, object_mut, str_at};
use meta::{GroupResource, LabelSelector, Reason, Status};
use serde_json::{Value, json};

use crate::validate::items;

/// The most evictions of a budget that its controller has not seen yet.
const UNCONFIRMED_MAX: usize = 2000;
/// After how many seconds a budget that is behind is asked again.
const RETRY_SECONDS: u32 = 10;

/// What a pod's eviction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it is to be deleted in this very state.
    Unchanged,
    /// A disruption, which the budget has to allow.
    Disruption,
}

/// Tells whether a pod can go whatever its budget says: it has ended, is ending,
/// or has not begun.
pub fn is_free(pod: &Value) -> bool {
    let phase = str_at(pod, "status.phase");
    matches!(phase, "Succeeded" | "Failed" | "Pending") || is_ending(pod)
}

/// Tells whether a pod that can go anyhow has to be deleted in the state that
/// was seen, since in another it could not.
pub fn must_stay_same(pod: &Value) -> bool {
    let phase = str_at(pod, "status.phase");
    !matches!(phase, "Succeeded" | "Failed") && !is_ending(pod)
}

fn is_ending(pod: &Value) -> bool {
    at(pod, "metadata.deletionTimestamp").is_some()
}

/// Tells whether a budget is about a pod. One without a selector, or with an
/// empty one, is about none.
pub fn guards(budget: &Value, pod: &Value) -> bool {
    let Some(Ok(selector)) = at(budget, "spec.selector").map(LabelSelector::from_value) else {
        return false;
    };
    let labels = at(pod, "metadata.labels").and_then(Value::as_object);
    let labels = labels
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
        .collect();
    !selector.is_empty() && selector.matches(&labels)
}

/// Returns what a budget makes of a pod's eviction.
pub fn need(budget: &Value, pod: &Value) -> Need {
    let ready = items(pod, "status.conditions")
        .iter()
        .any(|c| str_at(c, "type") == "Ready" && str_at(c, "status") == "True");
    if ready {
        return Need::Disruption;
    }
    let count = |field: &str| int_at(budget, &format!("status.{field}")).unwrap_or(0);
    let (is, wanted) = (count("currentHealthy"), count("desiredHealthy"));
    let always = str_at(budget, "spec.unhealthyPodEvictionPolicy") == "AlwaysAllow";
    // A pod that is not ready takes nothing from an application that is whole.
    if always || (is >= wanted && wanted > 0) {
        Need::Unchanged
    } else {
        Need::Disruption
    }
}

/// The refusal of a budget that is to be asked again.
pub fn try_again(budget: &str) -> Status {
    let words = format!("The disruption budget {budget} is still being processed by the server.");
    refusal(words).with_retry_after(RETRY_SECONDS)
}

/// The refusal of a pod with several budgets.
pub fn several_budgets() -> Status {
    Status::internal(
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    )
}

fn refusal(words: String) -> Status {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::failure(Reason::TooManyRequests, message).with_cause("DisruptionBudget", words, "")
}

/// Takes a disruption from a budget for a pod; returns the budget to store, or
/// why it has none to give.
pub fn take(budget: &Value, pod: &str, now: Timestamp) -> Result<Value, Status> {
    let name = meta::value::name(budget);
    let count = |field: &str| int_at(budget, &format!("status.{field}")).unwrap_or(0);
    let generation = int_at(budget, "metadata.generation").unwrap_or(0);
    if count("observedGeneration") < generation {
        return Err(try_again(name));
    }
    let forbidden = |why: &str| {
        let resource = GroupResource::new("policy", "poddisruptionbudget");
        Err(Status::forbidden(&resource, name, why))
    };
    let allowed = count("disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if crate::print::count(budget, "status.disruptedPods") > UNCONFIRMED_MAX {
        return forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        );
    }
    if allowed == 0 {
        return Err(refusal(why_none(budget)));
    }
    let mut result = budget.clone();
    let status = object_mut(&mut result, "status");
    status.insert("disruptionsAllowed".to_owned(), Value::from(allowed - 1));
    let pods = status.entry("disruptedPods").or_insert_with(|| json!({}));
    crate::kind::put(pods, pod, Some(Value::from(meta::time::format(now))));
    if allowed == 1 {
        let condition = json!({"type": "DisruptionAllowed", "status": "False",
            "reason": "InsufficientPods", "message": "", "observedGeneration": generation});
        set_condition(&mut result, condition, now);
    }
    Ok(result)
}

fn why_none(budget: &Value) -> String {
    let name = meta::value::name(budget);
    let count = |field: &str| int_at(budget, &format!("status.{field}")).unwrap_or(0);
    let (is, wanted) = (count("currentHealthy"), count("desiredHealthy"));
    let failed = items(budget, "status.conditions")
        .iter()
        .find(|c| str_at(c, "type") == "DisruptionAllowed" && str_at(c, "reason") == "SyncFailed");
    match failed {
        _ if is <= wanted => {
            format!(
                "The disruption budget {name} needs {wanted} healthy pods and has {is} currently"
            )
        }
        Some(condition) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            str_at(condition, "message")
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// Returns the pod with the condition that says why it goes.
pub fn mark(pod: &Value, now: Timestamp) -> Value {
    let mut result = pod.clone();
    let condition = json!({"type": "DisruptionTarget", "status": "True",
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"});
    set_condition(&mut result, condition, now);
    result
}

/// Sets a condition; its time moves only when its status does.
fn set_condition(object: &mut Value, mut condition: Value, now: Timestamp) {
    let status = object_mut(object, "status");
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(list) = list else { return };
    let ty = str_at(&condition, "type").to_owned();
    let found = list.iter_mut().find(|c| str_at(c, "type") == ty);
    let moment = match &found {
        Some(old) if str_at(old, "status") == str_at(&condition, "status") => {
            str_at(old, "lastTransitionTime").to_owned()
        }
        _ => meta::time::format(now),
    };
    condition["lastTransitionTime"] = Value::from(moment);
    match found {
        Some(old) => *old = condition,
        None => list.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn budget(status: Value) -> Value {
        json!({"metadata": {"name": "b", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": status})
    }

    fn pod(ready: &str) -> Value {
        json!({"metadata": {"name": "p", "labels": {"app": "web"}}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn a_budget_gives_what_it_has() {
        let full = budget(json!({"observedGeneration": 1, "disruptionsAllowed": 1,
            "currentHealthy": 2, "desiredHealthy": 1}));
        let taken = take(&full, "p", now()).unwrap();
        assert_eq!(taken["status"]["disruptionsAllowed"], 0);
        assert_eq!(
            taken["status"]["disruptedPods"],
            json!({"p": "2026-01-01T00:00:00Z"})
        );
        assert_eq!(
            taken["status"]["conditions"][0]["reason"],
            "InsufficientPods"
        );
        let refused = take(&taken, "q", now()).unwrap_err();
        assert_eq!(refused.code, 429);
        assert!(refused.has_cause("DisruptionBudget"));
        let causes = serde_json::to_value(&refused).unwrap()["details"]["causes"].clone();
        assert_eq!(
            causes[0]["message"],
            "The disruption budget b does not allow evicting pods currently"
        );
        let short =
            budget(json!({"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1}));
        let refused = serde_json::to_value(take(&short, "p", now()).unwrap_err()).unwrap();
        assert_eq!(
            refused["details"]["causes"][0]["message"],
            "The disruption budget b needs 1 healthy pods and has 1 currently"
        );
        let behind = take(&budget(json!({"disruptionsAllowed": 5})), "p", now()).unwrap_err();
        let behind = serde_json::to_value(behind).unwrap();
        assert_eq!(behind["details"]["retryAfterSeconds"], 10);
    }

    #[test]
    fn pods_that_are_not_ready_may_go_if_enough_others_are() {
        let whole = budget(json!({"currentHealthy": 2, "desiredHealthy": 2}));
        assert_eq!(need(&whole, &pod("True")), Need::Disruption);
        assert_eq!(need(&whole, &pod("False")), Need::Unchanged);
        let broken = budget(json!({"currentHealthy": 1, "desiredHealthy": 2}));
        assert_eq!(need(&broken, &pod("False")), Need::Disruption);
        let mut always = broken;
        always["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        assert_eq!(need(&always, &pod("False")), Need::Unchanged);
    }

    #[test]
    fn budgets_guard_what_they_select() {
        assert!(guards(&budget(json!({})), &pod("True")));
        assert!(!guards(&json!({"spec": {"selector": {}}}), &pod("True")));
        assert!(!guards(&json!({"spec": {}}), &pod("True")));
        assert!(!is_free(&pod("True")));
        assert!(is_free(&json!({"status": {"phase": "Pending"}})));
        assert!(must_stay_same(&json!({"status": {"phase": "Pending"}})));
        assert!(!must_stay_same(&json!({"status": {"phase": "Failed"}})));
        let marked = mark(&pod("True"), now());
        assert_eq!(
            marked["status"]["conditions"][1]["type"],
            "DisruptionTarget"
        );
        assert_eq!(mark(&marked, now()), marked);
    }
}
