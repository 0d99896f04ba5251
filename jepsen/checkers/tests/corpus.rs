//! Histories written by hand, each with the verdicts that are known to be right: every
//! checker must say exactly that, and no other may see anything wrong.

use std::{collections::BTreeSet, fs, path::Path};

use checkers::{
    history,
    judge::{CHECKERS, Settings, judge},
};

#[test]
fn every_history_gets_its_verdict() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    let mut problems = Vec::new();
    let mut rejected = BTreeSet::new();
    let mut accepted = BTreeSet::new();
    for file in &files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let history = history::read(fs::read_to_string(file).unwrap().as_bytes());
        let history = history.unwrap_or_else(|error| panic!("{name}: {error}"));
        let expect = &history.about.expect;
        assert!(!expect.is_empty(), "{name} expects nothing");
        let judgement = judge(&history, &Settings::default());
        let found: BTreeSet<_> = judgement.findings.iter().map(|f| f.checker).collect();
        for checker in expect.keys() {
            if !found.contains(checker.as_str()) {
                problems.push(format!("{name}: {checker} was not asked"));
            }
        }
        for finding in &judgement.findings {
            let word = finding.verdict.word();
            let expected = expect.get(finding.checker).map_or("unexpected", |e| e);
            if expected == word && word == "valid" {
                accepted.insert(finding.checker);
            } else if expected == word {
                rejected.insert(finding.checker);
                let example = &finding.verdict.anomalies()[0].example;
                let places = example.edges.iter().flat_map(|edge| [edge.from, edge.to]);
                assert!(
                    places.into_iter().all(|at| at < example.nodes.len()),
                    "{name}"
                );
            } else if expect.contains_key(finding.checker) || word != "unknown" {
                let text = finding.verdict.anomalies().first().map(|a| &a.text);
                let checker = finding.checker;
                problems.push(format!(
                    "{name}: {checker} says {word}, not {expected}: {text:?}"
                ));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    let all: BTreeSet<_> = CHECKERS.into_iter().collect();
    assert_eq!(rejected, all, "each checker must refuse something");
    assert_eq!(accepted, all, "each checker must accept something");
}
