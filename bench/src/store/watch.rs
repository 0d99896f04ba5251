//! One event on its way to many watchers.
//!
//! An event counts when a watcher has it, and its latency is that since its put was
//! sent. Where puts come as fast as can be, the next one waits until no watcher is
//! more than a few events behind: what a store does when it is flooded is another
//! question than what it can do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures::StreamExt as _;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::kv_client::KvClient;
use proto::etcdserverpb::watch_client::WatchClient;
use tokio::sync::{Notify, oneshot};
use tonic::Streaming;
use tonic::transport::Channel;

use super::kv::Case;
use crate::drive::{Counted, Plan, Window, connections, measure};
use crate::target::Target;

/// How many events watchers may be behind on average before the next put.
const BEHIND: u64 = 8;

/// How many put at once where puts come as fast as can be.
const WRITERS: usize = 4;

/// Bytes of a value; the time of its put is at its beginning.
const VALUE_BYTES: usize = 256;

/// Who watches, and how much there is to see.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) streams: usize,
    pub(super) watchers_per_stream: usize,
    pub(super) connections: usize,
    /// Puts a second; none is as many as can be.
    pub(super) rate: Option<u32>,
}

/// What was sent and what arrived, and who waits for that to grow.
struct Flow {
    watchers: u64,
    sent: AtomicU64,
    arrived: AtomicU64,
    grew: Notify,
}

impl Flow {
    /// Waits until watchers are not too far behind.
    async fn keep_up(&self) {
        loop {
            let grew = self.grew.notified();
            let sent = self.sent.load(Ordering::Relaxed);
            if self.arrived.load(Ordering::Relaxed) + BEHIND * self.watchers >= sent * self.watchers
            {
                return;
            }
            grew.await;
        }
    }
}

pub(super) fn fan_out(target: &Target, plan: Plan, shape: Shape) -> Case<'_> {
    Box::pin(async move {
        let epoch = Instant::now();
        let channels = connections(target, shape.connections).await?;
        let mut streams = Vec::with_capacity(shape.streams);
        for channel in channels.iter().cycle().take(shape.streams) {
            let create = pb::WatchCreateRequest {
                key: "/watched".into(),
                ..pb::WatchCreateRequest::default()
            };
            let watchers = shape.watchers_per_stream;
            let watch = Watch::open(channel.clone(), create, watchers).await?;
            streams.push(watch.created(watchers).await?);
        }
        let flow = Arc::new(Flow {
            watchers: (shape.streams * shape.watchers_per_stream) as u64,
            sent: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            grew: Notify::new(),
        });
        let window = Window::of(plan);
        let writers = shape.rate.map_or(WRITERS, |_| 1);
        let mut writing = Vec::with_capacity(writers);
        for channel in connections(target, writers).await? {
            let client = KvClient::new(channel);
            let (rate, flow) = (shape.rate, Arc::clone(&flow));
            writing.push(tokio::spawn(write(client, epoch, rate, window, flow)));
        }
        let readers = streams
            .into_iter()
            .map(|stream| read(stream, epoch, window, Arc::clone(&flow)));
        let measured = measure(target, window, readers).await;
        // They may wait for readers that are gone.
        writing.iter().for_each(tokio::task::JoinHandle::abort);
        measured
    })
}

/// A stream of replies, and what keeps that of requests open: its end ends the watches.
/// Nothing else does, as long as the connection is used.
pub(crate) struct Watch {
    pub(crate) replies: Streaming<pb::WatchResponse>,
    _open: oneshot::Sender<()>,
}

impl Watch {
    /// Opens a stream on which so many watchers are created.
    pub(crate) async fn open(
        channel: Channel,
        create: pb::WatchCreateRequest,
        watchers: usize,
    ) -> anyhow::Result<Self> {
        let create = pb::WatchRequest {
            request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
        };
        let creates = futures::stream::iter(vec![create; watchers]);
        let (open, dropped) = oneshot::channel();
        let rest = futures::stream::once(dropped).filter_map(async |_dropped| None);
        let mut client = WatchClient::new(channel).max_decoding_message_size(64 << 20);
        let replies = client.watch(creates.chain(Box::pin(rest))).await?;
        Ok(Self {
            replies: replies.into_inner(),
            _open: open,
        })
    }

    /// Waits until all watchers are there.
    pub(crate) async fn created(mut self, watchers: usize) -> anyhow::Result<Self> {
        for _ in 0..watchers {
            let reply = self.replies.message().await?.context("the stream ended")?;
            ensure!(reply.created, "not created");
        }
        Ok(self)
    }
}

async fn write(
    mut client: KvClient<Channel>,
    epoch: Instant,
    rate: Option<u32>,
    window: Window,
    flow: Arc<Flow>,
) -> anyhow::Result<()> {
    let mut due = Instant::now();
    // A little longer than the window, so that nobody waits in vain at its end.
    let end = window.to + Duration::from_millis(200);
    while Instant::now() < end {
        match rate {
            Some(rate) => {
                tokio::time::sleep_until(due.into()).await;
                due += Duration::from_secs(1) / rate;
            }
            None => flow.keep_up().await,
        }
        flow.sent.fetch_add(1, Ordering::Relaxed);
        let mut value = vec![b'w'; VALUE_BYTES];
        let at = u64::try_from(epoch.elapsed().as_micros())?;
        value[..8].copy_from_slice(&at.to_le_bytes());
        let request = pb::PutRequest {
            key: "/watched".into(),
            value: Bytes::from(value),
            ..pb::PutRequest::default()
        };
        client.put(request).await?;
    }
    Ok(())
}

async fn read(
    mut watch: Watch,
    epoch: Instant,
    window: Window,
    flow: Arc<Flow>,
) -> anyhow::Result<Counted> {
    let mut counted = Counted::new()?;
    loop {
        let reply = watch.replies.message().await?.context("the stream ended")?;
        ensure!(!reply.canceled, "canceled: {}", reply.cancel_reason);
        let now = Instant::now();
        let at = u64::try_from((now - epoch).as_micros())?;
        for event in &reply.events {
            let value = event.kv.as_ref().map(|kv| kv.value.as_ref());
            let stamp = value.and_then(|value| value.first_chunk());
            let put = u64::from_le_bytes(*stamp.context("an event without its value")?);
            if window.contains(now) {
                counted.ops += 1;
                counted.latencies.record(at.saturating_sub(put))?;
            }
        }
        flow.arrived
            .fetch_add(reply.events.len() as u64, Ordering::Relaxed);
        flow.grew.notify_waiters();
        if now >= window.to {
            return Ok(counted);
        }
    }
}
