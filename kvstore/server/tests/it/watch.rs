//! Watch streams over gRPC.

use proto::etcdserverpb::{
    self as pb, watch_create_request::FilterType, watch_request::RequestUnion,
};
use tokio::sync::mpsc;
use tonic::Streaming;

use crate::store::{DEADLINE, Store, bytes, delete, put_op};

pub(crate) struct Client {
    pub(crate) ask: mpsc::Sender<pb::WatchRequest>,
    pub(crate) replies: Streaming<pb::WatchResponse>,
}

impl Client {
    pub(crate) async fn open(store: &Store) -> Self {
        let (ask, asked) = mpsc::channel(16);
        let requests = tokio_stream::wrappers::ReceiverStream::new(asked);
        let replies = store
            .watch()
            .await
            .watch(requests)
            .await
            .unwrap()
            .into_inner();
        Self { ask, replies }
    }

    pub(crate) async fn ask(&self, request: RequestUnion) {
        self.ask
            .send(pb::WatchRequest {
                request_union: Some(request),
            })
            .await
            .unwrap();
    }

    /// Creates a watch; returns the first reply.
    pub(crate) async fn create(&mut self, request: pb::WatchCreateRequest) -> pb::WatchResponse {
        self.ask(RequestUnion::CreateRequest(request)).await;
        self.next().await
    }

    pub(crate) async fn next(&mut self) -> pb::WatchResponse {
        let next = tokio::time::timeout(DEADLINE, self.replies.message()).await;
        next.expect("no reply in time")
            .unwrap()
            .expect("the stream ended")
    }

    /// Reads until `count` events have come; returns them as `key=value@revision`.
    async fn events(&mut self, count: usize) -> Vec<String> {
        let mut events = Vec::new();
        while events.len() < count {
            let reply = self.next().await;
            assert!(!reply.canceled, "{reply:?}");
            for event in reply.events {
                let kv = event.kv.unwrap();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let prev = event
                    .prev_kv
                    .map(|kv| format!(" was {}", text(&kv.value)))
                    .unwrap_or_default();
                let (key, value, revision) = (text(&kv.key), text(&kv.value), kv.mod_revision);
                let sign = if event.r#type == 0 {
                    format!("={value}")
                } else {
                    " deleted".to_owned()
                };
                events.push(format!("{key}{sign}@{revision}{prev}"));
            }
        }
        events
    }
}

pub(crate) fn on(key: &str, range_end: &str) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest {
        key: bytes(key),
        range_end: bytes(range_end),
        ..pb::WatchCreateRequest::default()
    }
}

#[tokio::test]
async fn events_come_in_order_with_history_first() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    kv.put("a", "1").await;
    kv.put("a", "2").await;
    let mut client = Client::open(&store).await;
    let request = pb::WatchCreateRequest {
        start_revision: 2,
        prev_kv: true,
        ..on("a", "\0")
    };
    let created = client.create(request).await;
    assert!(created.created && created.events.is_empty());
    assert_eq!(created.watch_id, 0);
    assert_eq!(client.events(2).await, ["a=1@2", "a=2@3 was 1"]);
    kv.txn(pb::TxnRequest {
        success: vec![put_op("b", "1"), put_op("a", "3")],
        ..Default::default()
    })
    .await
    .unwrap();
    kv.0.delete_range(delete("a", "")).await.unwrap();
    assert_eq!(
        client.events(3).await,
        ["b=1@4", "a=3@4 was 2", "a deleted@5 was 3"]
    );
}

#[tokio::test]
async fn one_stream_carries_many_watches_with_their_filters() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let mut client = Client::open(&store).await;
    let no_puts = pb::WatchCreateRequest {
        filters: vec![FilterType::Noput.into()],
        ..on("a", "")
    };
    assert_eq!(client.create(no_puts).await.watch_id, 0);
    assert_eq!(client.create(on("b", "")).await.watch_id, 1);
    kv.put("a", "1").await;
    kv.0.delete_range(delete("a", "")).await.unwrap();
    assert_eq!(client.events(1).await, ["a deleted@3"]);
    client
        .ask(RequestUnion::CancelRequest(pb::WatchCancelRequest {
            watch_id: 0,
        }))
        .await;
    let reply = client.next().await;
    assert!(reply.canceled && reply.watch_id == 0);
    kv.put("a", "2").await;
    kv.put("b", "2").await;
    assert_eq!(client.events(1).await, ["b=2@5"]);
}

#[tokio::test]
async fn progress_comes_after_everything_before_it() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let mut client = Client::open(&store).await;
    client.create(on("a", "\0")).await;
    let mut last = 0;
    for value in 0..20 {
        last = kv.put("a", &value.to_string()).await;
    }
    client
        .ask(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}))
        .await;
    let mut seen = 0;
    loop {
        let reply = client.next().await;
        if reply.watch_id == -1 {
            assert!(reply.events.is_empty());
            assert_eq!(reply.header.unwrap().revision, last);
            break;
        }
        seen += reply.events.len();
    }
    assert_eq!(seen, 20, "no event is overtaken");
}

#[tokio::test]
async fn quiet_watchers_that_asked_hear_of_progress() {
    let store = Store::start_with(|config| {
        config.watch_progress_interval = std::time::Duration::from_millis(200);
    })
    .await;
    let mut kv = store.kv().await;
    let mut client = Client::open(&store).await;
    client
        .create(pb::WatchCreateRequest {
            progress_notify: true,
            ..on("a", "")
        })
        .await;
    let revision = kv.put("other", "x").await;
    loop {
        let reply = client.next().await;
        assert!(reply.events.is_empty() && reply.watch_id == 0);
        if reply.header.unwrap().revision == revision {
            break;
        }
    }
}

#[tokio::test]
async fn refused_watches_are_created_and_cancelled() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    for _ in 0..5 {
        kv.put("a", "x").await;
    }
    kv.compact(4).await.unwrap();
    let mut client = Client::open(&store).await;
    let created = client
        .create(pb::WatchCreateRequest {
            start_revision: 2,
            ..on("a", "")
        })
        .await;
    assert!(created.created && !created.canceled);
    let cancelled = client.next().await;
    assert!(cancelled.canceled && cancelled.events.is_empty());
    assert_eq!(cancelled.compact_revision, 4);
    let empty = client.create(on("b", "a")).await;
    assert!(empty.created && empty.canceled, "{empty:?}");
    assert_eq!(empty.cancel_reason, "mvcc: watcher range is empty");
    let first = client
        .create(pb::WatchCreateRequest {
            watch_id: 9,
            ..on("a", "")
        })
        .await;
    assert!(first.created && first.watch_id == 9);
    let second = client
        .create(pb::WatchCreateRequest {
            watch_id: 9,
            ..on("a", "")
        })
        .await;
    assert!(second.created && second.canceled);
    assert_eq!(second.watch_id, -1);
    assert_eq!(
        second.cancel_reason,
        "mvcc: duplicate watch ID provided on the WatchStream"
    );
    kv.put("a", "still").await;
    assert_eq!(client.events(1).await, ["a=still@7"], "the stream goes on");
}

#[tokio::test]
async fn a_watch_on_the_future_waits_for_it() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let mut client = Client::open(&store).await;
    client
        .create(pb::WatchCreateRequest {
            start_revision: 4,
            ..on("a", "")
        })
        .await;
    for value in ["2", "3", "4", "5"] {
        kv.put("a", value).await;
    }
    assert_eq!(client.events(2).await, ["a=4@4", "a=5@5"]);
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_nobody_and_misses_nothing() {
    const EVENTS: usize = 500;
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let mut slow = Client::open(&store).await;
    slow.create(on("a", "")).await;
    let mut quick = Client::open(&store).await;
    quick.create(on("a", "")).await;
    let value = "x".repeat(10_000);
    let reader = tokio::spawn(async move { quick.events(EVENTS).await.len() });
    for _ in 0..EVENTS {
        kv.put("a", &value).await;
    }
    assert!(reader.await.unwrap() >= EVENTS);
    let events = slow.events(EVENTS).await;
    assert_eq!(events.len(), EVENTS);
    assert!(events[0].ends_with("@2") && events[EVENTS - 1].ends_with(&format!("@{}", EVENTS + 1)));
}

#[tokio::test]
async fn progress_is_told_once_for_each_request_of_a_stream_that_is_up_to_date() {
    let store = Store::start().await;
    let mut client = Client::open(&store).await;
    let progress = || RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
    // Without a watch there is nothing to tell; the next answer is the creation's.
    client.ask(progress()).await;
    assert!(client.create(on("a", "")).await.created);
    for _ in 0..3 {
        client.ask(progress()).await;
    }
    for _ in 0..3 {
        let reply = client.next().await;
        assert_eq!(
            (reply.watch_id, reply.created, reply.canceled),
            (-1, false, false)
        );
        assert_eq!(reply.header.unwrap().revision, 1);
    }
    // A watch that has not begun holds the whole stream's progress back.
    let future = pb::WatchCreateRequest {
        start_revision: 9,
        ..on("b", "")
    };
    let created = client.create(future).await;
    client.ask(progress()).await;
    let cancel = pb::WatchCancelRequest {
        watch_id: created.watch_id,
    };
    client.ask(RequestUnion::CancelRequest(cancel)).await;
    assert!(client.next().await.canceled, "and no progress before it");
}

#[tokio::test]
async fn who_has_asked_all_may_still_listen() {
    let store = Store::start().await;
    let mut client = Client::open(&store).await;
    client.create(on("a", "")).await;
    let (closed, _) = mpsc::channel(1);
    drop(std::mem::replace(&mut client.ask, closed));
    store.kv().await.put("a", "1").await;
    assert_eq!(client.events(1).await, ["a=1@2"]);
}

#[tokio::test]
async fn a_client_that_requires_a_leader_is_served_by_one() {
    let store = Store::start().await;
    let (_ask, asked) = mpsc::channel::<pb::WatchRequest>(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(asked);
    let mut request = tonic::Request::new(requests);
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", "true".parse().unwrap());
    store.watch().await.watch(request).await.unwrap();
    let mut request = tonic::Request::new(crate::store::put("a", "1"));
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", "true".parse().unwrap());
    store.kv().await.0.put(request).await.unwrap();
}

#[tokio::test]
async fn large_replies_come_in_fragments_if_the_client_allows() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    for key in ["a", "b", "c"] {
        kv.put(key, &"x".repeat(1_000_000)).await;
    }
    let (ask, asked) = mpsc::channel(16);
    let requests = tokio_stream::wrappers::ReceiverStream::new(asked);
    let watch = store.watch().await.max_decoding_message_size(usize::MAX);
    let replies = { watch }.watch(requests).await.unwrap().into_inner();
    let mut client = Client { ask, replies };
    let past = |fragment| pb::WatchCreateRequest {
        start_revision: 2,
        fragment,
        ..on("a", "\0")
    };
    client.create(past(true)).await;
    // Two of them stay below 1.5 MiB + 512 KiB, three do not.
    for (fragment, keys) in [
        (true, vec![bytes("a"), bytes("b")]),
        (false, vec![bytes("c")]),
    ] {
        let reply = client.next().await;
        let key = |event: &proto::mvccpb::Event| event.kv.clone().unwrap().key;
        let got: Vec<_> = reply.events.iter().map(key).collect();
        assert_eq!((reply.fragment, got), (fragment, keys));
        assert_eq!(reply.header.unwrap().revision, 4, "the header is one");
    }
    client.create(past(false)).await;
    let reply = client.next().await;
    assert_eq!((reply.fragment, reply.events.len()), (false, 3));
}
