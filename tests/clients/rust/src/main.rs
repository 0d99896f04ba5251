//! An operator written with kube-rs: a custom resource whose definition is derived from
//! a type, a controller that applies what it owns, and a finalizer.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::conditions::{is_crd_established, is_deleted};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::wait::await_condition;
use kube::runtime::watcher;
use kube::{Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// How long anything that must come may take.
const PATIENCE: Duration = Duration::from_secs(60);
const FINALIZER: &str = "rust.example.com/finalizer";
const MANAGER: &str = "kube-rs-operator";

/// What is wanted of a nest.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "rust.example.com", version = "v1", kind = "Nest", namespaced)]
#[kube(status = "NestStatus", shortname = "ne")]
#[kube(printcolumn = r#"{"name":"Eggs","type":"integer","jsonPath":".spec.eggs"}"#)]
struct NestSpec {
    /// How many eggs lie in it.
    #[schemars(range(min = 0, max = 12))]
    eggs: u32,
    bird: Option<String>,
}

/// What was seen of a nest.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct NestStatus {
    counted: u32,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("kube: {0}")]
    Kube(#[from] kube::Error),
    #[error("finalizer: {0}")]
    Finalizer(#[from] Box<kube::runtime::finalizer::Error<kube::Error>>),
}

type Anything = Box<dyn std::error::Error + Send + Sync>;

/// Does for a nest what is to be done: a config map of its own, and its status.
async fn reconcile(nest: Arc<Nest>, client: Arc<Client>) -> Result<Action, Error> {
    let namespace = nest.namespace().unwrap_or_default();
    let nests: Api<Nest> = Api::namespaced((*client).clone(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), &namespace);
    let done = finalizer(&nests, FINALIZER, nest, |event| async {
        match event {
            Event::Apply(nest) => {
                let name = nest.name_any();
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(format!("{name}-eggs")),
                        owner_references: nest.controller_owner_ref(&()).map(|o| vec![o]),
                        ..ObjectMeta::default()
                    },
                    data: Some([("eggs".to_owned(), nest.spec.eggs.to_string())].into()),
                    ..ConfigMap::default()
                };
                let params = PatchParams::apply(MANAGER).force();
                maps.patch(&format!("{name}-eggs"), &params, &Patch::Apply(&map)).await?;
                let status = json!({"apiVersion": "rust.example.com/v1", "kind": "Nest",
                    "status": {"counted": nest.spec.eggs}});
                nests.patch_status(&name, &params, &Patch::Apply(&status)).await?;
            }
            Event::Cleanup(nest) => {
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(format!("{}-flown", nest.name_any())),
                        ..ObjectMeta::default()
                    },
                    ..ConfigMap::default()
                };
                maps.create(&PostParams::default(), &map).await?;
            }
        }
        Ok(Action::requeue(Duration::from_secs(300)))
    })
    .await;
    done.map_err(|e| Error::Finalizer(Box::new(e)))
}

fn on_error(_: Arc<Nest>, error: &Error, _: Arc<Client>) -> Action {
    eprintln!("to be tried again: {error}");
    Action::requeue(Duration::from_millis(200))
}

fn ensure(holds: bool, what: &str) -> Result<(), Anything> {
    if holds {
        println!("ok {what}");
        return Ok(());
    }
    Err(format!("FAILED {what}").into())
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> Result<T, Anything> {
    tokio::time::timeout(PATIENCE, work)
        .await
        .map_err(|_| format!("FAILED waited in vain for {what}").into())
}

/// Makes the definition and waits until it is served.
async fn define(client: &Client) -> Result<(), Anything> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(MANAGER);
    crds.patch("nests.rust.example.com", &params, &Patch::Apply(Nest::crd())).await?;
    let established = await_condition(crds, "nests.rust.example.com", is_crd_established());
    within("the definition", established).await??;
    Ok(())
}

/// Uses nests while the controller runs, and checks what it makes of them.
async fn use_nests(client: &Client) -> Result<(), Anything> {
    let nests: Api<Nest> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let spec = NestSpec { eggs: 3, bird: None };
    let made = nests.create(&PostParams::default(), &Nest::new("oak", spec)).await?;
    let has = |eggs: &'static str| {
        move |map: Option<&ConfigMap>| {
            let data = map.and_then(|m| m.data.as_ref());
            data.is_some_and(|d| d.get("eggs").is_some_and(|e| e == eggs))
        }
    };
    let map = within("the map", await_condition(maps.clone(), "oak-eggs", has("3"))).await??;
    let owner = map.and_then(|m| m.metadata.owner_references).unwrap_or_default();
    let owned = owner.iter().any(|o| Some(&o.uid) == made.metadata.uid.as_ref());
    ensure(owned, "what is applied is owned")?;
    let counted = |eggs: u32| {
        move |nest: Option<&Nest>| {
            nest.and_then(|n| n.status.as_ref()).is_some_and(|s| s.counted == eggs)
        }
    };
    within("the status", await_condition(nests.clone(), "oak", counted(3))).await??;
    let patch = Patch::Merge(json!({"spec": {"eggs": 5}}));
    nests.patch("oak", &PatchParams::default(), &patch).await?;
    within("the change", await_condition(maps.clone(), "oak-eggs", has("5"))).await??;
    within("the change", await_condition(nests.clone(), "oak", counted(5))).await??;
    ensure(true, "a change is applied")?;

    let wrong = Nest::new("elm", NestSpec { eggs: 13, bird: None });
    let refused = nests.create(&PostParams::default(), &wrong).await;
    let said = matches!(&refused, Err(kube::Error::Api(s)) if s.code == 422
        && s.message.contains("spec.eggs"));
    ensure(said, "thirteen eggs are refused")?;
    ensure(nests.list(&ListParams::default()).await?.items.len() == 1, "one nest is listed")?;

    let uid = made.uid().unwrap_or_default();
    let gone = await_condition(nests.clone(), "oak", is_deleted(&uid));
    nests.delete("oak", &DeleteParams::default()).await?;
    within("the end", gone).await??;
    ensure(maps.get_opt("oak-flown").await?.is_some(), "the finalizer was run")?;
    let gone = await_condition(maps.clone(), "oak-eggs", |m: Option<&ConfigMap>| m.is_none());
    within("what was owned to go", gone).await??;
    ensure(true, "what was owned is gone")
}

#[tokio::main]
async fn main() -> Result<(), Anything> {
    let client = Client::try_default().await?;
    define(&client).await?;
    let nests: Api<Nest> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let controller = Controller::new(nests, watcher::Config::default())
        .owns(maps, watcher::Config::default())
        .run(reconcile, on_error, Arc::new(client.clone()))
        .for_each(|_| std::future::ready(()));
    tokio::select! {
        () = controller => Err("FAILED the controller ended".into()),
        used = use_nests(&client) => used,
    }
}
