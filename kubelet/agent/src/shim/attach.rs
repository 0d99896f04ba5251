//! Those who are attached: they hear what the container writes, and type what it
//! reads.
//!
//! They come through a socket in the container's directory and speak frames: a
//! channel, a length, bytes ([`Frame`]). Nobody attached holds the container up:
//! who takes in too little for too long is let go. What is typed waits for the
//! container to read it, and its writer waits with it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kubelet_core::cri_log::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

use crate::terminal::{self, Size};

/// The socket's name in the container's directory.
const SOCKET: &str = "attach";
/// How many may be attached at once; others are turned away.
const CLIENTS_MAX: usize = 16;
/// Most bytes that wait for a client; one that leaves more waiting is let go.
const WAITING_BYTES_MAX: usize = 1024 * 1024;
/// How much typed input may wait; beyond it no more is read from anybody.
const TYPED_BYTES_MAX: usize = 64 * 1024;
/// The longest frame of a client; one that announces more is let go.
const FRAME_BYTES_MAX: usize = 64 * 1024;
/// How long clients may take to hear the last words of an ended container.
const FAREWELL: Duration = Duration::from_secs(2);
const FRAME_HEAD_BYTES: usize = 5;

/// What a frame is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// To the container: input. Also says that the sender is one who types.
    Stdin = 0,
    /// From the container: output.
    Stdout = 1,
    /// From the container: errors.
    Stderr = 2,
    /// To the container: columns and lines, two bytes each.
    Resize = 4,
    /// To the container: the end of input.
    End = 255,
}

impl Channel {
    fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::Stdin,
            Self::Stdout,
            Self::Stderr,
            Self::Resize,
            Self::End,
        ];
        all.into_iter().find(|c| *c as u8 == byte)
    }

    /// Returns the channel of an output stream.
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Stdout => Self::Stdout,
            Stream::Stderr => Self::Stderr,
        }
    }
}

/// A message between the shim and one who is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) channel: Channel,
    pub(crate) bytes: Vec<u8>,
}

impl Frame {
    /// Writes a frame. No piece that is sent is longer than a length can say.
    pub(crate) fn encode(channel: Channel, bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut out = Vec::with_capacity(FRAME_HEAD_BYTES + bytes.len());
        out.push(channel as u8);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(bytes);
        out
    }

    /// Takes a frame off the beginning; `None` until it is whole.
    pub(crate) fn take(buffer: &mut Vec<u8>) -> io::Result<Option<Self>> {
        let Some(([channel, length @ ..], rest)) = buffer.split_first_chunk::<FRAME_HEAD_BYTES>()
        else {
            return Ok(None);
        };
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let channel = Channel::of(*channel).ok_or_else(bad)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > FRAME_BYTES_MAX {
            return Err(bad());
        }
        let Some(bytes) = rest.get(..length).map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        buffer.drain(..FRAME_HEAD_BYTES + length);
        Ok(Some(Self { channel, bytes }))
    }
}

/// Returns a short path of the socket, good while the directory is held: the
/// real one may be longer than a socket's address.
pub(crate) fn socket_path(dir: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = rustix::fs::open(dir, flags, Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", held.as_raw_fd()));
    Ok((held, path))
}

/// What the container reads.
#[derive(Debug)]
pub(super) struct Stdin {
    /// The other end, not blocking; closed for good when it is taken away.
    pub(super) file: Option<File>,
    /// Whether it is a terminal, whose input ends by a character.
    pub(super) tty: bool,
    /// Whether it ends with the first who typed.
    pub(super) once: bool,
}

struct Client {
    socket: UnixStream,
    read: Vec<u8>,
    waiting: Vec<u8>,
    types: bool,
}

/// Everybody attached, and the container's input.
pub(super) struct Attached {
    listener: Option<UnixListener>,
    clients: Vec<Client>,
    stdin: Stdin,
    typed: Vec<u8>,
    ending: bool,
}

impl Attached {
    /// Opens the socket. Without one nobody can attach, and all else goes on.
    pub(super) fn open(dir: &Path, stdin: Stdin) -> Self {
        let listener = socket_path(dir).and_then(|(_held, path)| {
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        Self {
            listener: listener.ok(),
            clients: Vec::new(),
            stdin,
            typed: Vec::new(),
            ending: false,
        }
    }

    /// Lists what to wait for, in the order [`Self::serve`] expects.
    pub(super) fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let reads = self.typed.len() < TYPED_BYTES_MAX;
        let listener = self.listener.iter().map(|l| PollFd::new(l, PollFlags::IN));
        let input = self.writable_stdin().into_iter();
        let clients = self.clients.iter().map(|c| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, !c.waiting.is_empty());
            PollFd::new(&c.socket, flags)
        });
        listener
            .chain(input.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)))
            .chain(clients)
            .collect()
    }

    fn writable_stdin(&self) -> Option<BorrowedFd<'_>> {
        let file = self.stdin.file.as_ref()?;
        (!self.typed.is_empty()).then(|| file.as_fd())
    }

    /// Does what can be done without waiting.
    pub(super) fn serve(&mut self, ready: &[PollFlags]) {
        let mut ready = ready.iter().copied();
        let is_awaited = self.writable_stdin().is_some();
        let knocks = self.listener.is_some() && ready.next().is_some_and(|r| !r.is_empty());
        if is_awaited && ready.next().is_some_and(|r| !r.is_empty()) {
            self.feed();
        }
        let mut clients = std::mem::take(&mut self.clients);
        clients.retain_mut(|client| {
            let events = ready.next().unwrap_or(PollFlags::empty());
            let stays = events.is_empty() || self.serve_client(client, events).unwrap_or(false);
            if !stays && client.types {
                self.end_input();
            }
            stays
        });
        self.clients = clients;
        if knocks {
            self.accept();
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        while let Ok((socket, _)) = listener.accept() {
            if self.clients.len() >= CLIENTS_MAX || socket.set_nonblocking(true).is_err() {
                continue;
            }
            self.clients.push(Client {
                socket,
                read: Vec::new(),
                waiting: Vec::new(),
                types: false,
            });
        }
    }

    /// Reports whether the client stays.
    fn serve_client(&mut self, client: &mut Client, events: PollFlags) -> io::Result<bool> {
        if events.intersects(PollFlags::OUT) {
            client.flush()?;
        }
        if !events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            return Ok(true);
        }
        let mut buffer = [0; 16 * 1024];
        let count = match client.socket.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(e) if is_not_yet(&e) => return Ok(true),
            Err(e) => return Err(e),
        };
        client
            .read
            .extend_from_slice(buffer.get(..count).unwrap_or_default());
        while let Some(frame) = Frame::take(&mut client.read)? {
            match frame.channel {
                Channel::Stdin => {
                    client.types = true;
                    self.type_in(&frame.bytes);
                }
                Channel::End if client.types => self.end_input(),
                Channel::Resize => self.resize(&frame.bytes),
                Channel::End | Channel::Stdout | Channel::Stderr => {}
            }
        }
        Ok(true)
    }

    fn type_in(&mut self, bytes: &[u8]) {
        if self.stdin.file.is_some() && !self.ending {
            self.typed.extend_from_slice(bytes);
            self.feed();
        }
    }

    fn resize(&self, bytes: &[u8]) {
        if let ([a, b, c, d], Some(file), true) = (bytes, &self.stdin.file, self.stdin.tty) {
            let size = Size {
                columns: u16::from_be_bytes([*a, *b]),
                rows: u16::from_be_bytes([*c, *d]),
            };
            // A terminal that does not change its size is still a terminal.
            let _unchanged = file
                .try_clone()
                .and_then(|f| terminal::resize(&OwnedFd::from(f), size));
        }
    }

    /// One who typed is done: that ends the input of a container that takes it
    /// from one only.
    fn end_input(&mut self) {
        if !self.stdin.once || self.stdin.file.is_none() || self.ending {
            return;
        }
        if self.stdin.tty {
            self.typed.push(END_OF_INPUT);
        }
        self.ending = true;
        self.feed();
    }

    /// Gives the container what it will take of the input.
    fn feed(&mut self) {
        let Some(file) = &mut self.stdin.file else {
            self.typed.clear();
            return;
        };
        while !self.typed.is_empty() {
            match file.write(&self.typed) {
                Ok(count) => drop(self.typed.drain(..count)),
                Err(e) if is_not_yet(&e) => return,
                // It closed its input.
                Err(_) => {
                    self.stdin.file = None;
                    self.typed.clear();
                    return;
                }
            }
        }
        // A terminal's end is also its screen's and stays.
        if self.ending && !self.stdin.tty {
            self.stdin.file = None;
        }
    }

    /// Lets everybody hear what the container wrote.
    pub(super) fn tell(&mut self, stream: Stream, bytes: &[u8]) {
        if self.clients.is_empty() {
            return;
        }
        let frame = Frame::encode(Channel::from(stream), bytes);
        self.clients.retain_mut(|client| {
            client.waiting.extend_from_slice(&frame);
            client.flush().is_ok() && client.waiting.len() <= WAITING_BYTES_MAX
        });
    }

    /// Gives everybody a moment to hear the rest.
    pub(super) fn farewell(&mut self) {
        let deadline = Instant::now() + FAREWELL;
        loop {
            self.clients
                .retain_mut(|c| c.flush().is_ok() && !c.waiting.is_empty());
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(timeout) = Timespec::try_from(left) else {
                return;
            };
            if self.clients.is_empty() || left.is_zero() {
                return;
            }
            let sockets = self.clients.iter().map(|c| &c.socket);
            let mut fds: Vec<_> = sockets.map(|s| PollFd::new(s, PollFlags::OUT)).collect();
            // Whatever it says, the deadline counts.
            let _woken = poll(&mut fds, Some(&timeout));
        }
    }
}

/// What ends a terminal's input at the beginning of a line (`^D`).
const END_OF_INPUT: u8 = 4;

impl Client {
    fn flush(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match self.socket.write(&self.waiting) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(e) if is_not_yet(&e) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn frames_come_whole_or_not_yet() {
        let mut sent = Frame::encode(Channel::Stdin, b"typed");
        sent.extend(Frame::encode(Channel::End, b""));
        let mut buffer = Vec::new();
        let mut frames = Vec::new();
        for byte in sent {
            buffer.push(byte);
            frames.extend(Frame::take(&mut buffer).unwrap());
        }
        let frame = |channel, bytes: &[u8]| Frame {
            channel,
            bytes: bytes.to_vec(),
        };
        assert_eq!(
            frames,
            [frame(Channel::Stdin, b"typed"), frame(Channel::End, b"")]
        );
        assert!(
            Frame::take(&mut vec![9, 0, 0, 0, 0]).is_err(),
            "no such channel"
        );
        assert!(Frame::take(&mut vec![0, 1, 0, 0, 0]).is_err(), "too long");
    }
}
