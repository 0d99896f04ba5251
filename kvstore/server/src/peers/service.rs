//! The other end of the links: what peers call.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use proto::peer::{
    self as pb, Frame, LinkReply,
    peer_server::{Peer, PeerServer},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming, metadata::MetadataMap};
use tower::Service as _;

use super::{
    Address, GUESTS_MAX, Inner, Note, Peers, REMOVED, Sink,
    caller::{self, Caller},
    meters::PeerMeters,
    snapshot,
};
use crate::edge::Reply;

/// Largest message between members. A frame is about [`super::queue::FRAME_BYTES`], unless a
/// single entry is larger, which `--max-request-bytes` decides.
const FRAME_BYTES_MAX: usize = 128 << 20;

/// Frames below this size are copied out of the receive buffer: an entry that stays
/// in memory must not keep a buffer of many times its size there.
const SHARE_BYTES: usize = 64 << 10;

/// Answers to probes that wait to be read. Beyond it they are dropped: a peer that
/// does not read them is not waiting for them either.
const REPLIES_WAITING_MAX: usize = 16;

/// Elections after which a link without any frame is given up. Whoever made it sends
/// a probe every half election.
const SILENCE_ELECTIONS: u32 = 5;

/// A link from a peer.
#[derive(Debug)]
pub(super) struct Inbound {
    over: CancellationToken,
}

impl Inbound {
    pub(super) fn end(&self) {
        self.over.cancel();
    }
}

/// Answers one call.
pub(super) async fn answer<B>(peers: &Peers, request: http::Request<B>) -> Reply
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    let mut server = PeerServer::new(peers.clone()).max_decoding_message_size(FRAME_BYTES_MAX);
    let reply: Result<_, Infallible> = server.call(request).await;
    match reply {
        Ok(reply) => reply,
        Err(never) => match never {},
    }
}

impl Inner {
    /// Finds out who calls and whether it may.
    pub(super) fn admit(&self, metadata: &MetadataMap) -> Result<(Caller, Arc<dyn Sink>), Status> {
        let caller = caller::read(metadata, self.ids)?;
        if self.book().removed.contains(&caller.id) {
            return Err(Status::permission_denied(REMOVED));
        }
        Ok((caller, self.open_sink()?))
    }

    fn open_sink(&self) -> Result<Arc<dyn Sink>, Status> {
        let sink = self.sink().filter(|_| !self.stop.is_cancelled());
        sink.ok_or_else(|| Status::unavailable("the member is starting or stopping"))
    }

    /// Makes this the link from a peer; an earlier one is over, for the peer would
    /// not have made another. Whoever is not known is dialled too, so that it hears
    /// the answers (etcd: rafthttp, AddRemote).
    fn welcome(self: &Arc<Self>, caller: Caller) -> CancellationToken {
        let over = self.stop.child_token();
        let mut book = self.book();
        let book = &mut *book;
        let inbound = Inbound { over: over.clone() };
        if let Some(earlier) = book.inbound.insert(caller.id, inbound) {
            earlier.end();
        }
        match book.links.get(&caller.id) {
            Some(link) => link.seen(),
            None if caller.urls.is_empty() || book.guests.len() >= GUESTS_MAX => {}
            None => {
                let Caller { id, urls } = caller;
                tracing::info!(peer = %format!("{id:x}"), ?urls, "a member that is not known yet has dialled");
                self.add_link(book, &Address { id, urls });
                book.guests.insert(id);
            }
        }
        over
    }
}

/// Takes frames from a peer until the link ends.
struct Receiver {
    inner: Arc<Inner>,
    sink: Arc<dyn Sink>,
    from: u64,
    over: CancellationToken,
    meters: PeerMeters,
    replies: mpsc::Sender<Result<LinkReply, Status>>,
}

impl Receiver {
    async fn run(self, mut frames: Streaming<Frame>) {
        let why = loop {
            let silence = SILENCE_ELECTIONS * self.inner.election_timeout;
            let next = tokio::time::timeout(silence, frames.message());
            let frame = tokio::select! {
                () = self.over.cancelled() => break self.parting(),
                frame = next => frame,
            };
            let frame = match frame {
                Ok(Ok(Some(frame))) => frame,
                Ok(Ok(None)) => return,
                Ok(Err(_gone)) => {
                    self.meters.received_failures.inc();
                    return;
                }
                Err(_silent) => break Status::deadline_exceeded("nothing came for too long"),
            };
            if let Err(status) = self.take(frame) {
                self.meters.received_failures.inc();
                break status;
            }
        };
        // Whoever does not read any more need not know.
        let _unread = self.replies.try_send(Err(why));
    }

    /// Says why a link is ended from here.
    fn parting(&self) -> Status {
        match self.inner.book().removed.contains(&self.from) {
            true => Status::permission_denied(REMOVED),
            false => Status::aborted("a newer link has taken the place of this one"),
        }
    }

    fn take(&self, frame: Frame) -> Result<(), Status> {
        let Frame { notes, probe } = frame;
        self.meters.received_bytes.inc_by(notes.len() as u64);
        let notes = match notes.len() < SHARE_BYTES {
            true => Bytes::copy_from_slice(&notes),
            false => notes,
        };
        let mut notes = Note::decode_all(notes).map_err(|error| {
            let peer = format!("{:x}", self.from);
            tracing::warn!(%peer, %error, "a peer sent a frame that cannot be read");
            Status::data_loss(error.to_string())
        })?;
        notes.retain(|note| self.is_for_me(note));
        if !notes.is_empty() {
            self.sink.notes(self.from, notes);
        }
        if probe != 0 {
            let _dropped = self.replies.try_send(Ok(LinkReply { probe }));
        }
        Ok(())
    }

    /// Says whether a message of raft is from whom it came, and for this member.
    fn is_for_me(&self, note: &Note) -> bool {
        let Note::Raft(message) = note else {
            return true;
        };
        let fits = message.from == self.from && message.to == self.inner.ids.member;
        if !fits {
            tracing::warn!(
                peer = %format!("{:x}", self.from),
                from = %format!("{:x}", message.from),
                to = %format!("{:x}", message.to),
                "a peer sent a message that is not its own, or not for this member"
            );
        }
        fits
    }
}

#[tonic::async_trait]
impl Peer for Peers {
    type LinkStream = ReceiverStream<Result<LinkReply, Status>>;

    async fn link(
        &self,
        request: Request<Streaming<Frame>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let inner = &self.inner;
        let (caller, sink) = inner.admit(request.metadata())?;
        let from = caller.id;
        let (replies, answers) = mpsc::channel(REPLIES_WAITING_MAX);
        let receiver = Receiver {
            inner: Arc::clone(inner),
            sink,
            from,
            meters: inner.meters.of(inner.ids.member, from),
            over: inner.welcome(caller),
            replies,
        };
        tokio::spawn(receiver.run(request.into_inner()));
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<pb::Chunk>>,
    ) -> Result<Response<pb::SnapshotReply>, Status> {
        let (caller, sink) = self.inner.admit(request.metadata())?;
        snapshot::receive(&self.inner, caller.id, sink, request.into_inner()).await?;
        Ok(Response::new(pb::SnapshotReply {}))
    }

    async fn lease_renew(
        &self,
        request: Request<pb::LeaseRenewRequest>,
    ) -> Result<Response<pb::LeaseRenewReply>, Status> {
        let (_, sink) = self.inner.admit(request.metadata())?;
        let ttl = sink.lease_renew(request.into_inner().id).await?;
        Ok(Response::new(pb::LeaseRenewReply { ttl }))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveReply>, Status> {
        let (_, sink) = self.inner.admit(request.metadata())?;
        let reply = sink.lease_time_to_live(request.into_inner()).await?;
        Ok(Response::new(reply))
    }

    async fn hash_kv(
        &self,
        request: Request<pb::HashKvRequest>,
    ) -> Result<Response<pb::HashKvReply>, Status> {
        let (_, sink) = self.inner.admit(request.metadata())?;
        let reply = sink.hash_kv(request.into_inner().revision).await?;
        Ok(Response::new(reply))
    }

    async fn members(
        &self,
        request: Request<pb::MembersRequest>,
    ) -> Result<Response<pb::MembersReply>, Status> {
        // A member that joins does not know the cluster yet.
        caller::check_version(request.metadata())?;
        let reply = self.inner.open_sink()?.members().await?;
        Ok(Response::new(reply))
    }

    async fn change_membership(
        &self,
        request: Request<pb::ChangeMembershipRequest>,
    ) -> Result<Response<pb::ChangeMembershipReply>, Status> {
        let (_, sink) = self.inner.admit(request.metadata())?;
        let result = sink.change_membership(request.into_inner().change).await?;
        Ok(Response::new(pb::ChangeMembershipReply { result }))
    }

    async fn status(
        &self,
        request: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusReply>, Status> {
        let (_, sink) = self.inner.admit(request.metadata())?;
        Ok(Response::new(sink.status().await?))
    }
}
