//! Files of the certificate directory: written whole, by rename, private
//! where they hold keys.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::PkiError;

fn io(path: &Path, source: std::io::Error) -> PkiError {
    PkiError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Creates a directory that only its owner may enter.
pub(super) fn create_private_dir(dir: &Path) -> Result<(), PkiError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| io(dir, e))
}

/// Reads a text file; a missing one is `None`.
pub(super) fn read_optional(path: &Path) -> Result<Option<String>, PkiError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io(path, e)),
    }
}

/// Writes a file that only its owner may read (mode 0600), whole or not at all.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
    write(path, bytes, 0o600)
}

/// Writes a file that everybody may read, whole or not at all.
pub(super) fn write_public(path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
    write(path, bytes, 0o644)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), PkiError> {
    let temporary = temporary_beside(path);
    let result = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut f| {
            f.write_all(bytes)?;
            f.sync_all()
        })
        .and_then(|()| std::fs::rename(&temporary, path));
    result.map_err(|e| {
        // Best effort: the error that matters is the one returned.
        drop(std::fs::remove_file(&temporary));
        io(path, e)
    })
}

/// Names the temporary file after this process: two servers may share a
/// certificate directory.
fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}
