//! The revision witness: the store proposes an order of all operations by the
//! revisions it answers with, and this checks that it is one.
//!
//! Accepting trusts nothing: an order that explains every answer was found, and it
//! keeps real time. Refusing is right because revisions are part of what is
//! promised. A write of unknown outcome costs nothing: the log says whether it
//! happened. A million operations take about a second.
//!
//! 1. [`crate::log::Log`] puts the log together.
//! 2. `replay` gives each revision to the one write that made it, runs the log
//!    through the model, and compares every answer with the model's.
//! 3. `realtime` checks that nothing is ordered before what was over when it began.
//!
//! What is not checked here: how long leases last (`lease`), what single watches
//! promise (`watch`), and who may do what (`auth`).

mod place;
mod realtime;
mod replay;

#[cfg(test)]
mod tests;

use crate::{
    history::History,
    log::Log,
    verdict::{Anomalies, Verdict},
};

pub use place::is_stale;

/// Checks a history against the order its revisions propose.
pub fn check(history: &History) -> Verdict {
    check_with(history, &Log::merge(history))
}

/// Checks a history with its log at hand.
pub fn check_with(history: &History, log: &Log<'_>) -> Verdict {
    let mut anomalies = Anomalies::default();
    anomalies.extend(log.anomalies.clone());
    if anomalies.is_empty()
        && let Some(why) = &log.unknown
    {
        return Verdict::Unknown(why.clone());
    }
    // What follows would only repeat that the log itself is broken.
    if anomalies.is_empty() {
        let replay = replay::Replay::run(history, log);
        anomalies.extend(replay.anomalies);
        anomalies.extend(realtime::check(history, log, &replay.made));
        if anomalies.is_empty()
            && let Some(why) = replay.unknown
        {
            return Verdict::Unknown(why);
        }
    }
    anomalies.verdict()
}
