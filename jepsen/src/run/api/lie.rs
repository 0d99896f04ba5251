//! Stands between the wire and the record, and falsifies one answer: what a run is
//! worth that finds nothing is shown by one that has to find this.

use std::cell::{Cell, RefCell};

use serde_json::Value;

use super::object::version;
use super::talk::Http;

/// How many events pass before one is falsified,
const HONEST_EVENTS: u32 = 30;
/// and how many lists that could be.
const HONEST_LISTS: u32 = 3;

/// What is falsified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Lie {
    /// An event of a watch does not arrive.
    DropEvent,
    /// An event of a watch arrives twice.
    RepeatEvent,
    /// A list is answered with what it was before.
    StaleList,
    /// A conflict is told as if the write had been done.
    LostUpdate,
}

/// Falsifies one answer, or none.
#[derive(Debug, Default)]
pub(super) struct Liar {
    lie: Option<Lie>,
    seen: Cell<u32>,
    kept: RefCell<Option<(String, Value)>>,
    done: Cell<bool>,
}

impl Liar {
    pub(super) fn new(lie: Option<Lie>) -> Self {
        Self {
            lie,
            ..Self::default()
        }
    }

    /// Returns whether it falsified anything, if it was to.
    pub(super) fn failed(&self) -> bool {
        self.lie.is_some() && !self.done.get()
    }

    /// Says how often an event is handed on.
    pub(super) fn times(&self) -> usize {
        match self.lie {
            Some(Lie::DropEvent) if self.turn(HONEST_EVENTS) => 0,
            Some(Lie::RepeatEvent) if self.turn(HONEST_EVENTS) => 2,
            _ => 1,
        }
    }

    fn turn(&self, honest: u32) -> bool {
        self.seen.set(self.seen.get() + 1);
        let turn = self.seen.get() > honest && !self.done.get();
        if turn {
            self.done.set(true);
        }
        turn
    }

    /// Hands on an answer.
    pub(super) fn answer(&self, http: &Http, (code, body): (u16, Value)) -> (u16, Value) {
        match self.lie {
            Some(Lie::StaleList) if code == 200 && http.path.ends_with('?') => {
                self.older(http, body)
            }
            Some(Lie::LostUpdate) if code == 409 && http.method == http::Method::PUT => {
                if let Some(mut told) = http.body.clone().filter(|_| !self.done.replace(true)) {
                    let rv = version(&told) + 1;
                    told["metadata"]["resourceVersion"] = rv.to_string().into();
                    return (200, told);
                }
                (code, body)
            }
            _ => (code, body),
        }
    }

    /// Answers a list as it was long ago, if it was something else then.
    fn older(&self, http: &Http, body: Value) -> (u16, Value) {
        if body["kind"]
            .as_str()
            .is_none_or(|kind| !kind.ends_with("List"))
        {
            return (200, body);
        }
        let mut kept = self.kept.borrow_mut();
        let (path, old) = kept.get_or_insert_with(|| (http.path.clone(), body.clone()));
        if *path == http.path && old["items"] != body["items"] && self.turn(HONEST_LISTS) {
            return (200, old.clone());
        }
        (200, body)
    }
}
