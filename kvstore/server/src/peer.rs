//! The peer port: what a member tells other members over HTTP.
//!
//! As etcd's (server/etcdserver/api/etcdhttp/peer.go) it answers `/version`,
//! `/members`, `/members/promote/<id>` and `/downgrade/enabled`. What carries the
//! log between members is gRPC on the same port ([`crate::peers`]).

use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use hyper::body::Incoming;
use mvcc::{Error, MemberCommand};
use serde_json::{Value, json};
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
pub(crate) async fn answer<B>(request: &Request<B>, handle: &Handle) -> Answer {
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
        path => promote(path.trim_start_matches(PROMOTE), handle).await,
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
    let members = handle.members().into_iter().map(|member| {
        let mut shown = json!({
            "id": member.id,
            "peerURLs": member.peer_ur_ls,
            "name": member.name,
            "clientURLs": member.client_ur_ls,
        });
        if member.is_learner {
            shown["isLearner"] = json!(true);
        }
        shown
    });
    let members = Value::Array(members.collect());
    answer::whole(StatusCode::OK, JSON, format!("{members}\n"))
}

/// Lets a learner vote, in the words of etcd's membership errors.
async fn promote(id: &str, handle: &Handle) -> Answer {
    let Ok(number) = id.parse::<u64>() else {
        let words = format!("member {id} not found in cluster");
        return answer::refusal(StatusCode::NOT_FOUND, &words);
    };
    let promoted = handle.change_members(MemberCommand::Promote(number)).await;
    let Err(error) = promoted else {
        return members(handle);
    };
    let is = |one: Error| error.message == one.to_string();
    let (status, words) = if is(Error::MemberNotFound) {
        (StatusCode::NOT_FOUND, "membership: ID not found")
    } else if is(Error::MemberNotLearner) {
        (
            StatusCode::PRECONDITION_FAILED,
            "membership: can only promote a learner member",
        )
    } else if is(Error::LearnerNotReady) {
        (StatusCode::PRECONDITION_FAILED, error.message.as_str())
    } else {
        (StatusCode::INTERNAL_SERVER_ERROR, error.message.as_str())
    };
    answer::refusal(status, words)
}
