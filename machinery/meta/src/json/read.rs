//! The reader of trees. It can read over the tree of an earlier state of the same
//! object: most of that is there again, and stays where it is.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::plain;
use crate::marks::{Marked, Marks, Of};

/// The deepest nesting that is read here.
pub(super) const DEPTH_MAX: usize = 64;
/// What a text, or a list, may have of the memory of an earlier state beyond twice what
/// it needs.
const SPARE_BYTES: usize = 256;
const SPARE_ITEMS: usize = 16;
/// The most digits of a number that is read here: no such number is too large.
const DIGITS_MAX: usize = 18;
/// The most members of an object that are looked for one by one.
const MEMBERS_MAX: usize = 64;

/// A tree that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// The tree; of a key that stands twice in an object, the last value.
    pub value: Value,
    /// Whether some key does.
    pub twice: bool,
}

/// A tree of which the JSON is known.
#[derive(Debug)]
pub struct Known<'k> {
    /// The tree. Its metadata may have members that the text has not, as a version.
    pub tree: Value,
    /// The text.
    pub marked: Marked<'k>,
}

/// Reads JSON into a tree; `None` where that is not as simple.
pub fn read(text: &str) -> Option<Tree> {
    let mut value = Value::Null;
    let twice = Reader::new(text, None).read(&mut value, None)?;
    Some(Tree { value, twice })
}

/// Reads JSON as [`read`] does, over the tree of an earlier state if there is one, and
/// tells what stands where. A member with the text of before is not read.
pub fn read_over(text: &str, before: Option<Known<'_>>) -> Option<(Tree, Marks)> {
    let mut marks = Marks::default();
    let (mut value, known) = match before {
        Some(Known { tree, marked }) => (tree, Some(marked)),
        None => (Value::Null, None),
    };
    let twice = Reader::new(text, Some(&mut marks)).read(&mut value, known)?;
    Some((Tree { value, twice }, marks))
}

struct Reader<'t> {
    text: &'t str,
    /// The next byte to look at.
    at: usize,
    twice: bool,
    marks: Option<&'t mut Marks>,
}

/// What a value is in the object that is read.
#[derive(Clone, Copy)]
enum Place<'k> {
    /// All of it, or its metadata, with what is known of an earlier state.
    Outer(Of, Option<Marked<'k>>),
    /// Something else.
    Inner,
}

/// A string as it stands in the text.
#[derive(Clone, Copy)]
struct Raw<'t> {
    /// What is between its quotes.
    text: &'t str,
    escaped: bool,
}

impl<'k> Place<'k> {
    /// Returns the text that a member is known to have had.
    fn known(self, name: &str) -> Option<&'k [u8]> {
        match self {
            Self::Outer(whose, known) => known?.value(whose, name.as_bytes()),
            Self::Inner => None,
        }
    }

    fn below(self, name: &str) -> Self {
        match self {
            Self::Outer(Of::Object, known) if name == "metadata" => {
                Self::Outer(Of::Metadata, known)
            }
            _ => Self::Inner,
        }
    }
}

impl<'t> Raw<'t> {
    /// Writes the string over another.
    fn write(self, over: &mut String) -> Option<()> {
        over.clear();
        if over.capacity() > 2 * self.text.len() + SPARE_BYTES {
            *over = String::new();
        }
        if !self.escaped {
            over.push_str(self.text);
            return Some(());
        }
        let mut rest = self.text;
        while !rest.is_empty() {
            let (chunk, escape) = rest.split_at(plain(rest.as_bytes()));
            over.push_str(chunk);
            let Some(what) = escape.as_bytes().get(1) else {
                return escape.is_empty().then_some(());
            };
            over.push(match what {
                b'"' | b'\\' | b'/' => char::from(*what),
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                // A character by its number, or what is no escape.
                _ => {
                    *over = serde_json::from_str(&format!("\"{}\"", self.text)).ok()?;
                    return Some(());
                }
            });
            rest = escape.get(2..)?;
        }
        Some(())
    }

    fn name(self) -> Option<Cow<'t, str>> {
        if !self.escaped {
            return Some(Cow::Borrowed(self.text));
        }
        let mut text = String::new();
        self.write(&mut text)?;
        Some(Cow::Owned(text))
    }

    fn is(self, name: &str) -> bool {
        !self.escaped && self.text == name
    }
}

impl<'t> Reader<'t> {
    fn new(text: &'t str, marks: Option<&'t mut Marks>) -> Self {
        Self {
            text,
            at: 0,
            twice: false,
            marks,
        }
    }

    /// Reads all of the text. Returns whether a key stands twice.
    fn read(mut self, over: &mut Value, known: Option<Marked<'_>>) -> Option<bool> {
        self.value(over, 0, Place::Outer(Of::Object, known))?;
        self.skip_space();
        (self.at == self.text.len()).then_some(self.twice)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Takes this byte, if it is the next that means something.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self, over: &mut Value, depth: usize, place: Place<'_>) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_space();
        match self.peek()? {
            b'"' => {
                let raw = self.string()?;
                match over {
                    Value::String(text) => raw.write(text)?,
                    other => *other = Value::String(raw.name()?.into_owned()),
                }
            }
            b'{' => {
                if !over.is_object() {
                    *over = Value::Object(Map::new());
                }
                self.object(over.as_object_mut()?, depth, place)?;
            }
            b'[' => {
                if !over.is_array() {
                    *over = Value::Array(Vec::new());
                }
                self.array(over.as_array_mut()?, depth)?;
            }
            b't' => *over = self.word("true", Value::Bool(true))?,
            b'f' => *over = self.word("false", Value::Bool(false))?,
            b'n' => *over = self.word("null", Value::Null)?,
            _ => *over = self.number()?,
        }
        Some(())
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        let rest = self.text.get(self.at..)?;
        rest.starts_with(word).then(|| {
            self.at += word.len();
            value
        })
    }

    fn object(
        &mut self,
        map: &mut Map<String, Value>,
        depth: usize,
        place: Place<'_>,
    ) -> Option<()> {
        self.at += 1;
        if self.take(b'}') {
            map.clear();
            return Some(());
        }
        if map.len() > MEMBERS_MAX {
            map.clear();
        }
        if map.is_empty() {
            return self.members(map, depth, place);
        }
        // As long as the members stand in the order of before, nothing is looked for.
        let mut read = 0;
        let mut before = map.iter_mut();
        let first = loop {
            let key = self.key()?;
            match before.next() {
                Some((name, value)) if key.is(name) => self.member(key, value, depth, place)?,
                _ => break key,
            }
            read += 1;
            if !self.take(b',') {
                if before.next().is_some() {
                    let mut places = 0..;
                    map.retain(|_, _| places.next().is_some_and(|place| place < read));
                }
                return self.take(b'}').then_some(());
            }
        };
        self.scattered(map, read, first, depth, place)
    }

    /// Reads the members of an object that has none yet, but for the first brace.
    fn members(
        &mut self,
        map: &mut Map<String, Value>,
        depth: usize,
        place: Place<'_>,
    ) -> Option<()> {
        loop {
            let key = self.key()?;
            let mut value = Value::Null;
            self.member(key, &mut value, depth, place)?;
            let name = key.name()?.into_owned();
            self.twice |= map.insert(name, value).is_some();
            if self.take(b',') {
                continue;
            }
            return self.take(b'}').then_some(());
        }
    }

    /// Reads the members of an object from `key` on, which is not where it was. `read`
    /// of them were.
    fn scattered(
        &mut self,
        map: &mut Map<String, Value>,
        read: usize,
        mut key: Raw<'t>,
        depth: usize,
        place: Place<'_>,
    ) -> Option<()> {
        let mut before: Vec<_> = map
            .iter_mut()
            .enumerate()
            .map(|(nth, (name, value))| (name.as_str(), value, nth < read))
            .collect();
        let mut new = Vec::new();
        loop {
            let name = key.name()?;
            match before.iter_mut().find(|(there, _, _)| *there == name) {
                Some((_, value, is_read)) => {
                    if std::mem::replace(is_read, true) {
                        // It is not any more what it is known to have been.
                        self.twice = true;
                        **value = Value::Null;
                    }
                    self.member(key, value, depth, place)?;
                }
                None => {
                    let mut value = Value::Null;
                    self.member(key, &mut value, depth, place)?;
                    new.push((name.into_owned(), value));
                }
            }
            if !self.take(b',') {
                break;
            }
            key = self.key()?;
        }
        let stays: Vec<bool> = before.iter().map(|(_, _, is_read)| *is_read).collect();
        if stays.contains(&false) {
            let mut stays = stays.into_iter();
            map.retain(|_, _| stays.next().unwrap_or_default());
        }
        for (name, value) in new {
            self.twice |= map.insert(name, value).is_some();
        }
        self.take(b'}').then_some(())
    }

    /// Reads a key and its colon.
    fn key(&mut self) -> Option<Raw<'t>> {
        self.skip_space();
        let key = self.string()?;
        self.take(b':').then_some(key)
    }

    /// Reads the value of a member over what it was before.
    fn member(
        &mut self,
        key: Raw<'t>,
        over: &mut Value,
        depth: usize,
        place: Place<'_>,
    ) -> Option<()> {
        let Place::Outer(whose, _) = place else {
            return self.value(over, depth + 1, Place::Inner);
        };
        self.skip_space();
        let from = self.at;
        match place.known(key.text).filter(|_| !over.is_null()) {
            Some(known) if self.stands_here(known) => self.at += known.len(),
            _ => self.value(over, depth + 1, place.below(key.text))?,
        }
        if let Some(marks) = &mut self.marks
            && !key.escaped
        {
            let name = key.text.as_ptr() as usize - self.text.as_ptr() as usize;
            marks.note(whose, name..name + key.text.len(), from..self.at);
        }
        Some(())
    }

    /// Tells whether this value is what comes next.
    fn stands_here(&self, value: &[u8]) -> bool {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let ends = |after: &[u8]| matches!(after, [b',' | b'}' | b' ' | b'\n' | b'\r' | b'\t', ..]);
        !value.is_empty() && rest.strip_prefix(value).is_some_and(ends)
    }

    fn array(&mut self, items: &mut Vec<Value>, depth: usize) -> Option<()> {
        self.at += 1;
        let mut read = 0;
        if self.take(b']') {
            *items = Vec::new();
            return Some(());
        }
        loop {
            if read == items.len() {
                items.push(Value::Null);
            }
            self.value(items.get_mut(read)?, depth + 1, Place::Inner)?;
            read += 1;
            if !self.take(b',') {
                break;
            }
        }
        items.truncate(read);
        if items.capacity() > 2 * read + SPARE_ITEMS {
            items.shrink_to_fit();
        }
        self.take(b']').then_some(())
    }

    fn string(&mut self) -> Option<Raw<'t>> {
        if self.peek()? != b'"' {
            return None;
        }
        let from = self.at + 1;
        let mut to = from;
        let mut escaped = false;
        loop {
            to += plain(self.text.as_bytes().get(to..)?);
            match self.text.as_bytes().get(to)? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    to += 2;
                }
                // A control character.
                _ => return None,
            }
        }
        self.at = to + 1;
        let text = self.text.get(from..to)?;
        Some(Raw { text, escaped })
    }

    fn number(&mut self) -> Option<Value> {
        let bytes = self.text.as_bytes().get(self.at..)?;
        let is_part = |b: &&u8| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = bytes.iter().take_while(is_part).count();
        let token = self.text.get(self.at..self.at + length)?;
        self.at += length;
        match token.as_bytes() {
            [b'1'..=b'9', rest @ ..]
                if rest.len() < DIGITS_MAX && rest.iter().all(u8::is_ascii_digit) =>
            {
                token.parse::<u64>().ok().map(Value::from)
            }
            // Zero, a sign, a fraction, or many digits.
            _ => serde_json::from_str(token).ok().filter(Value::is_number),
        }
    }
}
