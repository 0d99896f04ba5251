//! An object and its entries, told apart: whether a write changes more than the
//! times of who wrote what.

use meta::marks::Same;
use serde_json::{Map, Value};

use super::element;
use super::entries::Managed;

/// Where in its metadata an object has its entries.
pub(super) const ENTRIES: &str = "managedFields";

/// Tells whether two objects are the same but for the times in their entries:
/// then the one need not be written over the other. To be asked once more when
/// an object was defaulted.
pub fn same_but_times(old: &Value, new: &Value) -> bool {
    if !same_but_entries(old, new, &Same::default()) {
        return false;
    }
    let same = match (entries_of(old), entries_of(new)) {
        (None, None) => true,
        (Some(a), Some(b)) => element::same(a, b),
        _ => false,
    };
    same || match (Managed::of(old), Managed::of(new)) {
        (Ok(old), Ok(new)) => old.same_but_times(&new),
        _ => false,
    }
}

/// Tells whether two objects are the same but for who owns what of them. Of some of
/// their members that is known.
pub(super) fn same_but_entries(old: &Value, new: &Value, known: &Same<'_>) -> bool {
    let same_metadata = match (old.get("metadata"), new.get("metadata")) {
        (Some(old), Some(new)) => same_but(old, new, ENTRIES, &|name| known.metadata(name)),
        (None, None) => true,
        _ => false,
    };
    same_metadata && same_but(old, new, "metadata", &|name| known.member(name))
}

/// Tells whether two objects are the same but for one member.
fn same_but(old: &Value, new: &Value, aside: &str, known: &dyn Fn(&str) -> bool) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return element::same(old, new);
    };
    let others = |map: &Map<String, Value>| map.len() - usize::from(map.contains_key(aside));
    others(old) == others(new)
        && old
            .iter()
            .filter(|(name, _)| *name != aside && !known(name))
            .all(|(name, old)| new.get(name).is_some_and(|new| element::same(old, new)))
}

/// Returns the entries of an object as they stand in it.
pub(super) fn entries_of(object: &Value) -> Option<&Value> {
    let entries = object.get("metadata")?.get(ENTRIES)?;
    Some(entries).filter(|entries| !entries.is_null())
}

/// Copies an object without its entries, which may be as large as the rest.
pub(super) fn without_entries(object: &Value) -> Value {
    let Value::Object(members) = object else {
        return object.clone();
    };
    let copy = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::Object(metadata) if name == "metadata" => {
                let others = metadata.iter().filter(|(name, _)| *name != ENTRIES);
                others.map(|(n, v)| (n.clone(), v.clone())).collect()
            }
            other => other.clone(),
        };
        (name.clone(), value)
    };
    members.iter().map(copy).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_order_of_members_is_no_difference() {
        let one = parse(
            r#"{"kind": "A", "metadata": {"name": "a", "uid": "u"}, "x": {"a": 1, "b": [1]}}"#,
        );
        let other = parse(
            r#"{"x": {"b": [1], "a": 1}, "metadata": {"uid": "u", "name": "a"}, "kind": "A"}"#,
        );
        assert!(same_but_times(&one, &other));
        for different in [
            json!({"kind": "A", "metadata": {"name": "a", "uid": "u"}, "x": {"a": 1, "b": [2]}}),
            json!({"kind": "A", "metadata": {"name": "a"}, "x": {"a": 1, "b": [1]}}),
            json!({"kind": "A", "x": {"a": 1, "b": [1]}}),
            json!({"kind": "A", "metadata": {"name": "a", "uid": "u"}}),
            json!(null),
        ] {
            assert!(!same_but_times(&one, &different), "{different}");
            assert!(!same_but_times(&different, &one), "{different}");
        }
    }

    #[test]
    fn entries_are_set_aside_wherever_they_stand() {
        let entry = |manager: &str, time: &str| {
            json!({"metadata": {"name": "a", "managedFields": [{"manager": manager, "time": time,
                "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:x": {}}}]}})
        };
        let (first, later) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        assert!(same_but_times(&entry("a", first), &entry("a", later)));
        assert!(!same_but_times(&entry("a", first), &entry("b", first)));
        let bare = json!({"metadata": {"name": "a"}});
        assert!(!same_but_times(&bare, &entry("a", first)));
        let unknown = Same::default();
        assert!(same_but_entries(&bare, &entry("a", first), &unknown));
        assert_eq!(without_entries(&entry("a", first)), bare);
        assert_eq!(entries_of(&bare), None);
    }
}
