//! Keeps clients from pinging too often (`--grpc-keepalive-min-time`).
//!
//! hyper answers PING frames itself and tells nobody, so they are counted here, in
//! the bytes that pass. The rule is grpc-go's (internal/transport/http2_server.go,
//! handlePing): a ping that comes too soon after the last is a strike, unless
//! something was sent to the client in between; the third strike too many ends the
//! connection with GOAWAY, ENHANCE_YOUR_CALM, "too_many_pings".

use std::{
    collections::BTreeSet,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How a client begins HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes before a frame's payload.
const HEAD: usize = 9;

/// Strikes a client may have.
const STRIKES_MAX: u8 = 2;

/// Shortest time between two pings of a connection without a call.
const IDLE_MIN_TIME: Duration = Duration::from_secs(2 * 3_600);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const ENHANCE_YOUR_CALM: u32 = 0xb;
const TOO_MANY_PINGS: &[u8] = b"too_many_pings";

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
}

/// Finds frames in bytes that pass in pieces.
#[derive(Debug, Default)]
struct Meter {
    head: [u8; HEAD],
    have: usize,
    /// Bytes of payload still to come.
    left: usize,
}

impl Meter {
    fn pass(&mut self, mut bytes: &[u8], mut found: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == HEAD {
                let [a, b, c, kind, flags, s, t, u, v] = self.head;
                self.have = 0;
                self.left = u32::from_be_bytes([0, a, b, c]) as usize;
                let stream = u32::from_be_bytes([s & 0x7f, t, u, v]);
                found(Frame {
                    kind,
                    flags,
                    stream,
                });
            }
        }
    }

    /// Says whether a new frame may begin here.
    fn between_frames(&self) -> bool {
        self.have == 0 && self.left == 0
    }
}

/// Counts strikes.
#[derive(Debug, Default)]
struct Judge {
    min_time: Duration,
    last_ping: Option<Instant>,
    strikes: u8,
    /// Whether anything was sent since the last ping.
    sent: bool,
    /// Calls under way.
    open: BTreeSet<u32>,
    newest: u32,
}

impl Judge {
    /// Notes a frame from the client; returns whether it is to be sent away.
    fn came(&mut self, frame: Frame, now: impl FnOnce() -> Instant) -> bool {
        match frame.kind {
            // Trailers open nothing.
            HEADERS if frame.stream > self.newest => {
                self.newest = frame.stream;
                self.open.insert(frame.stream);
            }
            RST_STREAM => {
                self.open.remove(&frame.stream);
            }
            PING if frame.flags & ACK == 0 => return self.ping(now()),
            _ => {}
        }
        false
    }

    /// Notes a frame to the client.
    fn went(&mut self, frame: Frame) {
        match frame.kind {
            DATA | HEADERS => {
                self.sent = true;
                if frame.flags & END_STREAM != 0 {
                    self.open.remove(&frame.stream);
                }
            }
            RST_STREAM => {
                self.open.remove(&frame.stream);
            }
            _ => {}
        }
    }

    fn ping(&mut self, now: Instant) -> bool {
        let last = self.last_ping.replace(now);
        if std::mem::take(&mut self.sent) {
            self.strikes = 0;
            return false;
        }
        let apart = match self.open.is_empty() {
            true => IDLE_MIN_TIME,
            false => self.min_time,
        };
        if last.is_some_and(|last| now.duration_since(last) < apart) {
            self.strikes = self.strikes.saturating_add(1);
        }
        self.strikes > STRIKES_MAX
    }
}

#[derive(Debug)]
enum Mode {
    /// So many bytes of the preface have come.
    Beginning(usize),
    Http2,
    /// Not HTTP/2, or nothing to enforce.
    Off,
    /// The client was sent away.
    Over,
}

/// A connection whose client may not ping too often.
#[derive(Debug)]
pub(crate) struct Policed<T> {
    inner: T,
    mode: Mode,
    incoming: Meter,
    outgoing: Meter,
    judge: Judge,
}

impl<T> Policed<T> {
    /// Watches over a connection; a `min_time` of zero lets everything pass.
    pub(crate) fn new(inner: T, min_time: Duration) -> Self {
        Self {
            inner,
            mode: match min_time.is_zero() {
                true => Mode::Off,
                false => Mode::Beginning(0),
            },
            incoming: Meter::default(),
            outgoing: Meter::default(),
            judge: Judge {
                min_time,
                ..Judge::default()
            },
        }
    }

    /// Looks at what came; returns whether the client is to be sent away.
    fn look(&mut self, mut bytes: &[u8]) -> bool {
        if let Mode::Beginning(seen) = &mut self.mode {
            let part = bytes.len().min(PREFACE.len() - *seen);
            if bytes[..part] != PREFACE[*seen..*seen + part] {
                self.mode = Mode::Off;
                return false;
            }
            *seen += part;
            bytes = &bytes[part..];
            if *seen < PREFACE.len() {
                return false;
            }
            self.mode = Mode::Http2;
        }
        let mut away = false;
        let judge = &mut self.judge;
        self.incoming
            .pass(bytes, |frame| away |= judge.came(frame, Instant::now));
        away
    }
}

impl<T: AsyncWrite + Unpin> Policed<T> {
    /// Says why the connection ends, if that is possible without waiting.
    fn send_away(&mut self, cx: &mut Context<'_>) {
        self.mode = Mode::Over;
        tracing::warn!("a client pings too often; closing its connection (too_many_pings)");
        if !self.outgoing.between_frames() {
            return;
        }
        let mut frame = vec![0, 0, 8 + TOO_MANY_PINGS.len() as u8, GOAWAY, 0, 0, 0, 0, 0];
        frame.extend(self.judge.newest.to_be_bytes());
        frame.extend(ENHANCE_YOUR_CALM.to_be_bytes());
        frame.extend(TOO_MANY_PINGS);
        // A client that does not read learns nothing; it is gone all the same.
        if let Poll::Ready(Ok(_)) = Pin::new(&mut self.inner).poll_write(cx, &frame) {
            let _unsent = Pin::new(&mut self.inner).poll_flush(cx);
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Policed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match this.mode {
            Mode::Off => return Pin::new(&mut this.inner).poll_read(cx, buf),
            // To whoever reads, the client has hung up.
            Mode::Over => return Poll::Ready(Ok(())),
            Mode::Beginning(_) | Mode::Http2 => {}
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.inner).poll_read(cx, buf);
        if matches!(polled, Poll::Ready(Ok(()))) && this.look(&buf.filled()[before..]) {
            buf.set_filled(before);
            this.send_away(cx);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Policed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if matches!(this.mode, Mode::Over) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let polled = Pin::new(&mut this.inner).poll_write(cx, buf);
        if let (Mode::Http2, Poll::Ready(Ok(sent))) = (&this.mode, &polled) {
            let judge = &mut this.judge;
            this.outgoing.pass(&buf[..*sent], |frame| judge.went(frame));
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32) -> Frame {
        Frame {
            kind,
            flags,
            stream,
        }
    }

    fn bytes(payload: usize, frame: Frame) -> Vec<u8> {
        let mut bytes = (payload as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([frame.kind, frame.flags]);
        bytes.extend(frame.stream.to_be_bytes());
        bytes.resize(HEAD + payload, 0xee);
        bytes
    }

    #[test]
    fn frames_are_found_however_the_bytes_come() {
        let sent = [
            (70_000, frame(DATA, END_STREAM, 1)),
            (0, frame(HEADERS, 0, 3)),
            (8, frame(PING, 0, 0)),
        ];
        let all: Vec<u8> = sent
            .iter()
            .flat_map(|(size, head)| bytes(*size, *head))
            .collect();
        for step in [1, 2, 7, 9, 10, 1_000, all.len()] {
            let mut meter = Meter::default();
            let mut found = Vec::new();
            for piece in all.chunks(step) {
                meter.pass(piece, |frame| found.push(frame));
            }
            assert_eq!(found, sent.map(|(_, frame)| frame), "pieces of {step}");
            assert!(meter.between_frames());
        }
    }

    /// Pings at these seconds; returns at which the client was sent away.
    fn pings(
        judge: &mut Judge,
        seconds: &[u64],
        mut before: impl FnMut(&mut Judge),
    ) -> Option<u64> {
        let start = Instant::now();
        seconds.iter().copied().find(|second| {
            before(judge);
            judge.came(frame(PING, 0, 0), || start + Duration::from_secs(*second))
        })
    }

    fn judge(open: &[u32]) -> Judge {
        let mut judge = Judge {
            min_time: Duration::from_secs(5),
            ..Judge::default()
        };
        for stream in open {
            judge.came(frame(HEADERS, 0, *stream), Instant::now);
        }
        judge
    }

    #[test]
    fn the_third_ping_too_soon_is_one_too_many() {
        let away = pings(&mut judge(&[1]), &[0, 1, 2, 3, 4], |_| {});
        assert_eq!(away, Some(3));
    }

    #[test]
    fn pings_apart_enough_are_welcome() {
        let seconds: Vec<u64> = (0..100).map(|n| 5 * n).collect();
        assert_eq!(pings(&mut judge(&[1]), &seconds, |_| {}), None);
    }

    #[test]
    fn without_a_call_there_is_little_reason_to_ping() {
        let seconds = [0, 60, 120, 180];
        assert_eq!(pings(&mut judge(&[]), &seconds, |_| {}), Some(180));
        let mut ended = judge(&[1, 3, 5]);
        ended.went(frame(HEADERS, END_STREAM, 1));
        ended.went(frame(RST_STREAM, 0, 3));
        ended.came(frame(RST_STREAM, 0, 5), Instant::now);
        ended.sent = false;
        assert_eq!(pings(&mut ended, &seconds, |_| {}), Some(180));
    }

    #[test]
    fn whoever_is_sent_something_may_measure_its_way() {
        let seconds: Vec<u64> = (0..100).collect();
        let away = pings(&mut judge(&[1]), &seconds, |judge| {
            judge.went(frame(DATA, 0, 1));
        });
        assert_eq!(away, None);
    }

    #[test]
    fn answers_to_pings_are_none() {
        let mut judge = judge(&[1]);
        for _ in 0..10 {
            assert!(!judge.came(frame(PING, ACK, 0), Instant::now));
        }
    }
}
