//! `/livez`, `/readyz`, `/healthz`: named checks, each of which can be asked
//! for alone (`/readyz/etcd`) or left out (`?exclude=etcd`).

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use meta::Status;

use crate::api::Api;
use crate::body::{self, BoxBody};
use crate::pipeline::Context;

/// How long the store may take to answer a check.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// A check, under upstream's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// The server answers.
    Ping,
    /// The store answers a linearizable read.
    Store,
    /// Every watch cache is filled.
    Caches,
    /// What must exist from the start exists.
    Bootstrap,
    /// The server is not stopping.
    NotStopping,
}

impl Check {
    fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Store => "etcd",
            Self::Caches => "informer-sync",
            Self::Bootstrap => "poststarthook/bootstrap-controller",
            Self::NotStopping => "shutdown",
        }
    }

    async fn passes(self, api: &Api) -> bool {
        match self {
            Self::Ping => true,
            Self::Store => store_answers(api).await,
            Self::Caches => {
                *api.custom_served.borrow() && api.stores().iter().all(|s| s.is_ready())
            }
            Self::Bootstrap => api.is_bootstrapped(),
            Self::NotStopping => !api.is_stopping(),
        }
    }
}

/// Tells whether the store answers a linearizable read in time.
pub(crate) async fn store_answers(api: &Api) -> bool {
    let answer = tokio::time::timeout(STORE_TIMEOUT, api.store.current_revision());
    matches!(answer.await, Ok(Ok(_)))
}

const LIVE: &[Check] = &[Check::Ping, Check::Store];
const HEALTHY: &[Check] = &[Check::Ping, Check::Store, Check::Bootstrap];
const READY: &[Check] = &[
    Check::Ping,
    Check::Store,
    Check::Caches,
    Check::Bootstrap,
    Check::NotStopping,
];

/// Answers a probe, or one of its checks.
pub(crate) async fn probe(
    api: &Arc<Api>,
    cx: &Context,
    probe: &str,
    check: &[&str],
) -> Result<Response<BoxBody>, Status> {
    let checks = match probe {
        "livez" => LIVE,
        "readyz" => READY,
        _ => HEALTHY,
    };
    let asked = check.join("/");
    if !asked.is_empty() && !checks.iter().any(|c| c.name() == asked) {
        return Err(Status::no_such_path());
    }
    let excluded: Vec<&str> = cx.query.all("exclude").collect();
    let mut lines = String::new();
    let mut healthy = true;
    for check in checks
        .iter()
        .filter(|c| asked.is_empty() || c.name() == asked)
    {
        let name = check.name();
        if excluded.contains(&name) {
            lines += &format!("[+]{name} excluded: ok\n");
        } else if check.passes(api).await {
            lines += &format!("[+]{name} ok\n");
        } else {
            healthy = false;
            lines += &format!("[-]{name} failed: reason withheld\n");
        }
    }
    const TEXT: &str = "text/plain; charset=utf-8";
    let name = if asked.is_empty() {
        probe.to_owned()
    } else {
        format!("{probe}/{asked}")
    };
    Ok(match (healthy, cx.query.flag("verbose")) {
        (true, false) => body::respond(StatusCode::OK, TEXT, "ok"),
        (true, true) => body::respond(
            StatusCode::OK,
            TEXT,
            format!("{lines}{name} check passed\n"),
        ),
        (false, _) => {
            let code = StatusCode::INTERNAL_SERVER_ERROR;
            body::respond(code, TEXT, format!("{lines}{name} check failed\n"))
        }
    })
}
