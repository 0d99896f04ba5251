//! Clients in a closed loop, and what is counted while they are.
//!
//! Each client asks again as soon as it was answered. What ended in the window
//! after the warm-up counts; server CPU, syncs and disk are taken at its edges.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use tonic::transport::Channel;

use crate::report::Run;
use crate::target::Target;

/// What is measured: processes whose cost can be read.
pub(crate) trait Subject {
    /// Returns the CPU they have used, in microseconds.
    fn cpu_us(&self) -> anyhow::Result<u64>;
    /// Returns how often they have synced the log and the rows.
    fn syncs(&self) -> impl Future<Output = anyhow::Result<u64>>;
    /// Returns the bytes their files take on disk.
    fn data_bytes(&self) -> u64;
    /// Begins to measure the peak of memory anew.
    fn forget_peak(&self) -> anyhow::Result<()>;
    /// Returns the most memory they had in use since.
    fn peak_rss_mb(&self) -> anyhow::Result<u64>;
}

/// How long a window may last before a run is called broken, beyond its own length.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long each case is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
}

/// What one window showed.
pub(crate) struct Measured {
    /// Operations, events or keys, whatever the case counts.
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    pub(crate) latencies: Histogram<u64>,
    pub(crate) cpu_us: u64,
    pub(crate) syncs: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) rss_mb: u64,
}

/// One request of one client; answers how many operations it was.
pub(crate) type Asked = Pin<Box<dyn Future<Output = anyhow::Result<u64>> + Send>>;

/// One client: makes its next request.
pub(crate) type Client = Box<dyn FnMut() -> Asked + Send>;

/// The window's edges.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

impl Window {
    pub(crate) fn of(plan: Plan) -> Self {
        let from = Instant::now() + plan.warm_up;
        Self {
            from,
            to: from + plan.window,
        }
    }

    pub(crate) fn contains(&self, at: Instant) -> bool {
        (self.from..self.to).contains(&at)
    }
}

/// What a client counted.
pub(crate) struct Counted {
    pub(crate) ops: u64,
    pub(crate) latencies: Histogram<u64>,
}

impl Counted {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            ops: 0,
            latencies: Histogram::new(3)?,
        })
    }
}

/// Opens so many connections.
pub(crate) async fn connections(target: &Target, count: usize) -> anyhow::Result<Vec<Channel>> {
    let mut channels = Vec::with_capacity(count);
    for _ in 0..count {
        channels.push(target.connect().await?);
    }
    Ok(channels)
}

/// Lets clients ask in a closed loop.
pub(crate) async fn closed_loop(
    target: &impl Subject,
    plan: Plan,
    clients: Vec<Client>,
) -> anyhow::Result<Measured> {
    let window = Window::of(plan);
    let tasks = clients.into_iter().map(|client| ask(client, window));
    measure(target, window, tasks).await
}

async fn ask(mut client: Client, window: Window) -> anyhow::Result<Counted> {
    let mut counted = Counted::new()?;
    loop {
        let asked = Instant::now();
        if asked >= window.to {
            return Ok(counted);
        }
        let ops = client().await?;
        let answered = Instant::now();
        if window.contains(answered) {
            counted.ops += ops;
            let took = answered - asked;
            counted.latencies.record(u64::try_from(took.as_micros())?)?;
        }
    }
}

/// Runs tasks over a window and takes the server's figures at its edges.
pub(crate) async fn measure<T>(
    target: &impl Subject,
    window: Window,
    tasks: impl IntoIterator<Item = T>,
) -> anyhow::Result<Measured>
where
    T: Future<Output = anyhow::Result<Counted>> + Send + 'static,
{
    let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    tokio::time::sleep_until(window.from.into()).await;
    let (cpu, syncs, disk) = (target.cpu_us()?, target.syncs().await?, target.data_bytes());
    target.forget_peak()?;
    let began = Instant::now();
    tokio::time::sleep_until(window.to.into()).await;
    let cpu_us = target.cpu_us()? - cpu;
    let seconds = began.elapsed().as_secs_f64();
    let mut all = Counted::new()?;
    for task in tasks {
        let counted = tokio::time::timeout(PATIENCE, task)
            .await
            .context("a client was not answered")???;
        all.ops += counted.ops;
        all.latencies.add(counted.latencies)?;
    }
    Ok(Measured {
        ops: all.ops,
        seconds,
        latencies: all.latencies,
        cpu_us,
        syncs: target.syncs().await?.saturating_sub(syncs),
        disk_bytes: target.data_bytes().saturating_sub(disk),
        rss_mb: target.peak_rss_mb()?,
    })
}

/// Takes the middle of some figures.
pub(crate) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(0.0)
}

/// Takes the middle of each figure of some rounds.
pub(crate) fn sum_up(case: &str, target: &str, rounds: &[Measured]) -> anyhow::Result<Run> {
    let middle = |of: &dyn Fn(&Measured) -> f64| median(rounds.iter().map(of).collect());
    let per_op =
        |of: &dyn Fn(&Measured) -> u64| middle(&|m: &Measured| of(m) as f64 / m.ops.max(1) as f64);
    let quantile = |q: f64| middle(&|m: &Measured| m.latencies.value_at_quantile(q) as f64) as u64;
    let mut all = Histogram::new(3)?;
    for round in rounds {
        all.add(&round.latencies)?;
    }
    Ok(Run {
        target: target.to_owned(),
        ops_per_s: middle(&|m| m.ops as f64 / m.seconds),
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        p999_us: quantile(0.999),
        server_cpu_us_per_op: per_op(&|m| m.cpu_us),
        server_rss_mb: middle(&|m| m.rss_mb as f64) as u64,
        syncs_per_op: per_op(&|m| m.syncs),
        disk_bytes_per_op: per_op(&|m| m.disk_bytes),
        ..Run::of(case.to_owned(), &all)
    })
}
