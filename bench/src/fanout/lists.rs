//! Lists of everything at once: what they take of memory, and what others wait for.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hdrhistogram::Histogram;
use serde_json::json;

use super::crew::Crew;
use super::figures::Results;
use super::frames::mark;
use super::http::Site;
use super::measure::{Plan, shares, window};
use super::order::{Door, Gets, Lists, Order, Said};
use super::server::Server;
use super::{clock, objects};
use crate::report::say_error;

/// How many pods there are, on how many nodes, and what each is padded with to have
/// some 2 kB.
const PODS: usize = 150_000;
const NODES: usize = 5_000;
const PADDING: usize = 700;

/// How many lists run at once.
const LISTS: usize = 10;

/// How many small reads a second are made beside them.
const GETS_PER_S: f64 = 100.0;

/// The most memory that all lists may take, in megabytes, and how many times longer
/// small reads may take.
const MB_MAX: f64 = 64.0;
const SLOWER_MAX: f64 = 3.0;

/// How long what was made may settle, and how long small reads are measured at least.
const SETTLE: Duration = Duration::from_secs(3);
const WINDOW_MIN: Duration = Duration::from_secs(5);

const COLLECTION: &str = "/api/v1/namespaces/default/pods";
const ALL: &str = "/api/v1/pods";

fn pod_name(nth: usize) -> String {
    format!("listed-{nth:06}")
}

/// Returns the name of the case.
pub(super) fn name(scale: f64) -> String {
    format!(
        "{LISTS} lists of {} pods at once",
        super::scaled(PODS, scale)
    )
}

/// What one run of the lists showed.
struct Ran {
    seconds: f64,
    bytes: u64,
    peak_kb: u64,
    took: Histogram<u64>,
}

/// Makes the pods.
async fn fill(site: &Arc<Site>, pods: usize) -> anyhow::Result<()> {
    let padding = "v".repeat(PADDING);
    let bodies = (0..pods).map(|nth| {
        let number = u32::try_from(nth).unwrap_or(u32::MAX);
        let metadata = json!({
            "name": pod_name(nth),
            "namespace": "default",
            "labels": objects::labels(),
            "annotations": {"fanout": mark(number, 0)},
        });
        objects::pod(&metadata, &objects::node(nth % NODES), &padding)
    });
    objects::make(site, COLLECTION, bodies).await
}

/// Fills a server, then lists, alone and beside small reads.
pub(super) async fn measure(
    server: &Server,
    plan: Plan,
    scale: f64,
    results: &mut Results,
) -> anyhow::Result<()> {
    let (name, pods, door) = (name(scale), super::scaled(PODS, scale), server.door());
    let site = Arc::new(Site::of(&door)?);
    fill(&site, pods).await?;
    say_error(&format!("{name}, {}: the pods are there", server.name));
    tokio::time::sleep(SETTLE).await;
    let base_kb = server.rss_kb()?;
    let mut crew = Crew::new();
    let get = Order::Gets(Gets {
        door: door.clone(),
        path: format!("{COLLECTION}/{}", pod_name(pods / 2)),
        rate: GETS_PER_S,
    });
    let quiet = Plan {
        window: plan.window.max(WINDOW_MIN),
        ..plan
    };
    let (alone, _) = run(server, &mut crew, quiet, &get, &[]).await?;
    let lists = orders(&door, pods, plan.processes);
    // The first run tells how long the second will take.
    let (_, first) = run(server, &mut crew, quiet, &get, &lists).await?;
    let first = first.context("no list")?;
    let beside = Plan {
        warm_up: Duration::ZERO,
        window: Duration::from_secs_f64(first.seconds.max(1.0)),
        ..plan
    };
    let (gets, second) = run(server, &mut crew, beside, &get, &lists).await?;
    let second = second.context("no list")?;
    let peak_mb = |ran: &Ran| ran.peak_kb.saturating_sub(base_kb) as f64 / 1024.0;
    let memory = peak_mb(&first).max(peak_mb(&second));
    let millis = |of: &Histogram<u64>| of.value_at_quantile(0.99) as f64 / 1000.0;
    for (what, value) in [
        ("resident MB before", base_kb as f64 / 1024.0),
        ("MB above that at the peak", memory),
        ("MB of a list", second.bytes as f64 / LISTS as f64 / 1e6),
        (
            "seconds of a list, the slowest",
            second.took.max() as f64 / 1e6,
        ),
        ("p99 ms of small reads alone", millis(&alone)),
        ("p99 ms of small reads beside", millis(&gets)),
    ] {
        results.fact(&name, &server.name, what, value);
    }
    if server.is_ours() {
        results.check(&name, "MB above the baseline", memory, MB_MAX);
        let slower = millis(&gets) / millis(&alone).max(0.001);
        results.check(
            &name,
            "p99 of small reads, of that alone",
            slower,
            SLOWER_MAX,
        );
    }
    if server.is_remote() {
        objects::remove(&door, &[COLLECTION]).await?;
    }
    Ok(())
}

/// Divides the lists among processes.
fn orders(door: &Door, pods: usize, processes: usize) -> Vec<Order> {
    shares(LISTS, processes)
        .into_iter()
        .map(|(_, count)| {
            Order::Lists(Lists {
                door: door.clone(),
                path: ALL.to_owned(),
                count,
                objects: pods as u64,
            })
        })
        .collect()
}

/// Reads something small all the time, and lists beside it if that is ordered.
async fn run(
    server: &Server,
    crew: &mut Crew,
    plan: Plan,
    get: &Order,
    lists: &[Order],
) -> anyhow::Result<(Histogram<u64>, Option<Ran>)> {
    let reading = crew.hire(get).await?;
    let listing = crew.hire_all(lists).await?;
    let whom = [&listing[..], &[reading]].concat();
    server.forget_peak()?;
    let mut early = window(server, crew, &whom, plan).await?.early;
    let (mut gets, mut took, mut bytes) = (Histogram::new(3)?, Histogram::new(3)?, 0);
    let left: Vec<usize> = whom
        .iter()
        .copied()
        .filter(|nth| !early.iter().any(|e| e.0 == *nth))
        .collect();
    early.extend(crew.results_of(&left).await?);
    for (nth, said) in early {
        let Said::Did(did) = said else {
            bail!("a reader does not say what it did");
        };
        if let Some(error) = did.errors.first() {
            bail!("a small read: {error}");
        }
        let to = if nth == reading { &mut gets } else { &mut took };
        clock::add(to, &did.took)?;
        bytes += did.bytes;
    }
    let ran = (!lists.is_empty()).then(|| Ran {
        seconds: took.max() as f64 / 1e6,
        bytes,
        peak_kb: server.peak_kb().unwrap_or(0),
        took,
    });
    Ok((gets, ran))
}
