//! `bench api`: what a request to the Kubernetes API costs, verb by verb.
//!
//! The server is `keelson up --api-only`, so that nothing acts on what is written; the
//! clients come over HTTPS with a client certificate, as kubectl's do. **Server CPU per
//! request** is the figure that counts: it holds TLS, HTTP/2, the pipeline, the cache
//! and the store's share.

mod ask;
mod cases;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

pub(crate) use self::ask::prepare;
pub(crate) use self::cases::{CASES, Case, run_case};
use crate::cluster::Cluster;
use crate::drive::{Plan, sum_up};
use crate::report::{Report, say_error};
use crate::store::is_named;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only cases whose name contains one of these, separated by semicolons.
    #[arg(long)]
    cases: Option<String>,
    /// How often each case is run.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds that are measured in a round.
    #[arg(long, default_value_t = 2.5)]
    seconds: f64,
}

pub(crate) async fn run(keelson: &Path, args: &Args) -> anyhow::Result<Report> {
    let plan = Plan {
        warm_up: Duration::from_secs_f64(args.seconds / 4.0),
        window: Duration::from_secs_f64(args.seconds),
    };
    let cluster = Cluster::api_only(keelson).await?;
    let callers = prepare(&cluster).await?;
    let mut report = Report::default();
    let wanted = |case: &&Case| {
        let parts = args.cases.as_ref();
        parts.is_none_or(|parts| is_named(case.name, parts))
    };
    for case in CASES.iter().filter(wanted) {
        let mut rounds = Vec::new();
        for round in 1..=args.rounds {
            let one = run_case(&cluster, &callers, case, plan).await;
            let one = one.with_context(|| case.name.to_owned())?;
            say_error(&format!(
                "{}, round {round}: {:.0} op/s, {} µs of CPU each",
                case.name,
                one.ops as f64 / one.seconds,
                one.cpu_us / one.ops.max(1)
            ));
            rounds.push(one);
        }
        report.push(sum_up(case.name, "keelson", &rounds)?, case.bounds);
        cluster.forget_past().await?;
    }
    drop(callers);
    cluster.down().await?;
    Ok(report)
}
