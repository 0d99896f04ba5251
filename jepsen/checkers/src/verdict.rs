//! What a checker says, and what several of them say together.

use serde::Serialize;

use crate::history::{Op, Span, Time};

/// How many anomalies a checker describes; the others it counts. One is enough to
/// refuse a history, a few more show a pattern, a million fill the memory.
pub const ANOMALIES_MAX: usize = 16;

/// Is the judgement of a checker.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All that the checker knows to ask for was kept.
    Valid,
    /// A promise was broken.
    Invalid(Anomalies),
    /// The history does not say enough, or the search was given up.
    Unknown(String),
    /// Two checkers contradict each other: one of them, or what recorded the
    /// history, is wrong.
    Disagreement(String),
}

impl Verdict {
    /// Says whether nothing is wrong and nothing open.
    pub fn is_valid(&self) -> bool {
        *self == Self::Valid
    }

    /// Says whether a promise was broken.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Invalid(_))
    }

    /// Lists what is wrong.
    pub fn anomalies(&self) -> &[Anomaly] {
        match self {
            Self::Invalid(anomalies) => &anomalies.described,
            _ => &[],
        }
    }

    /// Says it in one word: the first anomaly's name if there is one.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Invalid(anomalies) => anomalies.described.first().map_or("invalid", |a| a.name),
            Self::Unknown(_) => "unknown",
            Self::Disagreement(_) => "disagreement",
        }
    }
}

/// Are the broken promises that a checker found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Anomalies {
    /// The first of them.
    pub described: Vec<Anomaly>,
    /// How many there were in all.
    pub found: usize,
}

impl Anomalies {
    /// Takes note of one more.
    pub fn push(&mut self, make: impl FnOnce() -> Anomaly) {
        self.found += 1;
        if self.described.len() < ANOMALIES_MAX {
            self.described.push(make());
        }
    }

    /// Takes note of those of another.
    pub fn extend(&mut self, other: Self) {
        self.found += other.found;
        let room = ANOMALIES_MAX.saturating_sub(self.described.len());
        self.described
            .extend(other.described.into_iter().take(room));
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.found == 0
    }

    /// Is the verdict when nothing else is known.
    pub fn verdict(self) -> Verdict {
        if self.is_empty() {
            Verdict::Valid
        } else {
            Verdict::Invalid(self)
        }
    }
}

/// Is one broken promise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Anomaly {
    /// What it is called; one of [`names`].
    pub name: &'static str,
    /// What is wrong, in a sentence or two.
    pub text: String,
    /// The least that shows it.
    pub example: Example,
}

impl Anomaly {
    /// Describes one without an example.
    pub fn new(name: &'static str, text: impl Into<String>) -> Self {
        Self {
            name,
            text: text.into(),
            example: Example::default(),
        }
    }

    /// Adds something that happened to the example, and returns its place in it.
    pub fn node(&mut self, span: Span, label: impl Into<String>) -> usize {
        self.example.nodes.push(Node {
            span,
            label: label.into(),
        });
        self.example.nodes.len() - 1
    }

    /// Adds an operation to the example, and returns its place in it.
    pub fn op(&mut self, op: &Op) -> usize {
        self.node(op.span(), op.to_string())
    }

    /// Adds a moment to the example, and returns its place in it.
    pub fn moment(&mut self, process: u32, at: Time, label: impl Into<String>) -> usize {
        let span = Span {
            process,
            call: at,
            ret: at,
        };
        self.node(span, label)
    }

    /// Says that something in the example must come before something else.
    pub fn edge(&mut self, from: usize, to: usize, why: impl Into<String>) {
        self.example.edges.push(Edge {
            from,
            to,
            label: why.into(),
        });
    }
}

/// Is the least that shows an anomaly, and can be drawn: what happened when, and
/// what must come before what.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Example {
    /// What happened.
    pub nodes: Vec<Node>,
    /// What must come before what.
    pub edges: Vec<Edge>,
}

/// Is something that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// When.
    pub span: Span,
    /// What.
    pub label: String,
}

/// Says that one thing must come before another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Edge {
    /// The first, as its place in [`Example::nodes`].
    pub from: usize,
    /// The second.
    pub to: usize,
    /// Why.
    pub label: String,
}

/// Is what one checker says of a history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The checker.
    pub checker: &'static str,
    /// How many things it looked at.
    pub checked: usize,
    /// What it says.
    pub verdict: Verdict,
}

/// What anomalies are called: in Jepsen's and Adya's words where they have one.
pub mod names {
    /// A read does not see what was acknowledged before it was asked.
    pub const STALE_READ: &str = "stale-read";
    /// A write is ordered before something that was over when it began.
    pub const REAL_TIME: &str = "real-time";
    /// An acknowledged write is not in the log.
    pub const LOST_WRITE: &str = "lost-write";
    /// The log has a write that nobody asked for.
    pub const PHANTOM: &str = "phantom";
    /// A write happened twice.
    pub const DOUBLE_APPLY: &str = "double-apply";
    /// A write happened that was said not to have happened.
    pub const ABORTED_WRITE: &str = "aborted-write";
    /// Two writes were acknowledged at one revision.
    pub const SHARED_REVISION: &str = "shared-revision";
    /// A revision is missing between others.
    pub const SKIPPED_REVISION: &str = "skipped-revision";
    /// Members do not agree what a revision is.
    pub const DIVERGED: &str = "diverged";
    /// An answer is not what the log makes of the request.
    pub const WRONG_ANSWER: &str = "wrong-answer";
    /// A request was refused that had to be served.
    pub const WRONG_REFUSAL: &str = "wrong-refusal";
    /// A request was served that had to be refused.
    pub const NOT_REFUSED: &str = "not-refused";
    /// Something was seen before it was asked for.
    pub const FROM_THE_FUTURE: &str = "from-the-future";
    /// No order of the operations explains the answers.
    pub const NOT_LINEARIZABLE: &str = "not-linearizable";
    /// Two reads do not agree on the order of a list.
    pub const INCOMPATIBLE_ORDER: &str = "incompatible-order";
    /// A list has an element twice.
    pub const DUPLICATE_ELEMENT: &str = "duplicate-element";
    /// A list has an element that nobody appended.
    pub const PHANTOM_ELEMENT: &str = "phantom-element";
    /// A transaction does not see its own writes.
    pub const INTERNAL: &str = "internal";
    /// Two transactions read the same and both write on it.
    pub const LOST_UPDATE: &str = "lost-update";
    /// An aborted write was read (Adya).
    pub const G1A: &str = "G1a";
    /// The middle of a transaction was read (Adya).
    pub const G1B: &str = "G1b";
    /// An element was added, acknowledged and is gone.
    pub const LOST_ELEMENT: &str = "lost-element";
    /// An element was there, is missing in a later read, and comes back.
    pub const STALE_ELEMENT: &str = "stale-element";
    /// An event does not match what the watch asks for.
    pub const UNFILTERED_EVENT: &str = "unfiltered-event";
    /// An event is older than one before it.
    pub const REORDERED_EVENT: &str = "reordered-event";
    /// An event was delivered twice.
    pub const DUPLICATE_EVENT: &str = "duplicate-event";
    /// A revision was cut over two responses.
    pub const SPLIT_REVISION: &str = "split-revision";
    /// An event is missing between others.
    pub const SKIPPED_EVENT: &str = "skipped-event";
    /// A watch did not begin where it was asked to.
    pub const SKIPPED_START: &str = "skipped-start";
    /// An event was delivered that never happened.
    pub const PHANTOM_EVENT: &str = "phantom-event";
    /// An event came after progress past it was reported.
    pub const PROGRESS_AHEAD: &str = "progress-ahead";
    /// The pair before an event is not the one that was there.
    pub const WRONG_PREV: &str = "wrong-prev";
    /// An event says that it created a key that was there, or the other way.
    pub const WRONG_CREATE: &str = "wrong-create";
    /// A watch ended as compacted that was not.
    pub const WRONG_COMPACTION: &str = "wrong-compaction";
    /// A lease ended before its time.
    pub const EARLY_LEASE: &str = "early-lease";
    /// A lease did not end within the bound.
    pub const LATE_LEASE: &str = "late-lease";
    /// A lease ended and left a key behind.
    pub const LEFT_BEHIND: &str = "left-behind";
    /// Two held a lock, as the store sees it.
    pub const SHARED_LOCK: &str = "shared-lock";
    /// Who no longer held a lock wrote under it.
    pub const UNFENCED_WRITE: &str = "unfenced-write";
    /// Two believed to hold a lock at once and wrote without a guard.
    pub const UNSAFE_LOCK: &str = "unsafe-lock";
    /// A request was served that its user had no right to.
    pub const UNAUTHORIZED: &str = "unauthorized";
    /// A request was denied that its user had the right to.
    pub const WRONGLY_DENIED: &str = "wrongly-denied";
    /// Versions go back for one client.
    pub const TIME_TRAVEL: &str = "time-travel";
    /// An object is missing in a list.
    pub const MISSING_OBJECT: &str = "missing-object";
    /// An object is in a list twice.
    pub const DUPLICATE_OBJECT: &str = "duplicate-object";
    /// The pages of a list are of different versions.
    pub const TORN_LIST: &str = "torn-list";
    /// Two were told that they made, or ended, the same.
    pub const TWO_WINNERS: &str = "two-winners";
    /// An id was used for two lives.
    pub const UID_REUSED: &str = "uid-reused";
    /// An event is not of the type that it is to its watch.
    pub const WRONG_TYPE: &str = "wrong-type";
    /// A watch was told that all had come that was there, and it had not.
    pub const INCOMPLETE_STATE: &str = "incomplete-state";
    /// A pod was in two places, or two were one.
    pub const TWO_PODS: &str = "two-pods";
    /// Members end with different states.
    pub const NOT_CONVERGED: &str = "not-converged";
}
