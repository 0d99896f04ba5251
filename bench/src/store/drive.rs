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

use crate::target::Target;

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
    target: &Target,
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
    target: &Target,
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
