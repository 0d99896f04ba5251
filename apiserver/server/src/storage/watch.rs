//! A client's watch: where it begins, and the line that follows.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use meta::{FieldError, Object, Status};
use watchcache::{
    BOOKMARK_EVERY, Bookmarks, Event, EventType, Item, Line, Start, WatchSpec, WatcherId,
};

use super::request::{ReadVersion, VersionMatch, WatchRequest, invalid_options};
use super::resource::ResourceStore;

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

/// A watch; dropping it ends it. Ends without an error when the client was too
/// slow or the server stops: the client resumes from what it last saw.
#[derive(Debug)]
pub struct WatchStream(Source);

#[derive(Debug)]
enum Source {
    /// It could not begin; says so once.
    Refused(Option<Status>),
    Running {
        line: Arc<Line>,
        store: Arc<ResourceStore>,
        id: WatcherId,
    },
}

impl WatchStream {
    fn refused(status: Option<Status>) -> Self {
        Self(Source::Refused(status))
    }

    /// Returns the next item if there is one already. Nobody is woken for the next
    /// one: who wants to wait for it polls the stream.
    pub fn try_next(&mut self) -> Option<WatchItem> {
        match self.poll_item(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(item) => item,
            Poll::Pending => None,
        }
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        let (line, store) = match &mut self.0 {
            Source::Refused(status) => return Poll::Ready(status.take().map(WatchItem::Error)),
            Source::Running { line, store, .. } => (line, store),
        };
        line.poll_next(cx).map(|item| {
            Some(match item? {
                Item::Event(event_type, shared) => {
                    store.count_out(&shared);
                    WatchItem::Event {
                        event_type,
                        object: shared.shown(event_type).clone(),
                        shared,
                    }
                }
                Item::Bookmark {
                    revision,
                    initial_events_end,
                } => WatchItem::Bookmark {
                    revision,
                    initial_events_end,
                },
                Item::Lost => {
                    WatchItem::Error(Status::expired("the watch's position was lost: list again"))
                }
            })
        })
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
        if let Source::Running { store, id, line } = &self.0 {
            // What is queued is let go without the lock that everybody needs.
            drop(store.lock().unwatch(*id));
            line.sever();
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
        let generation = *self.serving.borrow();
        if generation == 0 {
            return Err(self.not_ready());
        }
        let fresh = match (request.version, request.send_initial_events) {
            (ReadVersion::At(n), Some(true)) => self.reach(n).await,
            (ReadVersion::Unset, Some(_)) => self.fresh().await.map(drop),
            _ => Ok(()),
        };
        if let Err(status) = fresh {
            return Ok(WatchStream::refused(Some(status)));
        }
        let start = match (request.version, request.send_initial_events) {
            (_, Some(true)) => Start::State,
            (ReadVersion::At(n), _) => Start::After(n),
            (_, Some(false)) => Start::Now,
            (_, None) => Start::State,
        };
        let now = self.now();
        let bookmarks = request.bookmarks.then(|| Bookmarks {
            every: BOOKMARK_EVERY,
            end: request.timeout.map(|t| now + t),
        });
        let spec = WatchSpec {
            selector: request.selector,
            start,
            bookmarks,
        };
        let marked = request.bookmarks && request.send_initial_events == Some(true);
        Ok(self.register(spec, marked, generation))
    }

    fn register(self: &Arc<Self>, spec: WatchSpec, marked: bool, generation: u64) -> WatchStream {
        let now = self.now();
        let mut hub = self.lock();
        // Under the lock: after this the one who ends all lines would miss this
        // one. What was waited for in another generation is over at once, as
        // the watches of that generation are.
        if !hub.cacher.is_ready() || hub.cacher.generation() != generation {
            return WatchStream::refused(None);
        }
        let planned = hub.cacher.next_bookmark();
        let (id, line) = match hub.watch(spec, marked, now) {
            Ok(begun) => begun,
            Err(too_old) => {
                return WatchStream::refused(Some(Status::expired(too_old.to_string())));
            }
        };
        let earlier = hub.cacher.next_bookmark() != planned;
        drop(hub);
        if earlier {
            self.signals.timer.notify_one();
        }
        WatchStream(Source::Running {
            line,
            store: self.clone(),
            id,
        })
    }

    /// Counts an event that a response takes.
    fn count_out(&self, event: &Event) {
        if event.received.is_zero() {
            self.metrics.init_events.add(1);
            return;
        }
        let now = self.now();
        let stages = &self.metrics.stages;
        stages
            .cache_to_watcher
            .observe(now.saturating_sub(event.dispatched));
        stages.total.observe(now.saturating_sub(event.received));
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
