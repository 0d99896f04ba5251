//! The two threads that wait for the disk, so that nobody else does.
//!
//! The log thread takes everything that queued up while the last sync ran and
//! makes one write and one sync of it: group commit without a timer. The rows
//! thread writes and flushes batches behind the log. Both report to the driver.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::Instant,
};

use disk::{Base, DiskError, Rows, RowsHome, SpareJob, Wal};
use member::Persist;
use mvcc::WriteBack;

use crate::{config::StartError, core::Done, fatal::fatal, metrics::Metrics};

/// Writes taken into one sync at most. What queues beyond goes into the next;
/// the queue itself is bounded by the member's limit of uncommitted bytes.
const WRITES_PER_SYNC_MAX: usize = 1_024;

/// Work for the log thread.
#[derive(Debug)]
pub(crate) enum LogJob {
    /// Writes entries and hard state.
    Write(Persist),
    /// Lets the rows of a snapshot count, and the log begin behind them.
    Install {
        /// The entry that the rows are the state after.
        base: Base,
        /// Where the rows are.
        rows: PathBuf,
        /// What else is written.
        persist: Persist,
    },
    /// Removes segments that the rows cover up to this index.
    Release(u64),
    /// Takes a segment made ahead of need.
    Spare(SpareJob),
    /// Ends the thread.
    Stop,
}

/// Work for the rows thread.
#[derive(Debug)]
pub(crate) enum RowsJob {
    /// Writes a batch and makes it durable.
    Write(WriteBack),
    /// Goes on with the rows of a snapshot.
    Replace {
        /// The rows.
        rows: Rows,
        /// What they are called in reports.
        generation: u64,
    },
    /// Removes rows of a snapshot that nobody wanted.
    Discard(Rows, PathBuf),
    /// Removes rows that were replaced.
    Remove(PathBuf),
    /// Ends the thread.
    Stop,
}

/// Hands a report to the driver and wakes it.
pub(crate) type Report = Arc<dyn Fn(Done) + Send + Sync>;

/// Starts the log thread.
pub(crate) fn start_log(
    wal: Wal,
    home: RowsHome,
    jobs: mpsc::Receiver<LogJob>,
    again: mpsc::Sender<LogJob>,
    report: Report,
    metrics: Arc<Metrics>,
) -> Result<thread::JoinHandle<()>, StartError> {
    let mut thread = LogThread {
        wal,
        home,
        jobs,
        again,
        report,
        metrics,
        spare: None,
    };
    thread::Builder::new()
        .name("kv-log".to_owned())
        .spawn(move || thread.run())
        .map_err(|source| StartError::System {
            what: "the log thread",
            source,
        })
}

struct LogThread {
    wal: Wal,
    home: RowsHome,
    jobs: mpsc::Receiver<LogJob>,
    again: mpsc::Sender<LogJob>,
    report: Report,
    metrics: Arc<Metrics>,
    /// Makes the next segment, if one is being made.
    spare: Option<thread::JoinHandle<()>>,
}

impl LogThread {
    fn run(&mut self) {
        while let Ok(first) = self.jobs.recv() {
            if !self.turn(first) {
                break;
            }
            if let Some(job) = self.wal.spare_wanted() {
                self.make_spare(job);
            }
        }
        // Nobody may write into the directory once it is free for another.
        if let Some(spare) = self.spare.take() {
            let _panicked = spare.join();
        }
    }

    /// Carries out one job and all that queued behind it; returns whether to go on.
    fn turn(&mut self, first: LogJob) -> bool {
        let mut number = None;
        let mut sync = false;
        let mut release = None;
        let mut stop = false;
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(job) = next {
            match job {
                LogJob::Write(persist) => {
                    let queued = self
                        .wal
                        .append(persist.hard_state.as_ref(), &persist.entries);
                    or_die(queued);
                    sync |= persist.must_sync;
                    if persist.report {
                        number = Some(persist.number);
                    }
                }
                LogJob::Install {
                    base,
                    rows,
                    persist,
                } => {
                    // What was queued before is void, but it must not come later.
                    or_die(self.wal.flush(false));
                    let hard_state = persist.hard_state.as_ref();
                    or_die(disk::install(
                        &self.home,
                        &mut self.wal,
                        &rows,
                        base,
                        hard_state,
                    ));
                    or_die(self.wal.append(None, &persist.entries));
                    release = None;
                    sync |= persist.must_sync;
                    if persist.report {
                        number = Some(persist.number);
                    }
                }
                LogJob::Release(index) => release = Some(index),
                LogJob::Spare(job) => self.wal.offer_spare(job),
                LogJob::Stop => {
                    stop = true;
                    break;
                }
            }
            taken += 1;
            next = if taken < WRITES_PER_SYNC_MAX {
                self.jobs.try_recv().ok()
            } else {
                None
            };
        }
        let began = Instant::now();
        // What waits for a report waits for the disk, whatever it is.
        let sync = sync || number.is_some() || stop;
        or_die(self.wal.flush(sync));
        if sync {
            self.metrics
                .wal_fsync
                .observe(began.elapsed().as_secs_f64());
        }
        if let Some(number) = number {
            (self.report)(Done::LogSynced(number));
        }
        if let Some(index) = release {
            or_die(self.wal.release(index).map(drop));
        }
        !stop
    }

    fn make_spare(&mut self, mut job: SpareJob) {
        let again = self.again.clone();
        let made = thread::Builder::new()
            .name("kv-log-spare".to_owned())
            .spawn(move || {
                job.run();
                // The log thread may have ended; then nobody needs the segment.
                let _ended = again.send(LogJob::Spare(job));
            });
        match made {
            Ok(thread) => self.spare = Some(thread),
            Err(error) => tracing::warn!(%error, "cannot make a log segment ahead: no thread"),
        }
    }
}

/// Ends the process on any failure of the log: what was promised may be lost.
fn or_die(result: Result<(), DiskError>) {
    if let Err(error) = result {
        fatal("log", &error.to_string());
    }
}

/// Starts the rows thread.
pub(crate) fn start_rows(
    rows: Rows,
    home: RowsHome,
    jobs: mpsc::Receiver<RowsJob>,
    report: Report,
    metrics: Arc<Metrics>,
) -> Result<thread::JoinHandle<Rows>, StartError> {
    let mut thread = RowsThread {
        rows,
        generation: 0,
        home,
        report,
        metrics,
    };
    let run = move || {
        while let Ok(job) = jobs.recv() {
            match job {
                RowsJob::Write(batch) => thread.write(&batch),
                RowsJob::Replace { rows, generation } => {
                    thread.rows = rows;
                    thread.generation = generation;
                }
                RowsJob::Discard(rows, path) => {
                    drop(rows);
                    thread.remove(&path);
                }
                RowsJob::Remove(path) => thread.remove(&path),
                RowsJob::Stop => break,
            }
        }
        thread.rows
    };
    thread::Builder::new()
        .name("kv-rows".to_owned())
        .spawn(run)
        .map_err(|source| StartError::System {
            what: "the rows thread",
            source,
        })
}

struct RowsThread {
    rows: Rows,
    generation: u64,
    home: RowsHome,
    report: Report,
    metrics: Arc<Metrics>,
}

impl RowsThread {
    fn write(&self, batch: &WriteBack) {
        let generation = self.generation;
        let began = Instant::now();
        if let Err(error) = self.rows.write(batch) {
            fatal("rows", &error.to_string());
        }
        let token = batch.token;
        (self.report)(Done::RowsWritten { generation, token });
        if let Err(error) = self.rows.flush() {
            fatal("rows", &error.to_string());
        }
        self.metrics
            .backend_commit
            .observe(began.elapsed().as_secs_f64());
        let index = batch.applied_index;
        (self.report)(Done::RowsDurable { generation, index });
    }

    fn remove(&self, path: &std::path::Path) {
        if let Err(error) = self.home.remove(path) {
            tracing::warn!(%error, "the next start removes rows that do not count any more");
        }
    }
}
