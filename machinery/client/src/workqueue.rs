//! The work queue between handlers and a controller's workers.
//!
//! Three layers, each a pure value: [`basic`] (one worker per key at a time, no two
//! copies), [`delaying`] (keys that become due later), [`limiter`] (how long a
//! failing key waits). [`WorkQueue`] puts them under one lock and lets workers wait.
//!
//! ```text
//! add a        queue [a]        dirty {a}      processing {}
//! get → a      queue []         dirty {}       processing {a}
//! add a        queue []         dirty {a}      processing {a}   not a second copy
//! done a       queue [a]        dirty {a}      processing {}    exactly one re-run
//! ```
//!
//! Limits: the queue holds each key once, so it is bounded by the number of objects.

pub mod basic;
pub mod delaying;
pub mod limiter;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use self::basic::BasicQueue;
use self::delaying::DelayingQueue;
pub use self::limiter::{LimiterConfig, RateLimiter};

/// Is what a key must be able to do: be compared, copied and sent to a worker.
pub trait QueueKey: Clone + Ord + Debug + Send + 'static {}
impl<K: Clone + Ord + Debug + Send + 'static> QueueKey for K {}

/// Hands out keys to workers. A clone is the same queue.
#[derive(Debug)]
pub struct WorkQueue<K: QueueKey> {
    shared: Arc<Shared<K>>,
}

impl<K: QueueKey> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

#[derive(Debug)]
struct Shared<K> {
    state: Mutex<State<K>>,
    /// Wakes one worker per key made available, or to notice an earlier deadline.
    wake: Notify,
    origin: Instant,
}

#[derive(Debug)]
struct State<K> {
    basic: BasicQueue<K>,
    delaying: DelayingQueue<K>,
    limiter: RateLimiter<K>,
}

impl<K: QueueKey> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new(LimiterConfig::default())
    }
}

impl<K: QueueKey> WorkQueue<K> {
    /// Builds an empty queue.
    pub fn new(config: LimiterConfig) -> Self {
        let state = State {
            basic: BasicQueue::default(),
            delaying: DelayingQueue::default(),
            limiter: RateLimiter::new(config),
        };
        let shared = Shared {
            state: Mutex::new(state),
            wake: Notify::new(),
            origin: Instant::now(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Asks for a key to be worked on; does nothing if it already waits.
    pub fn add(&self, key: K) {
        if self.lock().basic.add(key) {
            self.shared.wake.notify_one();
        }
    }

    /// Asks for a key to be worked on after a delay. Asking twice can only move the
    /// moment earlier.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let due = self.now() + delay;
        let mut state = self.lock();
        if !state.basic.is_shutting_down() && state.delaying.add(key, due) {
            drop(state);
            self.shared.wake.notify_one();
        }
    }

    /// Asks for a key to be worked on again after a failure: later each time.
    pub fn add_rate_limited(&self, key: K) {
        let now = self.now();
        let delay = self.lock().limiter.when(&key, now);
        self.add_after(key, delay);
    }

    /// Forgets the failures of a key, so that its next one waits the shortest time.
    pub fn forget(&self, key: &K) {
        self.lock().limiter.forget(key);
    }

    /// Returns how often the key was added rate limited since it was last forgotten.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.lock().limiter.num_requeues(key)
    }

    /// Waits for a key to work on; none once the queue is shut down and drained.
    ///
    /// The worker must call [`WorkQueue::done`] with the key. Dropping the future
    /// loses no key.
    pub async fn get(&self) -> Option<K> {
        loop {
            let notified = self.shared.wake.notified();
            let next = {
                let now = self.now();
                let mut state = self.lock();
                for key in state.delaying.pop_due(now) {
                    if state.basic.add(key) {
                        // Others than this worker may be needed for what came due.
                        self.shared.wake.notify_one();
                    }
                }
                if let Some(key) = state.basic.get() {
                    return Some(key);
                }
                if state.basic.is_shutting_down() {
                    self.shared.wake.notify_waiters();
                    return None;
                }
                state.delaying.next_due()
            };
            match next {
                None => notified.await,
                Some(due) => {
                    let deadline = self.shared.origin + due;
                    tokio::select! {
                        () = notified => {}
                        () = tokio::time::sleep_until(deadline) => {}
                    }
                }
            }
        }
    }

    /// Ends the work on a key; it is queued again if it was added meanwhile.
    pub fn done(&self, key: &K) {
        let requeued = self.lock().basic.done(key);
        if requeued {
            self.shared.wake.notify_one();
        }
    }

    /// Ignores keys from now on; workers drain what is queued, then get none.
    pub fn shut_down(&self) {
        let mut state = self.lock();
        state.basic.shut_down();
        state.delaying.clear();
        drop(state);
        self.shared.wake.notify_waiters();
        self.shared.wake.notify_one();
    }

    /// Returns how many keys wait for a worker, delayed ones not counted.
    pub fn len(&self) -> usize {
        self.lock().basic.len()
    }

    /// Tells whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many keys wait, are worked on, or are delayed: zero means idle.
    pub fn unfinished(&self) -> usize {
        let state = self.lock();
        state.basic.len() + state.basic.processing() + state.delaying.len()
    }

    fn now(&self) -> Duration {
        self.shared.origin.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        // The state is changed by single calls that cannot panic half way.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod test;
