//! The CRI log line: `2016-10-06T00:17:09.669794202Z stdout F text`.
//!
//! The format is the CRI's (kubelet `cri/logs`): an RFC 3339 time with
//! nanoseconds, the stream, a tag (`F` a full line, `P` a part whose rest
//! follows), the text. The shim writes it, the log reader reads it.

use std::io::Write as _;

use jiff::Timestamp;

/// Longest text of one log line in bytes; a longer line is split into parts,
/// as containerd does at 16 KiB.
pub const LINE_BYTES_MAX: usize = 16 * 1024;

/// Which of the container's two streams a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Names the stream as the log does.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// A parsed log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The time, as written.
    pub time: &'a str,
    /// The stream it came from.
    pub stream: Stream,
    /// Whether its rest follows in the next line of the stream.
    pub partial: bool,
    /// The text, without newline.
    pub text: &'a [u8],
}

impl Line<'_> {
    /// Returns the time, `None` if it is not RFC 3339.
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.time.parse().ok()
    }
}

/// Appends one log line, newline included.
pub fn write_line(out: &mut Vec<u8>, time: Timestamp, stream: Stream, partial: bool, text: &[u8]) {
    let tag = if partial { 'P' } else { 'F' };
    // Writing to a Vec cannot fail.
    let _written = write!(out, "{time:.9} {} {tag} ", stream.name());
    out.extend_from_slice(text);
    out.push(b'\n');
}

/// Parses one log line, given without its newline. `None` if it is not in CRI format.
pub fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = line.splitn(4, |b| *b == b' ');
    let time = std::str::from_utf8(fields.next()?).ok()?;
    let stream = match fields.next()? {
        b"stdout" => Stream::Stdout,
        b"stderr" => Stream::Stderr,
        _ => return None,
    };
    let tags = fields.next()?;
    let partial = match tags.split(|b| *b == b':').next()? {
        b"P" => true,
        b"F" => false,
        _ => return None,
    };
    Some(Line {
        time,
        stream,
        partial,
        text: fields.next().unwrap_or_default(),
    })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_line_is_written_as_the_cri_says() {
        let time: Timestamp = "2016-10-06T00:17:09.669794202Z".parse().unwrap();
        let mut out = Vec::new();
        write_line(
            &mut out,
            time,
            Stream::Stdout,
            false,
            b"The content of the log entry 1",
        );
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "2016-10-06T00:17:09.669794202Z stdout F The content of the log entry 1\n"
        );
    }

    #[test]
    fn the_time_always_has_nine_digits() {
        let mut out = Vec::new();
        let time = Timestamp::from_second(1_700_000_000).unwrap();
        write_line(&mut out, time, Stream::Stderr, true, b"");
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "2023-11-14T22:13:20.000000000Z stderr P \n"
        );
    }

    #[test]
    fn parsing_is_the_inverse_and_refuses_what_is_not_a_log_line() {
        let line = parse_line(b"2016-10-06T00:17:09.669794202Z stderr P two  words").unwrap();
        assert_eq!(
            (line.stream, line.partial, line.text),
            (Stream::Stderr, true, &b"two  words"[..])
        );
        assert!(line.timestamp().is_some());
        assert!(
            parse_line(b"2016-10-06T00:17:09Z stdout F ")
                .unwrap()
                .text
                .is_empty()
        );
        for bad in [
            &b""[..],
            b"x",
            b"2016 stdin F x",
            b"2016 stdout X x",
            b"\xff stdout F x",
        ] {
            assert_eq!(parse_line(bad), None, "{bad:?}");
        }
    }
}
