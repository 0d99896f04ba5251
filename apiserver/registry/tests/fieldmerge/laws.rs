//! Laws of field merge: of sets against a naive model, of values, and of what
//! managers do to an object in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use meta::GroupVersionKind;
use proptest::prelude::*;
use registry::fieldmerge::entries::Owned;
use registry::fieldmerge::typed::{Duplicates, Typed};
use registry::fieldmerge::{
    self, Applied, ApplyError, Literal, Managed, ManagerId, MergeError, OneVersion, Operation,
    Path, PathElement, ResetFields, Schema, Set, Writer, element, set,
};
use serde_json::{Map, Value, json};

use crate::notation;

// === Sets

fn elements() -> impl Strategy<Value = PathElement> {
    let field = |name: &&str| PathElement::field(*name);
    prop_oneof![
        prop::sample::select(vec!["a", "b", "c"]).prop_map(move |name| field(&name)),
        (0..3).prop_map(|port| PathElement::key([("port", port)])),
        (0..3).prop_map(PathElement::value),
        Just(PathElement::Index(0)),
    ]
}

fn paths() -> impl Strategy<Value = BTreeSet<Path>> {
    prop::collection::btree_set(prop::collection::vec(elements(), 1..4), 0..12)
}

fn of(paths: &BTreeSet<Path>) -> Set {
    paths.iter().collect()
}

fn model(set: &Set) -> BTreeSet<Path> {
    set.paths().into_iter().collect()
}

proptest! {
    #[test]
    fn sets_are_sets(a in paths(), b in paths()) {
        let (x, y) = (of(&a), of(&b));
        prop_assert_eq!(model(&x), a.clone());
        prop_assert_eq!(x.len(), a.len());
        prop_assert_eq!(x.is_empty(), a.is_empty());
        prop_assert_eq!(x.clone().union(&y), of(&(&a | &b)));
        prop_assert_eq!(x.intersection(&y), of(&(&a & &b)));
        prop_assert_eq!(x.difference(&y), of(&(&a - &b)));
        let above = |path: &Path| (1..=path.len()).any(|n| b.contains(&path[..n]));
        let left: BTreeSet<Path> = a.iter().filter(|p| !above(p)).cloned().collect();
        prop_assert_eq!(x.recursive_difference(&y), of(&left));
        let goes_on = |path: &Path| a.iter().any(|p| p.len() > path.len() && p.starts_with(path));
        let leaves: BTreeSet<Path> = a.iter().filter(|p| !goes_on(p)).cloned().collect();
        prop_assert_eq!(x.leaves(), of(&leaves));
        for path in &b {
            prop_assert_eq!(x.contains(path), a.contains(path));
        }
    }

    #[test]
    fn sets_are_read_as_they_are_written(a in paths()) {
        let set = of(&a);
        let text = set.to_json();
        prop_assert_eq!(Set::from_json(&text), Ok(set.clone()));
        prop_assert_eq!(Set::from_value(&set.to_value()), Ok(set.clone()));
        prop_assert_eq!(Set::from_json(&text).map(|s| s.to_json()), Ok(text));
    }

    #[test]
    fn literals_are_in_one_order(a in anything(), b in anything(), c in anything()) {
        let (a, b, c) = (Literal(a), Literal(b), Literal(c));
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(&a, &a);
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
    }

    #[test]
    fn nothing_read_makes_it_fail(text in ".{0,12}", value in anything()) {
        if let Ok(Some(element)) = PathElement::decode(&text) {
            let mut out = String::new();
            element.encode(&mut out);
            prop_assert_eq!(PathElement::decode(&out), Ok(Some(element)));
        }
        let _ = Set::from_value(&value);
        let _ = Managed::parse(&json!([value.clone()]));
        for op in [Op::Apply(0, value.clone(), true), Op::Update(1, value.clone())] {
            let mut server = Server::default();
            server.run(&Op::Apply(2, json!({"size": 1}), false))?;
            server.run(&op)?;
        }
        let nothing = BTreeMap::new();
        let mut object = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"uid": "u"}});
        object["metadata"]["managedFields"] = value;
        let update = fieldmerge::update(Some(&object), object.clone(), &writer("a", &nothing));
        prop_assert_eq!(update["metadata"]["uid"].as_str(), Some("u"));
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["", "a", "Apply", "FieldsV1", "v1", "f:a", "é"])
            .prop_map(Value::from),
    ];
    let keys =
        "size|name|tags|parts|metadata|operation|apiVersion|fieldsType|fieldsV1|f:a|v:1|[.kivx]:?";
    leaf.prop_recursive(4, 16, 3, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(keys, inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

// === Values

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let strings = json!({"map": "string"});
    let part = json!({"fields": {
        "name": "string", "size": "numeric", "flag": "boolean", "tags": {"set": "string"},
        "labels": strings, "whole": {"atomic": "numeric"}, "part": "part",
        "pair": {"fields": {"a": "string", "b": "string"}, "atomic": true},
        "parts": {"list": "part", "keys": ["name"]},
        "ports": {"list": {"fields": {"port": "numeric", "protocol": "string", "name": "string"},
            "defaults": {"protocol": "TCP"}}, "keys": ["port", "protocol"]},
        "extra": "deduced",
    }});
    let mut object = part.clone();
    object["fields"]["apiVersion"] = json!("string");
    object["fields"]["kind"] = json!("string");
    object["fields"]["metadata"] =
        json!({"fields": {"name": "string", "uid": "string", "labels": strings}});
    notation::schema(&json!({"object": object, "part": part}))
});

fn names() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned)
}

/// A list in any order whose items differ. It has some: an empty list of items
/// with names is nobody's, so nothing would keep or remove it.
fn distinct(
    items: impl Strategy<Value = Value> + 'static,
    by: fn(&Value) -> String,
) -> BoxedStrategy<Value> {
    prop::collection::vec(items, 1..4)
        .prop_map(move |items| {
            let mut seen = BTreeSet::new();
            items.into_iter().filter(|i| seen.insert(by(i))).collect()
        })
        .boxed()
}

fn ports() -> BoxedStrategy<Value> {
    let protocol = prop::option::of(prop::sample::select(vec!["TCP", "UDP"]));
    let port = (1..4, protocol, prop::option::of(names()));
    let port = port.prop_map(|(port, protocol, name)| {
        some([
            ("port", Some(json!(port))),
            ("protocol", protocol.map(Value::from)),
            ("name", name.map(Value::from)),
        ])
    });
    distinct(port, |port| {
        format!(
            "{}/{}",
            port["port"],
            port["protocol"].as_str().unwrap_or("TCP")
        )
    })
}

fn some<'n>(fields: impl IntoIterator<Item = (&'n str, Option<Value>)>) -> Value {
    let fields = fields.into_iter();
    Value::Object(
        fields
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect::<Map<_, _>>(),
    )
}

fn untyped() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![(0..3).prop_map(Value::from), names().prop_map(Value::from)];
    leaf.prop_recursive(2, 8, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..2).prop_map(Value::from),
            prop::collection::btree_map(names(), inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Objects of the type above that name nothing twice.
fn objects(depth: u32) -> BoxedStrategy<Value> {
    let texts = || prop::collection::btree_map(names(), names(), 0..3).prop_map(|map| json!(map));
    let tags = distinct(names().prop_map(Value::from), Value::to_string);
    let whole = prop::collection::vec(0..3, 0..3).prop_map(|list| json!(list));
    let pair = (prop::option::of(names()), prop::option::of(names()))
        .prop_map(|(a, b)| some([("a", a.map(Value::from)), ("b", b.map(Value::from))]));
    let (part, parts) = match depth {
        0 => (Just(None).boxed(), Just(None).boxed()),
        _ => {
            let named = (objects(depth - 1), names()).prop_map(|(mut part, name)| {
                part["name"] = json!(name);
                part
            });
            let parts = distinct(named, |part| part["name"].to_string());
            (
                prop::option::weighted(0.3, objects(depth - 1)).boxed(),
                prop::option::weighted(0.4, parts).boxed(),
            )
        }
    };
    let option = |strategy: BoxedStrategy<Value>| prop::option::weighted(0.3, strategy);
    let scalars = (
        option((0..3).prop_map(Value::from).boxed()),
        option(any::<bool>().prop_map(Value::from).boxed()),
    );
    let lists = (option(tags), option(whole.boxed()), option(ports()), parts);
    let maps = (
        option(texts().boxed()),
        option(pair.boxed()),
        part,
        option(untyped().boxed()),
    );
    (scalars, lists, maps)
        .prop_map(
            |((size, flag), (tags, whole, ports, parts), (labels, pair, part, extra))| {
                some([
                    ("size", size),
                    ("flag", flag),
                    ("tags", tags),
                    ("whole", whole),
                    ("ports", ports),
                    ("parts", parts),
                    ("labels", labels),
                    ("pair", pair),
                    ("part", part),
                    ("extra", extra),
                ])
            },
        )
        .boxed()
}

fn typed(value: &Value) -> Typed {
    Typed::new(&SCHEMA, value.clone(), Duplicates::Refused).unwrap()
}

fn same(a: &Value, b: &Value) -> bool {
    element::compare(a, b).is_eq()
}

proptest! {
    #[test]
    fn values_merge_and_differ_lawfully(a in objects(2), b in objects(2)) {
        let (x, y) = (typed(&a), typed(&b));
        prop_assert!(same(x.merge(&x).unwrap().value(), &a), "with itself: itself");
        let merged = x.merge(&y).unwrap();
        prop_assert!(same(merged.merge(&y).unwrap().value(), merged.value()), "once is enough");
        let changes = merged.compare(&y).unwrap();
        prop_assert!(changes.modified.is_empty() && changes.added.is_empty(), "all of it is in");
        prop_assert!(x.compare(&x).unwrap().is_same());
        let untyped = |path: &Path| path.contains(&PathElement::field("extra"));
        // Only where a value may become another kind of value does something go.
        let gone = x.compare(&merged).unwrap().removed.paths();
        prop_assert!(gone.iter().all(untyped), "{:?}", gone);
        let (there, back) = (x.compare(&y).unwrap(), y.compare(&x).unwrap());
        prop_assert_eq!(&there.added, &back.removed);
        prop_assert_eq!(&there.removed, &back.added);
        prop_assert_eq!(&there.modified, &back.modified);
        let disjoint = there.added.intersection(&there.removed).is_empty()
            && there.added.intersection(&there.modified).is_empty()
            && there.removed.intersection(&there.modified).is_empty();
        prop_assert!(disjoint);
    }

    #[test]
    fn what_is_extracted_is_part_of_the_value(a in objects(2), b in objects(2)) {
        let (x, y) = (typed(&a), typed(&b));
        let part = x.extract(&y.to_set());
        prop_assert!(same(x.merge(&part).unwrap().value(), &a));
        let rest = x.remove(&x.to_set().intersection(&y.to_set()));
        prop_assert!(x.compare(&rest).unwrap().added.is_empty());
    }
}

// === Managers

#[derive(Clone, Debug)]
enum Op {
    Apply(usize, Value, bool),
    Update(usize, Value),
}

const MANAGERS: [&str; 3] = ["a", "b", "c"];

fn ops(managers: usize) -> impl Strategy<Value = Vec<Op>> {
    let apply = (0..managers, objects(1), any::<bool>())
        .prop_map(|(manager, object, force)| Op::Apply(manager, object, force));
    let update =
        (0..managers, objects(1)).prop_map(|(manager, object)| Op::Update(manager, object));
    prop::collection::vec(prop_oneof![3 => apply, 1 => update], 1..6)
}

static GVK: LazyLock<GroupVersionKind> = LazyLock::new(|| GroupVersionKind::new("", "v1", "Thing"));

static BLANK: LazyLock<Value> = LazyLock::new(|| full(&json!({})));

fn writer<'a>(manager: &'a str, reset: &'a ResetFields) -> Writer<'a> {
    Writer {
        manager,
        subresource: "",
        gvk: &GVK,
        blank: &BLANK,
        schema: &SCHEMA,
        converter: &OneVersion("v1"),
        reset,
        now: Timestamp::UNIX_EPOCH,
    }
}

/// A server that keeps one object.
#[derive(Default)]
struct Server {
    live: Option<Value>,
    second: i64,
}

impl Server {
    fn apply(&mut self, manager: &str, config: &Value, force: bool) -> Result<Applied, ApplyError> {
        self.second += 1;
        let reset = BTreeMap::new();
        let writer = Writer {
            now: Timestamp::from_second(self.second).unwrap(),
            ..writer(manager, &reset)
        };
        fieldmerge::apply(self.live.as_ref(), &full(config), &writer, force)
    }

    fn keep(&mut self, mut object: Value) {
        meta::value::set_metadata(&mut object, "uid", "u");
        self.live = Some(object);
    }

    fn owned(&self, manager: &str, operation: Operation) -> Set {
        let managed = self.managed();
        let id = ManagerId::new(manager, operation, "v1", "");
        managed
            .0
            .get(&id)
            .map(|owned| owned.set.clone())
            .unwrap_or_default()
    }

    fn managed(&self) -> Managed {
        self.live
            .as_ref()
            .map(|live| Managed::of(live).unwrap())
            .unwrap_or_default()
    }

    /// Runs one operation and checks what holds after it.
    fn run(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Apply(manager, config, force) => self.run_apply(MANAGERS[*manager], config, *force),
            Op::Update(manager, object) => self.run_update(MANAGERS[*manager], object),
        }
    }

    fn run_apply(
        &mut self,
        manager: &str,
        config: &Value,
        force: bool,
    ) -> Result<(), TestCaseError> {
        let applied = match self.apply(manager, config, force) {
            Ok(applied) => applied,
            Err(ApplyError::Merge(MergeError::Conflict(conflicts))) => {
                prop_assert!(!force, "a forced apply conflicts with nobody");
                let managed = self.managed();
                for conflict in conflicts {
                    // The entry of what was there before may be new.
                    if let Some(owned) = managed.0.get(&conflict.manager) {
                        prop_assert!(owned.set.contains(&conflict.path), "owned by whom it names");
                    }
                }
                return Ok(());
            }
            // Not all that is thrown at it fits the type.
            Err(_) => return Ok(()),
        };
        self.keep(applied.object);
        let stated = Typed::new(&SCHEMA, full(config), Duplicates::Refused)
            .unwrap()
            .to_set();
        let stated = stated.difference(&set::of_fields(&["apiVersion", "kind", "metadata"]));
        let owned = self.owned(manager, Operation::Apply);
        prop_assert_eq!(
            owned.to_string(),
            stated.to_string(),
            "what is applied is owned"
        );
        let live = self.live.clone().unwrap();
        let again = self.apply(manager, config, false).unwrap();
        prop_assert!(!again.changed, "{} became {}", live, again.object);
        prop_assert_eq!(
            &again.object,
            &live,
            "and so are the entries, with their times"
        );
        let (there, config) = (
            typed_live(&live).unwrap(),
            typed_live(&full(config)).unwrap(),
        );
        let seen = there.merge(&config).unwrap();
        prop_assert!(
            same(seen.value(), there.value()),
            "what is applied is there"
        );
        check_entries(&live)
    }

    fn run_update(&mut self, manager: &str, object: &Value) -> Result<(), TestCaseError> {
        self.second += 1;
        let reset = BTreeMap::new();
        let before = self.managed();
        let mut new = full(object);
        if self.live.is_some() {
            meta::value::set_metadata(&mut new, "uid", "u");
        }
        let updated = fieldmerge::update(self.live.as_ref(), new.clone(), &writer(manager, &reset));
        let (mut a, mut b) = (new.clone(), updated.clone());
        for object in [&mut a, &mut b] {
            meta::value::set_metadata(object, "managedFields", Value::Null);
        }
        prop_assert_eq!(a, b, "an update is as it was sent");
        self.keep(updated);
        if Typed::new(&SCHEMA, new, Duplicates::Allowed).is_err() {
            // To refuse what does not fit the type is not this module's; the
            // entries stay as they were.
            prop_assert_eq!(self.managed(), before);
            return Ok(());
        }
        let own = ManagerId::new(manager, Operation::Update, "v1", "");
        for (id, owned) in &self.managed().0 {
            if *id != own {
                let had = before
                    .0
                    .get(id)
                    .map(|owned| owned.set.clone())
                    .unwrap_or_default();
                prop_assert!(owned.set.difference(&had).is_empty(), "others only lose");
            }
        }
        check_entries(self.live.as_ref().unwrap())
    }
}

fn full(object: &Value) -> Value {
    let mut object = object.clone();
    if let Value::Object(map) = &mut object {
        map.insert("apiVersion".to_owned(), json!("v1"));
        map.insert("kind".to_owned(), json!("Thing"));
    }
    object
}

fn typed_live(object: &Value) -> Option<Typed> {
    let mut object = object.clone();
    object.as_object_mut()?.remove("metadata");
    Typed::new(&SCHEMA, object, Duplicates::Allowed).ok()
}

/// What is owned is there, and the entries are read as they are written.
fn check_entries(live: &Value) -> Result<(), TestCaseError> {
    let managed = Managed::of(live).unwrap();
    prop_assert_eq!(Managed::parse(&managed.to_value()), Ok(managed.clone()));
    let there = typed_live(live).unwrap().to_set();
    for (id, Owned { set, .. }) in &managed.0 {
        let set = set.recursive_difference(&set::of_fields(&["metadata"]));
        let lost = set.difference(&there);
        // An empty list is nobody's, so a map that became one may still be.
        prop_assert!(!set.is_empty() || id.operation == Operation::Update);
        for path in lost.paths() {
            prop_assert!(
                is_container(live, &path),
                "{:?} owns {}",
                id,
                element::display(&path)
            );
        }
    }
    Ok(())
}

/// Tells whether a path of fields leads to a list or a map: one that was empty
/// when it was owned, and got something in it by others, is owned still.
fn is_container(live: &Value, path: &[PathElement]) -> bool {
    let found = path.iter().try_fold(live, |value, element| match element {
        PathElement::Field(name) => value.get(name),
        PathElement::Key(keys) => value.as_array()?.iter().find(|item| {
            keys.iter().all(|(name, key)| {
                let default = if name == "protocol" {
                    json!("TCP")
                } else {
                    Value::Null
                };
                Literal(item.get(name).cloned().unwrap_or(default)) == *key
            })
        }),
        _ => None,
    });
    found.is_some_and(|value| value.is_array() || value.is_object())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn managers_obey_the_laws_in_any_order(ops in ops(3)) {
        let mut server = Server::default();
        for op in &ops {
            server.run(op)?;
        }
    }

    #[test]
    fn an_object_with_one_applier_is_its_configuration(configs in prop::collection::vec(objects(2), 1..4)) {
        let mut server = Server::default();
        for config in &configs {
            server.run(&Op::Apply(0, config.clone(), false))?;
        }
        let mut live = server.live.unwrap();
        live.as_object_mut().unwrap().remove("metadata");
        prop_assert_eq!(live, full(configs.last().unwrap()));
    }
}
