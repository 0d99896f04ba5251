//! Tables: objects as rows of cells, which is what `kubectl get` prints.

use jiff::Timestamp;
use meta::Status;
use registry::Kind;
use serde_json::{Value, json};

use crate::query::Query;
use crate::respond::{meta_version, metadata_only};

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
                "Unable to convert to Table as requested: {}",
                meta::FieldError::invalid(
                    "includeObject",
                    other,
                    "must be 'Metadata', 'Object', 'None', or empty"
                )
            ))),
        }
    }

    /// Returns what a row carries of a view, metadata in a version of `meta.k8s.io`.
    pub(crate) fn of(self, view: Value, version: &str) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Metadata => metadata_only(view, version),
            Self::Object => view,
        }
    }
}

/// A table being filled.
pub(crate) struct Table {
    version_of_meta: &'static str,
    include: IncludeObject,
    columns: Vec<Value>,
    rows: Vec<Value>,
    /// The resource version to show.
    pub(crate) version: String,
}

impl Table {
    /// Creates an empty table with a kind's columns.
    pub(crate) fn new(kind: &Kind, version: &'static str, include: IncludeObject) -> Self {
        Self {
            version_of_meta: version,
            include,
            columns: kind.column_definitions(),
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

    /// Adds the row of the bookmark that ends the initial events: it is known by
    /// its metadata, which is there whatever was asked for.
    pub(crate) fn push_marker(&mut self, kind: &Kind, view: Value, now: Timestamp) {
        if self.include == IncludeObject::None {
            self.include = IncludeObject::Metadata;
        }
        self.push(kind, view, now);
    }

    /// Adds an object's row.
    pub(crate) fn push(&mut self, kind: &Kind, view: Value, now: Timestamp) {
        let cells = kind.cells(&view, now);
        let object = self.include.of(view, self.version_of_meta);
        self.rows.push(json!({"cells": cells, "object": object}));
    }

    /// Returns the table as a value.
    pub(crate) fn finish(self) -> Value {
        json!({
            "kind": "Table",
            "apiVersion": meta_version(self.version_of_meta),
            "metadata": {"resourceVersion": self.version},
            "columnDefinitions": self.columns,
            "rows": self.rows,
        })
    }
}
