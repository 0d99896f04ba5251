//! The two threads that wait for the disk, so that nobody else does.
//!
//! The log thread takes everything that queued up while the last sync ran and
//! makes one write and one sync of it: group commit without a timer. The rows
//! thread writes and flushes batches behind the log, and gives space back between
//! them. Both report to the driver.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use disk::{Base, Defragmentation, DiskError, Rows, RowsHome, SpareJob, Tidied, Wal};
use member::Persist;
use mvcc::PackJob;
use tokio::sync::oneshot;

use crate::{config::StartError, core::Done, fatal::fatal, metrics::Metrics};

/// Writes taken into one sync at most. What queues beyond goes into the next;
/// the queue itself is bounded by the member's limit of uncommitted bytes.
const WRITES_PER_SYNC_MAX: usize = 1_024;

/// The longest pause after a slice of space was given back.
const SLICE_PAUSE_MAX: Duration = Duration::from_millis(50);

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
    /// Packs a batch, writes it and makes it durable.
    Write(PackJob),
    /// Gives all space back that the rows do not need; tells when it is done.
    Defragment(oneshot::Sender<()>),
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
                    or_die(queued, "log");
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
                    or_die(self.wal.flush(false), "log");
                    let hard_state = persist.hard_state.as_ref();
                    or_die(
                        disk::install(&self.home, &mut self.wal, &rows, base, hard_state),
                        "log",
                    );
                    or_die(self.wal.append(None, &persist.entries), "log");
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
        or_die(self.wal.flush(sync), "log");
        if sync {
            self.metrics
                .wal_fsync
                .observe(began.elapsed().as_secs_f64());
        }
        if let Some(number) = number {
            (self.report)(Done::LogSynced(number));
        }
        if let Some(index) = release {
            or_die(self.wal.release(index).map(drop), "log");
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

/// Ends the process on any failure of the disk: what was promised may be lost.
fn or_die(result: Result<(), DiskError>, what: &'static str) {
    if let Err(error) = result {
        fatal(what, &error.to_string());
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
    let thread = RowsThread {
        rows,
        generation: 0,
        home,
        report,
        metrics,
        untidy: true,
        defragmenting: None,
    };
    thread::Builder::new()
        .name("kv-rows".to_owned())
        .spawn(move || thread.run(&jobs))
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
    /// Whether there may be space to give back.
    untidy: bool,
    /// What somebody asked for, and who waits for it. One is done at a time; who
    /// asks meanwhile waits in the queue of jobs.
    defragmenting: Option<(Defragmentation, oneshot::Sender<()>)>,
}

impl RowsThread {
    /// Does what is asked; while nothing is, gives space back, a slice at a time.
    fn run(mut self, jobs: &mpsc::Receiver<RowsJob>) -> Rows {
        let mut defragment_next = VecDeque::new();
        loop {
            let busy = self.untidy || self.defragmenting.is_some();
            let job = match busy {
                true => jobs.try_recv(),
                false => jobs.recv().map_err(|_ended| TryRecvError::Disconnected),
            };
            match job {
                Ok(RowsJob::Write(job)) => self.write(job),
                Ok(RowsJob::Replace { rows, generation }) => self.replace(rows, generation),
                Ok(RowsJob::Discard(rows, path)) => {
                    drop(rows);
                    self.remove(&path);
                }
                Ok(RowsJob::Remove(path)) => self.remove(&path),
                Ok(RowsJob::Defragment(done)) => defragment_next.push_back(done),
                Err(TryRecvError::Empty) => or_die(self.tidy(), "rows"),
                Ok(RowsJob::Stop) | Err(TryRecvError::Disconnected) => return self.rows,
            }
            if self.defragmenting.is_none()
                && let Some(done) = defragment_next.pop_front()
            {
                match self.rows.defragment() {
                    Ok(order) => self.defragmenting = Some((order, done)),
                    Err(error) => fatal("rows", &error.to_string()),
                }
            }
        }
    }

    fn write(&mut self, job: PackJob) {
        let began = Instant::now();
        let (batch, written) = job.pack();
        or_die(self.rows.write(&batch), "rows");
        let generation = self.generation;
        (self.report)(Done::RowsWritten {
            generation,
            written,
        });
        or_die(self.rows.flush(), "rows");
        let took = began.elapsed().as_secs_f64();
        self.metrics.backend_commit.observe(took);
        let index = batch.applied_index;
        (self.report)(Done::RowsDurable { generation, index });
        self.untidy = true;
    }

    /// Goes on with other rows, which nobody has asked to defragment: what a snapshot
    /// brought is dense.
    fn replace(&mut self, rows: Rows, generation: u64) {
        self.rows = rows;
        self.generation = generation;
        self.untidy = true;
        if let Some((_, done)) = self.defragmenting.take() {
            let _gone = done.send(());
        }
    }

    fn remove(&self, path: &Path) {
        if let Err(error) = self.home.remove(path) {
            tracing::warn!(%error, "the next start removes rows that do not count any more");
        }
    }

    /// Moves a slice of what lives among garbage; what that leaves empty goes.
    fn tidy(&mut self) -> Result<(), DiskError> {
        let began = Instant::now();
        let tidied = match &self.defragmenting {
            Some((order, _)) => self.rows.defragment_some(*order)?,
            None => self.rows.tidy()?,
        };
        self.rows.flush()?;
        match tidied {
            // The disk is the log's as much of the time.
            Tidied::Some => thread::sleep(began.elapsed().min(SLICE_PAUSE_MAX)),
            Tidied::All => match self.defragmenting.take() {
                // Who asked may be gone.
                Some((_, done)) => {
                    let _gone = done.send(());
                }
                None => self.untidy = false,
            },
        }
        Ok(())
    }
}
