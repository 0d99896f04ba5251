//! `bench store`: the store as its users feel it and its operators pay for it, next
//! to a real etcd.
//!
//! Both run at once, on fresh data, with the same durability; a case is run on one,
//! then on the other, and so on for some rounds, and of each figure the middle one
//! counts. On a machine where the clients share the cores, **server CPU per operation**
//! says more than throughput.

mod cases;
mod kv;
mod lease;
mod mix;
mod once;
pub(crate) mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

pub(crate) use self::cases::CASES;
use self::cases::{Kind, Listed, Margin};
pub(crate) use self::kv::{KEYS, fill};
use crate::drive::{Measured, Plan, sum_up};
use crate::report::{Ratio, Report, Run, say_error};
use crate::target::Target;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The store to compare with: `etcd=PATH`.
    #[arg(long)]
    peer: Option<String>,
    /// Only cases whose name contains one of these, separated by semicolons.
    #[arg(long)]
    cases: Option<String>,
    /// Only cases of so many members: 1 or 3.
    #[arg(long)]
    nodes: Option<usize>,
    /// How often each case is run on each store.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds that are measured in a round.
    #[arg(long, default_value_t = 2.5)]
    seconds: f64,
    /// Also draw the ratios as SVG to this file.
    #[arg(long)]
    plot: Option<PathBuf>,
}

/// Says whether a case's name contains one of some parts, separated by semicolons.
pub(crate) fn is_named(case: &str, parts: &str) -> bool {
    let mut parts = parts.split(';').map(str::trim);
    parts.any(|part| case.contains(part))
}

/// Makes the stores that are compared, ours first.
fn stores(keelson: &Path, args: &Args, members: usize) -> anyhow::Result<Vec<Target>> {
    let mut stores = vec![Target::keelson(keelson)?.with_members(members)];
    if let Some(peer) = &args.peer {
        stores.push(Target::peer(peer)?.with_members(members));
    }
    Ok(stores)
}

pub(crate) async fn run(keelson: &Path, args: &Args) -> anyhow::Result<Report> {
    let wanted = |case: &&Listed| {
        let named = args
            .cases
            .as_ref()
            .is_none_or(|wanted| is_named(case.name, wanted));
        named && args.nodes.is_none_or(|nodes| nodes == case.members)
    };
    let mut report = Report::default();
    for members in [1, 3] {
        let cases: Vec<&Listed> = CASES
            .iter()
            .filter(|case| case.members == members)
            .filter(wanted)
            .collect();
        let (loads, onces): (Vec<_>, Vec<_>) = cases
            .into_iter()
            .partition(|case| matches!(case.kind, Kind::Load(_)));
        if !loads.is_empty() {
            let mut stores = stores(keelson, args, members)?;
            for store in &mut stores {
                store.start().await?;
                fill(store, KEYS).await?;
            }
            for case in loads {
                compare(&mut stores, case, args, &mut report).await?;
            }
            for store in &mut stores {
                store.stop().await?;
            }
        }
        for case in onces {
            let mut stores = stores(keelson, args, members)?;
            if let Kind::Once(once) = case.kind {
                for store in &mut stores {
                    once.prepare(store).await?;
                }
            }
            compare(&mut stores, case, args, &mut report).await?;
            for store in &mut stores {
                store.stop().await?;
            }
        }
    }
    if let Some(path) = &args.plot {
        let drawn = crate::plot::ratios(&report.ratios);
        std::fs::write(path, drawn).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(report)
}

/// Runs a case on each store in turn, round after round.
async fn compare(
    stores: &mut [Target],
    case: &Listed,
    args: &Args,
    report: &mut Report,
) -> anyhow::Result<()> {
    let plan = Plan {
        warm_up: Duration::from_secs_f64(args.seconds / 4.0),
        window: Duration::from_secs_f64(args.seconds),
    };
    let mut rounds: Vec<Vec<Measured>> = stores.iter().map(|_| Vec::new()).collect();
    for round in 0..args.rounds {
        for (store, measured) in stores.iter_mut().zip(&mut rounds) {
            let name = store.name.clone();
            let one = match case.kind {
                Kind::Load(run) => run(store, plan).await,
                Kind::Once(once) => once.round(store).await,
            };
            let one = match one {
                Err(error) if is_unknown(&error) => {
                    say_error(&format!("{}: {name} does not know it", case.name));
                    continue;
                }
                one => one.with_context(|| format!("{}, {name}", case.name))?,
            };
            say_error(&format!(
                "{}, round {}, {name}: {:.0} op/s, {} µs of CPU each",
                case.name,
                round + 1,
                one.ops as f64 / one.seconds,
                one.cpu_us / one.ops.max(1)
            ));
            measured.push(one);
        }
    }
    let runs: Vec<Run> = stores
        .iter()
        .zip(&rounds)
        .filter(|(_, rounds)| !rounds.is_empty())
        .map(|(store, rounds)| sum_up(case.name, &store.name, rounds))
        .collect::<anyhow::Result<_>>()?;
    if let [ours, theirs] = &runs[..] {
        report.ratios.extend(ratios(case, ours, theirs));
    }
    report.runs.extend(runs);
    Ok(())
}

/// Says whether a store answered that it has no such method.
fn is_unknown(error: &anyhow::Error) -> bool {
    let status = error.downcast_ref::<tonic::Status>();
    status.is_some_and(|status| status.code() == tonic::Code::Unimplemented)
}

/// Compares the figures that the case has a margin for, or that of CPU.
fn ratios(case: &Listed, ours: &Run, theirs: &Run) -> Vec<Ratio> {
    let ratio = |metric: crate::report::Metric, margin: Option<(f64, bool)>| {
        let of = metric.of(ours) / metric.of(theirs).max(f64::MIN_POSITIVE);
        Ratio {
            case: case.name.to_owned(),
            metric: metric.name().to_owned(),
            ours_over_peer: of,
            margin: margin.map(|(bound, _)| bound),
            held: margin.map(|(bound, at_least)| match at_least {
                true => of >= bound,
                false => of <= bound,
            }),
        }
    };
    let mut ratios: Vec<Ratio> = case
        .margins
        .iter()
        .map(|margin| match *margin {
            Margin::AtMost(metric, bound) => ratio(metric, Some((bound, false))),
            Margin::AtLeast(metric, bound) => ratio(metric, Some((bound, true))),
        })
        .collect();
    if ratios.is_empty() {
        ratios.push(ratio(crate::report::Metric::CpuPerOp, None));
    }
    ratios
}
