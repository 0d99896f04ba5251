//! `/livez` and `/readyz`: whether to restart the process, and whether to send it
//! clients (etcd 3.5.11: etcdhttp/health.go).

use http::StatusCode;
use mvcc::{AlarmKind, RangeRequest};

use super::{
    answer::{self, Answer, TEXT},
    plain::values,
};
use crate::{RpcError, handle::Handle};

/// One thing that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    DataCorruption,
    SerializableRead,
    LinearizableRead,
    NonLearner,
}

impl Check {
    fn name(self) -> &'static str {
        match self {
            Self::DataCorruption => "data_corruption",
            Self::SerializableRead => "serializable_read",
            Self::LinearizableRead => "linearizable_read",
            Self::NonLearner => "non_learner",
        }
    }

    async fn run(self, handle: &Handle) -> Result<(), String> {
        match self {
            Self::DataCorruption => {
                let corrupt = handle
                    .shared
                    .with(|core| core.machine.has_alarm(AlarmKind::Corrupt));
                match corrupt {
                    Ok(false) => Ok(()),
                    Ok(true) => Err("alarm activated: CORRUPT".to_owned()),
                    Err(error) => Err(error.to_string()),
                }
            }
            Self::SerializableRead => described(read(handle, true).await),
            Self::LinearizableRead => described(read(handle, false).await),
            Self::NonLearner => match handle.shared.is_learner() {
                true => Err("not supported for learner".to_owned()),
                false => Ok(()),
            },
        }
    }
}

fn described(read: Result<(), RpcError>) -> Result<(), String> {
    read.map_err(|error| error.to_string())
}

const LIVE: &[Check] = &[Check::SerializableRead];
const READY: &[Check] = &[
    Check::DataCorruption,
    Check::SerializableRead,
    Check::LinearizableRead,
    Check::NonLearner,
];

/// Reads next to nothing, as the member itself: what it costs and whether it is
/// allowed must not decide whether the member is well. A learner is, though clients
/// may not read from it so.
pub(super) async fn read(handle: &Handle, serializable: bool) -> Result<(), RpcError> {
    let request = RangeRequest {
        key: bytes::Bytes::from_static(b"\0"),
        limit: 1,
        keys_only: true,
        serializable: true,
        ..RangeRequest::default()
    };
    if !serializable {
        handle.catch_up().await?;
    }
    handle.range(request).await.map(drop)
}

/// A path that probes: all checks of a kind, or one of them.
#[derive(Debug)]
pub(super) struct Probe {
    kind: &'static str,
    checks: Vec<Check>,
    /// Whether the path names the check: then the query cannot leave it out.
    by_name: bool,
}

/// Finds the probe behind a path.
pub(super) fn named(path: &str) -> Option<Probe> {
    let kinds = [("livez", LIVE), ("readyz", READY)];
    kinds.into_iter().find_map(|(kind, all)| {
        let rest = path.strip_prefix('/')?.strip_prefix(kind)?;
        let by_name = rest.starts_with('/');
        let checks = match rest.strip_prefix('/') {
            None if rest.is_empty() => all.to_vec(),
            None => return None,
            Some(name) => vec![*all.iter().find(|check| check.name() == name)?],
        };
        Some(Probe {
            kind,
            checks,
            by_name,
        })
    })
}

impl Probe {
    /// Runs the checks that the query does not exclude.
    pub(super) async fn answer(&self, query: &str, handle: &Handle) -> Answer {
        let mut text = String::new();
        let mut well = true;
        for check in &self.checks {
            let name = check.name();
            if !self.by_name && values(query, "exclude").any(|excluded| excluded == name) {
                continue;
            }
            let outcome = check.run(handle).await;
            let metrics = &handle.shared.metrics;
            metrics.health_check(self.kind, name, outcome.is_ok());
            match outcome {
                Ok(()) => text.push_str(&format!("[+]{name} ok\n")),
                Err(reason) => {
                    well = false;
                    text.push_str(&format!("[-]{name} failed: {reason}\n"));
                }
            }
        }
        if !well {
            tracing::error!(probe = self.kind, reason = text, "a check failed");
            return answer::refusal(StatusCode::SERVICE_UNAVAILABLE, &text);
        }
        if values(query, "verbose").next().is_none() {
            text.clear();
        }
        text.push_str("ok\n");
        let mut answer = answer::whole(StatusCode::OK, TEXT, text);
        answer.headers_mut().insert(
            http::header::X_CONTENT_TYPE_OPTIONS,
            http::HeaderValue::from_static("nosniff"),
        );
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_all_checks_or_one() {
        let names = |path: &str| {
            let probe = named(path)?;
            let names: Vec<_> = probe.checks.iter().map(|check| check.name()).collect();
            Some(names.join(","))
        };
        assert_eq!(names("/livez").as_deref(), Some("serializable_read"));
        assert_eq!(
            names("/readyz").as_deref(),
            Some("data_corruption,serializable_read,linearizable_read,non_learner")
        );
        let one = names("/readyz/linearizable_read");
        assert_eq!(one.as_deref(), Some("linearizable_read"));
        assert_eq!(names("/livez/linearizable_read"), None);
        assert_eq!(names("/livez/"), None);
        assert_eq!(names("/livezz"), None);
    }
}
