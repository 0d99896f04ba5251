//! Starting and stopping a member: its directory, its threads, its listeners.

use std::{net::SocketAddr, sync::Arc, thread};

use disk::DataDir;
use tokio::sync::oneshot;

use crate::{
    accept,
    auth::Caller,
    config::{Config, StartError},
    corruption, driver,
    edge::Edge,
    handle::Handle,
    listen::Door,
    open::Open,
    ready, room,
};

/// Starts members.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts a member on a thread of its own and returns once it leads and serves.
    pub async fn start(config: Config) -> Result<Running, StartError> {
        let (tell, told) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("kvstore".to_owned())
            .spawn(move || run(config, tell))
            .map_err(|source| StartError::System {
                what: "the member's thread",
                source,
            })?;
        let started = told.await.unwrap_or(Err(StartError::Stopped));
        let Started {
            addrs,
            handle,
            ended,
        } = match started {
            Ok(started) => started,
            Err(error) => {
                // It has nothing left to do but return, and frees the directory.
                let _ended = thread.join();
                return Err(error);
            }
        };
        let of = |wanted: fn(&Door) -> bool| {
            let found = addrs.iter().filter(|(door, _)| wanted(door));
            found.map(|(_, addr)| *addr).collect::<Vec<_>>()
        };
        let client_addrs = of(|door| matches!(door, Door::Clients { .. }));
        Ok(Running {
            client_addr: client_addrs.first().copied(),
            client_addrs,
            http_addrs: of(|door| *door == Door::Http),
            metrics_addrs: of(|door| *door == Door::Metrics),
            peer_addrs: of(|door| *door == Door::Peers),
            handle,
            thread: Some(thread),
            ended: Some(ended),
        })
    }
}

/// A member that runs on its own threads until it is shut down or dropped.
///
/// Dropping it ends its threads without writing rows back first, as losing power
/// would, and frees the directory; what was acknowledged is in the log.
#[derive(Debug)]
pub struct Running {
    /// Where clients are served, with the real port; none without a client URL.
    pub client_addr: Option<SocketAddr>,
    /// All addresses where clients are served.
    pub client_addrs: Vec<SocketAddr>,
    /// Where clients are served over plain HTTP only.
    pub http_addrs: Vec<SocketAddr>,
    /// Where metrics and health are served in addition.
    pub metrics_addrs: Vec<SocketAddr>,
    /// Where peers are served.
    pub peer_addrs: Vec<SocketAddr>,
    /// The way in without a socket.
    pub handle: Handle,
    thread: Option<thread::JoinHandle<()>>,
    ended: Option<oneshot::Receiver<()>>,
}

impl Running {
    /// Stops serving, brings everything to disk and returns when it is there.
    ///
    /// One that leads hands that over first.
    pub async fn shutdown(mut self) {
        ready::leave(&self.handle).await;
        self.handle
            .shared
            .write_back_at_end
            .store(true, std::sync::atomic::Ordering::Release);
        self.handle.shared.stop.cancel();
        self.wait().await;
    }

    /// Says whether the member stopped because it was removed from its cluster.
    pub fn was_removed(&self) -> bool {
        let removed = &self.handle.shared.removed;
        removed.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Waits until the member has stopped.
    pub async fn wait(&mut self) {
        if let Some(ended) = &mut self.ended {
            // Either way its work is over.
            let _dropped = ended.await;
            self.ended = None;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.shared.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It answers within one sync of the disk. A panic in it was logged.
            let _panicked = thread.join();
        }
    }
}

struct Started {
    /// What is bound, but for sockets in the file system.
    addrs: Vec<(Door, SocketAddr)>,
    handle: Handle,
    ended: oneshot::Receiver<()>,
}

/// The member's thread: everything from opening its files to closing them.
fn run(config: Config, tell: oneshot::Sender<Result<Started, StartError>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(source) => {
            let _gone = tell.send(Err(StartError::System {
                what: "the member's runtime",
                source,
            }));
            return;
        }
    };
    let (end, ended) = oneshot::channel();
    let opened = runtime.block_on(Open::all(config));
    let open = match opened {
        Ok(open) => open,
        Err(error) => {
            let _gone = tell.send(Err(error));
            return;
        }
    };
    let dir = runtime.block_on(serve(open, tell, ended));
    // Connections that did not end in time go with the runtime, before the lock.
    drop(runtime);
    drop(dir);
    let _gone = end.send(());
}

/// Serves until the member is to stop, then brings everything to its end but the
/// directory, which it returns.
async fn serve(
    open: Open,
    mut tell: oneshot::Sender<Result<Started, StartError>>,
    ended: oneshot::Receiver<()>,
) -> DataDir {
    let Open {
        shared,
        listeners,
        threads,
        dir,
        inlet,
    } = open;
    let handle = Handle {
        shared: Arc::clone(&shared),
        caller: Caller::Internal,
    };
    let addrs: Vec<_> = listeners
        .iter()
        .filter_map(|(bound, _)| Some((bound.door, bound.addr()?)))
        .collect();
    let is_clients = |door: &Door| matches!(door, Door::Clients { .. } | Door::Http);
    let (clients, others): (Vec<_>, Vec<_>) = listeners
        .into_iter()
        .partition(|(bound, _)| is_clients(&bound.door));
    let addresses: Vec<_> = clients
        .iter()
        .filter(|(bound, _)| matches!(bound.door, Door::Clients { .. }))
        .map(|(bound, _)| bound.address())
        .collect();
    let driver = tokio::spawn(driver::drive(Arc::clone(&shared)));
    let edge = Edge::new(handle.clone());
    let serve = |(bound, tls)| tokio::spawn(accept::serve(bound, tls, Arc::clone(&edge)));
    // Members and those who watch over them are heard from the start, clients once
    // there is something to say (etcd: ReadyNotify).
    let mut edges: Vec<_> = others.into_iter().map(serve).collect();
    let watching = [
        tokio::spawn(corruption::watch(handle.clone())),
        tokio::spawn(room::watch(handle.clone())),
    ];
    let is_ready = tokio::select! {
        is_ready = ready::wait(&handle) => is_ready,
        // Whoever started the member does not wait for it any more.
        () = tell.closed() => {
            shared.stop.cancel();
            false
        }
    };
    if is_ready {
        edges.extend(clients.into_iter().map(serve));
        tracing::info!(addresses = %format!("[{}]", addresses.join(", ")), member = %format!("{:x}", shared.ids.member), "ready to serve client requests");
        let gone = tell
            .send(Ok(Started {
                addrs,
                handle,
                ended,
            }))
            .is_err();
        if gone {
            // Whoever started the member did not wait for it.
            shared.stop.cancel();
        }
    }
    shared.stop.cancelled().await;
    watching.iter().for_each(tokio::task::JoinHandle::abort);
    // Calls under way fail now, so that their connections end.
    let core = shared.remove();
    let _panicked = futures::future::join_all(edges).await;
    let _panicked = driver.await;
    drop(inlet);
    threads.end(core, &shared);
    dir
}
