//! Bits that rot in the files of a member that is stopped.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rand::Rng;

use crate::error::{Error, Result};

/// Which files rot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rot {
    /// Those of the write-ahead log.
    Log,
    /// Those of snapshots.
    Snapshots,
}

impl Rot {
    /// Tells whether a file is of this kind, by how both kinds of members name them.
    fn is(self, path: &Path) -> bool {
        let text = path.to_string_lossy();
        match self {
            Self::Log => text.ends_with(".wal"),
            // Ours are the rows themselves, in folders called `db` and a number.
            Self::Snapshots => {
                let in_rows = |part: &std::ffi::OsStr| part.as_encoded_bytes().starts_with(b"db");
                text.ends_with(".snap") || path.iter().any(in_rows)
            }
        }
    }
}

/// Flips so many bits where a file was written to; returns what was done to it, or
/// `None` if the member has no such file.
pub fn rot(data: &Path, what: Rot, bits: u32, rng: &mut impl Rng) -> Result<Option<String>> {
    let mut found = Vec::new();
    files(data, &mut found)?;
    found.retain(|(path, size)| what.is(path) && *size > 0);
    if found.is_empty() {
        return Ok(None);
    }
    let (path, _) = &found[rng.random_range(0..found.len())];
    let said = || Error::io(path.display().to_string());
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(said())?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(said())?;
    // What was set aside and never written says nothing.
    let written = bytes
        .iter()
        .rposition(|b| *b != 0)
        .map_or(0, |last| last + 1);
    if written == 0 {
        return Ok(None);
    }
    let mut at = Vec::new();
    for _ in 0..bits {
        let offset = rng.random_range(0..written);
        bytes[offset] ^= 1 << rng.random_range(0..8);
        file.seek(SeekFrom::Start(offset as u64)).map_err(said())?;
        file.write_all(&bytes[offset..=offset]).map_err(said())?;
        at.push(offset);
    }
    file.sync_all().map_err(said())?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(Some(format!("{name} of {written} bytes at {at:?}")))
}

fn files(folder: &Path, found: &mut Vec<(PathBuf, u64)>) -> Result<()> {
    let said = || Error::io(folder.display().to_string());
    for entry in fs::read_dir(folder).map_err(said())? {
        let entry = entry.map_err(said())?;
        let about = entry.metadata().map_err(said())?;
        if about.is_dir() {
            files(&entry.path(), found)?;
        } else {
            found.push((entry.path(), about.len()));
        }
    }
    found.sort();
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn bits_flip_where_something_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let wal = folder.path().join("member/wal");
        fs::create_dir_all(&wal).unwrap();
        let mut before = vec![7; 1000];
        before.extend([0; 5000]);
        fs::write(wal.join("0.wal"), &before).unwrap();
        fs::write(wal.join("other"), &before).unwrap();
        let mut rng = rand::rngs::StdRng::seed_from_u64(1);
        let none = rot(folder.path(), Rot::Snapshots, 3, &mut rng).unwrap();
        assert_eq!(none, None);
        let said = rot(folder.path(), Rot::Log, 3, &mut rng).unwrap().unwrap();
        assert!(said.starts_with("0.wal of 1000 bytes at ["), "{said}");
        let after = fs::read(wal.join("0.wal")).unwrap();
        let differ = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!((1..=3).contains(&differ), "{differ}");
        assert_eq!(after[1000..], before[1000..]);
        assert_eq!(fs::read(wal.join("other")).unwrap(), before);
    }
}
