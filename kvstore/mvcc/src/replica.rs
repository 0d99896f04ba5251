//! The whole store as a stream of frames, for a member that fell behind.
//!
//! ```text
//! leader:    let replica = machine.replica(now)      under the lock, quick
//!            for frame in replica.frames() { .. }    on any thread
//! follower:  let mut import = ReplicaImport::new(..)
//!            if let Some(batch) = import.push(frame)? { write(batch) }
//!            write(import.finish()?); flush; StateMachine::open(..)
//!
//! frame  = crc32(4, big endian, of the rest) kind(1) payload
//! head   = form index term revision cluster conf_state
//! items  = item...                 part = a piece of an item too large for a frame
//! item   = 1 change                2 row, of all that is not history
//! end    = frames before it, crc32 of their checksums
//! ```
//!
//! The history is sent as changes, which the receiver packs into blocks of its own;
//! everything else as the very rows the sender would write, so nothing that is
//! replicated can be forgotten here. The state row is in the last batch: rows that
//! are not complete do not open. Memory is flat on both sides: a frame, and what
//! waits for a batch.
//!
//! The store that opens on these rows is the sender's, and goes on as it does: same
//! replies, hashes, leases, refusals of copies. What compaction had not yet deleted
//! there, it does not get.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error as ThisError;

use crate::backend::WriteBack;
use crate::durable::{STATE_KEY, decode_state};
use crate::error::Error;
use crate::import::{Import, ImportError, Start, fact_rows};
use crate::machine::StateMachine;
use crate::membership::{ConfState, conf_state, put_conf_state};
use crate::response::KeyValue;
use crate::view::{Change, Facts, HistoryCursor, View};
use crate::wire::{Reader, WireError, put_bytes, put_i64, put_u64};

/// Bytes of one frame at most. An item that is larger goes in parts.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Bytes of a frame before its payload.
const FRAME_HEAD: usize = 5;

const PAYLOAD_MAX: usize = FRAME_BYTES_MAX - FRAME_HEAD;

/// Bytes of one item at most; no log entry can be larger, so no value is.
const ITEM_BYTES_MAX: usize = 1 << 30;

/// Bytes of rows that are handed out as one batch.
const BATCH_BYTES: usize = 4 << 20;

/// Changes read at a time.
const CHANGES_AT_A_TIME: usize = 1_024;

/// The form of a stream; a reader refuses others.
const FORM: u8 = 1;

/// Says why a stream cannot become a store.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum ReplicaError {
    /// A frame is not what was sent, or not what this build knows.
    #[error("frame {frame} of the snapshot: {reason}")]
    Frame {
        /// Its number, from 0.
        frame: u64,
        /// What is wrong.
        reason: String,
    },
    /// The history is not in order.
    #[error("frame {frame} of the snapshot: {source}")]
    History {
        /// The frame's number.
        frame: u64,
        /// What does not follow.
        source: ImportError,
    },
    /// The stream stopped before its end.
    #[error("the snapshot ends after {frames} frames, before its end")]
    Incomplete {
        /// How many frames came.
        frames: u64,
    },
}

/// Says what a stream is the state of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaHead {
    /// The last entry applied.
    pub applied_index: u64,
    /// Its term.
    pub applied_term: u64,
    /// The store's revision.
    pub revision: i64,
    /// The cluster.
    pub cluster_id: u64,
    /// Raft's configuration after that entry.
    pub conf_state: ConfState,
}

/// Is everything that is replicated, at one moment.
#[derive(Debug)]
pub struct Replica {
    view: View,
    facts: Facts,
    /// Ids of recent proposals and the index of each.
    recent: Vec<(u64, u64)>,
}

impl StateMachine {
    /// Takes all of the present moment, to be sent to another member; `now` as for
    /// [`Self::view`].
    pub fn replica(&mut self, now: std::time::Duration) -> Replica {
        Replica {
            view: self.view(now),
            facts: self.facts(),
            recent: self.dedupe.recent(self.applied_index),
        }
    }
}

impl Replica {
    /// Returns what it is the state of.
    pub fn head(&self) -> ReplicaHead {
        ReplicaHead {
            applied_index: self.view.applied_index(),
            applied_term: self.view.applied_term(),
            revision: self.view.revision(),
            cluster_id: self.facts.membership.cluster_id(),
            conf_state: self.facts.membership.conf_state().clone(),
        }
    }

    /// Cuts it into frames. The iteration ends after an error.
    pub fn frames(self) -> ReplicaFrames {
        ReplicaFrames {
            head: Some(self.head()),
            cursor: Some(HistoryCursor::default()),
            replica: self,
            changes: Vec::new().into_iter(),
            rows: None,
            held: BytesMut::new(),
            in_parts: false,
            count: 0,
            digest: crc32fast::Hasher::new(),
            ended: false,
        }
    }
}

/// Walks the frames of a replica.
pub struct ReplicaFrames {
    replica: Replica,
    head: Option<ReplicaHead>,
    cursor: Option<HistoryCursor>,
    changes: std::vec::IntoIter<Change>,
    rows: Option<std::vec::IntoIter<(Bytes, Bytes)>>,
    /// An item that did not fit the frame before.
    held: BytesMut,
    /// Whether `held` is what is left of a large one.
    in_parts: bool,
    count: u64,
    digest: crc32fast::Hasher,
    ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Head = 1,
    Items = 2,
    Part = 3,
    LastPart = 4,
    End = 5,
}

impl Iterator for ReplicaFrames {
    type Item = Result<Bytes, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if let Some(head) = self.head.take() {
            let mut payload = BytesMut::new();
            put_head(&mut payload, &head);
            return Some(Ok(self.seal(Kind::Head, &payload)));
        }
        match self.items() {
            Ok(Some(frame)) => Some(Ok(frame)),
            Ok(None) => {
                self.ended = true;
                let mut payload = BytesMut::new();
                put_u64(&mut payload, self.count);
                payload.put_u32(self.digest.clone().finalize());
                Some(Ok(self.seal(Kind::End, &payload)))
            }
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        }
    }
}

impl ReplicaFrames {
    /// Returns the next frame of items, if any are left.
    fn items(&mut self) -> Result<Option<Bytes>, Error> {
        let mut payload = std::mem::take(&mut self.held);
        if payload.len() > PAYLOAD_MAX {
            self.held = payload.split_off(PAYLOAD_MAX);
            return Ok(Some(self.seal(Kind::Part, &payload)));
        }
        if self.in_parts {
            self.in_parts = false;
            return Ok(Some(self.seal(Kind::LastPart, &payload)));
        }
        while let Some(item) = self.item()? {
            if payload.len() + item.len() > PAYLOAD_MAX {
                self.in_parts = item.len() > PAYLOAD_MAX;
                self.held = item;
                if payload.is_empty() {
                    return self.items();
                }
                break;
            }
            payload.extend_from_slice(&item);
        }
        match payload.is_empty() {
            true => Ok(None),
            false => Ok(Some(self.seal(Kind::Items, &payload))),
        }
    }

    /// Encodes the next item.
    fn item(&mut self) -> Result<Option<BytesMut>, Error> {
        let mut out = BytesMut::new();
        loop {
            if let Some(change) = self.changes.next() {
                let last = self.changes.len() == 0 && self.cursor.is_none();
                if last && mutants::planted(mutants::Bug::SnapshotWithoutTail) {
                    continue;
                }
                put_change(&mut out, &change);
                return Ok(Some(out));
            }
            let Some(from) = self.cursor.take() else {
                break;
            };
            let view = &self.replica.view;
            let (part, next) = view.history_part(from, CHANGES_AT_A_TIME)?;
            self.changes = part.into_iter();
            self.cursor = next;
        }
        let Replica {
            view,
            facts,
            recent,
        } = &self.replica;
        let rows = self.rows.get_or_insert_with(|| {
            let start = Start {
                applied_index: view.applied_index(),
                applied_term: view.applied_term(),
                compacted: view.compact_revision(),
                revision: view.revision(),
            };
            fact_rows(&start, facts, recent).into_iter()
        });
        Ok(rows.next().map(|(key, row)| {
            out.put_u8(2);
            put_bytes(&mut out, &key);
            put_bytes(&mut out, &row);
            out
        }))
    }

    fn seal(&mut self, kind: Kind, payload: &[u8]) -> Bytes {
        let mut frame = BytesMut::with_capacity(FRAME_HEAD + payload.len());
        frame.put_u32(0);
        frame.put_u8(kind as u8);
        frame.put_slice(payload);
        let crc = crc32fast::hash(&frame[4..]).to_be_bytes();
        frame[..4].copy_from_slice(&crc);
        self.count += 1;
        self.digest.update(&crc);
        frame.freeze()
    }
}

impl std::fmt::Debug for ReplicaFrames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicaFrames")
            .field("replica", &self.replica)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

fn put_head(out: &mut BytesMut, head: &ReplicaHead) {
    out.put_u8(FORM);
    put_u64(out, head.applied_index);
    put_u64(out, head.applied_term);
    put_i64(out, head.revision);
    put_u64(out, head.cluster_id);
    put_conf_state(out, &head.conf_state);
}

fn put_change(out: &mut BytesMut, c: &Change) {
    out.reserve(64 + c.kv.key.len() + c.kv.value.len());
    out.put_u8(1);
    put_i64(out, c.main);
    put_u64(out, u64::from(c.sub));
    out.put_u8(u8::from(c.tombstone));
    put_bytes(out, &c.kv.key);
    if !c.tombstone {
        put_i64(out, c.kv.create_revision);
        put_i64(out, c.kv.version);
        put_i64(out, c.kv.lease);
        put_bytes(out, &c.kv.value);
    }
}

/// Makes the rows of a new store from a replica's frames, which come in order.
pub struct ReplicaImport {
    import: Import,
    head: Option<ReplicaHead>,
    /// The pieces so far of an item too large for a frame.
    parts: BytesMut,
    /// Kept back until all is known to be there.
    state: Option<Bytes>,
    count: u64,
    digest: crc32fast::Hasher,
    ended: bool,
}

impl ReplicaImport {
    /// Begins one, with blocks of some size.
    pub fn new(block_bytes: usize) -> Self {
        Self {
            import: Import::new(block_bytes),
            head: None,
            parts: BytesMut::new(),
            state: None,
            count: 0,
            digest: crc32fast::Hasher::new(),
            ended: false,
        }
    }

    /// Returns what it will be the state of, once the first frame is in.
    pub fn head(&self) -> Option<&ReplicaHead> {
        self.head.as_ref()
    }

    /// Takes in the next frame; returns rows to write when enough of them wait.
    pub fn push(&mut self, frame: &Bytes) -> Result<Option<WriteBack>, ReplicaError> {
        self.take(frame)?;
        self.count += 1;
        let full = self.import.waiting_bytes() >= BATCH_BYTES;
        Ok(full.then(|| self.import.take_batch()))
    }

    /// Ends the stream; returns the last batch, after which the rows are complete.
    pub fn finish(mut self) -> Result<WriteBack, ReplicaError> {
        let (Some(head), Some(state), true) = (self.head.take(), self.state.take(), self.ended)
        else {
            return Err(ReplicaError::Incomplete { frames: self.count });
        };
        self.import.push_row(Bytes::from_static(STATE_KEY), state);
        let mut last = self.import.take_batch();
        last.applied_index = head.applied_index;
        last.applied_term = head.applied_term;
        last.revision = head.revision;
        Ok(last)
    }

    fn take(&mut self, frame: &Bytes) -> Result<(), ReplicaError> {
        if frame.len() < FRAME_HEAD {
            return Err(self.bad("it is cut short"));
        }
        let mut crc = [0; 4];
        crc.copy_from_slice(&frame[..4]);
        if crc32fast::hash(&frame[4..]) != u32::from_be_bytes(crc) {
            return Err(self.bad("checksum mismatch"));
        }
        let (kind, payload) = (frame[4], frame.slice(FRAME_HEAD..));
        if self.ended {
            return Err(self.bad("it comes after the end"));
        }
        if (kind == Kind::Head as u8) != self.head.is_none() {
            return Err(self.bad("the head is not where it belongs"));
        }
        let part = kind == Kind::Part as u8 || kind == Kind::LastPart as u8;
        if !part && !self.parts.is_empty() {
            return Err(self.bad("an item is not complete"));
        }
        match kind {
            1 => self.head = Some(read_head(payload).map_err(|reason| self.bad(reason))?),
            2 => self.items(payload)?,
            3 | 4 => {
                if self.parts.len() + payload.len() > ITEM_BYTES_MAX {
                    return Err(self.bad("an item is too large"));
                }
                self.parts.extend_from_slice(&payload);
                if kind == Kind::LastPart as u8 {
                    let item = std::mem::take(&mut self.parts).freeze();
                    self.items(item)?;
                }
            }
            5 => self.check_end(payload)?,
            kind => return Err(self.bad(format!("kind {kind} is unknown"))),
        }
        self.digest.update(&crc);
        Ok(())
    }

    fn check_end(&mut self, payload: Bytes) -> Result<(), ReplicaError> {
        let mut r = Reader::new(payload);
        let mut read = || Ok((r.u64()?, r.rest()));
        let (count, mut digest) = read().map_err(|e: WireError| self.bad(format!("{e:?}")))?;
        if count != self.count {
            return Err(self.bad(format!("{} of {count} frames came before it", self.count)));
        }
        if digest.len() != 4 || digest.get_u32() != self.digest.clone().finalize() {
            return Err(self.bad("the frames before it are not those that were sent"));
        }
        self.ended = true;
        Ok(())
    }

    fn items(&mut self, payload: Bytes) -> Result<(), ReplicaError> {
        let mut r = Reader::new(payload);
        while r.remaining() > 0 {
            match read_item(&mut r).map_err(|reason| self.bad(reason))? {
                Item::Change(change) => {
                    let frame = self.count;
                    self.import
                        .push(change)
                        .map_err(|source| ReplicaError::History { frame, source })?;
                }
                Item::Row(key, row) if key == STATE_KEY => self.take_state(row)?,
                Item::Row(key, _) if key.first() == Some(&b'b') => {
                    return Err(self.bad("a block is among the rows"));
                }
                Item::Row(key, row) => self.import.push_row(key, row),
            }
        }
        Ok(())
    }

    fn take_state(&mut self, row: Bytes) -> Result<(), ReplicaError> {
        let state = decode_state(row.clone()).map_err(|e| self.bad(e.to_string()))?;
        let head = self.head.as_ref();
        let told = head.map(|h| (h.applied_index, h.applied_term, h.revision));
        if told != Some((state.0.index, state.0.term, state.0.revision)) {
            return Err(self.bad("the state is not that of the head"));
        }
        self.state = Some(row);
        Ok(())
    }

    fn bad(&self, reason: impl Into<String>) -> ReplicaError {
        ReplicaError::Frame {
            frame: self.count,
            reason: reason.into(),
        }
    }
}

impl std::fmt::Debug for ReplicaImport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicaImport")
            .field("head", &self.head)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

enum Item {
    Change(Change),
    Row(Bytes, Bytes),
}

fn read_head(payload: Bytes) -> Result<ReplicaHead, String> {
    let mut r = Reader::new(payload);
    let early = |e: WireError| format!("{e:?}");
    let form = r.u8().map_err(early)?;
    if form != FORM {
        return Err(format!("form {form}, this build reads {FORM}"));
    }
    let mut read = || -> Result<_, crate::codec::CodecError> {
        Ok(ReplicaHead {
            applied_index: r.u64()?,
            applied_term: r.u64()?,
            revision: r.i64()?,
            cluster_id: r.u64()?,
            conf_state: conf_state(&mut r)?,
        })
    };
    let head = read().map_err(|error| error.to_string())?;
    match r.remaining() {
        0 => Ok(head),
        left => Err(format!("{left} bytes too long")),
    }
}

fn read_item(r: &mut Reader) -> Result<Item, String> {
    let early = |e: WireError| format!("{e:?}");
    match r.u8().map_err(early)? {
        1 => read_change(r).map(Item::Change),
        2 => {
            let (key, row) = (r.bytes().map_err(early)?, r.bytes().map_err(early)?);
            // Not a slice of the frame, which would stay as long as the row.
            Ok(Item::Row(
                Bytes::copy_from_slice(&key),
                Bytes::copy_from_slice(&row),
            ))
        }
        tag => Err(format!("item {tag} is unknown")),
    }
}

fn read_change(r: &mut Reader) -> Result<Change, String> {
    let early = |e: WireError| format!("{e:?}");
    let main = r.i64().map_err(early)?;
    let sub = u32::try_from(r.u64().map_err(early)?).map_err(|e| e.to_string())?;
    let tombstone = r.u8().map_err(early)? != 0;
    let mut read = || {
        let key = r.bytes()?;
        if tombstone {
            return Ok(KeyValue {
                key,
                ..KeyValue::default()
            });
        }
        Ok(KeyValue {
            key,
            mod_revision: main,
            create_revision: r.i64()?,
            version: r.i64()?,
            lease: r.i64()?,
            value: r.bytes()?,
        })
    };
    let kv = read().map_err(early)?;
    Ok(Change {
        main,
        sub,
        tombstone,
        kv,
    })
}
