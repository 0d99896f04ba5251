//! `update`: the object replaced, and the compare-and-swap that patches and
//! subresources share with it.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Response, StatusCode};
use meta::marks::{Marked, Same};
use meta::{Object, Reason, Status, value};
use registry::Kind;
use registry::fieldmerge::{self, Writer};
use registry::kind::{Endpoint, Facts, SPEC};
use registry::rest::{self, Desired};
use serde_json::Value;

use super::create;
use crate::admission;
use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::fields::Manager;
use crate::input::{self, ObjectBody};
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::query::WriteOptions;
use crate::respond;
use crate::services;
use crate::storage::{Next, Preconditions};

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
    let draft = || target.store().draft(target.ns(), &target.name);
    let (mut new, read) =
        input::read_object(cx, body, kind, options.field_validation, draft).await?;
    check_name(target, &new)?;
    let default = |new: &mut Value| {
        if !read.is_settled() {
            kind.strategy().default(new);
        }
    };
    default(&mut new);
    let manager = Manager::of(cx, &options);
    let by = Some(manager.writer(target, endpoint)?);
    // Nearly always it is wanted once, and so it is not copied but read anew when not.
    let first = Mutex::new(Some(new));
    let take = || first.lock().unwrap_or_else(PoisonError::into_inner).take();
    let object = || {
        take().map_or_else(
            || {
                let mut new = read.again(kind)?;
                default(&mut new);
                Ok(new)
            },
            Ok,
        )
    };
    let replace = |_: &Value| object();
    let change = Change {
        endpoint,
        dry_run: options.dry_run,
        by,
        new: &replace,
        body: Some(&read),
    };
    match store_change(api, cx, target, change).await {
        Ok(done) => done.respond(cx, accepted, kind),
        Err(s) if missing(&s) && kind.create_on_update && endpoint == Endpoint::Main => {
            let new = object()?;
            if !value::str_at(&new, "metadata.resourceVersion").is_empty() {
                return Err(s);
            }
            let dry_run = options.dry_run;
            match create::admit_and_store(api, cx, target, new, dry_run, by).await? {
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

/// Tells whether what was to be changed is not there.
pub(super) fn missing(status: &Status) -> bool {
    status.reason == Reason::NotFound
}

/// Refuses a body whose name is not the URL's.
pub(crate) fn check_name(target: &Target, new: &Value) -> Result<(), Status> {
    let (given, name) = (value::name(new), &target.name);
    if given.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
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
    /// Who comes to own what changes; nobody where the new view says already who
    /// owns what, or where the server changes it on its own.
    pub(crate) by: Option<Writer<'a>>,
    /// Makes the new view of the current one; may run many times. The result
    /// has been defaulted and admitted.
    pub(crate) new: &'a (dyn Fn(&Value) -> Result<Value, Status> + Send + Sync),
    /// The body that the new view is, where it comes whole.
    pub(crate) body: Option<&'a ObjectBody>,
}

impl<'a> Change<'a> {
    /// Finds what is known of an attempt on what is stored. What is written in the new
    /// view as it was stored is the same, since it had been found right by rules that do
    /// not change.
    fn attempt(
        &self,
        kind: &Kind,
        (guard, who): (&'a admission::Guard, &'a Facts<'a>),
        stored: Option<Marked<'_>>,
    ) -> Attempt<'a> {
        let text = self.body.and_then(ObjectBody::marked);
        let same = text.zip(stored).map(|(text, stored)| text.same_as(stored));
        let same = same.unwrap_or_default();
        Attempt {
            settled: self.body.is_some_and(ObjectBody::is_settled) && kind.is_settled(&same),
            guard,
            who,
            same,
        }
    }
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

/// What is known of one attempt at a change, whatever the object is by then.
struct Attempt<'a> {
    guard: &'a admission::Guard,
    who: &'a Facts<'a>,
    /// What is known to be the same before and after.
    same: Same<'a>,
    /// Whether the specification need not be looked at.
    settled: bool,
}

/// Returns what a change makes of an object, owned, admitted and checked.
fn next(
    target: &Target,
    change: &Change<'_>,
    attempt: &Attempt<'_>,
    old: &Value,
    version: &str,
) -> Result<(Value, Desired), Status> {
    let kind = target.kind();
    let mut new = (change.new)(old)?;
    attempt.guard.check(target, change.endpoint, &new)?;
    super::check_version(target, &new, version)?;
    value::set_metadata(&mut new, "resourceVersion", version);
    if let Some(writer) = &change.by {
        new = fieldmerge::update_but(Some(old), new, writer, &attempt.same);
    }
    if change.endpoint == Endpoint::Main && !attempt.settled {
        registry::admission::admit_update(kind, &mut new)?;
    }
    let strategy = kind.strategy();
    strategy.stamp(change.endpoint, &mut new, Some(old), attempt.who);
    let settled = attempt.settled;
    let desired = rest::before_update_but(kind, change.endpoint, &mut new, old, settled)?;
    Ok((new, desired))
}

/// Returns a stored object in a kind's own form, which most are in.
fn own_form<'a>(kind: &Kind, stored: &'a Value) -> Cow<'a, Value> {
    if kind.is_stored_form() {
        return Cow::Borrowed(stored);
    }
    let mut own = stored.clone();
    kind.from_storage(&mut own);
    Cow::Owned(own)
}

fn warnings_of(kind: &Kind, desired: Desired, new: &Value, old: &Value) -> Vec<String> {
    match desired {
        Desired::Settled => Vec::new(),
        Desired::Open => kind.strategy().warnings(new, Some(old)),
    }
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
    let who = cx.facts();
    let guard = admission::Guard::of(api, target).await?;
    let outcome = target
        .store()
        .update(
            target.ns(),
            &target.name,
            &Preconditions::default(),
            |object, stored| {
                (ends, would_be) = (None, None);
                let old = own_form(kind, &stored.tree);
                let version = object.resource_version.to_string();
                let by = change.attempt(kind, (&guard, &who), stored.marked(object));
                let (mut new, desired) = next(target, change, &by, &old, &version)?;
                if needs_address {
                    claim.fill(api, kind, &mut new, &old)?;
                }
                warnings = warnings_of(kind, desired, &new, &old);
                freed = services::freed(kind, &old, &new);
                if rest::ends_deletion(kind, &new, &old) {
                    ends = Some(version);
                    return Ok(None);
                }
                // What is stored otherwise than it is served is written anew.
                let same = !object.renewed && fieldmerge::same_but_times(&old, &new);
                if change.dry_run {
                    let view = if same { old.into_owned() } else { new };
                    would_be = Some(super::unstored(kind, view, Some(&version)));
                    return Ok(None);
                }
                if same {
                    return Ok(None);
                }
                kind.to_storage(&mut new);
                Ok(Some(Next {
                    tree: new,
                    kept: by.settled.then_some(SPEC),
                    checked: change.body.is_some() && change.endpoint == Endpoint::Main,
                }))
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
