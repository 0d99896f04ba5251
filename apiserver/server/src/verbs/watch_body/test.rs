//! How events share frames, what is copied, and how a watch ends.

use futures::channel::mpsc;
use futures::task::ArcWake;
use meta::ResourceVersion;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use super::*;
use crate::metrics::Metrics;
use crate::request_info::ResourceRequest;

const FAR: Duration = Duration::from_secs(1 << 30);

/// An event of a pod whose body is so long.
fn pod(name: &str, length: usize) -> WatchItem {
    let filler = "x".repeat(length);
    let body = json!({"metadata": {"name": name, "namespace": "a"}, "filler": filler});
    let object = Object::decode(body.to_string().into(), ResourceVersion(7), Vec::new()).unwrap();
    let object = Arc::new(object);
    WatchItem::Event {
        event_type: EventType::Added,
        object: object.clone(),
        shared: Arc::new(Event::new(7, Some(object), None)),
    }
}

/// Returns the frame that all watches share.
fn shared(item: &WatchItem) -> &Bytes {
    match item {
        WatchItem::Event {
            event_type, shared, ..
        } => shared.json_frame(*event_type),
        other => panic!("{other:?}"),
    }
}

fn encoder() -> Encoder {
    let kind = registry::kinds::find("", "v1", "pods").unwrap();
    let counted = Metrics::default().watch_events(&ResourceRequest::default());
    Encoder::new(kind.into(), Accepted::default(), &Query::default(), counted).unwrap()
}

type Given = mpsc::UnboundedReceiver<WatchItem>;

fn frames(
    timeout: Duration,
    shutdown: &CancellationToken,
) -> (mpsc::UnboundedSender<WatchItem>, Frames<Given>) {
    let (give, given) = mpsc::unbounded();
    let ending = ending(timeout, shutdown.clone());
    (give, Frames::new(given, encoder(), ending, FRAME_BYTES))
}

/// Returns the next frame; `None` if there is none yet.
fn poll(frames: &mut Frames<Given>) -> Option<Bytes> {
    match frames.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => Some(frame.expect("it goes on")),
        Poll::Pending => None,
    }
}

fn is_ended(frames: &mut Frames<Given>) -> bool {
    let next = frames.poll_next(&mut Context::from_waker(Waker::noop()));
    matches!(next, Poll::Ready(None)) && frames.is_over()
}

#[tokio::test]
async fn small_events_share_a_frame_and_one_alone_is_not_copied() {
    let (give, mut frames) = frames(FAR, &CancellationToken::new());
    assert!(poll(&mut frames).is_none());
    let items: Vec<_> = (0..5).map(|i| pod(&format!("p{i}"), 300)).collect();
    for item in &items {
        give.unbounded_send(item.clone()).unwrap();
    }
    let all: Vec<u8> = items.iter().flat_map(|i| shared(i).to_vec()).collect();
    assert_eq!(poll(&mut frames).unwrap(), all);
    assert!(poll(&mut frames).is_none());

    give.unbounded_send(items[0].clone()).unwrap();
    let alone = poll(&mut frames).unwrap();
    assert_eq!(alone.as_ptr(), shared(&items[0]).as_ptr());
}

#[tokio::test]
async fn a_large_event_is_not_copied_and_keeps_its_place() {
    let (give, mut frames) = frames(FAR, &CancellationToken::new());
    let items = [
        pod("a", 300),
        pod("b", 300),
        pod("c", 100_000),
        pod("d", WHOLE_BYTES),
        pod("e", 300),
        pod("f", 300),
    ];
    for item in &items {
        give.unbounded_send(item.clone()).unwrap();
    }
    let [a, b, c, d, e, f] = items.each_ref().map(shared);
    let seen: Vec<Bytes> = std::iter::from_fn(|| poll(&mut frames)).collect();
    assert_eq!(seen.len(), 4);
    assert_eq!(seen[0], [&a[..], b].concat());
    assert_eq!(seen[1].as_ptr(), c.as_ptr());
    assert_eq!(seen[2].as_ptr(), d.as_ptr());
    assert_eq!(seen[3], [&e[..], f].concat());
}

#[tokio::test]
async fn a_frame_has_an_end_however_many_wait() {
    let (give, mut frames) = frames(FAR, &CancellationToken::new());
    let item = pod("a", 1_000);
    let one = shared(&item).len();
    for _ in 0..200 {
        give.unbounded_send(item.clone()).unwrap();
    }
    let lengths: Vec<usize> = std::iter::from_fn(|| poll(&mut frames))
        .map(|frame| frame.len())
        .collect();
    assert!(
        lengths.iter().all(|l| *l < FRAME_BYTES + one),
        "{lengths:?}"
    );
    assert_eq!(lengths.iter().sum::<usize>(), 200 * one);
    assert_eq!(lengths.len(), (200 * one).div_ceil(FRAME_BYTES));
}

#[tokio::test]
async fn an_error_is_the_last_that_is_shown() {
    let (give, mut frames) = frames(FAR, &CancellationToken::new());
    let first = pod("a", 300);
    give.unbounded_send(first.clone()).unwrap();
    give.unbounded_send(WatchItem::Error(Status::expired("gone")))
        .unwrap();
    give.unbounded_send(pod("b", 300)).unwrap();
    let frame = poll(&mut frames).unwrap();
    let rest = frame.strip_prefix(&shared(&first)[..]).unwrap();
    let error: Value = serde_json::from_slice(rest).unwrap();
    assert_eq!(error["type"], "ERROR");
    assert_eq!(error["object"]["code"], 410);
    assert!(frames.is_over() && is_ended(&mut frames));
}

#[tokio::test]
async fn what_waits_is_shown_before_the_end() {
    for length in [300, WHOLE_BYTES] {
        let (give, mut frames) = frames(FAR, &CancellationToken::new());
        let (a, b) = (pod("a", 300), pod("b", length));
        give.unbounded_send(a.clone()).unwrap();
        give.unbounded_send(b.clone()).unwrap();
        drop(give);
        let seen: Vec<Bytes> = std::iter::from_fn(|| {
            let next = frames.poll_next(&mut Context::from_waker(Waker::noop()));
            assert!(next.is_ready());
            match next {
                Poll::Ready(frame) => frame,
                Poll::Pending => None,
            }
        })
        .collect();
        let seen = seen.concat();
        assert_eq!(seen, [&shared(&a)[..], shared(&b)].concat());
        assert!(is_ended(&mut frames));
    }
}

#[tokio::test]
async fn time_or_a_stop_ends_a_watch_that_always_has_more() {
    let item = pod("a", 300);
    for by_time in [true, false] {
        let stop = CancellationToken::new();
        let timeout = if by_time {
            Duration::from_millis(50)
        } else {
            FAR
        };
        let began = tokio::time::Instant::now();
        let mut frames = Frames::new(
            futures::stream::repeat(item.clone()),
            encoder(),
            ending(timeout, stop.clone()),
            FRAME_BYTES,
        );
        for round in 0.. {
            let next = std::future::poll_fn(|cx| frames.poll_next(cx)).await;
            if next.is_none() {
                break;
            }
            if round == 5 && !by_time {
                stop.cancel();
            }
            assert!(by_time || round <= 5);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!by_time || began.elapsed() >= timeout);
        assert!(frames.is_over());
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl ArcWake for Woken {
    fn wake_by_ref(this: &Arc<Self>) {
        this.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn whoever_waits_is_woken_by_events_the_clock_and_a_stop() {
    let stop = CancellationToken::new();
    let (give, mut frames) = frames(FAR, &stop);
    let woken = Arc::new(Woken::default());
    let waker = futures::task::waker(woken.clone());
    let mut cx = Context::from_waker(&waker);
    give.unbounded_send(pod("a", 300)).unwrap();
    // Having given a frame, it has asked for the next event already.
    assert!(frames.poll_next(&mut cx).is_ready());
    give.unbounded_send(pod("b", 300)).unwrap();
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert!(frames.poll_next(&mut cx).is_ready());
    assert!(frames.poll_next(&mut cx).is_pending());
    stop.cancel();
    assert_eq!(woken.0.load(Ordering::SeqCst), 2);
    assert!(matches!(frames.poll_next(&mut cx), Poll::Ready(None)));
}

#[tokio::test]
async fn one_by_one_each_is_alone() {
    let (give, mut frames) = frames(FAR, &CancellationToken::new());
    frames.frame_bytes = 0;
    let items = [pod("a", 300), pod("b", 10_000), pod("c", 300)];
    for item in &items {
        give.unbounded_send(item.clone()).unwrap();
    }
    for item in &items {
        assert_eq!(poll(&mut frames).unwrap(), *shared(item));
    }
    assert!(poll(&mut frames).is_none());
}

/// What a watch on which nothing happens holds of its own, apart from its line in the
/// cache, the stream of its connection, and what both share.
#[tokio::test]
async fn an_idle_watch_is_small() {
    let size = size_of::<Frames<WatchStream>>();
    let wait = ending(FAR, CancellationToken::new());
    let wait = wait.size_of_future();
    assert!(size + wait <= 768, "{size} and {wait}");
}
