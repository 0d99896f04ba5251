//! What the log's thread is given to do, and when.
//!
//! That entries are committed is news to the log which nobody waits for and which may
//! be lost: the next leader finds out again. By itself it would wake the thread and be
//! written once for each batch. A lone voter's goes along with what comes next, or with
//! a tick: whatever that one wrote is committed, so nothing hangs on it, not even what
//! `--force-new-cluster` keeps.

use std::{path::PathBuf, sync::mpsc};

use disk::Base;
use member::Persist;

use super::Core;
use crate::threads::LogJob;

/// The way to the log's thread.
pub(super) struct LogQueue {
    jobs: mpsc::Sender<LogJob>,
    /// What is not written yet. It may be lost.
    held: Option<Persist>,
}

impl LogQueue {
    pub(super) fn new(jobs: mpsc::Sender<LogJob>) -> Self {
        Self { jobs, held: None }
    }

    fn send(&self, job: LogJob) {
        // The thread ends only with the process or after the core.
        let _ended = self.jobs.send(job);
    }

    fn write(&mut self, mut persist: Persist, alone: bool) {
        let held = self.held.take();
        if alone && only_commits(&persist) {
            self.held = Some(persist);
            return;
        }
        if persist.hard_state.is_none() {
            persist.hard_state = held.and_then(|held| held.hard_state);
        }
        self.send(LogJob::Write(persist));
    }

    fn install(&mut self, base: Base, rows: PathBuf, persist: Persist) {
        // The log begins anew, with what comes with the snapshot.
        self.held = None;
        self.send(LogJob::Install {
            base,
            rows,
            persist,
        });
    }

    fn write_held(&mut self) {
        if let Some(held) = self.held.take() {
            self.send(LogJob::Write(held));
        }
    }
}

fn only_commits(persist: &Persist) -> bool {
    !persist.must_sync && !persist.report && persist.entries.is_empty()
}

impl Core {
    /// Has something written.
    pub(super) fn persist(&mut self, persist: Persist) {
        match &persist.snapshot {
            None => {
                let conf = self.member.conf_state();
                let alone = conf.voters.len() == 1 && conf.voters_outgoing.is_empty();
                self.log.write(persist, alone);
            }
            Some(meta) => {
                let base = Base {
                    index: meta.index,
                    term: meta.term,
                };
                self.log.install(base, self.rows_path.clone(), persist);
            }
        }
    }

    /// Has written what was held back.
    pub(super) fn tick_log(&mut self) {
        self.log.write_held();
    }

    /// Lets the log forget entries up to an index, which the rows cover.
    pub(super) fn release_log(&self, index: u64) {
        self.log.send(LogJob::Release(index));
    }
}

#[cfg(test)]
mod tests {
    use member::HardState;

    use super::*;

    fn commits(number: u64, commit: u64) -> Persist {
        Persist {
            number,
            snapshot: None,
            hard_state: Some(HardState {
                term: 2,
                vote: 1,
                commit,
            }),
            entries: Vec::new(),
            must_sync: false,
            report: false,
        }
    }

    fn synced(number: u64) -> Persist {
        Persist {
            hard_state: None,
            must_sync: true,
            report: true,
            ..commits(number, 0)
        }
    }

    fn written(jobs: &mpsc::Receiver<LogJob>) -> Vec<(u64, Option<u64>)> {
        let write = |job| match job {
            LogJob::Write(persist) => (persist.number, persist.hard_state.map(|s| s.commit)),
            other => panic!("{other:?}"),
        };
        jobs.try_iter().map(write).collect()
    }

    #[test]
    fn a_commit_index_goes_along_with_what_comes_next() {
        let (sender, jobs) = mpsc::channel();
        let mut log = LogQueue::new(sender);
        log.write(commits(1, 5), true);
        log.write(commits(2, 6), true);
        assert_eq!(written(&jobs), []);
        log.write(synced(3), true);
        assert_eq!(written(&jobs), [(3, Some(6))]);
        log.write(synced(4), true);
        assert_eq!(written(&jobs), [(4, None)]);
    }

    #[test]
    fn a_newer_hard_state_takes_its_place() {
        let (sender, jobs) = mpsc::channel();
        let mut log = LogQueue::new(sender);
        log.write(commits(1, 5), true);
        let vote = Persist {
            must_sync: true,
            ..commits(2, 7)
        };
        log.write(vote, true);
        log.write_held();
        assert_eq!(written(&jobs), [(2, Some(7))]);
    }

    #[test]
    fn one_of_several_members_writes_it_at_once() {
        let (sender, jobs) = mpsc::channel();
        let mut log = LogQueue::new(sender);
        log.write(commits(1, 5), true);
        log.write(commits(2, 6), false);
        log.write_held();
        assert_eq!(written(&jobs), [(2, Some(6))]);
    }

    #[test]
    fn a_tick_writes_what_was_held_back() {
        let (sender, jobs) = mpsc::channel();
        let mut log = LogQueue::new(sender);
        log.write(commits(1, 5), true);
        log.write_held();
        log.write_held();
        assert_eq!(written(&jobs), [(1, Some(5))]);
    }
}
