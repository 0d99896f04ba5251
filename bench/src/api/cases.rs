//! The list of cases: a new one is a line here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::try_join_all;
use http::Method;
use serde_json::{Value, json};

use super::ask::{
    Ask, Callers, JSON, LEASES_PATH, NODES, NUMBER, PODS, PODS_PATH, PROTOBUF, count_up, create,
    pod,
};
use crate::cluster::Cluster;
use crate::drive::{Client, Measured, Plan, closed_loop};
use crate::report::Metric::{self, CpuPerOp};

/// One case: clients that ask in a closed loop.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    clients: usize,
    what: What,
    /// What a metric may be at most.
    pub(crate) bounds: &'static [(Metric, f64)],
}

/// What each client does.
#[derive(Clone, Copy)]
enum What {
    /// Reads one pod after the other.
    Get(&'static str),
    /// Lists with a query.
    List(&'static str, &'static str),
    /// Creates a pod, and deletes it again: two requests.
    CreateAndDelete,
    /// Creates pods, which are deleted when the case is over.
    Create,
    /// Writes its own object back with a number changed.
    Update(Own),
    /// Sends a patch of its own pod.
    Patch(Patch),
}

/// Whose object is written.
#[derive(Clone, Copy)]
enum Own {
    Pod,
    PodStatus,
    Lease,
}

#[derive(Clone, Copy)]
enum Patch {
    Json,
    Merge,
    Strategic,
    /// A strategic merge patch of the status, as kubelets send it.
    Status,
    /// Server-side apply of the whole object with a number changed.
    Apply,
    /// Server-side apply of what is there.
    ApplySame,
}

const fn case(name: &'static str, what: What) -> Case {
    Case {
        name,
        clients: 100,
        what,
        bounds: &[],
    }
}

const fn bounded(case: Case, bounds: &'static [(Metric, f64)]) -> Case {
    Case { bounds, ..case }
}

const fn alone(case: Case) -> Case {
    Case { clients: 1, ..case }
}

/// Lists are long enough for few clients to keep the server busy.
const fn list(name: &'static str, accept: &'static str, query: &'static str) -> Case {
    Case {
        clients: 8,
        ..case(name, What::List(accept, query))
    }
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// All cases, in the order in which they run.
pub(crate) const CASES: &[Case] = &[
    bounded(case("get a pod", What::Get(JSON)), &[(CpuPerOp, 60.0)]),
    alone(case("get a pod, 1 client", What::Get(JSON))),
    case("get a pod as protobuf", What::Get(PROTOBUF)),
    bounded(
        case("update a pod", What::Update(Own::Pod)),
        &[(CpuPerOp, 150.0)],
    ),
    alone(case("update a pod, 1 client", What::Update(Own::Pod))),
    case("update a pod's status", What::Update(Own::PodStatus)),
    case("renew a lease", What::Update(Own::Lease)),
    case("create a pod", What::Create),
    case("create and delete a pod", What::CreateAndDelete),
    case("patch a pod, JSON", What::Patch(Patch::Json)),
    case("patch a pod, merge", What::Patch(Patch::Merge)),
    case("patch a pod, strategic", What::Patch(Patch::Strategic)),
    case("patch a pod's status", What::Patch(Patch::Status)),
    case("apply a pod", What::Patch(Patch::Apply)),
    case("apply a pod, nothing new", What::Patch(Patch::ApplySame)),
    list("list 1,000 pods", JSON, ""),
    list("list 1,000 pods as protobuf", PROTOBUF, ""),
    list("list 1,000 pods as a table", TABLE, ""),
    list("list 100 of 1,000 pods", JSON, "limit=100"),
    list(
        "list the pods of a node",
        JSON,
        "fieldSelector=spec.nodeName%3Dnode-007",
    ),
];

/// Runs a case once.
pub(crate) async fn run_case(
    cluster: &Cluster,
    callers: &Callers,
    case: &Case,
    plan: Plan,
) -> anyhow::Result<Measured> {
    let run = Arc::new(Run {
        started: AtomicU64::new(0),
    });
    let clients = (0..case.clients).map(|nth| client(callers, case.what, nth, &run));
    let clients = try_join_all(clients).await?;
    let measured = closed_loop(cluster, plan, clients).await?;
    if matches!(case.what, What::Create | What::Update(_) | What::Patch(_)) {
        clear(callers).await?;
    }
    Ok(measured)
}

/// What the clients of one run share.
struct Run {
    /// Requests begun.
    started: AtomicU64,
}

impl Run {
    fn next(&self) -> u64 {
        self.started.fetch_add(1, Ordering::Relaxed)
    }
}

async fn client(
    callers: &Callers,
    what: What,
    nth: usize,
    run: &Arc<Run>,
) -> anyhow::Result<Client> {
    match what {
        What::Get(accept) => Ok(gets(callers, nth, run, accept)),
        What::List(accept, query) => Ok(lists(callers, nth, accept, query)),
        What::Create => Ok(creates(callers, nth, run, false)),
        What::CreateAndDelete => Ok(creates(callers, nth, run, true)),
        What::Update(own) => updates(callers, nth, own).await,
        What::Patch(patch) => patches(callers, nth, patch).await,
    }
}

fn gets(callers: &Callers, nth: usize, run: &Arc<Run>, accept: &'static str) -> Client {
    let (transport, run) = (callers.of(nth), run.clone());
    Box::new(move || {
        let nth = run.next().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let path = format!("{PODS_PATH}/there-{:06}", nth % PODS);
        let (ask, transport) = (
            Ask::new(Method::GET, path).accepts(accept),
            transport.clone(),
        );
        Box::pin(async move { ask.send(&transport, Bytes::new()).await.map(|_| 1) })
    })
}

fn lists(callers: &Callers, nth: usize, accept: &'static str, query: &str) -> Client {
    let transport = callers.of(nth);
    let ask = Ask::new(Method::GET, format!("{PODS_PATH}?{query}")).accepts(accept);
    Box::new(move || {
        let (ask, transport) = (ask.clone(), transport.clone());
        Box::pin(async move { ask.send(&transport, Bytes::new()).await.map(|_| 1) })
    })
}

fn creates(callers: &Callers, nth: usize, run: &Arc<Run>, deletes: bool) -> Client {
    let (transport, run) = (callers.of(nth), run.clone());
    Box::new(move || {
        let (transport, nth) = (transport.clone(), run.next());
        Box::pin(async move {
            let name = format!("made-{nth:08}");
            create(&transport, PODS_PATH, &pod(&name, nth % NODES)?).await?;
            if !deletes {
                return Ok(1);
            }
            let path = format!("{PODS_PATH}/{name}?gracePeriodSeconds=0");
            Ask::new(Method::DELETE, path)
                .send(&transport, Bytes::new())
                .await?;
            Ok(2)
        })
    })
}

/// Where a client's own object is, and the object.
fn own(own: Own, nth: usize) -> anyhow::Result<(&'static str, String, Value)> {
    let name = format!("own-{nth:04}");
    if matches!(own, Own::Pod | Own::PodStatus) {
        let mut pod = pod(&name, nth as u64 % NODES)?;
        if let Own::PodStatus = own {
            pod["status"] = json!({"phase": "Running", "message": NUMBER});
        }
        return Ok((PODS_PATH, name, pod));
    }
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": format!("{RENEWED}{NUMBER}Z"),
        },
    });
    Ok((LEASES_PATH, name, lease))
}

/// The part of a lease's time of renewal that stays.
const RENEWED: &str = "2026-01-01T00:00:00.";

async fn updates(callers: &Callers, nth: usize, whose: Own) -> anyhow::Result<Client> {
    let transport = callers.of(nth);
    let (folder, name, object) = own(whose, nth)?;
    let mut stored = create(&transport, folder, &object).await?;
    let (path, mark) = match whose {
        Own::Pod => (format!("{folder}/{name}"), r#""bench/n":""#.to_owned()),
        Own::PodStatus => (
            format!("{folder}/{name}/status"),
            r#""message":""#.to_owned(),
        ),
        Own::Lease => (
            format!("{folder}/{name}"),
            format!(r#""renewTime":"{RENEWED}"#),
        ),
    };
    let ask = Ask::new(Method::PUT, path);
    if let Own::PodStatus = whose {
        // What is created has no status of its own yet.
        let mut pod: Value = serde_json::from_slice(&stored)?;
        pod["status"] = object["status"].clone();
        stored = ask
            .send(&transport, serde_json::to_vec(&pod)?.into())
            .await?;
    }
    // The next request is the last answer with a number changed.
    let kept = Arc::new(tokio::sync::Mutex::new(stored));
    Ok(Box::new(move || {
        let (ask, transport) = (ask.clone(), transport.clone());
        let (kept, mark) = (kept.clone(), mark.clone());
        Box::pin(async move {
            let mut kept = kept.lock().await;
            let mut body = kept.to_vec();
            count_up(&mut body, &mark)?;
            *kept = ask.send(&transport, body.into()).await?;
            Ok(1)
        })
    }))
}

async fn patches(callers: &Callers, nth: usize, patch: Patch) -> anyhow::Result<Client> {
    let transport = callers.of(nth);
    let (_, name, object) = own(Own::Pod, nth)?;
    let path = format!("{PODS_PATH}/{name}");
    let (query, content_type, body, mark) = match patch {
        Patch::Json => (
            "",
            "application/json-patch+json",
            format!(
                r#"[{{"op":"replace","path":"/metadata/annotations/bench~1n","value":"{NUMBER}"}}]"#
            ),
            r#""value":""#,
        ),
        Patch::Merge | Patch::Strategic => (
            "",
            match patch {
                Patch::Merge => "application/merge-patch+json",
                _ => "application/strategic-merge-patch+json",
            },
            format!(r#"{{"metadata":{{"annotations":{{"bench/n":"{NUMBER}"}}}}}}"#),
            r#""bench/n":""#,
        ),
        Patch::Status => (
            "/status",
            "application/strategic-merge-patch+json",
            json!({"status": {
                "message": NUMBER,
                "conditions": [{"type": "Ready", "status": "True"}],
            }})
            .to_string(),
            r#""message":""#,
        ),
        Patch::Apply | Patch::ApplySame => (
            "?fieldManager=bench",
            "application/apply-patch+yaml",
            object.to_string(),
            r#""bench/n":""#,
        ),
    };
    let ask = Ask::new(Method::PATCH, format!("{path}{query}")).sends(content_type);
    let counts = !matches!(patch, Patch::ApplySame);
    match patch {
        Patch::Apply | Patch::ApplySame => ask.send(&transport, body.clone().into()).await?,
        _ => create(&transport, PODS_PATH, &object).await?,
    };
    let kept = Arc::new(tokio::sync::Mutex::new(body.into_bytes()));
    Ok(Box::new(move || {
        let (ask, transport, kept) = (ask.clone(), transport.clone(), kept.clone());
        Box::pin(async move {
            let mut body = kept.lock().await;
            if counts {
                count_up(&mut body, mark)?;
            }
            ask.send(&transport, body.clone().into()).await?;
            Ok(1)
        })
    }))
}

/// Deletes what the clients of a case made.
async fn clear(callers: &Callers) -> anyhow::Result<()> {
    let transport = callers.of(0);
    let all = Ask::new(Method::GET, PODS_PATH).accepts(METADATA);
    for folder in [PODS_PATH, LEASES_PATH] {
        let ask = Ask {
            path: folder.into(),
            ..all.clone()
        };
        let list: Value = serde_json::from_slice(&ask.send(&transport, Bytes::new()).await?)?;
        let items = list["items"].as_array().into_iter().flatten();
        let names = items.filter_map(|item| item["metadata"]["name"].as_str());
        let made = names.filter(|name| name.starts_with("made-") || name.starts_with("own-"));
        for name in made {
            let path = format!("{folder}/{name}?gracePeriodSeconds=0");
            Ask::new(Method::DELETE, path)
                .send(&transport, Bytes::new())
                .await?;
        }
    }
    Ok(())
}

/// Of each object only its metadata.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
