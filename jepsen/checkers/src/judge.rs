//! All checkers over one history, and what they say together.
//!
//! Three of them look at the same operations from different sides: the witness by
//! revisions, the search without, Elle by cycles of whole transactions (and sets by
//! their elements). The witness asks for the most. If it found an order and another
//! says that there is none, the store is not to blame but the harness: a checker is
//! wrong, or the clients recorded what did not happen. That is a disagreement.

use serde::Serialize;

use crate::{
    apiview, auth, elle, finals,
    history::{History, Request},
    lease, lock,
    log::Log,
    set,
    verdict::{Finding, Verdict},
    watch, wgl, witness,
};

/// Says how to judge.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// How long to search for an order without revisions.
    pub budget: wgl::Budget,
    /// How exact leases have to be.
    pub leases: lease::Limits,
}

/// Is what all checkers say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// What all say together.
    pub verdict: Verdict,
    /// What each says.
    pub findings: Vec<Finding>,
}

/// The names of the checkers, in the order of their findings.
pub const CHECKERS: [&str; 14] = [
    "witness",
    "wgl",
    "elle",
    "set",
    "watch",
    "lease",
    "lock",
    "auth",
    "finals",
    "api-reads",
    "api-writes",
    "api-counters",
    "api-watches",
    "api-pods",
];

/// Asks every checker that has something to look at.
pub fn judge(history: &History, settings: &Settings) -> Judgement {
    let log = Log::merge(history);
    let mut findings = Vec::new();
    let mut add = |checker: &'static str, checked: usize, verdict: Verdict| {
        findings.push(Finding {
            checker,
            checked,
            verdict,
        });
    };
    let count = |wanted: fn(&Request) -> bool| {
        let ops = history.ops.iter();
        ops.filter(|op| wanted(&op.request)).count()
    };
    if !history.ops.is_empty() {
        let verdict = witness::check_with(history, &log);
        add("witness", history.ops.len(), verdict);
        let report = wgl::check(history, settings.budget);
        // Where every key goes with a lease it has looked at nothing, and says nothing.
        if report.ops > 0 || !report.verdict.is_valid() {
            add("wgl", report.ops, report.verdict);
        }
    }
    if !history.lists.is_empty() {
        add("elle", history.lists.len(), elle::check(history));
    }
    if !history.sets.is_empty() {
        add("set", history.sets.len(), set::check(history).verdict);
    }
    if !history.watches.is_empty() {
        let verdict = watch::check_with(history, &log);
        add("watch", history.watches.len(), verdict);
    }
    let leases = count(|request| matches!(request, Request::Grant { .. }));
    if leases > 0 {
        let verdict = lease::check_with(history, &log, settings.leases);
        add("lease", leases, verdict);
    }
    if !history.locks.is_empty() {
        add("lock", history.locks.len(), lock::check_with(history, &log));
    }
    if count(|request| matches!(request, Request::Auth(_))) > 0 {
        let users = history.ops.iter().filter(|op| op.user.is_some()).count();
        add("auth", users, auth::check(history));
    }
    if !history.finals.is_empty() {
        add("finals", history.finals.len(), finals::check(history));
    }
    findings.extend(apiview::check(history, &log));
    Judgement {
        verdict: together(&findings),
        findings,
    }
}

/// Says what the findings mean together.
pub fn together(findings: &[Finding]) -> Verdict {
    let of = |checker: &str| {
        let found = findings.iter().find(|finding| finding.checker == checker);
        found.map(|finding| &finding.verdict)
    };
    let explained = of("witness").is_some_and(Verdict::is_valid);
    if explained {
        let others = ["wgl", "elle", "set"];
        let against = others
            .iter()
            .find(|o| of(o).is_some_and(Verdict::is_invalid));
        if let Some(other) = against {
            return Verdict::Disagreement(format!(
                "the witness found an order that explains every answer, and {other} says there is none"
            ));
        }
    }
    if let Some(Verdict::Disagreement(why)) = findings
        .iter()
        .map(|finding| &finding.verdict)
        .find(|verdict| matches!(verdict, Verdict::Disagreement(_)))
    {
        return Verdict::Disagreement(why.clone());
    }
    let mut all = crate::verdict::Anomalies::default();
    let mut open = Vec::new();
    for finding in findings {
        match &finding.verdict {
            Verdict::Invalid(anomalies) => all.extend(anomalies.clone()),
            // A second opinion that was given up leaves nothing open where an order
            // was found.
            Verdict::Unknown(_) if explained && finding.checker == "wgl" => {}
            Verdict::Unknown(why) => open.push(format!("{}: {why}", finding.checker)),
            Verdict::Valid | Verdict::Disagreement(_) => {}
        }
    }
    if !all.is_empty() {
        Verdict::Invalid(all)
    } else if findings.is_empty() {
        Verdict::Unknown("there was nothing to check".to_owned())
    } else if open.is_empty() {
        Verdict::Valid
    } else {
        Verdict::Unknown(open.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Anomalies, Anomaly, names};

    fn finding(checker: &'static str, verdict: Verdict) -> Finding {
        Finding {
            checker,
            checked: 1,
            verdict,
        }
    }

    fn invalid() -> Verdict {
        let mut anomalies = Anomalies::default();
        anomalies.push(|| Anomaly::new(names::STALE_READ, "stale"));
        anomalies.verdict()
    }

    fn word(findings: &[Finding]) -> &'static str {
        together(findings).word()
    }

    #[test]
    fn checkers_that_contradict_each_other_blame_the_harness() {
        let unknown = || Verdict::Unknown("gave up".to_owned());
        let witness = |verdict| finding("witness", verdict);
        let wgl = |verdict| finding("wgl", verdict);
        let valid = || Verdict::Valid;
        assert_eq!(word(&[witness(valid()), wgl(valid())]), "valid");
        assert_eq!(word(&[witness(valid()), wgl(invalid())]), "disagreement");
        let elle = finding("elle", invalid());
        assert_eq!(word(&[witness(valid()), elle]), "disagreement");
        // The witness asks for more: it may see what the others cannot.
        assert_eq!(word(&[witness(invalid()), wgl(valid())]), "stale-read");
        assert_eq!(word(&[witness(valid()), wgl(unknown())]), "valid");
        assert_eq!(word(&[witness(unknown()), wgl(valid())]), "unknown");
        assert_eq!(word(&[]), "unknown");
    }
}
