//! `scale`: the replica count of a workload as an `autoscaling/v1` Scale. Who
//! owns the count is told by the Scale, and carried back to the workload.

use std::sync::{Arc, LazyLock};

use http::{Response, StatusCode};
use meta::{GroupVersionKind, Status, value};
use registry::fieldmerge::{self, Managed, ReplicasPaths, Served, Writer, scaled};
use registry::json::Decoded;
use registry::kind::Endpoint;
use registry::{Kind, scale};
use serde_json::Value;

use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::fields::Manager;
use crate::input;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::query::WriteOptions;
use crate::request_info::Verb;
use crate::respond;
use crate::storage::ReadVersion;
use crate::verbs::{self, Change, Language, store_change};

/// The definition of what is exchanged.
const DEFINITION: &str = "io.k8s.api.autoscaling.v1.Scale";

/// What field merge knows of a Scale.
static SERVED: LazyLock<Option<Served>> = LazyLock::new(|| Served::exchanged(DEFINITION, gvk()));

fn gvk() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

pub(super) async fn serve(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let kind = target.kind();
    let language = match cx.info.verb {
        Verb::Patch => Some(Language::of(&cx.headers)?),
        _ => None,
    };
    let accepted = cx.accept(Offer::Plain)?;
    let answer = |cx: &Context, view: &Value| {
        let scale = scale::read_of(kind, view)?;
        respond::plain(cx, accepted, StatusCode::OK, &scale)
    };
    if cx.info.verb == Verb::Get {
        let version = ReadVersion::parse(cx.query.get("resourceVersion").unwrap_or_default())?;
        let object = target
            .store()
            .get(target.ns(), &target.name, version)
            .await?;
        return answer(cx, &respond::view(kind, &object)?);
    }
    let options = match language {
        None => WriteOptions::read(&cx.query, "UpdateOptions")?,
        Some(Language::Apply) => WriteOptions::read_apply(&cx.query)?,
        Some(_) => WriteOptions::read_patch(&cx.query)?,
    };
    let write = read(cx, body, language).await?;
    let manager = Manager::of(cx, &options);
    let served = SERVED.as_ref();
    let served = served.ok_or_else(|| Status::internal("no schema for Scale"))?;
    let scaling = Scaling {
        kind,
        paths: ReplicasPaths::of(kind),
        writer: served.writer(manager.name(), manager.subresource(), manager.now()),
        options: &options,
    };
    let change = Change {
        endpoint: Endpoint::Other,
        dry_run: options.dry_run,
        by: None,
        new: &|old: &Value| scaling.scaled(old, &write),
        body: None,
    };
    let done = store_change(api, cx, target, change).await?;
    answer(cx, &done.view(kind)?)
}

/// A write of a Scale that was read but not carried out.
enum Write {
    Replace(Value),
    Patch(verbs::Patch),
    Apply(Decoded),
}

async fn read(
    cx: &mut Context,
    body: BoxBody,
    language: Option<Language>,
) -> Result<Write, Status> {
    Ok(match language {
        Some(Language::Apply) => Write::Apply(verbs::read_config(body).await?),
        Some(language) => Write::Patch(verbs::read_patch(language, body).await?),
        None => {
            let scale = input::read_small(cx, body, "Scale").await?;
            let scale = scale.ok_or_else(|| Status::bad_request("a Scale is needed"))?;
            Write::Replace(check(scale)?)
        }
    })
}

/// How one kind is scaled by one writer.
struct Scaling<'a> {
    kind: &'a Kind,
    paths: ReplicasPaths,
    writer: Writer<'a>,
    options: &'a WriteOptions,
}

impl Scaling<'_> {
    /// Carries out a write of an object's Scale; returns the object to store.
    fn scaled(&self, object: &Value, write: &Write) -> Result<Value, Status> {
        let owned = Managed::of(object).map_err(Status::internal)?;
        let mut old = scale::read_of(self.kind, object)?;
        scaled::to_scale(&owned, &self.paths).write(&mut old);
        let updated = |new| fieldmerge::update(Some(&old), new, &self.writer);
        let new = match write {
            Write::Replace(scale) => updated(scale.clone()),
            Write::Patch(patch) => {
                let mut scale = patch.apply_plain(&old)?;
                let patched = scale.clone();
                conform(&mut scale).map_err(|e| patch.misfit(&patched, &e))?;
                updated(scale)
            }
            Write::Apply(config) => self.applied(&old, config)?,
        };
        let owners = Managed::of(&new).map_err(Status::internal)?;
        let version = self.kind.api_version();
        let owners = scaled::to_object(&owned, &owners, &self.paths, &version);
        let mut result = scale::write(self.kind, object, &new)?;
        let replaces = matches!(write, Write::Replace(_));
        let unversioned = value::str_at(&new, "metadata.resourceVersion").is_empty();
        if replaces && unversioned && self.kind.unconditional_update {
            value::set_metadata(&mut result, "resourceVersion", Value::Null);
        }
        owners.write(&mut result);
        Ok(result)
    }

    fn applied(&self, old: &Value, config: &Decoded) -> Result<Value, Status> {
        let merged = verbs::merged(Some(old), config, &self.writer, self.options)?;
        let Some(mut new) = merged else {
            return Ok(old.clone());
        };
        conform(&mut new).map_err(|e| verbs::not_an_object(&new, &gvk(), &e))?;
        Ok(new)
    }
}

/// Checks the types of a Scale.
fn check(mut scale: Value) -> Result<Value, Status> {
    conform(&mut scale).map_err(|e| Status::bad_request(e.message(&gvk())))?;
    Ok(scale)
}

fn conform(scale: &mut Value) -> Result<(), registry::schema::TypeError> {
    if let Some(def) = registry::table::table().id(DEFINITION) {
        registry::schema::conform(def, scale)?;
    }
    Ok(())
}
