//! Runs a script: what managers do to one object, and what comes of it.
//!
//! A script is a list of cases. A case has a `name`, its type (`types`, or the
//! definition of a built-in `kind`) and `steps`. What a case does not say is as
//! in the file's first element, if that is called `common`.
//!
//! A step is `apply: <object>` or `update: <object>` with `by`, and where needed
//! `force`, `version` (`v1`), `through` (a subresource), `reset` (the paths that
//! the endpoint resets), or `serve: [versions]`, `types: <types>` (what the
//! server knows from here on), or `extract: <manager>`. `kind`, `apiVersion` and
//! the uid are added; of a version's fields, `renamed` says which are called
//! otherwise than in `v1`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use meta::GroupVersionKind;
use registry::fieldmerge::entries::Owned;
use registry::fieldmerge::typed::{Duplicates, Typed};
use registry::fieldmerge::update::{ConvertError, Converter};
use registry::fieldmerge::{
    self, Filter, Managed, ManagerId, Operation, Schema, Writer, builtin, set,
};
use registry::table::table;
use serde_json::{Value, json};

use crate::notation;

/// Runs all cases of a file.
pub(crate) fn run(script: &Value) -> String {
    let mut out = String::new();
    let mut common = json!({});
    for case in script.as_array().expect("a list of cases") {
        if case["name"] == "common" {
            common = case.clone();
            continue;
        }
        let of = |field: &str| case.get(field).or(common.get(field)).cloned();
        let _ = writeln!(out, "# {}\n", case["name"].as_str().expect("a name"));
        let mut server = Server::new(of("types"), of("kind"), of("renamed"), of("serve"));
        for step in case["steps"].as_array().expect("steps") {
            server.step(step, &mut out);
        }
    }
    out
}

/// A server that keeps one object.
struct Server {
    types: Value,
    kind: Option<String>,
    renamed: Value,
    served: Vec<String>,
    live: Option<Value>,
    second: i64,
}

impl Server {
    fn new(
        types: Option<Value>,
        kind: Option<Value>,
        renamed: Option<Value>,
        served: Option<Value>,
    ) -> Self {
        let mut server = Self {
            types: types.unwrap_or_default(),
            kind: kind.and_then(|k| k.as_str().map(str::to_owned)),
            renamed: renamed.unwrap_or_default(),
            served: Vec::new(),
            live: None,
            second: 0,
        };
        server.serve(&served.unwrap_or(json!(["v1"])));
        server
    }

    fn serve(&mut self, versions: &Value) {
        let versions = versions.as_array().expect("versions").iter();
        self.served = versions.map(|v| v.as_str().unwrap().to_owned()).collect();
    }

    /// Returns the type of a version: the types with the root's fields renamed,
    /// and with what every object has.
    fn schema(&self, version: &str) -> Arc<Schema> {
        if let Some(kind) = &self.kind {
            let def = table().id(kind).expect("a built-in definition");
            return Arc::new(builtin::schema(def));
        }
        if self.types == "deduced" {
            return Arc::new(Schema::deduced());
        }
        let mut types = self.types.clone();
        let strings = json!({"map": "string"});
        let root = types["object"]["fields"].as_object_mut().expect("fields");
        for (from, to) in self.renames(version) {
            if let Some(ty) = root.remove(&from) {
                root.insert(to, ty);
            }
        }
        root.insert("apiVersion".to_owned(), json!("string"));
        root.insert("kind".to_owned(), json!("string"));
        let metadata = json!({"fields": {"name": "string", "uid": "string", "labels": strings,
            "annotations": strings, "creationTimestamp": "untyped"}});
        root.insert("metadata".to_owned(), metadata);
        notation::schema(&types)
    }

    fn renames(&self, version: &str) -> Vec<(String, String)> {
        let renames = self.renamed.get(version).and_then(Value::as_object);
        renames
            .into_iter()
            .flatten()
            .map(|(from, to)| (from.clone(), to.as_str().unwrap().to_owned()))
            .collect()
    }

    fn blank(&self, gvk: &GroupVersionKind) -> Value {
        match &self.kind {
            Some(kind) => builtin::blank(table().id(kind).unwrap(), gvk),
            None => json!({"apiVersion": gvk.api_version(), "kind": gvk.kind}),
        }
    }

    fn full(&self, object: &Value, version: &str) -> Value {
        let mut object = object.clone();
        if self.kind.is_none() {
            object["apiVersion"] = json!(version);
            object["kind"] = json!("Thing");
        }
        object
    }

    fn step(&mut self, step: &Value, out: &mut String) {
        self.second += 1;
        if let Some(types) = step.get("types") {
            self.types = types.clone();
            out.push_str("> the types change\n\n");
            return;
        }
        if let Some(versions) = step.get("serve") {
            self.serve(versions);
            let _ = writeln!(out, "> serve {versions}\n");
            return;
        }
        let (verb, object) = match (step.get("apply"), step.get("update")) {
            (Some(object), _) => ("apply", object),
            (_, Some(object)) => ("update", object),
            _ => return self.extract(step, out),
        };
        let word = |field: &str, before: &str| match step[field].as_str() {
            Some(text) => format!("{before}{text}"),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "> {verb}{}{}{}{}",
            if step["force"] == true {
                ", forced,"
            } else {
                ""
            },
            word("by", " by "),
            word("version", " in "),
            word("through", " through "),
        );
        let version = step["version"].as_str().unwrap_or("v1");
        let object = self.full(object, version);
        let live = self.live.as_ref();
        let live = live.map(|live| self.renamed_to(live, version).unwrap());
        let written = self.written(step, |writer| match verb {
            "apply" => apply(live.as_ref(), &object, writer, step["force"] == true),
            _ => Ok(update(live.as_ref(), object.clone(), writer)),
        });
        match written {
            Err(why) => {
                let _ = writeln!(out, "{why}\n");
            }
            Ok(mut new) => {
                print(&new, out);
                meta::value::set_metadata(&mut new, "uid", "u");
                self.live = Some(self.renamed_to(&new, "v1").unwrap());
            }
        }
    }

    /// Does something as the writer that a step describes.
    fn written<T>(&self, step: &Value, write: impl FnOnce(&Writer<'_>) -> T) -> T {
        let word = |field: &str| step[field].as_str().unwrap_or_default();
        let version = step["version"].as_str().unwrap_or("v1");
        let gvk = self.gvk(step, version);
        let reset = step["reset"].as_array().into_iter().flatten();
        let reset: Vec<&str> = reset.filter_map(Value::as_str).collect();
        let filter = Filter::Exclude(set::of_fields(&reset));
        write(&Writer {
            manager: step["extract"].as_str().unwrap_or(word("by")),
            subresource: word("through"),
            gvk: &gvk,
            blank: &self.blank(&gvk),
            schema: &self.schema(version),
            converter: self,
            reset: &BTreeMap::from([(gvk.api_version(), filter)]),
            now: Timestamp::from_second(self.second).unwrap(),
        })
    }

    fn extract(&self, step: &Value, out: &mut String) {
        let live = self.live.as_ref().expect("a live object");
        let own = self.written(step, |writer| fieldmerge::chain::extract(live, writer));
        let own = own.unwrap().map_or("nothing".to_owned(), |v| v.to_string());
        let _ = writeln!(
            out,
            "> extract {}\n{own}\n",
            step["extract"].as_str().unwrap()
        );
    }

    fn gvk(&self, step: &Value, version: &str) -> GroupVersionKind {
        let of = |field: &str| {
            let object = step.get("apply").or(step.get("update"));
            object.and_then(|o| o[field].as_str()).unwrap_or_default()
        };
        match (&self.kind, of("apiVersion").split_once('/')) {
            (None, _) => GroupVersionKind::new("", version, "Thing"),
            (Some(_), Some((group, version))) => GroupVersionKind::new(group, version, of("kind")),
            (Some(_), None) => GroupVersionKind::new("", of("apiVersion"), of("kind")),
        }
    }

    /// Turns an object into another version.
    fn renamed_to(&self, object: &Value, version: &str) -> Option<Value> {
        if self.kind.is_some() {
            return Some(object.clone());
        }
        let mut object = object.clone();
        let from = object["apiVersion"].as_str()?.to_owned();
        let map = object.as_object_mut()?;
        for (old, new) in self.renames(&from) {
            if let Some(value) = map.remove(&new) {
                map.insert(old, value);
            }
        }
        for (old, new) in self.renames(version) {
            if let Some(value) = map.remove(&old) {
                map.insert(new, value);
            }
        }
        map.insert("apiVersion".to_owned(), json!(version));
        Some(object)
    }
}

impl Converter for Server {
    fn convert(&self, object: &Typed, version: &str) -> Result<Typed, ConvertError> {
        if self.kind.is_none() && !self.served.iter().any(|v| v == version) {
            return Err(ConvertError::UnknownVersion);
        }
        if self.kind.is_some() || object.value()["apiVersion"] == version {
            return Ok(object.clone());
        }
        let failed = || ConvertError::Failed("no version".to_owned());
        let value = self
            .renamed_to(object.value(), version)
            .ok_or_else(failed)?;
        Typed::new(&self.schema(version), value, Duplicates::Allowed)
            .map_err(|e| ConvertError::Failed(e.to_string()))
    }
}

/// Applies an object. The error is what the client or the reader is told.
fn apply(
    live: Option<&Value>,
    object: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, String> {
    match fieldmerge::apply(live, object, writer, force) {
        Ok(applied) if applied.changed => Ok(applied.object),
        Ok(applied) => {
            assert_eq!(live, Some(&applied.object));
            Err("unchanged".to_owned())
        }
        Err(error) => {
            let status = error.status();
            Err(format!("{} {}", status.code, status.message))
        }
    }
}

fn update(live: Option<&Value>, mut object: Value, writer: &Writer<'_>) -> Value {
    if live.is_some() {
        meta::value::set_metadata(&mut object, "uid", "u");
    }
    fieldmerge::update(live, object, writer)
}

fn print(object: &Value, out: &mut String) {
    let managed = Managed::of(object).unwrap();
    let mut rest = object.clone();
    for field in ["apiVersion", "kind"] {
        rest.as_object_mut().unwrap().remove(field);
    }
    if let Some(Value::Object(metadata)) = rest.get_mut("metadata") {
        metadata.remove("managedFields");
        metadata.remove("uid");
        if metadata.is_empty() {
            rest.as_object_mut().unwrap().remove("metadata");
        }
    }
    let _ = writeln!(out, "{rest}");
    for (id, owned) in &managed.0 {
        print_entry(id, owned, out);
    }
    out.push('\n');
}

fn print_entry(id: &ManagerId, owned: &Owned, out: &mut String) {
    let how = match id.operation {
        Operation::Apply => "applied",
        Operation::Update => "updated",
    };
    let through = match id.subresource.as_str() {
        "" => String::new(),
        through => format!(" through {through}"),
    };
    let when = match owned.time {
        Some(time) => format!("at {}", time.as_second()),
        None => "at no time".to_owned(),
    };
    let _ = writeln!(
        out,
        "  {} {how}{through} in {} {when}:",
        id.manager, owned.api_version
    );
    for path in owned.set.to_string().lines() {
        let _ = writeln!(out, "    {path}");
    }
}
