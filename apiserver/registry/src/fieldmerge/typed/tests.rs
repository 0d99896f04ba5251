//! Values of one small type, and of none.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::MAX_DEPTH;
use super::super::element::{self, PathElement};
use super::super::schema::{Atom, Builder, FieldType, ListKind, MapType, Scalar, Schema};
use super::super::set::{Set, of_fields};
use super::*;

/// The type `{size, whole: [atomic], tags: {set}, labels: {map}, items: [by name]}`.
fn schema() -> Arc<Schema> {
    let mut builder = Builder::default();
    let string = builder.add(Atom::scalar(Scalar::String));
    let number = builder.add(Atom::scalar(Scalar::Numeric));
    let whole = builder.add(Atom::list(number, ListKind::Atomic));
    let tags = builder.add(Atom::list(string, ListKind::Set));
    let labels = builder.add(Atom::map(string, false));
    let fields = |fields: &[(&'static str, _)]| Atom {
        map: Some(MapType {
            fields: fields
                .iter()
                .map(|(name, ty)| {
                    let field = FieldType {
                        ty: *ty,
                        default: None,
                    };
                    (Cow::Borrowed(*name), field)
                })
                .collect(),
            ..MapType::default()
        }),
        ..Atom::default()
    };
    let item = builder.add(fields(&[
        ("name", string),
        ("size", number),
        ("tags", tags),
    ]));
    let items = builder.add(Atom::list(item, ListKind::Map(vec!["name".to_owned()])));
    let root = builder.add(fields(&[
        ("size", number),
        ("whole", whole),
        ("tags", tags),
        ("labels", labels),
        ("items", items),
    ]));
    Arc::new(builder.build(root))
}

fn typed(value: Value) -> Typed {
    Typed::new(&schema(), value, Duplicates::Allowed).unwrap()
}

#[test]
fn what_fits_is_what_can_be_typed() {
    let deep = (0..=MAX_DEPTH).fold(json!(1), |value, _| json!({"a": value}));
    let values = [
        json!({}),
        json!({"size": 1, "whole": [1, 2], "tags": ["a", "a"], "labels": {"x": "y"}}),
        json!({"items": [{"name": "a", "tags": ["x"]}, {"name": "a"}]}),
        json!({"items": null, "tags": null, "size": null}),
        json!({"labels": {"x": 1}}),
        json!({"size": "1"}),
        json!({"size": [1]}),
        json!({"whole": [null]}),
        json!({"whole": ["x"]}),
        json!({"tags": [null]}),
        json!({"tags": [{}]}),
        json!({"tags": [[]]}),
        json!({"tags": [1]}),
        json!({"tags": {}}),
        json!({"items": [null]}),
        json!({"items": [1]}),
        json!({"items": [{"size": 1}]}),
        json!({"items": [{"name": null}]}),
        json!({"items": [{"name": "a", "size": "x"}]}),
        json!({"other": 1}),
        json!([]),
        json!(null),
        deep,
    ];
    for schema in [schema(), Arc::new(Schema::deduced())] {
        for value in &values {
            let typed = Typed::new(&schema, value.clone(), Duplicates::Allowed);
            assert_eq!(
                fits(&schema, value, &Same::default()),
                typed.is_ok(),
                "{value}"
            );
        }
    }
}

fn deduced(value: Value) -> Typed {
    Typed::new(&Arc::new(Schema::deduced()), value, Duplicates::Refused).unwrap()
}

#[test]
fn leaves_and_items_are_members() {
    let value = typed(
        json!({"size": 1, "whole": [1], "tags": ["a"], "labels": {"x": "1"},
        "items": [{"name": "a", "tags": []}]}),
    );
    assert_eq!(
        value.to_set().to_json(),
        concat!(
            r#"{"f:items":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}},"f:labels":{"f:x":{}},"#,
            r#""f:size":{},"f:tags":{"v:\"a\"":{}},"f:whole":{}}"#
        )
    );
    let empty = typed(json!({"size": null, "tags": [], "labels": {}, "items": null}));
    assert_eq!(empty.to_set(), of_fields(&["size", "labels", "items"]));
}

#[test]
fn a_comparison_tells_what_came_went_and_changed() {
    let old = typed(json!({"size": 1, "tags": ["a", "b"], "labels": {"x": "1"}}));
    let new = typed(json!({"size": 2, "tags": ["b", "c"], "whole": []}));
    let changes = old.compare(&new).unwrap();
    assert_eq!(changes.modified, of_fields(&["size"]));
    assert_eq!(changes.added.to_string(), ".whole\n.tags[=\"c\"]");
    assert_eq!(
        changes.removed.to_string(),
        ".labels\n.labels.x\n.tags[=\"a\"]"
    );
    assert!(old.compare(&old).unwrap().is_same());
}

#[test]
fn what_has_no_type_changes_its_kind() {
    let (map, list) = (deduced(json!({"a": {"b": 1}})), deduced(json!({"a": [1]})));
    let changes = map.compare(&list).unwrap();
    assert_eq!(changes.modified, of_fields(&["a"]));
    assert_eq!(changes.removed, of_fields(&["a.b"]));
    assert_eq!(map.merge(&list).unwrap().value(), list.value());
    assert_eq!(list.merge(&map).unwrap().value(), map.value());
}

#[test]
fn what_is_emptied_is_null() {
    let value = typed(json!({"size": 1, "tags": ["a"], "labels": {"x": "1"},
        "items": [{"name": "a", "size": 1}, {"name": "b"}]}));
    let mut set = of_fields(&["size", "labels.x"]);
    set.insert(&[PathElement::field("tags"), PathElement::value("a")]);
    let item = [
        PathElement::field("items"),
        PathElement::key([("name", "a")]),
    ];
    set.insert(&item);
    let left = value.remove(&set);
    assert_eq!(
        **left.value(),
        json!({"tags": null, "labels": null, "items": [{"name": "b"}]})
    );
    let kept = left.without_emptied(&value, &of_fields(&["labels"]));
    assert_eq!(
        **kept.value(),
        json!({"labels": {}, "items": [{"name": "b"}]})
    );
    assert_eq!(
        **value.extract(&set).value(),
        json!({"size": 1, "tags": ["a"], "labels": {"x": "1"},
            "items": [{"name": "a", "size": 1}]})
    );
    assert_eq!(
        **value.remove(&value.to_set()).value(),
        json!({"tags": null,
        "labels": null, "items": null})
    );
}

#[test]
fn declared_fields_are_named_where_something_is_removed() {
    let mut set = of_fields(&["labels.x"]);
    set.insert(&[
        PathElement::field("items"),
        PathElement::key([("name", "a")]),
        PathElement::field("tags"),
        PathElement::value("t"),
    ]);
    assert_eq!(
        typed(json!({})).named(&set).to_string(),
        ".items\n.labels\n.items[name=\"a\"].tags\n.items[name=\"a\"].tags[=\"t\"]\n.labels.x"
    );
}

#[test]
fn values_that_nest_too_deep_are_refused() {
    let mut deep = json!(1);
    for _ in 0..=MAX_DEPTH {
        deep = json!({ "a": deep });
    }
    let schema = Arc::new(Schema::deduced());
    let refused = Typed::new(&schema, deep, Duplicates::Allowed).unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("nests deeper than 256 levels")
    );
}

#[test]
fn sets_of_an_older_schema_become_sets_of_this_one() {
    let mut old = of_fields(&["size", "gone.a"]);
    for item in ["a", "b"] {
        old.insert(&[PathElement::field("whole"), PathElement::value(item)]);
    }
    let new = reconcile(&schema(), &old);
    assert_eq!(new, of_fields(&["size", "gone.a", "whole"]));
    assert_eq!(reconcile(&schema(), &new), new);
    assert_eq!(reconcile(&Schema::deduced(), &old), old);
}

#[test]
fn items_without_a_name_are_in_no_set() {
    // Such a value is refused; what pruning makes of one need not be.
    let value = typed(json!({"items": [{"name": "a", "size": 1}]}));
    let mut name = Set::new();
    name.insert(&[
        PathElement::field("items"),
        PathElement::key([("name", "a")]),
        PathElement::field("name"),
    ]);
    let nameless = value.remove(&name);
    assert!(nameless.to_set().is_empty());
    assert!(nameless.compare(&value).is_err());
    assert_eq!(nameless.remove(&value.to_set()).value(), nameless.value());
    assert!(element::compare(nameless.extract(&name).value(), &json!({"items": null})).is_eq());
}
