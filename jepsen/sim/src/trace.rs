//! What happened, as a hash that two runs of a seed must share, and, if wanted, as
//! lines to read.

use std::{collections::VecDeque, fmt};

use crate::plan::{SECOND, Time};

/// Lines kept of a run that is not printed whole: enough to see how it ended.
const LINES_KEPT_MAX: usize = 400;

/// FNV-1a over 64 bits: any difference shows, and it depends on no library.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The course of a run.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    /// Whether lines are wanted, and whether all of them.
    lines: Option<VecDeque<String>>,
    whole: bool,
}

/// Hashes bytes.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    mix(OFFSET, bytes)
}

fn mix(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}

impl Trace {
    /// Begins one; with lines if they are wanted, all of them or the last.
    pub(crate) fn new(lines: bool, whole: bool) -> Self {
        Self {
            hash: OFFSET,
            lines: lines.then(VecDeque::new),
            whole,
        }
    }

    /// Adds to the hash alone.
    pub(crate) fn mix(&mut self, number: u64) {
        // A multiplication per number and not per byte: this is called for everything.
        self.hash = (self.hash ^ number).wrapping_mul(PRIME).rotate_left(23);
    }

    /// Adds bytes to the hash.
    pub(crate) fn mix_bytes(&mut self, bytes: &[u8]) {
        let chunks = bytes.chunks_exact(8);
        let rest = mix(OFFSET, chunks.remainder());
        for chunk in chunks {
            let chunk = chunk.try_into().expect("chunks of eight are eight");
            self.mix(u64::from_le_bytes(chunk));
        }
        self.mix(rest);
    }

    /// Adds a line, if lines are wanted.
    pub(crate) fn line(&mut self, at: Time, text: impl FnOnce() -> String) {
        let Some(lines) = &mut self.lines else { return };
        if !self.whole && lines.len() >= LINES_KEPT_MAX {
            lines.pop_front();
        }
        let (seconds, micros) = (at / SECOND, at % SECOND);
        lines.push_back(format!("{seconds:>3}.{micros:06} {}", text()));
    }

    /// Returns the hash so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Takes the lines.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default().into()
    }
}

/// What did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker that found it.
    pub checker: &'static str,
    /// What it found.
    pub what: String,
    /// When.
    pub at: Time,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at as f64 / SECOND as f64;
        write!(f, "{}: {} (at {at:.3} s)", self.checker, self.what)
    }
}
