//! Lists as protobuf, whose length stands at the beginning.
//!
//! The first items are written and kept. If that was all, the length is known; else the
//! others are asked how long they are, which most know from the time before, and then
//! written when they are wanted.

use std::collections::VecDeque;

use bytes::Bytes;
use meta::object::Encoding;
use meta::{Object, Status};
use registry::KindRef;
use serde_json::Value;
use tokio::task::yield_now;

use super::{FRAME_BYTES, READ_BYTES};
use crate::negotiation::Shape;
use crate::protobuf::{EncodeError, List, Piece};
use crate::respond::{self, METADATA_LIST, meta_version, metadata_only};
use crate::storage::Items;

/// How many bytes are kept before the length of the whole is found out.
const KEPT_BYTES: usize = 256 * 1024;
/// How long a list may be for what is made of its objects to be kept with them: one that
/// is longer would leave no room for what is listed more often.
const KEEPING_BYTES_MAX: usize = 4 << 20;
/// As how many bytes an object counts that only says how long it is.
const ASKED_BYTES: usize = 128;

/// A list that is being written.
pub(super) struct Binary {
    list: List,
    items: Items,
    /// Shows an object that is not served as it is stored.
    convert: Option<Convert>,
    /// The list's metadata, until the first frame is made.
    metadata: Option<Value>,
    /// What is made and not taken yet.
    made: VecDeque<Bytes>,
    /// How many bytes of items are still to be written after that; `None` once all were.
    left: Option<usize>,
    /// How many bytes of items come after the first frames; zero until it is known.
    follow: usize,
}

struct Convert {
    kind: KindRef,
    shape: Shape,
}

impl Convert {
    fn apply(&self, object: &Object) -> Result<Value, Status> {
        let view = respond::view(&self.kind, object)?;
        Ok(match self.shape {
            Shape::MetadataList(version) => metadata_only(view, version),
            _ => view,
        })
    }
}

impl Binary {
    /// Prepares to write a list; 406 where its type has no message.
    pub(super) fn new(
        kind: KindRef,
        shape: Shape,
        metadata: Value,
        items: Items,
    ) -> Result<Self, Status> {
        let list = match shape {
            Shape::MetadataList(version) => List::find(
                meta_version(version),
                METADATA_LIST,
                Encoding::ProtobufMetadata,
            ),
            // As a table it is refused by what finds no message for that.
            Shape::Table(version) => List::find(meta_version(version), "Table", Encoding::Protobuf),
            _ => List::find(kind.api_version(), kind.list_kind, Encoding::Protobuf),
        };
        Ok(Self {
            list: list.map_err(EncodeError::into_status)?,
            items,
            convert: (!kind.is_stored_form()).then_some(Convert { kind, shape }),
            metadata: Some(metadata),
            made: VecDeque::new(),
            left: None,
            follow: 0,
        })
    }

    /// Makes the next frame; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if let Some(metadata) = self.metadata.take() {
            self.begin(&metadata).await?;
        }
        if let Some(first) = self.made.front_mut() {
            if first.len() > FRAME_BYTES {
                return Ok(Some(first.split_to(FRAME_BYTES)));
            }
            return Ok(self.made.pop_front());
        }
        let Some(left) = self.left else {
            return Ok(None);
        };
        let mut piece = Piece::with_capacity(FRAME_BYTES + FRAME_BYTES / 8);
        let more = self.fill(&mut piece, FRAME_BYTES).await?;
        // Nothing but a length that an object said wrongly, which must not pass.
        let written = left.checked_sub(piece.len()).filter(|n| more || *n == 0);
        let left = written.ok_or_else(|| Status::internal("a list has not the length it said"))?;
        self.left = more.then_some(left);
        Ok(Some(match more {
            true => piece.finish(),
            false => piece.finish_last(),
        }))
    }

    /// Makes the first frames, all of a list that is short.
    async fn begin(&mut self, metadata: &Value) -> Result<(), Status> {
        self.items.refill().await?;
        // Protobuf is about half of the JSON, metadata alone a fraction.
        let room = self.items.ready_bytes(2 * KEPT_BYTES) / 2;
        let begun = self.list.begin(metadata, room);
        let mut piece = begun.map_err(EncodeError::into_status)?;
        while piece.len() < KEPT_BYTES {
            let up_to = piece.len() + FRAME_BYTES;
            if !self.fill(&mut piece, up_to).await? {
                self.made.push_back(self.list.whole(piece));
                return Ok(());
            }
            yield_now().await;
        }
        self.follow = self.measure(self.items.clone()).await?;
        self.made.push_back(self.list.first(piece, self.follow));
        self.left = Some(self.follow);
        Ok(())
    }

    /// Writes items until there are so many bytes, or much was read. False if there are
    /// no more.
    async fn fill(&mut self, piece: &mut Piece, up_to: usize) -> Result<bool, Status> {
        let mut read = 0;
        while self.items.refill().await? {
            while let Some(object) = self.items.take() {
                self.push(&object, piece)?;
                read += object.body().len();
                if piece.len() >= up_to || read >= READ_BYTES {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns how many bytes items take.
    async fn measure(&self, mut items: Items) -> Result<usize, Status> {
        let (mut total, mut read) = (0, 0);
        let mut scratch = Piece::default();
        while items.refill().await? {
            while let Some(object) = items.take() {
                let known = match &self.convert {
                    None => self.list.length(&object),
                    Some(_) => None,
                };
                total += match known {
                    Some(length) => {
                        read += ASKED_BYTES;
                        length
                    }
                    None => {
                        read += object.body().len();
                        scratch.clear();
                        self.push(&object, &mut scratch)?;
                        scratch.len()
                    }
                };
            }
            if read >= READ_BYTES {
                read = 0;
                yield_now().await;
            }
        }
        Ok(total)
    }

    fn push(&self, object: &Object, piece: &mut Piece) -> Result<(), Status> {
        let pushed = match &self.convert {
            None => {
                let keeps = self.follow < KEEPING_BYTES_MAX;
                self.list.push(piece, object, keeps)
            }
            Some(convert) => self.list.push_value(piece, &convert.apply(object)?),
        };
        pushed.map_err(EncodeError::into_status)
    }
}
