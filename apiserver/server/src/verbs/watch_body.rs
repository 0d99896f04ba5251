//! The body of a watch: events to bytes, many in one frame when many wait.
//!
//! The encoding of an event is made once and shared by every watch that shows
//! it the same way; a watch alone in its form (YAML, a table's first event)
//! encodes for itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt};
use meta::{Object, Status};
use registry::Kind;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::body::BoxError;
use crate::negotiation::{Accepted, Media, Shape};
use crate::query::Query;
use crate::respond::{self, metadata_only};
use crate::storage::{Event, EventType, Slot, WatchItem, WatchStream};
use crate::table::{IncludeObject, Table};

/// How many bytes of events go into one frame at most, apart from the one that
/// crosses the line; the rest follows in the next.
const FRAME_BYTES: usize = 64 * 1024;

/// Turns a watch into the frames of a body. Ends with the watch, after
/// `timeout`, or when the server stops.
pub(super) fn parts(
    stream: WatchStream,
    encoder: Encoder,
    timeout: Duration,
    shutdown: CancellationToken,
) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
    let deadline = Box::pin(tokio::time::sleep_until(Instant::now() + timeout));
    let running = Running {
        stream,
        encoder,
        deadline,
        shutdown,
    };
    futures::stream::unfold(Some(running), |running| async move {
        let mut running = running?;
        let (frame, go_on) = running.next_frame().await?;
        Some((Ok(frame), go_on.then_some(running)))
    })
}

struct Running {
    stream: WatchStream,
    encoder: Encoder,
    deadline: std::pin::Pin<Box<Sleep>>,
    shutdown: CancellationToken,
}

impl Running {
    /// Waits for an event and returns it with all that already wait behind it,
    /// and whether the watch goes on.
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
        while !ended && many.as_ref().map_or(single.len(), BytesMut::len) < FRAME_BYTES {
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
    kind: &'static Kind,
    accepted: Accepted,
    include: IncludeObject,
    /// Whether a table's columns were sent.
    columns_sent: bool,
}

impl Encoder {
    pub(super) fn new(
        kind: &'static Kind,
        accepted: Accepted,
        query: &Query,
    ) -> Result<Self, Status> {
        let include = match accepted.shape {
            Shape::Table(_) => IncludeObject::read(query)?,
            _ => IncludeObject::Metadata,
        };
        // Lines are what separates events.
        let accepted = Accepted {
            pretty: false,
            ..accepted
        };
        Ok(Self {
            kind,
            accepted,
            include,
            columns_sent: false,
        })
    }

    fn encode(&mut self, item: WatchItem) -> Bytes {
        match item {
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
        }
    }

    fn event(&mut self, event_type: EventType, object: &Arc<Object>, shared: &Event) -> Bytes {
        let stored = self.kind.conversion.is_none();
        let slot = match (self.accepted.media, self.accepted.shape) {
            (Media::Json, Shape::Object) if stored => return shared.json_frame(event_type),
            (Media::Json, Shape::Object) => Slot::Converted,
            (Media::Json, Shape::Metadata) if stored => Slot::Metadata,
            (Media::Json, Shape::Table("v1"))
                if stored && self.columns_sent && self.include == IncludeObject::Metadata =>
            {
                Slot::Table
            }
            _ => return self.fresh(event_type, object),
        };
        shared.frame(slot, event_type, |object| self.fresh(event_type, object))
    }

    /// Encodes an event for this watch alone.
    fn fresh(&mut self, event_type: EventType, object: &Arc<Object>) -> Bytes {
        let shown = respond::view(self.kind, object).map(|view| match self.accepted.shape {
            Shape::Object | Shape::Discovery(_) => view,
            Shape::Metadata => metadata_only(view),
            Shape::Table(version) => self.table(version, Some(view)),
        });
        match shown {
            Ok(shown) => self.line(event_type.as_str(), &shown),
            Err(status) => self.error(&status),
        }
    }

    fn table(&mut self, version: &str, view: Option<Value>) -> Value {
        let mut table = Table::new(self.kind, version, self.include);
        if self.columns_sent {
            table = table.without_columns();
        }
        self.columns_sent = true;
        if let Some(view) = view {
            table.version = meta::value::str_at(&view, "metadata.resourceVersion").to_owned();
            table.push(self.kind, view, jiff::Timestamp::now());
        }
        table.finish()
    }

    fn bookmark(&mut self, revision: u64, initial_events_end: bool) -> Bytes {
        let mut metadata =
            json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let shown = match self.accepted.shape {
            Shape::Object | Shape::Discovery(_) => json!({
                "kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata,
            }),
            Shape::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
            }),
            Shape::Table(version) => {
                let mut table = self.table(version, None);
                table["metadata"] = metadata;
                table
            }
        };
        self.line("BOOKMARK", &shown)
    }

    fn error(&self, status: &Status) -> Bytes {
        let shown = serde_json::to_value(status).unwrap_or_default();
        self.line("ERROR", &shown)
    }

    fn line(&self, event_type: &str, object: &Value) -> Bytes {
        let event = json!({"type": event_type, "object": object});
        let mut out = respond::encode(self.accepted, &event).unwrap_or_default();
        match self.accepted.media {
            Media::Json => out.push(b'\n'),
            Media::Yaml => out.extend_from_slice(b"---\n"),
        }
        out.into()
    }
}
