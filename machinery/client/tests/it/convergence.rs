//! Whatever goes wrong between server and informer, the mirror ends up equal, and so
//! does what a handler has put together from what it was told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use client::testing::{Fake, Fault, status};
use client::{DeleteParams, InformerEvent, InformerOptions, KubeObject, ObjectKey, SharedInformer};
use k8s_openapi::api::core::v1::ConfigMap;
use meta::Reason;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::eventually;

const MAPS: &str = "/api/v1/configmaps";
const STEPS: usize = 120;

type Versions = BTreeMap<ObjectKey, String>;

fn versions_of_server(fake: &Fake) -> Versions {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let entry = |o: &Value| {
        let meta = &o["metadata"];
        (
            ObjectKey::new("ns", text(&meta["name"])),
            text(&meta["resourceVersion"]),
        )
    };
    fake.objects(MAPS).iter().map(entry).collect()
}

/// Puts together what a handler is told; fails on what cannot follow from before.
fn apply(view: &Mutex<Versions>, event: &InformerEvent<ConfigMap>) {
    let mut view = view.lock().unwrap();
    let version = event.object().resource_version().to_owned();
    let before = match event {
        InformerEvent::Added(_) => view.insert(event.key(), version).is_none(),
        InformerEvent::Updated(old, _) => {
            view.insert(event.key(), version).as_deref() == Some(old.resource_version())
        }
        InformerEvent::Deleted(_) => view.remove(&event.key()).is_some(),
    };
    assert!(before, "out of place: {event:?}");
}

/// Lets a random thing happen.
async fn step(fake: &Fake, random: &mut StdRng) {
    let client = fake.client();
    let name = format!("m{}", random.random_range(0..6));
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.clone());
    object.metadata.namespace = Some("ns".into());
    match random.random_range(0..12) {
        0..5 => {
            // Creates it, or changes it if it is there.
            if client.create(None, &object).await.is_err() {
                client.update(None, &object).await.unwrap();
            }
        }
        5..8 => {
            // It may not be there.
            let none = DeleteParams::default();
            let _ = client.delete::<ConfigMap>(Some("ns"), &name, &none).await;
        }
        8 => fake.break_watches(),
        9 => fake.compact(),
        10 => fake.fault(&format!("GET {MAPS}"), Fault::Refuse),
        _ => {
            let reasons = [
                Reason::TooManyRequests,
                Reason::Expired,
                Reason::InternalError,
            ];
            fake.fault(
                &format!("GET {MAPS}"),
                status(reasons[random.random_range(0..3)]),
            );
        }
    }
    if random.random_range(0..3) == 0 {
        tokio::task::yield_now().await;
    }
}

async fn converges(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let fake = Fake::default();
    let informer = SharedInformer::<ConfigMap>::new(&fake.client(), InformerOptions::all());
    let view = Arc::new(Mutex::new(Versions::new()));
    let told = Arc::clone(&view);
    informer.add_handler(move |event| apply(&told, event));
    let token = CancellationToken::new();
    let _stop = token.clone().drop_guard();
    let mirror = informer.spawn(token).unwrap();
    for _ in 0..STEPS {
        step(&fake, &mut random).await;
    }
    fake.heal();
    let expected = versions_of_server(&fake);
    eventually(&format!("seed {seed}"), || {
        assert!(!mirror.is_finished(), "seed {seed}: the mirror has failed");
        let store = informer.store();
        let mirrored: Versions = store
            .list()
            .iter()
            .map(|o| (o.key(), o.resource_version().to_owned()))
            .collect();
        mirrored == expected && *view.lock().unwrap() == expected
    })
    .await;
}

#[tokio::test]
async fn any_history_of_faults_converges() {
    let runs = (0..24).map(|seed| tokio::spawn(converges(seed)));
    for run in futures::future::join_all(runs).await {
        run.unwrap();
    }
}
