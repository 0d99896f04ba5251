//! What a watch costs that nothing happens on, beyond the connection it is on.
//!
//! The connections are opened first, and each asks for something small: what TLS and
//! HTTP need is there then. What the watches add after that is theirs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use super::clock;
use super::crew::Crew;
use super::figures::Results;
use super::http::{Ask, Connection, Manner, Site};
use super::measure::{Plan, shares};
use super::order::{Did, Idle, Objects, Order, Said, Wire, Word};
use super::server::Server;
use super::watchers::watch;
use super::worker::Boss;
use crate::report::say_error;

/// How many watch.
const WATCHERS: usize = 10_000;

/// The most that one may add, in kilobytes.
const KB_MAX: f64 = 10.0;

/// How long what was opened may settle.
const SETTLE: Duration = Duration::from_secs(2);

/// How many connections are opened at once.
const OPENING: usize = 32;

/// How long one may do nothing, in microseconds: a part of what servers allow. How
/// often that is looked at.
const UNUSED_US: u64 = 30_000_000;
const PAUSE: Duration = Duration::from_millis(200);

/// Protocols, and how many watches are on a connection.
const SHAPES: [(Wire, usize); 3] = [(Wire::Http1, 1), (Wire::Json, 1), (Wire::Json, 100)];

/// Returns the names of these cases, each with its shape.
pub(super) fn cases(scale: f64) -> Vec<(String, Wire, usize, usize)> {
    let watchers = super::scaled(WATCHERS, scale);
    SHAPES
        .into_iter()
        .map(|(wire, streams)| {
            let streams = streams.min(watchers);
            let name = format!(
                "idle, {}, {watchers} watches, {streams} on a connection",
                wire.name()
            );
            (name, wire, watchers, streams)
        })
        .collect()
}

/// Which node's pods a watch is of; there are none.
fn nobodys(connections: usize) -> Objects {
    Objects {
        count: connections,
        bytes: 0,
        on_nodes: true,
        base: 0,
    }
}

/// Measures one shape on a server that has done nothing else.
pub(super) async fn measure(
    server: &Server,
    (name, wire, watchers, streams): &(String, Wire, usize, usize),
    plan: Plan,
    results: &mut Results,
) -> anyhow::Result<()> {
    let door = server.door();
    let connections = watchers.div_ceil(*streams);
    let revision = nobodys(1).revision(&door).await?;
    let orders: Vec<Order> = shares(connections, plan.processes)
        .into_iter()
        .map(|(_, connections)| {
            Order::Idle(Idle {
                door: door.clone(),
                wire: *wire,
                connections,
                streams_per_connection: *streams,
                revision,
            })
        })
        .collect();
    let before = server.rss_kb()?;
    let mut crew = Crew::new();
    let whom = crew.hire_all(&orders).await?;
    tokio::time::sleep(SETTLE).await;
    let connected = server.rss_kb()?;
    crew.tell(&whom, &Word::Open).await?;
    crew.ready(whom.len()).await?;
    tokio::time::sleep(SETTLE).await;
    let watching = server.rss_kb()?;
    crew.tell(&whom, &Word::Finish(Vec::new())).await?;
    for said in crew.results(&whom, Vec::new()).await? {
        let Said::Did(did) = said else {
            bail!("a process does not say how its watches are");
        };
        for error in did.errors {
            results.breaks(format!("{name}, {}: {error}", server.name));
        }
    }
    let each = |from: u64, to: u64, of: usize| to.saturating_sub(from) as f64 / of as f64;
    let connection = each(before, connected, connections);
    let watch = each(connected, watching, connections * streams);
    say_error(&format!("{name}, {}: {watch:.1} kB a watch", server.name));
    results.fact(name, &server.name, "kB a connection", connection);
    results.fact(name, &server.name, "kB a watch beyond it", watch);
    if server.is_ours() {
        results.check(name, "kB a watch beyond its connection", watch, KB_MAX);
    }
    Ok(())
}

/// Holds connections, and opens watches on them when it is told to.
pub(super) async fn hold(order: Idle, boss: &mut Boss) -> anyhow::Result<()> {
    let site = Arc::new(Site::of(&order.door)?);
    let manner = Manner {
        http1: order.wire == Wire::Http1,
        small: false,
    };
    let (mut opening, mut held) = (JoinSet::new(), Held::default());
    for _ in 0..order.connections {
        if opening.len() >= OPENING
            && let Some(connection) = opening.join_next().await
        {
            held.take(connection??);
            while held.keep_alive().await? {}
        }
        let site = Arc::clone(&site);
        opening.spawn(async move { site.connect(manner).await });
    }
    while let Some(connection) = opening.join_next().await {
        held.take(connection??);
    }
    // Each has asked for something before it counts as idle.
    held.ask_all().await?;
    boss.say(&Said::Ready)?;
    let ended = Arc::new(AtomicU64::new(0));
    loop {
        let word = tokio::select! {
            word = boss.hear() => word?,
            () = tokio::time::sleep(PAUSE) => {
                while held.keep_alive().await? {}
                continue;
            }
        };
        match word {
            Word::Open => {
                open(&order, &mut held, &ended).await?;
                boss.say(&Said::Ready)?;
            }
            Word::Finish(_) => break,
            Word::Go(_) | Word::Arrived(_) => {}
        }
    }
    let ended = ended.load(Ordering::Relaxed);
    let errors = (ended > 0).then(|| format!("{ended} idle watches were ended"));
    boss.say(&Said::Did(Did {
        errors: errors.into_iter().collect(),
        ..Did::default()
    }))
}

/// Open connections, and when each was last used: the one longest ago comes first.
/// Servers close those that have done nothing for long.
#[derive(Default)]
struct Held {
    connections: VecDeque<(u64, Connection)>,
    /// Whether there are watches on them, which keep them open.
    watched: bool,
}

impl Held {
    fn take(&mut self, connection: Connection) {
        self.connections.push_back((clock::now(), connection));
    }

    /// Uses the connection that was used longest ago, if that is long.
    async fn keep_alive(&mut self) -> anyhow::Result<bool> {
        let long_ago = clock::now().saturating_sub(UNUSED_US);
        let due = |(used, _): &(u64, Connection)| *used < long_ago;
        if self.watched || !self.connections.front().is_some_and(due) {
            return Ok(false);
        }
        if let Some((_, mut connection)) = self.connections.pop_front() {
            connection.must(Ask::get("/livez/ping")).await?;
            self.take(connection);
        }
        Ok(true)
    }

    async fn ask_all(&mut self) -> anyhow::Result<()> {
        for (used, connection) in &mut self.connections {
            connection.must(Ask::get("/livez/ping")).await?;
            *used = clock::now();
        }
        Ok(())
    }
}

async fn open(order: &Idle, held: &mut Held, ended: &Arc<AtomicU64>) -> anyhow::Result<()> {
    let of = nobodys(order.connections);
    for (nth, (_, connection)) in held.connections.iter_mut().enumerate() {
        for stream in 0..order.streams_per_connection {
            let node = nth * order.streams_per_connection + stream;
            let path = of.watch(node, order.revision);
            let body = watch(connection, order.wire, &path).await;
            let mut body = body.with_context(|| format!("watch {stream} of connection {nth}"))?;
            let ended = Arc::clone(ended);
            tokio::spawn(async move {
                while let Some(Ok(_)) = body.frame().await {}
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
    }
    held.watched = true;
    Ok(())
}
