//! `bench envtest`: what an operator's tests wait for.
//!
//! Store and API server are started under the names and with the flags that
//! controller-runtime's envtest uses (pkg/internal/testing/controlplane), with
//! certificates made beforehand, one pair after the other and many side by side.

mod assets;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use client::Client;
use futures::future::try_join_all;
use hdrhistogram::Histogram;
use tokio::process::Child;

use self::assets::Assets;
use crate::cluster::{self, rss_mb};
use crate::report::Metric::{self, Max, P50, Rss};
use crate::report::{Report, Run};
use crate::target::http_get;

/// How long a start or a stop may take before the run is called broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a server that starts is asked whether it is ready.
const PAUSE: Duration = Duration::from_millis(2);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many are started, one after the other.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// How many are started at once.
    #[arg(long, default_value_t = 20)]
    side_by_side: usize,
}

pub(crate) async fn run(keelson: &Path, args: &Args) -> anyhow::Result<Report> {
    let assets = Assets::new(keelson)?;
    let mut report = Report::default();
    let mut alone = Figures::new()?;
    for _ in 0..args.rounds {
        let plane = Plane::start(&assets).await?;
        alone.started(&plane)?;
        alone.stopped(&plane.stop().await?)?;
    }
    alone.tell(&mut report, "start", &[(P50, 150_000.0), (Rss, 60.0)]);
    alone.tell_stop(&mut report, "stop", &[(Max, 100_000.0)]);

    let mut together = Figures::new()?;
    let planes = (0..args.side_by_side).map(|_| Plane::start(&assets));
    let planes = try_join_all(planes).await?;
    for plane in &planes {
        together.started(plane)?;
    }
    for plane in planes {
        together.stopped(&plane.stop().await?)?;
    }
    let name = format!("start, {} side by side", args.side_by_side);
    together.tell(&mut report, &name, &[(Max, 2_000_000.0)]);
    Ok(report)
}

/// What some starts and stops showed.
struct Figures {
    api: Histogram<u64>,
    both: Histogram<u64>,
    rss: Vec<u64>,
    stop: Histogram<u64>,
}

impl Figures {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            api: Histogram::new(3)?,
            both: Histogram::new(3)?,
            rss: Vec::new(),
            stop: Histogram::new(3)?,
        })
    }

    fn started(&mut self, plane: &Plane) -> anyhow::Result<()> {
        self.api.record(micros(plane.api_took))?;
        self.both.record(micros(plane.both_took))?;
        self.rss.push(plane.rss_mb()?);
        Ok(())
    }

    fn stopped(&mut self, stopped: &Stopped) -> anyhow::Result<()> {
        self.stop.record(micros(stopped.api))?;
        self.stop.record(micros(stopped.store))?;
        Ok(())
    }

    /// Reports the API server's starts, which bounds are of, and those of both.
    fn tell(&mut self, report: &mut Report, case: &str, bounds: &[(Metric, f64)]) {
        self.rss.sort_unstable();
        let mut api = Run::of(format!("{case}: kube-apiserver"), &self.api);
        api.server_rss_mb = self.rss.get(self.rss.len() / 2).copied().unwrap_or(0);
        report.push(api, bounds);
        let both = format!("{case}: etcd and kube-apiserver");
        report.push(Run::of(both, &self.both), &[]);
    }

    fn tell_stop(&self, report: &mut Report, case: &str, bounds: &[(Metric, f64)]) {
        report.push(Run::of(case.to_owned(), &self.stop), bounds);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A store and an API server that is ready.
struct Plane {
    etcd: Child,
    api: Child,
    /// From the API server's start until `/readyz` said so.
    api_took: Duration,
    /// From the store's.
    both_took: Duration,
    _folder: tempfile::TempDir,
}

/// How long each took to end after it was asked to.
struct Stopped {
    api: Duration,
    store: Duration,
}

impl Plane {
    async fn start(assets: &Assets) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let began = Instant::now();
        let (etcd, store) = assets.start_etcd(folder.path())?;
        until("the store", || async {
            let health = http_get(store, "/health").await;
            health.is_ok_and(|text| text.contains("\"true\""))
        })
        .await?;
        let api_began = Instant::now();
        let (api, config) = assets.start_apiserver(folder.path(), store)?;
        let client = Client::from_config(&config)?;
        until("the API server", || async {
            client.get_raw("/readyz").await.is_ok()
        })
        .await?;
        Ok(Self {
            etcd,
            api,
            api_took: api_began.elapsed(),
            both_took: began.elapsed(),
            _folder: folder,
        })
    }

    fn rss_mb(&self) -> anyhow::Result<u64> {
        rss_mb(self.api.id().context("it ended")?)
    }

    async fn stop(mut self) -> anyhow::Result<Stopped> {
        Ok(Stopped {
            api: terminate(&mut self.api).await?,
            store: terminate(&mut self.etcd).await?,
        })
    }
}

/// Waits for a condition.
async fn until<F: Future<Output = bool>>(
    what: &str,
    mut holds: impl FnMut() -> F,
) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        if Instant::now() >= end {
            bail!("{what} does not answer");
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn terminate(child: &mut Child) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let status = cluster::terminate(child, PATIENCE).await?;
    if !status.success() {
        bail!("ended with {status}");
    }
    Ok(began.elapsed())
}
