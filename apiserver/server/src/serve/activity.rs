//! What goes on on a connection: how many requests run on it, since when none does, and
//! which of its streams are about to speak.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::body::{BoxBody, BoxError};

/// Counts a connection's running requests, remembers when the last ended, and counts
/// the bodies that were woken and have not been polled since.
#[derive(Debug)]
pub(super) struct Activity {
    /// Whether requests run beside each other.
    multiplexed: bool,
    running: AtomicUsize,
    about_to_speak: AtomicUsize,
    start: Instant,
    /// Milliseconds from `start` to the end of the last request.
    last_end_ms: AtomicU64,
}

impl Activity {
    pub(super) fn new(multiplexed: bool) -> Self {
        Self {
            multiplexed,
            running: AtomicUsize::new(0),
            about_to_speak: AtomicUsize::new(0),
            start: Instant::now(),
            last_end_ms: AtomicU64::new(0),
        }
    }

    pub(super) fn begin(self: Arc<Self>) -> ActivityGuard {
        self.running.fetch_add(1, Ordering::Relaxed);
        ActivityGuard(self)
    }

    /// Returns since when there is no request; `None` while there is one.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let idle = self.running.load(Ordering::Relaxed) == 0;
        let last = Duration::from_millis(self.last_end_ms.load(Ordering::Relaxed));
        idle.then(|| self.start + last)
    }

    /// Tells whether streams were woken that have not had their turn. One that its
    /// client does not let speak counts too, until it is polled.
    pub(super) fn is_about_to_speak(&self) -> bool {
        self.about_to_speak.load(Ordering::Relaxed) > 0
    }
}

/// One running request, from its head to the last byte of its response.
#[derive(Debug)]
pub(super) struct ActivityGuard(Arc<Activity>);

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        let at = u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_end_ms.store(at, Ordering::Relaxed);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response body that keeps its connection from counting as idle, and says when it is
/// about to speak.
pub(super) struct Guarded {
    body: BoxBody,
    guard: ActivityGuard,
    /// Of a body that was waited for.
    call: Option<Caller>,
}

impl Guarded {
    pub(super) fn new(body: BoxBody, guard: ActivityGuard) -> Self {
        Self {
            body,
            guard,
            call: None,
        }
    }
}

impl Body for Guarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let body = Pin::new(&mut this.body);
        match &this.call {
            Some(Caller { call, waker }) if call.task.will_wake(cx.waker()) => {
                call.answer(SILENT);
                body.poll_frame(&mut Context::from_waker(waker))
            }
            _ => {
                this.call = None;
                let first = body.poll_frame(cx);
                // Most bodies are there at once, and need none of this.
                if first.is_ready() || !this.guard.0.multiplexed {
                    return first;
                }
                let caller = Caller::new(&this.guard.0, cx.waker());
                let Caller { waker, .. } = this.call.insert(caller);
                Pin::new(&mut this.body).poll_frame(&mut Context::from_waker(waker))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What wakes a body's task; ends with the body.
struct Caller {
    call: Arc<Call>,
    waker: Waker,
}

impl Caller {
    fn new(activity: &Arc<Activity>, task: &Waker) -> Self {
        let call = Arc::new(Call {
            state: AtomicU8::new(SILENT),
            activity: activity.clone(),
            task: task.clone(),
        });
        // A clone, since clones know each other (`Waker::will_wake`), and whoever waits
        // below may keep one.
        let waker = Waker::from(call.clone()).clone();
        Self { call, waker }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.call.answer(GONE);
    }
}

const SILENT: u8 = 0;
/// Woken and not polled since: counted.
const CALLED: u8 = 1;
/// Nobody is there any more; whoever still wakes it changes nothing.
const GONE: u8 = 2;

/// Counts a body in when it is woken.
struct Call {
    state: AtomicU8,
    activity: Arc<Activity>,
    task: Waker,
}

impl Call {
    /// Counts it out, if it was in.
    fn answer(&self, state: u8) {
        if self.state.swap(state, Ordering::AcqRel) == CALLED {
            self.activity.about_to_speak.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Counted before the state says so: whoever counts it out comes after.
        self.activity.about_to_speak.fetch_add(1, Ordering::Relaxed);
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let called = self.state.compare_exchange(SILENT, CALLED, order, failed);
        if called.is_err() {
            self.activity.about_to_speak.fetch_sub(1, Ordering::Relaxed);
        }
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use futures::channel::mpsc;

    use super::*;
    use crate::body;

    fn about(activity: &Activity) -> usize {
        activity.about_to_speak.load(Ordering::Relaxed)
    }

    fn poll(body: &mut Guarded) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(body).poll_frame(&mut cx).is_ready()
    }

    #[test]
    fn who_was_woken_counts_until_it_is_polled() {
        let activity = Arc::new(Activity::new(true));
        let open = || {
            let (give, given) = mpsc::unbounded::<Result<Bytes, BoxError>>();
            (
                give,
                Guarded::new(body::streaming(given), activity.clone().begin()),
            )
        };
        let ((give_a, mut a), (give_b, mut b)) = (open(), open());
        assert!(!poll(&mut a) && !poll(&mut b));
        assert_eq!(about(&activity), 0);
        for _ in 0..2 {
            give_a.unbounded_send(Ok("x".into())).unwrap();
        }
        assert_eq!(about(&activity), 1, "once, however often it is woken");
        give_b.unbounded_send(Ok("x".into())).unwrap();
        assert_eq!(about(&activity), 2);
        assert!(poll(&mut a) && poll(&mut a) && !poll(&mut a));
        assert_eq!(about(&activity), 1);
        // What goes unheard does not count for ever, whoever wakes it later.
        drop(b);
        assert_eq!(about(&activity), 0);
        drop(give_b);
        assert_eq!(about(&activity), 0);
        assert!(activity.idle_since().is_none());
        drop(a);
        drop(give_a);
        assert_eq!(about(&activity), 0);
        assert!(activity.idle_since().is_some());
    }

    #[test]
    fn one_that_is_woken_after_its_end_does_not_count() {
        let activity = Arc::new(Activity::new(true));
        let kept: Arc<std::sync::Mutex<Option<Waker>>> = Arc::default();
        let keep = kept.clone();
        let silent = futures::stream::poll_fn(move |cx| {
            *keep.lock().unwrap() = Some(cx.waker().clone());
            Poll::<Option<Result<Bytes, BoxError>>>::Pending
        });
        let mut body = Guarded::new(body::streaming(silent), activity.clone().begin());
        assert!(!poll(&mut body));
        let waker = kept.lock().unwrap().take().unwrap();
        waker.wake_by_ref();
        assert_eq!(about(&activity), 1);
        drop(body);
        waker.wake();
        assert_eq!(about(&activity), 0);
    }

    #[test]
    fn bodies_that_are_there_and_those_of_http_1_are_left_alone() {
        let activity = Arc::new(Activity::new(true));
        let mut there = Guarded::new(body::full("x"), activity.begin());
        assert!(poll(&mut there) && there.call.is_none());
        let activity = Arc::new(Activity::new(false));
        let waits = body::streaming(futures::stream::pending());
        let mut waits = Guarded::new(waits, activity.begin());
        assert!(!poll(&mut waits) && waits.call.is_none());
    }
}
