//! The differential tester: the same random program is run against a member and a
//! real etcd, each a process without data, and every answer is compared.
//!
//! A seed makes a program ([`generate`]); both members take it step by step ([`exec`])
//! and say the same ([`compare`]), or differ in a way that is known ([`known`]), or
//! the program is made short ([`shrink`]) and shown ([`report`]).

mod answer;
mod authority;
mod boundary;
mod compare;
mod exec;
mod generate;
mod known;
mod process;
mod program;
mod report;
mod shrink;
mod side;
mod symbol;
mod ties;
mod watching;
mod wire;

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};

use self::{
    exec::{Failure, Outcome, Pair},
    generate::Area,
    process::Launch,
    program::Step,
    report::Summary,
    shrink::Shrinker,
};
use crate::say;

/// Runs a failing program is made short with at most; what is left then is shown as
/// it is.
const SHRINK_RUNS_MAX: usize = 600;

/// Proposals tried at a time: most are in vain, and a start is mostly waiting.
const SHRINK_AHEAD: usize = 4;

/// Different failures that are made short; of the others only the seed is told.
const SHRUNK_MAX: usize = 5;

/// What to run, against whom.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program to agree with, as `etcd=PATH`.
    #[arg(long, value_parser = peer)]
    peer: PathBuf,
    /// A keelson program to test instead of the member built into this one.
    #[arg(long)]
    ours: Option<PathBuf>,
    /// How many programs to run.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// How many steps each program takes.
    #[arg(long, default_value_t = 500)]
    ops: usize,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Run this seed only.
    #[arg(long, conflicts_with_all = ["seeds", "first_seed"])]
    seed: Option<u64>,
    /// Run a program from a file instead of random ones.
    #[arg(long, conflicts_with_all = ["seeds", "first_seed", "seed"])]
    replay: Option<PathBuf>,
    /// Parts of the surface to cover; all that both have, if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    areas: Vec<Area>,
    /// Programs to run at a time, each on two members of its own.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// How long a failing program may be made shorter, in seconds.
    #[arg(long, default_value_t = 60)]
    shrink_seconds: u64,
    /// Where failing programs are kept.
    #[arg(long, default_value = "target/jepsen")]
    out: PathBuf,
}

fn peer(text: &str) -> Result<PathBuf, String> {
    match text.split_once('=') {
        Some(("etcd", path)) if !path.is_empty() => Ok(path.into()),
        _ => Err("give it as etcd=PATH".to_owned()),
    }
}

/// Runs what was asked for and says whether all agreed.
pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(tester(args)?.all(args))
}

fn tester(args: &Args) -> anyhow::Result<Tester> {
    let (program, first) = match &args.ours {
        Some(path) => (path.clone(), "kvstore"),
        None => (std::env::current_exe()?, "member"),
    };
    let areas = match args.areas.as_slice() {
        [] => generate::AREAS.to_vec(),
        areas => areas.to_vec(),
    };
    Ok(Tester {
        ours: Launch {
            program,
            first: vec![first.to_owned()],
        },
        peer: Launch {
            program: args.peer.clone(),
            first: Vec::new(),
        },
        areas,
        ops: args.ops,
    })
}

/// Runs programs on pairs of fresh members.
struct Tester {
    ours: Launch,
    peer: Launch,
    areas: Vec<Area>,
    ops: usize,
}

/// A program that failed.
pub(crate) struct Failed {
    /// The seed it came from, if from one.
    pub(crate) seed: Option<u64>,
    /// Its steps up to the one that showed it.
    pub(crate) steps: Vec<Step>,
    pub(crate) outcome: Outcome,
    pub(crate) failure: Failure,
}

impl Failed {
    /// Names what failed, so that the same failure is known in another program.
    fn signature(&self) -> String {
        let step = &self.steps[self.failure.at];
        report::signature(step, &self.failure)
    }
}

impl Tester {
    async fn all(&self, args: &Args) -> anyhow::Result<bool> {
        let programs: Vec<(Option<u64>, Vec<Step>)> = match (&args.replay, args.seed) {
            (Some(file), _) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
                vec![(None, program::parse(&text)?)]
            }
            (None, Some(seed)) => vec![self.program(seed)],
            (None, None) => (args.first_seed..args.first_seed + args.seeds)
                .map(|seed| self.program(seed))
                .collect(),
        };
        let progress = progress(programs.len());
        let mut runs = futures::stream::iter(programs)
            .map(|(seed, steps)| self.one(seed, steps))
            .buffer_unordered(args.jobs.max(1));
        let mut summary = Summary::default();
        while let Some(run) = runs.next().await {
            summary.add(run?);
            progress.set_message(summary.failed());
            progress.inc(1);
        }
        drop(runs);
        progress.finish_and_clear();
        let limit = Duration::from_secs(args.shrink_seconds);
        for failed in summary.first_of_each(SHRUNK_MAX) {
            let failed = match args.replay {
                Some(_) => failed,
                None => self.shrink(failed, limit).await?,
            };
            say::line(&report::save(&failed, args)?);
        }
        say::line(&summary.text());
        Ok(summary.agreed())
    }

    fn program(&self, seed: u64) -> (Option<u64>, Vec<Step>) {
        (Some(seed), generate::program(seed, self.ops, &self.areas))
    }

    /// Runs one program on members of its own.
    async fn one(
        &self,
        seed: Option<u64>,
        mut steps: Vec<Step>,
    ) -> anyhow::Result<(Outcome, Option<Failed>)> {
        let mut pair = Pair::start(&self.ours, &self.peer).await?;
        let mut outcome = pair.run(&steps).await;
        let failed = outcome.failure.take().map(|failure| {
            steps.truncate(failure.at + 1);
            Failed {
                seed,
                steps,
                failure,
                outcome: std::mem::take(&mut outcome),
            }
        });
        match failed {
            Some(failed) => {
                let counted = Outcome {
                    steps: failed.outcome.steps,
                    explained: failed.outcome.explained.clone(),
                    ..Outcome::default()
                };
                Ok((counted, Some(failed)))
            }
            None => Ok((outcome, None)),
        }
    }

    /// Makes a failing program as short as it gets in the time there is.
    async fn shrink(&self, failed: Failed, limit: Duration) -> anyhow::Result<Failed> {
        let signature = failed.signature();
        let seed = failed.seed;
        let progress = ProgressBar::new_spinner();
        let mut shrinker = Shrinker::new(failed.steps.clone());
        let mut best = failed;
        let started = std::time::Instant::now();
        let mut runs = 0;
        while runs < SHRINK_RUNS_MAX && started.elapsed() < limit {
            let steps = shrinker.best().len();
            progress.set_message(format!("making it short: run {runs}, {steps} steps left"));
            progress.tick();
            let ahead = shrinker.ahead(SHRINK_AHEAD);
            if ahead.is_empty() {
                break;
            }
            runs += ahead.len();
            let tried = ahead.into_iter().map(|steps| self.one(seed, steps));
            for run in futures::future::join_all(tried).await {
                let (_, again) = run?;
                let again = again.filter(|again| again.signature() == signature);
                let _the_one_just_run = shrinker.propose();
                shrinker.judge(again.is_some());
                if let Some(again) = again {
                    shrinker.truncate(again.steps.len());
                    best = again;
                    // The others were made of a longer program.
                    break;
                }
            }
        }
        progress.finish_and_clear();
        Ok(best)
    }
}

/// A bar on a terminal; nothing elsewhere.
fn progress(programs: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} programs, {eta} left{msg}");
    let bar = ProgressBar::new(u64::try_from(programs).unwrap_or(u64::MAX));
    match style {
        Ok(style) => bar.with_style(style),
        Err(_plain) => bar,
    }
}
