//! What a connection has to say, sent once for each time it is polled.
//!
//! h2 writes and flushes every DATA frame of a kilobyte or more by itself, and small
//! ones together only up to a kilobyte: a list of three megabytes is four hundred
//! system calls. Here everything is gathered until the poll of the connection is over
//! ([`Conversation`]), or a buffer is full.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are gathered; then they are sent at once. The kernel makes its largest
/// packets of as many.
const GATHERED_MAX: usize = 64 << 10;

/// A buffer that is not larger stays when it is empty. There are thousands of
/// connections, most of which have little to say.
const KEPT_MAX: usize = 4 << 10;

/// A connection whose writes are gathered.
#[derive(Debug)]
pub(super) struct Outbox<T>(Arc<Mutex<Shared<T>>>);

/// Sends what was gathered.
#[derive(Debug)]
pub(super) struct Sender<T>(Arc<Mutex<Shared<T>>>);

#[derive(Debug)]
struct Shared<T> {
    io: T,
    gathered: Vec<u8>,
    sent: usize,
}

/// Makes one, and what sends for it.
pub(super) fn new<T>(io: T) -> (Outbox<T>, Sender<T>) {
    let shared = Arc::new(Mutex::new(Shared {
        io,
        gathered: Vec::new(),
        sent: 0,
    }));
    (Outbox(Arc::clone(&shared)), Sender(shared))
}

fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    // One task uses it, so nobody else was half-way through anything.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: AsyncWrite + Unpin> Shared<T> {
    /// Sends all that was gathered.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.gathered.len() {
            let rest = &self.gathered[self.sent..];
            match ready!(Pin::new(&mut self.io).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.sent = 0;
        match self.gathered.capacity() > KEPT_MAX {
            true => self.gathered = Vec::new(),
            false => self.gathered.clear(),
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.gathered.len() + bytes.len() > GATHERED_MAX {
            ready!(self.poll_send(cx))?;
        }
        if bytes.len() > GATHERED_MAX {
            return Pin::new(&mut self.io).poll_write(cx, bytes);
        }
        self.gathered.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
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

    /// Does nothing: that is for the end of the poll.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = lock(&self.0);
        ready!(shared.poll_send(cx))?;
        Pin::new(&mut shared.io).poll_shutdown(cx)
    }
}

impl<T: AsyncWrite + Unpin> Sender<T> {
    fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = lock(&self.0);
        ready!(shared.poll_send(cx))?;
        // With TLS the last records may still be here.
        Pin::new(&mut shared.io).poll_flush(cx)
    }
}

/// Polls a connection, and then sends what it had to say.
pub(super) struct Conversation<C, T> {
    pub(super) connection: C,
    pub(super) sender: Sender<T>,
}

impl<C: Future + Unpin, T: AsyncWrite + Unpin> Future for Conversation<C, T> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let ended = Pin::new(&mut self.connection).poll(cx);
        // A connection that is broken learns it by its next read or write. One that
        // has ended has been shut down, with all it had to say.
        let _sent = self.sender.poll_send(cx);
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;
    use crate::io::Gathered;

    #[tokio::test]
    async fn what_is_written_in_one_poll_goes_out_in_one_piece() {
        let (near, mut far) = duplex(1 << 20);
        let head = Bytes::from_static(b"head");
        let (mut outbox, sender) = new(Gathered { head, io: near });
        let mut head = [0; 4];
        outbox.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"head");

        let writes = Box::pin(async move {
            for _ in 0..3 {
                outbox.write_all(b"abc").await.unwrap();
                outbox.flush().await.unwrap();
            }
            std::future::pending::<()>().await;
        });
        let mut conversation = Conversation {
            connection: writes,
            sender,
        };
        let mut once = poll_fn(|cx| Poll::Ready(Pin::new(&mut conversation).poll(cx)));
        assert!((&mut once).await.is_pending());
        let mut got = [0; 64];
        assert_eq!(far.read(&mut got).await.unwrap(), 9);
        assert_eq!(&got[..9], b"abcabcabc");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_bounds_what_is_gathered() {
        let (near, mut far) = duplex(1_000);
        let (mut outbox, sender) = new(near);
        let mut written = 0;
        let all = poll_fn(|cx| {
            while let Poll::Ready(done) = Pin::new(&mut outbox).poll_write(cx, &[7; 10_000]) {
                written += done.unwrap();
            }
            Poll::Ready(())
        });
        all.await;
        assert_eq!(
            written, 60_000,
            "as much as is gathered, and not a byte more"
        );
        let shut = tokio::spawn(async move { outbox.shutdown().await.unwrap() });
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        shut.await.unwrap();
        assert_eq!(got, [7; 60_000]);
        let shared = lock(&sender.0);
        assert!(
            shared.gathered.capacity() <= KEPT_MAX,
            "and it is given back"
        );
    }

    #[tokio::test]
    async fn more_than_is_gathered_at_a_time_passes_in_order() {
        let (near, mut far) = duplex(4 << 20);
        let (mut outbox, sender) = new(near);
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| at as u8).collect();
        for piece in bytes.chunks(16_393) {
            outbox.write_all(piece).await.unwrap();
        }
        outbox.write_all(&bytes[..200_000]).await.unwrap();
        poll_fn(|cx| sender.poll_send(cx)).await.unwrap();
        drop((outbox, sender));
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, [&bytes[..], &bytes[..200_000]].concat());
    }
}
