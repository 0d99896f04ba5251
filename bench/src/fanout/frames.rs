//! Events out of the bytes of a watch, as cheaply as can be.
//!
//! Of an event only its type, its resource version and the mark that says which
//! write made it are looked for, by single bytes; the rest is passed over. A client
//! that parsed whole objects would measure itself.

use std::io::BufRead as _;

use anyhow::{Context as _, bail};

/// How many bytes of an event are looked at: more than any object may have. Metadata
/// may come after all the rest.
const EVENT_BYTES: usize = 4 << 20;

/// What begins the mark of a write: a byte that nothing else in an object has.
pub(super) const MARK: u8 = b'~';

/// What comes before a version in JSON, and the letter by which it is found.
const VERSION: &[u8] = b"\"resourceVersion\":\"";
const VERSION_LETTER: (u8, usize) = (b'V', 9);

/// What comes before an object in protobuf.
const MAGIC: &[u8] = b"k8s\0";

/// The length that comes before an event in protobuf.
const LENGTH_BYTES: usize = 4;

/// What one event says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A write made this.
    Change {
        object: u32,
        sequence: u32,
        revision: u64,
    },
    /// Nothing happened up to some version.
    Bookmark,
    /// The server ends the watch.
    Error(String),
    /// Something that no write made.
    Strange(String),
}

/// Returns where a byte is.
fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    // What skips a line is the C library's memchr.
    let (mut rest, mut at) = (bytes, 0);
    at += rest.skip_until(byte).ok()?;
    (bytes.get(at.checked_sub(1)?) == Some(&byte)).then(|| at - 1)
}

/// Counts a byte.
pub(super) fn count(bytes: &[u8], byte: u8) -> u64 {
    let (mut rest, mut found) = (bytes, 0);
    while let Some(at) = find(rest, byte) {
        found += 1;
        rest = &rest[at + 1..];
    }
    found
}

/// Reads digits from the beginning of bytes.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    let text = std::str::from_utf8(&bytes[..digits]).ok()?;
    Some((text.parse().ok()?, &bytes[digits..]))
}

/// Writes the mark of a write.
pub(super) fn mark(object: u32, sequence: u32) -> String {
    format!("{}{object}.{sequence}", char::from(MARK))
}

/// Finds the mark of a write.
pub(super) fn marked(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut rest = bytes;
    loop {
        rest = &rest[find(rest, MARK)? + 1..];
        // In protobuf the byte may also be a length.
        if let Some(found) = mark_at(rest) {
            return Some(found);
        }
    }
}

fn mark_at(bytes: &[u8]) -> Option<(u32, u32)> {
    let (object, rest) = number(bytes)?;
    let (sequence, _) = number(rest.strip_prefix(b".")?)?;
    Some((object.try_into().ok()?, sequence.try_into().ok()?))
}

/// Takes the bytes of one watch as they come.
pub(super) struct Frames {
    protobuf: bool,
    /// What has come of an event that is not whole.
    part: Vec<u8>,
    /// What is still to come of it, in protobuf.
    missing: usize,
    /// Where the version was last time.
    hint: usize,
}

impl Frames {
    pub(super) fn new(protobuf: bool) -> Self {
        Self {
            protobuf,
            part: Vec::new(),
            missing: 0,
            hint: 0,
        }
    }

    /// Tells whether the bytes so far end where an event does.
    pub(super) fn is_between(&self) -> bool {
        self.part.is_empty() && self.missing == 0
    }

    /// Takes some bytes and passes on the events that are whole with them.
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Event)) -> anyhow::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (part, whole) = match self.protobuf {
                true => self.next_message(&mut rest)?,
                false => {
                    let all = rest;
                    let taken = rest.skip_until(b'\n')?;
                    (&all[..taken], all[..taken].ends_with(b"\n"))
                }
            };
            if whole && self.part.is_empty() {
                each(self.read(part)?);
                continue;
            }
            let room = EVENT_BYTES.saturating_sub(self.part.len());
            self.part.extend_from_slice(&part[..part.len().min(room)]);
            if whole {
                let event = std::mem::take(&mut self.part);
                each(self.read(&event)?);
                self.part = event;
                self.part.clear();
            }
        }
        Ok(())
    }

    /// Takes what belongs to one message of protobuf, and says whether it is whole.
    fn next_message<'a>(&mut self, rest: &mut &'a [u8]) -> anyhow::Result<(&'a [u8], bool)> {
        let mut at = 0;
        if self.missing == 0 {
            // The length itself may come in parts.
            let wanted = LENGTH_BYTES.saturating_sub(self.part.len());
            at = wanted.min(rest.len());
            let mut length = self.part.clone();
            length.extend_from_slice(&rest[..at]);
            let Some(length) = length.first_chunk::<LENGTH_BYTES>() else {
                let (part, after) = rest.split_at(at);
                *rest = after;
                return Ok((part, false));
            };
            self.missing = usize::try_from(u32::from_be_bytes(*length))?;
        }
        let end = at + self.missing.min(rest.len() - at);
        self.missing -= end - at;
        let (part, after) = rest.split_at(end);
        *rest = after;
        Ok((part, self.missing == 0))
    }

    fn read(&mut self, event: &[u8]) -> anyhow::Result<Event> {
        let event = &event[..event.len().min(EVENT_BYTES)];
        match self.protobuf {
            true => read_protobuf(event.get(LENGTH_BYTES..).unwrap_or_default()),
            false => self.read_json(event),
        }
    }

    fn read_json(&mut self, event: &[u8]) -> anyhow::Result<Event> {
        let of_type = event.strip_prefix(b"{\"type\":\"");
        let letter = of_type.and_then(<[u8]>::first);
        Ok(match letter.context("an event without a type")? {
            b'A' | b'M' => {
                let revision = self.version(event).context("an event without a version")?;
                change(marked(event), revision, event)
            }
            b'B' => Event::Bookmark,
            b'E' => Event::Error(said(event)),
            _ => Event::Strange(said(event)),
        })
    }

    /// Finds an object's version, mostly where it was last time.
    fn version(&mut self, event: &[u8]) -> Option<u64> {
        let starts = |at: usize| event.get(at..).is_some_and(|h| h.starts_with(VERSION));
        let (letter, before) = VERSION_LETTER;
        let mut from = 0;
        while !starts(self.hint) {
            let at = from + find(event.get(from..)?, letter)?;
            from = at + 1;
            self.hint = at.saturating_sub(before);
        }
        number(&event[self.hint + VERSION.len()..]).map(|(version, _)| version)
    }
}

fn change(mark: Option<(u32, u32)>, revision: u64, event: &[u8]) -> Event {
    match mark {
        Some((object, sequence)) => Event::Change {
            object,
            sequence,
            revision,
        },
        None => Event::Strange(said(event)),
    }
}

/// Quotes the beginning of an event.
fn said(event: &[u8]) -> String {
    const QUOTED: usize = 300;
    String::from_utf8_lossy(&event[..event.len().min(QUOTED)])
        .trim()
        .to_owned()
}

fn read_protobuf(event: &[u8]) -> anyhow::Result<Event> {
    let letter = field(event, 1).and_then(|kind| kind.first());
    match letter.context("an event without a type")? {
        b'A' | b'M' => {}
        b'B' => return Ok(Event::Bookmark),
        b'E' => return Ok(Event::Error(said(event))),
        _ => return Ok(Event::Strange(said(event))),
    }
    let meta = field(event, 2)
        .and_then(|object| field(object, 1))
        .and_then(|raw| field(raw.strip_prefix(MAGIC)?, 2))
        .and_then(|object| field(object, 1))
        .context("an event without metadata")?;
    let version = field(meta, 6).and_then(number);
    let (revision, _) = version.context("an event without a version")?;
    Ok(change(marked(meta), revision, event))
}

/// Finds the first field of a number that has a length; what is cut off at the end
/// of the event is returned as far as it goes.
fn field(message: &[u8], wanted: u64) -> Option<&[u8]> {
    let mut rest = message;
    while !rest.is_empty() {
        let tag = varint(&mut rest).ok()?;
        match tag & 7 {
            0 => drop(varint(&mut rest).ok()?),
            1 => rest = rest.get(8..)?,
            5 => rest = rest.get(4..)?,
            2 => {
                let length = usize::try_from(varint(&mut rest).ok()?).ok()?;
                let (value, after) = rest.split_at(length.min(rest.len()));
                if tag >> 3 == wanted {
                    return Some(value);
                }
                rest = after;
            }
            _ => return None,
        }
    }
    None
}

fn varint(rest: &mut &[u8]) -> anyhow::Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first().context("a number that is cut off")?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    bail!("a number of too many bytes")
}

#[cfg(test)]
mod test {
    use super::*;

    fn change(object: u32, sequence: u32, revision: u64) -> Event {
        Event::Change {
            object,
            sequence,
            revision,
        }
    }

    /// Feeds bytes in pieces of a size.
    fn read(protobuf: bool, bytes: &[u8], piece: usize) -> Vec<Event> {
        let mut frames = Frames::new(protobuf);
        let mut events = Vec::new();
        for piece in bytes.chunks(piece) {
            frames.feed(piece, |event| events.push(event)).unwrap();
        }
        assert!(frames.is_between());
        events
    }

    fn json() -> Vec<u8> {
        let pad = "x".repeat(40_000);
        format!(
            "{{\"type\":\"ADDED\",\"object\":{{\"apiVersion\":\"v1\",\"metadata\":{{\
             \"resourceVersion\":\"12\",\"annotations\":{{\"fanout\":\"~3.1\"}}}}}}}}\n\
             {{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"13\"}}}}}}\n\
             {{\"type\":\"MODIFIED\",\"object\":{{\"metadata\":{{\"name\":\"a\",\
             \"annotations\":{{\"fanout\":\"~3.2\"}},\"resourceVersion\":\"140\"}},\
             \"data\":\"{pad}\"}}}}\n\
             {{\"type\":\"MODIFIED\",\"object\":{{\"data\":\"{pad}\",\"metadata\":{{\
             \"resourceVersion\":\"150\",\"annotations\":{{\"fanout\":\"~3.3\"}}}}}}}}\n\
             {{\"type\":\"ERROR\",\"object\":{{\"code\":410}}}}\n"
        )
        .into_bytes()
    }

    /// Writes a field that has a length.
    fn put(number: u8, value: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut length = value.len();
        while length >= 0x80 {
            out.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(value);
        out
    }

    fn protobuf(pad: usize) -> Vec<u8> {
        let pair = [put(1, b"fanout"), put(2, b"~70000.8")].concat();
        // A length that looks like the beginning of a mark.
        let name = [b'n'; MARK as usize];
        let meta = [put(1, &name), put(6, b"99"), put(12, &pair)].concat();
        // Either may come first.
        let mut object = [put(1, &meta), put(2, &vec![b'x'; pad])];
        if pad > 1000 {
            object.reverse();
        }
        let object = object.concat();
        let unknown = [put(1, &put(1, b"v1")), put(2, &object)].concat();
        let raw = [MAGIC, &unknown].concat();
        let event = [put(1, b"MODIFIED"), put(2, &put(1, &raw))].concat();
        let length = u32::try_from(event.len()).unwrap().to_be_bytes();
        [&length[..], &event].concat()
    }

    #[test]
    fn json_is_found_however_it_is_cut() {
        for piece in [1, 7, 100, 16_384, 1 << 20] {
            let events = read(false, &json(), piece);
            assert_eq!(events.len(), 5, "{piece}");
            assert_eq!(events[0], change(3, 1, 12));
            assert_eq!(events[1], Event::Bookmark);
            assert_eq!(events[2], change(3, 2, 140));
            assert_eq!(events[3], change(3, 3, 150));
            assert!(matches!(&events[4], Event::Error(said) if said.contains("410")));
        }
    }

    #[test]
    fn protobuf_is_found_however_it_is_cut() {
        let bytes = [protobuf(10), protobuf(50_000), protobuf(0)].concat();
        for piece in [1, 3, 5, 1000, 16_384, 1 << 20] {
            let events = read(true, &bytes, piece);
            assert_eq!(events.len(), 3, "{piece}");
            assert!(events.iter().all(|event| *event == change(70_000, 8, 99)));
        }
    }

    #[test]
    fn what_no_write_made_is_strange() {
        let events = read(
            false,
            b"{\"type\":\"DELETED\",\"object\":{}}\n{\"type\":\"ADDED\",\"object\":{\"resourceVersion\":\"1\"}}\n",
            64,
        );
        assert!(events.iter().all(|e| matches!(e, Event::Strange(_))));
    }

    #[test]
    fn bytes_are_counted() {
        assert_eq!(count(b"~a~~", MARK), 3);
        assert_eq!(count(b"", MARK), 0);
        assert_eq!(count(b"abc", MARK), 0);
    }
}
