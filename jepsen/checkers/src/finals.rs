//! The end of a run: when all is quiet, every member answers and has the same state.

use crate::{
    history::{Final, History},
    verdict::{Anomalies, Anomaly, Verdict, names},
};

/// Compares what the members say of their whole state.
pub fn check(history: &History) -> Verdict {
    let finals = &history.finals;
    let Some(first) = finals.first() else {
        return Verdict::Unknown("no member was asked for its state at the end".to_owned());
    };
    let mut anomalies = Anomalies::default();
    let mut report = |text: String| anomalies.push(|| Anomaly::new(names::NOT_CONVERGED, text));
    for last in finals {
        if !last.answered {
            report(format!("member {} does not answer", last.member));
        } else if first.answered && state(last) != state(first) {
            let tell = |last: &Final| {
                format!(
                    "member {} is at revision {}, compacted at {}, hash {:08x}",
                    last.member, last.revision, last.compacted, last.hash
                )
            };
            report(format!("{}; {}", tell(first), tell(last)));
        }
    }
    let expected = usize::from(history.about.members.unwrap_or_default());
    if finals.len() < expected {
        report(format!("{} of {expected} members were asked", finals.len()));
    }
    anomalies.verdict()
}

fn state(last: &Final) -> (i64, i64, u32) {
    (last.revision, last.compacted, last.hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_must_answer_and_agree() {
        let one = Final {
            member: 0,
            revision: 9,
            compacted: 3,
            hash: 7,
            answered: true,
        };
        let mut history = History::default();
        assert_eq!(check(&history).word(), "unknown");
        history.finals = vec![
            one.clone(),
            Final {
                member: 1,
                ..one.clone()
            },
        ];
        assert!(check(&history).is_valid());
        history.about.members = Some(3);
        assert_eq!(check(&history).word(), "not-converged");
        history.about.members = None;
        history.finals[1].hash = 8;
        assert_eq!(check(&history).word(), "not-converged");
        history.finals[1] = Final {
            member: 1,
            answered: false,
            ..one
        };
        assert_eq!(check(&history).word(), "not-converged");
    }
}
