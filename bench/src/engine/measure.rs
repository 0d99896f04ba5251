//! What one engine takes, measured in a process of its own so that memory and CPU are
//! that engine's.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use hdrhistogram::Histogram;
use mvcc::WriteBack;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::engines::{Engine, Listed};
use super::tape::{Phase, Tape};
use crate::cluster::memory_mb;
use crate::target::taken;

/// How long an engine is left alone at the end, so that its threads can finish.
const REST: Duration = Duration::from_secs(2);

/// Rows that are read at random.
const READS: usize = 20_000;

/// Begins the keys of blocks of revisions, which are nearly all that is read.
const BLOCK: u8 = b'b';

/// Is how long something took, as often as it happened.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) samples: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}

impl Latency {
    fn of(nanos: &Histogram<u64>) -> Self {
        let us = |nanos: u64| nanos as f64 / 1_000.0;
        Self {
            samples: nanos.len(),
            p50_us: us(nanos.value_at_quantile(0.50)),
            p99_us: us(nanos.value_at_quantile(0.99)),
            max_us: us(nanos.max()),
        }
    }
}

/// Is how long it takes until a batch is durable. Engines divide the work differently:
/// some sync as a batch is written.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Durable {
    pub(crate) flush: Latency,
    pub(crate) write_and_flush: Latency,
}

/// Is what it takes to play the tape.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Loaded {
    pub(crate) revisions: u64,
    /// Under load, counting only the time within the engine's calls.
    pub(crate) revisions_per_s: f64,
    /// Under load, with what its own threads did meanwhile.
    pub(crate) cpu_us_per_revision: f64,
    /// From the first revision to the end of compaction and tidying.
    pub(crate) cpu_us_per_revision_in_all: f64,
    pub(crate) load: Durable,
    pub(crate) steady: Durable,
    /// What was written to disk for each byte of the rows, up to the end of the load.
    pub(crate) bytes_per_byte: f64,
    /// Within the engine's calls, reads included.
    pub(crate) compaction_s: f64,
    pub(crate) tidy_s: f64,
    pub(crate) loaded_disk_bytes: u64,
    pub(crate) compacted_disk_bytes: u64,
    pub(crate) tidied_disk_bytes: u64,
    /// Before it was opened: what is not the engine's.
    pub(crate) rss_before_mb: u64,
    pub(crate) rss_peak_mb: u64,
}

/// Is what it takes to open it again and read.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) open_ms: f64,
    pub(crate) scan_ms: f64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) rss_mb: u64,
    /// Once it was open: what it only gives back when it begins is gone.
    pub(crate) disk_bytes: u64,
    pub(crate) read: Latency,
    pub(crate) cpu_us_per_read: f64,
}

/// Tells the engine's CPU from that of the thread that plays the tape: all the process
/// used, but for what this thread used outside of the engine's calls.
struct Meter {
    process: Duration,
    thread: Duration,
    inside: Duration,
    wall: Duration,
}

impl Meter {
    fn start() -> Self {
        Self {
            process: cpu(ClockId::ProcessCPUTime),
            thread: cpu(ClockId::ThreadCPUTime),
            inside: Duration::ZERO,
            wall: Duration::ZERO,
        }
    }

    /// Calls the engine; also returns how long it took.
    fn call<T>(&mut self, call: impl FnOnce() -> T) -> (T, Duration) {
        let (began, before) = (Instant::now(), cpu(ClockId::ThreadCPUTime));
        let returned = call();
        let took = began.elapsed();
        self.inside += cpu(ClockId::ThreadCPUTime).saturating_sub(before);
        self.wall += took;
        (returned, took)
    }

    fn cpu(&self) -> Duration {
        let process = cpu(ClockId::ProcessCPUTime).saturating_sub(self.process);
        let thread = cpu(ClockId::ThreadCPUTime).saturating_sub(self.thread);
        process.saturating_sub(thread.saturating_sub(self.inside))
    }
}

fn cpu(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

/// Plays the tape to an engine without rows.
pub(crate) fn load(listed: &Listed, folder: &Path, tape: &Path) -> anyhow::Result<Loaded> {
    let mut player = Player::new(listed, folder)?;
    for step in Tape::open(tape)? {
        let step = step?;
        if step.what() != player.phase {
            player.end_phase(folder)?;
            player.phase = step.what();
        }
        if step.reads() {
            player.read(&step.read)?;
        } else if let Some(batch) = step.into_batch() {
            player.write(&batch)?;
        }
    }
    player.end_phase(folder)?;
    player.tidy(folder)
}

struct Player {
    engine: Box<dyn Engine>,
    phase: Phase,
    meter: Meter,
    flushes: Histogram<u64>,
    batches: Histogram<u64>,
    /// Of the last batch, and of the last before this phase.
    revision: i64,
    revision_before: i64,
    /// Of all rows so far.
    bytes: usize,
    written_before: u64,
    /// Of the phases so far.
    cpu: Duration,
    done: Loaded,
}

impl Player {
    fn new(listed: &Listed, folder: &Path) -> anyhow::Result<Self> {
        let done = Loaded {
            rss_before_mb: memory_mb(std::process::id(), "VmRSS:")?,
            ..Loaded::default()
        };
        Ok(Self {
            engine: listed.open(folder)?,
            phase: Phase::Load,
            meter: Meter::start(),
            flushes: Histogram::new(3)?,
            batches: Histogram::new(3)?,
            revision: 1,
            revision_before: 1,
            bytes: 0,
            written_before: written_bytes()?,
            cpu: Duration::ZERO,
            done,
        })
    }

    fn read(&mut self, key: &[u8]) -> anyhow::Result<()> {
        let (row, _) = self.meter.call(|| self.engine.get(key));
        row?.context("a row that was written is not there")?;
        Ok(())
    }

    /// Writes and flushes, as the rows thread does with every batch.
    fn write(&mut self, batch: &WriteBack) -> anyhow::Result<()> {
        let (written, write) = self.meter.call(|| self.engine.write(batch));
        written?;
        let (flushed, flush) = self.meter.call(|| self.engine.flush());
        flushed?;
        self.flushes.record(nanos(flush))?;
        self.batches.record(nanos(write + flush))?;
        self.revision = batch.revision;
        self.bytes += batch.bytes();
        Ok(())
    }

    fn end_phase(&mut self, folder: &Path) -> anyhow::Result<()> {
        let meter = std::mem::replace(&mut self.meter, Meter::start());
        let cpu = meter.cpu();
        self.cpu += cpu;
        let durable = Durable {
            flush: Latency::of(&self.flushes),
            write_and_flush: Latency::of(&self.batches),
        };
        self.flushes.reset();
        self.batches.reset();
        let revisions = (self.revision - self.revision_before) as f64;
        self.revision_before = self.revision;
        match self.phase {
            Phase::Load => {
                self.done.load = durable;
                self.done.revisions_per_s = revisions / meter.wall.as_secs_f64();
                self.done.cpu_us_per_revision = micros(cpu) / revisions;
                let written = written_bytes()? - self.written_before;
                self.done.bytes_per_byte = written as f64 / self.bytes as f64;
                self.done.loaded_disk_bytes = taken(folder);
            }
            Phase::Steady => {
                self.done.steady = durable;
                self.done.loaded_disk_bytes = taken(folder);
            }
            Phase::Compaction => {
                self.done.compaction_s = meter.wall.as_secs_f64();
                self.done.compacted_disk_bytes = taken(folder);
            }
        }
        Ok(())
    }

    /// Lets it give space back, and come to rest.
    fn tidy(mut self, folder: &Path) -> anyhow::Result<Loaded> {
        while self.meter.call(|| self.engine.tidy()).0? {}
        self.meter.call(|| self.engine.flush()).0?;
        std::thread::sleep(REST);
        let mut done = self.done;
        done.tidy_s = self.meter.wall.as_secs_f64();
        done.tidied_disk_bytes = taken(folder);
        done.revisions = self.revision as u64 - 1;
        let cpu = self.cpu + self.meter.cpu();
        done.cpu_us_per_revision_in_all = micros(cpu) / done.revisions as f64;
        done.rss_peak_mb = memory_mb(std::process::id(), "VmHWM:")?;
        Ok(done)
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns what this process has had written to disk (proc(5), `io`).
fn written_bytes() -> anyhow::Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let mut lines = io.lines();
    let bytes = lines.find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(bytes.context("no write_bytes in io")?.parse()?)
}

/// Opens an engine with rows, visits them all, as the store does when it starts, then
/// reads some at random.
pub(crate) fn open(listed: &Listed, folder: &Path, seed: u64) -> anyhow::Result<Opened> {
    let began = Instant::now();
    let engine = listed.open(folder)?;
    let mut done = Opened {
        open_ms: millis(began),
        ..Opened::default()
    };
    let began = Instant::now();
    let mut blocks: Vec<Bytes> = Vec::new();
    engine.scan(b"", b"", &mut |key, row| {
        done.rows += 1;
        done.bytes += (key.len() + row.len()) as u64;
        if key.first() == Some(&BLOCK) {
            blocks.push(key);
        }
        Ok(())
    })?;
    done.scan_ms = millis(began);
    done.rss_mb = memory_mb(std::process::id(), "VmHWM:")?;
    done.disk_bytes = taken(folder);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut latencies = Histogram::<u64>::new(3)?;
    let mut meter = Meter::start();
    for _ in 0..READS {
        let key = blocks.get(rng.random_range(0..blocks.len().max(1)));
        let key = key.context("there are no blocks")?;
        let (row, took) = meter.call(|| engine.get(key));
        row?.context("a row that was scanned is not there")?;
        latencies.record(nanos(took))?;
    }
    done.cpu_us_per_read = micros(meter.cpu()) / READS as f64;
    done.read = Latency::of(&latencies);
    Ok(done)
}

fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}
