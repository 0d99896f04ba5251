//! Resources that are read but not stored: what they answer is found when it is
//! asked for.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Response, StatusCode};
use meta::{Status, value};
use registry::Kind;
use serde_json::{Value, json};

use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::request_info::Verb;
use crate::{health, respond};

/// Finds the objects there are.
type Find = for<'a> fn(&'a Api, &'a Kind) -> BoxFuture<'a, Vec<Value>>;

/// Group, resource, and what finds its objects.
const COMPUTED: &[(&str, &str, Find)] = &[("", "componentstatuses", components)];

/// Returns what finds the objects of a kind, if none are stored.
fn find(kind: &Kind) -> Option<Find> {
    let of =
        |(group, plural, _): &&(&str, &str, Find)| (*group, *plural) == (kind.group, kind.plural);
    COMPUTED.iter().find(of).map(|(_, _, find)| *find)
}

/// Answers a read of such a resource; `None` for others.
pub(crate) async fn answer(
    api: &Arc<Api>,
    cx: &Context,
    target: &Target,
) -> Option<Result<Response<BoxBody>, Status>> {
    let kind = target.kind();
    let objects = find(kind)?(api, kind).await;
    Some(reply(cx, target, objects))
}

fn reply(cx: &Context, target: &Target, objects: Vec<Value>) -> Result<Response<BoxBody>, Status> {
    let kind = target.kind();
    let accepted = cx.accept(Offer::Resource)?;
    if cx.info.verb == Verb::Get {
        let found = objects.into_iter().find(|o| value::name(o) == target.name);
        let found = found.ok_or_else(|| Status::not_found(&kind.group_resource(), &target.name))?;
        return respond::value(cx, accepted, StatusCode::OK, kind, found);
    }
    respond::values(cx, accepted, kind, json!({}), objects)
}

/// Finds the components: the store, which is the one whose health is known.
fn components<'a>(api: &'a Api, kind: &'a Kind) -> BoxFuture<'a, Vec<Value>> {
    Box::pin(async move {
        let condition = match health::store_answers(api).await {
            true => json!({"type": "Healthy", "status": "True", "message": "ok"}),
            false => json!({"type": "Healthy", "status": "False",
                "message": "the store does not answer", "error": "timeout"}),
        };
        let mut object = json!({"metadata": {"name": "etcd-0"}, "conditions": [condition]});
        value::set_type_meta(&mut object, &kind.gvk());
        vec![object]
    })
}
