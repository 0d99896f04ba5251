//! What an engine has left after a crash in the midst of writing.
//!
//! A process writes the batches of a tape, flushes each and then says so. At a moment
//! that a seed decides it is killed, and with it, on a disk of its own, the power goes.
//! Another process opens the rows and compares them with the tape. The next round goes
//! on from there, or from nothing if something was wrong. Whatever is wrong is counted.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use faults::FaultFs;
use faults::faultfs::{Names, Unsynced};
use rand::Rng as _;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use super::check::{Rows, Verdict, judge};
use super::child::{Order, Task, complaint};
use super::engines::Listed;
use super::tape::Tape;
use crate::report::say;

/// After how many flushes the crash comes at most, and how long after one.
const FLUSHES_MAX: u64 = 24;
const LATER_MAX: Duration = Duration::from_millis(30);

/// After so many batches an engine may give space back, as it would when nothing is to
/// be written.
const TIDY_EVERY: u64 = 8;

/// How long an engine may take for one batch, or to open and read everything.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many of the things that went wrong are told in words.
const NOTES_MAX: usize = 3;

/// Is how the crashes of one kind went.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Crashes {
    /// Why none were tried.
    pub(crate) not_tried: Option<String>,
    pub(crate) tried: u64,
    /// All rows of some batch, and no flushed one missing.
    pub(crate) whole: u64,
    /// Whole, but as of a batch before the last that was flushed.
    pub(crate) lost: u64,
    /// Rows that no batch ever left.
    pub(crate) torn: u64,
    /// It refused to open or to be read, or did neither in a minute.
    pub(crate) unopened: u64,
    /// It stopped writing before any crash.
    pub(crate) stopped: u64,
    /// The longest it took to open and visit all rows.
    pub(crate) open_ms_max: f64,
    pub(crate) notes: Vec<String>,
    /// Whether the files of this round were made durable for the engine when they were
    /// new.
    #[serde(skip)]
    pub(crate) files_durable: bool,
}

impl Crashes {
    /// Counts a crash; returns the batch from which the next round can go on.
    fn count(&mut self, ended: &Ended, found: Result<Found, String>) -> Option<u64> {
        self.tried += 1;
        if let Some(why) = &ended.stopped {
            self.stopped += 1;
            self.note("stopped writing", why);
        }
        let open_ms = found.as_ref().map_or(0.0, |found| found.open_ms);
        self.open_ms_max = self.open_ms_max.max(open_ms);
        let mut goes_on = None;
        match found.map(|found| found.verdict) {
            Ok(Verdict::Whole { after }) => {
                self.whole += 1;
                goes_on = Some(after).filter(|_| ended.stopped.is_none() && !ended.at_end);
            }
            Ok(Verdict::Lost { after }) => {
                self.lost += 1;
                let flushed = ended.flushed;
                self.note("lost", &format!("flushed batch {flushed}, found {after}"));
            }
            Ok(Verdict::Torn { how }) => {
                self.torn += 1;
                self.note("torn", &how);
            }
            Err(how) => {
                self.unopened += 1;
                self.note("does not open", &how);
            }
        }
        goes_on
    }

    fn note(&mut self, what: &str, how: &str) {
        if self.notes.len() < NOTES_MAX {
            let files = match self.files_durable {
                true => " with durable files",
                false => "",
            };
            let round = self.tried;
            self.notes
                .push(format!("round {round}{files}: {what}: {how}"));
        }
    }
}

/// What another process found.
#[derive(Serialize, Deserialize)]
pub(crate) struct Found {
    verdict: Verdict,
    open_ms: f64,
}

/// Where the data lies that is to survive.
pub(crate) enum Bed {
    /// A folder: only the process is killed.
    Folder(tempfile::TempDir),
    /// A file system whose power is cut as well.
    Power(FaultFs),
}

impl Bed {
    /// Makes one whose power can be cut. A sync keeps names too, as on ext4: what
    /// POSIX alone demands is not asked of an engine here.
    pub(crate) fn power() -> Result<Self, faults::Error> {
        FaultFs::mount(Names::WithAnySync).map(Self::Power)
    }

    fn data(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.path().join("data"),
            Self::Power(fs) => fs.data(),
        }
    }

    /// Does what remains when the process is dead: of what was not synced all is gone,
    /// or of each sector chance decides.
    fn crash(&mut self, rng: &mut StdRng) -> anyhow::Result<()> {
        let Self::Power(fs) = self else {
            return Ok(());
        };
        let unsynced = match rng.random() {
            true => Unsynced::Lost,
            false => Unsynced::Torn,
        };
        Ok(fs.cut_power(unsynced, rng)?)
    }

    /// Removes the data, for good: a cut would bring it back.
    fn clear(&self) -> anyhow::Result<()> {
        let data = self.data();
        match std::fs::remove_dir_all(&data) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
        let around = data.parent().context("it is in no folder")?;
        Ok(File::open(around)?.sync_all()?)
    }
}

/// Crashes an engine so often.
pub(crate) fn crash(
    engine: &Listed,
    tape: &Path,
    bed: &mut Bed,
    times: u64,
    rng: &mut StdRng,
) -> anyhow::Result<Crashes> {
    let data = bed.data();
    let order = |task, number| Order {
        task,
        engine: engine.name.to_owned(),
        data: data.clone(),
        tape: tape.to_owned(),
        number,
    };
    let mut done = Crashes::default();
    // The batch that the rows are at.
    let mut at = 0;
    while done.tried < times {
        // Some engines never make their files themselves durable, and nothing that comes
        // later could be seen: every other time they begin with files that are.
        if at == 0 {
            done.files_durable = done.tried % 2 == 1 && matches!(bed, Bed::Power(_));
            if done.files_durable {
                // What is wrong with it is found again in a moment.
                let _judged = order(Task::Check, 0).answer::<Found>(PATIENCE)?;
                sync_all(&data)?;
            }
        }
        let ended = Writer::start(&order(Task::Write, at))?.run(at, rng)?;
        bed.crash(rng)?;
        let found = order(Task::Check, ended.flushed).answer(PATIENCE)?;
        at = match done.count(&ended, found) {
            Some(after) => after,
            None => {
                bed.clear()?;
                0
            }
        };
    }
    Ok(done)
}

/// Makes all files below a folder durable.
fn sync_all(folder: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => sync_all(&path)?,
            false => File::open(&path)?.sync_all()?,
        }
    }
    Ok(File::open(folder)?.sync_all()?)
}

/// Is a process that writes.
struct Writer {
    child: Child,
    flushes: Receiver<u64>,
    complaint: File,
}

/// How it ended.
struct Ended {
    /// The last batch that it said was flushed.
    flushed: u64,
    /// Why it stopped before it was killed, unless the tape was at its end.
    stopped: Option<String>,
    at_end: bool,
}

impl Writer {
    fn start(order: &Order) -> anyhow::Result<Self> {
        let complaint = tempfile::tempfile()?;
        let mut child = order
            .command()?
            .stdout(Stdio::piped())
            .stderr(complaint.try_clone()?)
            .spawn()?;
        let out = child.stdout.take().context("no standard output")?;
        let (tell, flushes) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            for token in lines.filter_map(|line| line.parse().ok()) {
                if tell.send(token).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            child,
            flushes,
            complaint,
        })
    }

    /// Lets it write from a batch on, and kills it.
    fn run(mut self, from: u64, rng: &mut StdRng) -> anyhow::Result<Ended> {
        let flushes = rng.random_range(1..=FLUSHES_MAX);
        let later = rng.random_range(Duration::ZERO..LATER_MAX);
        let mut flushed = from;
        let mut late = false;
        for _ in 0..flushes {
            match self.flushes.recv_timeout(PATIENCE) {
                Ok(token) => flushed = token,
                Err(RecvTimeoutError::Timeout) => late = true,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if late {
                break;
            }
        }
        std::thread::sleep(later);
        let by_itself = self.child.try_wait()?;
        if by_itself.is_none() {
            self.child.kill()?;
            self.child.wait()?;
        }
        // What it said before it died.
        flushed = self.flushes.iter().last().unwrap_or(flushed);
        let stopped = match by_itself {
            Some(status) if !status.success() => {
                Some(format!("{}; {status}", complaint(self.complaint)?))
            }
            _ if late => Some(format!("a batch took over {PATIENCE:?}")),
            _ => None,
        };
        Ok(Ended {
            flushed,
            stopped,
            at_end: by_itself.is_some_and(|status| status.success()),
        })
    }
}

/// Writes the batches after one, and says which are flushed.
pub(crate) fn write(engine: &Listed, data: &Path, tape: &Path, from: u64) -> anyhow::Result<()> {
    let engine = engine.open(data)?;
    for batch in Tape::open(tape)?.batches() {
        let batch = batch?;
        if batch.token <= from {
            continue;
        }
        engine.write(&batch)?;
        engine.flush()?;
        say(&batch.token.to_string())?;
        if batch.token % TIDY_EVERY == 0 {
            engine.tidy()?;
        }
    }
    Ok(())
}

/// Opens the rows and judges them.
pub(crate) fn judged(
    engine: &Listed,
    data: &Path,
    tape: &Path,
    flushed: u64,
) -> anyhow::Result<Found> {
    let began = Instant::now();
    let engine = engine.open(data)?;
    let mut rows = Rows::new();
    engine.scan(b"", b"", &mut |key, row| {
        rows.insert(key, row);
        Ok(())
    })?;
    let open_ms = began.elapsed().as_secs_f64() * 1e3;
    let verdict = judge(&rows, Tape::open(tape)?.batches(), flushed)?;
    Ok(Found { verdict, open_ms })
}
