//! The search for an order of the operations on one register.
//!
//! Operations stand in a list of their calls and returns. Whatever was called before
//! the first return may come next; taking it out of the list and putting it back
//! costs nothing. A set of placed operations that led to a state is tried once.

use std::hash::{BuildHasherDefault, Hasher};

use indexmap::IndexMap;

use super::project::{State, Step};

/// Is what a search found.
#[derive(Debug)]
pub(super) enum Outcome {
    Linearizable,
    /// With where it got stuck at its furthest.
    Impossible(Stuck),
    GivenUp,
}

/// Is the furthest a search came.
#[derive(Debug, Clone, Default)]
pub(super) struct Stuck {
    /// The operations in order.
    pub(super) placed: Vec<usize>,
    /// The state after them.
    pub(super) state: State,
    /// The operation that had to be next, and could not.
    pub(super) blocked: Option<usize>,
    /// Others that could be next and did not help.
    pub(super) waiting: Vec<usize>,
}

/// How many sets are remembered. Past this the search is given up: it would only
/// grow slower.
const SEEN_MAX: usize = 1_000_000;

/// Passes a hash through that is one already.
#[derive(Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

type Seen = IndexMap<u64, Vec<Box<[u64]>>, BuildHasherDefault<Ready>>;

/// Is the set of placed operations.
struct Placed {
    words: Vec<u64>,
    /// Words before this are full.
    full: usize,
    /// Words from here on are empty.
    end: usize,
    hash: u64,
}

impl Placed {
    fn flip(&mut self, at: usize) {
        let word = at / 64;
        self.words[word] ^= 1 << (at % 64);
        self.hash ^= mix(at as u64 + 1);
        self.full = self.full.min(word);
        while self.words.get(self.full) == Some(&u64::MAX) {
            self.full += 1;
        }
        self.end = self.end.max(word + 1);
        while self.end > 0 && self.words[self.end - 1] == 0 {
            self.end -= 1;
        }
    }

    /// Returns the part that is neither full nor empty.
    fn window(&self) -> &[u64] {
        &self.words[self.full.min(self.end)..self.end]
    }
}

fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

const HEAD: usize = 0;

struct Search<'a> {
    steps: &'a [Step],
    next: Vec<usize>,
    prev: Vec<usize>,
    /// Operations that are over, and those of unknown outcome: apart, so that the
    /// windows of both stay small.
    over: Placed,
    unknown: Placed,
    seen: Seen,
    remembered: usize,
    state: State,
    /// What was placed, by which of its alternatives, and the state before.
    stack: Vec<(usize, usize, State)>,
    /// How many that are over are not placed.
    left: usize,
    notes: bool,
    best: Stuck,
}

/// Looks for an order. To take notes of where it gets stuck costs too much as long as
/// there is an order; who wants to know searches again.
pub(super) fn run(steps: &[Step], budget: &mut u64, notes: bool) -> Outcome {
    let mut search = Search::new(steps);
    search.notes = notes;
    search.run(budget)
}

impl<'a> Search<'a> {
    fn new(steps: &'a [Step]) -> Self {
        let words = steps.len().div_ceil(64);
        let empty = || Placed {
            words: vec![0; words],
            full: 0,
            end: 0,
            hash: 0,
        };
        let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * steps.len());
        for (at, step) in steps.iter().enumerate() {
            moments.push((step.call, false, at));
            if !step.unknown() {
                moments.push((step.ret, true, at));
            }
        }
        // At one moment calls come first: what touches overlaps.
        moments.sort_unstable();
        let mut next = vec![HEAD; 2 * steps.len() + 1];
        let mut prev = next.clone();
        let mut last = HEAD;
        for (_, is_return, at) in moments {
            let entry = 2 * at + 1 + usize::from(is_return);
            next[last] = entry;
            prev[entry] = last;
            last = entry;
        }
        next[last] = HEAD;
        prev[HEAD] = last;
        Self {
            steps,
            next,
            prev,
            over: empty(),
            unknown: empty(),
            seen: Seen::default(),
            remembered: 0,
            state: State::default(),
            stack: Vec::new(),
            left: steps.iter().filter(|step| !step.unknown()).count(),
            notes: false,
            best: Stuck::default(),
        }
    }

    fn run(mut self, budget: &mut u64) -> Outcome {
        let mut entry = self.next[HEAD];
        let mut alternative = 0;
        while self.left > 0 {
            if *budget == 0 || self.remembered > SEEN_MAX {
                return Outcome::GivenUp;
            }
            *budget -= 1;
            let is_call = entry != HEAD && entry % 2 == 1;
            if is_call {
                let at = (entry - 1) / 2;
                match self.place(at, alternative) {
                    Tried::Placed => entry = self.next[HEAD],
                    Tried::Another => {
                        alternative += 1;
                        continue;
                    }
                    Tried::No => entry = self.next[entry],
                }
                alternative = 0;
            } else {
                self.note(entry);
                let Some((at, with, before)) = self.stack.pop() else {
                    return Outcome::Impossible(self.best);
                };
                self.unplace(at, before);
                entry = 2 * at + 1;
                alternative = with + 1;
            }
        }
        Outcome::Linearizable
    }

    fn place(&mut self, at: usize, alternative: usize) -> Tried {
        let step = &self.steps[at];
        let Some(result) = step.alternative(alternative, self.state) else {
            return Tried::No;
        };
        let Some(state) = result else {
            return Tried::Another;
        };
        // What nobody knows and changes nothing need not have happened.
        if step.unknown() && state == self.state {
            return Tried::Another;
        }
        self.flip(at);
        if !self.remember(state) {
            self.flip(at);
            return Tried::Another;
        }
        self.stack.push((at, alternative, self.state));
        self.state = state;
        self.lift(at);
        self.left -= usize::from(!step.unknown());
        Tried::Placed
    }

    fn unplace(&mut self, at: usize, before: State) {
        self.state = before;
        self.flip(at);
        self.unlift(at);
        self.left += usize::from(!self.steps[at].unknown());
    }

    fn flip(&mut self, at: usize) {
        if self.steps[at].unknown() {
            self.unknown.flip(at);
        } else {
            self.over.flip(at);
        }
    }

    /// Remembers the set and the state, unless they were seen.
    fn remember(&mut self, state: State) -> bool {
        let hash = self.over.hash ^ self.unknown.hash.rotate_left(17) ^ mix(u64::from(state));
        let (over, unknown) = (self.over.window(), self.unknown.window());
        let place = (
            self.over.full.min(self.over.end),
            self.unknown.full.min(self.unknown.end),
        );
        let mut key = Vec::with_capacity(over.len() + unknown.len() + 4);
        key.extend([
            u64::from(state),
            place.0 as u64,
            place.1 as u64,
            over.len() as u64,
        ]);
        key.extend_from_slice(over);
        key.extend_from_slice(unknown);
        let list = self.seen.entry(hash).or_default();
        if list.iter().any(|seen| **seen == *key) {
            return false;
        }
        list.push(key.into());
        self.remembered += 1;
        true
    }

    /// Takes an operation out of the list.
    fn lift(&mut self, at: usize) {
        let mut take = |entry: usize| {
            let (prev, next) = (self.prev[entry], self.next[entry]);
            self.next[prev] = next;
            self.prev[next] = prev;
        };
        take(2 * at + 1);
        if !self.steps[at].unknown() {
            take(2 * at + 2);
        }
    }

    /// Puts it back where it was, in the opposite order.
    fn unlift(&mut self, at: usize) {
        let mut put = |entry: usize| {
            let (prev, next) = (self.prev[entry], self.next[entry]);
            self.next[prev] = entry;
            self.prev[next] = entry;
        };
        if !self.steps[at].unknown() {
            put(2 * at + 2);
        }
        put(2 * at + 1);
    }

    /// Takes note of where it got stuck, if it never came further.
    fn note(&mut self, entry: usize) {
        if !self.notes {
            return;
        }
        if self.best.blocked.is_some() && self.stack.len() <= self.best.placed.len() {
            return;
        }
        let blocked = (entry != HEAD).then(|| (entry - 1) / 2);
        let mut waiting = Vec::new();
        let mut walk = self.next[HEAD];
        while walk != HEAD && walk != entry {
            if walk % 2 == 1 && Some((walk - 1) / 2) != blocked && waiting.len() < super::SHOWN_MAX
            {
                waiting.push((walk - 1) / 2);
            }
            walk = self.next[walk];
        }
        self.best = Stuck {
            placed: self.stack.iter().map(|(at, ..)| *at).collect(),
            state: self.state,
            blocked,
            waiting,
        };
    }
}

enum Tried {
    Placed,
    /// Not this way; there may be another.
    Another,
    No,
}
