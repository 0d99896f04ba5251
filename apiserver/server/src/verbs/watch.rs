//! `watch`: changes as they happen, from a point the client names.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use meta::Status;

use super::list::{Asked, selector};
use super::watch_body::{self, Encoder};
use super::watch_socket as socket;
use crate::api::{Api, Target};
use crate::body::{self, BoxBody};
use crate::negotiation::{Media, Offer, accept_stream};
use crate::pipeline::Context;
use crate::request_info::ResourceRequest;
use crate::storage::{ReadVersion, VersionMatch, WatchRequest};

/// How long a watch lasts at least when the client does not say; up to twice
/// as long, at random, so that watches do not all end together. (Upstream:
/// `--min-request-timeout`, 1800 s.)
const WATCH_MIN: Duration = Duration::from_secs(1800);

pub(super) async fn watch(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    r: &ResourceRequest,
) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Resource)?;
    let query = &cx.query;
    let asked = Asked::read(query, true)?;
    let mut selector = selector(query, target)?;
    if r.name_in_path {
        // The deprecated `/watch/` paths name an object.
        let other = match selector.name.replace(target.name.clone()) {
            Some(named) => named != target.name,
            None => !selector.fields.is_empty(),
        };
        if other {
            return Err(Status::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            ));
        }
    }
    let timeout = timeout(asked.timeout_seconds);
    let content_type = accept_stream(accepted)?;
    let stream = target
        .store()
        .watch(WatchRequest {
            selector,
            version: ReadVersion::parse(asked.version)?,
            version_match: VersionMatch::parse(asked.version_match)?,
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: asked.send_initial_events,
            timeout: Some(timeout),
        })
        .await?;
    let counted = api.metrics.watch_events(r);
    let kind = target.resource.kind.clone();
    let encoder = Encoder::new(kind, accepted, &cx.query, counted)?;
    if let Some(upgrade) = cx.upgrade.take_if(|_| socket::asked_for(&cx.headers)) {
        let text = accepted.media != Media::Protobuf;
        let events = watch_body::events(stream, encoder, timeout, api.shutdown.clone());
        return socket::answer(&cx.headers, upgrade, events, text);
    }
    let parts = watch_body::parts(stream, encoder, timeout, api.shutdown.clone());
    let mut response = body::respond(StatusCode::OK, content_type, "");
    *response.body_mut() = parts;
    Ok(response)
}

fn timeout(asked: Option<i64>) -> Duration {
    match asked.filter(|s| *s != 0) {
        // Less than none is over at once.
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        None => WATCH_MIN.mul_f64(1.0 + rand::random::<f64>()),
    }
}
