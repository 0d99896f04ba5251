//! Snapshots on their way between members: a connection each, no faster than the
//! receiver writes, and never whole in memory on either side.

use std::{
    io,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use proto::peer::{Chunk, peer_client::PeerClient};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::{
    Inner, Sink,
    dial::{Conn, Watch},
    link::Link,
};

/// Snapshots on their way out at a time. Another waits for its turn.
pub(super) const SNAPSHOTS_OUT_MAX: usize = 2;

/// Snapshots on their way in at a time. A newer one takes the place of one whose
/// bytes are still coming, and waits for one that is being installed.
pub(super) const SNAPSHOTS_IN_MAX: usize = 1;

/// How long a snapshot waits for its turn to come in. Then it is refused, and the
/// sender's raft has it sent again.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Chunks read ahead of the network, and received ahead of the disk.
const CHUNKS_WAITING_MAX: usize = 2;

/// How long nothing at all may move. Then the attempt is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the peer may take to install what it has received.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Silence of a peer that ends the connection: it answers pings even while its disk
/// is slow.
const SILENCE: Duration = Duration::from_secs(10);

/// A snapshot that ended before its end. Nothing of it may be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the snapshot is cut off: {0}")]
pub(crate) struct Cut(String);

/// The bytes of a snapshot as they come in. They end with none, or in [`Cut`].
#[derive(Debug)]
pub(crate) struct SnapshotBody {
    chunks: mpsc::Receiver<Result<Bytes, Cut>>,
    /// Once there is nothing to come: how it ended.
    ended: Option<Result<(), Cut>>,
}

impl SnapshotBody {
    /// Waits for the next bytes.
    #[cfg(test)]
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Cut> {
        if let Some(ended) = &self.ended {
            return ended.clone().map(|()| None);
        }
        let next = self.chunks.recv().await;
        self.note(next)
    }

    /// Waits for the next bytes, on a thread that may be held up.
    pub(crate) fn next_blocking(&mut self) -> Result<Option<Bytes>, Cut> {
        if let Some(ended) = &self.ended {
            return ended.clone().map(|()| None);
        }
        let next = self.chunks.blocking_recv();
        self.note(next)
    }

    /// The end is an empty chunk; whoever fed this and is gone without it gave up.
    fn note(&mut self, next: Option<Result<Bytes, Cut>>) -> Result<Option<Bytes>, Cut> {
        let next = next.unwrap_or_else(|| Err(Cut("the peer has given up".to_owned())));
        match next {
            Ok(bytes) if bytes.is_empty() => {
                self.ended = Some(Ok(()));
                Ok(None)
            }
            Ok(bytes) => Ok(Some(bytes)),
            Err(cut) => {
                self.ended = Some(Err(cut.clone()));
                Err(cut)
            }
        }
    }
}

/// Sends a snapshot and waits until it is installed.
pub(super) async fn send<B>(inner: &Arc<Inner>, to: u64, head: Bytes, body: B) -> Result<(), Status>
where
    B: Iterator<Item = io::Result<Bytes>> + Send + 'static,
{
    let link = inner
        .link(to)
        .ok_or_else(|| Status::not_found(format!("there is no member {to:x}")))?;
    let under_way = link.meters.sending.begin();
    let sent = tokio::select! {
        () = link.stop.cancelled() => Err(Status::cancelled("the link to the member is over")),
        sent = send_over(inner, &link, to, head, body) => sent,
    };
    if sent.is_ok() {
        under_way.done();
    }
    sent
}

async fn send_over<B>(
    inner: &Arc<Inner>,
    link: &Link,
    to: u64,
    head: Bytes,
    body: B,
) -> Result<(), Status>
where
    B: Iterator<Item = io::Result<Bytes>> + Send + 'static,
{
    // Closing is never asked for.
    let turn = inner.snapshots_out.acquire().await;
    let _turn = turn.map_err(|_closed| Status::cancelled("the member is stopping"))?;
    let mut client = connect(inner, link).await?;
    let (chunks, waiting) = mpsc::channel(CHUNKS_WAITING_MAX);
    let progress = Arc::new(Progress::default());
    let reader = Reader {
        chunks,
        progress: Arc::clone(&progress),
    };
    let reading = tokio::task::spawn_blocking(move || reader.read(head, body));
    let request = inner.request(to, ReceiverStream::new(waiting));
    let answered = tokio::select! {
        answered = client.snapshot(request) => answered.map(drop),
        stalled = progress.stalled() => Err(stalled),
    };
    // Ends the connection, and with it the reader if it still reads.
    drop(client);
    match (answered, reading.await) {
        (Ok(()), _) => Ok(()),
        // What went wrong here explains what the peer says.
        (Err(_), Ok(Err(error))) if error.kind() != io::ErrorKind::BrokenPipe => Err(
            Status::data_loss(format!("cannot read the snapshot: {error}")),
        ),
        (Err(status), _) => Err(status),
    }
}

async fn connect(inner: &Inner, link: &Link) -> Result<PeerClient<Conn>, Status> {
    let mut why = Vec::new();
    for url in link.urls() {
        match inner.dialler.dial(&url, Watch::Pings(SILENCE)).await {
            Ok(client) => return Ok(client),
            Err(error) => why.push(format!("{url}: {error}")),
        }
    }
    Err(Status::unavailable(why.join("; ")))
}

/// How far the reading of a snapshot has come.
#[derive(Debug, Default)]
struct Progress {
    chunks: AtomicU64,
    whole: std::sync::atomic::AtomicBool,
}

impl Progress {
    /// Returns when nothing has moved for too long.
    async fn stalled(&self) -> Status {
        let mut seen = 0;
        loop {
            tokio::time::sleep(STALL_TIMEOUT).await;
            if self.whole.load(Ordering::Acquire) {
                tokio::time::sleep(INSTALL_TIMEOUT).await;
                return Status::deadline_exceeded("the peer does not come to an end with it");
            }
            let now = self.chunks.load(Ordering::Acquire);
            if now == seen {
                return Status::deadline_exceeded("the peer does not take the snapshot in");
            }
            seen = now;
        }
    }
}

/// Reads a snapshot on a thread for blocking work.
struct Reader {
    chunks: mpsc::Sender<Chunk>,
    progress: Arc<Progress>,
}

impl Reader {
    fn read<B>(self, head: Bytes, body: B) -> io::Result<()>
    where
        B: Iterator<Item = io::Result<Bytes>>,
    {
        self.pass(Chunk {
            head,
            ..Chunk::default()
        })?;
        for data in body {
            let data = data?;
            self.pass(Chunk {
                data,
                ..Chunk::default()
            })?;
        }
        self.pass(Chunk {
            last: true,
            ..Chunk::default()
        })?;
        self.progress.whole.store(true, Ordering::Release);
        Ok(())
    }

    /// Waits until there is room for a chunk; an error says that nobody wants it.
    fn pass(&self, chunk: Chunk) -> io::Result<()> {
        self.progress.chunks.fetch_add(1, Ordering::AcqRel);
        let passed = self.chunks.blocking_send(chunk);
        passed.map_err(|_gone| io::ErrorKind::BrokenPipe.into())
    }
}

/// Receives a snapshot and has it installed.
pub(super) async fn receive(
    inner: &Inner,
    from: u64,
    sink: Arc<dyn Sink>,
    mut chunks: Streaming<Chunk>,
) -> Result<(), Status> {
    let over = take_over(inner);
    let turn = tokio::time::timeout(TURN_TIMEOUT, inner.snapshots_in.acquire()).await;
    let Ok(Ok(_turn)) = turn else {
        return Err(Status::resource_exhausted(
            "another snapshot is being installed",
        ));
    };
    let meters = inner.meters.of(inner.ids.member, from);
    let under_way = meters.receiving.begin();
    let first = tokio::time::timeout(STALL_TIMEOUT, chunks.message()).await;
    let first = first.map_err(|_late| Status::deadline_exceeded("nothing came for too long"))??;
    let head = first.ok_or_else(|| Status::invalid_argument("a snapshot without its head"))?;
    let (feed, waiting) = mpsc::channel(CHUNKS_WAITING_MAX);
    let body = SnapshotBody {
        chunks: waiting,
        ended: None,
    };
    let feeding = async {
        let fed = tokio::select! {
            () = over.cancelled() => Err(Cut("another has taken its place".to_owned())),
            fed = pass_on(&mut chunks, &feed) => fed,
        };
        if let Err(cut) = fed {
            let _unread = feed.send(Err(cut)).await;
        }
        drop(feed);
    };
    let installing = sink.snapshot(from, head.head, body);
    let ((), installed) = tokio::join!(feeding, installing);
    installed?;
    under_way.done();
    Ok(())
}

/// Ends what is being received, and returns what will end this.
fn take_over(inner: &Inner) -> CancellationToken {
    let over = inner.stop.child_token();
    // Nothing but an assignment happens under it.
    let mut receiving = inner
        .receiving
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *receiving, over.clone()).cancel();
    over
}

/// Passes chunks on as they come, waiting for whoever writes them.
async fn pass_on(
    chunks: &mut Streaming<Chunk>,
    feed: &mpsc::Sender<Result<Bytes, Cut>>,
) -> Result<(), Cut> {
    loop {
        let next = tokio::time::timeout(STALL_TIMEOUT, chunks.message()).await;
        let chunk = match next {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return Err(Cut("its end is missing".to_owned())),
            Ok(Err(status)) => return Err(Cut(status.message().to_owned())),
            Err(_late) => return Err(Cut("nothing came for too long".to_owned())),
        };
        if !chunk.data.is_empty() && feed.send(Ok(chunk.data)).await.is_err() {
            // Whoever installs it does not want the rest, and says why itself.
            return Ok(());
        }
        if chunk.last {
            let _unwanted = feed.send(Ok(Bytes::new())).await;
            return Ok(());
        }
    }
}
