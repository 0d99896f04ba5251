//! Lists as JSON and YAML, in every shape.
//!
//! What is served as it is stored is copied, whole or the metadata of it; everything
//! else becomes a value, one object at a time.

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use meta::{Object, Status};
use registry::KindRef;
use serde::Serialize;
use serde_json::{Value, json};

use super::{FRAME_BYTES, READ_BYTES, row};
use crate::negotiation::{Accepted, Media, Shape};
use crate::respond::{self, METADATA, METADATA_LIST, meta_version, metadata_only};
use crate::storage::Items;
use crate::table::IncludeObject;

/// What an item, or a head, takes besides what is copied.
const EXTRA_BYTES: usize = 128;

/// A list that is being written.
pub(super) struct Text {
    items: Items,
    item: Item,
    layout: Layout,
    /// What stands before the items; taken by the first frame.
    head: Vec<(&'static str, Value)>,
    stage: Stage,
}

/// How far a list is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Head,
    /// Before the first item.
    First,
    Items,
    End,
}

/// How the text is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Compact,
    Indented,
    Yaml,
}

/// What is shown of an object.
struct Item {
    kind: KindRef,
    shape: Shape,
    include: IncludeObject,
    /// Whether objects are served as they are stored.
    stored: bool,
    /// As of when ages are.
    now: Timestamp,
}

impl Text {
    /// Prepares to write a list.
    pub(super) fn new(
        kind: KindRef,
        accepted: Accepted,
        include: IncludeObject,
        metadata: Value,
        items: Items,
    ) -> Self {
        let (name, api_version) = match accepted.shape {
            Shape::Table(version) => ("Table".to_owned(), meta_version(version)),
            Shape::Metadata(version) | Shape::MetadataList(version) => {
                (METADATA_LIST.to_owned(), meta_version(version))
            }
            Shape::Object | Shape::Discovery(_) => (kind.list_kind.to_owned(), kind.api_version()),
        };
        let mut head = vec![
            ("kind", Value::String(name)),
            ("apiVersion", Value::String(api_version)),
            ("metadata", metadata),
        ];
        if let Shape::Table(_) = accepted.shape {
            head.push(("columnDefinitions", kind.column_definitions().into()));
        }
        Self {
            items,
            item: Item {
                stored: kind.is_stored_form(),
                kind,
                shape: accepted.shape,
                include,
                now: Timestamp::now(),
            },
            layout: match (accepted.media, accepted.pretty) {
                (Media::Yaml, _) => Layout::Yaml,
                (_, true) => Layout::Indented,
                (_, false) => Layout::Compact,
            },
            head,
            stage: Stage::Head,
        }
    }

    /// Makes the next frame; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if self.stage == Stage::End {
            return Ok(None);
        }
        let mut more = self.items.refill().await?;
        let room = self.items.ready_bytes(FRAME_BYTES) + 2 * EXTRA_BYTES;
        let mut out = BytesMut::with_capacity(room + room / 8);
        if self.stage == Stage::Head {
            self.write_head(&mut out)?;
            self.stage = Stage::First;
        }
        let mut read = 0;
        while more {
            while let Some(object) = self.items.take() {
                self.write_item(&object, &mut out)?;
                self.stage = Stage::Items;
                read += object.body().len();
                if out.len() >= FRAME_BYTES || read >= READ_BYTES {
                    return Ok(Some(out.freeze()));
                }
            }
            more = self.items.refill().await?;
        }
        self.write_end(&mut out);
        self.stage = Stage::End;
        Ok(Some(out.freeze()))
    }

    /// Returns what the items are called.
    fn items_name(&self) -> &'static str {
        match self.item.shape {
            Shape::Table(_) => "rows",
            _ => "items",
        }
    }

    fn write_head(&mut self, out: &mut BytesMut) -> Result<(), Status> {
        let head = std::mem::take(&mut self.head);
        let items = self.items_name();
        match self.layout {
            Layout::Compact => {
                for (name, value) in head {
                    out.put_slice(if name == "kind" { b"{\"" } else { b",\"" });
                    out.put_slice(name.as_bytes());
                    out.put_slice(b"\":");
                    json(&value, out)?;
                }
                out.put_slice(format!(",\"{items}\":[").as_bytes());
            }
            Layout::Indented => {
                out.put_slice(b"{\n");
                for (name, value) in head {
                    let value = indented(&pretty(&value)?, "  ");
                    out.put_slice(format!("  \"{name}\": {value},\n").as_bytes());
                }
                out.put_slice(format!("  \"{items}\": [").as_bytes());
            }
            Layout::Yaml => {
                for (name, value) in head {
                    out.put_slice(yaml(&json!({name: value}))?.as_bytes());
                }
                out.put_slice(format!("{items}:").as_bytes());
            }
        }
        Ok(())
    }

    fn write_item(&self, object: &Object, out: &mut BytesMut) -> Result<(), Status> {
        let first = self.stage == Stage::First;
        match self.layout {
            Layout::Compact => {
                if !first {
                    out.put_u8(b',');
                }
                return self.item.write(object, out);
            }
            Layout::Indented => {
                let text = pretty(&self.item.value(object)?)?;
                out.put_slice(if first { b"\n    " } else { b",\n    " });
                out.put_slice(indented(&text, "    ").as_bytes());
            }
            Layout::Yaml => {
                let text = yaml(&self.item.value(object)?)?;
                out.put_slice(if first { b"\n- " } else { b"- " });
                // The last line break is put back below; others may be of a text.
                let text = text.strip_suffix('\n').unwrap_or(&text);
                out.put_slice(indented(text, "  ").as_bytes());
                out.put_u8(b'\n');
            }
        }
        Ok(())
    }

    fn write_end(&self, out: &mut BytesMut) {
        let empty = self.stage == Stage::First;
        out.put_slice(match (self.layout, empty) {
            (Layout::Compact, _) => b"]}",
            (Layout::Indented, true) => b"]\n}",
            (Layout::Indented, false) => b"\n  ]\n}",
            (Layout::Yaml, true) => b" []\n",
            (Layout::Yaml, false) => b"",
        });
    }
}

impl Item {
    /// Writes what is shown of an object as JSON.
    fn write(&self, object: &Object, out: &mut BytesMut) -> Result<(), Status> {
        match self.shape {
            Shape::Table(version) => {
                out.put_slice(b"{\"cells\":");
                self.write_row(version, object, out)?;
                out.put_u8(b'}');
                Ok(())
            }
            _ if !self.stored => json(&self.value(object)?, out),
            Shape::Object | Shape::Discovery(_) => {
                object.encode_json(out);
                Ok(())
            }
            Shape::Metadata(version) | Shape::MetadataList(version) => {
                write_metadata(version, object, out);
                Ok(())
            }
        }
    }

    fn write_row(&self, version: &str, object: &Object, out: &mut BytesMut) -> Result<(), Status> {
        let view = row::read(&self.kind, object)?;
        json(&self.kind.cells(&view, self.now), out)?;
        out.put_slice(b",\"object\":");
        match (self.include, self.stored) {
            (IncludeObject::None, _) => out.put_slice(b"null"),
            (IncludeObject::Metadata, true) => write_metadata(version, object, out),
            (IncludeObject::Metadata, false) => json(&metadata_only(view, version), out)?,
            (IncludeObject::Object, true) => object.encode_json(out),
            (IncludeObject::Object, false) => json(&view, out)?,
        }
        Ok(())
    }

    /// Returns what is shown of an object.
    fn value(&self, object: &Object) -> Result<Value, Status> {
        let view = respond::view(&self.kind, object)?;
        Ok(match self.shape {
            Shape::Object | Shape::Discovery(_) => view,
            Shape::Metadata(version) | Shape::MetadataList(version) => metadata_only(view, version),
            Shape::Table(version) => {
                let cells = self.kind.cells(&view, self.now);
                json!({"cells": cells, "object": self.include.of(view, version)})
            }
        })
    }
}

/// Writes the metadata-only form of an object that is served as it is stored.
fn write_metadata(version: &str, object: &Object, out: &mut BytesMut) {
    out.put_slice(b"{\"kind\":\"");
    out.put_slice(METADATA.as_bytes());
    out.put_slice(b"\",\"apiVersion\":\"");
    out.put_slice(meta_version(version).as_bytes());
    out.put_slice(b"\",\"metadata\":");
    object.encode_metadata(out);
    out.put_u8(b'}');
}

fn json(value: &impl Serialize, out: &mut BytesMut) -> Result<(), Status> {
    serde_json::to_writer(out.writer(), value).map_err(cannot_encode)
}

fn pretty(value: &Value) -> Result<String, Status> {
    serde_json::to_string_pretty(value).map_err(cannot_encode)
}

fn yaml(value: &Value) -> Result<String, Status> {
    serde_saphyr::to_string(value).map_err(cannot_encode)
}

fn cannot_encode(error: impl std::fmt::Display) -> Status {
    Status::internal(format!("cannot encode: {error}"))
}

/// Moves all lines but the first to the right. Neither language minds: JSON has no
/// line breaks within its texts, and YAML counts from where a text begins.
fn indented(text: &str, by: &str) -> String {
    let mut lines = text.split('\n');
    let mut out = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        out.push('\n');
        if !line.is_empty() {
            out.push_str(by);
            out.push_str(line);
        }
    }
    out
}
