//! `ephemeralcontainers`, `resize`: parts of a pod that change through doors of
//! their own. What may change there is `registry::podparts`' to say.

use std::sync::Arc;

use http::Response;
use meta::Status;
use registry::kind::Endpoint;
use registry::podparts::Part;
use serde_json::Value;

use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::fields::Manager;
use crate::input;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::query::WriteOptions;
use crate::request_info::Verb;
use crate::verbs::{self, Change, Language, read_patch, store_change};

pub(super) async fn serve(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    part: Part,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let kind = target.kind();
    let accepted = cx.accept(Offer::Resource)?;
    let done = match cx.info.verb {
        Verb::Update => {
            let options = WriteOptions::read(&cx.query, "UpdateOptions")?;
            let manager = Manager::of(cx, &options);
            let (mut new, _) =
                input::read_object(cx, body, kind, options.field_validation, || None).await?;
            verbs::check_name(target, &new)?;
            kind.strategy().default(&mut new);
            let new = |old: &Value| part(kind, &new, old);
            let change = Change {
                endpoint: Endpoint::Other,
                dry_run: options.dry_run,
                by: Some(manager.writer(target, Endpoint::Other)?),
                new: &new,
                body: None,
            };
            store_change(api, cx, target, change).await?
        }
        Verb::Patch => {
            let language = Language::of(&cx.headers)?;
            if language == Language::Apply {
                return verbs::through(api, cx, target, Endpoint::Other, body).await;
            }
            let options = WriteOptions::read_patch(&cx.query)?;
            let patch = read_patch(language, body).await?;
            let manager = Manager::of(cx, &options);
            let new = |old: &Value| {
                let mut new = patch.apply(kind, old)?;
                kind.conform(&mut new)?;
                kind.strategy().default(&mut new);
                part(kind, &new, old)
            };
            let change = Change {
                endpoint: Endpoint::Other,
                dry_run: options.dry_run,
                by: Some(manager.writer(target, Endpoint::Other)?),
                new: &new,
                body: None,
            };
            store_change(api, cx, target, change).await?
        }
        _ => return verbs::through(api, cx, target, Endpoint::Other, body).await,
    };
    done.respond(cx, accepted, kind)
}
