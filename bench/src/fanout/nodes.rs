//! Nodes that are nothing but their reports: what a cluster's heartbeat costs.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use hdrhistogram::Histogram;
use serde_json::json;

use super::crew::Crew;
use super::figures::Results;
use super::http::Site;
use super::measure::{Plan, shares, window};
use super::order::{Door, Nodes, Order, Said};
use super::server::Server;
use super::{asking, clock, objects};
use crate::report::say_error;

/// How many there are.
const NODES: usize = 5_000;

/// How often each renews its lease, and reports its status: as kubelets do.
const RENEW_MS: u64 = 10_000;
const REPORT_MS: u64 = 300_000;

/// How long it is looked at: each renews twice.
const WINDOW_MIN: Duration = Duration::from_secs(20);

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Returns the path of a node's lease.
pub(super) fn lease_path(nth: usize) -> String {
    format!("{LEASES}/{}", objects::node(nth))
}

/// Returns the name of the case.
pub(super) fn name(scale: f64) -> String {
    let nodes = super::scaled(NODES, scale);
    format!("{nodes} hollow nodes, {} leases/s", per_second(nodes))
}

fn per_second(nodes: usize) -> u64 {
    nodes as u64 * 1000 / RENEW_MS
}

/// Makes nodes and their leases.
async fn fill(door: &Door, nodes: usize) -> anyhow::Result<()> {
    let site = std::sync::Arc::new(Site::of(door)?);
    let hollow = (0..nodes).map(|nth| {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": objects::node(nth), "labels": objects::labels()},
        })
    });
    objects::make(&site, "/api/v1/nodes", hollow).await?;
    let leases = (0..nodes).map(|nth| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": objects::node(nth), "labels": objects::labels()},
            "spec": {
                "holderIdentity": objects::node(nth),
                "leaseDurationSeconds": 40,
                "renewTime": asking::now_text(),
            },
        })
    });
    objects::make(&site, LEASES, leases).await
}

/// Divides nodes among processes.
fn orders(door: &Door, nodes: usize, processes: usize) -> Vec<Order> {
    shares(nodes, processes)
        .into_iter()
        .map(|(first, count)| {
            Order::Nodes(Nodes {
                door: door.clone(),
                first,
                count,
                renew_ms: RENEW_MS,
                report_ms: REPORT_MS,
            })
        })
        .collect()
}

/// Lets nodes live for a while.
pub(super) async fn measure(
    server: &Server,
    plan: Plan,
    scale: f64,
    results: &mut Results,
) -> anyhow::Result<()> {
    let (name, nodes, door) = (name(scale), super::scaled(NODES, scale), server.door());
    fill(&door, nodes).await?;
    let orders = orders(&door, nodes, plan.processes);
    let plan = Plan {
        window: plan.window.max(WINDOW_MIN),
        ..plan
    };
    let mut crew = Crew::new();
    let whom = crew.hire_all(&orders).await?;
    let window = window(server, &mut crew, &whom, plan).await?;
    let cpu_us = window.cpu_us;
    let (rss, peak) = (server.rss_kb()?, server.peak_kb()?);
    let (mut took, mut requests, mut errors) = (Histogram::<u64>::new(3)?, 0, 0);
    for said in crew.results(&whom, window.early).await? {
        let Said::Did(did) = said else {
            bail!("nodes do not say what they did");
        };
        clock::add(&mut took, &did.took)?;
        requests += did.requests;
        for error in did.errors {
            errors += 1;
            results.breaks(format!("{name}, {}: {error}", server.name));
        }
    }
    ensure!(requests > 0, "no node was answered");
    let seconds = plan.window.as_secs_f64();
    let line = format!(
        "{name}, {}: {:.0} requests/s",
        server.name,
        requests as f64 / seconds
    );
    say_error(&line);
    let millis = |quantile: f64| took.value_at_quantile(quantile) as f64 / 1000.0;
    for (what, value) in [
        ("requests/s", requests as f64 / seconds),
        ("p50 ms", millis(0.5)),
        ("p99 ms", millis(0.99)),
        ("cores of CPU", cpu_us as f64 / 1e6 / seconds),
        ("CPU µs a request", cpu_us as f64 / requests as f64),
        ("resident MB", rss as f64 / 1024.0),
        ("resident MB at the peak", peak as f64 / 1024.0),
    ] {
        results.fact(&name, &server.name, what, value);
    }
    results.check(&name, "errors", f64::from(errors), 0.0);
    if server.is_remote() {
        let made = ["/api/v1/nodes", LEASES];
        objects::remove(&door, &made)
            .await
            .context("cannot remove the nodes")?;
    }
    Ok(())
}
