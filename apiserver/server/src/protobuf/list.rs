//! Lists, written a piece at a time. The length of everything stands before it, so it
//! must be known before the first piece goes out: objects say how long they are, once
//! they were written for the first time.

use bytes::Bytes;
use meta::Object;
use meta::object::Encoding;
use serde_json::Value;

use super::table::{self, MessageId};
use super::wire::{Front, Out, varint_size};
use super::{END, EncodeError, Type, encode, kept, write_stored, write_value};

/// The number of a list's items, and the bytes of that as a tag.
const ITEMS: u32 = 2;
const TAG_BYTES: usize = 1;

/// A type of lists that has a message.
#[derive(Clone, Debug)]
pub(crate) struct List {
    api_version: String,
    kind: String,
    message: MessageId,
    metadata: MessageId,
    item: MessageId,
    encoding: Encoding,
}

impl List {
    /// Finds a type of lists, and says what of an object its items show.
    pub(crate) fn find(
        api_version: String,
        kind: &str,
        encoding: Encoding,
    ) -> Result<Self, EncodeError> {
        let message = Type::find(&api_version, kind)?.message;
        let none = || EncodeError::NoMessage(format!("*{kind}"));
        let inner = |name: &str| {
            let field = table::messages().get(message).field(name)?;
            match field.wire {
                table::Wire::Message(id) => Some(id),
                _ => None,
            }
        };
        Ok(Self {
            metadata: inner("metadata").ok_or_else(none)?,
            item: inner("items").ok_or_else(none)?,
            kind: kind.to_owned(),
            message,
            api_version,
            encoding,
        })
    }

    fn envelope(&self) -> Type<'_> {
        Type {
            api_version: &self.api_version,
            kind: &self.kind,
            message: self.message,
        }
    }

    /// Begins a list with its metadata, and room for so many bytes of items.
    pub(crate) fn begin(&self, metadata: &Value, bytes: usize) -> Result<Piece, EncodeError> {
        let mut out = Out::with_headroom(self.envelope().headroom(), bytes);
        let opened = out.open(1);
        write_value(&mut out, self.metadata, metadata)?;
        out.close(opened);
        Ok(Piece { out })
    }

    /// Writes an object as it is stored. What is made of one again may be kept with it,
    /// if that is wished.
    pub(crate) fn push(
        &self,
        piece: &mut Piece,
        object: &Object,
        keeps: bool,
    ) -> Result<(), EncodeError> {
        let out = &mut piece.out;
        let whole = self.encoding == Encoding::Protobuf;
        if let Some(message) = kept::message(object).filter(|_| whole) {
            out.bytes(ITEMS, message);
            return Ok(());
        }
        let opened = out.open(ITEMS);
        let before = out.len();
        match whole {
            true => write_stored(out, self.item, object)?,
            false => encode::metadata(out, self.item, object)?,
        }
        if whole && keeps {
            kept::keep(object, out.since(before));
        }
        object.keep_size(self.encoding, out.len() - before);
        out.close(opened);
        Ok(())
    }

    /// Writes a value.
    pub(crate) fn push_value(&self, piece: &mut Piece, value: &Value) -> Result<(), EncodeError> {
        let opened = piece.out.open(ITEMS);
        write_value(&mut piece.out, self.item, value)?;
        piece.out.close(opened);
        Ok(())
    }

    /// Returns how many bytes [`Self::push`] writes, if that is known.
    pub(crate) fn length(&self, object: &Object) -> Option<usize> {
        let size = object.size_in(self.encoding)?;
        Some(TAG_BYTES + varint_size(size as u64) + size)
    }

    /// Ends a list that is in one piece.
    pub(crate) fn whole(&self, begun: Piece) -> Bytes {
        let mut front = self.open(begun, 0);
        front.append(END);
        front.finish()
    }

    /// Turns the first piece of a list into bytes: so many are to follow it.
    pub(crate) fn first(&self, begun: Piece, follow: usize) -> Bytes {
        self.open(begun, follow).finish()
    }

    fn open(&self, begun: Piece, follow: usize) -> Front {
        let envelope = self.envelope();
        let mut front = Front::new(begun.out, envelope.headroom());
        front.wrap_with(2, follow);
        envelope.put(&mut front);
        front
    }
}

/// A piece of a list.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    out: Out,
}

impl Piece {
    /// Creates a piece that follows others, with room for so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self {
            out: Out::with_headroom(0, bytes),
        }
    }

    /// Returns how many bytes there are; in the first piece, with some kept free.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Forgets what was written.
    pub(crate) fn clear(&mut self) {
        self.out.clear();
    }

    /// Returns the bytes of a piece that is not the first.
    pub(crate) fn finish(self) -> Bytes {
        self.out.into_inner().into()
    }

    /// Returns the bytes of a piece that is the last and not the first.
    pub(crate) fn finish_last(self) -> Bytes {
        let mut bytes = self.out.into_inner();
        bytes.extend_from_slice(END);
        bytes.into()
    }
}
