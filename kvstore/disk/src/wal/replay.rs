//! Reading a log back: what it said, and whether to believe it.

use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut, Bytes};
use member::{HardState, LogEntry, Recovered, decode_entry, decode_hard_state, encode_hard_state};

use super::{
    Dropped, Identity, Reach,
    record::{self, Found, Kind, Verdict},
};
use crate::{
    error::DiskError,
    file::{Disk, File},
};

/// The format of a segment; its head says which.
const SEGMENT_FORMAT: u32 = 1;

/// What the first record of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub(super) identity: Identity,
    pub(super) number: u64,
    pub(super) hard_state: HardState,
    /// Index and term of the entry before this segment's first.
    pub(super) last_index: u64,
    pub(super) last_term: u64,
}

impl SegmentHead {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32_le(SEGMENT_FORMAT);
        out.put_u64_le(self.identity.cluster_id);
        out.put_u64_le(self.identity.member_id);
        out.put_u64_le(self.number);
        out.put_u64_le(self.last_index);
        out.put_u64_le(self.last_term);
        encode_hard_state(&self.hard_state, out);
    }

    pub(super) fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        const LEN: usize = 4 + 5 * 8;
        if bytes.len() < LEN {
            return Err(format!("a segment head of {} bytes", bytes.len()));
        }
        let format = bytes.get_u32_le();
        if format != SEGMENT_FORMAT {
            return Err(format!(
                "segment format {format}, this program knows {SEGMENT_FORMAT}"
            ));
        }
        let identity = Identity {
            cluster_id: bytes.get_u64_le(),
            member_id: bytes.get_u64_le(),
        };
        let number = bytes.get_u64_le();
        let last_index = bytes.get_u64_le();
        let last_term = bytes.get_u64_le();
        let hard_state = decode_hard_state(bytes).map_err(|error| error.to_string())?;
        Ok(Self {
            identity,
            number,
            hard_state,
            last_index,
            last_term,
        })
    }
}

/// Reads where a log begins anew: an index, its term, and the hard state.
pub(super) fn decode_base(mut payload: Bytes) -> Result<(u64, u64, HardState), String> {
    if payload.len() < 16 {
        return Err(format!("a new beginning of {} bytes", payload.len()));
    }
    let (index, term) = (payload.get_u64_le(), payload.get_u64_le());
    let state = decode_hard_state(&payload).map_err(|error| error.to_string())?;
    Ok((index, term, state))
}

/// A segment as its file name tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentName {
    pub(super) number: u64,
    /// Index of the entry before its first.
    pub(super) last_index: u64,
}

impl SegmentName {
    pub(super) fn file(&self) -> String {
        format!("{:016x}-{:016x}.wal", self.number, self.last_index)
    }

    fn parse(name: &str) -> Option<Self> {
        let (number, last_index) = name.strip_suffix(".wal")?.split_once('-')?;
        let hex = |text: &str| {
            (text.len() == 16)
                .then(|| u64::from_str_radix(text, 16).ok())
                .flatten()
        };
        Some(Self {
            number: hex(number)?,
            last_index: hex(last_index)?,
        })
    }
}

/// Lists the segments in order, and removes what a crash left half made.
pub(super) fn segments(disk: &dyn Disk, dir: &Path) -> Result<Vec<SegmentName>, DiskError> {
    let names = disk.list(dir).map_err(DiskError::io("list", dir))?;
    for name in names.iter().filter(|name| name.ends_with(".tmp")) {
        let path = dir.join(name);
        disk.remove(&path).map_err(DiskError::io("remove", &path))?;
    }
    in_order(dir, &names)
}

/// Returns the segments among the names in a directory, in order.
pub(super) fn in_order(dir: &Path, names: &[String]) -> Result<Vec<SegmentName>, DiskError> {
    let segments = names.iter().filter_map(|name| SegmentName::parse(name));
    let mut found: Vec<_> = segments.collect();
    found.sort_by_key(|segment| segment.number);
    // A name is anybody's; this one would leave no number for the next segment.
    if let Some(last) = found.last().filter(|last| last.number == u64::MAX) {
        return Err(corrupt(
            &dir.join(last.file()),
            0,
            "its number is the last there is",
        ));
    }
    for pair in found.windows(2) {
        let next = pair[0].number.saturating_add(1);
        if next != pair[1].number {
            let missing = format!("segment {next:016x} is missing before it");
            return Err(corrupt(&dir.join(pair[1].file()), 0, missing));
        }
    }
    Ok(found)
}

/// Reads whose log is in `dir` off its oldest segment.
pub(super) fn identity(disk: &dyn Disk, dir: &Path) -> Result<Option<Identity>, DiskError> {
    /// More than any head takes.
    const HEAD_BYTES_MAX: u64 = 512;
    let Some(name) = segments(disk, dir)?.into_iter().next() else {
        return Ok(None);
    };
    let path = dir.join(name.file());
    let file = disk.open(&path).map_err(DiskError::io("open", &path))?;
    let len = file.len().map_err(DiskError::io("measure", &path))?;
    let mut bytes = vec![0; usize::try_from(len.min(HEAD_BYTES_MAX)).unwrap_or(0)];
    file.read_at(&mut bytes, 0)
        .map_err(DiskError::io("read", &path))?;
    let bytes = Bytes::from(bytes);
    match record::read(&bytes, 0, None, low_half(name.number)) {
        Found::Record(found) if found.kind == Kind::Segment => {
            let head = SegmentHead::decode(&bytes.slice(found.payload));
            let head = head.map_err(|reason| corrupt(&path, 0, reason))?;
            Ok(Some(head.identity))
        }
        Found::Bad(reason) => Err(corrupt(&path, 0, reason)),
        Found::Record(_) | Found::End => Err(corrupt(&path, 0, "it has no head")),
    }
}

pub(super) fn corrupt(file: &Path, offset: usize, reason: impl Into<String>) -> DiskError {
    DiskError::Corrupt {
        file: file.to_owned(),
        offset: offset as u64,
        reason: reason.into(),
    }
}

/// Puts the log together, segment by segment.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub(super) recovered: Recovered,
    pub(super) chain: Option<u32>,
    pub(super) dropped: Option<Dropped>,
    /// Where in the last segment the next record goes.
    pub(super) end: usize,
    /// Where the newest hard state was.
    hard_state_at: usize,
    identity: Option<Identity>,
    started: bool,
    /// How far back the entries of the last segment go.
    pub(super) reach: Reach,
}

impl Replay {
    /// Reads one segment; returns its open file.
    pub(super) fn segment(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        name: &SegmentName,
        last: bool,
        identity: Identity,
    ) -> Result<Box<dyn File>, DiskError> {
        let path = dir.join(name.file());
        let mut file = disk.open(&path).map_err(DiskError::io("open", &path))?;
        let len = file.len().map_err(DiskError::io("measure", &path))?;
        let len = usize::try_from(len).map_err(|_too_long| corrupt(&path, 0, "it is too long"))?;
        let mut bytes = vec![0; len];
        file.read_at(&mut bytes, 0)
            .map_err(DiskError::io("read", &path))?;
        let bytes = Bytes::from(bytes);
        // The low half is enough to tell neighbours apart.
        let number = low_half(name.number);
        self.identity = Some(identity);
        self.hard_state_at = 0;
        self.reach = Reach::default();
        let mut at = 0;
        loop {
            match record::read(&bytes, at, self.chain, number) {
                Found::Record(found) => {
                    self.record(&path, name, &bytes, at, &found)?;
                    self.chain = Some(found.chain);
                    at = found.end;
                }
                Found::End if at == 0 => return Err(corrupt(&path, 0, "it has no head")),
                Found::End => {
                    self.check_rest(disk, &path, &mut file, &bytes, at, last, None)?;
                    break;
                }
                Found::Bad(reason) if at == 0 => return Err(corrupt(&path, 0, reason)),
                Found::Bad(reason) => {
                    self.check_rest(disk, &path, &mut file, &bytes, at, last, Some(reason))?;
                    break;
                }
            }
        }
        self.end = at;
        Ok(file)
    }

    /// Takes in one good record.
    fn record(
        &mut self,
        path: &Path,
        name: &SegmentName,
        bytes: &Bytes,
        at: usize,
        found: &record::Record,
    ) -> Result<(), DiskError> {
        let payload = bytes.slice(found.payload.clone());
        if (at == 0) != (found.kind == Kind::Segment) {
            return Err(corrupt(path, at, "a segment head out of place"));
        }
        match found.kind {
            Kind::Segment => self.head(path, name, &payload),
            Kind::HardState => {
                let state = decode_hard_state(&payload);
                self.recovered.hard_state =
                    state.map_err(|error| corrupt(path, at, error.to_string()))?;
                self.hard_state_at = at;
                Ok(())
            }
            Kind::Entry => {
                // Copied, so that a small entry does not hold the whole segment.
                let payload = Bytes::copy_from_slice(&payload);
                let entry =
                    decode_entry(payload).map_err(|error| corrupt(path, at, error.to_string()))?;
                self.reach.note(entry.index);
                self.entry(entry)
                    .map_err(|reason| corrupt(path, at, reason))
            }
            Kind::Snapshot => {
                let mut payload = payload;
                if payload.len() != 16 {
                    return Err(corrupt(path, at, "a snapshot marker of the wrong size"));
                }
                self.snapshot(payload.get_u64_le(), payload.get_u64_le());
                Ok(())
            }
            Kind::Base => {
                let base = decode_base(payload);
                let (index, term, state) = base.map_err(|reason| corrupt(path, at, reason))?;
                self.recovered = Recovered {
                    hard_state: state,
                    base_index: index,
                    base_term: term,
                    entries: Vec::new(),
                };
                self.hard_state_at = at;
                self.reach = Reach::ANEW;
                Ok(())
            }
        }
    }

    fn head(&mut self, path: &Path, name: &SegmentName, payload: &[u8]) -> Result<(), DiskError> {
        let head = SegmentHead::decode(payload).map_err(|reason| corrupt(path, 0, reason))?;
        if head.number != name.number || head.last_index != name.last_index {
            return Err(corrupt(path, 0, "its head belongs to another file name"));
        }
        let expected = self.identity.unwrap_or(head.identity);
        if head.identity != expected {
            return Err(DiskError::OtherMember {
                dir: path.parent().unwrap_or(path).to_owned(),
                found_member: head.identity.member_id,
                found_cluster: head.identity.cluster_id,
                member: expected.member_id,
                cluster: expected.cluster_id,
            });
        }
        if self.started {
            if head.last_index != self.recovered.last_index() {
                let reason = format!(
                    "it continues after index {}, the segment before ends at {}",
                    head.last_index,
                    self.recovered.last_index()
                );
                return Err(corrupt(path, 0, reason));
            }
            return Ok(());
        }
        self.started = true;
        self.recovered.hard_state = head.hard_state;
        self.recovered.base_index = head.last_index;
        self.recovered.base_term = head.last_term;
        Ok(())
    }

    fn entry(&mut self, entry: LogEntry) -> Result<(), String> {
        let base = self.recovered.base_index;
        let last = self.recovered.last_index();
        if entry.index <= base || entry.index - 1 > last {
            return Err(format!(
                "entry {} does not fit a log behind {base} up to {last}",
                entry.index,
            ));
        }
        let keep = usize::try_from(entry.index - base - 1).unwrap_or(usize::MAX);
        self.recovered.entries.truncate(keep);
        self.recovered.entries.push(entry);
        Ok(())
    }

    /// Starts the log anew behind a snapshot, keeping entries that continue it.
    fn snapshot(&mut self, index: u64, term: u64) {
        let recovered = &mut self.recovered;
        let continues = recovered
            .entries
            .iter()
            .any(|entry| (entry.index, entry.term) == (index, term));
        recovered
            .entries
            .retain(|entry| continues && entry.index > index);
        recovered.base_index = index;
        recovered.base_term = term;
    }

    /// Judges what is behind the last good record, and cuts a torn write off.
    #[expect(
        clippy::too_many_arguments,
        reason = "one segment's context, used once"
    )]
    fn check_rest(
        &mut self,
        disk: &dyn Disk,
        path: &Path,
        file: &mut Box<dyn File>,
        bytes: &[u8],
        at: usize,
        last: bool,
        bad: Option<String>,
    ) -> Result<(), DiskError> {
        let used = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |place| place + 1);
        let clean = bad.is_none() && used <= at;
        let reason = bad.unwrap_or_else(|| "data behind the end".to_owned());
        if !clean {
            let number =
                SegmentName::parse(&path.file_name().unwrap_or_default().to_string_lossy());
            let number = low_half(number.map_or(0, |name| name.number));
            match record::judge(bytes, at, used, number) {
                Verdict::Torn if last => {
                    self.dropped =
                        Some(cut_off(disk, path, file, bytes, at..used.max(at), reason)?);
                }
                Verdict::Torn => {
                    return Err(corrupt(
                        path,
                        at,
                        format!("{reason}, and newer segments follow"),
                    ));
                }
                Verdict::Corrupt(why) => return Err(corrupt(path, at, format!("{reason}, {why}"))),
            }
        }
        if last {
            self.check_commit(path)?;
        }
        Ok(())
    }

    /// No write, whole or torn, leaves a commit index beyond the log.
    fn check_commit(&self, path: &Path) -> Result<(), DiskError> {
        let last = self.recovered.last_index();
        let commit = self.recovered.hard_state.commit;
        if commit > last {
            let reason = format!("entries up to {commit} were committed, the log ends at {last}");
            return Err(corrupt(path, self.hard_state_at, reason));
        }
        Ok(())
    }
}

pub(super) fn low_half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
}

/// Keeps a copy of a torn write beside the segment, then overwrites it with zeros.
fn cut_off(
    disk: &dyn Disk,
    path: &Path,
    file: &mut Box<dyn File>,
    bytes: &[u8],
    range: std::ops::Range<usize>,
    reason: String,
) -> Result<Dropped, DiskError> {
    let torn = &bytes[range.clone()];
    let copy: PathBuf = path.with_extension(format!("torn-{:08x}", range.start));
    let offset = range.start as u64;
    let mut out = disk.create(&copy).map_err(DiskError::io("create", &copy))?;
    out.write_at(torn, 0)
        .map_err(DiskError::io("write", &copy))?;
    out.sync_all().map_err(|source| DiskError::Sync {
        path: copy.clone(),
        source,
    })?;
    if let Some(dir) = path.parent() {
        disk.sync_dir(dir).map_err(|source| DiskError::Sync {
            path: dir.to_owned(),
            source,
        })?;
    }
    let zeros = vec![0; torn.len()];
    file.write_at(&zeros, offset)
        .map_err(DiskError::io("write", path))?;
    file.sync_all().map_err(|source| DiskError::Sync {
        path: path.to_owned(),
        source,
    })?;
    let dropped = Dropped {
        file: path.to_owned(),
        offset,
        bytes: torn.len() as u64,
        copy,
        reason,
    };
    tracing::warn!(
        file = %dropped.file.display(),
        offset = dropped.offset,
        bytes = dropped.bytes,
        copy = %dropped.copy.display(),
        reason = dropped.reason,
        "dropped the torn end of the log; it was never acknowledged",
    );
    Ok(dropped)
}
