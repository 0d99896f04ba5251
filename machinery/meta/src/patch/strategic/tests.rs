//! Tests of strategic merge patch: a table of cases, and laws.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A type with one of each kind of field; every object is of this type.
#[derive(Clone)]
struct Test;

impl MergeSchema for Test {
    fn field(&self, name: &str) -> Option<FieldRule<Self>> {
        let rule = |merge, replace, key: &'static str| {
            Some(FieldRule {
                merge,
                replace,
                merge_key: key.into(),
                schema: Some(Test),
            })
        };
        match name {
            "items" => rule(true, false, "name"),
            "ports" => rule(true, false, "port"),
            "set" => rule(true, false, ""),
            "keyless" => rule(true, false, ""),
            "atomic" | "object" => rule(false, false, ""),
            "replaced" => rule(false, true, ""),
            _ => None,
        }
    }
}

fn patched(original: Value, patch: Value) -> Result<Value, PatchError> {
    apply(&Test, original, patch)
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn table_of_cases() {
    for (what, original, patch, result) in [
        (
            "scalars and nulls",
            json!({"a":1,"b":2}),
            json!({"a":null,"b":3,"c":null}),
            json!({"b":3}),
        ),
        (
            "objects merge",
            json!({"object":{"a":1}}),
            json!({"object":{"b":2}}),
            json!({"object":{"a":1,"b":2}}),
        ),
        (
            "objects of strategy replace",
            json!({"replaced":{"a":1}}),
            json!({"replaced":{"b":2}}),
            json!({"replaced":{"b":2}}),
        ),
        (
            "atomic lists",
            json!({"atomic":[1,2]}),
            json!({"atomic":[3]}),
            json!({"atomic":[3]}),
        ),
        (
            "unknown lists",
            json!({"huh":[{"a":1}]}),
            json!({"huh":[]}),
            json!({"huh":[]}),
        ),
        (
            "sets unite",
            json!({"set":[1,2]}),
            json!({"set":[2,3]}),
            json!({"set":[1,2,3]}),
        ),
        (
            "lists merge by key",
            json!({"items":[{"name":"a","v":1},{"name":"b"}]}),
            json!({"items":[{"name":"c"},{"name":"a","w":2}]}),
            json!({"items":[{"name":"c"},{"name":"a","v":1,"w":2},{"name":"b"}]}),
        ),
        (
            "keys are compared as values",
            json!({"ports":[{"port":80,"n":"x"}]}),
            json!({"ports":[{"port":80,"n":"y"},{"port":81}]}),
            json!({"ports":[{"port":80,"n":"y"},{"port":81}]}),
        ),
        (
            "an element is deleted",
            json!({"items":[{"name":"a"},{"name":"b"}]}),
            json!({"items":[{"name":"a","$patch":"delete"}]}),
            json!({"items":[{"name":"b"}]}),
        ),
        (
            "deleting what is not there",
            json!({"items":[{"name":"b"}]}),
            json!({"items":[{"name":"a","$patch":"delete"}]}),
            json!({"items":[{"name":"b"}]}),
        ),
        (
            "a list is replaced",
            json!({"items":[{"name":"a"},{"name":"b"}]}),
            json!({"items":[{"name":"c"},{"$patch":"replace"}]}),
            json!({"items":[{"name":"c"}]}),
        ),
        (
            "an object is replaced",
            json!({"object":{"a":1}}),
            json!({"object":{"$patch":"replace","b":1}}),
            json!({"object":{"b":1}}),
        ),
        (
            "an object is emptied",
            json!({"object":{"a":1}}),
            json!({"object":{"$patch":"delete"}}),
            json!({"object":{}}),
        ),
        (
            "directives never end up in the object",
            json!({}),
            json!({"object":{"$patch":"replace","a":1,"b":null},
                "items":[{"name":"a","$patch":"delete"},{"name":"b"}]}),
            json!({"object":{"a":1},"items":[{"name":"b"}]}),
        ),
        (
            "primitives are deleted",
            json!({"set":["a","b","c"]}),
            json!({"$deleteFromPrimitiveList/set":["b","x"],"set":["d"]}),
            json!({"set":["d","a","c"]}),
        ),
        (
            "keys are retained",
            json!({"object":{"a":1,"b":2,"c":3}}),
            json!({"object":{"$retainKeys":["a","d"],"d":4}}),
            json!({"object":{"a":1,"d":4}}),
        ),
        (
            "an order is set",
            json!({"items":[{"name":"a"},{"name":"b"},{"name":"c"}]}),
            json!({"$setElementOrder/items":[{"name":"c"},{"name":"a"},{"name":"d"}],
                "items":[{"name":"d"}]}),
            json!({"items":[{"name":"b"},{"name":"c"},{"name":"a"},{"name":"d"}]}),
        ),
        (
            "an order alone",
            json!({"set":["a","b"]}),
            json!({"$setElementOrder/set":["b","a"]}),
            json!({"set":["b","a"]}),
        ),
        (
            "an order with deletions",
            json!({"set":["a","b","c"]}),
            json!({"$setElementOrder/set":["c","a"],"$deleteFromPrimitiveList/set":["b"]}),
            json!({"set":["c","a"]}),
        ),
        (
            "merging goes on inside",
            json!({"items":[{"name":"a","ports":[{"port":1,"x":1}]}]}),
            json!({"items":[{"name":"a","ports":[{"port":1,"y":2}]}]}),
            json!({"items":[{"name":"a","ports":[{"port":1,"x":1,"y":2}]}]}),
        ),
        (
            "types change",
            json!({"object":{"a":1}}),
            json!({"object":5}),
            json!({"object":5}),
        ),
        (
            "lists go",
            json!({"items":[{"name":"a"}]}),
            json!({"items":null}),
            json!({}),
        ),
    ] {
        assert_eq!(patched(original, patch).unwrap(), result, "{what}");
    }
}

#[test]
fn what_is_refused() {
    for (original, patch, code) in [
        (json!({}), json!([]), 400),
        (json!({}), json!({"$patch": "jump"}), 400),
        (json!({}), json!({"$patch": 1}), 400),
        (
            json!({"object":{}}),
            json!({"object":{"$retainKeys":["a"],"b":1}}),
            400,
        ),
        (
            json!({"object":{}}),
            json!({"object":{"$retainKeys":"a"}}),
            400,
        ),
        (
            json!({"set":[1]}),
            json!({"$deleteFromPrimitiveList/set":1}),
            400,
        ),
        (json!({"set":[1]}), json!({"$setElementOrder/set":1}), 400),
        (
            json!({"set":[1]}),
            json!({"$setElementOrder/set":[1],"set":[2]}),
            400,
        ),
        (
            json!({"items":[{"name":"a"}]}),
            json!({"items":[{"$patch":"merge"}]}),
            400,
        ),
        (
            json!({"items":[{"name":"a"}]}),
            json!({"items":[{"v":1}]}),
            422,
        ),
        (
            json!({"items":[{"name":"a"}]}),
            json!({"items":[{"$patch":"delete"}]}),
            422,
        ),
        (
            json!({"keyless":[{"name":"a"}]}),
            json!({"keyless":[{"name":"b"}]}),
            422,
        ),
    ] {
        let error = patched(original, patch.clone()).unwrap_err();
        assert_eq!(error.status().code, code, "{patch}: {error}");
    }
}

fn named() -> impl Strategy<Value = Value> {
    let element = ("[a-e]", 0..3).prop_map(|(name, v)| (name, v));
    prop::collection::btree_map("[a-e]", element, 0..5).prop_map(|map| {
        let items = map
            .into_iter()
            .map(|(name, (k, v))| json!({"name": name, k: v}));
        json!({"items": items.collect::<Vec<_>>()})
    })
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(original in named(), patch in named()) {
        let once = patched(original, patch.clone()).unwrap();
        prop_assert_eq!(patched(once.clone(), patch).unwrap(), once);
    }

    #[test]
    fn the_empty_patch_changes_nothing(original in named()) {
        prop_assert_eq!(patched(original.clone(), json!({})).unwrap(), original);
    }

    #[test]
    fn patching_with_itself_changes_nothing(original in named()) {
        prop_assert_eq!(patched(original.clone(), original.clone()).unwrap(), original);
    }

    #[test]
    fn every_key_of_both_is_there(original in named(), patch in named()) {
        let names = |v: &Value| -> std::collections::BTreeSet<String> {
            v["items"].as_array().unwrap().iter().map(|i| i["name"].to_string()).collect()
        };
        let both: std::collections::BTreeSet<_> =
            names(&original).union(&names(&patch)).cloned().collect();
        let result = patched(original, patch).unwrap();
        prop_assert_eq!(names(&result), both);
    }
}
