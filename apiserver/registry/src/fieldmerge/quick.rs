//! What most writes are: by somebody who owns already what they change, and whom
//! nobody else's fields concern. Then the entries stay as they stand, but for a time,
//! and no set is made of them: the few changed paths are looked up in their JSON.
//!
//! Everything else is [`super::update`]'s, which would come to the same here.

use serde_json::{Map, Value};

use super::entries::{ManagerId, Operation, UPDATE_ENTRIES_MAX};
use super::schema::Schema;
use super::set::{Node, Set};
use super::typed::{Comparison, is_reconciled};

/// A write, and what it changes.
pub(super) struct Change<'a> {
    /// The entry of who writes.
    pub(super) id: &'a ManagerId,
    /// The version it writes in, as of every entry.
    pub(super) version: &'a str,
    /// The time.
    pub(super) now: &'a str,
    /// The paths it changes.
    pub(super) paths: &'a Comparison,
    /// Those of them that the writer comes to own.
    pub(super) own: &'a Set,
}

/// Brings the entries of before up to date with a write; `None` where that takes
/// more than another time.
pub(super) fn entries(schema: &Schema, mut list: Value, change: &Change<'_>) -> Option<Value> {
    let entries = list.as_array_mut()?;
    let (mut written, mut updates) = (change.own.is_empty(), 0);
    for entry in entries.iter_mut() {
        let entry = entry.as_object_mut()?;
        let operation = operation(entry)?;
        updates += usize::from(operation == Operation::Update);
        let fields = entry.get("fieldsV1")?.as_object()?;
        if text(entry, "apiVersion") != change.version
            || text(entry, "fieldsType") != "FieldsV1"
            || fields.is_empty()
            || !is_reconciled(schema, fields)
            || touches(fields, &change.paths.removed)
        {
            return None;
        }
        let is_writers = is_of(entry, operation, change.id);
        if is_writers && !change.own.is_empty() {
            if !covers(fields, change.own) {
                return None;
            }
            entry.insert("time".to_owned(), change.now.into());
            written = true;
        } else if touches(fields, &change.paths.modified) || touches(fields, &change.paths.added) {
            return None;
        }
    }
    if !written || updates > UPDATE_ENTRIES_MAX {
        return None;
    }
    sort(entries)?;
    Some(list)
}

fn text<'e>(entry: &'e Map<String, Value>, name: &str) -> &'e str {
    entry.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn operation(entry: &Map<String, Value>) -> Option<Operation> {
    [Operation::Apply, Operation::Update]
        .into_iter()
        .find(|operation| text(entry, "operation") == operation.as_str())
}

fn is_of(entry: &Map<String, Value>, operation: Operation, id: &ManagerId) -> bool {
    operation == id.operation
        && text(entry, "manager") == id.manager
        && text(entry, "subresource") == id.subresource
}

/// Puts entries in their order; `None` when a time is none.
fn sort(entries: &mut [Value]) -> Option<()> {
    let mut times_are_times = true;
    entries.sort_by_cached_key(|entry| {
        let text = |name| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let seconds = match text("time") {
            "" => 0,
            time => meta::time::parse(time).map_or_else(
                || {
                    times_are_times = false;
                    0
                },
                |time| time.as_second(),
            ),
        };
        (
            text("operation") != Operation::Apply.as_str(),
            seconds,
            text("manager").to_owned(),
            text("subresource").to_owned(),
        )
    });
    times_are_times.then_some(())
}

/// Tells whether the path that ends with this JSON is in the set it stands in.
fn is_member(fields: &Map<String, Value>) -> bool {
    fields.is_empty() || fields.contains_key(".")
}

/// Walks what a set and the JSON of another have in common.
fn common<'f, 's>(
    fields: &'f Map<String, Value>,
    set: &'s Set,
) -> impl Iterator<Item = (&'s Node, Option<&'f Map<String, Value>>)> {
    let mut key = String::new();
    set.nodes.iter().map(move |(element, node)| {
        key.clear();
        element.encode(&mut key);
        (node, fields.get(&key).and_then(Value::as_object))
    })
}

/// Tells whether a path is in both.
fn touches(fields: &Map<String, Value>, set: &Set) -> bool {
    common(fields, set).any(|(node, inner)| {
        inner.is_some_and(|inner| node.member && is_member(inner) || touches(inner, &node.below))
    })
}

/// Tells whether every path of the set is in the other.
fn covers(fields: &Map<String, Value>, set: &Set) -> bool {
    common(fields, set).all(|(node, inner)| {
        inner.is_some_and(|inner| (!node.member || is_member(inner)) && covers(inner, &node.below))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, LazyLock};

    use jiff::Timestamp;
    use meta::GroupVersionKind;
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::chain::{Writer, account, apply, update};
    use super::super::update::OneVersion;
    use super::super::{builtin, same_but_times};
    use super::*;
    use crate::table::table;

    fn with<T>(manager: &str, second: i64, test: impl FnOnce(&Writer<'_>) -> T) -> T {
        static POD: LazyLock<(GroupVersionKind, Value, Arc<Schema>)> = LazyLock::new(|| {
            let gvk = GroupVersionKind::new("", "v1", "Pod");
            let def = table().id("io.k8s.api.core.v1.Pod").unwrap();
            let blank = builtin::blank(def, &gvk);
            (gvk, blank, Arc::new(builtin::schema(def)))
        });
        let (gvk, blank, schema) = &*POD;
        test(&Writer {
            manager,
            subresource: "",
            gvk,
            blank,
            schema,
            converter: &OneVersion("v1"),
            reset: &BTreeMap::new(),
            now: Timestamp::from_second(second).unwrap(),
        })
    }

    /// One thing that a client changes.
    #[derive(Clone, Debug)]
    enum Edit {
        Annotation(u8, Option<u8>),
        Image(u8, u8),
        Drop(u8),
        Port(u8, i64),
        Deadline(Option<i64>),
        Finalizer(u8),
    }

    fn edit() -> impl Strategy<Value = Edit> {
        prop_oneof![
            4 => (0..3u8, proptest::option::of(0..2u8)).prop_map(|(k, v)| Edit::Annotation(k, v)),
            3 => (0..3u8, 0..2u8).prop_map(|(c, v)| Edit::Image(c, v)),
            1 => (0..3u8).prop_map(Edit::Drop),
            1 => (0..3u8, 80..82i64).prop_map(|(c, p)| Edit::Port(c, p)),
            1 => proptest::option::of(1..3i64).prop_map(Edit::Deadline),
            1 => (0..2u8).prop_map(Edit::Finalizer),
        ]
    }

    fn container(pod: &mut Value, nth: u8) -> &mut Value {
        let name = format!("c{nth}");
        let list = pod["spec"]["containers"].as_array_mut().unwrap();
        let at = list.iter().position(|c| c["name"] == name.as_str());
        let at = at.unwrap_or_else(|| {
            list.push(json!({"name": name}));
            list.len() - 1
        });
        &mut list[at]
    }

    fn change(pod: &mut Value, edit: &Edit) {
        match *edit {
            Edit::Annotation(key, value) => {
                let mut map = pod["metadata"]["annotations"].take();
                map.as_object_mut().map(|m| m.remove(&format!("k{key}")));
                if let Some(value) = value {
                    map[format!("k{key}")] = value.to_string().into();
                }
                pod["metadata"]["annotations"] = map;
            }
            Edit::Image(nth, image) => container(pod, nth)["image"] = image.to_string().into(),
            Edit::Drop(nth) => {
                let list = pod["spec"]["containers"].as_array_mut().unwrap();
                list.retain(|c| c["name"] != format!("c{nth}").as_str());
            }
            Edit::Port(nth, port) => {
                container(pod, nth)["ports"] = json!([{"containerPort": port, "protocol": "TCP"}]);
            }
            Edit::Deadline(seconds) => {
                let spec = pod["spec"].as_object_mut().unwrap();
                spec.remove("activeDeadlineSeconds");
                if let Some(seconds) = seconds {
                    spec.insert("activeDeadlineSeconds".into(), seconds.into());
                }
            }
            Edit::Finalizer(nth) => {
                pod["metadata"]["finalizers"] = json!([format!("a/{nth}")]);
            }
        }
    }

    fn fresh() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []},
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": {}}})
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Whoever writes, and whatever: the entries are those of the long way.
        #[test]
        fn the_short_way_comes_to_the_same(
            writes in proptest::collection::vec(
                (0..3u8, any::<bool>(), proptest::collection::vec(edit(), 1..3)), 1..24),
        ) {
            let mut live = with("m0", 1, |w| update(None, fresh(), w));
            for (nth, (manager, knows, edits)) in writes.iter().enumerate() {
                let mut new = live.clone();
                edits.iter().for_each(|e| change(&mut new, e));
                if !knows {
                    new["metadata"].as_object_mut().unwrap().remove("managedFields");
                }
                let next = with(&format!("m{manager}"), 2 + nth as i64 / 2, |w| {
                    let long = account(Some(&live), &new, w).unwrap().to_value();
                    let next = update(Some(&live), new.clone(), w);
                    let same = same_but_times(&next, &live);
                    prop_assert!(same || next["metadata"]["managedFields"] == long,
                        "{} is not {long}", next["metadata"]["managedFields"]);
                    Ok(next)
                })?;
                live = next;
            }
        }
    }

    #[test]
    fn the_short_way_is_taken_when_nothing_changes_hands() {
        let live = with("a", 1, |w| update(None, fresh(), w));
        let mut new = live.clone();
        change(&mut new, &Edit::Annotation(0, Some(1)));
        let live = with("a", 2, |w| update(Some(&live), new, w));
        let list = live["metadata"]["managedFields"].clone();
        let mut new = live.clone();
        change(&mut new, &Edit::Annotation(0, Some(2)));
        let entries = |manager: &str, new: &Value| {
            with(manager, 9, |w| {
                w.keep(&live, new, list.clone(), &meta::marks::Same::default())
            })
        };
        let kept = entries("a", &new).unwrap();
        assert_eq!(kept[0]["time"], "1970-01-01T00:00:09Z");
        assert_eq!(kept[0]["fieldsV1"], list[0]["fieldsV1"]);
        // What belongs to somebody else, or to nobody, takes the long way.
        assert_eq!(entries("b", &new), None);
        change(&mut new, &Edit::Deadline(Some(1)));
        assert_eq!(entries("a", &new), None);
    }

    #[test]
    fn who_applies_the_same_again_gives_nothing_up() {
        let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p",
            "namespace": "n"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let first = with("a", 1, |w| apply(None, &config, w, false)).unwrap();
        let mut live = first.object;
        live["metadata"]["uid"] = "u".into();
        let again = with("a", 2, |w| apply(Some(&live), &config, w, false)).unwrap();
        assert!(!again.changed);
        let mut less = config.clone();
        less["spec"]["containers"][0]
            .as_object_mut()
            .unwrap()
            .remove("image");
        let less = with("a", 3, |w| apply(Some(&live), &less, w, false)).unwrap();
        assert_eq!(less.object["spec"]["containers"], json!([{"name": "c"}]));
    }
}
