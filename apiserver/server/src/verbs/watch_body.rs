//! The body of a watch: events to bytes, many in one frame when many wait.
//!
//! The encoding of an event is made once and shared by every watch that shows
//! it the same way; a watch alone in its form (a table's first event) encodes
//! for itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt};
use meta::{Object, Status};
use registry::KindRef;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::body::BoxError;
use crate::metrics::WatchEvents;
use crate::negotiation::{Accepted, Media, Shape};
use crate::protobuf::{self, EncodeError};
use crate::query::Query;
use crate::respond::{self, METADATA, meta_version, metadata_only};
use crate::storage::{Event, EventType, Slot, WatchItem, WatchStream};
use crate::table::{IncludeObject, Table};

/// How many bytes of events go into one frame at most, apart from the one that
/// crosses the line; the rest follows in the next.
const FRAME_BYTES: usize = 64 * 1024;
/// The length that stands before an event of protobuf.
const LENGTH_BYTES: usize = 4;

/// Turns a watch into the frames of a body. Ends with the watch, after
/// `timeout`, or when the server stops.
pub(super) fn parts(
    stream: WatchStream,
    encoder: Encoder,
    timeout: Duration,
    shutdown: CancellationToken,
) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
    run(stream, encoder, timeout, shutdown, FRAME_BYTES).map(Ok)
}

/// Turns a watch into events one by one, without what tells them apart in a
/// body of protobuf.
pub(super) fn events(
    stream: WatchStream,
    encoder: Encoder,
    timeout: Duration,
    shutdown: CancellationToken,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let framed = if encoder.protobuf { LENGTH_BYTES } else { 0 };
    run(stream, encoder, timeout, shutdown, 0).map(move |event| event.slice(framed..))
}

fn run(
    stream: WatchStream,
    encoder: Encoder,
    timeout: Duration,
    shutdown: CancellationToken,
    frame_bytes: usize,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let deadline = Box::pin(tokio::time::sleep_until(Instant::now() + timeout));
    let running = Running {
        stream,
        encoder,
        deadline,
        shutdown,
        frame_bytes,
    };
    futures::stream::unfold(Some(running), |running| async move {
        let mut running = running?;
        let (frame, go_on) = running.next_frame().await?;
        Some((frame, go_on.then_some(running)))
    })
}

struct Running {
    stream: WatchStream,
    encoder: Encoder,
    deadline: std::pin::Pin<Box<Sleep>>,
    shutdown: CancellationToken,
    frame_bytes: usize,
}

impl Running {
    /// Waits for an event and returns it with those that already wait behind it
    /// and fit the frame, and whether the watch goes on.
    async fn next_frame(&mut self) -> Option<(Bytes, bool)> {
        let first = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => return None,
            () = self.deadline.as_mut() => return None,
            item = self.stream.next() => item?,
        };
        let mut ended = matches!(first, WatchItem::Error(_));
        let single = self.encoder.encode(first);
        let mut many: Option<BytesMut> = None;
        while !ended && many.as_ref().map_or(single.len(), BytesMut::len) < self.frame_bytes {
            let Some(item) = self.stream.try_next() else {
                break;
            };
            ended = matches!(item, WatchItem::Error(_));
            let bytes = self.encoder.encode(item);
            many.get_or_insert_with(|| BytesMut::from(&single[..]))
                .put_slice(&bytes);
        }
        // One event alone is passed on without a copy.
        Some((many.map_or(single, BytesMut::freeze), !ended))
    }
}

/// Encodes the events of one watch.
pub(super) struct Encoder {
    kind: KindRef,
    shape: Shape,
    protobuf: bool,
    include: IncludeObject,
    /// Whether a table's columns were sent.
    columns_sent: bool,
    counted: WatchEvents,
}

impl Encoder {
    pub(super) fn new(
        kind: KindRef,
        accepted: Accepted,
        query: &Query,
        counted: WatchEvents,
    ) -> Result<Self, Status> {
        let (shape, include) = match accepted.shape {
            Shape::Table(_) => (accepted.shape, IncludeObject::read(query)?),
            // There is no list to take the metadata of.
            Shape::MetadataList(version) => (Shape::Metadata(version), IncludeObject::Metadata),
            shape => (shape, IncludeObject::Metadata),
        };
        Ok(Self {
            kind,
            shape,
            protobuf: accepted.media == Media::Protobuf,
            include,
            columns_sent: false,
            counted,
        })
    }

    fn encode(&mut self, item: WatchItem) -> Bytes {
        let bytes = match item {
            WatchItem::Event {
                event_type,
                object,
                shared,
            } => self.event(event_type, &object, &shared),
            WatchItem::Bookmark {
                revision,
                initial_events_end,
            } => self.bookmark(revision, initial_events_end),
            WatchItem::Error(status) => self.error(&status),
        };
        self.counted.count(bytes.len());
        bytes
    }

    fn event(&mut self, event_type: EventType, object: &Arc<Object>, shared: &Event) -> Bytes {
        let stored = self.kind.is_stored_form();
        let slot = match (self.protobuf, self.shape) {
            (false, Shape::Object) if stored => return shared.json_frame(event_type),
            (false, Shape::Object) if !self.kind.is_custom() => Slot::Converted,
            (false, Shape::Metadata("v1")) if stored => Slot::Metadata,
            (false, Shape::Table("v1"))
                if stored && self.columns_sent && self.include == IncludeObject::Metadata =>
            {
                Slot::Table
            }
            (true, Shape::Object) if stored => Slot::Protobuf,
            (true, Shape::Metadata("v1")) if stored => Slot::ProtobufMetadata,
            _ => return self.fresh(event_type, object),
        };
        shared.frame(slot, event_type, |object| self.fresh(event_type, object))
    }

    /// Encodes an event for this watch alone.
    fn fresh(&mut self, event_type: EventType, object: &Arc<Object>) -> Bytes {
        if let Some(bytes) = self.translated(event_type, object) {
            return bytes.unwrap_or_else(|e| self.error(&e.into_status()));
        }
        let shown = respond::view(&self.kind, object).map(|view| match self.shape {
            Shape::Object | Shape::Discovery(_) => view,
            Shape::Metadata(version) | Shape::MetadataList(version) => metadata_only(view, version),
            Shape::Table(version) => self.table(version, view, false),
        });
        match shown {
            Ok(shown) => self.line(event_type.as_str(), &shown),
            Err(status) => self.error(&status),
        }
    }

    /// Translates an object as it is stored to protobuf, where nothing else is
    /// to be done to it.
    fn translated(
        &self,
        event_type: EventType,
        object: &Object,
    ) -> Option<Result<Bytes, EncodeError>> {
        if !self.protobuf || !self.kind.is_stored_form() {
            return None;
        }
        let (api_version, kind) = match self.shape {
            Shape::Object => (self.kind.api_version(), self.kind.kind),
            Shape::Metadata(version) => (meta_version(version), METADATA),
            _ => return None,
        };
        let found = protobuf::Type::find(&api_version, kind);
        Some(found.and_then(|t| t.event(event_type.as_str(), object)))
    }

    fn table(&mut self, version: &'static str, view: Value, marker: bool) -> Value {
        let mut table = Table::new(&self.kind, version, self.include);
        if self.columns_sent {
            table = table.without_columns();
        }
        self.columns_sent = true;
        table.version = meta::value::str_at(&view, "metadata.resourceVersion").to_owned();
        let now = jiff::Timestamp::now();
        match marker {
            true => table.push_marker(&self.kind, view, now),
            false => table.push(&self.kind, view, now),
        }
        table.finish()
    }

    fn bookmark(&mut self, revision: u64, initial_events_end: bool) -> Bytes {
        let mut metadata =
            json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let view = json!({
            "kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata,
        });
        let shown = match self.shape {
            Shape::Object | Shape::Discovery(_) => view,
            Shape::Metadata(version) | Shape::MetadataList(version) => metadata_only(view, version),
            Shape::Table(version) => self.table(version, view, initial_events_end),
        };
        self.line("BOOKMARK", &shown)
    }

    fn error(&self, status: &Status) -> Bytes {
        let shown = serde_json::to_value(status).unwrap_or_default();
        self.line("ERROR", &shown)
    }

    fn line(&self, event_type: &str, object: &Value) -> Bytes {
        if self.protobuf {
            let (api_version, kind) = meta::value::type_meta(object);
            let found = protobuf::Type::find(api_version, kind);
            return found
                .and_then(|t| t.event_of(event_type, object))
                .unwrap_or_else(|error| {
                    tracing::error!(kind, %error, "an event cannot be shown in protobuf");
                    // An event of no type, which clients pass over.
                    Bytes::from_static(&[0; LENGTH_BYTES])
                });
        }
        let event = json!({"type": event_type, "object": object});
        // A value always encodes.
        let mut out = serde_json::to_vec(&event).unwrap_or_default();
        out.push(b'\n');
        out.into()
    }
}
