//! `bench engine`: what the store's rows cost on one engine or another, and what is
//! left of them after a crash.
//!
//! The state machine makes the write-backs of a workload once, and each engine takes
//! them as the server's rows thread would hand them over: write, flush, the next. So
//! the figures are of what an engine has in this store, behind a log that covers
//! whatever was not flushed, not of what it could do elsewhere.

mod check;
pub(crate) mod child;
mod crash;
mod engines;
pub(crate) mod figures;
mod measure;
mod tape;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::ProgressBar;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use self::child::{Order, Task};
use self::crash::{Bed, Crashes, crash};
use self::engines::{ENGINES, Listed};
use self::figures::Figures;
use self::measure::Loaded;
use self::tape::Plan;
use crate::report::Report;

/// What waits when the server starts a write-back.
const DIRTY_BYTES: usize = 4 << 20;

/// Commands that come one after the other once the load is over: at most, and as a part
/// of the keys.
const STEADY_COMMANDS_MAX: u64 = 50_000;
const STEADY_PART: u64 = 2;

/// How long an engine may take for the whole tape, or to open and be read.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// The tape for crashes: short enough to be compared after each, with small batches
/// and compactions between them, so that most kinds of change are under way at some
/// crash.
const CRASH_KEYS: u64 = 20_000;
const CRASH_DIRTY_BYTES: usize = 256 << 10;
const CRASH_COMPACTIONS: usize = 4;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Objects that are created; two updates or deletes follow each.
    #[arg(long, default_value_t = 200_000)]
    keys: u64,
    /// The engines, by name; all if none is given.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// How often each is killed.
    #[arg(long, default_value_t = 30)]
    kills: u64,
    /// How often the power of each is cut.
    #[arg(long, default_value_t = 30)]
    cuts: u64,
    /// Decides over the workload and the moments of crashes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A folder on the disk to be measured; the system's for temporary files if none.
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// What all engines are measured with.
struct Bench<'a> {
    args: &'a Args,
    folder: tempfile::TempDir,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Report> {
    let engines: Vec<Listed> = match args.engines.is_empty() {
        true => ENGINES.to_vec(),
        false => {
            let named = args.engines.iter().map(|name| engines::named(name));
            named.collect::<Result<_, _>>()?
        }
    };
    let folder = match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let bench = Bench { args, folder };
    let bar = ProgressBar::new(engines.len() as u64 + 1);
    bench.record()?;
    bench.warm_up(&engines)?;
    bar.inc(1);
    let mut report = Report::default();
    for engine in &engines {
        report.engines.push(bench.measure(engine)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(report)
}

impl Bench<'_> {
    fn tape(&self) -> PathBuf {
        self.folder.path().join("tape")
    }

    fn crash_tape(&self) -> PathBuf {
        self.folder.path().join("crash-tape")
    }

    fn record(&self) -> anyhow::Result<()> {
        let (seed, keys) = (self.args.seed, self.args.keys);
        let steady = (keys / STEADY_PART).min(STEADY_COMMANDS_MAX);
        let plan = Plan {
            seed,
            keys,
            dirty_bytes: DIRTY_BYTES,
            compactions: 1,
            steady_commands: steady as usize,
        };
        tape::record(&plan, &self.tape())?;
        let plan = Plan {
            seed,
            keys: CRASH_KEYS,
            dirty_bytes: CRASH_DIRTY_BYTES,
            compactions: CRASH_COMPACTIONS,
            steady_commands: 0,
        };
        tape::record(&plan, &self.crash_tape())?;
        Ok(())
    }

    /// Loads the first engine once for nothing. Whoever writes first finds memory that
    /// the machine has not used yet, which costs more where the machine is a virtual one.
    fn warm_up(&self, engines: &[Listed]) -> anyhow::Result<()> {
        let data = tempfile::tempdir_in(self.folder.path())?;
        if let Some(first) = engines.first() {
            let order = self.order(first, Task::Load, data.path());
            let _not_counted = order.answer::<Loaded>(PATIENCE)?;
        }
        Ok(())
    }

    fn order(&self, engine: &Listed, task: Task, data: &Path) -> Order {
        Order {
            task,
            engine: engine.name.to_owned(),
            data: data.join("data"),
            tape: self.tape(),
            number: self.args.seed,
        }
    }

    /// Measures one engine. What fails is the engine's and noted; what this program
    /// itself cannot do ends it.
    fn measure(&self, engine: &Listed) -> anyhow::Result<Figures> {
        let data = tempfile::tempdir_in(self.folder.path())?;
        let order = |task| self.order(engine, task, data.path());
        // What others wrote, the tape among it, must not be written meanwhile.
        rustix::fs::sync();
        let mut failed = Vec::new();
        let mut note = |what: &str, why: String| failed.push(format!("{what}: {why}"));
        let loaded = order(Task::Load).answer(PATIENCE)?;
        let loaded = loaded.map_err(|why| note("load", why)).ok();
        let opened = order(Task::Open).answer(PATIENCE)?;
        let opened = opened.map_err(|why| note("open", why)).ok();
        drop(data);
        Ok(Figures {
            engine: engine.name.to_owned(),
            what: engine.what.to_owned(),
            loaded,
            opened,
            kills: self.kill(engine)?,
            cuts: self.cut(engine)?,
            failed,
        })
    }

    fn kill(&self, engine: &Listed) -> anyhow::Result<Crashes> {
        let folder = tempfile::tempdir_in(self.folder.path())?;
        let mut bed = Bed::Folder(folder);
        self.crash(engine, &mut bed, self.args.kills)
    }

    fn cut(&self, engine: &Listed) -> anyhow::Result<Crashes> {
        if self.args.cuts == 0 {
            return Ok(Crashes::default());
        }
        match Bed::power() {
            Ok(mut bed) => self.crash(engine, &mut bed, self.args.cuts),
            Err(why) => Ok(Crashes {
                not_tried: Some(why.to_string()),
                ..Crashes::default()
            }),
        }
    }

    fn crash(&self, engine: &Listed, bed: &mut Bed, times: u64) -> anyhow::Result<Crashes> {
        let tape: &Path = &self.crash_tape();
        // The same moments for every engine, as far as they are as fast.
        let mut rng = StdRng::seed_from_u64(self.args.seed);
        crash(engine, tape, bed, times, &mut rng)
    }
}
