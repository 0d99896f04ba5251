//! Pages of plain HTTP: `/health`, `/version`, `/metrics`, `/debug/vars`, and the
//! probes (etcd: etcdhttp).

use http::{Method, Request, StatusCode};
use serde_json::json;

use super::{
    answer::{self, Answer, JSON, TEXT},
    probes,
};
use crate::{API_VERSION, STORAGE_VERSION, handle::Handle, metrics};

/// Answers on a client listener.
pub(super) async fn client_listener<B>(request: &Request<B>, handle: &Handle) -> Answer {
    match request.uri().path() {
        "/version" if request.method() != Method::GET => answer::only_get(),
        "/version" => version(),
        "/debug/vars" if request.method() != Method::GET => answer::only_get(),
        "/debug/vars" => debug_vars(handle),
        _ => metrics_listener(request, handle).await,
    }
}

/// Answers on a listener that is there for metrics and probes only.
pub(super) async fn metrics_listener<B>(request: &Request<B>, handle: &Handle) -> Answer {
    let query = request.uri().query().unwrap_or_default();
    match request.uri().path() {
        "/metrics" => answer::whole(
            StatusCode::OK,
            metrics::text::KIND,
            metrics::text::page(handle),
        ),
        "/health" if request.method() != Method::GET => answer::only_get(),
        "/health" => health(query, handle).await,
        path => match probes::named(path) {
            Some(_) if request.method() != Method::GET => answer::only_get(),
            Some(probe) => probe.answer(query, handle).await,
            None => answer::not_found(),
        },
    }
}

/// Reads the values of one key of a query string.
pub(super) fn values<'a>(query: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    query.split('&').filter_map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name == key).then_some(value)
    })
}

/// Says which versions are spoken.
pub(crate) fn version() -> Answer {
    let body = json!({
        "etcdserver": API_VERSION,
        "etcdcluster": cluster_version(),
        "storage": STORAGE_VERSION,
    });
    answer::whole(StatusCode::OK, JSON, body.to_string())
}

/// A cluster goes by the smallest minor version of its members.
pub(crate) fn cluster_version() -> String {
    format!("{}.0", metrics::CLUSTER_VERSION)
}

/// Tells of the process and of the log, as far as that means something outside Go.
fn debug_vars(handle: &Handle) -> Answer {
    let Ok(standing) = handle.shared.with(|core| {
        let standing = core.member.standing();
        json!({
            "id": format!("{:x}", handle.shared.ids.member),
            "term": standing.term,
            "commit": core.member.commit_index(),
            "applied": core.machine.applied_index(),
            "lead": format!("{:x}", standing.leader),
            "raftState": format!("State{:?}", standing.role),
        })
    }) else {
        return answer::refusal(StatusCode::SERVICE_UNAVAILABLE, "the member is stopping");
    };
    let process = metrics::process::Process::read();
    let body = json!({
        "cmdline": std::env::args_os()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect::<Vec<_>>(),
        "file_descriptor_limit": process.fds_max,
        "memstats": { "Sys": process.resident_bytes },
        "raft.status": standing,
    });
    let kind = http::HeaderValue::from_static("application/json; charset=utf-8");
    answer::whole(StatusCode::OK, kind, format!("{body}\n"))
}

/// Answers as etcd's health handler does: alarms first, then the leader, then a read.
async fn health(query: &str, handle: &Handle) -> Answer {
    let reason = illness(query, handle).await.err();
    let metrics = &handle.shared.metrics;
    let health = if reason.is_none() { "true" } else { "false" };
    let body = json!({ "health": health, "reason": reason.as_deref().unwrap_or_default() });
    match reason {
        None => {
            metrics.health_success.inc();
            // Go calls it text by looking at it.
            answer::whole(StatusCode::OK, TEXT, body.to_string())
        }
        Some(reason) => {
            metrics.health_failures.inc();
            tracing::warn!(reason, "not healthy");
            answer::refusal(StatusCode::SERVICE_UNAVAILABLE, &body.to_string())
        }
    }
}

async fn illness(query: &str, handle: &Handle) -> Result<(), String> {
    let serializable = values(query, "serializable").next() == Some("true");
    let stopped = |error: crate::RpcError| format!("RANGE ERROR:{error}");
    let (alarms, leader) = handle
        .shared
        .with(|core| (core.machine.alarms(), core.member.standing().leader))
        .map_err(stopped)?;
    let alarms = alarms.iter().map(|alarm| match alarm.kind {
        mvcc::AlarmKind::NoSpace => "NOSPACE",
        mvcc::AlarmKind::Corrupt => "CORRUPT",
    });
    for alarm in alarms {
        if !values(query, "exclude").any(|excluded| excluded == alarm) {
            return Err(format!("ALARM {alarm}"));
        }
    }
    if leader == 0 && !serializable {
        return Err("RAFT NO LEADER".to_owned());
    }
    let read = probes::read(handle, serializable).await;
    read.map_err(|error| format!("RANGE ERROR:{error}"))
}
