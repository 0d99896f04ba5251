//! `bench scale`: what `kubectl scale` feels like.
//!
//! One sample is the time from sending the PUT of the Deployment's `scale`
//! subresource to the moment a watch has shown the wished number of pods with
//! phase Running. Between samples the Deployment goes back to none, and the
//! next one begins when the last pod is gone.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use client::{Client, ListParams, WatchEvent, WatchParams};
use futures::StreamExt;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::cluster::Cluster;
use crate::drive::Subject as _;
use crate::report::{Report, Run};

/// How long one step may take before the run is called broken.
const PATIENCE: Duration = Duration::from_secs(120);

const NAMESPACE: Option<&str> = Some("default");
const NAME: &str = "bench";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// To how many pods to scale, each a case of its own.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 5, 50])]
    pods: Vec<usize>,
    /// How many samples each case takes.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
}

pub(crate) async fn run(keelson: &Path, args: &Args) -> anyhow::Result<Report> {
    let cluster = Cluster::up(keelson).await?;
    let client = cluster.client()?;
    create_deployment(&client).await?;
    let mut report = Report::default();
    let bar = ProgressBar::new(args.rounds * args.pods.len() as u64);
    for &pods in &args.pods {
        // One round unmeasured, so that the first sample does not pay for
        // pages and connections no later one pays for.
        scale_and_wait(&client, pods).await?;
        scale_and_wait(&client, 0).await?;
        let mut latencies = Histogram::<u64>::new(3)?;
        let cpu_before = cluster.cpu_us()?;
        for _ in 0..args.rounds {
            let took = scale_and_wait(&client, pods).await?;
            latencies.record(u64::try_from(took.as_micros())?)?;
            scale_and_wait(&client, 0).await?;
            bar.inc(1);
        }
        let brought_up = args.rounds * pods as u64;
        let mut run = Run::of(format!("scale-{pods}"), &latencies);
        run.server_cpu_us_per_op =
            (cluster.cpu_us()? - cpu_before) as f64 / brought_up.max(1) as f64;
        run.server_rss_mb = cluster.rss_mb()?;
        report.runs.push(run);
    }
    bar.finish_and_clear();
    cluster.down().await?;
    Ok(report)
}

async fn create_deployment(client: &Client) -> anyhow::Result<()> {
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": NAME}},
            "template": {
                "metadata": {"labels": {"app": NAME}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": "host", "command": ["sleep", "86400"]}],
                },
            },
        },
    }))?;
    client.create(NAMESPACE, &deployment).await?;
    Ok(())
}

/// Scales to a number of pods and waits until the watch shows them: that many
/// Running, or for zero that none is left.
async fn scale_and_wait(client: &Client, pods: usize) -> anyhow::Result<Duration> {
    let selector = format!("app={NAME}");
    let list = client
        .list::<Pod>(NAMESPACE, &ListParams::default().labels(&selector))
        .await?;
    let params = WatchParams {
        label_selector: Some(selector),
        resource_version: Some(list.resource_version().to_owned()),
        allow_bookmarks: true,
        ..WatchParams::default()
    };
    let mut seen = Seen::default();
    for pod in &list.items {
        seen.update(pod);
    }
    let mut watch = client.watch::<Pod>(NAMESPACE, &params).await?;
    let started = Instant::now();
    let scale = json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {"replicas": pods},
    });
    client
        .update_subresource::<Deployment>(NAMESPACE, NAME, "scale", &scale)
        .await?;
    let wait = async {
        while !seen.is(pods) {
            match watch.next().await.context("the watch ended")?? {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => seen.update(&pod),
                WatchEvent::Deleted(pod) => seen.remove(&pod),
                WatchEvent::Bookmark { .. } => {}
                WatchEvent::Error(status) => bail!("the watch failed: {status}"),
            }
        }
        Ok(started.elapsed())
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .with_context(|| format!("{pods} pods were not there after {PATIENCE:?}"))?
}

/// Which pods a watch has shown so far.
#[derive(Default)]
struct Seen {
    all: BTreeSet<String>,
    running: BTreeSet<String>,
}

impl Seen {
    fn update(&mut self, pod: &Pod) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        if phase == Some("Running") && pod.metadata.deletion_timestamp.is_none() {
            self.running.insert(name.clone());
        }
        self.all.insert(name);
    }

    fn remove(&mut self, pod: &Pod) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        self.running.remove(&name);
        self.all.remove(&name);
    }

    fn is(&self, pods: usize) -> bool {
        if pods == 0 {
            self.all.is_empty()
        } else {
            self.running.len() >= pods
        }
    }
}
