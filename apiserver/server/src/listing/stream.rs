//! The body of a list that is too large to be made before it is answered.
//!
//! It is made as fast as the client takes it, and between two frames others run. While
//! the client takes nothing, nobody asks for a frame: what the list holds is let go at
//! the deadline all the same, and the body breaks off when it is asked again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::Stream;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Parts;
use super::turns::Turns;
use crate::body::BoxError;

/// Why a body ended before its end.
#[derive(Debug, thiserror::Error)]
#[error("the list was not taken within the time of its request")]
struct TooLate;

/// Turns parts into a body.
pub(super) fn body(
    parts: Parts,
    deadline: Instant,
) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
    let running = Running::new(parts, deadline);
    futures::stream::unfold(Some(running), |running| async move {
        let mut running = running?;
        match running.next().await {
            Ok(frame) => Some((Ok(frame?), Some(running))),
            Err(error) => {
                tracing::debug!(%error, "a list was broken off");
                Some((Err(error), None))
            }
        }
    })
}

/// Where the parts lie while none is being made.
struct Place {
    parts: Option<Parts>,
    /// Whether the time is over, and nothing may lie here.
    over: bool,
}

struct Running {
    place: Arc<Mutex<Place>>,
    deadline: Instant,
    /// Empties the place at the deadline.
    clock: JoinHandle<()>,
    turns: Turns,
}

impl Running {
    fn new(parts: Parts, deadline: Instant) -> Self {
        let place = Arc::new(Mutex::new(Place {
            parts: Some(parts),
            over: false,
        }));
        let clock = tokio::spawn({
            let place = place.clone();
            async move {
                sleep_until(deadline).await;
                let mut place = lock(&place);
                place.over = true;
                let late = place.parts.take();
                drop(place);
                drop(late);
            }
        });
        Self {
            place,
            deadline,
            clock,
            turns: Turns::shared(),
        }
    }

    /// Makes the next frame; `None` after the last.
    async fn next(&mut self) -> Result<Option<Bytes>, BoxError> {
        yield_now().await;
        self.turns.next().await;
        let taken = lock(&self.place).parts.take();
        let mut parts = taken.ok_or(TooLate)?;
        let made = timeout_at(self.deadline, parts.next()).await;
        let frame = made.map_err(|_elapsed| TooLate)??;
        let mut place = lock(&self.place);
        if !place.over {
            place.parts = Some(parts);
        }
        Ok(frame)
    }
}

fn lock(place: &Mutex<Place>) -> MutexGuard<'_, Place> {
    // What lies there is put back whole, or not at all.
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Running {
    fn drop(&mut self) {
        self.clock.abort();
    }
}
