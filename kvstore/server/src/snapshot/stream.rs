//! A snapshot on its way to a client of Maintenance.Snapshot.
//!
//! One blocking thread writes the file, so that the view it is taken from is held
//! no longer than that, and then sends it as fast as the client takes it. The
//! file has no name: whatever happens, it goes with the thread.

use std::{
    fs::File,
    io::{self, BufWriter, Read as _, Seek as _},
    path::PathBuf,
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
    Ok(send(moment, shared.config.data_dir.clone(), place))
}

/// Starts sending a moment, its file in `dir` meanwhile.
fn send(moment: Moment, dir: PathBuf, place: OwnedSemaphorePermit) -> SnapshotStream {
    let (sender, receiver) = mpsc::channel(BLOBS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let job = Job { sender, dir };
        match job.run(moment) {
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
    fn run(&self, moment: Moment) -> Result<u64, Stop> {
        let out = tempfile::tempfile_in(&self.dir).map_err(|error| self.failed(&error))?;
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

    fn send_file(&self, mut file: File, size: u64) -> Result<(), Stop> {
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
