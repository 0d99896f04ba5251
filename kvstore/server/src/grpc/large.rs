//! Large replies: written apart from the runtime's thread, sent in pieces, bounded.
//!
//! A list of a million pairs takes tens of milliseconds to put on the wire's form,
//! and nobody else may wait for that. So a thread for blocking work makes the whole
//! message, and what tonic would have encoded is put in its place on the way out.
//!
//! The messages that are made and not yet sent share a budget of bytes. Whoever finds
//! it spent waits for a while; whoever finds too many waiting, or waited in vain, is
//! told "too many requests". A client that does not read has its reply cut off after
//! a while, so that it cannot keep the budget from others.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{BufMut as _, Bytes};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Response, Status, body::Body};

use crate::{edge::call::PREFIX_BYTES, rpc_error::RpcError};

/// Messages up to this size are encoded where they are: some tens of microseconds.
const SMALL_BYTES: usize = 128 << 10;

/// Pairs that are translated where they are: likewise.
const FEW_PAIRS: usize = 1_000;

/// Bytes of large messages that may be held for clients, all together. One message
/// larger than this is sent when it is the only one.
const HELD_BYTES_MAX: usize = 256 << 20;

/// The budget is counted in units of this, since a semaphore's count is small.
const UNIT_BYTES: usize = 4 << 10;

/// Replies that may wait for the budget; each holds its pairs.
const WAITING_MAX: usize = 8;

/// How long one waits for it (etcd: ReqTimeout without its elections).
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A client that takes nothing for so long is cut off.
const STALL_MAX: Duration = Duration::from_secs(30);

/// Bytes handed to the connection at a time, so that others on it, and other
/// connections, get their turn.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// The most gRPC can announce (grpc-go: `MaxSendMsgSize`, which etcd sets to the
/// largest).
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// The budget.
#[derive(Debug)]
pub(crate) struct LargeReplies {
    held: Arc<Semaphore>,
    waiting: Semaphore,
    wait_max: Duration,
    stall_max: Duration,
}

impl Default for LargeReplies {
    fn default() -> Self {
        Self {
            held: Arc::new(Semaphore::new(HELD_BYTES_MAX / UNIT_BYTES)),
            waiting: Semaphore::new(WAITING_MAX),
            wait_max: WAIT_MAX,
            stall_max: STALL_MAX,
        }
    }
}

impl LargeReplies {
    /// Makes a reply of about so many pairs; if it is large, elsewhere.
    pub(super) async fn reply<T: Message + Default + 'static>(
        &self,
        pairs: usize,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let (message, bytes) = match pairs > FEW_PAIRS {
            true => apart(move || measured(make())).await?,
            false => measured(make()),
        };
        if bytes <= SMALL_BYTES {
            return Ok(Response::new(message));
        }
        let share = self.share(bytes).await?;
        let encoded = apart(move || framed(&message, bytes)).await?;
        Ok(self.prepared(encoded, Some(share)))
    }

    /// Makes a reply of a message that is encoded.
    pub(super) async fn encoded<T: Message + Default>(
        &self,
        encoded: Encoded,
    ) -> Result<Response<T>, Status> {
        let share = match encoded.bytes > SMALL_BYTES {
            true => Some(self.share(encoded.bytes).await?),
            false => None,
        };
        Ok(self.prepared(encoded, share))
    }

    fn prepared<T: Message + Default>(
        &self,
        encoded: Encoded,
        share: Option<OwnedSemaphorePermit>,
    ) -> Response<T> {
        let is_large = share.is_some();
        let held = Arc::new(Mutex::new(Some(Held {
            pieces: encoded.pieces,
            _share: share,
        })));
        if is_large {
            tokio::spawn(cut_off_when_stalled(Arc::downgrade(&held), self.stall_max));
        }
        let mut response = Response::new(T::default());
        response.extensions_mut().insert(Prepared(held));
        response
    }

    /// Takes a part of the budget for a message, unless it is too large to be sent.
    async fn share(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Status> {
        if bytes > MESSAGE_BYTES_MAX {
            return Err(Status::resource_exhausted(format!(
                "grpc: trying to send message larger than max ({bytes} vs. {MESSAGE_BYTES_MAX})"
            )));
        }
        let too_many = || Status::from(RpcError::from(mvcc::Error::TooManyRequests));
        let units = bytes.min(HELD_BYTES_MAX).div_ceil(UNIT_BYTES);
        let units = u32::try_from(units).map_err(|_never| too_many())?;
        let held = Arc::clone(&self.held);
        if let Ok(share) = Arc::clone(&held).try_acquire_many_owned(units) {
            return Ok(share);
        }
        let _place = self.waiting.try_acquire().map_err(|_full| too_many())?;
        match tokio::time::timeout(self.wait_max, held.acquire_many_owned(units)).await {
            Ok(Ok(share)) => Ok(share),
            _ => Err(too_many()),
        }
    }
}

/// Does something on a thread for blocking work.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    // It panicked, or the runtime ends; the first was logged.
    let gone = |_gone| Status::from(RpcError::from(mvcc::Error::Stopped));
    tokio::task::spawn_blocking(work).await.map_err(gone)
}

fn measured<T: Message>(message: T) -> (T, usize) {
    let bytes = message.encoded_len();
    (message, bytes)
}

/// Encodes a message behind its prefix: not compressed, so many bytes.
fn framed(message: &impl Message, bytes: usize) -> Encoded {
    let mut out = Vec::with_capacity(PREFIX_BYTES + bytes);
    out.put_u8(0);
    // Not more than MESSAGE_BYTES_MAX.
    out.put_u32(bytes as u32);
    message.encode_raw(&mut out);
    let pieces = VecDeque::from([out.into()]);
    Encoded { pieces, bytes }
}

/// A message that is encoded, behind its prefix.
#[derive(Debug)]
pub(super) struct Encoded {
    /// Prefix and message, cut anywhere.
    pub(super) pieces: VecDeque<Bytes>,
    /// Bytes of the message.
    pub(super) bytes: usize,
}

/// Is what is left to send, with its part of the budget.
#[derive(Debug)]
struct Held {
    pieces: VecDeque<Bytes>,
    _share: Option<OwnedSemaphorePermit>,
}

impl Held {
    /// Takes what is handed to the connection next.
    fn next(&mut self) -> Option<Bytes> {
        let front = self.pieces.front_mut()?;
        match front.len() > PIECE_BYTES {
            true => Some(front.split_to(PIECE_BYTES)),
            false => self.pieces.pop_front(),
        }
    }

    /// Counts the bytes that are left.
    fn left(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

type Shared = Arc<Mutex<Option<Held>>>;

fn lock(held: &Mutex<Option<Held>>) -> MutexGuard<'_, Option<Held>> {
    // Nothing is half done when its holder panics.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets go of what a client does not take.
async fn cut_off_when_stalled(held: Weak<Mutex<Option<Held>>>, stall_max: Duration) {
    let mut before = usize::MAX;
    loop {
        tokio::time::sleep(stall_max).await;
        let Some(held) = held.upgrade() else { return };
        let mut held = lock(&held);
        let Some(left) = held.as_ref().map(Held::left) else {
            return;
        };
        if left == before {
            tracing::warn!(left, "a client does not read its reply; cut it off");
            *held = None;
            return;
        }
        before = left;
    }
}

/// Travels with a reply whose body it is to replace.
#[derive(Clone, Debug)]
struct Prepared(Shared);

/// Puts a message that was made elsewhere in the place of an empty one.
pub(super) fn put_in_place(mut reply: http::Response<Body>) -> http::Response<Body> {
    match reply.extensions_mut().remove::<Prepared>() {
        None => reply,
        Some(Prepared(held)) => reply.map(|_empty| Body::new(Pieces { held, ended: false })),
    }
}

/// Is a reply of one message, in pieces.
struct Pieces {
    held: Shared,
    ended: bool,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let status = {
            let mut held = lock(&self.held);
            match held.as_mut().map(Held::next) {
                Some(Some(piece)) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                Some(None) => {
                    *held = None;
                    Status::new(tonic::Code::Ok, "")
                }
                None => RpcError::from(mvcc::Error::Timeout).into(),
            }
        };
        self.ended = true;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(
            status
                .add_header(&mut trailers)
                .map(|()| Frame::trailers(trailers)),
        ))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use proto::{etcdserverpb as pb, mvccpb};

    use super::*;

    fn message(pairs: usize, value: usize) -> pb::RangeResponse {
        let kv = mvccpb::KeyValue {
            key: "k".into(),
            value: vec![7; value].into(),
            ..mvccpb::KeyValue::default()
        };
        pb::RangeResponse {
            kvs: vec![kv; pairs],
            ..pb::RangeResponse::default()
        }
    }

    async fn body(response: Response<pb::RangeResponse>) -> http::Response<Body> {
        let (metadata, message, extensions) = response.into_parts();
        assert!(metadata.is_empty());
        assert_eq!(message, pb::RangeResponse::default());
        let mut reply = http::Response::new(Body::empty());
        *reply.extensions_mut() = extensions;
        put_in_place(reply)
    }

    #[tokio::test]
    async fn a_large_message_arrives_whole_and_a_small_one_is_left_alone() {
        let replies = LargeReplies::default();
        let small = replies.reply(1, || message(1, 10)).await.unwrap();
        assert_eq!(small.into_inner(), message(1, 10));

        let large = replies.reply(3, || message(3, 100_000)).await.unwrap();
        assert!(replies.held.available_permits() < HELD_BYTES_MAX / UNIT_BYTES);
        let whole = body(large).await.into_body().collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["grpc-status"], "0");
        let bytes = whole.to_bytes();
        let len = u32::from_be_bytes(bytes[1..PREFIX_BYTES].try_into().unwrap());
        assert_eq!(len as usize, bytes.len() - PREFIX_BYTES);
        let read = pb::RangeResponse::decode(&bytes[PREFIX_BYTES..]).unwrap();
        assert_eq!(read, message(3, 100_000));
        assert_eq!(
            replies.held.available_permits(),
            HELD_BYTES_MAX / UNIT_BYTES
        );
    }

    #[tokio::test]
    async fn what_is_held_is_bounded_and_who_does_not_read_is_cut_off() {
        let replies = Arc::new(LargeReplies {
            wait_max: Duration::from_millis(50),
            stall_max: Duration::from_millis(50),
            ..LargeReplies::default()
        });
        let all = HELD_BYTES_MAX / UNIT_BYTES;
        let others = Arc::clone(&replies.held)
            .try_acquire_many_owned(all as u32)
            .unwrap();
        let ask = |replies: Arc<LargeReplies>| {
            tokio::spawn(async move { replies.reply(1, || message(1, 200_000)).await })
        };
        let waiting: Vec<_> = (0..=WAITING_MAX)
            .map(|_| ask(Arc::clone(&replies)))
            .collect();
        // One more than may wait, so one is refused at once, the others in time.
        for waiting in waiting {
            let status = waiting.await.unwrap().unwrap_err();
            assert_eq!(status.code(), tonic::Code::ResourceExhausted);
            assert_eq!(status.message(), "etcdserver: too many requests");
        }
        // Who waits gets it as soon as it is there.
        let patient = Arc::new(LargeReplies {
            held: Arc::clone(&replies.held),
            stall_max: Duration::from_millis(50),
            ..LargeReplies::default()
        });
        let waits = ask(patient);
        drop(others);
        let large = waits.await.unwrap().unwrap();
        // It is not read, so others have the whole budget again before long.
        let again = replies.held.acquire_many(all as u32);
        let again = tokio::time::timeout(Duration::from_secs(60), again).await;
        drop(again.unwrap().unwrap());
        let cut = body(large).await.into_body().collect().await.unwrap();
        assert_eq!(cut.trailers().unwrap()["grpc-status"], "14");
    }
}
