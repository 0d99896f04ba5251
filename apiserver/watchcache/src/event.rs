//! One change as watchers see it: made once, encoded once per representation,
//! shared by all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use meta::{Object, ResourceVersion};

/// What a change is to a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The object came into the watcher's view.
    Added,
    /// The object changed within view.
    Modified,
    /// The object left the view, deleted or no longer selected.
    Deleted,
}

impl EventType {
    /// Returns the wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    /// Decides what a change is to a selector that did and does match; `None`
    /// means that it is nothing.
    pub(crate) fn of(before: bool, now: bool) -> Option<Self> {
        match (before, now) {
            (false, true) => Some(Self::Added),
            (true, true) => Some(Self::Modified),
            (true, false) => Some(Self::Deleted),
            (false, false) => None,
        }
    }
}

/// A representation an event can be encoded in. Whoever encodes chooses the
/// slot; two encoders must not share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A watch frame of the object as stored, in JSON.
    Json,
    /// A watch frame of a `Table` of the object.
    Table,
    /// A watch frame of the object's metadata only.
    Metadata,
    /// A watch frame of the object in the resource's other API version.
    Converted,
    /// A watch frame of the object as stored, in protobuf.
    Protobuf,
    /// A watch frame of the object's metadata only, in protobuf.
    ProtobufMetadata,
}

const SLOTS: usize = 6;
const TYPES: usize = 3;
/// What an event takes beside the objects and the frames, rounded up.
const EVENT_BYTES: u64 = 1024;

/// How many bytes wait for clients: of events that are alive, in queues or on
/// their way out of them, and of the room in those queues.
#[derive(Debug, Default)]
pub struct Held(AtomicU64);

impl Held {
    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn grow(&self, bytes: u64) {
        if bytes > 0 {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn shrink(&self, bytes: u64) {
        if bytes > 0 {
            self.0.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// An event's share of what is held; given back when the event goes.
#[derive(Debug)]
struct Share {
    of: Arc<Held>,
    bytes: AtomicU64,
}

impl Share {
    fn grow(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.of.grow(bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.shrink(*self.bytes.get_mut());
    }
}

/// One change of one object.
///
/// The window does not keep these, only the objects: encoded bytes live as long
/// as some watcher still has the event in its queue.
#[derive(Debug)]
pub struct Event {
    /// The revision of the change.
    pub revision: u64,
    /// The state after; `None` when the object was deleted.
    pub object: Option<Arc<Object>>,
    /// The state before; `None` when the object was created.
    pub previous: Option<Arc<Object>>,
    /// When the store's report of it was read; zero when it is shown to a new
    /// watcher and nobody waited for it.
    pub received: Duration,
    /// When it was ingested; zero likewise.
    pub dispatched: Duration,
    share: Option<Share>,
    /// The state before under the revision of the change, made when first shown.
    gone: OnceLock<Arc<Object>>,
    frames: [OnceLock<Bytes>; SLOTS * TYPES],
}

impl Event {
    /// Creates an event nobody has encoded yet.
    pub fn new(revision: u64, object: Option<Arc<Object>>, previous: Option<Arc<Object>>) -> Self {
        Self {
            revision,
            object,
            previous,
            received: Duration::ZERO,
            dispatched: Duration::ZERO,
            share: None,
            gone: OnceLock::new(),
            frames: [const { OnceLock::new() }; SLOTS * TYPES],
        }
    }

    /// Creates an event that was received and dispatched at a time, and is counted as held
    /// until the last who shows it lets it go.
    pub(crate) fn counted(
        revision: u64,
        object: Option<Arc<Object>>,
        previous: Option<Arc<Object>>,
        (received, dispatched): (Duration, Duration),
        held: &Arc<Held>,
    ) -> Self {
        let share = Share {
            of: held.clone(),
            bytes: AtomicU64::new(0),
        };
        let body = |o: &Option<Arc<Object>>| o.as_ref().map_or(0, |o| o.body().len() as u64);
        share.grow(EVENT_BYTES + body(&object) + body(&previous));
        Self {
            received,
            dispatched,
            share: Some(share),
            ..Self::new(revision, object, previous)
        }
    }

    /// Creates the ADDED that shows present state to a new watcher.
    pub fn synthetic(object: Arc<Object>) -> Self {
        Self::new(object.resource_version.0, Some(object), None)
    }

    /// Returns the object as an event of this type shows it. DELETED shows the
    /// last content a watcher saw, under the revision at which it went.
    pub fn shown(&self, event_type: EventType) -> &Arc<Object> {
        let kept = match event_type {
            EventType::Added | EventType::Modified => self.object.as_ref(),
            EventType::Deleted => self.previous.as_ref().map(|previous| {
                self.gone.get_or_init(|| {
                    let mut gone = Object::clone(previous);
                    gone.resource_version = ResourceVersion(self.revision);
                    Arc::new(gone)
                })
            }),
        };
        kept.or(self.object.as_ref())
            .or(self.previous.as_ref())
            .expect("an event has a state before or after it")
    }

    /// Returns the encoding in a slot, made by the first who asks. It is lent: taking
    /// a share of it is a write to memory that all watchers' cores write to.
    pub fn frame(
        &self,
        slot: Slot,
        event_type: EventType,
        encode: impl FnOnce(&Arc<Object>) -> Bytes,
    ) -> &Bytes {
        let at = slot as usize * TYPES + event_type as usize;
        self.frames[at].get_or_init(|| {
            let frame = encode(self.shown(event_type));
            if let Some(share) = &self.share {
                share.grow(frame.len() as u64);
            }
            frame
        })
    }

    /// Returns the JSON watch frame of the object as stored, newline included.
    pub fn json_frame(&self, event_type: EventType) -> &Bytes {
        self.frame(Slot::Json, event_type, |object| {
            let mut out = BytesMut::with_capacity(object.body().len() + 96);
            out.put_slice(b"{\"type\":\"");
            out.put_slice(event_type.as_str().as_bytes());
            out.put_slice(b"\",\"object\":");
            object.encode_json(&mut out);
            out.put_slice(b"}\n");
            out.freeze()
        })
    }
}
