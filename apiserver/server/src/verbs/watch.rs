//! `watch`: changes as they happen, from a point the client names.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use meta::Status;

use super::list::selector;
use super::watch_body::{self, Encoder};
use crate::api::{Api, Target};
use crate::body::{self, BoxBody};
use crate::negotiation::{Media, Offer};
use crate::pipeline::Context;
use crate::request_info::ResourceRequest;
use crate::storage::{ReadVersion, VersionMatch, WatchRequest};

/// How long a watch lasts at least when the client does not say; up to twice
/// as long, at random, so that watches do not all end together. (Upstream:
/// `--min-request-timeout`, 1800 s.)
const WATCH_MIN: Duration = Duration::from_secs(1800);

pub(super) async fn watch(
    api: &Arc<Api>,
    cx: &Context,
    target: &Target,
    r: &ResourceRequest,
) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Resource)?;
    let mut selector = selector(&cx.query, target)?;
    if r.name_in_path {
        // The deprecated `/watch/` paths name an object.
        selector.name = Some(target.name.clone());
    }
    let timeout = timeout(cx.query.number("timeoutSeconds")?);
    let query = &cx.query;
    let send_initial_events = query
        .get("sendInitialEvents")
        .map(|_| query.flag("sendInitialEvents"));
    let stream = target
        .store()
        .watch(WatchRequest {
            selector,
            version: ReadVersion::parse(query.get("resourceVersion").unwrap_or_default())?,
            version_match: VersionMatch::parse(
                query.get("resourceVersionMatch").unwrap_or_default(),
            )?,
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events,
            timeout: Some(timeout),
        })
        .await?;
    let encoder = Encoder::new(target.kind(), accepted, &cx.query)?;
    let content_type = match accepted.media {
        Media::Json => "application/json",
        Media::Yaml => "application/yaml;stream=watch",
    };
    let parts = watch_body::parts(stream, encoder, timeout, api.shutdown.clone());
    let mut response = body::respond(StatusCode::OK, content_type, "");
    *response.body_mut() = body::streaming(parts);
    Ok(response)
}

fn timeout(asked: Option<i64>) -> Duration {
    match asked.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0) {
        Some(seconds) => Duration::from_secs(seconds),
        None => WATCH_MIN.mul_f64(1.0 + rand::random::<f64>()),
    }
}
