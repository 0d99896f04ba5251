//! Watch streams: the shell around the hub.
//!
//! A stream is polled by whoever reads it, when that reader wants more; the hub
//! remembers how far it got. So a reader that does not read costs nothing but its
//! place in the hub, and delays nobody.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures::{Stream, StreamExt as _, stream::BoxStream};
use mvcc::watch::{StreamId, WatchCreate, WatchReply};
use tokio::sync::Notify;

use crate::{auth::refusal_text, fatal::fatal, handle::Handle};

/// Events taken from the hub at a time. A revision is never split, so one reply
/// may still be larger.
const EVENTS_PER_POLL: usize = 1_000;

/// Confirmations that may wait to be sent. Beyond it no more is read from a client
/// that asks and does not listen (etcd: ctrlStreamBufLen).
const UNCONFIRMED_MAX: usize = 16;

/// One client's stream: what may be asked of it.
pub(crate) struct Session {
    /// The way in, as whoever opened the stream.
    handle: Handle,
    stream: StreamId,
    /// Fires when there may be something to read.
    signal: Arc<Notify>,
    /// Fires when something was read.
    read: Notify,
    /// Whether the stream ends once what is ready was read.
    closed: AtomicBool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Opens a stream. On a member that has stopped it ends at once.
    pub(crate) fn open(handle: &Handle) -> Arc<Self> {
        let now = handle.shared.now();
        let opened = handle.shared.with(|core| core.open_stream(now));
        let (stream, signal) = opened.unwrap_or_default();
        Arc::new(Self {
            handle: handle.clone(),
            stream,
            signal,
            read: Notify::new(),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn create(&self, create: WatchCreate) {
        // The id, or the refusal, comes back as a reply.
        let asker = self.handle.asker();
        self.ask(|core, stream| {
            // etcd refuses a negative revision first.
            let admitted = match create.start_revision < 0 {
                true => Ok(()),
                false => self.handle.admit(core, &asker, |machine, who| {
                    // No key is the smallest one.
                    let key = if create.key.is_empty() {
                        b"\0"
                    } else {
                        &*create.key
                    };
                    machine.auth().check_read(who, key, &create.range_end)
                }),
            };
            match admitted {
                Ok(()) => {
                    core.hub.create(stream, create);
                }
                Err(error) => core.hub.refuse(stream, refusal_text(&error)),
            }
        });
    }

    pub(crate) fn cancel(&self, watch_id: i64) {
        // An unknown id gets no answer, as in etcd.
        self.ask(|core, stream| {
            core.hub.cancel(stream, watch_id);
        });
    }

    pub(crate) fn request_progress(&self) {
        self.ask(|core, stream| core.hub.request_progress(stream));
    }

    /// Ends the stream once what is ready was read.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.signal.notify_one();
    }

    /// Waits until the client has read enough to be asked again.
    pub(crate) async fn heard(&self) {
        let full = || {
            let waiting = self
                .handle
                .shared
                .with(|core| core.hub.unconfirmed(self.stream));
            waiting.is_ok_and(|waiting| waiting >= UNCONFIRMED_MAX)
        };
        while full() {
            self.read.notified().await;
        }
    }

    fn ask(&self, f: impl FnOnce(&mut crate::core::Core, StreamId)) {
        // On a stopped member the stream is ending; nothing is left to ask.
        let _stopped = self.handle.shared.with(|core| f(core, self.stream));
        self.signal.notify_one();
    }

    /// Takes what is ready; none at the end of the stream.
    fn poll(&self) -> Option<mvcc::watch::Polled> {
        let polled = self
            .handle
            .shared
            .with(|core| core.hub.poll(self.stream, &core.machine, EVENTS_PER_POLL));
        self.read.notify_one();
        match polled {
            Ok(Ok(polled)) => Some(polled),
            Ok(Err(error)) => fatal("watch", &error.to_string()),
            Err(_stopped) => None,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _stopped = self
            .handle
            .shared
            .with(|core| core.drop_stream(self.stream));
    }
}

/// Reads a session's replies in order, until the member stops.
pub(crate) fn replies(session: Arc<Session>) -> BoxStream<'static, WatchReply> {
    let reader = Reader {
        session,
        ready: VecDeque::new(),
        more: false,
        told_all: false,
    };
    futures::stream::unfold(reader, |mut reader| async move {
        let reply = reader.next().await?;
        Some((reply, reader))
    })
    .boxed()
}

struct Reader {
    session: Arc<Session>,
    ready: VecDeque<WatchReply>,
    /// Whether the hub has more to say about the past.
    more: bool,
    /// Whether the hub said all it had when it was asked last: for whatever is new
    /// since then there is a signal.
    told_all: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<WatchReply> {
        while self.ready.is_empty() {
            if self.more {
                // Reading history takes the core each time: others get their turn.
                tokio::task::yield_now().await;
            }
            if self.told_all {
                self.session.signal.notified().await;
            }
            // Looked at first, so that what was asked before closing is answered.
            let closed = self.session.closed.load(Ordering::Acquire);
            let polled = self.session.poll()?;
            self.more = polled.more;
            self.ready.extend(polled.replies);
            if closed && self.ready.is_empty() && !self.more {
                return None;
            }
            // The signal of closing may be the one that brought us here.
            self.told_all = !self.more && !closed;
        }
        self.ready.pop_front()
    }
}

/// A watch; dropping it ends it. A slow reader delays nobody: it is fed from
/// history when it asks again.
pub struct WatchStream {
    session: Arc<Session>,
    replies: BoxStream<'static, WatchReply>,
    ended: bool,
}

impl fmt::Debug for WatchStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchStream")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl WatchStream {
    pub(crate) fn open(handle: &Handle, create: WatchCreate) -> Self {
        let session = Session::open(handle);
        session.create(create);
        let replies = replies(Arc::clone(&session));
        Self {
            session,
            replies,
            ended: false,
        }
    }

    /// Asks for a progress reply (`watch_id` -1) that comes after every event up
    /// to its revision; nothing comes while the watch still catches up.
    pub fn request_progress(&self) {
        self.session.request_progress();
    }
}

impl Stream for WatchStream {
    type Item = WatchReply;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<WatchReply>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = self.replies.poll_next_unpin(cx);
        if let Poll::Ready(Some(reply)) = &next {
            // With its only watch gone the stream has nothing more to say.
            self.ended = reply.canceled;
        }
        next
    }
}
