//! Clients that write: each name has one winner, each change is of the version its
//! client had seen, each counter counts every increment.

use std::collections::BTreeMap;

use checkers::history::{Came, How, Read, Seen};
use rand::Rng;
use serde_json::{Value, json};

use super::object::{CONFIG_MAPS, THINGS};
use super::talk::Talker;
use super::{COUNTERS, LABEL, LABELS, NAMESPACES};

/// How many names clients fight over in each namespace.
const NAMES: usize = 6;

/// Makes, changes and deletes objects, until told to stop.
pub(super) async fn run(mut client: Talker) {
    // What it saw last of something, to write on when it is old.
    let mut old: BTreeMap<&str, Option<Seen>> = BTreeMap::new();
    while !client.world().stopped() {
        let namespace = NAMESPACES[client.rng.random_range(0..NAMESPACES.len())];
        let key = format!("{namespace}/x{}", client.rng.random_range(0..NAMES));
        let resource = match client.rng.random_bool(0.3) {
            true => THINGS,
            false => CONFIG_MAPS,
        };
        let old = old.entry(resource).or_default();
        match client.rng.random_range(0..10) {
            0..=2 => {
                let body = object(&mut client, resource, &key);
                client.create(resource, &key, body).await;
            }
            3..=5 => {
                let Some(seen) = see(&mut client, resource, &key, old).await else {
                    continue;
                };
                let body = object(&mut client, resource, &seen.key);
                let how = How::Replace;
                client
                    .replace(how, resource, &seen.key, seen.rv, body)
                    .await;
            }
            6..=7 => patch(&mut client, resource, &key, old).await,
            _ => {
                let Some(seen) = see(&mut client, resource, &key, old).await else {
                    continue;
                };
                let (by_id, by_version) =
                    (client.rng.random_bool(0.7), client.rng.random_bool(0.5));
                let uid = by_id.then(|| seen.content.uid.clone());
                let version = by_version.then_some(seen.rv);
                client.delete(resource, &seen.key, uid, version).await;
            }
        }
    }
}

/// Changes some of an object, in one of three languages.
async fn patch(client: &mut Talker, resource: &str, key: &str, old: &mut Option<Seen>) {
    if client.rng.random_bool(0.4) {
        let body = object(client, resource, key);
        client.apply(resource, key, body).await;
        return;
    }
    let guarded = client.rng.random_bool(0.3);
    let seen = match guarded {
        true => see(client, resource, key, old).await,
        false => None,
    };
    let key = seen.as_ref().map_or(key, |seen| &seen.key).to_owned();
    let rv = seen.map(|seen| seen.rv);
    let token = client.token();
    if client.rng.random_bool(0.4) {
        client.operate(resource, &key, rv, &token).await;
        return;
    }
    let label = LABELS[client.rng.random_range(0..LABELS.len())];
    let mut body = json!({"data": {"by": &*token}});
    if client.rng.random_bool(0.5) {
        body["metadata"] = json!({"labels": {LABEL: label}});
    }
    client.patch(resource, &key, rv, body).await;
}

/// Looks at an object; now and then goes on with what was seen before instead.
async fn see(
    client: &mut Talker,
    resource: &str,
    key: &str,
    old: &mut Option<Seen>,
) -> Option<Seen> {
    if client.rng.random_bool(0.2)
        && let Some(seen) = old.take()
    {
        return Some(seen);
    }
    let seen = client.get(resource, key, Read::Fresh).await?;
    *old = Some(seen.clone());
    Some(seen)
}

/// Makes an object that nobody wrote before.
fn object(client: &mut Talker, resource: &str, key: &str) -> Value {
    let label = LABELS[client.rng.random_range(0..LABELS.len())];
    let token = client.token();
    let mut object = config_map(key, Some(label), json!({"by": &*token}));
    if resource == THINGS {
        object["apiVersion"] = "jepsen.example.com/v1".into();
        object["kind"] = "Thing".into();
    }
    object
}

/// Makes a ConfigMap.
pub(super) fn config_map(key: &str, label: Option<&str>, data: Value) -> Value {
    let (namespace, name) = key.split_once('/').unwrap_or((key, ""));
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    });
    if let Some(label) = label {
        object["metadata"]["labels"] = json!({LABEL: label});
    }
    object
}

/// Names a counter.
pub(super) fn counter(number: usize) -> String {
    format!("{}/counter{number}", NAMESPACES[0])
}

/// Adds one to counters, until told to stop.
pub(super) async fn count(mut client: Talker) {
    while !client.world().stopped() {
        let key = counter(client.rng.random_range(0..COUNTERS));
        let Some(seen) = client.get(CONFIG_MAPS, &key, Read::Fresh).await else {
            continue;
        };
        let next = seen.content.number("n").unwrap_or(0) + 1;
        let data = json!({"by": &*client.token(), "n": next.to_string()});
        let body = config_map(&key, None, data);
        let how = How::Increment;
        let came = client.replace(how, CONFIG_MAPS, &key, seen.rv, body).await;
        // Others were faster; on two cores they always are unless one waits.
        if matches!(came, Came::Refused(_)) {
            tokio::task::yield_now().await;
        }
    }
}
