//! What an HTTP/2 connection has to say, sent in full TLS records.
//!
//! h2 writes and flushes whenever its buffer of 16 KiB is full and after each DATA frame
//! of a kilobyte or more, and each of its writes would be a TLS record and a system call
//! of its own. Here everything is gathered until the poll of the connection is over
//! ([`Conversation`]) or [`GATHERED_MAX`] is reached; rustls makes records of 16 KiB of
//! it, and hands all of them to the kernel in one call. Nobody waits longer for that:
//! what h2 flushed in the midst of a poll leaves at its end.
//!
//! No vectored writes are offered. With them h2 hands over each frame from 256 bytes on
//! alone, with an array of 64 slices for two; without, it copies frames below a kilobyte
//! to its buffer, which is cheaper, and hands over a whole buffer of them.
//!
//! What many streams say at once is gathered too: see [`Conversation`].

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a TLS record holds.
const RECORD: usize = 16 * 1024;
/// How many bytes are gathered; then they are sent at once: as many as rustls takes at
/// a time.
const GATHERED_MAX: usize = 4 * RECORD;
/// An empty buffer that is not larger is kept. There are thousands of connections, and
/// most have little to say.
const KEPT_MAX: usize = 1024;

/// A connection whose writes are gathered. What is flushed is only sent by its
/// [`Sender`], when it is shut down, or when there is too much of it.
#[derive(Debug)]
pub(super) struct Outbox<T>(Arc<Mutex<Shared<T>>>);

/// Sends what was gathered.
#[derive(Debug)]
pub(super) struct Sender<T>(Arc<Mutex<Shared<T>>>);

#[derive(Debug)]
struct Shared<T> {
    io: T,
    gathered: Vec<u8>,
    /// How much of it was sent.
    sent: usize,
    /// Why nothing more can be sent.
    failed: Option<io::ErrorKind>,
}

/// Makes an outbox, and what sends for it.
pub(super) fn new<T>(io: T) -> (Outbox<T>, Sender<T>) {
    let shared = Arc::new(Mutex::new(Shared {
        io,
        gathered: Vec::new(),
        sent: 0,
        failed: None,
    }));
    (Outbox(shared.clone()), Sender(shared))
}

fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    // One task uses it, so that nobody else was half-way through anything.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: AsyncWrite + Unpin> Shared<T> {
    fn check(&self) -> io::Result<()> {
        self.failed.map_or(Ok(()), |kind| Err(kind.into()))
    }

    /// Lets go of what cannot be sent any more, and says why to all who ask.
    fn fail(&mut self, error: io::Error) -> io::Error {
        self.failed = Some(error.kind());
        (self.gathered, self.sent) = (Vec::new(), 0);
        error
    }

    /// Sends all that was gathered.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        while self.sent < self.gathered.len() {
            let rest = &self.gathered[self.sent..];
            match ready!(Pin::new(&mut self.io).poll_write(cx, rest)) {
                Ok(0) => return Poll::Ready(Err(self.fail(io::ErrorKind::WriteZero.into()))),
                Ok(sent) => self.sent += sent,
                Err(error) => return Poll::Ready(Err(self.fail(error))),
            }
        }
        self.sent = 0;
        match self.gathered.capacity() > KEPT_MAX {
            true => self.gathered = Vec::new(),
            false => self.gathered.clear(),
        }
        Poll::Ready(Ok(()))
    }

    /// Gathers as much as there is room for: the buffer is filled to the brim, so that
    /// it makes full records.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        if self.gathered.len() >= GATHERED_MAX {
            ready!(self.poll_send(cx))?;
        }
        let taken = bytes.len().min(GATHERED_MAX - self.gathered.len());
        let length = self.gathered.len() + taken;
        if length > KEPT_MAX && length > self.gathered.capacity() {
            // For an answer or for a stream: it grows once more at most.
            let room = if length <= RECORD {
                RECORD
            } else {
                GATHERED_MAX
            };
            self.gathered.reserve_exact(room - self.gathered.len());
        }
        self.gathered.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Outbox<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Outbox<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        lock(&self.0).poll_write(cx, bytes)
    }

    /// Says whether what was written before could be sent; sends nothing itself.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(lock(&self.0).check())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.0).poll_shutdown(cx)
    }
}

impl<T: AsyncWrite + Unpin> Sender<T> {
    /// Sends as much as can be sent now; tells whether that has just failed.
    fn send(&self, cx: &mut Context<'_>) -> bool {
        let mut shared = lock(&self.0);
        if shared.failed.is_some() {
            return false;
        }
        let sent = shared.poll_send(cx).map_ok(|()| {
            // With TLS the last records may still be here.
            Pin::new(&mut shared.io).poll_flush(cx)
        });
        match sent {
            Poll::Ready(Ok(Poll::Ready(Err(error)))) => {
                shared.fail(error);
                true
            }
            Poll::Ready(Err(_told)) => true,
            _ => false,
        }
    }
}

/// Polls a connection, and then sends what it had to say.
///
/// Where many streams have something to say, the task of each wakes the connection's, and
/// the runtime polls who was woken by a task right after it: the connection would be
/// polled after each stream, and send one frame at a time. So while there are `others`,
/// who were woken and have not had their turn, the connection goes to the end of the
/// runtime's queue once, and then takes what all before it have said. Without others
/// that costs a look at a number; with them, nothing is waited for but what is ready.
pub(super) struct Conversation<'a, C, T, F> {
    pub(super) connection: Pin<&'a mut C>,
    pub(super) sender: Sender<T>,
    /// Tells whether streams are about to speak.
    pub(super) others: F,
    /// Whether it let them go first.
    pub(super) yielded: bool,
}

impl<C, T, F> Future for Conversation<'_, C, T, F>
where
    C: Future,
    T: AsyncWrite + Unpin,
    F: Fn() -> bool + Unpin,
{
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        self.yielded = !self.yielded && (self.others)();
        if self.yielded {
            // Who wakes itself while it is polled is put at the end.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let ended = self.connection.as_mut().poll(cx);
        if self.sender.send(cx) && ended.is_pending() {
            // The connection learns it by its next flush.
            cx.waker().wake_by_ref();
        }
        ended
    }
}

#[cfg(test)]
mod test;
