//! The list of behaviours, and the table of what became of them.

use std::collections::{BTreeMap, BTreeSet};

/// How many behaviours the list has, by special interest group.
const COUNTS: &[(&str, usize)] = &[
    ("api-machinery", 65),
    ("auth", 5),
    ("cli", 5),
    ("instrumentation", 4),
    ("network", 11),
    ("node", 12),
    ("scheduling", 3),
    ("storage", 11),
];

/// How much of a failure the table shows.
const SHOWN_CHARS: usize = 600;

/// One entry of the list.
pub(crate) struct Behaviour {
    sig: String,
    codename: String,
    /// What it is about, in a line.
    does: String,
    pub(crate) test: Option<String>,
    missing: Option<String>,
}

impl Behaviour {
    /// Says whether the codename or the test's name has these words.
    pub(crate) fn is_called(&self, words: &str) -> bool {
        self.codename.contains(words) || self.test.as_deref().is_some_and(|t| t.contains(words))
    }
}

/// What became of a test.
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Reads the list.
pub(crate) fn read() -> Vec<Behaviour> {
    let list: toml::Table = include_str!("list.toml").parse().unwrap();
    let entries = list["behaviour"].as_array().unwrap();
    entries
        .iter()
        .map(|entry| {
            let text = |key: &str| entry.get(key).map(|v| v.as_str().unwrap().to_owned());
            Behaviour {
                sig: text("sig").unwrap(),
                codename: text("codename").unwrap(),
                does: text("does").unwrap(),
                test: text("test"),
                missing: text("missing"),
            }
        })
        .collect()
}

/// Checks that the list is whole and fits the tests: nothing twice, nothing unknown,
/// nothing without a sentence or a reason, no test for nothing.
pub(crate) fn check<'a>(behaviours: &[Behaviour], tests: impl Iterator<Item = &'a str>) {
    let tests: BTreeSet<&str> = tests.collect();
    let (mut seen, mut described) = (BTreeSet::new(), BTreeSet::new());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for behaviour in behaviours {
        assert!(
            seen.insert(&behaviour.codename),
            "twice: {}",
            behaviour.codename
        );
        assert!(
            behaviour.does.ends_with('.') && described.insert(&behaviour.does),
            "a sentence of its own: {}",
            behaviour.codename
        );
        assert!(
            behaviour.test.is_some() != behaviour.missing.is_some(),
            "either a test or what it waits for: {}",
            behaviour.codename
        );
        if let Some(test) = &behaviour.test {
            assert!(tests.contains(test.as_str()), "no test {test}");
        }
        *counts.entry(&behaviour.sig).or_default() += 1;
    }
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), COUNTS);
    let listed: BTreeSet<&str> = behaviours
        .iter()
        .filter_map(|b| b.test.as_deref())
        .collect();
    let idle: Vec<_> = tests.difference(&listed).collect();
    assert!(idle.is_empty(), "tests that no behaviour names: {idle:?}");
}

/// Prints the table and says whether nothing failed.
pub(crate) fn print(behaviours: &[Behaviour], outcomes: &[(String, Outcome)], whole: bool) -> bool {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (sig, _) in COUNTS {
        let of: Vec<&Behaviour> = behaviours.iter().filter(|b| b.sig == *sig).collect();
        if of.is_empty() {
            continue;
        }
        let mut lines = Vec::new();
        let mut good = 0;
        for behaviour in &of {
            let line = format!("{}\n        {}", behaviour.codename, behaviour.does);
            match outcome(behaviour, outcomes) {
                Ok(Outcome::Passed) => {
                    good += 1;
                    lines.push(format!("  pass  {line}"));
                }
                Ok(Outcome::Failed(why)) => {
                    failed += 1;
                    let why: String = why.chars().take(SHOWN_CHARS).collect();
                    let test = behaviour.test.as_deref().unwrap_or_default();
                    lines.push(format!("  FAIL  {line}\n        {test}: {why}"));
                }
                Ok(Outcome::Skipped(why)) => {
                    skipped += 1;
                    lines.push(format!("  skip  {line}\n        {why}"));
                }
                Err(missing) => {
                    skipped += 1;
                    lines.push(format!(
                        "  -     {line}\n        not covered: waits for {missing}"
                    ));
                }
            }
        }
        passed += good;
        println!("\nsig-{sig}: {good} of {}\n{}", of.len(), lines.join("\n"));
    }
    let all = behaviours.len();
    let part = if whole { "" } else { " asked for" };
    println!("\n{passed} of {all}{part}: {failed} failed, {skipped} not covered");
    println!("conformance: {passed} passed, {failed} failed, {skipped} skipped");
    failed == 0
}

fn outcome<'a>(
    behaviour: &'a Behaviour,
    outcomes: &'a [(String, Outcome)],
) -> Result<&'a Outcome, &'a str> {
    let Some(test) = &behaviour.test else {
        return Err(behaviour.missing.as_deref().unwrap_or("nobody knows what"));
    };
    let found = outcomes.iter().find(|(name, _)| name == test);
    found.map(|(_, o)| o).ok_or("a run of its test")
}
