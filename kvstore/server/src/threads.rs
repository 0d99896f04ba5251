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

/// The pause after a slice of space was given back, in times of what that took, and the
/// longest: the disk is the log's as much of the time.
const SLICE_PAUSE: u32 = 3;
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
    worker: LogWorker,
    again: mpsc::Sender<LogJob>,
) -> Result<thread::JoinHandle<()>, StartError> {
    let mut thread = LogThread {
        worker,
        again,
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

/// Carries out the jobs of the log, on whatever thread.
pub(crate) struct LogWorker {
    pub(crate) wal: Wal,
    pub(crate) home: RowsHome,
    pub(crate) jobs: mpsc::Receiver<LogJob>,
    pub(crate) report: Report,
    pub(crate) metrics: Arc<Metrics>,
}

impl LogWorker {
    /// Carries out one job and all that queued behind it; returns whether to go on.
    pub(crate) fn turn(&mut self, first: LogJob) -> bool {
        let mut number = None;
        let mut sync = false;
        let mut release = None;
        let mut stop = false;
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(job) = next {
            match job {
                LogJob::Write(persist) => {
                    let mut hard_state = persist.hard_state;
                    if mutants::planted(mutants::Bug::VoteNotPersisted)
                        && let Some(state) = &mut hard_state
                    {
                        state.vote = 0;
                    }
                    let queued = self.wal.append(hard_state.as_ref(), &persist.entries);
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
                    or_die(self.wal.append(hard_state, &persist.entries), "log");
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
        let sync = sync && !mutants::planted(mutants::Bug::AckBeforeSync);
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
}

struct LogThread {
    worker: LogWorker,
    again: mpsc::Sender<LogJob>,
    /// Makes the next segment, if one is being made.
    spare: Option<thread::JoinHandle<()>>,
}

impl LogThread {
    fn run(&mut self) {
        while let Ok(first) = self.worker.jobs.recv() {
            if !self.worker.turn(first) {
                break;
            }
            if let Some(job) = self.worker.wal.spare_wanted() {
                self.make_spare(job);
            }
        }
        // Nobody may write into the directory once it is free for another.
        if let Some(spare) = self.spare.take() {
            let _panicked = spare.join();
        }
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
pub(crate) fn start_rows(mut worker: RowsWorker) -> Result<thread::JoinHandle<Rows>, StartError> {
    let run = move || {
        loop {
            match worker.next() {
                Ok(job) => {
                    if !worker.turn(job) {
                        break;
                    }
                }
                Err(TryRecvError::Empty) => thread::sleep(worker.idle()),
                Err(TryRecvError::Disconnected) => break,
            }
        }
        worker.rows
    };
    thread::Builder::new()
        .name("kv-rows".to_owned())
        .spawn(run)
        .map_err(|source| StartError::System {
            what: "the rows thread",
            source,
        })
}

/// Carries out the jobs of the rows, on whatever thread. While there are none, gives
/// space back, a slice at a time.
pub(crate) struct RowsWorker {
    pub(crate) rows: Rows,
    pub(crate) generation: u64,
    pub(crate) home: RowsHome,
    pub(crate) jobs: mpsc::Receiver<RowsJob>,
    pub(crate) report: Report,
    pub(crate) metrics: Arc<Metrics>,
    /// Whether there may be space to give back.
    untidy: bool,
    /// What somebody asked for, and who waits for it. One is done at a time; who
    /// asks meanwhile waits in line.
    defragmenting: Option<(Defragmentation, oneshot::Sender<()>)>,
    defragment_next: VecDeque<oneshot::Sender<()>>,
}

impl RowsWorker {
    /// Makes one of rows that were just opened.
    pub(crate) fn new(
        rows: Rows,
        home: RowsHome,
        jobs: mpsc::Receiver<RowsJob>,
        report: Report,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            rows,
            generation: 0,
            home,
            jobs,
            report,
            metrics,
            untidy: true,
            defragmenting: None,
            defragment_next: VecDeque::new(),
        }
    }

    /// Takes the next job; waits for one if there is nothing else to do.
    fn next(&self) -> Result<RowsJob, TryRecvError> {
        if self.untidy || self.defragmenting.is_some() {
            return self.jobs.try_recv();
        }
        let job = self.jobs.recv();
        job.map_err(|_ended| TryRecvError::Disconnected)
    }

    /// Carries out one job; returns whether to go on.
    pub(crate) fn turn(&mut self, job: RowsJob) -> bool {
        match job {
            RowsJob::Write(job) => self.write(job),
            RowsJob::Replace { rows, generation } => self.replace(rows, generation),
            RowsJob::Discard(rows, path) => {
                drop(rows);
                self.remove(&path);
            }
            RowsJob::Remove(path) => self.remove(&path),
            RowsJob::Defragment(done) => self.defragment_next.push_back(done),
            RowsJob::Stop => return false,
        }
        self.begin_defragment();
        true
    }

    /// Gives some space back; returns how long to pause.
    fn idle(&mut self) -> Duration {
        let began = Instant::now();
        let tidied = self.tidy();
        let pause = match tidied {
            Ok(Tidied::Some) => (began.elapsed() * SLICE_PAUSE).min(SLICE_PAUSE_MAX),
            Ok(Tidied::All) => Duration::ZERO,
            Err(error) => fatal("rows", &error.to_string()),
        };
        self.begin_defragment();
        pause
    }

    fn begin_defragment(&mut self) {
        if self.defragmenting.is_none()
            && let Some(done) = self.defragment_next.pop_front()
        {
            match self.rows.defragment() {
                Ok(order) => self.defragmenting = Some((order, done)),
                Err(error) => fatal("rows", &error.to_string()),
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
    fn tidy(&mut self) -> Result<Tidied, DiskError> {
        let tidied = match &self.defragmenting {
            Some((order, _)) => self.rows.defragment_some(*order)?,
            None => self.rows.tidy()?,
        };
        self.rows.flush()?;
        if tidied == Tidied::All {
            match self.defragmenting.take() {
                // Who asked may be gone.
                Some((_, done)) => {
                    let _gone = done.send(());
                }
                None => self.untidy = false,
            }
        }
        Ok(tidied)
    }
}
