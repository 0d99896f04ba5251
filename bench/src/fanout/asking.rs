//! Those in a process of the load who ask and wait for answers: nodes that renew their
//! leases and report, someone who reads one object, lists of everything.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use http::Method;
use http_body_util::BodyExt as _;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::frames::{MARK, count};
use super::http::{Ask, Connection, JSON, Manner, Site};
use super::objects;
use super::order::{Did, Edges, Gets, Lists, Nodes, Said, Word};
use super::worker::Boss;
use super::{clock, nodes as made};

/// How many connections are opened at once.
const OPENING: usize = 32;

/// How many errors are told.
const ERRORS_MAX: usize = 20;

const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// What one asked and was answered.
struct Asked {
    took: Histogram<u64>,
    requests: u64,
    bytes: u64,
    errors: Vec<String>,
}

impl Asked {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            took: Histogram::new(3)?,
            requests: 0,
            bytes: 0,
            errors: Vec::new(),
        })
    }

    fn add(&mut self, other: Self) -> anyhow::Result<()> {
        self.took.add(other.took)?;
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors.extend(other.errors);
        Ok(())
    }

    /// Counts an answer, from when it was due.
    fn answered(
        &mut self,
        due: u64,
        edges: Edges,
        answer: anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let now = clock::now();
        match answer {
            Err(error) => self.errors.push(format!("{error:#}")),
            Ok(()) if edges.contain(now) => {
                self.requests += 1;
                self.took.record(now.saturating_sub(due))?;
            }
            Ok(()) => {}
        }
        Ok(())
    }

    fn said(mut self) -> Said {
        let more = self.errors.len().saturating_sub(ERRORS_MAX);
        self.errors.truncate(ERRORS_MAX);
        if more > 0 {
            self.errors.push(format!("and {more} more errors"));
        }
        Said::Did(Did {
            requests: self.requests,
            bytes: self.bytes,
            took: clock::counts(&self.took),
            errors: self.errors,
            ..Did::default()
        })
    }
}

async fn go(boss: &mut Boss) -> anyhow::Result<Edges> {
    boss.say(&Said::Ready)?;
    loop {
        if let Word::Go(edges) = boss.hear().await? {
            return Ok(edges);
        }
    }
}

/// Is many nodes, each on a connection of its own.
pub(super) async fn nodes(order: Nodes, boss: &mut Boss) -> anyhow::Result<()> {
    let site = Arc::new(Site::of(&order.door)?);
    let (mut opening, mut opened) = (JoinSet::new(), Vec::with_capacity(order.count));
    for nth in order.first..order.first + order.count {
        if opening.len() >= OPENING
            && let Some(node) = opening.join_next().await
        {
            opened.push(node??);
        }
        opening.spawn(Node::open(Arc::clone(&site), nth));
    }
    while let Some(node) = opening.join_next().await {
        opened.push(node??);
    }
    let edges = go(boss).await?;
    let begun = clock::now();
    let mut living = JoinSet::new();
    for node in opened {
        living.spawn(node.live(order.clone(), begun, edges));
    }
    let mut all = Asked::new()?;
    while let Some(asked) = living.join_next().await {
        all.add(asked??)?;
    }
    boss.say(&all.said())
}

struct Node {
    site: Arc<Site>,
    connection: Connection,
    nth: usize,
    lease: Value,
}

impl Node {
    async fn open(site: Arc<Site>, nth: usize) -> anyhow::Result<Self> {
        let mut connection = site.connect(Manner::default()).await?;
        let path = made::lease_path(nth);
        let lease = connection.must(Ask::get(&path)).await?;
        Ok(Self {
            site,
            connection,
            nth,
            lease: serde_json::from_slice(&lease)?,
        })
    }

    /// Renews and reports in its turns until the window closes.
    async fn live(mut self, order: Nodes, begun: u64, edges: Edges) -> anyhow::Result<Asked> {
        let (renew, report) = (order.renew_ms * 1000, order.report_ms * 1000);
        // Spreads the nodes evenly over the first interval of each kind.
        let phase = |every: u64| {
            let nth = (self.nth - order.first) as u64;
            begun + every * nth / order.count.max(1) as u64
        };
        let (mut renewal, mut reporting) = (phase(renew), phase(report));
        let mut asked = Asked::new()?;
        loop {
            let due = renewal.min(reporting);
            clock::sleep_until(due.min(edges.to)).await;
            if clock::now() >= edges.to {
                return Ok(asked);
            }
            let answer = if due == renewal {
                renewal += renew;
                self.renew().await
            } else {
                reporting += report;
                self.report().await
            };
            let failed = answer.is_err();
            asked.answered(due, edges, answer)?;
            if failed {
                self.connection = self.site.connect(Manner::default()).await?;
            }
        }
    }

    async fn renew(&mut self) -> anyhow::Result<()> {
        self.lease["spec"]["renewTime"] = json!(now_text());
        let path = made::lease_path(self.nth);
        let ask = Ask::with(Method::PUT, &path, JSON).body(self.lease.to_string());
        self.lease = serde_json::from_slice(&self.connection.must(ask).await?)?;
        Ok(())
    }

    async fn report(&mut self) -> anyhow::Result<()> {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let patch = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now},
            {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": now},
            {"type": "DiskPressure", "status": "False", "lastHeartbeatTime": now},
            {"type": "PIDPressure", "status": "False", "lastHeartbeatTime": now},
        ]}});
        let path = format!("/api/v1/nodes/{}/status", objects::node(self.nth));
        let ask = Ask::with(Method::PATCH, &path, STRATEGIC).body(patch.to_string());
        self.connection.must(ask).await?;
        Ok(())
    }
}

/// Returns the time as leases have it.
pub(super) fn now_text() -> String {
    let now = Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Reads one object at a steady rate, whatever the answers take; what comes late counts
/// from when it was due.
pub(super) async fn gets(order: Gets, boss: &mut Boss) -> anyhow::Result<()> {
    let site = Arc::new(Site::of(&order.door)?);
    let mut connection = site.connect(Manner::default()).await?;
    connection.must(Ask::get(&order.path)).await?;
    let edges = go(boss).await?;
    let path: Arc<str> = order.path.into();
    let mut reading = JoinSet::new();
    for turn in 0_u64.. {
        let due = edges.from + (turn as f64 * 1e6 / order.rate) as u64;
        if due >= edges.to {
            break;
        }
        clock::sleep_until(due).await;
        let (mut connection, path) = (connection.share()?, Arc::clone(&path));
        reading.spawn(async move {
            let answer = connection.must(Ask::get(&path)).await;
            (clock::now().saturating_sub(due), answer.map(drop))
        });
    }
    let mut asked = Asked::new()?;
    while let Some(read) = reading.join_next().await {
        let (took, answer) = read?;
        match answer {
            Ok(()) => {
                asked.requests += 1;
                asked.took.record(took)?;
            }
            Err(error) => asked.errors.push(format!("{error:#}")),
        }
    }
    boss.say(&asked.said())
}

/// Lists everything, so many times at once.
pub(super) async fn lists(order: Lists, boss: &mut Boss) -> anyhow::Result<()> {
    let site = Arc::new(Site::of(&order.door)?);
    let mut connections = Vec::with_capacity(order.count);
    for _ in 0..order.count {
        connections.push(site.connect(Manner::default()).await?);
    }
    go(boss).await?;
    let mut listing = JoinSet::new();
    for connection in connections {
        listing.spawn(list(connection, order.clone()));
    }
    let mut all = Asked::new()?;
    while let Some(bytes) = listing.join_next().await {
        let (bytes, took) = bytes??;
        all.requests += 1;
        all.bytes += bytes;
        all.took.record(took)?;
    }
    boss.say(&all.said())
}

/// Reads a list to its end, and counts what is in it.
async fn list(mut connection: Connection, order: Lists) -> anyhow::Result<(u64, u64)> {
    const PATIENCE: Duration = Duration::from_secs(300);
    let begun = clock::now();
    let answer = connection.begin(Ask::get(&order.path)).await?;
    let status = answer.status();
    ensure!(status.is_success(), "GET {}: {status}", order.path);
    let (mut body, mut bytes, mut found, mut last) = (answer.into_body(), 0, 0, None);
    while let Some(frame) = tokio::time::timeout(PATIENCE, body.frame()).await? {
        if let Ok(data) = frame.context("the list broke")?.into_data() {
            bytes += data.len() as u64;
            found += count(&data, MARK);
            last = data
                .iter()
                .rev()
                .find(|b| !b.is_ascii_whitespace())
                .copied()
                .or(last);
        }
    }
    ensure!(
        found == order.objects && last == Some(b'}'),
        "{found} objects instead of {}",
        order.objects
    );
    Ok((bytes, clock::now() - begun))
}
