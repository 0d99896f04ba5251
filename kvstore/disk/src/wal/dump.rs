//! The log as it lies on disk, record by record, for people.
//!
//! It only reads: nothing is locked, cut off, removed or judged lost, so it may look
//! at a log in use and at a damaged one. One segment is in memory at a time.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use bytes::{Buf as _, Bytes};
use member::{HardState, LogEntry, decode_entry, decode_hard_state};

use super::{
    Base, Identity,
    record::{self, Found, Kind, Verdict},
    replay::{self, SegmentHead, low_half},
};
use crate::{error::DiskError, file::Disk};

/// A record and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// The segment.
    pub file: PathBuf,
    /// Where in it the record begins.
    pub offset: u64,
    /// What it says.
    pub record: DumpedRecord,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpedRecord {
    /// A segment begins.
    Segment {
        /// Whose log it is.
        identity: Identity,
        /// Its number.
        number: u64,
        /// The entry before its first.
        after: Base,
        /// The hard state at its beginning.
        hard_state: HardState,
    },
    /// A hard state.
    HardState(HardState),
    /// An entry; it replaces all from its index on.
    Entry(LogEntry),
    /// Everything up to this entry is in rows; later entries still count.
    Snapshot(Base),
    /// The log begins anew behind this entry, with this hard state.
    Base(Base, HardState),
    /// The rest of the segment is no record.
    Bad {
        /// What is wrong.
        reason: String,
        /// Whether it looks like a write that a crash tore; otherwise data was lost.
        torn: bool,
    },
}

/// Tells `visit` of every record in a log's directory, until it breaks off.
pub fn dump(
    disk: &dyn Disk,
    dir: &Path,
    visit: &mut dyn FnMut(Dumped) -> ControlFlow<()>,
) -> Result<(), DiskError> {
    let names = disk.list(dir).map_err(DiskError::io("list", dir))?;
    let mut chain = None;
    for name in replay::in_order(dir, &names)? {
        let path = dir.join(name.file());
        let file = disk.open(&path).map_err(DiskError::io("open", &path))?;
        let len = file.len().map_err(DiskError::io("measure", &path))?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_at(&mut bytes, 0)
            .map_err(DiskError::io("read", &path))?;
        let segment = low_half(name.number);
        let mut told = |at: usize, record| {
            visit(Dumped {
                file: path.clone(),
                offset: at as u64,
                record,
            })
        };
        if dump_segment(&bytes.into(), segment, &mut chain, &mut told).is_break() {
            break;
        }
    }
    Ok(())
}

fn dump_segment(
    bytes: &Bytes,
    segment: u32,
    chain: &mut Option<u32>,
    told: &mut dyn FnMut(usize, DumpedRecord) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut at = 0;
    loop {
        let reason = match record::read(bytes, at, *chain, segment) {
            Found::Record(found) => {
                let payload = bytes.slice(found.payload);
                match read(found.kind, payload) {
                    Ok(record) => told(at, record)?,
                    Err(reason) => told(
                        at,
                        DumpedRecord::Bad {
                            reason,
                            torn: false,
                        },
                    )?,
                }
                *chain = Some(found.chain);
                at = found.end;
                continue;
            }
            Found::End => "data behind the end".to_owned(),
            Found::Bad(reason) => reason,
        };
        let last = bytes.iter().rposition(|byte| *byte != 0);
        let used = last.map_or(0, |last| last + 1);
        if used <= at {
            return ControlFlow::Continue(());
        }
        let torn = record::judge(bytes, at, used, segment) == Verdict::Torn;
        // What follows, in the next segment, is then no continuation of this.
        *chain = None;
        return told(at, DumpedRecord::Bad { reason, torn });
    }
}

fn read(kind: Kind, mut payload: Bytes) -> Result<DumpedRecord, String> {
    let text = |error: member::CodecError| error.to_string();
    Ok(match kind {
        Kind::Segment => {
            let head = SegmentHead::decode(&payload)?;
            DumpedRecord::Segment {
                identity: head.identity,
                number: head.number,
                after: Base {
                    index: head.last_index,
                    term: head.last_term,
                },
                hard_state: head.hard_state,
            }
        }
        Kind::HardState => DumpedRecord::HardState(decode_hard_state(&payload).map_err(text)?),
        Kind::Entry => DumpedRecord::Entry(decode_entry(payload).map_err(text)?),
        Kind::Snapshot if payload.len() == 16 => DumpedRecord::Snapshot(Base {
            index: payload.get_u64_le(),
            term: payload.get_u64_le(),
        }),
        Kind::Snapshot => return Err("a snapshot marker of the wrong size".to_owned()),
        Kind::Base => {
            let (index, term, state) = replay::decode_base(payload)?;
            DumpedRecord::Base(Base { index, term }, state)
        }
    })
}
