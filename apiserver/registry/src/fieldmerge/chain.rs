//! What the API server does around an apply and an update (apimachinery's chain
//! of managers): it checks the version, lets kubectl go from client-side to
//! server-side apply, starts tracking, caps, stamps and strips.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use meta::GroupVersionKind;
use meta::marks::Same;
use meta::value::str_at;
use serde_json::{Map, Value};

use super::element;
use super::entries::{
    self, BEFORE_FIRST_APPLY, Managed, ManagerId, Operation, Owned, UPDATE_ENTRIES_MAX,
};
use super::error::{ApplyError, Conflict, MergeError, Problems};
use super::gotext;
use super::quick;
use super::reset::ResetFields;
use super::same::{ENTRIES, entries_of, same_but_entries, same_but_times, without_entries};
use super::schema::Schema;
use super::set::{self, Set};
use super::typed::{self, Duplicates, Typed};
use super::update::{Config, Converter, Updater, value_error};
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
    /// An object of that kind with nothing in it but what is always there:
    /// nobody comes to own that by creating one ([`super::builtin::blank`]).
    pub blank: &'a Value,
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
    if entries_of(config).is_some() {
        return Err(ApplyError::ManagedFieldsGiven);
    }
    let managed = live.map(Managed::of).transpose()?.unwrap_or_default();
    let mut nothing = Value::Object(Map::new());
    meta::value::set_type_meta(&mut nothing, writer.gvk);
    let applied = Apply {
        live: writer.live(live, &nothing)?,
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
pub fn update(live: Option<&Value>, new: Value, writer: &Writer<'_>) -> Value {
    update_but(live, new, writer, &Same::default())
}

/// Does as [`update`], where some members are known to be the same in both objects.
pub fn update_but(
    live: Option<&Value>,
    mut new: Value,
    writer: &Writer<'_>,
    known: &Same<'_>,
) -> Value {
    debug_assert!(live.is_none_or(|live| is_true(known, live, &new)));
    let before = live.and_then(entries_of);
    let same = |given| {
        known.metadata(ENTRIES) || before.is_some_and(|before| element::same(before, given))
    };
    let untouched = entries_of(&new).is_none_or(same);
    if untouched && live.is_some_and(|live| same_but_entries(live, &new, known)) {
        entries::put(&mut new, before.cloned());
        return new;
    }
    let mut given = entries::take(&mut new);
    let shared = Arc::new(new);
    if untouched && let Some(live) = live {
        let list = given.take().or_else(|| before.cloned());
        if let Some(list) = list.and_then(|list| writer.keep(live, &shared, list, known)) {
            let mut new = Arc::unwrap_or_clone(shared);
            entries::put(&mut new, Some(list));
            return new;
        }
    }
    let managed = writer.account(live, &shared, given.as_ref());
    let mut new = Arc::unwrap_or_clone(shared);
    match managed {
        Ok(managed) => managed.write(&mut new),
        Err(_) => entries::put(&mut new, before.cloned()),
    }
    if !untouched && live.is_some_and(|live| same_but_times(live, &new)) {
        entries::put(&mut new, before.cloned());
    }
    new
}

/// Tells whether what is said to be the same in two objects is.
fn is_true(known: &Same<'_>, live: &Value, new: &Value) -> bool {
    let same = |path: &str, name: &str| {
        let of = |object: &Value| object.pointer(path).and_then(|o| o.get(name)).cloned();
        of(live) == of(new)
    };
    let members = new.as_object().into_iter().flatten();
    let metadata = new.get("metadata").and_then(Value::as_object);
    members
        .filter(|(name, _)| known.member(name))
        .all(|(name, _)| same("", name))
        && metadata
            .into_iter()
            .flatten()
            .filter(|(name, _)| known.metadata(name))
            .all(|(name, _)| same("/metadata", name))
}

/// Returns who owns what after an update.
pub fn account(
    live: Option<&Value>,
    new: &Value,
    writer: &Writer<'_>,
) -> Result<Managed, ApplyError> {
    writer.account(live, &Arc::new(without_entries(new)), entries_of(new))
}

/// Returns what a manager owns by its last apply, as a configuration.
pub fn extract(object: &Value, writer: &Writer<'_>) -> Result<Option<Value>, ApplyError> {
    let managed = Managed::of(object)?;
    let id = ManagerId::new(writer.manager, Operation::Apply, "", writer.subresource);
    let Some(owned) = managed.0.get(&id) else {
        return Ok(None);
    };
    let typed = writer.live(Some(object), writer.blank)?;
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
fn live_or_given(live: Option<&Value>, given: Option<&Value>, is_subresource: bool) -> Managed {
    let of_live = || {
        live.and_then(|live| Managed::of(live).ok())
            .unwrap_or_default()
    };
    if is_subresource {
        return of_live();
    }
    if entries::is_reset(given) {
        return Managed::default();
    }
    match given.map(Managed::parse) {
        Some(Ok(managed)) if !managed.0.is_empty() => managed,
        _ => of_live(),
    }
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

    /// Types the live object, or one that is not there yet.
    fn live(&self, live: Option<&Value>, blank: &Value) -> Result<Typed, ApplyError> {
        let value = without_entries(live.unwrap_or(blank));
        let object = describe(&value, self.gvk);
        Typed::new(self.schema, value, Duplicates::Allowed)
            .map_err(|problems| ApplyError::Live { object, problems })
    }

    fn config(&self, config: &Value) -> Result<Typed, ApplyError> {
        Typed::new(self.schema, without_entries(config), Duplicates::Refused).map_err(|problems| {
            ApplyError::Config {
                object: describe(config, self.gvk),
                problems,
            }
        })
    }

    /// Returns who owns what after an update to a new object without entries, and
    /// the entries it was given with.
    fn account(
        &self,
        live: Option<&Value>,
        new: &Arc<Value>,
        given: Option<&Value>,
    ) -> Result<Managed, ApplyError> {
        let managed = live_or_given(live, given, !self.subresource.is_empty());
        let is_create = live.is_none_or(|live| meta::value::uid(live).is_empty());
        if managed.0.is_empty() && !is_create {
            // Nobody was tracked from the start, so nobody is: an apply begins it.
            return Ok(managed);
        }
        let live = without_entries(live.unwrap_or(self.blank));
        let live = Typed::stored(self.schema, live);
        let typed = Typed::new(self.schema, Arc::clone(new), Duplicates::Allowed);
        let new = typed.map_err(|problems| ApplyError::New {
            object: describe(new, self.gvk),
            problems,
        })?;
        Ok(self.track(&live, &new, &managed, self.manager)?)
    }

    /// Brings the entries of before up to date with an update; `None` where that
    /// takes more than another time.
    pub(super) fn keep(
        &self,
        live: &Value,
        new: &Value,
        list: Value,
        known: &Same<'_>,
    ) -> Option<Value> {
        if !typed::fits(self.schema, new, known) {
            return None;
        }
        let version = self.gvk.api_version();
        let filter = self.reset.get(&version);
        let paths = typed::compare(self.schema, live, new, known);
        let paths = paths.ok()?.filtered(filter);
        let own = stripped(&paths.modified.clone().union(&paths.added));
        let id = ManagerId::new(self.manager, Operation::Update, &version, self.subresource);
        let change = quick::Change {
            id: &id,
            version: &version,
            now: &meta::time::format(self.now),
            paths: &paths,
            own: &own,
        };
        quick::entries(self.schema, list, &change)
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
    static STRIP: LazyLock<Set> = LazyLock::new(|| set::of_fields(STRIPPED));
    set.difference(&STRIP)
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
            let nothing = Typed::new(writer.schema, writer.blank.clone(), Duplicates::Allowed)
                .map_err(value_error("type an object with nothing in it"))?;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::super::builtin;
    use super::super::update::OneVersion;
    use super::*;
    use crate::table::table;

    fn with<T>(manager: &str, test: impl FnOnce(&Writer<'_>) -> T) -> T {
        let gvk = GroupVersionKind::new("", "v1", "ConfigMap");
        let def = table().id("io.k8s.api.core.v1.ConfigMap").unwrap();
        test(&Writer {
            manager,
            subresource: "",
            gvk: &gvk,
            blank: &builtin::blank(def, &gvk),
            schema: &Arc::new(builtin::schema(def)),
            converter: &OneVersion("v1"),
            reset: &BTreeMap::new(),
            now: Timestamp::from_second(60).unwrap(),
        })
    }

    fn map(data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": "m", "namespace": "n", "uid": "u"}})
    }

    #[test]
    fn a_configuration_is_of_the_kind_of_the_endpoint() {
        for (api_version, kind, given) in [
            ("v1", "Secret", "/v1, Kind=Secret"),
            ("apps/v1", "ConfigMap", "apps/v1, Kind=ConfigMap"),
            ("", "", "/, Kind="),
        ] {
            let config = json!({"apiVersion": api_version, "kind": kind});
            let error = with("a", |w| apply(None, &config, w, false)).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid object type: {given}"));
            assert_eq!(error.status().code, 400);
        }
    }

    #[test]
    fn what_is_sent_to_the_client_says_who_and_what() {
        let live = with("b", |w| update(None, map(json!({"k": "1"})), w));
        let error = with("a", |w| {
            apply(Some(&live), &map(json!({"k": "2"})), w, false)
        });
        let status = error.unwrap_err().status();
        assert_eq!(
            (status.code, status.reason),
            (409, meta::status::Reason::Conflict)
        );
        assert_eq!(
            status.message,
            "Apply failed with 1 conflict: conflict with \"b\" using v1: .data.k"
        );
        let details = serde_json::to_value(status.details).unwrap();
        assert_eq!(
            details,
            json!({"causes": [{"reason": "FieldManagerConflict",
                "message": "conflict with \"b\" using v1", "field": ".data.k"}]})
        );
        let wrong = json!({"apiVersion": "v1", "kind": "ConfigMap", "date": {},
            "metadata": {"name": "m", "namespace": "n"}});
        let error = with("a", |w| apply(None, &wrong, w, false)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to create typed patch object (n/m; /v1, Kind=ConfigMap): \
             .date: field not declared in schema"
        );
    }

    #[test]
    fn an_object_that_only_times_tell_apart_is_the_same() {
        let live = with("a", |w| update(None, map(json!({"k": "1"})), w));
        let mut later = live.clone();
        later["metadata"]["managedFields"][0]["time"] = json!("2026-01-01T00:00:00Z");
        assert!(same_but_times(&live, &later));
        // A client that sends other times gets those of before.
        assert_eq!(with("b", |w| update(Some(&live), later.clone(), w)), live);
        later["metadata"]["managedFields"][0]["manager"] = json!("c");
        assert!(!same_but_times(&live, &later));
        assert!(!same_but_times(&live, &map(json!({"k": "1"}))));
    }

    #[test]
    fn ownership_that_cannot_be_told_stays() {
        let live = with("a", |w| update(None, map(json!({"k": "1"})), w));
        let odd = map(json!(["not a map"]));
        let stored = with("b", |w| update(Some(&live), odd.clone(), w));
        assert_eq!(
            stored["metadata"]["managedFields"],
            live["metadata"]["managedFields"]
        );
        assert!(with("b", |w| account(Some(&live), &odd, w)).is_err());
    }

    #[test]
    fn what_was_applied_last_is_kept_unless_it_is_too_large() {
        let annotated = |text: &str| {
            let mut object = map(json!({"k": "1"}));
            object["metadata"]["annotations"] = json!({LAST_APPLIED: text, "a": "b"});
            object
        };
        let live = with("x", |w| update(None, annotated("{}"), w));
        let small = with("kubectl", |w| {
            apply(Some(&live), &map(json!({"l": "<"})), w, false)
        });
        let kept = small.unwrap().object["metadata"]["annotations"][LAST_APPLIED].clone();
        assert_eq!(
            kept,
            "{\"apiVersion\":\"v1\",\"data\":{\"l\":\"\\u003c\"},\"kind\":\"ConfigMap\",\
             \"metadata\":{\"name\":\"m\",\"namespace\":\"n\",\"uid\":\"u\"}}\n"
        );
        let large = map(json!({"l": "x".repeat(validate::ANNOTATIONS_MAX)}));
        let applied = with("kubectl", |w| apply(Some(&live), &large, w, false)).unwrap();
        assert_eq!(applied.object["metadata"]["annotations"], json!({"a": "b"}));
    }
}
