//! Reading a container's log: from any point, across rotation, as it grows.
//!
//! The writer (the [`shim`](crate::shim)) only appends and renames, so a file
//! held open is read to its end and then its successor is looked up by inode.
//! Waiting is by inotify on the log's directory, with a look every second in
//! case the container ended without writing.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use kubelet_core::cri_log::{Line, Stream, parse_line};
use rustix::fs::inotify;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::proc::watch_readable;
use crate::shim::{LOG_FILES_MAX, rotated};

/// Bytes read from a log file at once; also about the size of one chunk sent.
const CHUNK_BYTES: usize = 64 * 1024;
/// Longest time between two looks at a log that is followed.
const FOLLOW_LOOK: Duration = Duration::from_secs(1);
/// Longest line kept in memory while its end is looked for; the shim writes
/// none near it, so a longer one is not a log and is sent in pieces.
const LINE_BYTES_MAX: usize = 256 * 1024;

/// Which part of a log to read, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Goes on until the container has ended.
    pub follow: bool,
    /// Starts with the last lines.
    pub tail_lines: Option<u64>,
    /// Leaves out what is older.
    pub since: Option<Timestamp>,
    /// Puts the time before each line.
    pub timestamps: bool,
    /// Stops after this many bytes.
    pub limit_bytes: Option<u64>,
    /// Sends one of the two streams only.
    pub stream: Option<Stream>,
}

/// Sends a log to `out` until its end, or, if followed, until the container
/// has ended and all it wrote is sent. Ends early when nobody receives.
pub async fn send_log(
    path: &Path,
    options: &LogOptions,
    is_alive: impl Fn() -> bool,
    out: &mpsc::Sender<io::Result<Bytes>>,
) {
    if let Err(error) = try_send_log(path, options, is_alive, out).await {
        let _nobody_receives = out.send(Err(error)).await;
    }
}

async fn try_send_log(
    path: &Path,
    options: &LogOptions,
    is_alive: impl Fn() -> bool,
    out: &mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    // Watched before the first read, so that nothing is missed in between.
    let mut waiter = options.follow.then(|| Waiter::new(path)).transpose()?;
    let mut files = Files::open(path, options.tail_lines)?;
    let mut filter = Filter::new(options);
    let mut buffer = vec![0_u8; CHUNK_BYTES];
    loop {
        // Asked before reading: what is read after the end is all there is.
        let alive = options.follow && is_alive();
        while let Some(count) = files.read(&mut buffer)? {
            let chunk = filter.push(&buffer[..count]);
            if !chunk.is_empty() && out.send(Ok(Bytes::from(chunk))).await.is_err() {
                return Ok(());
            }
            if filter.is_full() {
                return Ok(());
            }
        }
        match &mut waiter {
            Some(waiter) if alive => {
                tokio::select! {
                    () = waiter.wait() => {}
                    () = out.closed() => return Ok(()),
                }
            }
            Some(_) | None => return Ok(()),
        }
    }
}

/// The files of one log, read one after the other.
struct Files {
    path: PathBuf,
    current: Option<File>,
}

impl Files {
    /// Opens the log where its last `tail` lines begin, or at its beginning.
    fn open(path: &Path, tail: Option<u64>) -> io::Result<Self> {
        let mut files = Files {
            path: path.to_owned(),
            current: None,
        };
        let mut wanted = tail;
        for age in 0..LOG_FILES_MAX {
            let Some(mut file) = open_if_exists(&rotated(path, age))? else {
                break;
            };
            if let Some(lines) = wanted {
                let (offset, missing) = seek_tail(&mut file, lines)?;
                file.seek(SeekFrom::Start(offset))?;
                wanted = Some(missing);
            }
            files.current = Some(file);
            if wanted == Some(0) {
                break;
            }
        }
        Ok(files)
    }

    /// Reads what comes next; `None` at the present end of the log.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            if self.current.is_none() {
                // The container has not written anything yet.
                self.current = open_if_exists(&self.path)?;
            }
            let Some(file) = &mut self.current else {
                return Ok(None);
            };
            let count = file.read(buffer)?;
            if count > 0 {
                return Ok(Some(count));
            }
            match self.successor()? {
                Some(next) => self.current = Some(next),
                None => return Ok(None),
            }
        }
    }

    /// Opens the file after the current one. If files are rotated meanwhile the
    /// neighbours are compared again.
    fn successor(&self) -> io::Result<Option<File>> {
        let Some(file) = &self.current else {
            return Ok(None);
        };
        let inode = file.metadata()?.ino();
        loop {
            let Some(age) = self.age_of(inode) else {
                // Rotated away altogether: the oldest there is comes next.
                return self.oldest();
            };
            if age == 0 {
                return Ok(None);
            }
            let next = open_if_exists(&rotated(&self.path, age - 1))?;
            if self.age_of(inode) == Some(age) {
                // Between rename and re-creation the current file is missing.
                return Ok(next);
            }
        }
    }

    fn age_of(&self, inode: u64) -> Option<u32> {
        (0..LOG_FILES_MAX).find(|age| {
            std::fs::metadata(rotated(&self.path, *age)).is_ok_and(|m| m.ino() == inode)
        })
    }

    fn oldest(&self) -> io::Result<Option<File>> {
        for age in (0..LOG_FILES_MAX).rev() {
            if let Some(file) = open_if_exists(&rotated(&self.path, age))? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }
}

fn open_if_exists(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds where the last `lines` lines of a file begin, reading backwards; also
/// returns how many lines it lacks.
fn seek_tail(file: &mut File, lines: u64) -> io::Result<(u64, u64)> {
    let end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok((end, 0));
    }
    let mut block = vec![0_u8; CHUNK_BYTES];
    let mut found = 0;
    let mut position = end;
    while position > 0 {
        let count = position.min(CHUNK_BYTES as u64);
        position -= count;
        let count = usize::try_from(count).map_err(io::Error::other)?;
        file.seek(SeekFrom::Start(position))?;
        file.read_exact(&mut block[..count])?;
        for (index, byte) in block[..count].iter().enumerate().rev() {
            let at = position + index as u64;
            // The newline that ends the file begins no line.
            if *byte == b'\n' && at + 1 < end {
                found += 1;
                if found == lines {
                    return Ok((at + 1, 0));
                }
            }
        }
    }
    let has = if end > 0 { found + 1 } else { 0 };
    Ok((0, lines - has.min(lines)))
}

/// Turns log lines into what users see.
struct Filter<'a> {
    options: &'a LogOptions,
    /// The beginning of a line whose end was not read yet.
    partial: Vec<u8>,
    /// Whether the next line continues the one before.
    continues: bool,
    left: u64,
}

impl<'a> Filter<'a> {
    fn new(options: &'a LogOptions) -> Self {
        let left = options.limit_bytes.unwrap_or(u64::MAX);
        Filter {
            options,
            partial: Vec::new(),
            continues: false,
            left,
        }
    }

    fn push(&mut self, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(data.len());
        for piece in data.split_inclusive(|b| *b == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() > LINE_BYTES_MAX {
                let line = std::mem::take(&mut self.partial);
                self.line(line.strip_suffix(b"\n").unwrap_or(&line), &mut out);
            }
        }
        let keep = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(out.len());
        out.truncate(keep);
        self.left -= keep as u64;
        out
    }

    fn line(&mut self, raw: &[u8], out: &mut Vec<u8>) {
        let Some(line) = parse_line(raw) else {
            // Not ours, but better shown than hidden.
            out.extend_from_slice(raw);
            out.push(b'\n');
            return;
        };
        if self.is_too_old(&line) || self.options.stream.is_some_and(|s| s != line.stream) {
            return;
        }
        if self.options.timestamps && !self.continues {
            out.extend_from_slice(line.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if !line.partial {
            out.push(b'\n');
        }
        self.continues = line.partial;
    }

    fn is_too_old(&self, line: &Line<'_>) -> bool {
        let Some(since) = self.options.since else {
            return false;
        };
        line.timestamp().is_some_and(|time| time < since)
    }

    fn is_full(&self) -> bool {
        self.left == 0
    }
}

/// Waits until something changes in the log's directory.
struct Waiter {
    inotify: AsyncFd<rustix::fd::OwnedFd>,
}

impl Waiter {
    fn new(path: &Path) -> io::Result<Self> {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let inotify = inotify::init(flags)?;
        if let Some(dir) = path.parent() {
            let events = inotify::WatchFlags::MODIFY
                | inotify::WatchFlags::CREATE
                | inotify::WatchFlags::MOVED_TO;
            // Without the watch the look every second still follows the log.
            let _may_not_exist = inotify::add_watch(&inotify, dir, events);
        }
        Ok(Waiter {
            inotify: watch_readable(inotify)?,
        })
    }

    async fn wait(&mut self) {
        let readable = tokio::time::timeout(FOLLOW_LOOK, self.inotify.readable()).await;
        let Ok(Ok(mut guard)) = readable else { return };
        // What happened does not matter, only that something did.
        let mut events = [0_u8; 4096];
        while rustix::io::read(guard.get_inner(), &mut events).is_ok_and(|count| count > 0) {}
        guard.clear_ready();
    }
}

#[cfg(test)]
mod test;
