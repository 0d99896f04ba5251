//! What people are shown: a short program with both answers, and the sum of it all.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use anyhow::Context as _;

use super::{
    Args, Failed,
    answer::Answer,
    exec::{Failure, Outcome},
    known::KNOWN,
    program::{self, Step},
};

/// Longest text of one answer; of a longer one the beginning is shown.
const SHOWN_CHARS_MAX: usize = 1_500;

/// Names a failure by its method and places, so that it is known again.
pub(crate) fn signature(step: &Step, failure: &Failure) -> String {
    let letters = |text: &str| -> String { text.chars().filter(|c| !c.is_ascii_digit()).collect() };
    let first = failure.differences.first();
    let place = first.map_or_else(String::new, super::compare::Difference::place);
    // Where whole answers differ, what they are tells failures apart.
    let kinds = first
        .filter(|_| place.is_empty())
        .map(|difference| {
            let kind = |said: &str| match said.contains("\"etcdserver: ") || said.contains('(') {
                true => letters(said),
                false => "an answer".to_owned(),
            };
            format!("{} / {}", kind(&difference.ours), kind(&difference.peer))
        })
        .unwrap_or_default();
    letters(&format!("{} {place} {kinds}", step.name()))
}

/// Writes a failing program and its answers to files, and returns the answers' text.
pub(crate) fn save(failed: &Failed, args: &Args) -> anyhow::Result<String> {
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make {}", args.out.display()))?;
    let name = failed
        .seed
        .map_or_else(|| "replay".to_owned(), |seed| format!("seed-{seed}"));
    let program = args.out.join(format!("{name}.program"));
    std::fs::write(&program, program::text(&failed.steps))?;
    let mut text = show(failed);
    let _infallible = write!(
        text,
        "\nRun it again: jepsen diff --peer etcd={} --replay {}",
        args.peer.display(),
        program.display()
    );
    if let Some(ours) = &args.ours {
        let _infallible = write!(text, " --ours {}", ours.display());
    }
    text.push('\n');
    std::fs::write(args.out.join(format!("{name}.txt")), &text)?;
    Ok(text)
}

/// Shows every step with what was said to it; where the two said the same, once.
fn show(failed: &Failed) -> String {
    let mut text = String::new();
    let seed = failed
        .seed
        .map_or_else(String::new, |seed| format!(" of seed {seed}"));
    let _infallible = writeln!(text, "A program{seed} is answered differently:\n");
    for (step, (ours, peer)) in failed.steps.iter().zip(&failed.outcome.trace) {
        let _infallible = writeln!(text, "  {}", cut(&step.to_string()));
        let (ours, peer) = (lines(ours), lines(peer));
        let both = if ours == peer {
            vec![("both", ours)]
        } else {
            vec![("ours", ours), ("peer", peer)]
        };
        for (who, said) in both {
            for line in said {
                let _infallible = writeln!(text, "      {who}  {line}");
            }
        }
    }
    text.push_str("\nDifferences:\n");
    for difference in &failed.failure.differences {
        let path = match difference.path.as_str() {
            "" => "answer",
            path => path,
        };
        let (ours, peer) = (cut(&difference.ours), cut(&difference.peer));
        let _infallible = writeln!(text, "  {path}\n    ours  {ours}\n    peer  {peer}");
    }
    text
}

fn lines(answer: &Answer) -> Vec<String> {
    answer.iter().map(|part| cut(&part.to_string())).collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// Everything one invocation found.
#[derive(Default)]
pub(crate) struct Summary {
    programs: u64,
    steps: usize,
    explained: BTreeMap<&'static str, u64>,
    failed: Vec<Failed>,
    /// Failing seeds by what failed.
    seeds: BTreeMap<String, BTreeSet<Option<u64>>>,
}

impl Summary {
    pub(crate) fn add(&mut self, (outcome, failed): (Outcome, Option<Failed>)) {
        self.programs += 1;
        self.steps += outcome.steps;
        for (name, count) in outcome.explained {
            *self.explained.entry(name).or_default() += count;
        }
        if let Some(failed) = failed {
            let seeds = self.seeds.entry(failed.signature()).or_default();
            if seeds.is_empty() {
                self.failed.push(failed);
            } else {
                seeds.insert(failed.seed);
                return;
            }
            let failed = self.failed.last().and_then(|failed| failed.seed);
            seeds.insert(failed);
        }
    }

    /// Takes one failing program of each kind.
    pub(crate) fn first_of_each(&mut self, most: usize) -> Vec<Failed> {
        let mut failed = std::mem::take(&mut self.failed);
        failed.truncate(most);
        failed
    }

    pub(crate) fn agreed(&self) -> bool {
        self.seeds.is_empty()
    }

    /// Says in few words how many failed; nothing if none did.
    pub(crate) fn failed(&self) -> String {
        match self.seeds.values().map(BTreeSet::len).sum::<usize>() {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{} programs, {} operations", self.programs, self.steps);
        for (signature, seeds) in &self.seeds {
            let seeds: Vec<String> = seeds
                .iter()
                .map(|seed| seed.map_or_else(|| "replay".to_owned(), |seed| seed.to_string()))
                .collect();
            let _infallible = write!(text, "\nDIFFERS {signature}: {}", seeds.join(" "));
        }
        for (name, count) in &self.explained {
            let reason = KNOWN.iter().find(|known| known.name == *name);
            let reason = reason.map_or("", |known| known.reason);
            let _infallible = write!(text, "\nexplained {count} × {name}: {reason}");
        }
        if self.agreed() {
            text.push_str("\nno unexplained difference");
        }
        text
    }
}
