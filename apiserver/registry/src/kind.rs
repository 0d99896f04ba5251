//! What the API server must know of a kind to serve it: [`Kind`] is the data,
//! [`Strategy`] the behaviour. One file under `kinds/` makes both.

mod column;
mod held;
mod keep;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use meta::marks::Same;
use meta::{
    FieldError, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, Status,
};
use serde_json::{Value, json};

use crate::crd::custom::ScalePaths;
use crate::rest::DeleteOptions;
use crate::table::{DefId, table};
use crate::{schema, validate};

pub use column::Column;
pub use held::KindRef;
pub use keep::{copy_field, keep_other_half, put};

/// The member that says what is desired of an object.
pub const SPEC: &str = "spec";

/// The verbs of an ordinary resource.
pub const ALL_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// The verbs of a `status`-like subresource.
pub const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

/// Describes a subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// The last path segment: `status`.
    pub name: &'static str,
    /// The group of what is exchanged (empty for the core group).
    pub group: &'static str,
    /// The version of what is exchanged.
    pub version: &'static str,
    /// The kind of what is exchanged.
    pub kind: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
}

impl Subresource {
    /// Describes the `status` of a kind.
    pub const fn status(group: &'static str, version: &'static str, kind: &'static str) -> Self {
        Self {
            name: "status",
            group,
            version,
            kind,
            verbs: STATUS_VERBS,
        }
    }
}

/// Who writes an object, and when.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The user's name.
    pub user: &'a str,
    /// The user's uid, or empty.
    pub uid: &'a str,
    /// The user's groups.
    pub groups: &'a [String],
    /// What else is known of the user.
    pub extra: &'a BTreeMap<String, Vec<String>>,
    /// The time.
    pub now: Timestamp,
}

/// Says which endpoint a write came through, and so which fields it may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The resource itself: everything but the status.
    Main,
    /// The `status` subresource: nothing but the status.
    Status,
    /// The `finalize` subresource of namespaces: nothing but `spec.finalizers`.
    Finalize,
    /// A subresource that changes the desired state on its own terms: `scale`,
    /// `binding`, `ephemeralcontainers`, `resize`. Nothing is reset.
    Other,
}

/// How deletion goes when the request does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The object goes at once, its dependents after it.
    Background,
    /// The object waits until its dependents are gone.
    Foreground,
    /// The dependents stay.
    Orphan,
}

impl Propagation {
    /// Parses `propagationPolicy`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Background" => Some(Self::Background),
            "Foreground" => Some(Self::Foreground),
            "Orphan" => Some(Self::Orphan),
            _ => None,
        }
    }
}

/// The two directions between a served version and the stored one.
#[derive(Clone, Copy)]
pub struct Conversion {
    /// Turns an object of this kind into the stored form.
    pub to_storage: fn(&mut Value),
    /// Turns a stored object into this kind's form.
    pub from_storage: fn(&mut Value),
}

/// Describes a served kind.
pub struct Kind {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind, in CamelCase.
    pub kind: &'static str,
    /// The kind of its lists.
    pub list_kind: &'static str,
    /// The resource: the plural that URLs use.
    pub plural: &'static str,
    /// The singular.
    pub singular: &'static str,
    /// The abbreviations kubectl takes.
    pub short_names: &'static [&'static str],
    /// The groups of resources it belongs to (`all`).
    pub categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// The subresources.
    pub subresources: &'static [Subresource],
    /// Where objects lie in the store, below `/registry/`.
    pub storage_prefix: &'static str,
    /// The conversion to the stored form, when that is another version.
    pub conversion: Option<Conversion>,
    /// The definition in the schema table.
    pub definition: &'static str,
    /// Whether an update without a resource version overwrites.
    pub unconditional_update: bool,
    /// Whether a PUT to a name that does not exist creates.
    pub create_on_update: bool,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub generation: bool,
    /// Whether a completed deletion answers the object instead of a status.
    pub returns_deleted: bool,
    /// How deletion goes when the request does not say.
    pub propagation: Propagation,
    /// For how many seconds a stored object lives; zero is for ever (events).
    pub ttl_seconds: u32,
    /// Checks a name.
    pub name_errors: fn(&str) -> Vec<String>,
    /// The fields, besides name and namespace, that a field selector may use.
    pub selectable: &'static [&'static str],
    /// The printed columns.
    pub columns: &'static [Column],
    /// The behaviour of a built-in kind; read it through [`Kind::strategy`].
    pub(crate) strategy: &'static dyn Strategy,
    /// The behaviour of a kind that came with a definition, in place of
    /// `strategy`; it lives as long as the kind.
    pub custom: Option<Arc<dyn Strategy>>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kind({})", self.gvk())
    }
}

impl Kind {
    /// A namespaced core resource with the traits most have; kinds are written
    /// as a difference from this.
    pub const BASE: Kind = Kind {
        group: "",
        version: "v1",
        kind: "",
        list_kind: "",
        plural: "",
        singular: "",
        short_names: &[],
        categories: &[],
        namespaced: true,
        verbs: ALL_VERBS,
        subresources: &[],
        storage_prefix: "",
        conversion: None,
        definition: "",
        unconditional_update: true,
        create_on_update: false,
        generation: false,
        returns_deleted: false,
        propagation: Propagation::Background,
        ttl_seconds: 0,
        name_errors: meta::names::subdomain_errors,
        selectable: &[],
        columns: &[Column::name(), Column::age()],
        strategy: &Plain,
        custom: None,
    };

    /// Returns the behaviour.
    pub fn strategy(&self) -> &dyn Strategy {
        match &self.custom {
            Some(custom) => custom.as_ref(),
            None => self.strategy,
        }
    }

    /// Tells whether objects are served as they are stored.
    pub fn is_stored_form(&self) -> bool {
        self.conversion.is_none() && self.strategy().is_stored_form()
    }

    /// Tells whether the kind came with a definition that a client made.
    pub fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    /// Returns the group and version.
    pub fn gv(&self) -> GroupVersion {
        GroupVersion::new(self.group, self.version)
    }

    /// Returns the group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::new(self.group, self.version, self.kind)
    }

    /// Returns the group, version and resource.
    pub fn gvr(&self) -> GroupVersionResource {
        GroupVersionResource::new(self.group, self.version, self.plural)
    }

    /// Returns the group and resource, as error messages name it.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group, self.plural)
    }

    /// Returns the `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        self.gv().to_string()
    }

    /// Returns the store key of an object.
    pub fn key(&self, namespace: Option<&str>, name: &str) -> String {
        meta::keys::object_key(
            self.storage_prefix,
            namespace.filter(|_| self.namespaced),
            name,
        )
    }

    /// Returns the store prefix of all objects, or of one namespace's.
    pub fn list_prefix(&self, namespace: Option<&str>) -> String {
        meta::keys::list_prefix(self.storage_prefix, namespace.filter(|_| self.namespaced))
    }

    /// Returns the definition's number in the schema table.
    pub fn def(&self) -> Option<DefId> {
        table().id(self.definition)
    }

    /// Returns a subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Tells whether a verb is served.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// Tells whether a field selector may use a field.
    pub fn can_select(&self, field: &str) -> bool {
        field == "metadata.name"
            || (self.namespaced && field == "metadata.namespace")
            || self.selectable.contains(&field)
    }

    /// Returns the values of the selectable fields, in [`Kind::selectable`]'s
    /// order, of an object in the stored form or this kind's.
    pub fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        self.selectable
            .iter()
            .map(|name| (*name, self.strategy().selectable_field(object, name)))
            .collect()
    }

    /// Returns the cells of an object's row, one for each of [`Kind::columns`].
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.strategy().cells(object, now)
    }

    /// Turns an object into the form in which it is stored.
    pub fn to_storage(&self, object: &mut Value) {
        if let Some(conversion) = self.conversion {
            (conversion.to_storage)(object);
        }
        self.strategy().make_stored(object);
    }

    /// Turns a stored object into this kind's form.
    pub fn from_storage(&self, object: &mut Value) {
        if let Some(conversion) = self.conversion {
            (conversion.from_storage)(object);
        }
        self.strategy().make_own(object);
    }

    /// Checks the types of an object, prunes what the kind does not know and
    /// returns the paths of that.
    pub fn conform(&self, object: &mut Value) -> Result<Vec<String>, Status> {
        self.conform_but(object, &|_| false)
    }

    /// Does as [`Self::conform`], but leaves out the members of which is known that an
    /// object of this kind was stored with them.
    pub fn conform_but(
        &self,
        object: &mut Value,
        known: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<String>, Status> {
        if let Some(done) = self.strategy().conform(object) {
            return done;
        }
        let def = self
            .def()
            .ok_or_else(|| Status::internal(format!("no schema for {}", self.kind)))?;
        schema::conform_but(def, object, known)
            .map_err(|e| Status::bad_request(e.message(&self.gvk())))
    }

    /// Tells whether an update need not look at the specification: it is one that was
    /// checked and stored already, by this server.
    pub fn is_settled(&self, same: &Same<'_>) -> bool {
        self.strategy().settles() && same.member(SPEC)
    }

    /// Tells whether what an object's text says is what is stored of it, and stays right
    /// while the server runs.
    pub fn is_steady(&self, object: &Value) -> bool {
        self.is_stored_form() && !self.is_custom() && !self.strategy().moves(object)
    }

    /// Returns the headings of the printed columns, as tables show them.
    pub fn column_definitions(&self) -> Vec<Value> {
        self.strategy().column_definitions().unwrap_or_else(|| {
            let definition = |c: &Column| {
                json!({
                    "name": c.name, "type": c.ty, "format": c.format,
                    "description": c.description, "priority": c.priority,
                })
            };
            self.columns.iter().map(definition).collect()
        })
    }
}

/// What is particular to a kind. Every method has the behaviour of a plain
/// kind as its default. Objects have passed the schema walker: types are
/// right, nulls are gone, unknown fields are pruned.
pub trait Strategy: Send + Sync {
    /// Fills in defaults: members that are missing, and nothing in those that were stored
    /// already, unless [`Strategy::moves`] says so.
    fn default(&self, _object: &mut Value) {}

    /// Tells whether defaults move what stands in one member of this object into another.
    fn moves(&self, _object: &Value) -> bool {
        false
    }

    /// Notes who writes an object and when, where the kind keeps that. `old` is
    /// `None` for an object that is created.
    fn stamp(
        &self,
        _endpoint: Endpoint,
        _new: &mut Value,
        _old: Option<&Value>,
        _facts: &Facts<'_>,
    ) {
    }

    /// Resets what a client may not set, before an object is created.
    fn prepare_for_create(&self, _object: &mut Value) {}

    /// Puts back what a client may not change through this endpoint.
    fn prepare_for_update(&self, endpoint: Endpoint, new: &mut Value, old: &Value) {
        keep_other_half(endpoint, new, old);
    }

    /// Names the paths that an endpoint puts back, of which it therefore makes
    /// nobody the owner.
    fn reset_fields(&self, endpoint: Endpoint) -> &'static [&'static str] {
        match endpoint {
            Endpoint::Main | Endpoint::Finalize => &["status"],
            Endpoint::Status => &["spec"],
            Endpoint::Other => &[],
        }
    }

    /// Checks an object that is created, and the new one of an update.
    fn validate(&self, _object: &Value, _errors: &mut Vec<FieldError>) {}

    /// Checks what only an object that is created must satisfy;
    /// [`Strategy::validate`] has seen it.
    fn validate_create(&self, _object: &Value, _errors: &mut Vec<FieldError>) {}

    /// Checks a change; [`Strategy::validate`] has seen the new object.
    fn validate_update(
        &self,
        _endpoint: Endpoint,
        _new: &Value,
        _old: &Value,
        _errors: &mut Vec<FieldError>,
    ) {
    }

    /// Tells whether a change is one that `metadata.generation` counts: of
    /// anything but metadata and status.
    fn changes_desired(&self, new: &Value, old: &Value) -> bool {
        let aside = |n: &str| matches!(n, "metadata" | "status" | "apiVersion" | "kind");
        let of_new = new.as_object().into_iter().flatten();
        let of_old = old.as_object().into_iter().flatten();
        of_new
            .chain(of_old.filter(|(name, _)| new.get(name).is_none()))
            .map(|(name, _)| name)
            .filter(|name| !aside(name))
            .any(|name| !validate::same(new.get(name), old.get(name)))
    }

    /// Tells whether an update that leaves all but metadata and status as it is
    /// needs none of [`Strategy::changes_desired`], [`Strategy::validate_change`],
    /// [`Strategy::validate_update`] and [`Strategy::warnings`]: none of them looks at
    /// metadata or status, or finds anything where nothing differs, and what is stored
    /// was checked when it was stored. Nor does an update default or prepare anything but
    /// the specification of such a kind, and of that nothing that was stored.
    fn settles(&self) -> bool {
        false
    }

    /// Returns what the caller should be warned about.
    fn warnings(&self, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Returns what the caller should be warned about who deletes this way.
    fn delete_warnings(&self, _options: &DeleteOptions) -> Vec<String> {
        Vec::new()
    }

    /// Returns the value of a selectable field; a plain path by default.
    fn selectable_field(&self, object: &Value, name: &str) -> String {
        match meta::value::at(object, name) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        }
    }

    /// Returns the cells of an object's row.
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![crate::print::name(object), crate::print::age(object, now)]
    }

    /// Returns for how many seconds a deleted object stays to end gracefully,
    /// given what the request asked for; `None` for kinds that do not.
    fn grace_period(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Marks an object whose deletion has begun (namespaces: the phase).
    fn on_delete(&self, _object: &mut Value) {}

    /// Returns the schema that OpenAPI documents show, of a kind that the table
    /// does not have.
    fn openapi(&self, _version: crate::openapi::Version) -> Option<Value> {
        None
    }

    /// Tells whether objects are stored in this version of the kind.
    fn is_stored_form(&self) -> bool {
        true
    }

    /// Checks the types of an object that the table does not describe, prunes
    /// it, and returns the paths of what was unknown; `None` for one that it
    /// does.
    fn conform(&self, _object: &mut Value) -> Option<Result<Vec<String>, Status>> {
        None
    }

    /// Checks an object that is updated; by default as one that is created.
    fn validate_change(&self, new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
        self.validate(new, errors);
    }

    /// Returns the headings of the printed columns, of a kind that does not
    /// have them in [`Kind::columns`].
    fn column_definitions(&self) -> Option<Vec<Value>> {
        None
    }

    /// Turns an object into the stored form, after [`Kind::conversion`].
    fn make_stored(&self, _object: &mut Value) {}

    /// Turns a stored object into the kind's form, after [`Kind::conversion`].
    fn make_own(&self, _object: &mut Value) {}

    /// Returns where the scale subresource finds what it shows, if not where
    /// workloads have it.
    fn scale(&self) -> Option<&ScalePaths> {
        None
    }

    /// Returns what field merge must know of one of [`Strategy::versions`], of
    /// a kind that the table does not have.
    fn ownership(&self, _api_version: &str) -> Option<crate::fieldmerge::Schema> {
        None
    }

    /// Returns the `apiVersion`s in which the same objects are known, of a kind
    /// that the list of built-in ones does not have.
    fn versions(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns what whoever uses this version is to be warned of; nothing for one
    /// that stays.
    fn deprecation(&self) -> Option<&str> {
        None
    }

    /// Tells whether the kind is going away, so that nothing of it may be
    /// created any more.
    fn is_ending(&self) -> bool {
        false
    }

    /// Marks an object before its first deletion is judged.
    fn before_delete(&self, _object: &mut Value) {}

    /// Tells whether something besides `metadata.finalizers` still holds an
    /// object that is being deleted (namespaces: `spec.finalizers`).
    fn holds(&self, _object: &Value) -> bool {
        false
    }
}

/// The strategy of a kind without particulars.
#[derive(Debug)]
pub struct Plain;

impl Strategy for Plain {}
