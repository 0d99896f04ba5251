//! Watch streams, and how to know that one has told everything.
//!
//! How events are batched into messages is timing, and no promise. So a stream is
//! read until it is known to have told all there is, and then what it said is put
//! together by watch: the order within one watch is the promise that is compared.
//!
//! A stream has told everything once no watcher reads history any more and the
//! event of one more put, which every stream watches for, has come: watchers that
//! are up to date are told in the order of revisions. A stream that may not watch
//! that key, or a store that takes no puts, leaves only silence to go by.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use proto::etcdserverpb::{self as pb, watch_request::RequestUnion};
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use super::{
    answer::{Answer, Part, Refusal},
    side::{self, Side},
    wire::{self, Raw},
};

/// The key whose put tells a stream's end of news.
pub(crate) const MARK_KEY: &[u8] = b"~settled";

/// The watch on it; no program uses this id.
const MARK_WATCH: i64 = 999_999_999;

/// How long something a stream must say may take.
const WORD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a stream that cannot be marked must be silent.
const SILENCE: Duration = Duration::from_millis(300);

/// One watch stream of one member.
pub(crate) struct Stream {
    requests: mpsc::UnboundedSender<Bytes>,
    replies: mpsc::UnboundedReceiver<Result<Bytes, Status>>,
    /// What was said since it was compared last.
    log: Vec<pb::WatchResponse>,
    /// Watches that were created and not cancelled by the client, and where each
    /// starts.
    live: BTreeMap<i64, i64>,
    /// Where the watch asked for last starts.
    start: i64,
    /// Watches from a key on without end, and whether the one asked for last is.
    open_ended: (BTreeSet<i64>, bool),
    end: Option<Refusal>,
    /// Whether the put of [`MARK_KEY`] is told here.
    pub(crate) marked: bool,
    /// The revision of the newest such put that was told.
    mark: i64,
}

impl Stream {
    /// Opens a stream and starts the watch for the mark.
    pub(crate) async fn open(side: &Side, user: &str) -> Self {
        let method = wire::method("Watch/Watch").expect("a method of our own .proto text");
        let (requests, words) = mpsc::unbounded_channel();
        let (told, replies) = mpsc::unbounded_channel();
        let request = side.request(UnboundedReceiverStream::new(words), user);
        let grpc = side.grpc().await;
        let path = side::path(&method);
        // The answer's head may come only with the first word, so it is not waited for.
        tokio::spawn(async move {
            let mut stream = match grpc {
                Ok(mut grpc) => match grpc.streaming(request, path, Raw).await {
                    Ok(stream) => stream.into_inner(),
                    Err(status) => return drop(told.send(Err(status))),
                },
                Err(status) => return drop(told.send(Err(status))),
            };
            while let Some(reply) = stream.message().await.transpose() {
                let ended = reply.is_err();
                if told.send(reply).is_err() || ended {
                    return;
                }
            }
        });
        let mut stream = Self {
            requests,
            replies,
            log: Vec::new(),
            live: BTreeMap::new(),
            start: 0,
            open_ended: (BTreeSet::new(), false),
            end: None,
            marked: false,
            mark: 0,
        };
        stream.say(&RequestUnion::CreateRequest(pb::WatchCreateRequest {
            key: Bytes::from_static(MARK_KEY),
            watch_id: MARK_WATCH,
            ..pb::WatchCreateRequest::default()
        }));
        let created = stream.hear(WORD_TIMEOUT, |reply| reply.created).await;
        stream.marked = created && stream.live.contains_key(&MARK_WATCH);
        stream.log.clear();
        stream
    }

    /// Says whether a watch goes from a key on without end.
    pub(crate) fn is_open_ended(&self, watch: i64) -> bool {
        self.open_ended.0.contains(&watch)
    }

    /// Says one thing to the server. An ended stream hears nothing; its end is told.
    pub(crate) fn say(&mut self, request: &RequestUnion) {
        if let RequestUnion::CreateRequest(create) = request {
            self.start = create.start_revision;
            self.open_ended.1 = create.range_end.as_ref() == [0];
        }
        let request = pb::WatchRequest {
            request_union: Some(request.clone()),
        };
        let _ended = self.requests.send(request.encode_to_vec().into());
    }

    /// Listens until a reply is the one waited for; says whether it came.
    pub(crate) async fn hear(
        &mut self,
        within: Duration,
        mut wanted: impl FnMut(&pb::WatchResponse) -> bool,
    ) -> bool {
        let deadline = Instant::now() + within;
        while self.end.is_none() {
            let Ok(reply) = tokio::time::timeout_at(deadline, self.replies.recv()).await else {
                return false;
            };
            if let Some(reply) = self.take(reply) {
                let found = wanted(&reply);
                self.keep(reply);
                if found {
                    return true;
                }
            }
        }
        false
    }

    fn take(&mut self, reply: Option<Result<Bytes, Status>>) -> Option<pb::WatchResponse> {
        let reply = reply.unwrap_or_else(|| Err(Status::ok("the stream ended")));
        let reply = reply.and_then(|bytes| {
            pb::WatchResponse::decode(bytes).map_err(|error| Status::unknown(error.to_string()))
        });
        reply
            .map_err(|status| self.end = Some(Refusal::from(status)))
            .ok()
    }

    fn keep(&mut self, reply: pb::WatchResponse) {
        let id = reply.watch_id;
        if reply.created && !reply.canceled {
            self.live.insert(id, self.start);
            if self.open_ended.1 {
                self.open_ended.0.insert(id);
            }
        }
        // One that compaction ended keeps its id until the client cancels it.
        if reply.canceled && reply.compact_revision == 0 {
            self.live.remove(&id);
        }
        if id == MARK_WATCH {
            let told = reply.events.iter().filter_map(|event| event.kv.as_ref());
            self.mark = told.map(|kv| kv.mod_revision).fold(self.mark, i64::max);
        } else {
            self.log.push(reply);
        }
    }

    /// Listens until the put of the mark at this revision was told.
    pub(crate) async fn hear_mark(&mut self, revision: i64) {
        if self.marked && self.mark < revision {
            let at = |kv: &proto::mvccpb::KeyValue| kv.mod_revision >= revision;
            self.hear(WORD_TIMEOUT, |reply| {
                reply.watch_id == MARK_WATCH
                    && reply.events.iter().filter_map(|e| e.kv.as_ref()).any(at)
            })
            .await;
        }
    }

    /// Listens until nothing was said for a while.
    pub(crate) async fn hear_silence(&mut self) {
        while self.hear(SILENCE, |_| true).await {}
    }

    /// Whether every version of etcd answers when asked for progress. Since 3.5.13
    /// a watch that starts after this revision keeps the answer back, and a stream
    /// without watches gets none (mvcc, progressIfSync); before, it always came.
    pub(crate) fn tells_progress(&self, head: i64) -> bool {
        !self.live.is_empty() && self.live.values().all(|start| *start <= head)
    }

    /// Listens for the answer to a word, where one must come. Which watches were
    /// `live` decides, before the word was said.
    pub(crate) async fn hear_answer(&mut self, request: &RequestUnion, live: bool) {
        match request {
            RequestUnion::CreateRequest(_) => {
                self.hear(WORD_TIMEOUT, |reply| reply.created).await;
            }
            RequestUnion::CancelRequest(cancel) if live => {
                let canceled =
                    |reply: &pb::WatchResponse| reply.canceled && reply.watch_id == cancel.watch_id;
                self.hear(WORD_TIMEOUT, canceled).await;
            }
            // A watch nobody knows is cancelled without a word.
            RequestUnion::CancelRequest(_) => {}
            RequestUnion::ProgressRequest(_) => {
                let progress = |reply: &pb::WatchResponse| reply.watch_id == -1 && !reply.created;
                self.hear(SILENCE, progress).await;
            }
        }
    }

    /// Whether this is about a watch the stream has, or about none.
    pub(crate) fn knows(&self, request: &RequestUnion) -> bool {
        match request {
            RequestUnion::CancelRequest(cancel) => self.live.contains_key(&cancel.watch_id),
            _ => true,
        }
    }

    /// Takes what was said since the last time, put together by watch.
    pub(crate) fn told(&mut self, label: &str) -> Answer {
        let mut parts = by_watch(label, std::mem::take(&mut self.log));
        if let Some(end) = &self.end {
            parts.push(Part::new(format!("{label} ended"), Err(end.clone())));
        }
        parts
    }
}

/// Puts together what was said to each watch: the events between two other words
/// make one message, whatever number of messages they came in.
fn by_watch(label: &str, log: Vec<pb::WatchResponse>) -> Answer {
    let mut watches: BTreeMap<String, Vec<pb::WatchResponse>> = BTreeMap::new();
    let mut parts = Vec::new();
    for mut reply in log {
        let id = reply.watch_id;
        let events = !reply.events.is_empty();
        let about = match (reply.created, reply.canceled) {
            (true, true) => "refused".to_owned(),
            (false, false) if !events => format!("progress {id}"),
            _ => format!("watch {id}"),
        };
        let said = watches.entry(about).or_default();
        if events {
            parts.extend(impossible(label, &reply));
            // Which revision the batch was sent at, and where it was cut, is timing.
            reply.header = None;
            reply.fragment = false;
            // Two watches are told of one revision in no certain order, so which of
            // these was told before the mark is timing too.
            reply.events.retain(|event| !is_mark(event));
            if reply.events.is_empty() {
                continue;
            }
        }
        match said.last_mut() {
            Some(last) if events && !last.events.is_empty() => {
                last.events.append(&mut reply.events)
            }
            _ => said.push(reply),
        }
    }
    let kind = wire::message("WatchResponse").expect("a message of our own .proto text");
    for (about, said) in watches {
        for (at, reply) in said.iter().enumerate() {
            let label = format!("{label} {about}[{at}]");
            parts.push(Part::new(label, Ok(wire::describe(kind.clone(), reply))));
        }
    }
    parts
}

fn is_mark(event: &proto::mvccpb::Event) -> bool {
    event.kv.as_ref().is_some_and(|kv| kv.key == MARK_KEY)
}

/// Says what no batch may be: told before its last revision was reached, or out of
/// order.
fn impossible(label: &str, reply: &pb::WatchResponse) -> Option<Part> {
    let kvs = reply.events.iter().filter_map(|event| event.kv.as_ref());
    let revisions: Vec<i64> = kvs.map(|kv| kv.mod_revision).collect();
    let header = reply.header.as_ref().map_or(0, |header| header.revision);
    let wrong = if !revisions.is_sorted() {
        "events out of the order of revisions"
    } else if revisions.last().is_some_and(|last| header < *last) {
        "a header below the revision of its events"
    } else {
        return None;
    };
    let label = format!("{label} watch {} sense", reply.watch_id);
    Some(Part::missing(label, wrong))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::mvccpb;

    fn reply(watch_id: i64, header: i64, revisions: &[i64]) -> pb::WatchResponse {
        let event = |mod_revision: &i64| mvccpb::Event {
            kv: Some(mvccpb::KeyValue {
                mod_revision: *mod_revision,
                ..mvccpb::KeyValue::default()
            }),
            ..mvccpb::Event::default()
        };
        pb::WatchResponse {
            header: Some(pb::ResponseHeader {
                revision: header,
                ..pb::ResponseHeader::default()
            }),
            watch_id,
            created: revisions.is_empty(),
            events: revisions.iter().map(event).collect(),
            ..pb::WatchResponse::default()
        }
    }

    #[test]
    fn batching_makes_no_difference() {
        let one = vec![
            reply(0, 1, &[]),
            reply(1, 1, &[]),
            reply(0, 4, &[2, 3, 4]),
            reply(1, 4, &[3]),
        ];
        let other = vec![
            reply(0, 1, &[]),
            reply(0, 2, &[2]),
            reply(1, 1, &[]),
            reply(1, 3, &[3]),
            reply(0, 4, &[3]),
            reply(0, 4, &[4]),
        ];
        assert_eq!(by_watch("1", one.clone()), by_watch("1", other));
        let lost = vec![reply(0, 1, &[]), reply(1, 1, &[]), reply(0, 4, &[2, 4])];
        assert_ne!(by_watch("1", one), by_watch("1", lost));
    }

    #[test]
    fn what_cannot_be_is_a_difference() {
        let early = by_watch("1", vec![reply(0, 1, &[2])]);
        assert!(early[0].to_string().contains("a header below"), "{early:?}");
        let disorder = by_watch("1", vec![reply(0, 9, &[4, 3])]);
        assert!(disorder[0].to_string().contains("order"), "{disorder:?}");
    }
}
