//! The peer port: what a member tells other members over HTTP.
//!
//! As etcd's (server/etcdserver/api/etcdhttp/peer.go) it answers `/version`,
//! `/members`, `/members/promote/<id>` and `/downgrade/enabled`. What carries the
//! log between members is gRPC on the same port ([`crate::peers`]).

use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use hyper::body::Incoming;
use serde_json::json;
use tonic::Status;

use crate::{
    edge::{
        Reply,
        answer::{self, Answer, JSON, TEXT},
        plain::version,
    },
    handle::Handle,
};

const PROMOTE: &str = "/members/promote/";
const CLUSTER_ID: HeaderName = HeaderName::from_static("x-etcd-cluster-id");

/// Answers one call of another member.
pub(crate) async fn call(request: Request<Incoming>, handle: &Handle) -> Reply {
    match handle.shared.peers.get() {
        Some(peers) => peers.answer(request).await,
        None => Status::unavailable("the member is starting, or alone").into_http(),
    }
}

/// Answers one request.
pub(crate) fn answer<B>(request: &Request<B>, handle: &Handle) -> Answer {
    let path = request.uri().path();
    let allowed = match path {
        "/version" | "/members" | "/downgrade/enabled" => Method::GET,
        path if path.starts_with(PROMOTE) => Method::POST,
        _ => {
            return answer::not_found();
        }
    };
    if *request.method() != allowed {
        return wrong_method(&allowed);
    }
    let mut reply = match path {
        "/version" => return version(),
        "/members" => members(handle),
        "/downgrade/enabled" => answer::whole(StatusCode::OK, TEXT, "false"),
        path => promote(path.trim_start_matches(PROMOTE), handle),
    };
    let cluster = format!("{:x}", handle.shared.ids.cluster);
    if let Ok(cluster) = HeaderValue::from_str(&cluster) {
        reply.headers_mut().insert(CLUSTER_ID, cluster);
    }
    reply
}

fn wrong_method(allowed: &Method) -> Answer {
    let mut reply = answer::refusal(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    if let Ok(allowed) = HeaderValue::from_str(allowed.as_str()) {
        reply.headers_mut().insert(header::ALLOW, allowed);
    }
    reply
}

fn members(handle: &Handle) -> Answer {
    let shared = &handle.shared;
    let members = json!([{
        "id": shared.ids.member,
        "peerURLs": shared.config.initial_advertise_peer_urls,
        "name": shared.config.name,
        "clientURLs": shared.client_urls.get(),
    }]);
    answer::whole(StatusCode::OK, JSON, format!("{members}\n"))
}

/// Refuses to promote: the only member votes already.
fn promote(id: &str, handle: &Handle) -> Answer {
    let (status, words) = match id.parse::<u64>() {
        Ok(id) if id == handle.shared.ids.member => (
            StatusCode::PRECONDITION_FAILED,
            "membership: can only promote a learner member".to_owned(),
        ),
        Ok(_) => (StatusCode::NOT_FOUND, "membership: ID not found".to_owned()),
        Err(_) => (
            StatusCode::NOT_FOUND,
            format!("member {id} not found in cluster"),
        ),
    };
    answer::refusal(status, &words)
}
