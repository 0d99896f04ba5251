//! Watches, as clients hold them: one stream, one watch, everything written down.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use checkers::history::{Blob, Event, Record, Told, WatchRequest, WatchTold};
use proto::etcdserverpb as pb;
use proto::etcdserverpb::watch_client::WatchClient;
use proto::mvccpb;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;

use super::wire::pair;
use super::world::World;

/// How long a watch may take to be created.
const CREATE_PATIENCE: Duration = Duration::from_secs(2);
/// How often a watch of everything asks how far it is.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// How long one waits before it is opened again.
const REOPEN_AFTER: Duration = Duration::from_millis(200);
/// The largest response taken.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// How a watch ended for its client, and where to go on.
pub(super) struct Ended {
    /// The first revision that was not seen.
    pub(super) next: i64,
}

/// Watches until told to stop, or until the stream ends.
pub(super) async fn watch(
    world: &Rc<World>,
    (process, member): (u32, usize),
    channel: Channel,
    request: &WatchRequest,
    whole: bool,
    stop: impl Future<Output = ()>,
) -> Ended {
    let id = world.open(process, member, request, whole);
    let told = |said: Told| {
        let at = world.now();
        world.record(Record::Told(WatchTold { id, at, said }));
    };
    let mut next = request.revision;
    let (asking, asked) = mpsc::unbounded_channel();
    // The receiver is held by the call, and so this cannot fail.
    let _sent = asking.send(create(request));
    let mut client = WatchClient::new(channel).max_decoding_message_size(RESPONSE_BYTES_MAX);
    let opened = client.watch(UnboundedReceiverStream::new(asked));
    let mut stream = match tokio::time::timeout(CREATE_PATIENCE, opened).await {
        Ok(Ok(stream)) => stream.into_inner(),
        _ => {
            told(Told::Lost);
            return Ended { next };
        }
    };
    tokio::pin!(stop);
    let mut progress = tokio::time::interval(PROGRESS_EVERY);
    progress.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let response = tokio::select! {
            response = stream.message() => response,
            () = &mut stop => return Ended { next },
            _ = progress.tick(), if request.progress => {
                let _ended = asking.send(ask_progress());
                continue;
            }
        };
        let Ok(Some(response)) = response else {
            told(Told::Lost);
            return Ended { next };
        };
        let revision = response.header.as_ref().map_or(0, |h| h.revision);
        let said = said(response, world.digest);
        let goes_on = follow(&said, request, &mut next);
        told(said);
        if !goes_on {
            return Ended { next };
        }
        if whole {
            world.saw(member, next - 1);
        }
        world.told(revision);
    }
}

/// Moves to the first revision not seen yet; says whether the watch goes on.
fn follow(said: &Told, request: &WatchRequest, next: &mut i64) -> bool {
    match said {
        Told::Events {
            events, fragment, ..
        } => {
            let last = events.last().map_or(0, |e| e.kv.modified);
            // The rest of a revision cut in two is still to come.
            *next = (*next).max(last + i64::from(!fragment));
        }
        Told::Progress { revision } => *next = (*next).max(revision + 1),
        Told::Created { revision } => {
            if request.revision == 0 {
                *next = revision + 1;
            }
        }
        Told::Compacted { revision } => {
            *next = *revision;
            return false;
        }
        _ => return false,
    }
    true
}

fn create(request: &WatchRequest) -> pb::WatchRequest {
    use pb::watch_create_request::FilterType;
    let mut filters = Vec::new();
    if request.no_put {
        filters.push(FilterType::Noput.into());
    }
    if request.no_delete {
        filters.push(FilterType::Nodelete.into());
    }
    let create = pb::WatchCreateRequest {
        key: request.key.0.clone(),
        range_end: request.end.0.clone(),
        start_revision: request.revision,
        progress_notify: request.progress,
        filters,
        prev_kv: request.prev_kv,
        fragment: request.fragment,
        ..pb::WatchCreateRequest::default()
    };
    union(pb::watch_request::RequestUnion::CreateRequest(create))
}

fn ask_progress() -> pb::WatchRequest {
    let ask = pb::WatchProgressRequest {};
    union(pb::watch_request::RequestUnion::ProgressRequest(ask))
}

fn union(union: pb::watch_request::RequestUnion) -> pb::WatchRequest {
    pb::WatchRequest {
        request_union: Some(union),
    }
}

/// Reads a response as etcd means it.
fn said(response: pb::WatchResponse, digest: fn(&[u8], Bytes) -> Bytes) -> Told {
    let revision = response.header.as_ref().map_or(0, |h| h.revision);
    if response.canceled {
        return match response.compact_revision {
            0 => Told::Canceled(response.cancel_reason.into()),
            revision => Told::Compacted { revision },
        };
    }
    if response.created {
        return Told::Created { revision };
    }
    if response.events.is_empty() {
        return Told::Progress { revision };
    }
    Told::Events {
        revision,
        events: response.events.iter().map(|e| event(e, digest)).collect(),
        fragment: response.fragment,
    }
}

fn event(event: &mvccpb::Event, digest: fn(&[u8], Bytes) -> Bytes) -> Event {
    let pair = |kv: &mvccpb::KeyValue| {
        let mut pair = pair(kv);
        if !pair.value.is_empty() {
            pair.value = Blob(digest(&pair.key, pair.value.0));
        }
        pair
    };
    Event {
        delete: event.r#type() == mvccpb::event::EventType::Delete,
        kv: event.kv.as_ref().map(pair).unwrap_or_default(),
        prev: event.prev_kv.as_ref().map(|kv| Box::new(pair(kv))),
    }
}

/// Watches everything on one member from the first revision on, for as long as it is
/// a member. Together these are the log that says what really happened.
pub(super) async fn watch_all(world: Rc<World>, member: usize) {
    world.saw(member, 1);
    let mut next = 1;
    while let Some(channel) = world.channel(member) {
        let request = WatchRequest {
            key: vec![0].into(),
            end: vec![0].into(),
            revision: next,
            progress: true,
            prev_kv: member.is_multiple_of(2),
            ..WatchRequest::default()
        };
        let removed = async {
            while world.channel(member).is_some() {
                tokio::time::sleep(REOPEN_AFTER).await;
            }
        };
        let process = world.process();
        let at = (process, member);
        let ended = watch(&world, at, channel, &request, true, removed).await;
        next = ended.next.max(1);
        tokio::time::sleep(REOPEN_AFTER).await;
    }
}
