//! `update`: the object replaced, and the compare-and-swap that patches and
//! subresources share with it.

use std::sync::Arc;

use http::{Response, StatusCode};
use meta::{Object, Reason, Status, value};
use registry::Kind;
use registry::kind::Endpoint;
use registry::rest;
use serde_json::Value;

use super::create;
use crate::admission::{self, Operation};
use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::input;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::query::WriteOptions;
use crate::respond;
use crate::services;
use crate::storage::Preconditions;

/// How often a service's update is tried anew because another one took the
/// address it was about to get; then the conflict is the client's.
const ADDRESS_ATTEMPTS_MAX: usize = 4;

pub(super) async fn update(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    endpoint: Endpoint,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let kind = target.kind();
    let options = WriteOptions::read(&cx.query, "UpdateOptions")?;
    let accepted = cx.accept(Offer::Resource)?;
    let mut new = input::read_object(cx, body, kind, options.field_validation).await?;
    check_name(target, &new)?;
    kind.strategy.default(&mut new);
    admission::admit(api, target, Operation::Update, &mut new).await?;
    let replace = |_: &Value| Ok(new.clone());
    let change = Change {
        endpoint,
        dry_run: options.dry_run,
        new: &replace,
    };
    match store_change(api, cx, target, change).await {
        Ok(done) => done.respond(cx, accepted, kind),
        Err(s) if missing(&s) && kind.create_on_update && endpoint == Endpoint::Main => {
            if !value::str_at(&new, "metadata.resourceVersion").is_empty() {
                return Err(s);
            }
            match create::admit_and_store(api, cx, target, new.clone(), options.dry_run).await? {
                create::Made::Stored(o) => {
                    respond::object(cx, accepted, StatusCode::CREATED, kind, &o)
                }
                create::Made::DryRun(v) => {
                    respond::value(cx, accepted, StatusCode::CREATED, kind, v)
                }
            }
        }
        Err(s) => Err(s),
    }
}

fn missing(status: &Status) -> bool {
    status.reason == Reason::NotFound
}

/// Refuses a body whose name or namespace is not the URL's.
fn check_name(target: &Target, new: &Value) -> Result<(), Status> {
    let (given, name) = (value::name(new), &target.name);
    if given.is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    if given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// A change of an object that exists.
pub(crate) struct Change<'a> {
    /// Through which door it comes.
    pub(crate) endpoint: Endpoint,
    /// Whether nothing is stored.
    pub(crate) dry_run: bool,
    /// Makes the new view of the current one; may run many times. The result
    /// has been defaulted and admitted.
    pub(crate) new: &'a (dyn Fn(&Value) -> Result<Value, Status> + Send + Sync),
}

/// What came of a change.
pub(crate) enum Done {
    /// The object as it is now, or was when it went.
    Stored(Arc<Object>),
    /// The object as it would be.
    DryRun(Value),
}

impl Done {
    /// Answers the object.
    pub(crate) fn respond(
        self,
        cx: &Context,
        accepted: crate::negotiation::Accepted,
        kind: &Kind,
    ) -> Result<Response<BoxBody>, Status> {
        match self {
            Self::Stored(o) => respond::object(cx, accepted, StatusCode::OK, kind, &o),
            Self::DryRun(v) => respond::value(cx, accepted, StatusCode::OK, kind, v),
        }
    }

    /// Returns the object's view.
    pub(crate) fn view(&self, kind: &Kind) -> Result<Value, Status> {
        match self {
            Self::Stored(o) => respond::view(kind, o),
            Self::DryRun(v) => Ok(v.clone()),
        }
    }
}

/// Makes a change by compare-and-swap: validated against the very state it
/// replaces, tried again on a newer one. A change that empties the finalizers
/// of an object that is being deleted removes it.
pub(crate) async fn store_change(
    api: &Api,
    cx: &mut Context,
    target: &Target,
    change: Change<'_>,
) -> Result<Done, Status> {
    let needs_address = services::may_need_address(target.kind(), change.endpoint);
    let attempts = if needs_address {
        ADDRESS_ATTEMPTS_MAX
    } else {
        1
    };
    let mut conflict = None;
    for _ in 0..attempts {
        match attempt(api, cx, target, &change, needs_address).await {
            Err(s) if needs_address && s.has_cause(services::RETRY) => conflict = Some(s),
            other => return other,
        }
    }
    Err(conflict.unwrap_or_else(|| Status::internal("no attempt was made")))
}

async fn attempt(
    api: &Api,
    cx: &mut Context,
    target: &Target,
    change: &Change<'_>,
    needs_address: bool,
) -> Result<Done, Status> {
    let kind = target.kind();
    let claim = match needs_address {
        true => services::prepare(api, target, change.new).await?,
        false => services::Claim::none(),
    };
    let mut warnings = Vec::new();
    let mut ends = None;
    let mut would_be = None;
    let mut freed = services::Freed::default();
    let outcome = target
        .store()
        .guaranteed_update(
            target.ns(),
            &target.name,
            &Preconditions::default(),
            |object, mut old| {
                (ends, would_be) = (None, None);
                kind.from_storage(&mut old);
                let mut new = (change.new)(&old)?;
                let version = object.resource_version.to_string();
                super::check_version(target, &new, &version)?;
                rest::before_update(kind, change.endpoint, &mut new, &old)?;
                if needs_address {
                    claim.fill(api, kind, &mut new, &old)?;
                }
                warnings = kind.strategy.warnings(&new, Some(&old));
                freed = services::freed(kind, &old, &new);
                if rest::ends_deletion(kind, &new, &old) {
                    ends = Some(version);
                    return Ok(None);
                }
                if change.dry_run {
                    would_be = Some(super::unstored(kind, new, Some(&version)));
                    return Ok(None);
                }
                kind.to_storage(&mut new);
                Ok(Some(new))
            },
        )
        .await;
    let stored = outcome.as_ref().ok().filter(|_| !change.dry_run);
    claim.settle(api, stored.map(|o| &*o.object)).await;
    let outcome = outcome?;
    cx.warnings.extend(warnings);
    if let Some(view) = would_be {
        return Ok(Done::DryRun(view));
    }
    if let (Some(version), false) = (ends, change.dry_run) {
        let exactly = Preconditions {
            uid: None,
            resource_version: Some(version),
        };
        let gone = super::remove(api, target, &target.name, target.ns(), &exactly).await?;
        return Ok(Done::Stored(gone));
    }
    services::give_back_freed(api, freed, &outcome.object).await;
    Ok(Done::Stored(outcome.object))
}
