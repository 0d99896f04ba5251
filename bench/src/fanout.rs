//! `bench fanout`: one write on its way to thousands of watchers, and what that costs.
//!
//! Watchers and writers live in processes of their own, so that who measures is not
//! what limits. Every watcher checks its stream: each write once, in its order, at a
//! higher version than the one before. Latency counts from the write's
//! acknowledgement. Each case begins on a fresh server; servers that are compared run
//! in turn, round after round, and of each figure the middle one counts.

mod asking;
mod cases;
mod check;
mod clock;
mod crew;
pub(crate) mod figures;
mod frames;
mod http;
mod idle;
mod lists;
mod measure;
mod nodes;
mod objects;
mod order;
mod server;
mod stuck;
mod watchers;
pub(crate) mod worker;
mod writers;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use self::cases::Case;
use self::figures::{Figures, Results};
use self::measure::Plan;
use self::order::Wire;
use self::server::Server;
use crate::report::{Report, say_error};

/// What numbers of writes of one round are above those of the round before.
const ROUND: u32 = 10_000_000;

/// What CPU for each event of a store may be, as a part of etcd's; its p99 at an equal
/// rate, and its memory.
const OF_ETCD: (f64, f64, f64) = (0.2, 1.0, 0.5);

/// The most CPU an API server may use for each event that all see, in microseconds.
const CPU_US_MAX: f64 = 3.0;

/// How many times more an event may cost with all watchers than with few, where each
/// is seen by one.
const FLAT_MAX: f64 = 2.0;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The store to compare with: `etcd=PATH`.
    #[arg(long)]
    peer: Option<String>,
    /// An API server to compare with, wherever it is.
    #[arg(long, requires = "kubeconfig")]
    url: Option<String>,
    /// Who may enter there.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// What it is called.
    #[arg(long, default_value = "peer")]
    name: String,
    /// Its processes, if they are on this machine: their CPU and memory count.
    #[arg(long, value_delimiter = ',')]
    pid: Vec<u32>,
    /// Measure no server of ours.
    #[arg(long)]
    only_peers: bool,
    /// Only cases whose name contains one of these, separated by semicolons.
    #[arg(long)]
    cases: Option<String>,
    /// All cases of the grid, rather than the main ones.
    #[arg(long)]
    grid: bool,
    /// Print the names of the cases, and run none.
    #[arg(long)]
    list: bool,
    /// How often each case is run on each server.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds that are measured in a round.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// In how many processes watchers are; as many as there are cores if not given.
    #[arg(long)]
    processes: Option<usize>,
    /// How many watches share a connection, other than over HTTP/1.1.
    #[arg(long, default_value_t = 100)]
    streams: usize,
    /// What part of the numbers of watchers, nodes and pods there is, to try it out.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Also draw the CPU for each event as SVG to this file.
    #[arg(long)]
    plot: Option<PathBuf>,
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.cases.as_ref().is_none_or(|wanted| {
            let mut parts = wanted.split(';').map(str::trim);
            parts.any(|part| name.contains(part))
        })
    }

    fn plan(&self) -> Plan {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Plan {
            warm_up: Duration::from_secs_f64(self.seconds / 4.0),
            window: Duration::from_secs_f64(self.seconds),
            processes: self.processes.unwrap_or_else(cores),
            streams_per_connection: self.streams,
        }
    }

    /// Lists the cases of the grid that are wanted.
    fn grid(&self) -> Vec<Case> {
        let mut cases = cases::cases(self.grid);
        for case in &mut cases {
            if case.watchers > 0 {
                case.watchers = scaled(case.watchers, self.scale);
            }
        }
        // With few watchers, cases may be the same.
        let mut seen = BTreeSet::new();
        cases.retain(|case| self.wants(&case.name()) && seen.insert(case.name()));
        cases
    }
}

/// Takes a part of a number, but never nothing.
fn scaled(count: usize, scale: f64) -> usize {
    ((count as f64 * scale).round() as usize).max(1)
}

/// Returns what the writes of a round are numbered from.
fn base(round: usize) -> anyhow::Result<u32> {
    let round = u32::try_from(round)?;
    round.checked_mul(ROUND).context("too many rounds")
}

/// What is not of the grid.
#[derive(Clone)]
enum Special {
    Idle((String, Wire, usize, usize)),
    Stuck,
    Nodes,
    Lists,
}

/// Lists the other cases with their names.
fn specials(scale: f64) -> Vec<(String, Special)> {
    let mut all: Vec<(String, Special)> = idle::cases(scale)
        .into_iter()
        .map(|idle| (idle.0.clone(), Special::Idle(idle)))
        .collect();
    all.push((stuck::name(scale), Special::Stuck));
    all.push((nodes::name(scale), Special::Nodes));
    all.push((lists::name(scale), Special::Lists));
    all
}

pub(crate) async fn run(
    keelson: impl Fn() -> anyhow::Result<PathBuf>,
    args: &Args,
) -> anyhow::Result<Report> {
    let grid = args.grid();
    let mut specials = specials(args.scale);
    specials.retain(|(name, _)| args.wants(name));
    if args.list {
        let names = grid.iter().map(Case::name);
        for name in names.chain(specials.iter().map(|(name, _)| name.clone())) {
            crate::report::say(&name)?;
        }
        return Ok(Report {
            fanout: Some(Results::default()),
            ..Report::default()
        });
    }
    worker::raise_limit()?;
    let ours = (!args.only_peers).then(keelson).transpose()?;
    let mut results = Results::default();
    for case in &grid {
        compare(ours.as_deref(), args, case, &mut results)
            .await
            .with_context(|| case.name())?;
    }
    for (name, special) in &specials {
        for server in Server::start_all(ours.as_deref(), args, Wire::Json).await? {
            one(&server, args, special, &mut results)
                .await
                .with_context(|| format!("{name}, {}", server.name))?;
            server.stop().await?;
        }
    }
    compare_costs(&mut results);
    judge(&mut results, args.scale);
    if let Some(path) = &args.plot {
        let drawn = results.plot();
        std::fs::write(path, drawn).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(Report {
        fanout: Some(results),
        ..Report::default()
    })
}

async fn one(
    server: &Server,
    args: &Args,
    special: &Special,
    results: &mut Results,
) -> anyhow::Result<()> {
    let plan = args.plan();
    match special {
        Special::Idle(shape) => idle::measure(server, shape, plan, results).await,
        Special::Stuck => stuck::measure(server, plan, (args.rounds, args.scale), results).await,
        Special::Nodes => nodes::measure(server, plan, args.scale, results).await,
        Special::Lists => lists::measure(server, plan, args.scale, results).await,
    }
}

/// Runs a case on each server in turn, round after round.
async fn compare(
    keelson: Option<&Path>,
    args: &Args,
    case: &Case,
    results: &mut Results,
) -> anyhow::Result<()> {
    let servers = Server::start_all(keelson, args, case.wire).await?;
    let mut rounds: Vec<Vec<_>> = servers.iter().map(|_| Vec::new()).collect();
    for server in &servers {
        case.objects(0).make(&server.door()).await?;
    }
    for nth in 0..args.rounds {
        for (server, rounds) in servers.iter().zip(&mut rounds) {
            let objects = case.objects(base(nth)?);
            let round = measure::round(server, case, args.plan(), objects, &[])
                .await
                .with_context(|| server.name.clone())?;
            let (name, target, line) = (case.name(), &server.name, round.line());
            say_error(&format!("{name}, round {}, {target}: {line}", nth + 1));
            for how in measure::endings([&round]) {
                say_error(&format!("{name}, {target}: a watch was ended: {how}"));
            }
            rounds.push(round);
        }
    }
    for (server, rounds) in servers.into_iter().zip(&rounds) {
        results.add(measure::sum_up(case, &server.name, rounds)?);
        if server.is_remote() {
            let collection = case.objects(0).collection();
            objects::remove(&server.door(), &[&collection]).await?;
        }
        server.stop().await?;
    }
    Ok(())
}

/// Compares what ours costs with what others cost, where both are known.
fn compare_costs(results: &mut Results) {
    let figures = results.figures.clone();
    let cost = |f: &Figures| f.server_cpu_us_per_event;
    for ours in figures.iter().filter(|f| f.target == "keelson") {
        let same = figures.iter().filter(|f| f.case == ours.case);
        for other in same.filter(|f| f.target != ours.target && cost(f) > 0.0) {
            let what = format!("CPU an event, of {}'s", other.target);
            results.fact(&ours.case, &ours.target, &what, cost(ours) / cost(other));
        }
    }
}

/// Holds the figures against what is aimed at, as far as they were measured.
fn judge(results: &mut Results, scale: f64) {
    let case = |wire, watchers, on_nodes, saturating| Case {
        wire,
        watchers: scaled(watchers, scale),
        on_nodes,
        bytes: 300,
        saturating,
    };
    let figures = results.figures.clone();
    let find = |case: &Case, of: fn(&str) -> bool| {
        let name = case.name();
        let mut found = figures.iter().filter(|f| f.case == name);
        found.find(|f| of(&f.target))
    };
    let ours = |case: &Case| find(case, |target| target == "keelson");
    let nobody = |case: &Case| {
        let case = Case {
            watchers: 0,
            ..*case
        };
        find(&case, |target| target == "keelson")
    };
    let theirs = |case: &Case| find(case, |target| target != "keelson");
    for saturating in [false, true] {
        let store = case(Wire::Etcd, 1_000, false, saturating);
        let (Some(ours), Some(theirs)) = (ours(&store), theirs(&store)) else {
            continue;
        };
        let mut of = |what: &str, figure: fn(&Figures) -> f64, most: f64| {
            let ratio = figure(ours) / figure(theirs).max(f64::MIN_POSITIVE);
            let what = format!("{what}, of {}'s", theirs.target);
            results.check(&store.name(), &what, ratio, most);
        };
        if saturating {
            of("CPU an event", |f| f.server_cpu_us_per_event, OF_ETCD.0);
            of("resident memory", |f| f.peak_rss_mb, OF_ETCD.2);
        } else {
            of("p99", |f| f.p99_us, OF_ETCD.1);
        }
    }
    for wire in [Wire::Json, Wire::Protobuf] {
        let all = case(wire, 1_000, false, true);
        if let Some(ours) = ours(&all) {
            let cpu = ours.server_cpu_us_per_event;
            results.check(&all.name(), "CPU µs an event", cpu, CPU_US_MAX);
        }
        let (few, many) = (case(wire, 10, true, false), case(wire, 10_000, true, false));
        if let (Some(few), Some(ours)) = (ours(&few), ours(&many)) {
            let flat = ours.server_cpu_us_per_event / few.server_cpu_us_per_event.max(0.001);
            let what = format!("CPU an event, of that of {} watchers", few.watchers);
            results.check(&many.name(), &what, flat, FLAT_MAX);
        }
        // What is left when the cost of a write that nobody sees is taken off.
        if let Some(unseen) = nobody(&case(wire, 0, true, false)) {
            for seen in [&few, &many].into_iter().filter_map(ours) {
                let beyond = seen.server_cpu_us_per_write - unseen.server_cpu_us_per_write;
                results.fact(
                    &seen.case,
                    &seen.target,
                    "CPU µs an event beyond its write",
                    beyond,
                );
            }
        }
    }
}
