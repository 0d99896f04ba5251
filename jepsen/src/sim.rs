//! `jepsen sim`: seeds in, a verdict out, and for each failing seed the one command
//! that replays it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use sim::{
    Kind, Lines, MS, Plan, Report, SECOND,
    campaign::{Campaign, Totals},
    shrink,
};

use crate::say;

/// Seeds from which on a kind of fault that never happened is a failure: one that is
/// on for half of the seeds would have.
const SEEDS_MANY: u64 = 500;

/// Failing seeds that are shrunk; each takes a hundred runs or so.
const SHRUNK_MAX: usize = 2;

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run this many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them; drawn at random if not given.
    #[arg(long)]
    start: Option<u64>,
    /// Run on this many threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Stop after this many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Members of each cluster; drawn if not given.
    #[arg(long)]
    nodes: Option<u64>,
    /// Run this seed alone.
    #[arg(long, conflicts_with_all = ["seeds", "start", "minutes"])]
    seed: Option<u64>,
    /// Print everything that happens; of a seed alone.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Leave these kinds of faults out; of a seed alone.
    #[arg(long, requires = "seed", value_delimiter = ',')]
    without: Vec<String>,
    /// Let faults happen for this many milliseconds; of a seed alone.
    #[arg(long, requires = "seed")]
    length_ms: Option<u64>,
    /// Have this many clients; of a seed alone.
    #[arg(long, requires = "seed")]
    clients: Option<usize>,
    /// Have this many watchers; of a seed alone.
    #[arg(long, requires = "seed")]
    watchers: Option<usize>,
    /// Plant known bugs one at a time and say which checker finds each, and after how
    /// many seeds; `--seeds` is the most for one. Needs a build with the feature
    /// `mutants`.
    #[arg(long)]
    mutants: bool,
}

/// Runs what was asked for; says whether all held.
pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    match args.seed {
        _ if args.mutants => mutants(args),
        Some(seed) => one(args, seed),
        None => many(args),
    }
}

#[cfg(feature = "mutants")]
fn mutants(args: &Args) -> anyhow::Result<bool> {
    say::line("| planted bug | found by | seeds | what it said |");
    say::line("|---|---|---|---|");
    let all = sim::mutation::hunt_all(args.start.unwrap_or(1), args.seeds, args.jobs, &|found| {
        let (checker, said) = match &found.by {
            Some((checker, seed, said)) => (*checker, format!("seed {seed}: {said}")),
            None => ("nobody", String::new()),
        };
        let said: String = said.chars().take(160).collect();
        let (bug, seeds) = (found.bug.name(), found.seeds);
        say::line(&format!("| {bug} | {checker} | {seeds} | {said} |"));
    });
    Ok(all)
}

#[cfg(not(feature = "mutants"))]
fn mutants(_args: &Args) -> anyhow::Result<bool> {
    anyhow::bail!("no bugs can be planted in this build: cargo run -p jepsen --features mutants")
}

fn plan(args: &Args, seed: u64) -> anyhow::Result<Plan> {
    let mut plan = Plan::of(seed, args.nodes);
    for name in &args.without {
        let known = Kind::ALL.iter().any(|kind| kind.name() == name);
        anyhow::ensure!(known, "--without {name}: there is no such kind of fault");
    }
    plan.kinds
        .retain(|(kind, _)| !args.without.iter().any(|name| name == kind.name()));
    plan.length = args.length_ms.map_or(plan.length, |length| length * MS);
    plan.clients = args.clients.unwrap_or(plan.clients);
    plan.watchers = args.watchers.unwrap_or(plan.watchers);
    Ok(plan)
}

/// Runs one seed and tells about it.
fn one(args: &Args, seed: u64) -> anyhow::Result<bool> {
    let plan = plan(args, seed)?;
    say::line(&format!("{plan:?}"));
    let lines = match args.trace {
        true => Lines::All,
        false => Lines::None,
    };
    let report = sim::run(plan, lines);
    for line in &report.lines {
        say::line(line);
    }
    say::line(&format!(
        "seed {seed}: {} steps, {} of {} requests answered, hash {:016x}",
        report.steps, report.answered, report.asked, report.hash
    ));
    tell_violations(&report);
    Ok(report.violations.is_empty())
}

fn tell_violations(report: &Report) {
    for violation in &report.violations {
        say::line(&format!("  {violation}"));
    }
}

fn many(args: &Args) -> anyhow::Result<bool> {
    let start = match args.start {
        Some(start) => start,
        // Short enough to be typed.
        None => rand::random_range(1_000_000..1_000_000_000),
    };
    let campaign = Campaign {
        start,
        seeds: args.seeds,
        jobs: args.jobs,
        nodes: args.nodes,
    };
    say::line(&format!(
        "seeds {start} to {} on {} threads",
        start.saturating_add(args.seeds) - 1,
        args.jobs
    ));
    let bar = ProgressBar::new(args.seeds);
    let style = "{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left, {msg}";
    bar.set_style(ProgressStyle::with_template(style)?);
    let (began, stop) = (Instant::now(), AtomicBool::new(false));
    let limit = args
        .minutes
        .map(|minutes| Duration::from_secs(minutes * 60));
    let each = |report: &Report| {
        bar.inc(1);
        if let Some(violation) = report.violations.first() {
            bar.suspend(|| say::line(&format!("seed {} fails: {violation}", report.seed)));
        }
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let totals = campaign.run(&each, &stop);
    bar.finish_and_clear();
    let took = began.elapsed();
    tell_totals(&totals, took);
    for failure in totals.failures.iter().take(SHRUNK_MAX) {
        tell_smallest(Plan::of(failure.seed, args.nodes), args);
    }
    let never = totals.never();
    let many = totals.runs >= SEEDS_MANY;
    for kind in &never {
        let name = kind.name();
        say::line(&format!(
            "{name} never happened: so many seeds should have had it"
        ));
    }
    Ok(totals.failures.is_empty() && (!many || never.is_empty()))
}

fn tell_totals(totals: &Totals, took: Duration) {
    let hours = totals.time as f64 / SECOND as f64 / 3_600.0;
    let seconds = took.as_secs_f64().max(0.001);
    say::line(&format!(
        "{} seeds in {seconds:.0} s: {:.1} a second, {hours:.1} simulated hours ({:.0} times as \
         fast as a clock), {} steps",
        totals.runs,
        totals.runs as f64 / seconds,
        hours * 3_600.0 / seconds,
        totals.steps
    ));
    say::line(&format!(
        "{} of {} requests answered, {} replies of watches, {} comparisons of members, {} \
         leaderships",
        totals.answered, totals.asked, totals.heard, totals.compared, totals.elections
    ));
    let judged = totals.judged.iter();
    let judged: Vec<_> = judged.map(|(who, what)| format!("{who} {what}")).collect();
    say::line(&format!("judged: {}", judged.join(", ")));
    let struck: BTreeMap<_, _> = totals.struck.iter().collect();
    let told: Vec<_> = struck
        .iter()
        .map(|(kind, count)| format!("{} {count}", kind.name()))
        .collect();
    say::line(&format!("faults: {}", told.join(", ")));
    say::line(&format!("{} seeds failed", totals.failures.len()));
}

/// Tells the smallest run that still fails, and how to see it.
fn tell_smallest(plan: Plan, args: &Args) {
    let whole = plan.clone();
    let (small, report) = shrink::shrink(plan);
    let off = |kind: &&(Kind, u32)| !small.kinds.iter().any(|(on, _)| *on == kind.0);
    let without: Vec<_> = whole
        .kinds
        .iter()
        .filter(off)
        .map(|(kind, _)| kind.name())
        .collect();
    let mut command = format!("jepsen sim --seed {} --trace", small.seed);
    if let Some(nodes) = args.nodes {
        command += &format!(" --nodes {nodes}");
    }
    if !without.is_empty() {
        command += &format!(" --without '{}'", without.join(","));
    }
    if small.length != whole.length {
        command += &format!(" --length-ms {}", small.length.div_ceil(MS));
    }
    if small.clients != whole.clients {
        command += &format!(" --clients {}", small.clients);
    }
    if small.watchers != whole.watchers {
        command += &format!(" --watchers {}", small.watchers);
    }
    say::line(&format!("seed {}, as small as it gets:", small.seed));
    tell_violations(&report);
    let from = report.lines.len().saturating_sub(40);
    for line in &report.lines[from..] {
        say::line(&format!("  {line}"));
    }
    say::line(&format!("to see all of it: {command}"));
}
