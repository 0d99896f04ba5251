//! One watch on a stream of its own, so that its progress requests concern
//! nothing else.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use meta::keys;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::watch_client::WatchClient;
use proto::mvccpb;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

use super::channel::{Call, error};
use super::{ANSWER_BYTES_MAX, own, revision, signed, unsigned};
use crate::storage::store::{StoreError, StoreEvent, StoreWatch, WatchBatch};

/// How long the server may take to confirm a watch.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests on their way to the server; when full, a progress request is
/// dropped, and asked for again by who needs it.
const REQUESTS_MAX: usize = 8;

pub(super) struct EtcdWatch {
    requests: mpsc::Sender<pb::WatchRequest>,
    replies: Streaming<pb::WatchResponse>,
}

/// Opens a watch and waits for its confirmation.
pub(super) async fn open(
    channel: Channel,
    prefix: &str,
    from: u64,
) -> Result<EtcdWatch, StoreError> {
    let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
    let create = pb::WatchCreateRequest {
        key: Bytes::copy_from_slice(prefix.as_bytes()),
        range_end: keys::prefix_end(prefix.as_bytes()).into(),
        start_revision: signed(from),
        progress_notify: true,
        ..pb::WatchCreateRequest::default()
    };
    let create = request(pb::watch_request::RequestUnion::CreateRequest(create));
    let ended = |_| StoreError::Ended("the stream closed at once".to_owned());
    requests.send(create).await.map_err(ended)?;
    let mut request = tonic::Request::new(ReceiverStream::new(receiver));
    // Ends the watch when its server loses the leader, instead of leaving it
    // silent on the wrong side of a partition.
    request
        .metadata_mut()
        .insert("hasleader", MetadataValue::from_static("true"));
    let opening = async {
        let mut client = WatchClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        let replies = client.watch(request).await;
        let replies = replies.map_err(|status| error(Call::Repeatable, &status))?;
        let replies = replies.into_inner();
        let mut watch = EtcdWatch { requests, replies };
        let first = watch.reply().await?;
        if first.created {
            Ok(watch)
        } else {
            Err(StoreError::Ended("the watch was not confirmed".to_owned()))
        }
    };
    match timeout(CONFIRM_TIMEOUT, opening).await {
        Ok(opened) => opened,
        Err(_elapsed) => Err(StoreError::Ended(
            "the watch was not confirmed in time".to_owned(),
        )),
    }
}

fn request(union: pb::watch_request::RequestUnion) -> pb::WatchRequest {
    pb::WatchRequest {
        request_union: Some(union),
    }
}

impl EtcdWatch {
    async fn reply(&mut self) -> Result<pb::WatchResponse, StoreError> {
        let reply = match self.replies.message().await {
            Ok(Some(reply)) => reply,
            Ok(None) => return Err(StoreError::Ended("the server closed it".to_owned())),
            Err(status) => {
                return Err(match error(Call::Repeatable, &status) {
                    StoreError::Unavailable(e) | StoreError::Other(e) => StoreError::Ended(e),
                    known => known,
                });
            }
        };
        match (reply.canceled, unsigned(reply.compact_revision)) {
            (_, compacted) if compacted > 0 => Err(StoreError::Compacted(Some(compacted))),
            (true, _) => Err(StoreError::Ended(reply.cancel_reason)),
            (false, _) => Ok(reply),
        }
    }
}

#[async_trait]
impl StoreWatch for EtcdWatch {
    async fn next(&mut self) -> Result<WatchBatch, StoreError> {
        let reply = self.reply().await?;
        if reply.events.is_empty() {
            return Ok(WatchBatch::Progress(revision(reply.header.as_ref())));
        }
        let events = reply.events.into_iter().filter_map(|event| {
            let deleted = event.r#type() == mvccpb::event::EventType::Delete;
            let kv = event.kv?;
            Some(StoreEvent {
                key: String::from_utf8_lossy(&kv.key).into_owned(),
                value: (!deleted).then(|| own(&kv.value)),
                revision: unsigned(kv.mod_revision),
            })
        });
        Ok(WatchBatch::Events(events.collect()))
    }

    fn request_progress(&mut self) {
        let progress =
            pb::watch_request::RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
        // Full or closed: see REQUESTS_MAX, and the next reply.
        let _ = self.requests.try_send(request(progress));
    }
}
