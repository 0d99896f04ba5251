//! What controllers made of what was asked for: never two pods of one identity, and at
//! the end as many as were asked for, each with an owner that is there.

use std::collections::BTreeMap;

use crate::{
    history::{Content, Scope},
    verdict::{Anomalies, Anomaly, names},
};

use super::{LOG, View, past::Change};

/// The resource whose objects run.
pub(super) const PODS: &str = "pods";
/// What keeps so many of them.
const REPLICA_SETS: &str = "replicasets";
/// What is asked for.
const DEPLOYMENTS: &str = "deployments";
/// Says, in what is known of an object, the id of its controller.
const OWNER: &str = "owner";
/// Says which node a pod is bound to.
const NODE: &str = "node";
/// Says that it is on its way out.
const TERMINATING: &str = "terminating";
/// Says how many there are to be.
const REPLICAS: &str = "replicas";

pub(super) fn check(view: &View<'_>) -> Anomalies {
    let mut found = Anomalies::default();
    for change in view.past.changes(PODS) {
        one_identity(change, &mut found);
    }
    converged(view, &mut found);
    found
}

/// Checks that a pod stays the one it is, where it is. The store has one object of one
/// name; two that live are one that was bound twice, or changed its owner.
fn one_identity(change: &Change, found: &mut Anomalies) {
    let (Some((_, before)), Some(now)) = (&change.before, &change.now) else {
        return;
    };
    for what in [NODE, OWNER] {
        let (was, is) = (before.says(what), now.says(what));
        if was.is_some() && was != is {
            found.push(|| {
                let text = format!("the {what} of pod {} was {was:?} and is {is:?}", change.key);
                let mut anomaly = Anomaly::new(names::TWO_PODS, text);
                anomaly.moment(LOG, change.seen, change.to_string());
                anomaly
            });
        }
    }
    if before.says(TERMINATING).is_some() && now.says(TERMINATING).is_none() {
        found.push(|| {
            let text = format!("pod {} was on its way out, and is back", change.key);
            let mut anomaly = Anomaly::new(names::TWO_PODS, text);
            anomaly.moment(LOG, change.seen, change.to_string());
            anomaly
        });
    }
}

/// Compares what there is at the end with what was asked for.
fn converged(view: &View<'_>, found: &mut Anomalies) {
    let end = |resource: &str| {
        let scope = Scope {
            resource: resource.into(),
            ..Scope::default()
        };
        let state = view.past.state(&scope, view.past.last);
        let all = state
            .into_iter()
            .map(|(key, (_, content))| (key.to_owned(), content));
        all.collect::<Vec<_>>()
    };
    let (pods, sets, deployments) = (end(PODS), end(REPLICA_SETS), end(DEPLOYMENTS));
    let mut wrong = |text: String| found.push(|| Anomaly::new(names::NOT_CONVERGED, text));
    let mut of_set: BTreeMap<&str, i64> = BTreeMap::new();
    let ids = |all: &'_ [(String, &Content)]| -> BTreeMap<String, String> {
        let pairs = all.iter().map(|(key, c)| (c.uid.to_string(), key.clone()));
        pairs.collect()
    };
    let (set_ids, deployment_ids) = (ids(&sets), ids(&deployments));
    for (key, pod) in &pods {
        match pod.says(OWNER) {
            Some(owner) if set_ids.contains_key(owner) => {
                if pod.says(TERMINATING).is_none() {
                    *of_set.entry(owner).or_default() += 1;
                }
            }
            owner => wrong(format!(
                "pod {key} is there, and its owner {owner:?} is not"
            )),
        }
    }
    let mut of_deployment: BTreeMap<&str, i64> = BTreeMap::new();
    for (key, set) in &sets {
        let (wanted, is) = (
            set.number(REPLICAS).unwrap_or(1),
            of_set.get(&*set.uid).copied().unwrap_or(0),
        );
        if wanted != is {
            wrong(format!(
                "replica set {key} wants {wanted} pods and has {is}"
            ));
        }
        match set.says(OWNER) {
            Some(owner) if deployment_ids.contains_key(owner) => {
                *of_deployment.entry(owner).or_default() += is;
            }
            owner => wrong(format!(
                "replica set {key} is there, and its owner {owner:?} is not"
            )),
        }
    }
    for (key, deployment) in &deployments {
        let (wanted, is) = (
            deployment.number(REPLICAS).unwrap_or(1),
            of_deployment.get(&*deployment.uid).copied().unwrap_or(0),
        );
        if wanted != is {
            wrong(format!("deployment {key} wants {wanted} pods and has {is}"));
        }
    }
}
