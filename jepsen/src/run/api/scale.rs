//! The client whose wishes controllers carry out: deployments made, scaled, changed
//! and deleted.

use checkers::history::{Came, Read, Scope, Seen};
use rand::Rng;
use serde_json::{Value, json};

use super::NAMESPACES;
use super::object::{DEPLOYMENTS, PODS, REPLICA_SETS};
use super::talk::Talker;

/// How many deployments there are.
const DEPLOYMENTS_MAX: usize = 2;
/// How many pods one asks for at most.
const REPLICAS_MAX: u32 = 5;
/// How long a wish stands before the next.
const STANDS: std::ops::Range<std::time::Duration> =
    std::time::Duration::from_millis(300)..std::time::Duration::from_secs(5);

/// Changes its mind until told to stop.
pub(super) async fn run(mut client: Talker) {
    while !client.world().stopped() {
        let number = client.rng.random_range(0..DEPLOYMENTS_MAX);
        let key = format!("{}/d{number}", NAMESPACES[number % NAMESPACES.len()]);
        match client.rng.random_range(0..10) {
            0 => delete(&mut client, &key).await,
            1 => {
                let version = client.rng.random_range(0..3);
                let image = json!({"containers": [{"name": "c", "image": format!("i{version}")}]});
                let change = json!({"template": {"spec": image}});
                wish(&mut client, &key, change).await;
            }
            _ => {
                let replicas = client.rng.random_range(0..=REPLICAS_MAX);
                wish(&mut client, &key, json!({"replicas": replicas})).await;
            }
        }
        let stands = client.rng.random_range(STANDS);
        tokio::time::sleep(stands).await;
    }
}

async fn delete(client: &mut Talker, key: &str) {
    if let Some(seen) = client.get(DEPLOYMENTS, key, Read::Fresh).await {
        let uid = Some(seen.content.uid);
        client.delete(DEPLOYMENTS, key, uid, None).await;
    }
}

/// Changes a deployment, or makes it if it is not there.
async fn wish(client: &mut Talker, key: &str, spec: Value) {
    let token = client.token();
    let body = json!({"metadata": {"annotations": {"by": &*token}}, "spec": spec});
    if let Came::Refused(_) = client.patch(DEPLOYMENTS, key, None, body).await {
        let body = deployment(client, key);
        client.create(DEPLOYMENTS, key, body).await;
    }
}

fn deployment(client: &mut Talker, key: &str) -> Value {
    let (namespace, name) = key.split_once('/').unwrap_or((key, ""));
    // There are no nodes, and no pod is ever ready: a change that waits for one before
    // it takes another away would wait for ever, and rightly.
    let strategy = match client.rng.random_bool(0.5) {
        true => json!({"type": "Recreate"}),
        false => json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}),
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": name, "namespace": namespace, "annotations": {"by": &*client.token()},
        },
        "spec": {
            "replicas": client.rng.random_range(0..=REPLICAS_MAX),
            "strategy": strategy,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i0"}]},
            },
        },
    })
}

/// Tells what is not yet as it was asked for, as far as an API server shows.
pub(super) async fn unmet(client: &mut Talker) -> Result<(), String> {
    let mut all = Vec::new();
    for resource in [DEPLOYMENTS, REPLICA_SETS, PODS] {
        let scope = Scope {
            resource: resource.into(),
            ..Scope::default()
        };
        match client.list(&scope, Read::Fresh).await {
            Came::Ok(answer) => all.push(answer.objects),
            other => return Err(format!("{resource}: {other:?}")),
        }
    }
    let [deployments, sets, pods] = &all[..] else {
        return Err("not everything was listed".to_owned());
    };
    kept(deployments, sets)?;
    for set in sets {
        let wanted = set.content.number("replicas").unwrap_or(1);
        let own = pods.iter().filter(|pod| owned(pod, set));
        let has = own.filter(|p| p.content.says("terminating").is_none());
        let has = has.count() as i64;
        if has != wanted {
            return Err(format!("{} wants {wanted} pods and has {has}", set.key));
        }
    }
    let orphan = |pod: &&Seen| !sets.iter().any(|set| owned(pod, set));
    match pods.iter().find(orphan) {
        Some(orphan) => Err(format!("pod {} has no owner", orphan.key)),
        None => Ok(()),
    }
}

fn owned(object: &Seen, owner: &Seen) -> bool {
    object.content.says("owner") == Some(&owner.content.uid)
}

/// Compares deployments with their replica sets.
fn kept(deployments: &[Seen], sets: &[Seen]) -> Result<(), String> {
    let orphan = |set: &&Seen| !deployments.iter().any(|d| owned(set, d));
    if let Some(orphan) = sets.iter().find(orphan) {
        return Err(format!("replica set {} has no owner", orphan.key));
    }
    for deployment in deployments {
        let wanted = deployment.content.number("replicas").unwrap_or(1);
        let own = sets.iter().filter(|set| owned(set, deployment));
        let asked: i64 = own.filter_map(|set| set.content.number("replicas")).sum();
        if asked != wanted {
            let key = &deployment.key;
            return Err(format!("{key} wants {wanted} pods and asks for {asked}"));
        }
    }
    Ok(())
}
