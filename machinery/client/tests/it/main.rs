//! The shells of the client against a small API server in this process.

#![allow(clippy::unwrap_used)]

mod convergence;
mod elections;
mod events;
mod informers;
mod tls;
mod verbs;

use std::time::{Duration, Instant};

/// Waits until a condition holds; fails the test after thirty seconds.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "not reached in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
