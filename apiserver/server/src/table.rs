//! Tables: objects as rows of cells, which is what `kubectl get` prints.

use jiff::Timestamp;
use meta::Status;
use registry::Kind;
use serde_json::{Value, json};

use crate::query::Query;
use crate::respond::metadata_only;

/// What a row carries besides its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata; the default.
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    /// Reads `includeObject`.
    pub(crate) fn read(query: &Query) -> Result<Self, Status> {
        match query.get("includeObject").unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Status::bad_request(format!(
                "unrecognized includeObject value: {other:?}"
            ))),
        }
    }
}

/// A table being filled.
pub(crate) struct Table {
    api_version: String,
    include: IncludeObject,
    columns: Vec<Value>,
    rows: Vec<Value>,
    /// The resource version to show.
    pub(crate) version: String,
}

impl Table {
    /// Creates an empty table with a kind's columns.
    pub(crate) fn new(kind: &Kind, version: &str, include: IncludeObject) -> Self {
        let columns = kind.columns.iter().map(|c| {
            json!({
                "name": c.name, "type": c.ty, "format": c.format,
                "description": c.description, "priority": c.priority,
            })
        });
        Self {
            api_version: format!("meta.k8s.io/{version}"),
            include,
            columns: columns.collect(),
            rows: Vec::new(),
            version: String::new(),
        }
    }

    /// Leaves the column headings out: in a watch only the first event has
    /// them.
    pub(crate) fn without_columns(mut self) -> Self {
        self.columns.clear();
        self
    }

    /// Adds an object's row.
    pub(crate) fn push(&mut self, kind: &Kind, view: Value, now: Timestamp) {
        let cells = kind.cells(&view, now);
        let object = match self.include {
            IncludeObject::None => Value::Null,
            IncludeObject::Metadata => metadata_only(view),
            IncludeObject::Object => view,
        };
        self.rows.push(json!({"cells": cells, "object": object}));
    }

    /// Returns the table as a value.
    pub(crate) fn finish(self) -> Value {
        json!({
            "kind": "Table",
            "apiVersion": self.api_version,
            "metadata": {"resourceVersion": self.version},
            "columnDefinitions": self.columns,
            "rows": self.rows,
        })
    }
}
