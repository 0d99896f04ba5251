//! A client's watch: what it begins with, and the queue that follows.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use meta::{FieldError, Object, Status};
use tokio::sync::mpsc;
use watchcache::{Event, EventType, Initial, Start, WatchSpec, WatcherId};

use super::request::{ReadVersion, VersionMatch, WatchRequest, invalid_options};
use super::resource::{Queue, ResourceStore};

/// How often a watch that wants bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its announced end a watch gets its last one.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// The most changes that wait for a slow client. When it is full the client
/// gets a share of one time budget, then its watch is closed.
const QUEUE_MAX: usize = 1024;

/// One thing a watch shows its client.
#[derive(Clone, Debug)]
pub enum WatchItem {
    /// A change.
    Event {
        /// What it is to this watch.
        event_type: EventType,
        /// The object to show, its resource version as it must be shown.
        object: Arc<Object>,
        /// The change itself, in which encodings are shared between watches.
        shared: Arc<Event>,
    },
    /// Everything up to this revision has been shown.
    Bookmark {
        /// The revision.
        revision: u64,
        /// Whether this ends the initial events.
        initial_events_end: bool,
    },
    /// The watch ends with this; nothing follows.
    Error(Status),
}

impl WatchItem {
    fn event(event_type: EventType, shared: Arc<Event>) -> Self {
        Self::Event {
            event_type,
            object: shared.shown(event_type).clone(),
            shared,
        }
    }
}

/// What the feed task puts into a watch's queue.
#[derive(Clone, Debug)]
pub(super) enum Queued {
    Event(EventType, Arc<Event>),
    Bookmark(u64),
}

/// How a queue came to its end.
pub(super) type Ending = std::sync::OnceLock<Status>;

/// A watch; dropping it ends it. Ends without an error when the client was too
/// slow or the server stops: the client resumes from what it last saw.
#[derive(Debug)]
pub struct WatchStream {
    initial: Option<Initial>,
    /// The bookmark that ends the initial events.
    marker: Option<u64>,
    queue: Option<mpsc::Receiver<Queued>>,
    /// Why the feed closed the queue, when clients should know.
    ending: Arc<Ending>,
    store: Option<(Arc<ResourceStore>, WatcherId)>,
}

impl WatchStream {
    fn refused(status: Status) -> Self {
        let ending = Arc::new(Ending::new());
        ending.get_or_init(|| status);
        Self {
            initial: None,
            marker: None,
            queue: None,
            ending,
            store: None,
        }
    }

    /// Returns the next item if there is one already, so that a response body
    /// can put many into one frame.
    pub fn try_next(&mut self) -> Option<WatchItem> {
        match self.poll_item(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(item) => item,
            Poll::Pending => None,
        }
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        if let Some(initial) = &mut self.initial {
            if let Some((event_type, event)) = initial.next() {
                if let Some((store, _)) = &self.store {
                    store.metrics.init_events.add(1);
                }
                return Poll::Ready(Some(WatchItem::event(event_type, event)));
            }
            self.initial = None;
        }
        if let Some(revision) = self.marker.take() {
            return Poll::Ready(Some(WatchItem::Bookmark {
                revision,
                initial_events_end: true,
            }));
        }
        let Some(queue) = &mut self.queue else {
            let ending = std::mem::take(&mut self.ending);
            return Poll::Ready(ending.get().cloned().map(WatchItem::Error));
        };
        match queue.poll_recv(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Queued::Event(event_type, event))) => {
                Poll::Ready(Some(WatchItem::event(event_type, event)))
            }
            Poll::Ready(Some(Queued::Bookmark(revision))) => {
                Poll::Ready(Some(WatchItem::Bookmark {
                    revision,
                    initial_events_end: false,
                }))
            }
            Poll::Ready(None) => {
                self.queue = None;
                self.poll_item(cx)
            }
        }
    }
}

impl Stream for WatchStream {
    type Item = WatchItem;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        self.get_mut().poll_item(cx)
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        if let Some((store, id)) = self.store.take() {
            store.forget(id);
        }
    }
}

impl ResourceStore {
    /// Starts a watch.
    ///
    /// What goes wrong once the options are valid is not an error here but the
    /// watch's one and only item, as in Kubernetes, which answers 200 and then
    /// ERROR: a version older than the window with code 410, and one that the
    /// store has not reached with 504, after [`WAIT_FOR_REVISION`], if the watch is
    /// to begin with a state. One that is to begin with what comes after that
    /// version simply waits for it.
    ///
    /// [`WAIT_FOR_REVISION`]: super::resource::WAIT_FOR_REVISION
    pub async fn watch(self: &Arc<Self>, request: WatchRequest) -> Result<WatchStream, Status> {
        validate(&request)?;
        self.wait_ready().await?;
        let fresh = match (request.version, request.send_initial_events) {
            (ReadVersion::At(n), Some(true)) => self.reach(n).await,
            (ReadVersion::Unset, Some(_)) => self.fresh().await,
            _ => Ok(()),
        };
        if let Err(status) = fresh {
            return Ok(WatchStream::refused(status));
        }
        let start = match (request.version, request.send_initial_events) {
            (_, Some(true)) => Start::State,
            (ReadVersion::At(n), _) => Start::After(n),
            (_, Some(false)) => Start::Now,
            (_, None) => Start::State,
        };
        let now = self.now();
        let bookmarks = request.bookmarks.then(|| {
            let first = request.timeout.map_or(BOOKMARK_EVERY, |t| {
                t.saturating_sub(BOOKMARK_BEFORE_END).min(BOOKMARK_EVERY)
            });
            (now + first, BOOKMARK_EVERY)
        });
        let spec = WatchSpec {
            selector: request.selector,
            start,
            bookmarks,
        };
        let marker = request.bookmarks && request.send_initial_events == Some(true);
        Ok(self.register(spec, marker))
    }

    fn register(self: &Arc<Self>, spec: WatchSpec, marker: bool) -> WatchStream {
        let due = spec.bookmarks.map(|(due, _)| due);
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let ending = Arc::new(Ending::new());
        let mut shared = self.lock();
        // Under the lock: after this the feed's last act would miss the queue.
        if self.token.is_cancelled() {
            return WatchStream::refused(self.not_ready());
        }
        let planned = shared.cacher.next_bookmark();
        let started = match shared.cacher.watch(spec) {
            Ok(started) => started,
            Err(too_old) => return WatchStream::refused(Status::expired(too_old.to_string())),
        };
        let queue = Queue {
            sender,
            ending: ending.clone(),
        };
        shared.queues.insert(started.id, queue);
        drop(shared);
        if due.is_some_and(|due| planned.is_none_or(|p| due < p)) {
            self.signals.timer.notify_one();
        }
        WatchStream {
            marker: marker.then_some(started.revision),
            initial: Some(started.initial),
            queue: Some(receiver),
            ending,
            store: Some((self.clone(), started.id)),
        }
    }

    /// Forgets a watcher; its queue ends after what is in it.
    pub(super) fn forget(&self, id: WatcherId) {
        let mut shared = self.lock();
        shared.cacher.unwatch(id);
        shared.queues.remove(&id);
    }
}

/// Refuses option combinations as apimachinery's `ValidateListOptions` does.
fn validate(request: &WatchRequest) -> Result<(), Status> {
    let refuse = |detail: &str| {
        Err(invalid_options(FieldError::forbidden(
            "resourceVersionMatch",
            detail,
        )))
    };
    match (request.send_initial_events, request.version_match) {
        (Some(_), Some(VersionMatch::NotOlderThan)) | (None, None) => Ok(()),
        (Some(_), _) => {
            refuse("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        }
        (None, Some(_)) => refuse(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    }
}
