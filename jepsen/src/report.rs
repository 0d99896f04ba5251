//! The report of a run: one HTML file that needs nothing else, and a summary for
//! machines.
//!
//! It is read at a glance whatever the size of the run: what is too much to draw is
//! counted in bins, and what is drawn of a bin is its extremes, so that nothing that
//! stands out is lost.

mod example;
mod plots;
mod svg;
mod timeline;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt::{Display, Write as _},
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use checkers::{
    history::{Came, History, Outcome, Time},
    judge::Judgement,
    verdict::{Anomaly, Verdict},
};
use serde_json::{Value, json};

use svg::escape;

/// Writes `report.html` and `summary.json` into a folder, and returns the page's path.
pub(crate) fn write(
    history: &History,
    judgement: &Judgement,
    folder: &Path,
) -> anyhow::Result<PathBuf> {
    let name = folder.display();
    fs::create_dir_all(folder).with_context(|| format!("cannot make {name}"))?;
    let page = folder.join("report.html");
    fs::write(&page, html(history, judgement))
        .with_context(|| format!("cannot write to {name}"))?;
    let text = format!("{:#}\n", summary(history, judgement));
    fs::write(folder.join("summary.json"), text)
        .with_context(|| format!("cannot write to {name}"))?;
    Ok(page)
}

/// Says how a process that ran or read this history ends.
pub(crate) fn exit_code(verdict: &Verdict) -> ExitCode {
    ExitCode::from(match verdict {
        Verdict::Valid => 0,
        Verdict::Invalid(_) => 1,
        Verdict::Unknown(_) => 2,
        Verdict::Disagreement(_) => 3,
    })
}

/// Says why a verdict is neither good nor bad, or how much is bad.
pub(crate) fn why(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Valid => None,
        Verdict::Invalid(anomalies) => Some(match anomalies.found {
            1 => "one anomaly".to_owned(),
            many => format!("{many} anomalies"),
        }),
        Verdict::Unknown(why) | Verdict::Disagreement(why) => Some(why.clone()),
    }
}

/// What came of operations, for counting and colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Ok,
    Fail,
    Info,
}

impl Class {
    const ALL: [Self; 3] = [Self::Ok, Self::Fail, Self::Info];

    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Fail => "fail",
            Self::Info => "info",
        }
    }
}

/// One thing that a client did, whichever API it spoke.
struct Act<'a> {
    process: u32,
    call: Time,
    ret: Time,
    class: Class,
    what: &'a dyn Display,
}

/// Returns everything that clients did.
fn acts(history: &History) -> Vec<Act<'_>> {
    let ops = history.ops.iter().map(|op| Act {
        process: op.process,
        call: op.call,
        ret: op.ret,
        class: match op.outcome {
            Outcome::Ok(_) => Class::Ok,
            Outcome::Fail(_) => Class::Fail,
            Outcome::Info(_) => Class::Info,
        },
        what: op,
    });
    let calls = history.calls.iter().map(|call| Act {
        process: call.process,
        call: call.call,
        ret: call.ret,
        class: match call.came {
            Came::Ok(_) => Class::Ok,
            Came::Refused(_) => Class::Fail,
            Came::Unknown(_) => Class::Info,
        },
        what: call,
    });
    ops.chain(calls).collect()
}

/// The time that is drawn.
#[derive(Debug, Clone, Copy)]
struct Extent {
    from: Time,
    to: Time,
}

impl Extent {
    fn of(history: &History) -> Self {
        let acts = acts(history);
        let spans = acts.iter().map(|act| (act.call, act.ret));
        let lists = history
            .lists
            .iter()
            .map(|txn| (txn.span.call, txn.span.ret));
        let sets = history.sets.iter().map(|op| (op.span.call, op.span.ret));
        let (mut from, mut to) = (Time::MAX, 0);
        for (call, ret) in spans.chain(lists).chain(sets) {
            from = from.min(call);
            to = to.max(ret);
        }
        if from > to {
            (from, to) = (0, 1);
        }
        Self {
            from,
            to: to.max(from + 1),
        }
    }

    fn length(self) -> Time {
        self.to - self.from
    }
}

fn counts(history: &History) -> BTreeMap<Class, usize> {
    let mut counts: BTreeMap<_, _> = Class::ALL.into_iter().map(|class| (class, 0)).collect();
    for act in acts(history) {
        *counts.entry(act.class).or_default() += 1;
    }
    counts
}

fn faults(history: &History) -> BTreeMap<&str, usize> {
    let mut faults = BTreeMap::new();
    for fault in &history.nemesis {
        *faults.entry(&*fault.kind).or_default() += 1;
    }
    faults
}

/// Is what machines read of a run.
pub(crate) fn summary(history: &History, judgement: &Judgement) -> Value {
    let counts = counts(history);
    let extent = Extent::of(history);
    json!({
        "title": history.about.title,
        "target": history.about.target,
        "command": history.about.command,
        "seed": history.about.seed,
        "members": history.about.members,
        "verdict": judgement.verdict.word(),
        "operations": {
            "all": history.len(),
            "ok": counts[&Class::Ok],
            "fail": counts[&Class::Fail],
            "info": counts[&Class::Info],
        },
        "watches": history.watches.len() + history.api_watches.len(),
        "seconds": seconds(extent.length()),
        "faults": faults(history),
        "checkers": judgement.findings,
    })
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn seconds(time: Time) -> f64 {
    time as f64 / 1e9
}

/// Writes a number with its thousands apart.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Is the whole page.
pub(crate) fn html(history: &History, judgement: &Judgement) -> String {
    let about = &history.about;
    let title = if about.title.is_empty() {
        "A history"
    } else {
        &about.title
    };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{0}: {1}</title><style>{STYLE}</style></head><body>\n\
         <header><h1>{0}</h1><p class=\"verdict {2}\">{1}</p></header>\n",
        escape(title),
        judgement.verdict.word(),
        tone(&judgement.verdict),
    );
    facts(&mut page, history);
    table(&mut page, judgement);
    anomalies(&mut page, judgement);
    let extent = Extent::of(history);
    let acts = acts(history);
    if !acts.is_empty() {
        let faults = &history.nemesis;
        let drawn = timeline::draw(&acts, faults, extent);
        section(&mut page, "Operations by client", &drawn);
        let drawn = plots::latency(&acts, faults, extent);
        section(&mut page, "Latency", &drawn);
        let drawn = plots::rate(&acts, faults, extent);
        section(&mut page, "Operations per second", &drawn);
    }
    page.push_str("</body></html>\n");
    page
}

fn section(page: &mut String, title: &str, body: &str) {
    let _ = write!(page, "<section><h2>{title}</h2>\n{body}</section>\n");
}

fn facts(page: &mut String, history: &History) {
    let about = &history.about;
    let counts = counts(history);
    let mut facts: Vec<(&str, String)> = Vec::new();
    if !about.target.is_empty() {
        facts.push(("target", about.target.clone()));
    }
    if let Some(members) = about.members {
        facts.push(("members", members.to_string()));
    }
    if let Some(seed) = about.seed {
        facts.push(("seed", seed.to_string()));
    }
    facts.push(("operations", grouped(history.len())));
    for class in Class::ALL {
        facts.push((class.word(), grouped(counts[&class])));
    }
    let watches = history.watches.len() + history.api_watches.len();
    facts.push(("watches", grouped(watches)));
    let length = seconds(Extent::of(history).length());
    facts.push(("time", format!("{length:.1} s")));
    for (kind, count) in faults(history) {
        facts.push((kind, format!("{}×", grouped(count))));
    }
    page.push_str("<dl>");
    for (name, value) in facts {
        let (name, value) = (escape(name), escape(&value));
        let _ = write!(page, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    page.push_str("</dl>\n");
    if !about.command.is_empty() {
        let command = escape(&about.command);
        let _ = writeln!(page, "<p>Again: <code>{command}</code></p>");
    }
}

fn tone(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Valid => "good",
        Verdict::Invalid(_) => "bad",
        Verdict::Unknown(_) => "open",
        Verdict::Disagreement(_) => "broken",
    }
}

fn table(page: &mut String, judgement: &Judgement) {
    let mut rows = String::from(
        "<table><thead><tr><th>checker</th><th>looked at</th><th>verdict</th><th></th></tr></thead><tbody>",
    );
    for finding in &judgement.findings {
        let why = why(&finding.verdict).unwrap_or_default();
        let _ = write!(
            rows,
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"{}\">{}</td><td>{}</td></tr>",
            finding.checker,
            grouped(finding.checked),
            tone(&finding.verdict),
            finding.verdict.word(),
            escape(&why)
        );
    }
    rows.push_str("</tbody></table>\n");
    if let Verdict::Disagreement(why) | Verdict::Unknown(why) = &judgement.verdict {
        let _ = writeln!(rows, "<p>{}</p>", escape(why));
    }
    section(page, "Checkers", &rows);
}

fn anomalies(page: &mut String, judgement: &Judgement) {
    let found = judgement.findings.iter().flat_map(|finding| {
        let anomalies = finding.verdict.anomalies().iter();
        anomalies.map(|anomaly| (finding.checker, anomaly))
    });
    let drawn: String = found
        .map(|(checker, anomaly)| one(checker, anomaly))
        .collect();
    if !drawn.is_empty() {
        section(page, "Anomalies", &drawn);
    }
}

fn one(checker: &str, anomaly: &Anomaly) -> String {
    format!(
        "<article><h3><span class=\"bad\">{}</span> <small>{checker}</small></h3><p>{}</p>{}</article>\n",
        anomaly.name,
        escape(&anomaly.text),
        example::draw(&anomaly.example)
    )
}

const STYLE: &str = include_str!("report/style.css");
