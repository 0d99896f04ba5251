//! The write-backs of a workload, recorded once from the real state machine and played
//! to every engine: so all get the same, and what an engine takes is not mixed with
//! what the machine takes.
//!
//! The machine is driven as the server drives it: a write-back when enough waits, one
//! at a time, and compaction in steps. Recorded is also which rows the machine reads
//! meanwhile, which an engine has to read then too.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use mvcc::backend::RowVisitor;
use mvcc::{
    Backend, BackendError, Command, CompactRequest, CompactStep, Config, MemoryBackend, Proposal,
    StateMachine, WriteBack,
};
use prost::Message as _;

use super::workload::Workload;

/// Bytes of one write-back, and revisions of one step of compaction: the server's.
const WRITEBACK_BYTES_MAX: usize = 8 << 20;
const COMPACT_REVISIONS: usize = 200;

/// Commands of one write-back where there is little to do: half a second's worth, which
/// is how long the server waits, at five hundred a second.
const STEADY_COMMANDS: usize = 250;

/// What goes on while a step is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Phase {
    /// As many commands as can be, a write-back whenever enough waits.
    Load = 0,
    /// Few commands, a write-back of those of half a second.
    Steady = 1,
    /// All history is compacted.
    Compaction = 2,
}

/// Is one thing that an engine has to do: write a batch, or read a row.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Step {
    #[prost(enumeration = "Phase", tag = "1")]
    phase: i32,
    #[prost(message, optional, tag = "2")]
    batch: Option<Batch>,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) read: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Batch {
    #[prost(uint64, tag = "1")]
    token: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
    #[prost(int64, tag = "3")]
    revision: i64,
    #[prost(message, repeated, tag = "4")]
    rows: Vec<Row>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Row {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", optional, tag = "2")]
    row: Option<Bytes>,
}

impl Step {
    /// Returns the batch that is to be written.
    pub(crate) fn into_batch(self) -> Option<WriteBack> {
        let batch = self.batch?;
        Some(WriteBack {
            token: batch.token,
            applied_index: batch.index,
            applied_term: TERM,
            revision: batch.revision,
            rows: batch.rows.into_iter().map(|r| (r.key, r.row)).collect(),
        })
    }

    /// Reports whether a row is to be read.
    pub(crate) fn reads(&self) -> bool {
        self.batch.is_none()
    }

    /// Returns what goes on meanwhile.
    pub(crate) fn what(&self) -> Phase {
        self.phase()
    }
}

/// The term of every entry.
const TERM: u64 = 1;

/// Reads a tape from its beginning.
pub(crate) struct Tape(BufReader<File>);

impl Tape {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self(BufReader::with_capacity(1 << 20, file)))
    }

    fn step(&mut self) -> anyhow::Result<Option<Step>> {
        let mut len = [0; 4];
        match self.0.read_exact(&mut len) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
        self.0.read_exact(&mut bytes)?;
        // Rows of their own, as the machine makes them: an engine that keeps a key must
        // not keep the whole step with it.
        Ok(Some(Step::decode(bytes.as_slice())?))
    }

    /// Leaves only the batches.
    pub(crate) fn batches(self) -> impl Iterator<Item = anyhow::Result<WriteBack>> {
        self.filter_map(|step| step.map(Step::into_batch).transpose())
    }
}

impl Iterator for Tape {
    type Item = anyhow::Result<Step>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

/// What is to be recorded.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) keys: u64,
    /// What waits when a write-back starts.
    pub(crate) dirty_bytes: usize,
    /// How often everything is compacted, the last time at the end.
    pub(crate) compactions: usize,
    /// Commands at the end that come one after the other.
    pub(crate) steady_commands: usize,
}

/// Says what is on a tape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
}

/// Records a tape.
pub(crate) fn record(plan: &Plan, path: &Path) -> anyhow::Result<Recorded> {
    let mut recorder = Recorder::new(path)?;
    let mut workload = Workload::new(plan.seed, plan.keys);
    let commands = Workload::new(plan.seed, plan.keys).count();
    let part = commands.div_ceil(plan.compactions.max(1));
    for nth in 0..commands {
        if nth + plan.steady_commands == commands {
            recorder.write_back()?;
            recorder.phase = Phase::Steady;
        }
        let command = workload.next().context("it counted more commands")?;
        recorder.apply(command)?;
        if recorder.phase == Phase::Steady {
            if nth % STEADY_COMMANDS == 0 {
                recorder.write_back()?;
            }
        } else if recorder.machine.dirty_bytes() >= plan.dirty_bytes {
            recorder.write_back()?;
        }
        ensure!(
            recorder.machine.revision() == workload.revision(),
            "command {nth} did not do what it should"
        );
        if (nth + 1) % part == 0 || nth + 1 == commands {
            recorder.write_back()?;
            recorder.compact(plan.dirty_bytes)?;
        }
    }
    recorder.out.flush()?;
    Ok(recorder.recorded)
}

struct Recorder {
    machine: StateMachine,
    rows: Watched,
    out: BufWriter<File>,
    phase: Phase,
    index: u64,
    recorded: Recorded,
}

impl Recorder {
    fn new(path: &Path) -> anyhow::Result<Self> {
        let rows = Watched::default();
        let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        let machine = StateMachine::open(rows.share(), Config::default())?;
        rows.forget_reads();
        Ok(Self {
            machine,
            rows,
            out: BufWriter::with_capacity(1 << 20, file),
            phase: Phase::Load,
            index: 0,
            recorded: Recorded::default(),
        })
    }

    fn apply(&mut self, command: Command) -> anyhow::Result<()> {
        self.index += 1;
        let proposal = Proposal {
            id: self.index,
            since: Some(self.index - 1),
            identity: None,
            command,
        };
        self.machine.apply(self.index, TERM, proposal)?.result?;
        Ok(())
    }

    /// Compacts all history, in steps, with a write-back when enough waits.
    fn compact(&mut self, dirty_bytes: usize) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.phase, Phase::Compaction);
        let revision = self.machine.revision();
        self.apply(Command::Compact(CompactRequest {
            revision,
            physical: false,
        }))?;
        loop {
            let step = self.machine.compact_step(COMPACT_REVISIONS)?;
            let enough = self.machine.dirty_bytes() >= dirty_bytes;
            if step != CompactStep::More || enough {
                self.write_back()?;
            }
            if step == CompactStep::Done {
                self.phase = before;
                return Ok(());
            }
        }
    }

    fn write_back(&mut self) -> anyhow::Result<()> {
        while let Some(job) = self.machine.take_writeback(WRITEBACK_BYTES_MAX) {
            let (batch, written) = job.pack();
            for read in self.rows.forget_reads() {
                self.put(&self.step(None, read))?;
            }
            self.rows.rows.write(&batch);
            self.machine.writeback_done(written);
            self.recorded.batches += 1;
            self.recorded.bytes += batch.bytes() as u64;
            let own = |(key, row)| Row { key, row };
            let batch = Batch {
                token: batch.token,
                index: batch.applied_index,
                revision: batch.revision,
                rows: batch.rows.into_iter().map(own).collect(),
            };
            self.put(&self.step(Some(batch), Bytes::new()))?;
        }
        Ok(())
    }

    fn step(&self, batch: Option<Batch>, read: Bytes) -> Step {
        Step {
            phase: self.phase.into(),
            batch,
            read,
        }
    }

    fn put(&mut self, step: &Step) -> anyhow::Result<()> {
        let bytes = step.encode_to_vec();
        let len = u32::try_from(bytes.len())?;
        self.out.write_all(&len.to_le_bytes())?;
        Ok(self.out.write_all(&bytes)?)
    }
}

/// Rows in memory that remember what was read.
#[derive(Clone, Default)]
struct Watched {
    rows: MemoryBackend,
    reads: Arc<Mutex<Vec<Bytes>>>,
}

impl Watched {
    fn forget_reads(&self) -> Vec<Bytes> {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut reads)
    }
}

impl Backend for Watched {
    fn share(&self) -> Box<dyn Backend> {
        Box::new(self.clone())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.push(Bytes::copy_from_slice(key));
        self.rows.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut RowVisitor<'_>) -> Result<(), BackendError> {
        self.rows.scan(from, to, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        seed: 3,
        keys: 5_000,
        dirty_bytes: 256 << 10,
        compactions: 2,
        steady_commands: 1_000,
    };

    fn recorded() -> (Recorded, Vec<Step>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let recorded = record(&PLAN, file.path()).unwrap();
        let steps: Result<Vec<_>, _> = Tape::open(file.path()).unwrap().collect();
        (recorded, steps.unwrap())
    }

    #[test]
    fn the_same_plan_gives_the_same_tape() {
        let (recorded_, steps) = recorded();
        let again = recorded();
        assert_eq!((recorded_, &steps), (again.0, &again.1));
        let batches = steps.iter().filter(|step| step.batch.is_some()).count();
        assert_eq!(batches as u64, recorded_.batches);
        for phase in [Phase::Load, Phase::Steady, Phase::Compaction] {
            assert!(steps.iter().any(|step| step.what() == phase), "{phase:?}");
        }
        assert!(steps.iter().any(|step| step.batch.is_none()), "no read");
    }

    #[test]
    fn what_is_played_is_the_store() {
        let rows = MemoryBackend::new();
        let mut revision = 0;
        for step in recorded().1 {
            if let Some(batch) = step.into_batch() {
                rows.write(&batch);
                revision = batch.revision;
            }
        }
        let machine = StateMachine::open(Box::new(rows), Config::default()).unwrap();
        assert_eq!(machine.revision(), revision);
        assert_eq!(machine.compact_revision(), revision);
    }
}
