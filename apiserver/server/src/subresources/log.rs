//! `log`: a container's output, passed through from the kubelet of its node.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use meta::value;
use meta::{FieldError, GroupVersionKind, Status};

use super::kubelet;
use crate::api::{Api, Target};
use crate::body::{BoxBody, BoxError};
use crate::pipeline::Context;
use crate::query::Query;

/// The options a kubelet understands, passed on as they came.
const OPTIONS: [&str; 8] = [
    "follow",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "timestamps",
    "tailLines",
    "limitBytes",
    "stream",
];
/// Which streams may be asked for; both unless one is.
const STREAMS: [&str; 3] = ["All", "Stderr", "Stdout"];

/// Answers a container's log.
pub(super) async fn get(
    api: &Arc<Api>,
    cx: &Context,
    target: &Target,
) -> Result<Response<BoxBody>, Status> {
    check_options(&cx.query, &target.name)?;
    let pod = kubelet::pod(target).await?;
    let container = kubelet::container(&pod, cx.query.non_empty("container"))?;
    let node = kubelet::node_of(api, &pod).await?;
    // Names are checked against RFC 1123 on their way in: no escapes needed.
    let (ns, name) = (value::namespace(&pod), value::name(&pod));
    let path = format!("/containerLogs/{ns}/{name}/{container}");
    let uri = kubelet::uri(&node, &path, &options(&cx.query))?;
    let verify = !cx.query.flag("insecureSkipTLSVerifyBackend");
    let answer = api.kubelets.get(uri, verify).await?;
    if !answer.status().is_success() {
        return Err(kubelet::refusal(answer).await);
    }
    let (parts, body) = answer.into_parts();
    let body = body.map_err(|e| Box::new(e) as BoxError).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let plain = HeaderValue::from_static("text/plain");
    let content_type = parts.headers.get(CONTENT_TYPE).cloned().unwrap_or(plain);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

/// Returns the options that are passed on.
fn options(query: &Query) -> Vec<(&'static str, &str)> {
    let given = OPTIONS.into_iter();
    given
        .filter_map(|option| {
            let value = query.non_empty(option)?;
            Some(match option {
                // However the client says yes, the kubelet hears one word.
                "follow" | "previous" | "timestamps" if query.flag(option) => (option, "true"),
                "follow" | "previous" | "timestamps" => (option, "false"),
                _ => (option, value),
            })
        })
        .collect()
}

fn check_options(query: &Query, name: &str) -> Result<(), Status> {
    let mut errors = Vec::new();
    let mut number = |option: &'static str, least: i64, detail: &str| -> Result<bool, Status> {
        let Some(n) = query.number(option)? else {
            return Ok(false);
        };
        if n < least {
            errors.push(FieldError::invalid(option, n, detail));
        }
        Ok(true)
    };
    let positive = "must be greater than 0";
    let tail = number("tailLines", 0, "must be greater than or equal to 0")?;
    number("limitBytes", 1, positive)?;
    if query.non_empty("sinceTime").is_some() && query.non_empty("sinceSeconds").is_some() {
        query.number("sinceSeconds")?;
        let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(FieldError::forbidden("", detail));
    } else {
        number("sinceSeconds", 1, positive)?;
    }
    if let Some(time) = query.non_empty("sinceTime")
        && let Err(e) = time.parse::<jiff::Timestamp>()
    {
        let text = format!("invalid value for sinceTime: {time:?}: {e}");
        return Err(Status::bad_request(text));
    }
    if let Some(stream) = query.non_empty("stream") {
        if !STREAMS.contains(&stream) {
            errors.push(FieldError::not_supported("stream", stream, &STREAMS));
        }
        if stream != "All" && tail {
            let detail = "`tailLines` and specific `stream` are mutually exclusive for now";
            errors.push(FieldError::forbidden("", detail));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupVersionKind::new("", "v1", "PodLogOptions");
    Err(Status::invalid(&kind, name, &errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(query: &str) -> Status {
        check_options(&Query::parse(query).unwrap(), "p").unwrap_err()
    }

    #[test]
    fn options_are_checked_as_upstream_does() {
        for (query, message) in [
            (
                "tailLines=-1",
                "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                "limitBytes=0",
                "PodLogOptions \"p\" is invalid: limitBytes: Invalid value: 0: must be greater than 0",
            ),
            (
                "sinceSeconds=0",
                "PodLogOptions \"p\" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0",
            ),
            (
                "stream=stdout",
                "PodLogOptions \"p\" is invalid: stream: Unsupported value: \"stdout\": supported values: \"All\", \"Stderr\", \"Stdout\"",
            ),
        ] {
            let status = refusal(query);
            assert_eq!((status.code, status.message.as_str()), (422, message));
        }
        for (query, words) in [
            (
                "sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z",
                "at most one of",
            ),
            ("stream=Stdout&tailLines=1", "mutually exclusive"),
        ] {
            let status = refusal(query);
            assert_eq!(status.code, 422, "{query}");
            assert!(status.message.contains(words), "{}", status.message);
        }
        for query in ["tailLines=x", "sinceTime=yesterday", "sinceSeconds=1.5"] {
            assert_eq!(refusal(query).code, 400, "{query}");
        }
        let all = "tailLines=0&limitBytes=1&sinceSeconds=1&stream=All&follow=true";
        check_options(&Query::parse(all).unwrap(), "p").unwrap();
    }

    #[test]
    fn options_are_passed_on() {
        let query = Query::parse("follow=1&previous=false&stream=Stdout&pretty=1").unwrap();
        assert_eq!(
            options(&query),
            [
                ("follow", "true"),
                ("previous", "false"),
                ("stream", "Stdout")
            ]
        );
    }
}
