//! Judges a run: by the checkers, by what became of the members, and by whether
//! everything came to an end.

use std::collections::BTreeMap;
use std::process::ExitCode;

use checkers::judge::{Judgement, Settings, judge as judge_history, together};
use checkers::verdict::{Anomalies, Anomaly, Finding, Verdict};

use super::nemesis::crashes;
use super::{Args, Outcome};
use crate::{report, say};

/// Says what came of a run.
pub(super) fn judge(outcome: Outcome, args: &Args) -> anyhow::Result<ExitCode> {
    let Outcome {
        history,
        aftermath,
        unfinished,
        took,
        seed,
    } = outcome;
    let mut findings = judge_history(&history, &Settings::default()).findings;
    findings.push(finding("crash", crashes(&aftermath.bed)));
    findings.push(finding("recovery", aftermath.lost.into_iter().collect()));
    findings.push(finding("end", unfinished));
    aftermath.bed.cluster.keep_logs(&args.out)?;

    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    for fault in &history.nemesis {
        *faults.entry(&fault.kind).or_default() += 1;
    }
    let injected: Vec<String> = faults.iter().map(|(k, n)| format!("{k} {n}")).collect();
    let unknown = history.ops.iter().filter(|op| op.unknown()).count();
    let answered = history.ops.iter().filter(|op| op.reply().is_some()).count();
    say::line(&format!(
        "seed {seed}: {} requests in {took:.0?}, {answered} answered, {unknown} of unknown outcome; {} watches",
        history.ops.len(),
        history.watches.len(),
    ));
    say::line(&format!("faults: {}", injected.join(", ")));
    for (what, why) in &aftermath.skipped {
        say::line(&format!("skipped {what}: {why}"));
    }
    for finding in &findings {
        say::line(&told(finding));
    }
    say::line(&format!("kept in {}", args.out.display()));
    let verdict = together(&findings);
    let judgement = Judgement {
        verdict: verdict.clone(),
        findings,
    };
    let page = report::write(&history, &judgement, &args.out)?;
    say::line(&format!("report: {}", page.display()));
    say::line(&format!("verdict: {}", verdict.word()));
    if let Verdict::Disagreement(why) = &verdict {
        say::line(&format!("  {why}"));
    }
    Ok(report::exit_code(&verdict))
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
