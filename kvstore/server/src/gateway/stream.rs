//! Calls that stream: JSON texts in, one line of JSON for each reply out.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use http::{HeaderMap, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use prost_reflect::MessageDescriptor;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::{
    error, failed, frame, grpc_answer, json,
    messages::{Replies, Texts},
    request,
    routes::Route,
};
use crate::edge::{
    Edge,
    answer::{self, Answer, JSON},
    call::{self, CallSource},
};

/// Requests read ahead of the service. A service that does not read is not read for.
const REQUESTS_AHEAD: usize = 1;

/// The replies of a call as lines, and the requests that are read meanwhile. All of it
/// ends when it is dropped.
pub(super) struct Lines {
    requests: Option<BoxFuture<'static, ()>>,
    replies: Replies,
    output: MessageDescriptor,
    /// Whether a reply is one of many.
    many: bool,
    ended: bool,
}

/// Is why a call gave no lines.
pub(super) enum Failure {
    /// Its first request was not understood.
    Request(Status),
    /// The service refused it.
    Call(Status),
}

/// Begins a call whose first request is read already, as grpc-gateway does: what is
/// wrong with it is told in the answer's status, what is wrong later ends the
/// requests without a word.
pub(super) async fn begin(
    edge: &Arc<Edge>,
    route: &Arc<Route>,
    headers: HeaderMap,
    mut texts: Texts,
) -> Result<Lines, Failure> {
    let first = texts.next(&route.input).await.map_err(|status| {
        Failure::Request(match status.code() {
            // Where one request is all there is, it is the argument.
            Code::Unknown if !route.streams_requests => Status::invalid_argument(status.message()),
            _ => status,
        })
    })?;
    // One request is sent even if there is nothing to say.
    let empty = || (!route.streams_requests).then(|| route.empty_request());
    let first = first.or_else(empty).map(|first| frame(&first));
    let first = first.transpose().map_err(Failure::Request)?;
    let (source, requests) = if route.streams_requests {
        let (send, queue) = mpsc::channel(REQUESTS_AHEAD);
        let requests = pass_on(Arc::clone(route), first, texts, send);
        (CallSource::Queue(queue), Some(requests.boxed()))
    } else {
        (CallSource::Once(first), None)
    };
    let reply = call::call(edge, request(route, headers, source)).await;
    if let Some(status) = failed(reply.headers()) {
        return Err(Failure::Call(status));
    }
    Ok(Lines {
        requests,
        replies: Replies::new(reply.into_body()),
        output: route.output.clone(),
        many: route.streams_replies,
        ended: false,
    })
}

/// Passes requests on until one is not understood or no more come.
async fn pass_on(
    route: Arc<Route>,
    first: Option<Bytes>,
    mut texts: Texts,
    send: mpsc::Sender<Bytes>,
) {
    // A call without a first request has none at all.
    let mut next = first;
    while let Some(framed) = next {
        if send.send(framed).await.is_err() {
            return;
        }
        next = match texts.next(&route.input).await {
            Ok(Some(message)) => frame(&message).ok(),
            Ok(None) => None,
            Err(status) => {
                tracing::debug!(%status, "a stream's request was not understood");
                None
            }
        };
    }
}

impl Lines {
    /// Returns the next line, without its end; an error comes last.
    pub(super) async fn next(&mut self) -> Option<Result<String, Status>> {
        std::future::poll_fn(|cx| self.poll_line(cx)).await
    }

    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<String, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(requests) = &mut self.requests
            && Pin::new(requests).poll(cx).is_ready()
        {
            self.requests = None;
        }
        let reply = std::task::ready!(self.replies.poll_next(cx));
        let line = reply.map(|reply| {
            let json = json(reply?, &self.output)?;
            Ok(match self.many {
                true => format!("{{\"result\":{json}}}"),
                false => json,
            })
        });
        self.ended = !matches!(line, Some(Ok(_)));
        Poll::Ready(line)
    }
}

/// Answers a call that streams. The status of the answer waits for the first reply:
/// a call that fails at once has an error's.
pub(super) async fn answer(
    edge: &Arc<Edge>,
    route: &Arc<Route>,
    headers: HeaderMap,
    texts: Texts,
) -> Answer {
    let mut lines = match begin(edge, route, headers, texts).await {
        Ok(lines) => lines,
        Err(Failure::Request(status)) => return error::answer(&status),
        Err(Failure::Call(status)) => return refused(&status),
    };
    let first = match lines.next().await {
        Some(Ok(first)) => first,
        Some(Err(status)) => return refused(&status),
        None => return streamed(stream::empty()),
    };
    let rest = stream::unfold(lines, |mut lines| async {
        let line = lines.next().await?;
        let text = match line {
            Ok(line) => format!("{line}\n"),
            Err(status) => error::line(&status),
        };
        Some((text, lines))
    });
    let first = stream::once(std::future::ready(format!("{first}\n")));
    grpc_answer(streamed(first.chain(rest)))
}

fn refused(status: &Status) -> Answer {
    let line = error::line(status);
    let mut answer = streamed(stream::once(std::future::ready(line)));
    *answer.status_mut() = error::http_status(status.code());
    answer
}

fn streamed(lines: impl stream::Stream<Item = String> + Send + 'static) -> Answer {
    let frames = lines.map(|line| Ok::<_, tower::BoxError>(Frame::data(Bytes::from(line))));
    let body = answer::Body::Stream(StreamBody::new(frames).boxed_unsync());
    let mut answer = http::Response::new(body);
    *answer.status_mut() = StatusCode::OK;
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, JSON);
    answer
}
