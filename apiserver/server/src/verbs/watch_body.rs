//! The body of a watch: events to bytes, many in one frame when many wait.
//!
//! The encoding of an event is made once and shared by every watch that shows
//! it the same way; a watch alone in its form (a table's first event) encodes
//! for itself.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use meta::{Object, Status};
use registry::KindRef;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::body::{BoxBody, BoxError};
use crate::metrics::WatchEvents;
use crate::negotiation::{Accepted, Media, Shape};
use crate::protobuf::{self, EncodeError};
use crate::query::Query;
use crate::respond::{self, METADATA, meta_version, metadata_only};
use crate::seldom::Seldom;
use crate::storage::{Event, EventType, Slot, WatchItem, WatchStream};
use crate::table::{IncludeObject, Table};

/// How many bytes of events go into one frame at most, apart from the one that
/// crosses the line; the rest follows in the next.
const FRAME_BYTES: usize = 64 * 1024;
/// An event of so many bytes is a frame of its own, which is passed on without a copy;
/// smaller ones are copied together.
///
/// What lies below copies everything once more in any case, to where it is encrypted
/// from, so a copy here costs little more than the first look at the event. Not to copy
/// it costs more, as long as it is small: a share of bytes that all watchers have is a
/// write to memory that all cores write to, when it is taken and when it is given back,
/// and a frame of several shares is a list that has to be allocated. A frame for each
/// costs most: on HTTP/2 half a dozen locks and a task that is woken, on HTTP/1.1 a head
/// and an end. Beside some kilobytes all of that is little, and a copy for each watcher
/// is not.
const WHOLE_BYTES: usize = 4 * 1024;
/// The length that stands before an event of protobuf.
const LENGTH_BYTES: usize = 4;

/// Turns a watch into the frames of a body. Ends with the watch, after
/// `timeout`, or when the server stops.
pub(super) fn parts(
    stream: WatchStream,
    encoder: Encoder,
    timeout: Duration,
    shutdown: CancellationToken,
) -> BoxBody {
    Frames::new(stream, encoder, ending(timeout, shutdown), FRAME_BYTES).boxed_unsync()
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
    let mut frames = Frames::new(stream, encoder, ending(timeout, shutdown), 0);
    futures::stream::poll_fn(move |cx| {
        let event = frames.poll_next(cx);
        event.map(|event| Some(event?.slice(framed..)))
    })
}

/// Waits for the time when a watch ends whatever happens.
fn ending(timeout: Duration, shutdown: CancellationToken) -> Seldom<()> {
    let timeout = tokio::time::sleep(timeout);
    Seldom::new(async move {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = timeout => {}
        }
    })
}

/// The frames of a watch.
struct Frames<S> {
    /// Gone once the watch has ended.
    stream: Option<S>,
    encoder: Encoder,
    ending: Seldom<()>,
    /// A large event, which comes after what was gathered before it.
    large: Option<Bytes>,
    frame_bytes: usize,
}

impl<S: Stream<Item = WatchItem> + Unpin> Frames<S> {
    fn new(stream: S, encoder: Encoder, ending: Seldom<()>, frame_bytes: usize) -> Self {
        Self {
            stream: Some(stream),
            encoder,
            ending,
            large: None,
            frame_bytes,
        }
    }

    fn is_over(&self) -> bool {
        self.stream.is_none() && self.large.is_none()
    }

    /// Returns what waits and fits a frame; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(large) = self.large.take() {
            return Poll::Ready(Some(large));
        }
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        if self.ending.poll(cx).is_ready() {
            self.stream = None;
            return Poll::Ready(None);
        }
        let mut gathered = Gathered::Nothing;
        let mut ended = false;
        while !ended {
            let item = match stream.poll_next_unpin(cx) {
                Poll::Ready(Some(item)) => item,
                Poll::Ready(None) => {
                    ended = true;
                    break;
                }
                Poll::Pending => break,
            };
            ended = matches!(item, WatchItem::Error(_));
            let event = self.encoder.encode(&item);
            if event.len() >= WHOLE_BYTES && gathered.len() > 0 {
                self.large = Some(event.into_owned());
                break;
            }
            let whole = event.len() >= WHOLE_BYTES;
            gathered.push(event);
            if whole || gathered.len() >= self.frame_bytes {
                break;
            }
        }
        self.encoder.counted.publish();
        if ended {
            self.stream = None;
        }
        match gathered.finish() {
            None if !ended => Poll::Pending,
            frame => Poll::Ready(frame),
        }
    }
}

impl<S: Stream<Item = WatchItem> + Unpin> Body for Frames<S> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let next = self.poll_next(cx);
        next.map(|bytes| Some(Ok(Frame::data(bytes?))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over()
    }
}

/// The events of one frame.
enum Gathered {
    Nothing,
    /// One alone is passed on without a copy.
    One(Bytes),
    Many(BytesMut),
}

impl Gathered {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(event) => event.len(),
            Self::Many(events) => events.len(),
        }
    }

    fn push(&mut self, event: Cow<'_, Bytes>) {
        match self {
            Self::Nothing => *self = Self::One(event.into_owned()),
            Self::One(first) => {
                // With room for as many again.
                let mut events = BytesMut::with_capacity(2 * (first.len() + event.len()));
                events.put_slice(first);
                events.put_slice(&event);
                *self = Self::Many(events);
            }
            Self::Many(events) => events.put_slice(&event),
        }
    }

    fn finish(self) -> Option<Bytes> {
        match self {
            Self::Nothing => None,
            Self::One(event) => Some(event),
            Self::Many(events) => Some(events.freeze()),
        }
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

    fn encode<'a>(&mut self, item: &'a WatchItem) -> Cow<'a, Bytes> {
        let bytes = match item {
            WatchItem::Event {
                event_type,
                object,
                shared,
            } => self.event(*event_type, object, shared),
            WatchItem::Bookmark {
                revision,
                initial_events_end,
            } => Cow::Owned(self.bookmark(*revision, *initial_events_end)),
            WatchItem::Error(status) => Cow::Owned(self.error(status)),
        };
        self.counted.count(bytes.len());
        bytes
    }

    fn event<'a>(
        &mut self,
        event_type: EventType,
        object: &Arc<Object>,
        shared: &'a Event,
    ) -> Cow<'a, Bytes> {
        let stored = self.kind.is_stored_form();
        let slot = match (self.protobuf, self.shape) {
            (false, Shape::Object) if stored => {
                return Cow::Borrowed(shared.json_frame(event_type));
            }
            (false, Shape::Object) if !self.kind.is_custom() => Slot::Converted,
            (false, Shape::Metadata("v1")) if stored => Slot::Metadata,
            (false, Shape::Table("v1"))
                if stored && self.columns_sent && self.include == IncludeObject::Metadata =>
            {
                Slot::Table
            }
            (true, Shape::Object) if stored => Slot::Protobuf,
            (true, Shape::Metadata("v1")) if stored => Slot::ProtobufMetadata,
            _ => return Cow::Owned(self.fresh(event_type, object)),
        };
        let frame = shared.frame(slot, event_type, |object| self.fresh(event_type, object));
        Cow::Borrowed(frame)
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

#[cfg(test)]
mod test;
