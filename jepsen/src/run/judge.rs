//! Judges a run: by the checkers, by what became of the members, and by whether
//! everything came to an end.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use checkers::history::{Call, Came, History};
use checkers::judge::{Judgement, Settings, judge as judge_history, together};
use checkers::verdict::{Anomalies, Anomaly, Finding, Verdict};

use super::Outcome;
use super::nemesis::crashes;
use crate::{report, say};

/// Says what came of a run.
pub(super) fn judge(outcome: Outcome, out: &Path) -> anyhow::Result<ExitCode> {
    let Outcome {
        history,
        aftermath,
        unfinished,
        crashes: fell_over,
        took,
        seed,
    } = outcome;
    let mut findings = judge_history(&history, &Settings::default()).findings;
    let mut crashed = crashes(&aftermath.bed);
    crashed.extend(fell_over);
    findings.push(finding("crash", crashed));
    findings.push(finding("recovery", aftermath.lost.into_iter().collect()));
    findings.push(finding("end", unfinished));
    aftermath.bed.cluster.keep_logs(out)?;

    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    for fault in &history.nemesis {
        *faults.entry(&fault.kind).or_default() += 1;
    }
    let injected: Vec<String> = faults.iter().map(|(k, n)| format!("{k} {n}")).collect();
    say::line(&counts(&history, seed, took));
    if !history.calls.is_empty() {
        let back = checkers::apiview::times_travelled(&history);
        say::line(&format!(
            "lists at any version that went back, as they may: {back}"
        ));
    }
    say::line(&format!("faults: {}", injected.join(", ")));
    for (what, why) in &aftermath.skipped {
        say::line(&format!("skipped {what}: {why}"));
    }
    for finding in &findings {
        say::line(&told(finding));
    }
    say::line(&format!("kept in {}", out.display()));
    let verdict = together(&findings);
    let judgement = Judgement {
        verdict: verdict.clone(),
        findings,
    };
    let page = report::write(&history, &judgement, out)?;
    say::line(&format!("report: {}", page.display()));
    say::line(&format!("verdict: {}", verdict.word()));
    if let Verdict::Disagreement(why) = &verdict {
        say::line(&format!("  {why}"));
    }
    Ok(report::exit_code(&verdict))
}

/// Says how much was asked, and what came of it.
fn counts(history: &History, seed: u64, took: Duration) -> String {
    let answered = history.ops.iter().filter(|op| op.reply().is_some());
    let unknown = history.ops.iter().filter(|op| op.unknown());
    let calls_answered = history.calls.iter().filter(|c| c.answer().is_some());
    let lost = |call: &&Call| matches!(call.came, Came::Unknown(_));
    let calls_unknown = history.calls.iter().filter(lost);
    format!(
        "seed {seed}: {} requests in {took:.0?}, {} answered, {} of unknown outcome; {} watches",
        history.ops.len() + history.calls.len(),
        answered.count() + calls_answered.count(),
        unknown.count() + calls_unknown.count(),
        history.watches.len() + history.api_watches.len(),
    )
}

/// Says what a checker found, with the first few examples.
fn told(finding: &Finding) -> String {
    const SHOWN: usize = 3;
    let mut text = format!(
        "{:<10} {:>8} checked: {}",
        finding.checker,
        finding.checked,
        finding.verdict.word()
    );
    match &finding.verdict {
        Verdict::Unknown(why) | Verdict::Disagreement(why) => {
            text.push_str(&format!("\n  {why}"));
        }
        Verdict::Invalid(anomalies) => {
            for anomaly in anomalies.described.iter().take(SHOWN) {
                text.push_str(&format!("\n  {}: {}", anomaly.name, anomaly.text));
                for node in &anomaly.example.nodes {
                    text.push_str(&format!("\n    {}", node.label));
                }
            }
            text.push_str(&format!("\n  {} in all", anomalies.found));
        }
        Verdict::Valid => {}
    }
    text
}

/// Makes a finding of what went wrong beside what clients were told.
fn finding(checker: &'static str, wrong: Vec<String>) -> Finding {
    let mut found = Anomalies::default();
    for text in wrong {
        found.push(|| Anomaly::new(checker, text));
    }
    Finding {
        checker,
        checked: 1,
        verdict: found.verdict(),
    }
}
