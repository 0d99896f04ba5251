//! What API servers promise over a store, judged by the store's own log.
//!
//! A resource version is a revision. So whatever any API server answered, at
//! whichever version, can be compared with what was there then; how new that had to be
//! follows from what anybody was told before it was asked. Five checkers, each a room
//! of its own: *reads* (no stale answer, no time travel, pages that fit together),
//! *writes* (compare-and-swap loses nothing, one winner per name), *counters* (the same
//! once more without revisions), *watches* (no gap, no duplicate, whatever was cut in
//! between), *pods* (never two of one identity, and in the end what was asked for).

mod past;
mod pods;
mod reads;
mod time;
mod watches;
mod writes;

use crate::{
    history::{Ask, History},
    log::Log,
    verdict::{Anomalies, Anomaly, Finding, Verdict},
};

use past::Past;
use time::Knowledge;

/// Checks everything API servers were asked. Says nothing where nothing was.
pub fn check(history: &History, log: &Log<'_>) -> Vec<Finding> {
    if history.calls.is_empty() && history.api_watches.is_empty() {
        return Vec::new();
    }
    let (past, damaged) = Past::of(log);
    let know = Knowledge::of(history, log, &past);
    let view = View {
        history,
        past: &past,
        know: &know,
    };
    let writes = history
        .calls
        .iter()
        .filter(|c| matches!(c.ask, Ask::Write { .. } | Ask::Delete { .. }))
        .count();
    let reads = history.calls.len() - writes;
    let (counters, counted) = writes::counters(&view);
    let found = [
        ("api-reads", reads, reads::check(&view)),
        ("api-writes", writes, writes::check(&view)),
        ("api-counters", counters, counted),
        (
            "api-watches",
            history.api_watches.len(),
            watches::check(&view),
        ),
        ("api-pods", past.count(pods::PODS), pods::check(&view)),
    ];
    let unknown = log.unknown.clone().or_else(|| match log.anomalies.found {
        0 => damaged,
        _ => Some("the members disagree on the log".to_owned()),
    });
    let finding = |(checker, checked, anomalies): (_, _, Anomalies)| Finding {
        checker,
        checked,
        verdict: match &unknown {
            // What contradicts a log with holes proves nothing.
            Some(why) if checker != "api-counters" => Verdict::Unknown(why.clone()),
            _ => anomalies.verdict(),
        },
    };
    let looked_at = found.into_iter().filter(|(_, checked, _)| *checked > 0);
    looked_at.map(finding).collect()
}

/// Counts lists at `resourceVersion=0` that went back behind what their client had seen
/// before. That is permitted, and the reason why nobody should ask so.
pub fn times_travelled(history: &History) -> usize {
    reads::times_travelled(history)
}

/// What all checkers look at.
struct View<'a> {
    history: &'a History,
    past: &'a Past,
    know: &'a Knowledge,
}

/// Describes an anomaly of one request, and the change in the log that it contradicts.
fn describe(
    name: &'static str,
    text: impl Into<String>,
    call: &crate::history::Call,
    change: Option<(&past::Change, &str)>,
) -> Anomaly {
    let mut anomaly = Anomaly::new(name, text);
    let asked = anomaly.node(call.span(), call.to_string());
    if let Some((change, why)) = change {
        let entry = anomaly.moment(LOG, change.seen, change.to_string());
        anomaly.edge(entry, asked, why);
    }
    anomaly
}

/// The process under which the log is shown.
const LOG: u32 = u32::MAX;
