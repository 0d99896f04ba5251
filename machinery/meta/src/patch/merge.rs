//! JSON merge patch (RFC 7386): objects merge, null removes, the rest replaces.

use serde_json::{Map, Value};

/// Applies a patch.
pub fn apply(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            map.remove(&name);
        } else {
            apply(map.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// Returns the patch that turns one value into another; the empty object when
/// they are equal. Nulls inside the target cannot be expressed and are lost.
pub fn diff(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to {
        match from.get(name) {
            Some(old) if old == value => {}
            Some(old @ Value::Object(_)) if value.is_object() => {
                patch.insert(name.clone(), diff(old, value));
            }
            // A new object, or one that replaces something else, is written out.
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

/// Returns the patch that brings `current` to `modified` as far as the caller
/// had a say: what it had in `original` and no longer has is removed, what it
/// has is set, what others set is left (`kubectl apply`'s three-way patch).
pub fn three_way(original: &Value, modified: &Value, current: &Value) -> Value {
    let mut patch = keep(diff(current, modified), false);
    let removals = keep(diff(original, modified), true);
    overlay(&mut patch, removals, current);
    patch
}

/// Keeps of a patch only its removals, or only its additions and changes.
fn keep(patch: Value, removals: bool) -> Value {
    let Value::Object(map) = patch else {
        return patch;
    };
    let kept = map.into_iter().filter_map(|(name, value)| match value {
        Value::Null => removals.then_some((name, Value::Null)),
        Value::Object(inner) => {
            let was_empty = inner.is_empty();
            let kept = keep(Value::Object(inner), removals);
            let empty = kept.as_object().is_some_and(Map::is_empty);
            (!empty || (was_empty && !removals)).then_some((name, kept))
        }
        other => (!removals).then_some((name, other)),
    });
    Value::Object(kept.collect())
}

/// Adds removals of what exists to a patch of additions and changes.
fn overlay(patch: &mut Value, removals: Value, current: &Value) {
    let (Value::Object(patch), Value::Object(removals)) = (patch, removals) else {
        return;
    };
    for (name, removal) in removals {
        let Some(existing) = current.get(&name) else {
            continue;
        };
        match removal {
            Value::Null => {
                patch.entry(name).or_insert(Value::Null);
            }
            nested => {
                if let Some(slot) = patch.get_mut(&name) {
                    overlay(slot, nested, existing);
                    continue;
                }
                let mut slot = Value::Object(Map::new());
                overlay(&mut slot, nested, existing);
                if slot.as_object().is_some_and(|m| !m.is_empty()) {
                    patch.insert(name, slot);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_rfc_examples() {
        for (target, patch, result) in [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (
                json!({"a":{"b":"c"}}),
                json!({"a":{"b":"d","c":null}}),
                json!({"a":{"b":"d"}}),
            ),
            (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a":"foo"}), json!(null), json!(null)),
            (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
            (
                json!({}),
                json!({"a":{"bb":{"ccc":null}}}),
                json!({"a":{"bb":{}}}),
            ),
        ] {
            let mut target = target;
            apply(&mut target, patch);
            assert_eq!(target, result);
        }
    }

    #[test]
    fn three_way_leaves_what_others_set() {
        let original = json!({"spec":{"replicas":1,"old":{"a":1}},"gone":1});
        let modified = json!({"spec":{"image":"x","old":{}}});
        let current = json!({"spec":{"replicas":5,"nodeName":"n","old":{"a":1,"b":2}},"gone":1});
        let mut result = current.clone();
        apply(&mut result, three_way(&original, &modified, &current));
        assert_eq!(
            result,
            json!({"spec":{"image":"x","nodeName":"n","old":{"b":2}}})
        );
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..3).prop_map(Value::from),
            Just(json!("s")),
            Just(json!([1, {"a": 2}])),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        })
    }

    fn objects() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[abc]", values(), 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn a_diff_leads_where_it_should(from in objects(), to in objects()) {
            let mut result = from.clone();
            apply(&mut result, diff(&from, &to));
            prop_assert_eq!(result, to);
        }

        #[test]
        fn equal_values_differ_by_nothing(value in objects()) {
            prop_assert_eq!(diff(&value, &value), json!({}));
        }

        #[test]
        fn three_way_without_others_is_a_diff(original in objects(), modified in objects()) {
            let mut result = original.clone();
            apply(&mut result, three_way(&original, &modified, &original));
            prop_assert_eq!(result, modified);
        }

        #[test]
        fn three_way_is_idempotent(original in objects(), modified in objects(), current in objects()) {
            let mut once = current.clone();
            apply(&mut once, three_way(&original, &modified, &current));
            prop_assert_eq!(three_way(&modified, &modified, &once), json!({}));
        }
    }
}
