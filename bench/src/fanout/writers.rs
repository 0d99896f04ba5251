//! Writers in a process of the load: lanes that write their objects in turn.
//!
//! Where they write as fast as can be, the next write waits until watchers are not far
//! behind: what a server does when it is flooded is another question than what it can
//! do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::kv_client::KvClient;
use tokio::sync::watch;
use tonic::transport::Channel;

use super::clock;
use super::http::{Connection, Manner, Site};
use super::objects;
use super::order::{Did, Door, Edges, Said, Word, Write, Written};
use super::worker::Boss;

/// How many events watchers may be behind on average before the next write; and how
/// many all together where they are few, unless those are so many bytes.
const BEHIND: (u64, u64) = (8, 1024);
const BEHIND_BYTES: u64 = 4 << 20;

/// After how long of no progress the next write is made anyway: some watcher may be
/// gone, which is found out later.
const STALLED: Duration = Duration::from_secs(1);

/// How many lanes share a connection.
const LANES_PER_CONNECTION: usize = 16;

/// What the lanes of a process share.
struct Flow {
    sent: AtomicU64,
    arrived: watch::Sender<u64>,
}

/// Writes within the edges it is told, and says what was written.
pub(super) async fn run(order: Write, boss: &mut Boss) -> anyhow::Result<()> {
    let mut doors = Vec::new();
    for lane in 0..order.lanes {
        let door = match doors.last() {
            Some(shared) if lane % LANES_PER_CONNECTION != 0 => Lane::share(shared)?,
            _ => Lane::open(&order).await?,
        };
        doors.push(door);
    }
    boss.say(&Said::Ready)?;
    let edges = loop {
        if let Word::Go(edges) = boss.hear().await? {
            break edges;
        }
    };
    let flow = Arc::new(Flow {
        sent: AtomicU64::new(0),
        arrived: watch::Sender::new(0),
    });
    let begun = clock::now();
    let mut lanes = tokio::task::JoinSet::new();
    for (nth, door) in doors.into_iter().enumerate() {
        let (order, flow) = (order.clone(), Arc::clone(&flow));
        lanes.spawn(write(door, order, nth, begun, edges, flow));
    }
    let mut did = Did::default();
    loop {
        tokio::select! {
            word = boss.hear() => if let Word::Arrived(events) = word? {
                flow.arrived.send_replace(events);
            },
            written = lanes.join_next() => match written {
                Some(written) => did.written.extend(written??),
                None => break,
            },
        }
    }
    did.requests = did.written.len() as u64;
    boss.say(&Said::Did(did))
}

/// What a lane writes through.
enum Lane {
    Store(KvClient<Channel>),
    Api(Connection),
}

impl Lane {
    async fn open(order: &Write) -> anyhow::Result<Self> {
        Ok(match &order.door {
            Door::Store(url) => Self::Store(KvClient::new(objects::store(url).await?)),
            Door::Api { .. } => {
                let site = Arc::new(Site::of(&order.door)?);
                Self::Api(site.connect(Manner::default()).await?)
            }
        })
    }

    fn share(other: &Self) -> anyhow::Result<Self> {
        Ok(match other {
            Self::Store(client) => Self::Store(client.clone()),
            Self::Api(connection) => Self::Api(connection.share()?),
        })
    }

    async fn write(&mut self, order: &Write, object: u32, sequence: u32) -> anyhow::Result<()> {
        match self {
            Self::Store(client) => {
                let request = pb::PutRequest {
                    key: objects::key(object),
                    value: objects::value(&order.objects, object, sequence),
                    ..pb::PutRequest::default()
                };
                client.put(request).await?;
            }
            Self::Api(connection) => {
                let path = order.objects.path(object);
                let patch = objects::patch(object, sequence);
                connection
                    .must(objects::patching(&path).body(patch))
                    .await?;
            }
        }
        Ok(())
    }
}

/// Writes every so manieth object, each time the next: one write at a time of each, so
/// that their numbers have no holes.
async fn write(
    mut lane: Lane,
    order: Write,
    nth: usize,
    begun: u64,
    edges: Edges,
    flow: Arc<Flow>,
) -> anyhow::Result<Vec<Written>> {
    let mut written = Vec::new();
    for turn in (nth..).step_by(order.lanes) {
        match order.rate {
            Some(rate) => {
                let due = begun + (turn as f64 * 1e6 / rate) as u64;
                clock::sleep_until(due.min(edges.to)).await;
            }
            None => keep_up(&flow, &order).await,
        }
        let sent = clock::now();
        if sent >= edges.to {
            break;
        }
        flow.sent.fetch_add(1, Ordering::Relaxed);
        let object = u32::try_from(turn % order.objects.count)?;
        let round = u32::try_from(turn / order.objects.count)?;
        let sequence = order.objects.base + round + 1;
        lane.write(&order, object, sequence)
            .await
            .with_context(|| format!("write {sequence} of object {object}"))?;
        written.push(Written {
            object,
            sequence,
            sent,
            acked: clock::now(),
        });
    }
    Ok(written)
}

/// Waits until watchers are not too far behind.
async fn keep_up(flow: &Flow, order: &Write) {
    let fan = order.fan;
    let few = BEHIND
        .1
        .min(BEHIND_BYTES / order.objects.bytes.max(1) as u64);
    let behind = (BEHIND.0 * fan).max(few);
    let near = |arrived: &u64| {
        let sent = flow.sent.load(Ordering::Relaxed) * fan;
        arrived + behind >= sent + fan
    };
    let mut arrived = flow.arrived.subscribe();
    let caught_up = arrived.wait_for(near);
    drop(tokio::time::timeout(STALLED, caught_up).await);
}
