//! Turns of long lists: so few are made and sent at a time that a part of the threads is
//! there for whoever asks for something small.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// How long a turn lasts at most: a client that takes nothing holds up no other list
/// for longer.
const TURN_MAX: Duration = Duration::from_millis(2);

/// The turns of all lists of the process: half as many at a time as the runtime that
/// serves the first of them has threads.
static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let threads = Handle::current().metrics().num_workers();
    Arc::new(Semaphore::new((threads / 2).max(1)))
});

/// A list's turns. One begins with the making of a frame, and is over once the client
/// asks for the next frame, since what was made is on its way then.
#[derive(Debug)]
pub(super) struct Turns {
    turns: Arc<Semaphore>,
    /// How long one lasts at most.
    longest: Duration,
    current: Option<Turn>,
}

#[derive(Debug)]
struct Turn {
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
    /// Ends the turn when its time is over.
    clock: JoinHandle<()>,
}

impl Turns {
    /// Those that all lists of the process share.
    pub(super) fn shared() -> Self {
        Self::of(TURNS.clone(), TURN_MAX)
    }

    fn of(turns: Arc<Semaphore>, longest: Duration) -> Self {
        Self {
            turns,
            longest,
            current: None,
        }
    }

    /// Ends the turn, and waits for the next one behind all who wait already.
    pub(super) async fn next(&mut self) {
        self.current = None;
        // They are never closed.
        let Ok(turn) = self.turns.clone().acquire_owned().await else {
            return;
        };
        let held = Arc::new(Mutex::new(Some(turn)));
        let clock = tokio::spawn({
            let (held, longest) = (held.clone(), self.longest);
            async move {
                tokio::time::sleep(longest).await;
                release(&held);
            }
        });
        self.current = Some(Turn { held, clock });
    }
}

fn release(held: &Mutex<Option<OwnedSemaphorePermit>>) {
    let turn = held.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(turn);
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.clock.abort();
        release(&self.held);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_comes_after_the_other() {
        let turns = Arc::new(Semaphore::new(1));
        let mut lists = [(); 2].map(|()| Turns::of(turns.clone(), Duration::from_secs(3600)));
        let [first, second] = &mut lists;
        first.next().await;
        let mut then = Box::pin(second.next());
        assert!((&mut then).now_or_never().is_none());
        // Who asks again has had its turn.
        let mut last = Box::pin(first.next());
        assert!((&mut last).now_or_never().is_none());
        assert!(then.now_or_never().is_some());
        assert!((&mut last).now_or_never().is_none());
        drop(last);
        // A list that is gone leaves its turn.
        drop(lists);
        assert_eq!(turns.available_permits(), 1);
    }

    #[tokio::test]
    async fn who_takes_nothing_holds_up_nobody_for_long() {
        let turns = Arc::new(Semaphore::new(1));
        let mut lists = [(); 2].map(|()| Turns::of(turns.clone(), TURN_MAX));
        let [stuck, other] = &mut lists;
        stuck.next().await;
        other.next().await;
        assert!(stuck.current.is_some());
    }
}
