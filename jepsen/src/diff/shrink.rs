//! Makes a failing program short.
//!
//! Pure: proposes smaller programs and is told whether each still fails. Runs of
//! steps go first, halves before quarters before single steps; then whatever the
//! remaining messages can do without, since every message can be taken apart by
//! its description.

use prost_reflect::{DynamicMessage, Value};

use super::program::Step;

/// A search for the shortest program that still fails.
#[derive(Clone, Debug)]
pub(crate) struct Shrinker {
    best: Vec<Step>,
    pass: Pass,
    /// Whether the pass under way made anything smaller.
    progress: bool,
    tried: Option<Vec<Step>>,
}

#[derive(Clone, Copy, Debug)]
enum Pass {
    /// Leaves out `length` steps from `at` on.
    Steps {
        length: usize,
        at: usize,
    },
    /// Tries the `nth` simpler message of step `at`.
    Messages {
        at: usize,
        nth: usize,
    },
    Done,
}

impl Shrinker {
    /// Starts with a program whose last step shows the failure.
    pub(crate) fn new(failing: Vec<Step>) -> Self {
        let length = failing.len().div_ceil(2);
        Self {
            best: failing,
            pass: Pass::Steps { length, at: 0 },
            progress: false,
            tried: None,
        }
    }

    /// Returns the shortest program known to fail.
    pub(crate) fn best(&self) -> &[Step] {
        &self.best
    }

    /// Returns the next program to try.
    pub(crate) fn propose(&mut self) -> Option<Vec<Step>> {
        loop {
            let proposal = match self.pass {
                Pass::Done => return None,
                Pass::Steps { length, at } => self.without(length, at),
                Pass::Messages { at, nth } => self.simpler(at, nth),
            };
            if proposal.is_some() {
                self.tried.clone_from(&proposal);
                return proposal;
            }
            self.next_pass();
        }
    }

    /// Returns the programs that will be proposed next if none of them fails.
    pub(crate) fn ahead(&self, most: usize) -> Vec<Vec<Step>> {
        let mut ahead = self.clone();
        let next = || {
            let proposal = ahead.propose();
            ahead.judge(false);
            proposal
        };
        std::iter::from_fn(next).take(most).collect()
    }

    /// Hears whether the program proposed last still fails.
    pub(crate) fn judge(&mut self, fails: bool) {
        let Some(tried) = self.tried.take() else {
            return;
        };
        if fails {
            self.best = tried;
            self.progress = true;
            // What followed has moved to the place of what was left out.
            return;
        }
        match &mut self.pass {
            Pass::Steps { length, at } => *at += *length,
            Pass::Messages { nth, .. } => *nth += 1,
            Pass::Done => {}
        }
    }

    /// Tells that the program failed at an earlier step: the rest is not needed.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.best.truncate(length);
    }

    fn without(&self, length: usize, at: usize) -> Option<Vec<Step>> {
        let end = (at + length).min(self.best.len());
        (at < end && length < self.best.len())
            .then(|| [&self.best[..at], &self.best[end..]].concat())
    }

    fn simpler(&self, at: usize, nth: usize) -> Option<Vec<Step>> {
        let step = self.best.get(at)?;
        let request = simpler(&step.request).into_iter().nth(nth)?;
        let mut steps = self.best.clone();
        steps[at].request = request;
        Some(steps)
    }

    fn next_pass(&mut self) {
        self.pass = match self.pass {
            Pass::Steps { length: 1, .. } if !self.progress => Pass::Messages { at: 0, nth: 0 },
            Pass::Steps { length, .. } => {
                if length == 1 {
                    self.progress = false;
                }
                let length = (length / 2).max(1);
                Pass::Steps { length, at: 0 }
            }
            Pass::Messages { at, .. } if at + 1 < self.best.len() => {
                Pass::Messages { at: at + 1, nth: 0 }
            }
            Pass::Messages { .. } | Pass::Done => Pass::Done,
        };
    }
}

/// Returns every message that is this one with one thing less, large cuts first.
fn simpler(message: &DynamicMessage) -> Vec<DynamicMessage> {
    let mut found = Vec::new();
    let fields: Vec<_> = message
        .fields()
        .map(|(field, value)| (field, value.clone()))
        .collect();
    for (field, _) in &fields {
        let mut less = message.clone();
        less.clear_field(field);
        found.push(less);
    }
    for (field, value) in &fields {
        for value in simpler_values(value) {
            let mut less = message.clone();
            less.set_field(field, value);
            found.push(less);
        }
    }
    found
}

fn simpler_values(value: &Value) -> Vec<Value> {
    match value {
        Value::Message(inner) => simpler(inner).into_iter().map(Value::Message).collect(),
        Value::List(list) => {
            let mut found = Vec::new();
            if list.len() > 2 {
                let (first, second) = list.split_at(list.len() / 2);
                found.push(Value::List(second.to_vec()));
                found.push(Value::List(first.to_vec()));
            }
            for at in 0..list.len() {
                let mut less = list.clone();
                less.remove(at);
                found.push(Value::List(less));
            }
            for (at, element) in list.iter().enumerate() {
                for simpler in simpler_values(element) {
                    let mut less = list.clone();
                    less[at] = simpler;
                    found.push(Value::List(less));
                }
            }
            found
        }
        Value::Bytes(bytes) if bytes.len() > 8 => {
            vec![Value::Bytes(bytes.slice(..bytes.len() / 2))]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::program;

    /// Shrinks while the text of the program has all of these words; counts runs.
    fn shrink(text: &str, words: &[&str]) -> (String, usize) {
        let mut shrinker = Shrinker::new(program::parse(text).unwrap());
        let mut runs = 0;
        while let Some(proposal) = shrinker.propose() {
            runs += 1;
            let text = program::text(&proposal);
            shrinker.judge(words.iter().all(|word| text.contains(word)));
        }
        (program::text(shrinker.best()), runs)
    }

    #[test]
    fn steps_that_do_not_matter_go() {
        let mut text = String::new();
        for n in 0..100 {
            text += &format!("KV/Put key:\"k{n}\",value:\"v\"\n");
        }
        let (left, runs) = shrink(&text, &["k7\"", "k93\""]);
        assert_eq!(left, "KV/Put key:\"k7\"\nKV/Put key:\"k93\"\n");
        assert!(runs < 60, "{runs} runs");
    }

    #[test]
    fn what_a_message_does_not_need_goes() {
        let text = "KV/Txn compare:[{target:MOD,key:\"a\"}],success:[\
            {request_range {key:\"b\"}},{request_put {key:\"c\",value:\"v\",prev_kv:true}}]\n";
        let (left, _) = shrink(text, &["request_put", "prev_kv"]);
        assert_eq!(left, "KV/Txn success:[{request_put{prev_kv:true}}]\n");
    }

    #[test]
    fn a_failing_single_step_stays() {
        let (left, _) = shrink("KV/Range key:\"a\"\n", &["KV/Range"]);
        assert_eq!(left, "KV/Range\n");
    }
}
