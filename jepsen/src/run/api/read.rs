//! Clients that read: one object or many, as new as can be, as old as may be, at
//! exactly one version, in pages; each time through whichever API server.

use std::collections::BTreeMap;

use checkers::history::{Came, Read, Scope};
use rand::Rng;

use super::object::{CONFIG_MAPS, DEPLOYMENTS, PODS, THINGS};
use super::talk::Talker;
use super::{LABEL, LABELS, NAMESPACES, write};

/// How far back lists at exactly one version go.
const BACK_MAX: i64 = 60;
/// How many objects a page has at most.
const PAGE_MAX: usize = 5;

/// Reads, until told to stop.
pub(super) async fn run(mut client: Talker) {
    // What this client has seen of each scope: it does not want to go back.
    let mut known: BTreeMap<Scope, i64> = BTreeMap::new();
    while !client.world().stopped() {
        if client.rng.random_bool(0.2) {
            one(&mut client).await;
            continue;
        }
        let scope = scope(&mut client);
        let seen = known.get(&scope).copied().unwrap_or(0);
        let came = match client.rng.random_range(0..10) {
            0..=3 => client.list(&scope, Read::Fresh).await,
            4..=5 => client.list(&scope, Read::Any).await,
            6..=7 if seen > 0 => client.list(&scope, Read::AtLeast(seen)).await,
            8 => {
                let newest = client.world().newest();
                let exact = (newest - client.rng.random_range(0..BACK_MAX)).max(1);
                client.list(&scope, Read::Exact(exact)).await;
                continue;
            }
            _ => {
                let limit = client.rng.random_range(1..=PAGE_MAX);
                client.list_in_pages(&scope, limit).await
            }
        };
        if let Came::Ok(answer) = came {
            let seen = known.entry(scope).or_default();
            *seen = answer.rv.max(*seen);
        }
        if client.rng.random_bool(0.3) {
            client.move_on();
        }
    }
}

async fn one(client: &mut Talker) {
    let namespace = NAMESPACES[client.rng.random_range(0..NAMESPACES.len())];
    let key = match client.rng.random_bool(0.3) {
        true => write::counter(client.rng.random_range(0..super::COUNTERS)),
        false => format!("{namespace}/x{}", client.rng.random_range(0..6)),
    };
    let newest = client.world().newest();
    let read = match client.rng.random_range(0..4) {
        0 => Read::Any,
        1 => Read::AtLeast((newest - client.rng.random_range(0..BACK_MAX)).max(1)),
        _ => Read::Fresh,
    };
    let resource = match client.rng.random_bool(0.3) {
        true => THINGS,
        false => CONFIG_MAPS,
    };
    client.get(resource, &key, read).await;
    if client.rng.random_bool(0.5) {
        client.move_on();
    }
}

/// Draws what to look at.
pub(super) fn scope(client: &mut Talker) -> Scope {
    let resource = match client.rng.random_range(0..8) {
        0 => PODS,
        1 => DEPLOYMENTS,
        2 | 3 => THINGS,
        _ => CONFIG_MAPS,
    };
    let mut scope = Scope {
        resource: resource.into(),
        ..Scope::default()
    };
    if client.rng.random_bool(0.7) {
        let namespace = NAMESPACES[client.rng.random_range(0..NAMESPACES.len())];
        scope.namespace = Some(namespace.into());
    }
    if matches!(resource, CONFIG_MAPS | THINGS) && client.rng.random_bool(0.4) {
        let label = LABELS[client.rng.random_range(0..LABELS.len())];
        scope.labels.insert(LABEL.into(), label.into());
    }
    scope
}
