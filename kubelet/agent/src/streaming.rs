//! Streams the API server asks for: commands, attached containers, forwarded
//! ports. Each is a websocket whose subprotocol says how it is spoken; the API
//! server passes its bytes on and knows nothing of them.

mod channels;
mod forward;
mod options;
mod socket;
mod spdy;
mod status;

use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

pub(crate) use options::{Asked, ports, wanted};
pub(crate) use socket::Accepted;

use crate::runtime::Runtime;
use crate::session::Wanted;

/// Ends a stream with the server and keeps its place among the connections.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Cancelled when the server ends.
    pub(crate) token: CancellationToken,
    /// What counts the stream as a connection.
    pub(crate) slot: Arc<OwnedSemaphorePermit>,
}

/// What is done on a stream.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// Runs a command beside a container.
    Exec {
        /// The container's id.
        id: String,
        /// The command.
        command: Vec<String>,
        /// Its streams.
        wanted: Wanted,
    },
    /// Joins a container.
    Attach {
        /// The container's id.
        id: String,
        /// Its streams.
        wanted: Wanted,
    },
    /// Connects to ports of a pod.
    Forward(PodPorts),
}

/// A pod whose ports are forwarded.
#[derive(Clone, Debug)]
pub(crate) struct PodPorts {
    /// The pod's UID.
    pub(crate) uid: String,
    /// The pod's name, for messages.
    pub(crate) name: String,
    /// The ports named in the query; SPDY names them stream by stream.
    pub(crate) ports: Vec<u16>,
}

impl Task {
    fn protocols(&self) -> &'static [&'static str] {
        match self {
            Task::Exec { .. } | Task::Attach { .. } => &[socket::V5, socket::V4],
            Task::Forward(_) => &[socket::SPDY_TUNNEL, socket::V4],
        }
    }
}

/// Takes a request's connection for a stream: the answer to give, or why not.
/// The task begins once that answer is sent.
pub(crate) fn begin(
    mut request: Request<Incoming>,
    runtime: Arc<dyn Runtime>,
    task: Task,
    place: Place,
) -> Result<Accepted, (StatusCode, String)> {
    let accepted = socket::accept(request.headers(), task.protocols())?;
    if let Task::Forward(pod) = &task
        && accepted.protocol == socket::V4
        && pod.ports.is_empty()
    {
        let text = "query parameter \"port\" is required".to_owned();
        return Err((StatusCode::BAD_REQUEST, text));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let protocol = accepted.protocol;
    tokio::spawn(async move {
        let stream = carry_out(upgrade, protocol, runtime, task);
        tokio::select! {
            () = place.token.cancelled() => {}
            () = stream => {}
        }
        drop(place.slot);
    });
    Ok(accepted)
}

async fn carry_out(
    upgrade: OnUpgrade,
    protocol: &'static str,
    runtime: Arc<dyn Runtime>,
    task: Task,
) {
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return tracing::debug!(%error, "no websocket came of an upgrade"),
    };
    let socket = socket::open(upgraded).await;
    match task {
        Task::Exec {
            id,
            command,
            wanted,
        } => {
            let name = format!("[{}]", command.join(" "));
            let session = runtime.run(&id, command, wanted).await;
            channels::speak(socket, protocol, session, wanted, &name).await;
        }
        Task::Attach { id, wanted } => {
            let session = runtime.attach(&id, wanted).await;
            channels::speak(socket, protocol, session, wanted, "").await;
        }
        Task::Forward(pod) if protocol == socket::SPDY_TUNNEL => {
            spdy::tunnel(socket, runtime, pod).await;
        }
        Task::Forward(pod) => forward::channels(socket, runtime, &pod).await,
    }
}
