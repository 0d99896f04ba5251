//! The client's door without a socket: bytes go into one end of a pipe, and what
//! the whole stack behind a listener says comes out.

use std::{sync::Arc, time::Duration};

use hyper_util::server::graceful::GracefulShutdown;
use tempfile::TempDir;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    runtime::Runtime,
    sync::Semaphore,
    time::timeout,
};

use crate::{
    Config, Running, Server, StartError,
    accept::Visit,
    edge::{self, Edge},
    listen,
};

/// Bytes of either direction on their way; then whoever writes waits.
const PIPE_BYTES: usize = 64 << 10;

/// How long the server may say nothing before the client takes it that it has no
/// more to say, and hangs up.
const QUIET: Duration = Duration::from_millis(3);

/// The longest a client listens: streams say something as long as they live.
const LISTENS: Duration = Duration::from_millis(200);

/// How long the server may take to be done with a client that hung up, or with a
/// read of one key. Beyond it, it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says why there is no door.
#[derive(Debug, Error)]
pub enum DoorError {
    /// The machine has no place or no thread for it.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// The member does not start.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// The server does not come to an end with something it must.
#[derive(Debug, Error)]
#[error("{0} hangs")]
pub struct Hangs(&'static str);

/// A member on a directory of its own that syncs nothing, and a door to it.
pub struct Door {
    runtime: Runtime,
    edge: Arc<Edge>,
    /// The member; before its directory, so that it ends first.
    _running: Running,
    _dir: TempDir,
}

impl Door {
    /// Starts the member.
    pub fn open() -> Result<Self, DoorError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let dir = tempfile::tempdir()?;
        let mut config = Config::new(dir.path().join("data"));
        config.unsafe_no_fsync = true;
        // Little work for each hash: the bytes that ask for many cost nothing.
        config.bcrypt_cost = 4;
        let running = runtime.block_on(Server::start(config))?;
        Ok(Self {
            runtime,
            edge: Edge::new(running.handle.clone()),
            _running: running,
            _dir: dir,
        })
    }

    /// Is a client that says all this at once, listens as long as it is answered,
    /// and hangs up. Returns what it was told.
    pub fn talk(&self, said: &[u8]) -> Result<Vec<u8>, Hangs> {
        self.runtime.block_on(self.converse(said))
    }

    async fn converse(&self, said: &[u8]) -> Result<Vec<u8>, Hangs> {
        let (client, server) = tokio::io::duplex(PIPE_BYTES);
        let places = Arc::new(Semaphore::new(1));
        let place = places.acquire_owned().await;
        let visit = Visit {
            door: listen::Door::Clients { http: true },
            remote: "@".into(),
            certificate: None,
            secure: false,
            place: Arc::new(place.map_err(|_closed| Hangs("the place of a client"))?),
        };
        let watcher = GracefulShutdown::new().watcher();
        let serves = edge::converse(server, visit, Arc::clone(&self.edge), watcher);
        let serves = tokio::spawn(serves);
        let heard = client_side(client, said).await;
        let ended = timeout(PATIENCE, serves).await;
        ended
            .map_err(|_late| Hangs("a connection whose client is gone"))?
            // A panic was told to the panic hook.
            .unwrap_or_default();
        Ok(heard)
    }

    /// Reads a key as other clients would, while or after that.
    pub fn serves(&self) -> Result<(), Hangs> {
        let range = self.edge.handle.range(mvcc::RangeRequest {
            key: "others".into(),
            ..mvcc::RangeRequest::default()
        });
        let read = self
            .runtime
            .block_on(async { timeout(PATIENCE, range).await });
        match read {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Hangs("a read of one key")),
        }
    }
}

async fn client_side(client: DuplexStream, said: &[u8]) -> Vec<u8> {
    let (mut hears, mut says) = tokio::io::split(client);
    let mut heard = Vec::new();
    let speak = async {
        // The server may have hung up first.
        let _gone = says.write_all(said).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = speak => {}
        () = listen(&mut hears, &mut heard) => {}
    }
    let _gone = says.shutdown().await;
    let rest = hears.read_to_end(&mut heard);
    let _cut = timeout(PATIENCE, rest).await;
    heard
}

/// Hears the server out.
async fn listen(hears: &mut (impl AsyncRead + Unpin), heard: &mut Vec<u8>) {
    let all = async { while let Ok(Ok(1..)) = timeout(QUIET, hears.read_buf(heard)).await {} };
    let _talkative = timeout(LISTENS, all).await;
}
