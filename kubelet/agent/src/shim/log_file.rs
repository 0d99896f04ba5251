//! The container's log on disk: CRI lines, rotated by size.
//!
//! `n.log` is current; at [`LOG_BYTES_MAX`] it becomes `n.log.1`, what was
//! `n.log.1` becomes `n.log.2`, and so on up to [`LOG_FILES_MAX`] files. A file
//! is only ever appended to and renamed, so a reader that holds it open reads
//! it to its end and then looks for the next. If the disk is full lines are
//! lost; the container is never held up.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kubelet_core::cri_log::{LINE_BYTES_MAX, Stream, write_line};

/// Size at which a log file is rotated (upstream `containerLogMaxSize`, 10Mi).
pub(crate) const LOG_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// How many files a log may have, the current one included (upstream
/// `containerLogMaxFiles`, 5); the oldest is removed.
pub(crate) const LOG_FILES_MAX: u32 = 5;

/// Returns the path of a rotated file; 0 is the current one.
pub(crate) fn rotated(path: &Path, age: u32) -> PathBuf {
    if age == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{age}"));
    PathBuf::from(name)
}

/// A log being written.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    /// What of a line has not ended yet, per stream.
    pending: [Vec<u8>; 2],
    /// Lines ready to be written at once.
    out: Vec<u8>,
}

impl LogFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = open_append(path)?;
        let bytes = file.metadata()?.len();
        Ok(LogFile {
            path: path.to_owned(),
            file,
            bytes,
            bytes_max: LOG_BYTES_MAX,
            pending: [Vec::new(), Vec::new()],
            out: Vec::new(),
        })
    }

    /// Adds what the container wrote.
    pub(super) fn append(&mut self, stream: Stream, data: &[u8], time: Timestamp) {
        for piece in data.split_inclusive(|b| *b == b'\n') {
            let (text, ends) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let pending = &mut self.pending[slot(stream)];
            pending.extend_from_slice(text);
            while pending.len() > LINE_BYTES_MAX {
                let rest = pending.split_off(LINE_BYTES_MAX);
                write_line(&mut self.out, time, stream, true, pending);
                *pending = rest;
            }
            if ends {
                write_line(&mut self.out, time, stream, false, pending);
                pending.clear();
            }
        }
        self.flush();
    }

    /// Writes the last line, which had no newline.
    pub(super) fn end_of_stream(&mut self, stream: Stream, time: Timestamp) {
        let pending = std::mem::take(&mut self.pending[slot(stream)]);
        if !pending.is_empty() {
            write_line(&mut self.out, time, stream, false, &pending);
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.out.is_empty() {
            return;
        }
        if self.bytes >= self.bytes_max {
            self.rotate();
        }
        if self.file.write_all(&self.out).is_ok() {
            self.bytes += self.out.len() as u64;
        }
        self.out.clear();
    }

    /// Moves the current file aside. On any failure the old one is kept in use.
    fn rotate(&mut self) {
        for age in (0..LOG_FILES_MAX - 1).rev() {
            let _may_not_exist = fs::rename(rotated(&self.path, age), rotated(&self.path, age + 1));
        }
        if let Ok(file) = open_append(&self.path) {
            self.file = file;
            self.bytes = 0;
        }
    }
}

fn slot(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod test {
    use super::*;

    fn lines(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .map(|l| l.split_once(' ').unwrap().1.to_owned())
            .collect()
    }

    #[test]
    fn lines_are_joined_across_reads_and_streams_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c/0.log");
        let mut log = LogFile::open(&path).unwrap();
        let time = Timestamp::UNIX_EPOCH;
        log.append(Stream::Stdout, b"one\ntw", time);
        log.append(Stream::Stderr, b"oops\n", time);
        log.append(Stream::Stdout, b"o\n\nlast", time);
        log.end_of_stream(Stream::Stdout, time);
        assert_eq!(
            lines(&path),
            [
                "stdout F one",
                "stderr F oops",
                "stdout F two",
                "stdout F ",
                "stdout F last"
            ]
        );
    }

    #[test]
    fn a_long_line_is_written_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut log = LogFile::open(&path).unwrap();
        let mut data = vec![b'x'; 2 * LINE_BYTES_MAX + 1];
        data.push(b'\n');
        log.append(Stream::Stdout, &data, Timestamp::UNIX_EPOCH);
        let tags: Vec<_> = lines(&path)
            .iter()
            .map(|l| (l[7..8].to_owned(), l.len() - 9))
            .collect();
        let part = ("P".to_owned(), LINE_BYTES_MAX);
        assert_eq!(tags, [part.clone(), part, ("F".to_owned(), 1)]);
    }

    #[test]
    fn files_are_rotated_and_the_oldest_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut log = LogFile::open(&path).unwrap();
        log.bytes_max = 1;
        for n in 0..7 {
            log.append(
                Stream::Stdout,
                format!("{n}\n").as_bytes(),
                Timestamp::UNIX_EPOCH,
            );
        }
        let kept: Vec<_> = (0..LOG_FILES_MAX)
            .map(|age| lines(&rotated(&path, age))[0].clone())
            .collect();
        assert_eq!(
            kept,
            [
                "stdout F 6",
                "stdout F 5",
                "stdout F 4",
                "stdout F 3",
                "stdout F 2"
            ]
        );
        assert!(!rotated(&path, LOG_FILES_MAX).exists());
    }
}
