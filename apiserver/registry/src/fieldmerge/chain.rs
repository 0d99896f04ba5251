//! What the API server does around an apply and an update (apimachinery's chain
//! of managers): it checks the version, lets kubectl go from client-side to
//! server-side apply, starts tracking, caps, stamps and strips.

use std::sync::Arc;

use jiff::Timestamp;
use meta::GroupVersionKind;
use meta::value::str_at;
use serde_json::{Map, Value};

use super::element;
use super::entries::{
    self, BEFORE_FIRST_APPLY, Managed, ManagerId, Operation, Owned, UPDATE_ENTRIES_MAX,
};
use super::error::{ApplyError, Conflict, MergeError, Problems};
use super::gotext;
use super::reset::ResetFields;
use super::schema::Schema;
use super::set::{self, Set};
use super::typed::{Duplicates, Typed};
use super::update::{Config, Converter, Updater};
use crate::validate;

/// The annotation in which client-side apply keeps what it applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The one manager for which client-side apply is taken over.
const KUBECTL: &str = "kubectl";

/// What nobody owns: what names an object, and what is the server's.
const STRIPPED: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.clusterName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
];

/// Who writes, through what, and when.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// The manager's name (`fieldManager`, or the start of the user agent).
    pub manager: &'a str,
    /// The subresource written through; empty for the object itself.
    pub subresource: &'a str,
    /// The kind that the endpoint takes.
    pub gvk: &'a GroupVersionKind,
    /// What is known of that kind's type.
    pub schema: &'a Arc<Schema>,
    /// The kind's other versions.
    pub converter: &'a dyn Converter,
    /// What cannot be owned through the endpoint.
    pub reset: &'a ResetFields,
    /// The time.
    pub now: Timestamp,
}

/// The outcome of an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The object to be defaulted, checked and stored.
    pub object: Value,
    /// Whether it is another than the live one. If not, it is the live one with
    /// its entries and their times, and need not be written.
    pub changed: bool,
}

/// Merges an applied configuration into the live object, or into nothing when
/// there is none yet. `force` takes what other managers own.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Applied, ApplyError> {
    check_type(config, writer.gvk)?;
    if config
        .pointer("/metadata/managedFields")
        .is_some_and(|given| !given.is_null())
    {
        return Err(ApplyError::ManagedFieldsGiven);
    }
    let managed = live.map(Managed::of).transpose()?.unwrap_or_default();
    let applied = Apply {
        live: writer.live(live)?,
        config: writer.config(config)?,
        managed,
        writer,
    };
    let (mut object, managed) = match applied.run(force) {
        Err(MergeError::Conflict(conflicts)) if writer.manager == KUBECTL => {
            match applied.not_last_applied(conflicts) {
                left if left.is_empty() => applied.run(true)?,
                left => return Err(MergeError::Conflict(left).into()),
            }
        }
        other => other?,
    };
    if writer.manager == KUBECTL && last_applied(&object).is_some() {
        keep_last_applied(&mut object, config);
    }
    managed.write(&mut object);
    Ok(match live {
        Some(live) if same_but_times(live, &object) => Applied {
            object: live.clone(),
            changed: false,
        },
        _ => Applied {
            object,
            changed: true,
        },
    })
}

/// Writes into an object that was created, replaced or patched in another way
/// who owns what. `live` is the object before, `None` at a creation.
///
/// Never fails: where ownership cannot be told, that of before stays, since a
/// write that is right otherwise must not be lost over it. [`account`] says why.
pub fn update(live: Option<&Value>, mut new: Value, writer: &Writer<'_>) -> Value {
    let before = live.and_then(|live| live.pointer("/metadata/managedFields"));
    match account(live, &new, writer) {
        Ok(managed) => managed.write(&mut new),
        Err(_) => entries::put(&mut new, before.cloned()),
    }
    if live.is_some_and(|live| same_but_times(live, &new)) {
        entries::put(&mut new, before.cloned());
    }
    new
}

/// Returns who owns what after an update.
pub fn account(
    live: Option<&Value>,
    new: &Value,
    writer: &Writer<'_>,
) -> Result<Managed, ApplyError> {
    let managed = live_or_new(live, new, !writer.subresource.is_empty());
    let is_create = live.is_none_or(|live| meta::value::uid(live).is_empty());
    if managed.0.is_empty() && !is_create {
        // Nobody was tracked from the start, so nobody is: an apply begins it.
        return Ok(managed);
    }
    let live = writer.live(live)?;
    let new = Typed::new(writer.schema, without_entries(new), Duplicates::Allowed).map_err(
        |problems| ApplyError::New {
            object: describe(new, writer.gvk),
            problems,
        },
    )?;
    Ok(writer.track(&live, &new, &managed, writer.manager)?)
}

/// Tells whether two objects are the same but for the times in their entries:
/// then the one need not be written over the other. To be asked once more when
/// an object was defaulted.
pub fn same_but_times(old: &Value, new: &Value) -> bool {
    let entries = match (Managed::of(old), Managed::of(new)) {
        (Ok(old), Ok(new)) => old.same_but_times(&new),
        _ => false,
    };
    let same = |a: Value, b: Value| element::compare(&a, &b).is_eq();
    entries && same(without_entries(old), without_entries(new))
}

/// Returns what a manager owns by its last apply, as a configuration.
pub fn extract(object: &Value, writer: &Writer<'_>) -> Result<Option<Value>, ApplyError> {
    let managed = Managed::of(object)?;
    let id = ManagerId::new(writer.manager, Operation::Apply, "", writer.subresource);
    let Some(owned) = managed.0.get(&id) else {
        return Ok(None);
    };
    let typed = writer.live(Some(object))?;
    let mut config = typed.extract(&owned.set.leaves()).value().as_ref().clone();
    meta::value::set_type_meta(&mut config, writer.gvk);
    Ok(Some(config))
}

fn check_type(config: &Value, gvk: &GroupVersionKind) -> Result<(), ApplyError> {
    let (api_version, kind) = meta::value::type_meta(config);
    if api_version == gvk.api_version() && kind == gvk.kind {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let given = GroupVersionKind::new(group, version, kind);
    Err(ApplyError::WrongType(given.to_string()))
}

/// Takes the entries from where an update says them: a client may edit or reset
/// them, except through a subresource; one that does not know them keeps them.
fn live_or_new(live: Option<&Value>, new: &Value, is_subresource: bool) -> Managed {
    let of_live = || {
        live.and_then(|live| Managed::of(live).ok())
            .unwrap_or_default()
    };
    if is_subresource {
        return of_live();
    }
    if entries::is_reset(new.pointer("/metadata/managedFields")) {
        return Managed::default();
    }
    match Managed::of(new) {
        Ok(managed) if !managed.0.is_empty() => managed,
        _ => of_live(),
    }
}

fn without_entries(object: &Value) -> Value {
    let mut object = object.clone();
    entries::put(&mut object, None);
    object
}

/// Names an object as errors do.
fn describe(object: &Value, gvk: &GroupVersionKind) -> String {
    let namespace = meta::value::namespace(object);
    format!("{namespace}/{}; {gvk}", meta::value::name(object))
}

impl Writer<'_> {
    fn updater(&self) -> Updater<'_> {
        Updater {
            converter: self.converter,
            reset: self.reset,
        }
    }

    /// Returns the object of this kind that has nothing in it.
    fn empty(&self) -> Value {
        let mut object = Value::Object(Map::new());
        meta::value::set_type_meta(&mut object, self.gvk);
        object
    }

    fn live(&self, live: Option<&Value>) -> Result<Typed, ApplyError> {
        let value = live.map_or_else(|| self.empty(), without_entries);
        let object = describe(&value, self.gvk);
        Typed::new(self.schema, value, Duplicates::Allowed)
            .map_err(|problems| ApplyError::Live { object, problems })
    }

    fn config(&self, config: &Value) -> Result<Typed, ApplyError> {
        Typed::new(self.schema, config.clone(), Duplicates::Refused).map_err(|problems| {
            ApplyError::Config {
                object: describe(config, self.gvk),
                problems,
            }
        })
    }

    /// Accounts for an update by a manager.
    fn track(
        &self,
        live: &Typed,
        new: &Typed,
        managed: &Managed,
        manager: &str,
    ) -> Result<Managed, MergeError> {
        let version = self.gvk.api_version();
        let (mut managed, set) = self.updater().update(live, new, &version, managed)?;
        let set = stripped(&set);
        if !set.is_empty() {
            let id = ManagerId::new(manager, Operation::Update, &version, self.subresource);
            let before = managed.0.remove(&id).map(|owned| owned.set);
            let owned = Owned {
                set: set.union(&before.unwrap_or_default()),
                api_version: version,
                time: Some(self.now),
            };
            managed.0.insert(id, owned);
        }
        managed.cap(UPDATE_ENTRIES_MAX);
        Ok(managed)
    }
}

fn stripped(set: &Set) -> Set {
    set.difference(&set::of_fields(STRIPPED))
}

/// An apply whose parts fit the schema.
struct Apply<'a> {
    live: Typed,
    config: Typed,
    managed: Managed,
    writer: &'a Writer<'a>,
}

impl Apply<'_> {
    fn run(&self, force: bool) -> Result<(Value, Managed), MergeError> {
        let writer = self.writer;
        let version = writer.gvk.api_version();
        let first;
        let managed = if self.managed.0.is_empty() {
            // What is there already belongs to somebody: not to know whom must
            // not make it fair game.
            let nothing = self.live_from(writer.empty());
            first = writer.track(&nothing, &self.live, &self.managed, BEFORE_FIRST_APPLY)?;
            &first
        } else {
            &self.managed
        };
        let id = ManagerId::new(
            writer.manager,
            Operation::Apply,
            &version,
            writer.subresource,
        );
        let config = Config {
            object: &self.config,
            version: &version,
            id: &id,
            force,
        };
        let merged = writer.updater().apply(&self.live, config, managed)?;
        let mut managed = merged.managed;
        if let Some(owned) = managed.0.get_mut(&id) {
            owned.set = stripped(&owned.set);
            if merged.object.is_some() {
                owned.time = Some(writer.now);
            }
        }
        managed.0.retain(|_, owned| !owned.set.is_empty());
        let object = merged.object.unwrap_or_else(|| self.live.clone());
        Ok((object.value().as_ref().clone(), managed))
    }

    /// Types an object that has the fields of the live one or fewer.
    fn live_from(&self, value: Value) -> Typed {
        Typed::new(self.live.schema(), value, Duplicates::Allowed)
            .unwrap_or_else(|_| self.live.extract(&Set::new()))
    }

    /// Leaves out the conflicts over what client-side apply applied last: there
    /// kubectl conflicts with itself.
    fn not_last_applied(&self, conflicts: Vec<Conflict>) -> Vec<Conflict> {
        let Some(own) = self.last_applied_set() else {
            return conflicts;
        };
        conflicts
            .into_iter()
            .filter(|conflict| !own.contains(&conflict.path))
            .collect()
    }

    /// Returns the fields that client-side apply applied last and that are still
    /// as it left them.
    fn last_applied_set(&self) -> Option<Set> {
        let last: Value = serde_json::from_str(last_applied(self.live.value())?).ok()?;
        if str_at(&last, "apiVersion") != self.writer.gvk.api_version() {
            return None;
        }
        let typed = |value: Value| -> Result<Typed, Problems> {
            Typed::new(self.writer.schema, value, Duplicates::Refused)
        };
        let last = typed(last).ok()?;
        let live = typed(self.live.value().as_ref().clone()).ok()?;
        let changes = last.compare(&live).ok()?;
        let set = last.to_set();
        Some(
            set.difference(&changes.modified)
                .difference(&changes.added)
                .difference(&changes.removed),
        )
    }
}

fn last_applied(object: &Value) -> Option<&str> {
    let annotations = object.get("metadata")?.get("annotations")?;
    annotations
        .get(LAST_APPLIED)?
        .as_str()
        .filter(|text| !text.is_empty())
}

/// Keeps the annotation of client-side apply true, so that one can go back to
/// it. It goes where it would make the annotations too large.
fn keep_last_applied(object: &mut Value, config: &Value) {
    let mut config = config.clone();
    let annotations = config.pointer_mut("/metadata/annotations");
    if let Some(Value::Object(annotations)) = annotations {
        annotations.remove(LAST_APPLIED);
    }
    let mut text = String::new();
    gotext::json_value(&mut text, &config);
    text.push('\n');
    let annotations = object.pointer_mut("/metadata/annotations");
    if let Some(Value::Object(annotations)) = annotations {
        annotations.remove(LAST_APPLIED);
        let size: usize = annotations
            .iter()
            .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
            .sum();
        if size + LAST_APPLIED.len() + text.len() <= validate::ANNOTATIONS_MAX {
            annotations.insert(LAST_APPLIED.to_owned(), Value::from(text));
        }
    }
}
