//! What every write goes through, whatever the kind: the metadata rules of
//! create, update and delete, with the kind's strategy called at its places.
//!
//! These are the pure halves of upstream's generic registry
//! (`apiserver/pkg/registry/rest` and `…/generic/registry/store.go`); reading,
//! compare-and-swap and writing are the caller's. The order on create is
//! decode, conform to the schema, [`Strategy::default`], admission,
//! [`before_create`], store.
//!
//! [`Strategy::default`]: crate::kind::Strategy::default

use jiff::{SignedDuration, Timestamp};
use meta::value::{self, at, set_metadata, str_at};
use meta::{FieldError, GroupResource, GroupVersionKind, Status};
use serde_json::Value;

use crate::kind::{Endpoint, Kind, Propagation, SPEC, copy_field, put};
use crate::validate;

/// The finalizer that keeps an object until its dependents are gone.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that keeps an object until its dependents are released.
pub const ORPHAN: &str = "orphan";

/// What the caller adds to an object that is created.
#[derive(Clone, Debug)]
pub struct CreateFacts<'a> {
    /// The namespace of the URL; `None` at cluster scope.
    pub namespace: Option<&'a str>,
    /// A fresh uid.
    pub uid: String,
    /// The time.
    pub now: Timestamp,
    /// Random bits for a generated name; take others on each attempt.
    pub random: u64,
}

/// Checks and completes an object that has been defaulted and admitted, so
/// that it can be stored. A generated name has to be tried again with other
/// random bits when it is taken.
pub fn before_create(
    kind: &Kind,
    object: &mut Value,
    facts: &CreateFacts<'_>,
) -> Result<(), Status> {
    check_namespace(kind, object, facts.namespace)?;
    if !str_at(object, "metadata.resourceVersion").is_empty() {
        return Err(Status::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    for name in [
        "selfLink",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        set_metadata(object, name, Value::Null);
    }
    value::set_type_meta(object, &kind.gvk());
    set_metadata(object, "uid", facts.uid.as_str());
    set_metadata(object, "creationTimestamp", meta::time::format(facts.now));
    let base = str_at(object, "metadata.generateName").to_owned();
    if value::name(object).is_empty() && !base.is_empty() {
        set_metadata(
            object,
            "name",
            meta::names::generate_name(&base, facts.random),
        );
    }
    if kind.generation {
        set_metadata(object, "generation", 1);
    }
    kind.strategy().prepare_for_create(object);
    drop_empty_metadata(object);
    let mut errors = validate::metadata(kind, object);
    kind.strategy().validate(object, &mut errors);
    kind.strategy().validate_create(object, &mut errors);
    refuse_if_any(kind, object, errors)
}

/// What an update does to what is desired of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desired {
    /// It stays, and was checked when it was stored: nothing need be said of it.
    Settled,
    /// It may change.
    Open,
}

/// Checks and completes the new state of an object that exists. `new` has been
/// defaulted; `old` is the stored state, in the same version.
pub fn before_update(
    kind: &Kind,
    endpoint: Endpoint,
    new: &mut Value,
    old: &Value,
) -> Result<Desired, Status> {
    before_update_but(kind, endpoint, new, old, false)
}

/// Does as [`before_update`]; `settled` says that the specification need not be looked
/// at ([`Kind::is_settled`]).
pub fn before_update_but(
    kind: &Kind,
    endpoint: Endpoint,
    new: &mut Value,
    old: &Value,
    settled: bool,
) -> Result<Desired, Status> {
    check_namespace(
        kind,
        new,
        Some(value::namespace(old)).filter(|_| kind.namespaced),
    )?;
    if value::name(new).is_empty() {
        set_metadata(new, "name", value::name(old));
    } else if value::name(new) != value::name(old) {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            value::name(new),
            value::name(old)
        )));
    }
    let asked = value::uid(new);
    if !asked.is_empty() && asked != value::uid(old) {
        return Err(uid_conflict(kind, old, asked));
    }
    value::set_type_meta(new, &kind.gvk());
    keep_system_metadata(new, old);
    kind.strategy().prepare_for_update(endpoint, new, old);
    keep_system_metadata(new, old);
    drop_empty_metadata(new);
    let strategy = kind.strategy();
    let mut errors = validate::metadata(kind, new);
    validate::metadata_update(new, old, &mut errors);
    if strategy.settles() && same_desired(new, old, settled) {
        return refuse_if_any(kind, new, errors).map(|()| Desired::Settled);
    }
    if kind.generation && endpoint != Endpoint::Status && strategy.changes_desired(new, old) {
        set_metadata(new, "generation", generation(old) + 1);
    }
    strategy.validate_change(new, old, &mut errors);
    strategy.validate_update(endpoint, new, old, &mut errors);
    refuse_if_any(kind, new, errors).map(|()| Desired::Open)
}

/// Tells whether two states of an object are the same but for metadata and status.
fn same_desired(new: &Value, old: &Value, settled: bool) -> bool {
    let (Value::Object(new), Value::Object(old)) = (new, old) else {
        return false;
    };
    let desired = |(name, _): &(&String, &Value)| match name.as_str() {
        "metadata" | "status" => false,
        SPEC => !settled,
        _ => true,
    };
    let of_old = old.iter().filter(desired);
    new.iter().filter(desired).eq(of_old)
}

/// Refuses a write that names another uid than the object has, in the words of
/// upstream's storage, which tells the key.
pub(crate) fn uid_conflict(kind: &Kind, object: &Value, asked: &str) -> Status {
    let mut key = format!("/registry/{}", kind.storage_prefix);
    for part in [value::namespace(object), value::name(object)] {
        if !part.is_empty() {
            key = format!("{key}/{part}");
        }
    }
    let is = value::uid(object);
    Status::conflict(
        &kind.group_resource(),
        value::name(object),
        &format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {asked}, UID in object meta: {is}"
        ),
    )
}

fn refuse_if_any(kind: &Kind, object: &Value, errors: Vec<meta::FieldError>) -> Result<(), Status> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(&kind.gvk(), value::name(object), &errors))
    }
}

fn check_namespace(kind: &Kind, object: &mut Value, namespace: Option<&str>) -> Result<(), Status> {
    let given = value::namespace(object);
    if !kind.namespaced {
        // Upstream wipes it when it comes with a cluster-scoped object.
        set_metadata(object, "namespace", Value::Null);
        return Ok(());
    }
    let namespace = namespace.unwrap_or_default();
    if given.is_empty() {
        set_metadata(object, "namespace", namespace);
    } else if given != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Drops what a patch that removed the last entry leaves behind; upstream's
/// types leave these out when they are empty.
fn drop_empty_metadata(object: &mut Value) {
    for name in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = match object.get("metadata").and_then(|m| m.get(name)) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            _ => false,
        };
        if empty {
            set_metadata(object, name, Value::Null);
        }
    }
}

/// Keeps what only the server sets.
fn keep_system_metadata(new: &mut Value, old: &Value) {
    let empty = Value::Null;
    let from = old.get("metadata").unwrap_or(&empty);
    value::metadata_mut(new);
    let Some(metadata) = new.get_mut("metadata") else {
        return;
    };
    for name in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ] {
        copy_field(metadata, from, name);
    }
    put(metadata, "selfLink", None);
}

fn generation(object: &Value) -> i64 {
    value::int_at(object, "metadata.generation").unwrap_or(0)
}

/// What a deletion asks for.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// The grace in seconds.
    pub grace_period_seconds: Option<i64>,
    /// What becomes of the dependents.
    pub propagation: Option<Propagation>,
    /// Whether the caller said in the old way that the dependents go too, and
    /// so is told when the object is not gone yet (202).
    pub cascades: bool,
    /// The uid the object must have.
    pub uid: Option<String>,
    /// The resource version the object must have.
    pub resource_version: Option<String>,
    /// Whether nothing is stored.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Reads a `DeleteOptions` body.
    pub fn from_value(body: &Value) -> Result<Self, Status> {
        let policy = str_at(body, "propagationPolicy");
        let orphan = at(body, "orphanDependents").and_then(Value::as_bool);
        let mut errors = Vec::new();
        if !policy.is_empty() && orphan.is_some() {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match (policy, orphan) {
            ("", Some(true)) => Some(Propagation::Orphan),
            ("", Some(false)) => Some(Propagation::Background),
            ("", None) => None,
            (text, _) => Propagation::parse(text).or_else(|| {
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    text,
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }),
        };
        let dry_run = at(body, "dryRun").and_then(Value::as_array);
        let dry_run = dry_run.map_or(&[][..], Vec::as_slice);
        if dry_run.iter().any(|v| v != "All") {
            errors.push(FieldError::not_supported("dryRun", dry_run, &["All"]));
        }
        if !errors.is_empty() {
            let gvk = GroupVersionKind::new("meta.k8s.io", "v1", "DeleteOptions");
            return Err(Status::invalid(&gvk, "", &errors));
        }
        let text = |path: &str| Some(str_at(body, path).to_owned()).filter(|t| !t.is_empty());
        Ok(Self {
            // A negative period comes from an old default and means "at once".
            grace_period_seconds: value::int_at(body, "gracePeriodSeconds")
                .map(|s| if s < 0 { 1 } else { s }),
            propagation,
            cascades: orphan == Some(false),
            uid: text("preconditions.uid"),
            resource_version: text("preconditions.resourceVersion"),
            dry_run: !dry_run.is_empty(),
        })
    }

    /// Checks the preconditions against an object; its resource version is
    /// passed apart since stored objects carry none.
    pub fn check(&self, kind: &Kind, object: &Value, version: &str) -> Result<(), Status> {
        let conflict = |what: &str, asked: &str, is: &str, why: &str| {
            // Named by its kind here, by its resource elsewhere: as upstream.
            let named = GroupResource::new(kind.group, kind.kind);
            let why = format!(
                "the {what} in the precondition ({asked}) does not match the {what} in record ({is}). The object might have been {why}"
            );
            Err(Status::conflict(&named, value::name(object), &why))
        };
        match (&self.uid, &self.resource_version) {
            (Some(uid), _) if uid != value::uid(object) => {
                conflict("UID", uid, value::uid(object), "deleted and then recreated")
            }
            (_, Some(asked)) if asked != version => {
                conflict("ResourceVersion", asked, version, "modified")
            }
            _ => Ok(()),
        }
    }
}

/// What the caller has to do to an object whose deletion was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteStep {
    /// Remove it from the store.
    Remove,
    /// Store it: it was changed and waits for finalizers or its grace.
    Update,
    /// Answer it as it is: it is waiting already.
    Pending,
}

/// Begins or goes on with the deletion of a stored object.
pub fn begin_delete(
    kind: &Kind,
    object: &mut Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> DeleteStep {
    let before = object.clone();
    let terminating = value::at(object, "metadata.deletionTimestamp").is_some();
    if !terminating {
        kind.strategy().before_delete(object);
    }
    let asked = options.grace_period_seconds;
    let mut grace = kind.strategy().grace_period(object, asked);
    if terminating && grace.is_some() {
        match shorten(object, asked, now) {
            // Its finalizers too are settled once the grace runs.
            Shortened::Not => return DeleteStep::Pending,
            Shortened::To(period) => grace = Some(period),
            Shortened::Over => grace = Some(0),
        }
    }
    set_deletion_finalizers(kind, object, options.propagation);
    let held = has_finalizers(object) || kind.strategy().holds(object);
    let waits = grace.is_some_and(|g| g > 0);
    if !held && !waits {
        return DeleteStep::Remove;
    }
    if !terminating {
        let seconds = grace.unwrap_or(0);
        let at = now
            .checked_add(SignedDuration::from_secs(seconds))
            .unwrap_or(Timestamp::MAX);
        set_metadata(object, "deletionTimestamp", meta::time::format(at));
        // Namespaces wait without a grace period of their own.
        if grace.is_some() || has_finalizers(object) {
            set_metadata(object, "deletionGracePeriodSeconds", seconds);
        }
        let generation = generation(object);
        if generation > 0 {
            set_metadata(object, "generation", generation + 1);
        }
        kind.strategy().on_delete(object);
    }
    if *object == before {
        DeleteStep::Pending
    } else {
        DeleteStep::Update
    }
}

/// What became of the grace of an object that is being deleted.
enum Shortened {
    /// It goes on as it was.
    Not,
    /// It is shorter now.
    To(i64),
    /// There was none left.
    Over,
}

/// Shortens the grace of an object that is being deleted, if less is asked for.
fn shorten(object: &mut Value, asked: Option<i64>, now: Timestamp) -> Shortened {
    let given = match value::int_at(object, "metadata.deletionGracePeriodSeconds") {
        None | Some(0) => return Shortened::Over,
        Some(given) => {
            if given < 0 {
                1
            } else {
                given
            }
        }
    };
    let Some(mut asked) = asked.filter(|a| *a < given) else {
        return Shortened::Not;
    };
    let moved = meta::time::parse(str_at(object, "metadata.deletionTimestamp"))
        .and_then(|t| t.checked_sub(SignedDuration::from_secs(given - asked)).ok());
    if let Some(mut moved) = moved {
        // Not into the past. Who asked for grace that is over already still
        // leaves the end to whoever works on the object.
        if moved < now {
            moved = now;
            asked = asked.min(1);
        }
        set_metadata(object, "deletionTimestamp", meta::time::format(moved));
    }
    set_metadata(object, "deletionGracePeriodSeconds", asked);
    Shortened::To(asked)
}

fn finalizers(object: &Value) -> Vec<String> {
    let list = at(object, "metadata.finalizers").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn has_finalizers(object: &Value) -> bool {
    !finalizers(object).is_empty()
}

/// Sets the two finalizers by which the garbage collector is told what to do.
fn set_deletion_finalizers(kind: &Kind, object: &mut Value, asked: Option<Propagation>) {
    let old = finalizers(object);
    let has = |name: &str| old.iter().any(|f| f == name);
    let policy = asked.unwrap_or(match kind.propagation {
        _ if has(ORPHAN) => Propagation::Orphan,
        _ if has(FOREGROUND) => Propagation::Foreground,
        default => default,
    });
    let mut new: Vec<String> = old
        .iter()
        .filter(|f| *f != ORPHAN && *f != FOREGROUND)
        .cloned()
        .collect();
    match policy {
        Propagation::Background => {}
        Propagation::Foreground => new.push(FOREGROUND.to_owned()),
        Propagation::Orphan => new.push(ORPHAN.to_owned()),
    }
    if new != old {
        let list = if new.is_empty() {
            Value::Null
        } else {
            Value::from(new)
        };
        set_metadata(object, "finalizers", list);
    }
}

/// Tells whether an update ended a deletion that was waiting, so that the
/// object has to be removed instead of stored: `new` has no finalizers left,
/// and `old` was waiting for nothing else.
pub fn ends_deletion(kind: &Kind, new: &Value, old: &Value) -> bool {
    value::at(new, "metadata.deletionTimestamp").is_some()
        && !has_finalizers(new)
        && !kind.strategy().holds(new)
        && value::int_at(old, "metadata.deletionGracePeriodSeconds").unwrap_or(0) == 0
}

#[cfg(test)]
mod tests;
