//! `metadata.managedFields`: who manages what, as it stands in an object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::element::FieldsError;
use super::gotext::quoted;
use super::set::Set;

/// The most entries of updates that an object keeps; see [`Managed::cap`].
pub const UPDATE_ENTRIES_MAX: usize = 10;
/// The manager into whose entries the oldest updates are merged.
pub const ANCIENT_CHANGES: &str = "ancient-changes";
/// The manager of what stood in an object before anybody applied it.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The only type of field sets there is.
const FIELDS_V1: &str = "FieldsV1";

/// How a manager came to own what it owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// It stated it in an applied configuration.
    Apply,
    /// It wrote it in any other way.
    Update,
}

impl Operation {
    /// Returns the word in an entry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Tells entries apart. An applier has one entry, whatever the version it
/// applies in; who updates has one for each version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManagerId {
    /// The manager's name.
    pub manager: String,
    /// How it came to own its fields.
    pub operation: Operation,
    /// The version, of an update; empty of an apply.
    pub api_version: String,
    /// The subresource it wrote through; empty for the object itself.
    pub subresource: String,
}

impl ManagerId {
    /// Names the entry of a manager that writes in a version. A manager without
    /// a name is `unknown`.
    pub fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        Self {
            manager: if manager.is_empty() {
                "unknown"
            } else {
                manager
            }
            .to_owned(),
            operation,
            api_version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => api_version.to_owned(),
            },
            subresource: subresource.to_owned(),
        }
    }
}

/// What a manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The fields.
    pub set: Set,
    /// The version in which they are named.
    pub api_version: String,
    /// When the manager last changed something.
    pub time: Option<Timestamp>,
}

/// Why entries cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The list is no list, or an entry no object.
    #[error("managed fields must be a list of objects")]
    Shape,
    /// There is no third operation.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// An entry says no version.
    #[error("apiVersion must not be empty")]
    NoVersion,
    /// An entry says no type of its fields.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// There is no other type of fields.
    #[error("invalid fieldsType {} in managed fields entry {at}", quoted(.fields_type))]
    FieldsType {
        /// The type it says.
        fields_type: String,
        /// Which entry.
        at: usize,
    },
    /// A time that is none.
    #[error("invalid time in managed fields entry {0}")]
    Time(usize),
    /// The fields cannot be read.
    #[error("error decoding set: {0}")]
    Fields(FieldsError),
}

/// What all managers of an object own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed(pub BTreeMap<ManagerId, Owned>);

impl Managed {
    /// Reads the entries of an object; none when it has none.
    pub fn of(object: &Value) -> Result<Self, EntryError> {
        match object.pointer("/metadata/managedFields") {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(list) => Self::parse(list),
        }
    }

    /// Reads a list of entries.
    pub fn parse(list: &Value) -> Result<Self, EntryError> {
        let mut managed = Self::default();
        for (at, entry) in list.as_array().ok_or(EntryError::Shape)?.iter().enumerate() {
            let entry = entry.as_object().ok_or(EntryError::Shape)?;
            let (id, owned) = parse_entry(at, entry)?;
            managed.0.insert(id, owned);
        }
        Ok(managed)
    }

    /// Returns the list of entries: of appliers first, the oldest first.
    pub fn to_value(&self) -> Value {
        let seconds = |owned: &Owned| owned.time.map_or(0, Timestamp::as_second);
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by_key(|(id, owned)| {
            (
                id.operation,
                seconds(owned),
                &id.manager,
                &owned.api_version,
                &id.subresource,
            )
        });
        entries
            .into_iter()
            .map(|(id, owned)| entry(id, owned))
            .collect()
    }

    /// Writes the entries into an object; where there are none, the field goes.
    pub fn write(&self, object: &mut Value) {
        put(object, Some(self.to_value()).filter(|_| !self.0.is_empty()));
    }

    /// Tells whether the managers own the same, at whatever times.
    pub fn same_but_times(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self
                .0
                .iter()
                .zip(&other.0)
                .all(|((a, x), (b, y))| a == b && x.api_version == y.api_version && x.set == y.set)
    }

    /// Merges the oldest entries of updates until there are at most so many.
    /// Those of one version are merged, into one of [`ANCIENT_CHANGES`]; it may
    /// take the last merged one's time, which is the latest.
    pub fn cap(&mut self, max: usize) {
        let mut updaters: Vec<(i64, ManagerId)> = self
            .0
            .iter()
            .filter(|(id, _)| id.operation == Operation::Update)
            .map(|(id, owned)| (owned.time.map_or(0, Timestamp::as_second), id.clone()))
            .collect();
        updaters.sort();
        let mut left = updaters.len();
        let mut first_of: BTreeMap<String, ManagerId> = BTreeMap::new();
        for (_, id) in updaters {
            if left <= max {
                return;
            }
            let Some(version) = self.0.get(&id).map(|owned| owned.api_version.clone()) else {
                continue;
            };
            let Some(first) = first_of.get(&version) else {
                first_of.insert(version, id);
                continue;
            };
            let bucket = ManagerId::new(ANCIENT_CHANGES, Operation::Update, &version, "");
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if id != bucket
                && let Some(merged) = self.0.remove(&id)
                && let Some(into) = self.0.get_mut(&bucket)
            {
                into.set = std::mem::take(&mut into.set).union(&merged.set);
                into.time = merged.time;
                left -= 1;
            }
        }
    }
}

fn parse_entry(at: usize, entry: &Map<String, Value>) -> Result<(ManagerId, Owned), EntryError> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(EntryError::Operation),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err(EntryError::NoVersion);
    }
    match text("fieldsType") {
        FIELDS_V1 => {}
        "" => return Err(EntryError::NoFieldsType(at)),
        other => {
            return Err(EntryError::FieldsType {
                fields_type: other.to_owned(),
                at,
            });
        }
    }
    let set = match entry.get("fieldsV1") {
        None | Some(Value::Null) => Set::new(),
        Some(fields) => Set::from_value(fields)?,
    };
    let time = match text("time") {
        "" => None,
        time => Some(meta::time::parse(time).ok_or(EntryError::Time(at))?),
    };
    let mut id = ManagerId::new("", operation, api_version, text("subresource"));
    // An entry without a name keeps none: it is only new ones that get one.
    text("manager").clone_into(&mut id.manager);
    let owned = Owned {
        set,
        api_version: api_version.to_owned(),
        time,
    };
    Ok((id, owned))
}

fn entry(id: &ManagerId, owned: &Owned) -> Value {
    let mut map = Map::new();
    let mut text = |name: &str, value: &str| {
        if !value.is_empty() {
            map.insert(name.to_owned(), Value::from(value));
        }
    };
    text("manager", &id.manager);
    text("operation", id.operation.as_str());
    text("apiVersion", &owned.api_version);
    text(
        "time",
        &owned.time.map(meta::time::format).unwrap_or_default(),
    );
    text("fieldsType", FIELDS_V1);
    text("subresource", &id.subresource);
    map.insert("fieldsV1".to_owned(), owned.set.to_value());
    Value::Object(map)
}

/// Takes the list of entries out of an object.
pub(super) fn take(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields")
}

/// Puts a list of entries into an object, or takes the one it has.
pub(super) fn put(object: &mut Value, list: Option<Value>) {
    match (list, object.get_mut("metadata")) {
        (Some(list), _) => meta::value::set_metadata(object, "managedFields", list),
        (None, Some(Value::Object(metadata))) => {
            metadata.remove("managedFields");
        }
        (None, _) => {}
    }
}

/// Tells whether a list of entries asks for all ownership to be forgotten: it is
/// there and empty, or has one entry and nothing in it.
pub fn is_reset(list: Option<&Value>) -> bool {
    let is_empty = |value: &Value| value.is_null() || value.as_str() == Some("");
    match list.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.values().all(is_empty),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::set::of_fields;
    use super::*;

    fn managed(entries: &[(&str, Operation, &str, i64)]) -> Managed {
        let of = |&(manager, operation, version, second): &(&str, Operation, &str, i64)| {
            let owned = Owned {
                set: of_fields(&[manager]),
                api_version: version.to_owned(),
                time: Timestamp::from_second(second).ok().filter(|_| second > 0),
            };
            (ManagerId::new(manager, operation, version, ""), owned)
        };
        Managed(entries.iter().map(of).collect())
    }

    #[test]
    fn entries_are_read_and_written() {
        let list = json!([
            {"manager": "a", "operation": "Apply", "apiVersion": "v2", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:a": {}}},
            {"manager": "b", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
             "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:b": {}}, "subresource": "status"},
            {"manager": "a", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
             "time": "2026-01-02T00:00:00Z", "fieldsV1": {}},
        ]);
        let managed = Managed::parse(&list).unwrap();
        assert_eq!(managed.0.len(), 3);
        assert_eq!(managed.to_value(), list);
        let mut object = json!({"metadata": {"name": "x"}});
        managed.write(&mut object);
        assert_eq!(Managed::of(&object), Ok(managed));
        Managed::default().write(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "x"}}));
    }

    #[test]
    fn bad_entries_are_refused_in_known_words() {
        let good = json!({"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"});
        assert!(Managed::parse(&json!([good])).is_ok());
        for (field, bad, words) in [
            (
                "operation",
                "Delete",
                "operation must be `Apply` or `Update`",
            ),
            ("apiVersion", "", "apiVersion must not be empty"),
            (
                "fieldsType",
                "",
                "missing fieldsType in managed fields entry 0",
            ),
            (
                "fieldsType",
                "F2",
                "invalid fieldsType \"F2\" in managed fields entry 0",
            ),
            ("time", "noon", "invalid time in managed fields entry 0"),
        ] {
            let mut entry = good.clone();
            entry[field] = json!(bad);
            let error = Managed::parse(&json!([entry])).unwrap_err();
            assert_eq!(error.to_string(), words);
        }
        assert_eq!(Managed::parse(&json!({})), Err(EntryError::Shape));
        assert_eq!(Managed::parse(&json!([1])), Err(EntryError::Shape));
    }

    #[test]
    fn only_an_empty_list_or_an_empty_entry_resets() {
        for reset in [json!([]), json!([{}]), json!([{"manager": ""}])] {
            assert!(is_reset(Some(&reset)), "{reset}");
        }
        for keep in [
            json!(null),
            json!([{}, {}]),
            json!([{"manager": "a"}]),
            json!({}),
        ] {
            assert!(!is_reset(Some(&keep)), "{keep}");
        }
        assert!(!is_reset(None));
    }

    #[test]
    fn the_oldest_updates_become_ancient() {
        use Operation::{Apply, Update};
        let mut three = managed(&[
            ("old", Update, "v1", 1),
            ("older-version", Update, "v0", 2),
            ("mid", Update, "v1", 3),
            ("new", Update, "v1", 4),
            ("applier", Apply, "v1", 1),
        ]);
        let all = three.clone();
        three.cap(4);
        assert_eq!(three, all);
        three.cap(3);
        let bucket = ManagerId::new(ANCIENT_CHANGES, Update, "v1", "");
        assert_eq!(three.0[&bucket].set, of_fields(&["old", "mid"]));
        assert_eq!(three.0[&bucket].time, Timestamp::from_second(3).ok());
        assert_eq!(three.0.len(), 4);
        // The bucket takes more; what has a version of its own cannot be merged.
        three.cap(1);
        assert_eq!(three.0[&bucket].set, of_fields(&["old", "mid", "new"]));
        assert_eq!(three.0.len(), 3);
    }
}
