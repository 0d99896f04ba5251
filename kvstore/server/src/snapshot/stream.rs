//! A snapshot on its way to a client of Maintenance.Snapshot.
//!
//! One blocking thread writes the file, so that the view it is taken from is held
//! no longer than that, and then sends it as fast as the client takes it. The
//! file has no name: whatever happens, it goes with the thread.

use std::{
    io::{self, BufWriter, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use proto::etcdserverpb as pb;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::export::{ExportError, Moment};
use crate::{STORAGE_VERSION, handle::Handle};

/// Bytes of a message (etcd: snapshotSendBufferSize).
const BLOB_BYTES: usize = 32 << 10;

/// Messages made ahead of the client. Then the thread waits for it.
const BLOBS_AHEAD: usize = 16;

/// Snapshots under way at once: each takes the store's size on disk. A further one
/// is refused.
pub(crate) const SNAPSHOTS_MAX: usize = 4;

/// Bytes written to the file at once.
const WRITE_BYTES: usize = 256 << 10;

/// What a client of Maintenance.Snapshot receives.
pub(crate) type SnapshotStream = ReceiverStream<Result<pb::SnapshotResponse, Status>>;

/// Begins a snapshot of what the member has applied.
///
/// A member with the CORRUPT alarm gives one too: it may be all that is left.
pub(crate) fn begin(handle: &Handle) -> Result<SnapshotStream, Status> {
    let shared = &handle.shared;
    let place = Arc::clone(&shared.snapshots)
        .try_acquire_owned()
        .map_err(|_full| Status::resource_exhausted("etcdserver: too many requests"))?;
    let now = shared.now();
    let (view, facts) = shared.with(|core| (core.machine.view(now), core.machine.facts()))?;
    let moment = Moment { view, facts };
    tracing::info!(
        revision = moment.view.revision(),
        "sending a snapshot to a client"
    );
    let dir = shared.config.data_dir.clone();
    Ok(send(moment, dir, place, |dir| tempfile::tempfile_in(dir)))
}

/// Starts sending a moment; `open` makes its file in `dir` meanwhile.
fn send<F: Read + Write + Seek>(
    moment: Moment,
    dir: PathBuf,
    place: OwnedSemaphorePermit,
    open: impl FnOnce(&Path) -> io::Result<F> + Send + 'static,
) -> SnapshotStream {
    let (sender, receiver) = mpsc::channel(BLOBS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let job = Job { sender, dir };
        match job.run(moment, open) {
            Ok(bytes) => tracing::info!(bytes, "sent a snapshot"),
            Err(Stop::Gone) => tracing::info!("the client of a snapshot went away"),
            Err(Stop::Failed(status)) => {
                tracing::warn!(error = status.message(), "could not make a snapshot");
                let _gone = job.sender.blocking_send(Err(status));
            }
        }
        drop(place);
    });
    ReceiverStream::new(receiver)
}

/// Says why nothing more is sent.
enum Stop {
    /// The client went away.
    Gone,
    Failed(Status),
}

struct Job {
    sender: mpsc::Sender<Result<pb::SnapshotResponse, Status>>,
    dir: PathBuf,
}

impl Job {
    fn run<F: Read + Write + Seek>(
        &self,
        moment: Moment,
        open: impl FnOnce(&Path) -> io::Result<F>,
    ) -> Result<u64, Stop> {
        let out = open(&self.dir).map_err(|error| self.failed(&error))?;
        let out = BufWriter::with_capacity(WRITE_BYTES, out);
        let wanted = || !self.sender.is_closed();
        let (out, size) = match moment.write(out, &wanted) {
            Ok(written) => written,
            Err(ExportError::Unwanted) => return Err(Stop::Gone),
            Err(ExportError::Write(bbolt::WriteError::Io(error))) => {
                return Err(self.failed(&error));
            }
            Err(ExportError::Write(error)) => {
                return Err(Stop::Failed(Status::internal(error.to_string())));
            }
            Err(ExportError::Read(error)) => {
                return Err(Stop::Failed(crate::RpcError::from(error).into()));
            }
        };
        // The view holds compaction up; the client may be slow.
        drop(moment);
        let file = out
            .into_inner()
            .map_err(|error| self.failed(error.error()))?;
        self.send_file(file, size)?;
        Ok(size)
    }

    fn send_file(&self, mut file: impl Read + Seek, size: u64) -> Result<(), Stop> {
        file.rewind().map_err(|error| self.failed(&error))?;
        let mut hash = Sha256::new();
        let mut left = size;
        while left > 0 {
            let take = BLOB_BYTES.min(usize::try_from(left).unwrap_or(BLOB_BYTES));
            let mut blob = vec![0; take];
            file.read_exact(&mut blob)
                .map_err(|error| self.failed(&error))?;
            hash.update(&blob);
            left -= take as u64;
            self.send_blob(blob.into(), left)?;
        }
        self.send_blob(Bytes::copy_from_slice(&hash.finalize()), 0)
    }

    fn send_blob(&self, blob: Bytes, remaining_bytes: u64) -> Result<(), Stop> {
        let message = pb::SnapshotResponse {
            header: None,
            remaining_bytes,
            blob,
            version: STORAGE_VERSION.to_owned(),
        };
        self.sender
            .blocking_send(Ok(message))
            .map_err(|_gone| Stop::Gone)
    }

    fn failed(&self, error: &io::Error) -> Stop {
        let dir = self.dir.display();
        Stop::Failed(match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Status::resource_exhausted(format!(
                    "etcdserver: no space left in {dir} of the member to prepare the snapshot"
                ))
            }
            _ => Status::internal(format!(
                "etcdserver: cannot prepare the snapshot in {dir} of the member: {error}"
            )),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use mvcc::{Command, MemoryBackend, Proposal, PutRequest, StateMachine};
    use tokio::sync::Semaphore;
    use tokio_stream::StreamExt as _;

    use super::*;

    /// A file on a disk with room for so many bytes.
    struct Small {
        file: Cursor<Vec<u8>>,
        room: u64,
    }

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let left = self.room.saturating_sub(self.file.position());
            let taken = bytes.len().min(usize::try_from(left).unwrap());
            match taken {
                0 if !bytes.is_empty() => Err(io::ErrorKind::StorageFull.into()),
                taken => self.file.write(&bytes[..taken]),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Small {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.file.read(bytes)
        }
    }

    impl Seek for Small {
        fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
            self.file.seek(to)
        }
    }

    /// Sends a store of some megabytes through a disk with this much room.
    async fn sent(room: u64) -> Vec<Result<pb::SnapshotResponse, Status>> {
        let backend = Box::new(MemoryBackend::new());
        let mut machine = StateMachine::open(backend, mvcc::Config::default()).unwrap();
        for index in 1..=20 {
            let put = PutRequest {
                key: format!("k{index}").into(),
                value: vec![b'x'; 100_000].into(),
                ..PutRequest::default()
            };
            let proposal = Proposal {
                id: index,
                since: None,
                identity: None,
                command: Command::Put(put),
            };
            machine.apply(index, 1, proposal).unwrap();
        }
        let moment = Moment {
            view: machine.view(std::time::Duration::ZERO),
            facts: machine.facts(),
        };
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).try_acquire_owned().unwrap();
        let open = move |_: &Path| {
            Ok(Small {
                file: Cursor::default(),
                room,
            })
        };
        let all = send(moment, "/data".into(), place, open).collect().await;
        // The next client finds the place free again.
        let freed = places.acquire().await;
        assert!(freed.is_ok());
        all
    }

    #[tokio::test]
    async fn a_full_disk_is_told_and_nothing_of_the_file_is_sent() {
        let whole = sent(u64::MAX).await;
        let bytes = |reply: &Result<pb::SnapshotResponse, Status>| {
            let reply = reply.as_ref().expect("there is room");
            reply.blob.len() as u64
        };
        let size = whole.iter().map(bytes).sum::<u64>() - 32;
        assert!(size > 2_000_000);
        for room in [0, 4_096, 1_000_000, size - 1] {
            let replies = sent(room).await;
            let [Err(status)] = replies.as_slice() else {
                panic!("{} replies with room for {room}", replies.len());
            };
            let words = "etcdserver: no space left in /data of the member to prepare the snapshot";
            assert_eq!((status.code() as i32, status.message()), (8, words));
        }
    }
}
