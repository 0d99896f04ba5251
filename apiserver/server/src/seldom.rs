//! What is seldom ready, beside something that is polled all the time.
//!
//! The end of a watch (a timer, the server's stop) is waited for together with its
//! events, and so was polled with each of them. That is not for nothing: a wait for the
//! server's stop takes locks that all watches and connections share. Here it is
//! polled once, and then only after it has called.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A future that is polled only after it asked for it.
pub(crate) struct Seldom<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    bell: Option<Arc<Bell>>,
}

/// Whether the future has called, and who is to hear of it.
struct Bell {
    rung: AtomicBool,
    task: Waker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl<T> Seldom<T> {
    /// Wraps a future, to be polled for the first time by the first poll.
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            future: Box::pin(future),
            bell: None,
        }
    }

    /// Returns how much memory the future takes.
    #[cfg(test)]
    pub(crate) fn size_of_future(&self) -> usize {
        size_of_val(&*self.future)
    }

    /// Polls the future if it has called, or another task than before asks; not to be
    /// polled again once it is ready.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        let known = self.bell.take_if(|b| b.task.will_wake(cx.waker()));
        let bell = known.unwrap_or_else(|| {
            Arc::new(Bell {
                rung: AtomicBool::new(true),
                task: cx.waker().clone(),
            })
        });
        let bell = self.bell.insert(bell);
        // Who rings after this look wakes the task, which looks again.
        if !bell.rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Before the poll, so that who rings during it is not forgotten.
        bell.rung.store(false, Ordering::Release);
        let ringer = Waker::from(bell.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&ringer))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Counts how often it is polled, and how often its task is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Count {
        fn get(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counted<F: Future + Send + 'static>(future: F) -> (Seldom<F::Output>, Arc<Count>) {
        let polls = Arc::new(Count::default());
        let (seen, mut future) = (polls.clone(), Box::pin(future));
        let counting = std::future::poll_fn(move |cx| {
            seen.0.fetch_add(1, Ordering::SeqCst);
            future.as_mut().poll(cx)
        });
        (Seldom::new(counting), polls)
    }

    #[test]
    fn is_polled_once_and_then_when_it_calls() {
        let token = CancellationToken::new();
        let (mut end, polls) = counted(token.clone().cancelled_owned());
        let woken = Arc::new(Count::default());
        // Clones of a waker know each other; the first need not know them.
        let waker = Waker::from(woken.clone()).clone();
        for _ in 0..1_000 {
            assert!(end.poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!((polls.get(), woken.get()), (1, 0));
        // Whoever polled last is woken, though another did before.
        let other = Arc::new(Count::default());
        let its = Waker::from(other.clone()).clone();
        assert!(end.poll(&mut Context::from_waker(&its)).is_pending());
        token.cancel();
        assert_eq!((woken.get(), other.get()), (0, 1));
        assert!(end.poll(&mut Context::from_waker(&its)).is_ready());
        assert_eq!(polls.get(), 3);
    }

    #[test]
    fn what_has_happened_already_is_seen_at_once() {
        let token = CancellationToken::new();
        token.cancel();
        let mut end = Seldom::new(token.cancelled_owned());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(end.poll(&mut cx).is_ready());
    }

    #[tokio::test]
    async fn a_timer_wakes_its_task() {
        let (mut end, polls) = counted(tokio::time::sleep(Duration::from_millis(20)));
        std::future::poll_fn(|cx| end.poll(cx)).await;
        assert_eq!(polls.get(), 2);
    }
}
