//! The reflector mirrors one collection: list, then watch, then list again when the
//! watch can no longer be trusted.
//!
//! [`Reflector::step`] is the whole decision, a pure function of what happened and
//! when; the informer performs the [`Action`]s it answers with. Behaviour follows
//! client-go's `tools/cache/reflector.go`:
//!
//! ```text
//! start ──> List rv=0 ──ok──> Watch rv=N ──ends──> Watch rv=last
//!             │  ▲                 │ 410, broken: Wait, then List rv=last
//!             │  └─ 410, too large: List rv="" at once
//!             └─ other failure: Wait (0.8 s doubling to 30 s, jittered), List again
//! ```

mod backoff;

use std::time::Duration;

use crate::error::Error;
use crate::watch::WatchEvent;

pub use self::backoff::Backoff;

/// Is how many objects a page of a list carries.
pub const PAGE_OBJECTS: u32 = 500;
/// Bounds the life of a watch from below; the jitter doubles it at most.
pub const WATCH_SECONDS_MIN: u32 = 300;
/// A watch that ends sooner than this, without an event, counts as broken.
const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);

/// Says why a list or watch failed, as far as the reflector cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The resource version is no longer kept (410).
    Expired,
    /// The server has not yet seen the resource version asked for.
    TooLargeResourceVersion,
    /// The server asks to slow down (429).
    TooManyRequests,
    /// Nothing listens.
    ConnectionRefused,
    /// The server failed inside (500).
    Internal,
    /// Something else.
    Other,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        if error.is_too_large_resource_version() {
            Failure::TooLargeResourceVersion
        } else if error.is_expired() {
            Failure::Expired
        } else if error.is_too_many_requests() {
            Failure::TooManyRequests
        } else if error.is_connection_refused() {
            Failure::ConnectionRefused
        } else if error.is_internal() {
            Failure::Internal
        } else {
            Failure::Other
        }
    }
}

/// Is what happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input<T> {
    /// Begins.
    Start,
    /// A page of the list came.
    Listed {
        /// Are its objects.
        items: Vec<T>,
        /// Is the version of the collection.
        resource_version: String,
        /// Is the token of the next page.
        next_page: Option<String>,
    },
    /// The list failed.
    ListFailed(Failure),
    /// An event came, with its object's resource version.
    Event {
        /// Is the event; its kind `Error` is given as [`Input::WatchFailed`].
        event: WatchEvent<T>,
        /// Is the version of its object, empty if it carries none.
        resource_version: String,
    },
    /// The server ended the watch.
    WatchClosed,
    /// The watch could not be opened, or broke, or the server sent an error event.
    WatchFailed(Failure),
    /// The wait is over.
    TimerFired,
}

/// Is what to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ask for a page.
    List {
        /// Is the version the list must not be older than; empty for the newest.
        resource_version: String,
        /// Bounds the page; none for everything at once.
        limit: Option<u32>,
        /// Is the token of the page.
        page: Option<String>,
    },
    /// Open a watch.
    Watch {
        /// Is the version after which it begins.
        resource_version: String,
        /// Is when the server shall end it.
        timeout_seconds: u32,
    },
    /// Wait, then report [`Input::TimerFired`].
    Wait(Duration),
    /// Go on reading the watch.
    Continue,
}

/// Is what the store must take over, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Deliver<T> {
    /// Nothing.
    Nothing,
    /// The whole collection.
    Replace(Vec<T>),
    /// One change.
    Change(WatchEvent<T>),
}

/// Is the answer to one input.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<T> {
    /// Is what the store must take over before the action.
    pub deliver: Deliver<T>,
    /// Is what to do next.
    pub action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    List,
    Watch,
}

/// Decides what a mirror does next.
#[derive(Debug)]
pub struct Reflector<T> {
    /// Is the version up to which the store is complete; empty before the first list.
    last_rv: String,
    /// Is set when the server cannot serve `last_rv`: the next list asks for the
    /// newest state instead.
    rv_unavailable: bool,
    /// Is set when a list at version 0 came in pages: the server has no watch cache,
    /// so later lists are paged too.
    paginated: bool,
    /// Are the objects of the pages so far.
    pages: Vec<T>,
    /// Is what the list in flight asked for.
    asked_rv: String,
    asked_page: bool,
    /// Is true from the start of a watch at version "" or 0 until its first event
    /// other than Added: before, versions do not come in order.
    unordered: bool,
    watch_began: Duration,
    watch_events: u64,
    after_wait: After,
    backoff: Backoff,
}

impl<T> Default for Reflector<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Reflector<T> {
    /// Builds a reflector that has seen nothing.
    pub fn new() -> Self {
        Self {
            last_rv: String::new(),
            rv_unavailable: false,
            paginated: false,
            pages: Vec::new(),
            asked_rv: String::new(),
            asked_page: false,
            unordered: false,
            watch_began: Duration::ZERO,
            watch_events: 0,
            after_wait: After::List,
            backoff: Backoff::new(),
        }
    }

    /// Returns the version up to which the mirror is complete.
    pub fn resource_version(&self) -> &str {
        &self.last_rv
    }

    /// Decides. `now` never goes back; `jitter` is a fresh random number in 0..1.
    pub fn step(&mut self, input: Input<T>, now: Duration, jitter: f64) -> Step<T> {
        match input {
            Input::Start => act(self.list()),
            Input::Listed {
                items,
                resource_version,
                next_page,
            } => self.listed(items, resource_version, next_page, now, jitter),
            Input::ListFailed(failure) => act(self.list_failed(&failure, now, jitter)),
            Input::Event {
                event,
                resource_version,
            } => self.event(event, &resource_version),
            Input::WatchClosed => act(self.watch_closed(now, jitter)),
            Input::WatchFailed(failure) => act(self.watch_failed(&failure, now, jitter)),
            Input::TimerFired => match self.after_wait {
                After::List => act(self.list()),
                After::Watch => act(self.watch(now, jitter)),
            },
        }
    }

    fn list(&mut self) -> Action {
        self.pages.clear();
        self.asked_rv = match (self.rv_unavailable, self.last_rv.as_str()) {
            (true, _) => String::new(),
            (false, "") => "0".to_owned(),
            (false, rv) => rv.to_owned(),
        };
        // At a real version the limit is left out on purpose: the watch cache then
        // serves the list without touching the store.
        let pages = self.paginated || matches!(self.asked_rv.as_str(), "" | "0");
        self.asked_page = false;
        Action::List {
            resource_version: self.asked_rv.clone(),
            limit: pages.then_some(PAGE_OBJECTS),
            page: None,
        }
    }

    fn listed(
        &mut self,
        items: Vec<T>,
        resource_version: String,
        next_page: Option<String>,
        now: Duration,
        jitter: f64,
    ) -> Step<T> {
        self.pages.extend(items);
        if let Some(page) = next_page {
            if self.asked_rv == "0" {
                self.paginated = true;
            }
            self.asked_page = true;
            return act(Action::List {
                resource_version: String::new(),
                limit: Some(PAGE_OBJECTS),
                page: Some(page),
            });
        }
        self.rv_unavailable = false;
        self.last_rv = resource_version;
        self.backoff.connected();
        let all = std::mem::take(&mut self.pages);
        Step {
            deliver: Deliver::Replace(all),
            action: self.watch(now, jitter),
        }
    }

    fn list_failed(&mut self, failure: &Failure, now: Duration, jitter: f64) -> Action {
        match failure {
            // The token of a later page expired: ask for everything in one answer.
            Failure::Expired if self.asked_page => {
                self.pages.clear();
                self.asked_page = false;
                Action::List {
                    resource_version: self.asked_rv.clone(),
                    limit: None,
                    page: None,
                }
            }
            Failure::Expired | Failure::TooLargeResourceVersion if !self.rv_unavailable => {
                self.rv_unavailable = true;
                self.list()
            }
            _ => self.wait(After::List, now, jitter),
        }
    }

    fn watch(&mut self, now: Duration, jitter: f64) -> Action {
        self.watch_began = now;
        self.watch_events = 0;
        self.unordered = matches!(self.last_rv.as_str(), "" | "0");
        let extra = f64::from(WATCH_SECONDS_MIN) * jitter;
        // Truncation to whole seconds is wanted; jitter is in 0..1.
        let timeout_seconds = WATCH_SECONDS_MIN + extra as u32;
        Action::Watch {
            resource_version: self.last_rv.clone(),
            timeout_seconds,
        }
    }

    fn event(&mut self, event: WatchEvent<T>, resource_version: &str) -> Step<T> {
        self.watch_events += 1;
        if !matches!(event, WatchEvent::Added(_)) {
            self.unordered = false;
        }
        if !self.unordered && !resource_version.is_empty() {
            self.last_rv.clear();
            self.last_rv.push_str(resource_version);
        }
        let deliver = match event {
            WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => Deliver::Nothing,
            change => Deliver::Change(change),
        };
        Step {
            deliver,
            action: Action::Continue,
        }
    }

    fn watch_closed(&mut self, now: Duration, jitter: f64) -> Action {
        let lived = now.saturating_sub(self.watch_began);
        if self.watch_events == 0 && lived < VERY_SHORT_WATCH {
            return self.wait(After::List, now, jitter);
        }
        self.watch(now, jitter)
    }

    fn watch_failed(&mut self, failure: &Failure, now: Duration, jitter: f64) -> Action {
        let after = match failure {
            // The state is still good and a list would only add load.
            Failure::TooManyRequests | Failure::ConnectionRefused => After::Watch,
            Failure::Expired
            | Failure::TooLargeResourceVersion
            | Failure::Internal
            | Failure::Other => After::List,
        };
        self.wait(after, now, jitter)
    }

    fn wait(&mut self, after: After, now: Duration, jitter: f64) -> Action {
        self.after_wait = after;
        Action::Wait(self.backoff.next(now, jitter))
    }
}

fn act<T>(action: Action) -> Step<T> {
    Step {
        deliver: Deliver::Nothing,
        action,
    }
}

#[cfg(test)]
mod test;
