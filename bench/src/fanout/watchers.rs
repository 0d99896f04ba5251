//! Watchers in a process of the load: each reads what comes and checks it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use proto::etcdserverpb as pb;
use tokio::sync::Notify;
use tonic::transport::Channel;

use super::check::{Checked, Log};
use super::clock;
use super::frames::{Event, Frames, marked};
use super::http::{Ask, Connection, JSON, Manner, PROTOBUF_WATCH, Site};
use super::objects;
use super::order::{Door, Edges, Pace, Said, Saw, Watch, Wire, Word};
use super::worker::Boss;
use crate::store::watch::Watch as StoreWatch;

/// How long may pass after the last write until every watcher has it.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often that is looked at.
const PAUSE: Duration = Duration::from_millis(5);

/// How often at most it is said how many events have come.
const SAY_EVERY: Duration = Duration::from_millis(1);

/// How many watches are opened at once.
const OPENING: usize = 32;

/// What the watchers of a process share.
struct Tally {
    epoch: u64,
    arrived: AtomicU64,
    grew: Notify,
    /// Set when those who read slowly may read as fast as they can.
    hurry: tokio::sync::watch::Sender<bool>,
}

type Stream = Arc<Mutex<Checked>>;

fn lock(stream: &Stream) -> MutexGuard<'_, Checked> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the watches, reads them until told to finish, and says what came.
pub(super) async fn run(order: Watch, boss: &mut Boss) -> anyhow::Result<()> {
    let tally = Arc::new(Tally {
        epoch: clock::now(),
        arrived: AtomicU64::new(0),
        grew: Notify::new(),
        hurry: tokio::sync::watch::Sender::new(order.pace == Pace::Full),
    });
    let streams = open(&order, &tally).await?;
    boss.say(&Said::Ready)?;
    let mut edges = None;
    let written = loop {
        tokio::select! {
            () = tally.grew.notified() => {
                boss.say(&Said::Arrived(tally.arrived.load(Ordering::Relaxed)))?;
                tokio::time::sleep(SAY_EVERY).await;
            }
            word = boss.hear() => match word? {
                Word::Go(to) => edges = Some(to),
                Word::Finish(written) => break written,
                Word::Arrived(_) | Word::Open => {}
            }
        }
    };
    tally.hurry.send_replace(true);
    let log = Log::new(order.objects.count, order.objects.base, &written);
    let ends = log.ends();
    let until = tokio::time::Instant::now() + PATIENCE;
    let done = |stream: &Stream| {
        let stream = lock(stream);
        stream.ended.is_some() || stream.has_all(&ends)
    };
    while !streams.iter().all(done) && tokio::time::Instant::now() < until {
        tokio::time::sleep(PAUSE).await;
    }
    let mut saw = Saw::default();
    for stream in &streams {
        let ended = lock(stream).ended.clone();
        let Some(how) = ended else { continue };
        let has_all = lock(stream).has_all(&ends);
        let after = match has_all {
            true => Ok("nothing was left to come".to_owned()),
            false => resume(&order, stream).await,
        };
        let after = after.unwrap_or_else(|error| format!("cannot be resumed: {error:#}"));
        saw.ended.push(format!("{how}; {after}"));
    }
    sum_up(&mut saw, &streams, &log, tally.epoch, edges)?;
    boss.say(&Said::Saw(saw))
}

/// Adds up what all streams say, with the latencies of what came in the window.
fn sum_up(
    saw: &mut Saw,
    streams: &[Stream],
    log: &Log,
    epoch: u64,
    edges: Option<Edges>,
) -> anyhow::Result<()> {
    let ends = log.ends();
    let (mut acked, mut sent) = (Histogram::new(3)?, Histogram::new(3)?);
    for stream in streams {
        let mut stream = lock(stream);
        stream.close(&ends);
        for arrival in &stream.arrivals {
            let at = epoch + u64::from(arrival.at);
            if !edges.is_some_and(|edges| edges.contain(at)) {
                continue;
            }
            saw.in_window += 1;
            // A write that was not acknowledged has failed the run already.
            if let Some((sent_at, acked_at)) = log.of(arrival) {
                sent.record(at.saturating_sub(sent_at))?;
                acked.record(at.saturating_sub(acked_at))?;
            }
        }
        saw.events += stream.arrivals.len() as u64;
        saw.bytes += stream.bytes;
        saw.gaps += stream.gaps;
        saw.duplicates += stream.duplicates;
        saw.backwards += stream.backwards;
        saw.strange += stream.strange;
    }
    saw.since_acked = clock::counts(&acked);
    saw.since_sent = clock::counts(&sent);
    Ok(())
}

/// Opens all watches of an order, some at once.
async fn open(order: &Watch, tally: &Arc<Tally>) -> anyhow::Result<Vec<Stream>> {
    let mut opening = tokio::task::JoinSet::new();
    let mut streams = Vec::with_capacity(order.count);
    let per_connection = match order.wire {
        Wire::Http1 => 1,
        _ => order.streams_per_connection.max(1),
    };
    let site = match &order.door {
        Door::Api { .. } => Some(Arc::new(Site::of(&order.door)?)),
        Door::Store(_) => None,
    };
    for at in (0..order.count).step_by(per_connection) {
        while opening.len() >= OPENING {
            finished(&mut opening, &mut streams).await?;
        }
        let those = at..(at + per_connection).min(order.count);
        let (order, tally, site) = (order.clone(), Arc::clone(tally), site.clone());
        opening.spawn(async move {
            match (&order.door, site) {
                (_, Some(site)) => open_api(&order, &tally, &site, those).await,
                (Door::Store(url), _) => open_store(&order, &tally, url, those).await,
                (Door::Api { .. }, None) => anyhow::bail!("no site"),
            }
        });
    }
    while !opening.is_empty() {
        finished(&mut opening, &mut streams).await?;
    }
    Ok(streams)
}

async fn finished(
    opening: &mut tokio::task::JoinSet<anyhow::Result<Vec<Stream>>>,
    streams: &mut Vec<Stream>,
) -> anyhow::Result<()> {
    if let Some(opened) = opening.join_next().await {
        streams.extend(opened??);
    }
    Ok(())
}

fn checked(order: &Watch, nth: usize) -> anyhow::Result<Stream> {
    let objects = &order.objects;
    let (first, count) = match objects.on_nodes {
        true => (u32::try_from(order.first + nth)?, 1),
        false => (0, objects.count),
    };
    let checked = Checked::new(first, count, objects.base, order.revision);
    Ok(Arc::new(Mutex::new(checked)))
}

async fn open_api(
    order: &Watch,
    tally: &Arc<Tally>,
    site: &Arc<Site>,
    those: std::ops::Range<usize>,
) -> anyhow::Result<Vec<Stream>> {
    let manner = Manner {
        http1: order.wire == Wire::Http1,
        small: order.pace != Pace::Full,
    };
    let mut connection = site.connect(manner).await?;
    let mut streams = Vec::with_capacity(those.len());
    for nth in those {
        let path = order.objects.watch(order.first + nth, order.revision);
        let body = watch(&mut connection, order.wire, &path).await?;
        let stream = checked(order, nth)?;
        streams.push(Arc::clone(&stream));
        let reader = Reader {
            frames: Frames::new(order.wire == Wire::Protobuf),
            stream,
            tally: Arc::clone(tally),
            pace: order.pace,
        };
        // One HTTP/1.1 connection is used up by its one watch.
        tokio::spawn(reader.run(body));
    }
    Ok(streams)
}

/// Begins a watch, which must be granted.
pub(super) async fn watch(
    connection: &mut Connection,
    wire: Wire,
    path: &str,
) -> anyhow::Result<Incoming> {
    let accept = match wire {
        Wire::Protobuf => PROTOBUF_WATCH,
        _ => JSON,
    };
    let ask = Ask {
        accept,
        ..Ask::get(path)
    };
    let answer = connection.begin(ask).await?;
    ensure!(
        answer.status().is_success(),
        "GET {path}: {}",
        answer.status()
    );
    let said = answer.headers().get(http::header::CONTENT_TYPE);
    let protobuf = said.is_some_and(|s| s.as_bytes().starts_with(b"application/vnd"));
    ensure!(
        protobuf == (wire == Wire::Protobuf),
        "the watch is of another type: {said:?}"
    );
    Ok(answer.into_body())
}

/// Reads one watch of an API server.
struct Reader {
    frames: Frames,
    stream: Stream,
    tally: Arc<Tally>,
    pace: Pace,
}

impl Reader {
    async fn run(mut self, mut body: Incoming) {
        let mut hurry = self.tally.hurry.subscribe();
        if self.pace == Pace::Stuck {
            // Nobody is left to hurry us only where the process ends.
            drop(hurry.wait_for(|hurry| *hurry).await);
        }
        let how = loop {
            let frame = match body.frame().await {
                None if self.frames.is_between() => break "ended well".to_owned(),
                None => break "ended within an event".to_owned(),
                Some(Err(error)) => break format!("broke: {error}"),
                Some(Ok(frame)) => frame,
            };
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            if let Err(end) = self.take(&bytes) {
                break end;
            }
            if let Pace::Slow(rate) = self.pace
                && !*hurry.borrow()
            {
                let pause = bytes.len() as f64 / f64::from(rate.max(1));
                let pause = tokio::time::sleep(Duration::from_secs_f64(pause));
                tokio::select! {
                    () = pause => {}
                    _ = hurry.changed() => {}
                }
            }
        };
        lock(&self.stream).ended = Some(how);
        self.tally.grew.notify_one();
    }

    /// Takes bytes; fails where they say that the watch ends, or mean nothing.
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        let at = clock::now().saturating_sub(self.tally.epoch);
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        let mut stream = lock(&self.stream);
        let before = stream.arrivals.len();
        stream.bytes += bytes.len() as u64;
        let mut ended = None;
        let read = self.frames.feed(bytes, |event| match event {
            Event::Change {
                object,
                sequence,
                revision,
            } => stream.take(object, sequence, revision, at),
            Event::Bookmark => {}
            Event::Error(said) => ended = Some(format!("said {said}")),
            Event::Strange(_) => stream.strange += 1,
        });
        let came = stream.arrivals.len() - before;
        drop(stream);
        self.tally.arrived.fetch_add(came as u64, Ordering::Relaxed);
        self.tally.grew.notify_one();
        match (read, ended) {
            (Err(error), _) => {
                // Who cannot read what comes cannot say that nothing is missing.
                lock(&self.stream).strange += 1;
                Err(format!("is not understood: {error}"))
            }
            (_, Some(said)) => Err(said),
            _ => Ok(()),
        }
    }
}

/// Opens a watch that the server ended after what it showed last, as clients do, and
/// says what became of it.
async fn resume(order: &Watch, stream: &Stream) -> anyhow::Result<String> {
    let Door::Api { .. } = &order.door else {
        return Ok("not resumed".to_owned());
    };
    let revision = lock(stream).revision;
    let site = Arc::new(Site::of(&order.door)?);
    let mut connection = site.connect(Manner::default()).await?;
    let path = order.objects.watch(order.first, revision);
    let mut body = watch(&mut connection, Wire::Json, &path).await?;
    let mut frames = Frames::new(false);
    let mut first = None;
    while first.is_none() {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await?;
        let frame = frame.context("no event after the last")??;
        if let Ok(bytes) = frame.into_data() {
            frames.feed(&bytes, |event| first = first.take().or(Some(event)))?;
        }
    }
    Ok(match first {
        Some(Event::Change {
            object, sequence, ..
        }) => {
            let mut stream = lock(stream);
            let before = (stream.gaps, stream.duplicates);
            stream.take(object, sequence, u64::MAX, 0);
            match before == (stream.gaps, stream.duplicates) {
                true => "goes on where it ended".to_owned(),
                false => "goes on with a gap".to_owned(),
            }
        }
        Some(Event::Error(said)) if said.contains("410") => "must list anew (410)".to_owned(),
        other => format!("then: {other:?}"),
    })
}

async fn open_store(
    order: &Watch,
    tally: &Arc<Tally>,
    url: &str,
    those: std::ops::Range<usize>,
) -> anyhow::Result<Vec<Stream>> {
    let channel: Channel = objects::store(url).await?;
    let mut streams = Vec::with_capacity(those.len());
    for nth in those {
        let (key, range_end) = match order.objects.on_nodes {
            true => (
                objects::key(u32::try_from(order.first + nth)?),
                bytes::Bytes::new(),
            ),
            false => objects::all_keys(),
        };
        let create = pb::WatchCreateRequest {
            key,
            range_end,
            start_revision: i64::try_from(order.revision)? + 1,
            ..pb::WatchCreateRequest::default()
        };
        let watch = StoreWatch::open(channel.clone(), create, 1).await?;
        let watch = watch.created(1).await?;
        let stream = checked(order, nth)?;
        streams.push(Arc::clone(&stream));
        let tally = Arc::clone(tally);
        tokio::spawn(async move {
            let how = read_store(watch, &stream, &tally).await;
            lock(&stream).ended = Some(how);
            tally.grew.notify_one();
        });
    }
    Ok(streams)
}

/// Reads one watch of a store until it ends; says how it did.
async fn read_store(mut watch: StoreWatch, stream: &Stream, tally: &Tally) -> String {
    loop {
        let reply = match watch.replies.message().await {
            Err(status) => return format!("broke: {status}"),
            Ok(None) => return "ended well".to_owned(),
            Ok(Some(reply)) if reply.canceled => {
                return format!("said {}", reply.cancel_reason);
            }
            Ok(Some(reply)) => reply,
        };
        let at = clock::now().saturating_sub(tally.epoch);
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        let mut stream = lock(stream);
        for kv in reply.events.iter().filter_map(|event| event.kv.as_ref()) {
            stream.bytes += (kv.key.len() + kv.value.len()) as u64;
            let revision = u64::try_from(kv.mod_revision).unwrap_or(0);
            match marked(&kv.value) {
                Some((object, sequence)) => stream.take(object, sequence, revision, at),
                None => stream.strange += 1,
            }
        }
        drop(stream);
        let came = reply.events.len() as u64;
        tally.arrived.fetch_add(came, Ordering::Relaxed);
        tally.grew.notify_one();
    }
}
