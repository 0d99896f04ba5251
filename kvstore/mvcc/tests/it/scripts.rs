//! Golden scripts: every corner of the store's behaviour as a dialogue.
//!
//! `tests/scripts/<area>/<behaviour>` holds commands and, after `---`, what the
//! machine says. `UPDATE_GOLDENFILES=1 cargo test -p mvcc` writes the answers
//! anew: read the diff.
//!
//! A write goes through the codec, `apply` and the hub, as in a server. A txn
//! is one quoted line: `txn "if (mod a = 2) then (put a 1) (get b) else (del c)"`.

mod auth;
mod members;
mod print;
mod speak;

use std::error::Error as StdError;
use std::path::Path;
use std::time::Duration;

use goldenscript::{Context, Runner};
use mvcc::watch::WatchHub;
use mvcc::*;

type Outcome = Result<String, Box<dyn StdError>>;

/// Is a member that scripts talk to.
struct Member {
    machine: StateMachine,
    hub: WatchHub,
    backend: MemoryBackend,
    now: Duration,
    /// The next proposal's id.
    next_id: u64,
    /// Who speaks.
    speaker: auth::Speaker,
}

impl Member {
    fn new() -> Self {
        let backend = MemoryBackend::new();
        let machine = StateMachine::open(Box::new(backend.clone()), Config::default()).unwrap();
        Self {
            hub: WatchHub::new(machine.revision()),
            machine,
            backend,
            now: Duration::ZERO,
            next_id: 1,
            speaker: auth::Speaker::Internal,
        }
    }

    fn apply(&mut self, command: Command) -> Outcome {
        let proposal = Proposal {
            id: self.next_id,
            since: Some(self.machine.applied_index()),
            identity: self.identity(),
            command,
        };
        self.next_id += 1;
        self.propose(proposal)
    }

    fn propose(&mut self, proposal: Proposal) -> Outcome {
        let decoded = Proposal::decode(proposal.encode())?;
        assert_eq!(decoded, proposal);
        let applied = self
            .machine
            .apply(self.machine.applied_index() + 1, 1, decoded)?;
        self.hub
            .publish(&applied.events, applied.revision, &self.machine)?;
        refused(applied.result).map(|reply| print::reply(&reply))
    }

    /// Writes everything back.
    fn flush(&mut self) -> String {
        let Some(job) = self.machine.take_writeback(usize::MAX) else {
            return "nothing to write".to_owned();
        };
        let (batch, written) = job.pack();
        self.backend.write(&batch);
        self.machine.writeback_done(written);
        format!("index={} rev={}", batch.applied_index, batch.revision)
    }

    /// Forgets what was not flushed and opens the tree again; streams are gone.
    fn restart(&mut self) -> Outcome {
        self.machine = StateMachine::open(Box::new(self.backend.clone()), Config::default())?;
        self.hub = WatchHub::new(self.machine.revision());
        Ok(format!(
            "index={} rev={}",
            self.machine.applied_index(),
            self.machine.revision()
        ))
    }

    fn compact_all(&mut self) -> Outcome {
        let mut steps = 0;
        // `Busy` asks for a write-back, which is a command of its own here.
        while self.machine.compact_step(1)? == CompactStep::More {
            steps += 1;
        }
        Ok(format!("{steps} steps"))
    }
}

impl Runner for Member {
    type Command = goldenscript::Command;

    fn run(&mut self, command: &goldenscript::Command, _: &Context) -> Outcome {
        speak::run(self, command)
    }
}

/// Turns a refusal into a script error that shows the gRPC code.
fn refused<T>(result: Result<T, Error>) -> Result<T, Box<dyn StdError>> {
    result.map_err(|e| format!("{} {e}", e.code()).into())
}

/// Runs every script of an area.
#[track_caller]
#[expect(
    clippy::disallowed_methods,
    reason = "tests find their scripts on disk"
)]
fn area(name: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/scripts")
        .join(name);
    let mut scripts: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "no script in {}", dir.display());
    for script in scripts {
        goldenscript::run(&mut Member::new(), &script)
            .unwrap_or_else(|e| panic!("{}: {e}", script.display()));
    }
}

#[test]
fn put() {
    area("put");
}

#[test]
fn range() {
    area("range");
}

#[test]
fn delete() {
    area("delete");
}

#[test]
fn txn() {
    area("txn");
}

#[test]
fn compact() {
    area("compact");
}

#[test]
fn lease() {
    area("lease");
}

#[test]
fn watch() {
    area("watch");
}

#[test]
fn auth() {
    area("auth");
}

#[test]
fn members() {
    area("members");
}

#[test]
fn apply() {
    area("apply");
}
