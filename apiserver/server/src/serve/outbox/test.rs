//! What reaches the transport, in how many pieces, and when.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncWriteExt, duplex};
use tokio::sync::Semaphore;

use super::*;
use crate::body;
use crate::serve::activity::{Activity, Guarded};

/// What a transport does with the next write.
#[derive(Debug)]
enum Step {
    Take(usize),
    Wait,
    Fail(io::ErrorKind),
}

/// A transport that does as told, and then takes everything.
#[derive(Debug, Default)]
struct Mock {
    steps: VecDeque<Step>,
    written: Vec<Vec<u8>>,
    flushes: usize,
    flush_fails: bool,
    shut: bool,
}

impl AsyncRead for Mock {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Mock {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        assert!(!self.shut, "a write after the shutdown");
        let taken = match self.steps.pop_front() {
            None => bytes.len(),
            Some(Step::Take(most)) => bytes.len().min(most),
            Some(Step::Fail(kind)) => return Poll::Ready(Err(kind.into())),
            Some(Step::Wait) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        };
        self.written.push(bytes[..taken].to_vec());
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushes += 1;
        match self.flush_fails {
            true => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            false => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut = true;
        Poll::Ready(Ok(()))
    }
}

fn mock(steps: impl IntoIterator<Item = Step>) -> (Outbox<Mock>, Sender<Mock>) {
    new(Mock {
        steps: steps.into_iter().collect(),
        ..Mock::default()
    })
}

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Writes as often as anything is taken; returns how much that was.
fn write(outbox: &mut Outbox<Mock>, bytes: &[u8]) -> usize {
    let mut taken = 0;
    while taken < bytes.len() {
        match Pin::new(&mut *outbox).poll_write(&mut cx(), &bytes[taken..]) {
            Poll::Ready(more) => taken += more.unwrap(),
            Poll::Pending => break,
        }
        assert!(Pin::new(&mut *outbox).poll_flush(&mut cx()).is_ready());
    }
    taken
}

/// Returns the lengths of what the transport took.
fn lengths(sender: &Sender<Mock>) -> Vec<usize> {
    lock(&sender.0).io.written.iter().map(Vec::len).collect()
}

fn numbered(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn many_writes_and_flushes_are_one_write() {
    let (mut outbox, sender) = mock([]);
    for piece in [&b"a"[..], b"bc", b"", b"def"] {
        write(&mut outbox, piece);
    }
    assert_eq!(lengths(&sender), [0; 0], "nothing goes before it is sent");
    assert!(!sender.send(&mut cx()));
    let shared = lock(&sender.0);
    assert_eq!(shared.io.written, [b"abcdef"]);
    assert_eq!(shared.io.flushes, 1, "and TLS lets go of it");
}

#[test]
fn nothing_to_send_is_not_written() {
    let (_outbox, sender) = mock([]);
    assert!(!sender.send(&mut cx()));
    assert_eq!(lengths(&sender), [0; 0]);
}

#[test]
fn a_full_buffer_goes_out_whole_records_long() {
    let (mut outbox, sender) = mock([]);
    // As h2 writes a long list: a head of nine bytes before each 16 KiB.
    let bytes = numbered(10 * (16 * 1024 + 9));
    for piece in bytes.chunks(16 * 1024 + 9) {
        assert_eq!(write(&mut outbox, piece), piece.len());
    }
    assert!(!sender.send(&mut cx()));
    let rest = bytes.len() - 2 * GATHERED_MAX;
    assert_eq!(lengths(&sender), [GATHERED_MAX, GATHERED_MAX, rest]);
    assert_eq!(lock(&sender.0).io.written.concat(), bytes);
}

#[test]
fn what_is_taken_in_parts_or_late_keeps_its_order() {
    let bytes = numbered(3 * GATHERED_MAX);
    let steps = [
        Step::Take(1),
        Step::Wait,
        Step::Take(40_000),
        Step::Wait,
        Step::Wait,
        Step::Take(7),
    ];
    let (mut outbox, sender) = mock(steps);
    let mut taken = 0;
    for _ in 0..20 {
        taken += write(&mut outbox, &bytes[taken..]);
        sender.send(&mut cx());
    }
    assert_eq!(taken, bytes.len());
    assert_eq!(lock(&sender.0).io.written.concat(), bytes);
}

#[test]
fn who_does_not_read_bounds_what_is_gathered() {
    let (mut outbox, sender) = mock((0..50).map(|_| Step::Wait));
    for _ in 0..10 {
        write(&mut outbox, &numbered(10_000));
        sender.send(&mut cx());
    }
    let shared = lock(&sender.0);
    assert_eq!(shared.gathered.len(), GATHERED_MAX);
    assert_eq!(shared.gathered.capacity(), GATHERED_MAX);
}

#[test]
fn an_empty_buffer_is_given_back() {
    let (mut outbox, sender) = mock([]);
    write(&mut outbox, &numbered(100_000));
    sender.send(&mut cx());
    assert_eq!(lock(&sender.0).gathered.capacity(), 0);
    write(&mut outbox, &numbered(300));
    sender.send(&mut cx());
    let kept = lock(&sender.0).gathered.capacity();
    assert!((300..=KEPT_MAX).contains(&kept), "{kept}");
}

#[test]
fn a_failure_is_told_to_whoever_writes_or_flushes_next() {
    for zero in [false, true] {
        let (step, kind) = match zero {
            true => (Step::Take(0), io::ErrorKind::WriteZero),
            false => (
                Step::Fail(io::ErrorKind::ConnectionReset),
                io::ErrorKind::ConnectionReset,
            ),
        };
        let (mut outbox, sender) = mock([step]);
        write(&mut outbox, b"abc");
        assert!(sender.send(&mut cx()), "it fails");
        assert!(!sender.send(&mut cx()), "and says so once");
        let told = [
            Pin::new(&mut outbox).poll_flush(&mut cx()),
            Pin::new(&mut outbox)
                .poll_write(&mut cx(), b"d")
                .map_ok(drop),
            Pin::new(&mut outbox).poll_shutdown(&mut cx()),
        ];
        for told in told {
            assert!(matches!(told, Poll::Ready(Err(e)) if e.kind() == kind));
        }
        assert_eq!(lock(&sender.0).gathered.capacity(), 0);
    }
}

#[test]
fn a_failed_flush_is_told_as_well() {
    let (mut outbox, sender) = mock([]);
    lock(&sender.0).io.flush_fails = true;
    write(&mut outbox, b"abc");
    assert!(sender.send(&mut cx()));
    let told = Pin::new(&mut outbox).poll_flush(&mut cx());
    assert!(matches!(told, Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::BrokenPipe));
}

#[test]
fn a_shutdown_comes_after_all_that_was_said() {
    let (mut outbox, sender) = mock([Step::Take(2), Step::Wait]);
    write(&mut outbox, b"abcdef");
    let mut polls = 1;
    while Pin::new(&mut outbox).poll_shutdown(&mut cx()).is_pending() {
        assert!(!lock(&sender.0).io.shut);
        polls += 1;
    }
    assert_eq!(polls, 2);
    let shared = lock(&sender.0);
    assert!(shared.io.shut);
    assert_eq!(shared.io.written.concat(), b"abcdef");
}

#[tokio::test]
async fn a_connection_lets_others_go_first_once() {
    let (outbox, sender) = mock([]);
    let polls = Cell::new(0);
    let connection = pin!(poll_fn(|_| {
        polls.set(polls.get() + 1);
        Poll::<Result<(), Infallible>>::Pending
    }));
    let many = Cell::new(false);
    let mut conversation = Conversation {
        connection,
        sender,
        others: || many.get(),
        yielded: false,
    };
    let mut poll = || {
        assert!(Pin::new(&mut conversation).poll(&mut cx()).is_pending());
        polls.get()
    };
    assert_eq!([poll(), poll()], [1, 2], "alone it yields to nobody");
    many.set(true);
    assert_eq!([poll(), poll(), poll(), poll()], [2, 3, 3, 4]);
    drop(outbox);
}

#[tokio::test]
async fn a_connection_that_fails_is_woken_to_learn_it() {
    let (mut outbox, sender) = mock([Step::Fail(io::ErrorKind::ConnectionReset)]);
    let connection = pin!(async move {
        outbox.write_all(b"abc").await?;
        // As one that waits for something to say: it flushes whenever it is polled.
        poll_fn(|cx| match Pin::new(&mut outbox).poll_flush(cx) {
            Poll::Ready(Ok(())) => Poll::Pending,
            failed => failed,
        })
        .await
    });
    let conversation = Conversation {
        connection,
        sender,
        others: || false,
        yielded: false,
    };
    let ended: io::Result<()> = conversation.await;
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

/// Counts writes on their way to a real peer.
struct Counting<T>(T, Arc<AtomicUsize>);

impl<T: AsyncRead + Unpin> AsyncRead for Counting<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counting<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Lets many streams of one connection say something at once; returns how many writes
/// that took, and checks that all of it arrives.
async fn writes_of(streams: usize, event: usize) -> usize {
    let (near, far) = duplex(1 << 20);
    let writes = Arc::new(AtomicUsize::new(0));
    let go = Arc::new(Semaphore::new(0));
    let (start, count) = (go.clone(), writes.clone());
    tokio::spawn(async move {
        let activity = Arc::new(Activity::new(true));
        let of = activity.clone();
        let service = service_fn(move |_: Request<Incoming>| {
            let start = start.clone();
            let event = async move {
                start.acquire_owned().await.unwrap().forget();
                Ok(numbered(event).into())
            };
            let body = body::streaming(futures::stream::once(event));
            let body = Guarded::new(body, of.clone().begin());
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let (outbox, sender) = new(Counting(near, count));
        let io = TokioIo::new(outbox);
        let connection = crate::serve::http2_builder().serve_connection(io, service);
        let conversation = Conversation {
            connection: pin!(connection),
            sender,
            others: || activity.is_about_to_speak(),
            yielded: false,
        };
        drop(conversation.await);
    });
    let io = TokioIo::new(far);
    let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut bodies = Vec::new();
    for _ in 0..streams {
        let request = Request::get("http://localhost/").body(Full::<Bytes>::default());
        let response = client.send_request(request.unwrap()).await.unwrap();
        bodies.push(response.into_body());
    }
    let before = writes.load(Ordering::SeqCst);
    // From a task: who is woken by one stands in the runtime's queue, in order.
    let all = tokio::spawn(async move { go.add_permits(streams) });
    all.await.unwrap();
    for body in bodies {
        assert_eq!(body.collect().await.unwrap().to_bytes(), numbered(event));
    }
    writes.load(Ordering::SeqCst) - before
}

#[tokio::test]
async fn what_many_streams_say_at_once_is_sent_at_once() {
    // Smaller and larger than what h2 gathers itself.
    for event in [300, 1500] {
        let writes = writes_of(100, event).await;
        assert!((1..=12).contains(&writes), "{writes} of {event} bytes");
    }
}

/// A runtime of several threads polls who was woken by a task right after it: here the
/// connection after each stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_many_streams_say_is_not_parted_by_the_runtime_s_order() {
    for event in [300, 1500] {
        let writes = writes_of(100, event).await;
        assert!((1..=12).contains(&writes), "{writes} of {event} bytes");
    }
}
