//! `bench profile`: where a server's CPU goes, case by case.
//!
//! Linux's `perf` samples the server while a case's load runs. A sample within the
//! kernel belongs to the system call it is in, any other to the crate its function is
//! of. The table that results is what `bench/PROFILE.md` comments on.

mod place;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use crate::api;
use crate::cluster::Cluster;
use crate::drive::{Measured, Plan};
use crate::report::say;
use crate::store::{self, is_named};
use crate::target::Target;

/// Samples a second: no multiple of anything that happens in a second.
const HERTZ: &str = "1999";

/// Before samples are taken.
const WARM_UP: Duration = Duration::from_secs(1);

/// What the profile is of, if nothing else is asked for.
const MAIN_CASES: &str = "put, 1000 clients;linearizable get, 100 clients, 10 conns;list of;\
                          watch, 100 streams";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cases of `bench store` of one member and of `bench api`, by parts of their
    /// names, separated by semicolons.
    #[arg(long, default_value = MAIN_CASES)]
    cases: String,
    /// Seconds that are sampled.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Functions named for each case.
    #[arg(long, default_value_t = 12)]
    functions: usize,
}

pub(crate) async fn run(keelson: &Path, args: &Args) -> anyhow::Result<()> {
    store_cases(keelson, args).await?;
    api_cases(keelson, args).await
}

/// What is sampled, and how long.
fn plan(args: &Args) -> Plan {
    Plan {
        warm_up: WARM_UP,
        window: Duration::from_secs_f64(args.seconds),
    }
}

async fn store_cases(keelson: &Path, args: &Args) -> anyhow::Result<()> {
    let single = store::CASES.iter().filter(|case| case.members == 1);
    let named = single.filter(|case| is_named(case.name, &args.cases));
    let loads = named.filter_map(|case| Some((case.name, case.load()?)));
    let loads: Vec<_> = loads.collect();
    if loads.is_empty() {
        return Ok(());
    }
    let mut store = Target::keelson(keelson)?;
    store.start().await?;
    store::fill(&store, store::KEYS).await?;
    let pid = store.pids().next().context("nothing runs")?;
    for (name, load) in loads {
        profile(name, pid, load(&store, plan(args)), args).await?;
    }
    store.stop().await
}

async fn api_cases(keelson: &Path, args: &Args) -> anyhow::Result<()> {
    let cases = api::CASES.iter();
    let cases: Vec<_> = cases
        .filter(|case| is_named(case.name, &args.cases))
        .collect();
    if cases.is_empty() {
        return Ok(());
    }
    let cluster = Cluster::api_only(keelson).await?;
    let callers = api::prepare(&cluster).await?;
    for case in cases {
        let load = api::run_case(&cluster, &callers, case, plan(args));
        profile(case.name, cluster.pid()?, load, args).await?;
    }
    cluster.down().await
}

async fn profile(
    case: &str,
    pid: u32,
    load: impl Future<Output = anyhow::Result<Measured>>,
    args: &Args,
) -> anyhow::Result<()> {
    let data = tempfile::NamedTempFile::new()?;
    let (measured, sampled) = tokio::join!(load, sample(pid, data.path(), plan(args)));
    sampled?;
    print(case, &measured?, &read(data.path()).await?, args)
}

/// Lets perf sample a process while the window is open.
async fn sample(pid: u32, data: &Path, plan: Plan) -> anyhow::Result<()> {
    tokio::time::sleep(plan.warm_up).await;
    let status = Command::new("perf")
        .args([
            "record",
            "--quiet",
            "-g",
            "-F",
            HERTZ,
            "-p",
            &pid.to_string(),
            "-o",
        ])
        .arg(data)
        .args(["--", "sleep", &plan.window.as_secs_f64().to_string()])
        .stdin(Stdio::null())
        .status()
        .await
        .context("cannot run perf (Debian: apt-get install linux-perf)")?;
    ensure!(status.success(), "perf record: {status}");
    Ok(())
}

/// Is what the samples say.
#[derive(Default)]
struct Samples {
    all: u64,
    places: BTreeMap<&'static str, u64>,
    functions: BTreeMap<String, u64>,
}

async fn read(data: &Path) -> anyhow::Result<Samples> {
    let out = Command::new("perf")
        .args(["script", "-F", "comm,ip,sym,dso", "-i"])
        .arg(data)
        .stdin(Stdio::null())
        .output()
        .await?;
    ensure!(
        out.status.success(),
        "perf script: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(count(&String::from_utf8_lossy(&out.stdout)))
}

/// Counts samples: a line for the thread, one for each frame from the inside out, an
/// empty one.
fn count(script: &str) -> Samples {
    let mut samples = Samples::default();
    for sample in script.split("\n\n") {
        let frames: Vec<_> = sample.lines().filter_map(place::frame).collect();
        let Some(leaf) = frames.first() else { continue };
        samples.all += 1;
        *samples.places.entry(place::of(&frames)).or_default() += 1;
        *samples.functions.entry(place::name(leaf)).or_default() += 1;
    }
    samples
}

/// Prints two tables of Markdown.
fn print(case: &str, measured: &Measured, samples: &Samples, args: &Args) -> anyhow::Result<()> {
    ensure!(samples.all > 0, "{}: perf saw nothing", case);
    let per_op = measured.cpu_us as f64 / measured.ops.max(1) as f64;
    let rate = measured.ops as f64 / measured.seconds;
    say(&format!(
        "\n### {}\n\n{per_op:.1} µs of server CPU each, {rate:.0} a second; {} samples.\n",
        case, samples.all
    ))?;
    let share = |count: u64| count as f64 / samples.all as f64;
    let line = |what: &str, count: u64| {
        let (part, us) = (100.0 * share(count), per_op * share(count));
        say(&format!("| {what} | {part:.1} % | {us:.2} |"))
    };
    say("| where | part | µs each |\n|---|--:|--:|")?;
    for (place, count) in descending(&samples.places) {
        line(place, count)?;
    }
    say("\n| function | part | µs each |\n|---|--:|--:|")?;
    for (function, count) in descending(&samples.functions).take(args.functions) {
        line(&format!("`{function}`"), count)?;
    }
    Ok(())
}

fn descending<K: AsRef<str> + Ord>(counts: &BTreeMap<K, u64>) -> impl Iterator<Item = (&str, u64)> {
    let mut counts: Vec<_> = counts.iter().map(|(k, n)| (k.as_ref(), *n)).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_by_place_and_function() {
        let script = "\
keelson-core\n\
\tffffffff81 __check_object_size ([kernel.kallsyms])\n\
\tffffffff82 tcp_sendmsg_locked ([kernel.kallsyms])\n\
\tffffffff83 __x64_sys_sendto ([kernel.kallsyms])\n\
\t      7f01 __send (/usr/lib/libc.so.6)\n\
\n\
keelson-core\n\
\t      5501 <mvcc::watch::hub::WatchHub>::take (/opt/keelson)\n\
\t      5502 [unknown] ([unknown])\n\
\n";
        let samples = count(script);
        assert_eq!(samples.all, 2);
        let places: Vec<_> = samples.places.into_iter().collect();
        assert_eq!(places, [("kernel: send", 1), ("state machine (mvcc)", 1)]);
        assert!(samples.functions.contains_key("__check_object_size"));
    }
}
