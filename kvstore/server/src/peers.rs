//! The links between members.
//!
//! Each member dials each other one and sends its notes ([`Note`]) over the link it
//! made: one way, in frames, with nothing promised. Two members are thus joined by two
//! links, and neither waits for the other's. Questions that want an answer
//! ([`Peers::lease_renew`] and its like) are calls on the same connection; a snapshot
//! goes by a connection of its own, so that no heartbeat waits behind it.
//!
//! What the core may count on: [`Peers::send`] never waits; a note arrives once, more
//! often never, and after a link broke perhaps late; notes that carry data arrive in
//! the order in which they were sent over one link, and those that do not may overtake
//! them. A peer that is dead, frozen or slow costs a bounded queue and one attempt to
//! dial per second.
//!
//! Deliberately absent: what a note means and who is a member; that is the [`Sink`]'s.

mod caller;
mod dial;
mod link;
mod links;
mod message;
mod meters;
mod note;
mod queue;
mod service;
mod snapshot;
#[cfg(test)]
mod test;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as _,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use proto::peer::{self as pb, peer_client::PeerClient};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

pub(crate) use self::{
    caller::REMOVED, dial::Dialler, links::Links, meters::Meters, note::Note, queue::Undelivered,
    snapshot::SnapshotBody,
};
use self::{
    dial::Conn,
    link::Link,
    service::Inbound,
    snapshot::{SNAPSHOTS_IN_MAX, SNAPSHOTS_OUT_MAX},
};
use crate::{edge::Reply, identity::Ids};

/// Most members that are answered although this member has not heard of them yet: it
/// lags, and they joined meanwhile. Notes of others are taken in all the same.
const GUESTS_MAX: usize = 16;

/// How long a question to a peer may take beyond two elections (etcd: ReqTimeout).
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a peer may take to hash its keys.
const HASH_TIMEOUT: Duration = Duration::from_secs(60);

/// The core, as its peers reach it. Nothing here may wait but what is async.
#[tonic::async_trait]
pub(crate) trait Sink: Send + Sync + 'static {
    /// Takes notes from a peer, in the order of their arrival.
    fn notes(&self, from: u64, notes: Vec<Note>);

    /// Hears that messages of raft to a peer were lost. Never called from within
    /// [`Peers::send`].
    fn unreachable(&self, peer: u64);

    /// Hears that a link to a peer has come up. What went over an earlier one may not
    /// have arrived: whatever still waits for an answer should be sent again.
    fn linked(&self, peer: u64);

    /// Hears from a peer that this member was removed from the cluster.
    fn removed(&self, by: u64);

    /// Takes in a snapshot and installs it; the answer goes to the peer when it is
    /// done. Dropped half-way when the peer gives up: [`SnapshotBody`] then ends in
    /// an error, on whatever thread it is read.
    async fn snapshot(&self, from: u64, head: Bytes, body: SnapshotBody) -> Result<(), Status>;

    /// Renews a lease whose clock this member keeps; returns its time to live.
    async fn lease_renew(&self, id: i64) -> Result<i64, Status>;

    /// Says how long a lease has left.
    async fn lease_time_to_live(
        &self,
        request: pb::LeaseTimeToLiveRequest,
    ) -> Result<pb::LeaseTimeToLiveReply, Status>;

    /// Hashes the keys up to a revision; zero is the current one.
    async fn hash_kv(&self, revision: i64) -> Result<pb::HashKvReply, Status>;

    /// Lists the members as this one knows them.
    async fn members(&self) -> Result<pb::MembersReply, Status>;

    /// Changes the membership, as leader.
    async fn change_membership(&self, change: Bytes) -> Result<Bytes, Status>;

    /// Says how this member does.
    async fn status(&self) -> Result<pb::StatusReply, Status>;
}

/// What the links of a member are made of.
#[derive(Debug)]
pub(crate) struct PeersConfig {
    /// This member and its cluster.
    pub(crate) ids: Ids,
    /// Where this member is served, for peers that do not know it yet.
    pub(crate) peer_urls: Vec<String>,
    /// The time after which silence costs an election. What a link takes to notice
    /// that its peer is gone follows from it.
    pub(crate) election_timeout: Duration,
    /// How peers are dialled.
    pub(crate) dialler: Dialler,
    /// The numbers.
    pub(crate) meters: Meters,
    /// Ends all links.
    pub(crate) stop: CancellationToken,
}

/// A member and where it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The member.
    pub(crate) id: u64,
    /// Its peer URLs.
    pub(crate) urls: Vec<String>,
}

/// Who there is.
#[derive(Debug, Default)]
struct Book {
    own_urls: Arc<Vec<String>>,
    links: BTreeMap<u64, Arc<Link>>,
    /// Those of `links` that are no members as far as this one knows.
    guests: BTreeSet<u64>,
    removed: BTreeSet<u64>,
    /// The newest link from each peer.
    inbound: BTreeMap<u64, Inbound>,
}

struct Inner {
    ids: Ids,
    election_timeout: Duration,
    dialler: Dialler,
    meters: Meters,
    stop: CancellationToken,
    book: Mutex<Book>,
    /// Weak, because it owns this.
    sink: OnceLock<Weak<dyn Sink>>,
    runtime: OnceLock<tokio::runtime::Handle>,
    snapshots_out: Semaphore,
    snapshots_in: Semaphore,
    /// Ends the snapshot that is being received.
    receiving: Mutex<CancellationToken>,
}

/// All links of a member; clones are cheap.
#[derive(Clone)]
pub(crate) struct Peers {
    inner: Arc<Inner>,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers")
            .field("ids", &self.inner.ids)
            .finish_non_exhaustive()
    }
}

impl Peers {
    /// Makes what holds the links; there are none before [`Peers::start`] and
    /// [`Peers::update`].
    pub(crate) fn new(config: PeersConfig) -> Self {
        let book = Book {
            own_urls: Arc::new(config.peer_urls),
            ..Book::default()
        };
        Self {
            inner: Arc::new(Inner {
                ids: config.ids,
                election_timeout: config.election_timeout,
                dialler: config.dialler,
                meters: config.meters,
                stop: config.stop,
                book: Mutex::new(book),
                sink: OnceLock::new(),
                runtime: OnceLock::new(),
                snapshots_out: Semaphore::new(SNAPSHOTS_OUT_MAX),
                snapshots_in: Semaphore::new(SNAPSHOTS_IN_MAX),
                receiving: Mutex::default(),
            }),
        }
    }

    /// Names who takes what peers send. To be called once, on the runtime where all
    /// links will live.
    pub(crate) fn start(&self, sink: Weak<dyn Sink>) {
        let _second = self.inner.sink.set(sink);
        let _second = self.inner.runtime.set(tokio::runtime::Handle::current());
    }

    /// Makes links to all members but this one, ends those to everybody else, and
    /// remembers who may never come back. Cheap if nothing changed.
    pub(crate) fn update(&self, members: &[Address], removed: &BTreeSet<u64>) {
        let inner = &self.inner;
        let mut book = inner.book();
        let book = &mut *book;
        for member in members {
            if member.id == inner.ids.member {
                if *book.own_urls != member.urls {
                    book.own_urls = Arc::new(member.urls.clone());
                }
                continue;
            }
            book.guests.remove(&member.id);
            match book.links.get(&member.id) {
                Some(link) => link.set_urls(&member.urls),
                None => inner.add_link(book, member),
            }
        }
        book.removed.clone_from(removed);
        let guests = &book.guests;
        let stays = |id: &u64| {
            members.iter().any(|member| member.id == *id)
                || guests.contains(id) && !removed.contains(id)
        };
        book.links.retain(|id, link| {
            let stays = stays(id);
            if !stays {
                link.stop.cancel();
            }
            stays
        });
        book.guests.retain(|id| !removed.contains(id));
        for (_, inbound) in book.inbound.extract_if(.., |id, _| removed.contains(id)) {
            inbound.end();
        }
    }

    /// Hands a note to the link of a peer. Never waits, and may be called with any
    /// lock held. An error says that it will not arrive; for messages of raft, raft
    /// hears the same by [`Sink::unreachable`].
    pub(crate) fn send(&self, to: u64, note: Note) -> Result<(), Undelivered> {
        let link = self.inner.link(to).ok_or(Undelivered::NoSuchPeer)?;
        let sent = link.queue.push(note);
        if sent.is_err() {
            link.meters.sent_failures.inc();
        }
        sent
    }

    /// Returns for how long the link to a peer has been up (etcd: ActiveSince).
    pub(crate) fn active_for(&self, peer: u64) -> Option<Duration> {
        self.inner.link(peer)?.active_for()
    }

    /// Sends a snapshot over a connection of its own and waits until the peer has
    /// installed it. `body` is read on a thread for blocking work, no faster than
    /// the peer takes it in; an error in it ends the attempt. Dropping the future
    /// does so too.
    pub(crate) async fn send_snapshot<B>(&self, to: u64, head: Bytes, body: B) -> Result<(), Status>
    where
        B: Iterator<Item = io::Result<Bytes>> + Send + 'static,
    {
        snapshot::send(&self.inner, to, head, body).await
    }

    /// Asks a peer to renew a lease; returns its time to live.
    pub(crate) async fn lease_renew(&self, to: u64, id: i64) -> Result<i64, Status> {
        let mut call = self.inner.call(to, pb::LeaseRenewRequest { id })?;
        let reply = call
            .over
            .wait(call.client.lease_renew(call.request))
            .await?;
        Ok(reply.ttl)
    }

    /// Asks a peer how long a lease has left.
    pub(crate) async fn lease_time_to_live(
        &self,
        to: u64,
        request: pb::LeaseTimeToLiveRequest,
    ) -> Result<pb::LeaseTimeToLiveReply, Status> {
        let mut call = self.inner.call(to, request)?;
        let reply = call.client.lease_time_to_live(call.request);
        call.over.wait(reply).await
    }

    /// Asks a peer for the hash of its keys.
    pub(crate) async fn hash_kv(&self, to: u64, revision: i64) -> Result<pb::HashKvReply, Status> {
        let mut call = self.inner.call(to, pb::HashKvRequest { revision })?;
        call.over.limit = HASH_TIMEOUT;
        call.over.wait(call.client.hash_kv(call.request)).await
    }

    /// Asks a peer for the members.
    #[cfg(test)]
    pub(crate) async fn members(&self, to: u64) -> Result<pb::MembersReply, Status> {
        let mut call = self.inner.call(to, pb::MembersRequest {})?;
        call.over.wait(call.client.members(call.request)).await
    }

    /// Asks the leader to change the membership. An error that the leader did not
    /// give leaves open whether it was changed.
    pub(crate) async fn change_membership(&self, to: u64, change: Bytes) -> Result<Bytes, Status> {
        let change = pb::ChangeMembershipRequest { change };
        let mut call = self.inner.call(to, change)?;
        let reply = call.client.change_membership(call.request);
        Ok(call.over.wait(reply).await?.result)
    }

    /// Asks a peer how it does.
    pub(crate) async fn status(&self, to: u64) -> Result<pb::StatusReply, Status> {
        let mut call = self.inner.call(to, pb::StatusRequest {})?;
        call.over.wait(call.client.status(call.request)).await
    }

    /// Answers a call that came in by the peer port.
    pub(crate) async fn answer<B>(&self, request: http::Request<B>) -> Reply
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        service::answer(self, request).await
    }
}

impl Inner {
    fn book(&self) -> MutexGuard<'_, Book> {
        // Each change to it leaves it fit to use; a panic undoes none.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self, id: u64) -> Option<Arc<Link>> {
        self.book().links.get(&id).cloned()
    }

    fn own_urls(&self) -> Arc<Vec<String>> {
        Arc::clone(&self.book().own_urls)
    }

    /// Returns who takes what peers send; none before the start and after the end.
    fn sink(&self) -> Option<Arc<dyn Sink>> {
        self.sink.get()?.upgrade()
    }

    /// Makes a link and begins to dial.
    fn add_link(self: &Arc<Self>, book: &mut Book, member: &Address) {
        let Some(runtime) = self.runtime.get() else {
            // A member that was never started sends nothing.
            return;
        };
        let meters = self.meters.of(self.ids.member, member.id);
        let link = Link::new(member, self.stop.child_token(), meters);
        let link = Arc::new(link);
        runtime.spawn(link::run(Arc::clone(self), Arc::clone(&link)));
        book.links.insert(member.id, link);
    }

    /// Makes a question to a peer, if there is a link to ask it over.
    fn call<T>(&self, to: u64, message: T) -> Result<Call<T>, Status> {
        let link = self.link(to);
        let up = link.and_then(|link| link.client());
        let (client, down) = up.ok_or_else(|| no_link(to))?;
        Ok(Call {
            client,
            request: self.request(to, message),
            over: Over {
                to,
                down,
                limit: CALL_TIMEOUT + 2 * self.election_timeout,
            },
        })
    }

    /// Signs a request to a peer.
    fn request<T>(&self, to: u64, message: T) -> Request<T> {
        let mut request = Request::new(message);
        caller::sign(request.metadata_mut(), self.ids, &self.own_urls(), to);
        request
    }
}

fn no_link(to: u64) -> Status {
    Status::unavailable(format!("there is no link to member {to:x} at the moment"))
}

/// A question to a peer.
struct Call<T> {
    client: PeerClient<Conn>,
    request: Request<T>,
    over: Over,
}

/// When there is no point in waiting for an answer any more.
struct Over {
    to: u64,
    down: CancellationToken,
    limit: Duration,
}

impl Over {
    /// Waits for an answer until the link goes down, or for too long.
    async fn wait<R>(
        self,
        reply: impl Future<Output = Result<Response<R>, Status>>,
    ) -> Result<R, Status> {
        tokio::select! {
            () = self.down.cancelled() => Err(no_link(self.to)),
            reply = tokio::time::timeout(self.limit, reply) => match reply {
                Ok(Ok(reply)) => Ok(reply.into_inner()),
                // What has a source was not said by the peer.
                Ok(Err(status)) if status.source().is_some() => Err(no_link(self.to)),
                Ok(Err(status)) => Err(status),
                Err(_late) => Err(Status::deadline_exceeded(format!(
                    "member {:x} has not answered within {:?}",
                    self.to, self.limit
                ))),
            },
        }
    }
}
