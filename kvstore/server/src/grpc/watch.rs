//! Service Watch.

use std::sync::Arc;

use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use mvcc::watch::WatchCreate;
use proto::etcdserverpb::{
    self as pb, watch_create_request::FilterType, watch_request::RequestUnion,
};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;
use tonic::{
    Request, Response, Status, Streaming,
    server::{Grpc, StreamingService},
};

use super::watch_codec::{WatchCodec, WatchMessage};
use crate::{
    edge::{Reply, call::CallBody},
    handle::Handle,
    watch::{Session, replies},
};

/// Answers the one method of the service, with a codec that shares encoded events.
pub(super) async fn call(handle: &Handle, request: http::Request<CallBody>) -> Reply {
    Grpc::new(WatchCodec)
        .streaming(Watch(handle.clone()), request)
        .await
}

struct Watch(Handle);

impl StreamingService<pb::WatchRequest> for Watch {
    type Response = WatchMessage;
    type ResponseStream = BoxStream<'static, Result<WatchMessage, Status>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<pb::WatchRequest>>) -> Self::Future {
        let handle = self.0.for_caller(&request);
        let session = Session::open(&handle);
        let (fail, failed) = oneshot::channel();
        let follow = follow(Arc::clone(&session), request.into_inner(), fail);
        // Nobody is listened to once nobody listens.
        let listening = AbortOnDropHandle::new(tokio::spawn(follow));
        let header = self.0.header(0).unwrap_or_default();
        let shared = Arc::clone(&self.0.shared);
        let limit = shared.config.max_request_bytes + super::OVERHEAD_BYTES;
        let messages = replies(session).flat_map(move |reply| {
            let _held = &listening;
            let raft_term = shared.term.load(std::sync::atomic::Ordering::Relaxed);
            let header = pb::ResponseHeader {
                raft_term,
                revision: reply.revision,
                ..header
            };
            stream::iter(
                WatchMessage::of_reply(reply, header, limit)
                    .into_iter()
                    .map(Ok),
            )
        });
        // What was wrong with a request ends the stream, behind what was ready.
        let failure = stream::once(failed)
            .filter_map(|failed| std::future::ready(failed.ok().map(Err::<WatchMessage, Status>)));
        std::future::ready(Ok(Response::new(messages.chain(failure).boxed())))
    }
}

/// Carries out what the client asks. At the end of its requests the stream goes on,
/// as in etcd: who has said all may still listen. A request that cannot be read
/// ends it.
async fn follow(
    session: Arc<Session>,
    mut requests: Streaming<pb::WatchRequest>,
    fail: oneshot::Sender<Status>,
) {
    loop {
        session.heard().await;
        let request = match requests.message().await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(status) => {
                // A client that is gone needs no answer.
                let _gone = fail.send(status);
                return session.close();
            }
        };
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => session.create(create(request)),
            Some(RequestUnion::CancelRequest(request)) => session.cancel(request.watch_id),
            Some(RequestUnion::ProgressRequest(_)) => session.request_progress(),
            // etcd ignores it too.
            None => {}
        }
    }
}

fn create(request: pb::WatchCreateRequest) -> WatchCreate {
    let filters = |kind: FilterType| request.filters.contains(&i32::from(kind));
    WatchCreate {
        filter_put: filters(FilterType::Noput),
        filter_delete: filters(FilterType::Nodelete),
        key: request.key,
        range_end: request.range_end,
        start_revision: request.start_revision,
        watch_id: request.watch_id,
        progress_notify: request.progress_notify,
        prev_kv: request.prev_kv,
        fragment: request.fragment,
    }
}
