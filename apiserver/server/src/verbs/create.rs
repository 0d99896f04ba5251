//! `create`: decoded, defaulted, admitted, validated, stored.

use std::sync::Arc;

use http::{Response, StatusCode};
use meta::{Reason, Status, value};
use registry::fieldmerge::{self, Writer};
use registry::kind::Endpoint;
use registry::rest::{self, CreateFacts};
use serde_json::Value;

use crate::admission;
use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::fields::Manager;
use crate::input;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::query::WriteOptions;
use crate::{respond, services};

/// How many names are generated before giving up (upstream: 8).
const NAME_ATTEMPTS_MAX: usize = 8;

pub(super) async fn create(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let kind = target.kind();
    if kind.namespaced && target.namespace.is_none() {
        return Err(Status::method_not_supported(
            &kind.group_resource(),
            "create",
        ));
    }
    let options = WriteOptions::read(&cx.query, "CreateOptions")?;
    let accepted = cx.accept(Offer::Resource)?;
    let (object, _) = input::read_object(cx, body, kind, options.field_validation, || None).await?;
    let manager = Manager::of(cx, &options);
    let by = Some(manager.writer(target, Endpoint::Main)?);
    let made = admit_and_store(api, cx, target, object, options.dry_run, by).await?;
    match made {
        Made::Stored(object) => respond::object(cx, accepted, StatusCode::CREATED, kind, &object),
        Made::DryRun(view) => respond::value(cx, accepted, StatusCode::CREATED, kind, view),
    }
}

/// What came of a creation.
pub(super) enum Made {
    Stored(Arc<meta::Object>),
    DryRun(Value),
}

/// Creates an object that was decoded. It becomes its writer's, but for what
/// admission and the server itself add; without a writer its ownership is told.
pub(super) async fn admit_and_store(
    api: &Api,
    cx: &mut Context,
    target: &Target,
    mut object: Value,
    dry_run: bool,
    by: Option<Writer<'_>>,
) -> Result<Made, Status> {
    let kind = target.kind();
    if let (true, Some(ns)) = (kind.namespaced, target.ns())
        && value::namespace(&object).is_empty()
    {
        value::set_metadata(&mut object, "namespace", ns);
    }
    kind.strategy().default(&mut object);
    if let Some(writer) = &by {
        object = fieldmerge::update(None, object, writer);
    }
    admission::admit(api, target, &mut object).await?;
    cx.warnings.extend(kind.strategy().warnings(&object, None));
    let generated = value::name(&object).is_empty()
        && !value::str_at(&object, "metadata.generateName").is_empty();
    let attempts = if generated { NAME_ATTEMPTS_MAX } else { 1 };
    let mut taken = None;
    for _ in 0..attempts {
        let mut attempt = match generated {
            true => object.clone(),
            false => std::mem::take(&mut object),
        };
        let facts = CreateFacts {
            namespace: target.ns(),
            uid: uuid::Uuid::new_v4().to_string(),
            now: jiff::Timestamp::now(),
            random: rand::random(),
        };
        let who = cx.facts();
        kind.strategy()
            .stamp(Endpoint::Main, &mut attempt, None, &who);
        rest::before_create(kind, &mut attempt, &facts)?;
        match store(api, target, attempt, dry_run).await {
            Err(status) if generated && status.reason == Reason::AlreadyExists => {
                taken = Some(status);
            }
            Err(status) => return Err(explain_taken(target, status).await),
            Ok(made) => return Ok(made),
        }
    }
    Err(super::exhausted_names(
        taken.unwrap_or_else(|| Status::internal("no name was tried")),
    ))
}

async fn store(
    api: &Api,
    target: &Target,
    mut object: Value,
    dry_run: bool,
) -> Result<Made, Status> {
    let kind = target.kind();
    let name = value::name(&object).to_owned();
    // Held until the service is stored, so that no address is given twice.
    let claim = services::claim(api, kind, &mut object, None, dry_run).await?;
    if dry_run {
        let existing = target
            .store()
            .get(target.ns(), &name, crate::storage::ReadVersion::Unset)
            .await;
        return match existing {
            Ok(_) => Err(Status::already_exists(&kind.group_resource(), &name)),
            Err(s) if s.reason == Reason::NotFound => {
                Ok(Made::DryRun(super::unstored(kind, object, None)))
            }
            Err(s) => Err(s),
        };
    }
    kind.to_storage(&mut object);
    let made = target
        .store()
        .create(target.ns(), &name, object, None)
        .await;
    claim.settle(api, made.as_deref().ok()).await;
    made.map(Made::Stored)
}

/// Says so when the name is taken by an object that is going away.
async fn explain_taken(target: &Target, mut status: Status) -> Status {
    if status.reason == Reason::AlreadyExists {
        let name = status
            .details
            .as_ref()
            .map(|d| d.name.clone())
            .unwrap_or_default();
        let unset = crate::storage::ReadVersion::Unset;
        if let Ok(object) = target.store().get(target.ns(), &name, unset).await
            && object.meta.deletion_timestamp.is_some()
        {
            status.message = format!("object is being deleted: {}", status.message);
        }
    }
    status
}
