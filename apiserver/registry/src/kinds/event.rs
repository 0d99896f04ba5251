//! Event, served twice from one storage: core/v1, which is what is stored, and
//! events.k8s.io/v1, which names some fields differently.

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, int_at, str_at};
use serde_json::{Map, Value};

use crate::kind::{Column, Conversion, Kind, Strategy};
use crate::print;
use crate::validate::Errors;

/// For how long an event is kept, in seconds.
const TTL: u32 = 3600;

const COLUMNS: &[Column] = &[
    Column::text("Last Seen", "The time since it happened last."),
    Column::text("Type", "Normal or Warning."),
    Column::text("Reason", "What happened, in one word."),
    Column::text("Object", "What it happened to."),
    Column::wide("Subobject", "Which part of the object."),
    Column::wide("Source", "Who says so."),
    Column::text("Message", "What happened."),
    Column::wide("First Seen", "The time since it happened first."),
    Column::wide("Count", "How often it happened."),
    Column {
        priority: 1,
        ..Column::name()
    },
];

const SELECTABLE: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// Describes core/v1's Event.
pub(crate) static CORE: Kind = Kind {
    kind: "Event",
    list_kind: "EventList",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    storage_prefix: "events",
    definition: "io.k8s.api.core.v1.Event",
    create_on_update: true,
    ttl_seconds: TTL,
    selectable: SELECTABLE,
    columns: COLUMNS,
    strategy: &CoreEvent,
    ..Kind::BASE
};

/// Describes events.k8s.io/v1's Event.
pub(crate) static EVENTS: Kind = Kind {
    group: "events.k8s.io",
    kind: "Event",
    list_kind: "EventList",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    storage_prefix: "events",
    conversion: Some(Conversion {
        to_storage,
        from_storage,
    }),
    definition: "io.k8s.api.events.v1.Event",
    create_on_update: true,
    ttl_seconds: TTL,
    selectable: SELECTABLE,
    columns: COLUMNS,
    strategy: &NewEvent,
    ..Kind::BASE
};

/// The fields that differ: their names in events.k8s.io/v1 and in core/v1.
const RENAMED: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn rename(object: &mut Value, api_version: &str, to_core: bool) {
    let Value::Object(map) = object else { return };
    for (new, core) in RENAMED {
        let (from, to) = if to_core { (new, core) } else { (core, new) };
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
    map.insert("apiVersion".to_owned(), Value::from(api_version));
}

fn to_storage(object: &mut Value) {
    if str_at(object, "apiVersion") != "v1" {
        rename(object, "v1", true);
    }
}

fn from_storage(object: &mut Value) {
    if str_at(object, "apiVersion") == "v1" {
        rename(object, "events.k8s.io/v1", false);
    }
}

struct CoreEvent;

impl Strategy for CoreEvent {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        involved(object, "involvedObject", errors);
    }

    fn selectable_field(&self, object: &Value, name: &str) -> String {
        let text = match name {
            // The component, and for newer events who reports.
            "source" => match str_at(object, "source.component") {
                "" => str_at(object, "reportingComponent"),
                component => component,
            },
            other => str_at(object, other),
        };
        text.to_owned()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        row(object, now)
    }
}

struct NewEvent;

impl Strategy for NewEvent {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        involved(object, "regarding", errors);
        for field in [
            "reportingController",
            "reportingInstance",
            "action",
            "reason",
        ] {
            if str_at(object, field).is_empty() {
                errors.push(FieldError::required(field, ""));
            }
        }
        if str_at(object, "eventTime").is_empty() {
            errors.push(FieldError::required("eventTime", ""));
        }
        if !matches!(str_at(object, "type"), "Normal" | "Warning") {
            errors.push(FieldError::invalid(
                "type",
                str_at(object, "type"),
                "has invalid value",
            ));
        }
        if str_at(object, "note").len() > 1024 {
            errors.push(FieldError::invalid(
                "message",
                "",
                "can have at most 1024 characters",
            ));
        }
    }

    fn selectable_field(&self, object: &Value, name: &str) -> String {
        let mut core = object.clone();
        to_storage(&mut core);
        CoreEvent.selectable_field(&core, name)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut core = object.clone();
        to_storage(&mut core);
        row(&core, now)
    }
}

/// Checks that an event lies in the namespace of what it is about; events
/// about cluster-scoped objects lie in `default` (or `kube-system`).
fn involved(object: &Value, field: &str, errors: &mut Errors) {
    let about = str_at(object, &format!("{field}.namespace"));
    let namespace = meta::value::namespace(object);
    let fits = if about.is_empty() {
        matches!(namespace, "default" | "kube-system" | "")
    } else {
        about == namespace
    };
    if !fits {
        errors.push(FieldError::invalid(
            format!("{field}.namespace"),
            about,
            "does not match event.namespace",
        ));
    }
}

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let since = |paths: [&str; 2]| {
        let moment = paths
            .iter()
            .map(|p| str_at(object, p))
            .find(|t| !t.is_empty());
        print::since(moment.unwrap_or_default(), now)
    };
    let first = since(["firstTimestamp", "eventTime"]);
    let series = at(object, "series").and_then(Value::as_object);
    let (last, count) = match series {
        Some(series) => (
            since_series(series, now),
            series.get("count").and_then(Value::as_i64).unwrap_or(0),
        ),
        None => {
            let last = since(["lastTimestamp", "firstTimestamp"]);
            let last = if last == "<unknown>" {
                first.clone()
            } else {
                last
            };
            (
                last,
                int_at(object, "count").filter(|c| *c != 0).unwrap_or(1),
            )
        }
    };
    let kind = str_at(object, "involvedObject.kind").to_lowercase();
    let name = str_at(object, "involvedObject.name");
    let target = if name.is_empty() {
        kind
    } else {
        format!("{kind}/{name}")
    };
    let either = |a: &str, b: &str| match str_at(object, a) {
        "" => str_at(object, b).to_owned(),
        text => text.to_owned(),
    };
    let component = either("source.component", "reportingComponent");
    let host = either("source.host", "reportingInstance");
    let source = if host.is_empty() {
        component
    } else {
        format!("{component}, {host}")
    };
    vec![
        Value::from(last),
        Value::from(str_at(object, "type")),
        Value::from(str_at(object, "reason")),
        Value::from(target),
        Value::from(str_at(object, "involvedObject.fieldPath")),
        Value::from(source),
        Value::from(str_at(object, "message").trim()),
        Value::from(first),
        Value::from(count),
        print::name(object),
    ]
}

fn since_series(series: &Map<String, Value>, now: Timestamp) -> String {
    let moment = series
        .get("lastObservedTime")
        .and_then(Value::as_str)
        .unwrap_or_default();
    print::since(moment, now)
}
