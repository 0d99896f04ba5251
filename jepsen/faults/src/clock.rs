//! Clocks that are wrong: libfaketime in a member's environment, told by a file.
//!
//! Only the wall clock is changed; the monotonic one is the kernel's own. A program
//! that asks the kernel itself, as Go's do, does not notice.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Where distributions put it.
const LIBRARIES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
];
/// After how many seconds a changed file is noticed.
const NOTICED_SECONDS: &str = "1";

/// The clock of one member.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
    library: &'static str,
}

impl Clock {
    /// Prepares one that is right, its file in a folder.
    pub fn prepare(folder: &Path, name: &str) -> Result<Self> {
        let library = LIBRARIES.into_iter().find(|l| Path::new(l).exists());
        let library = library.ok_or_else(|| {
            Error::Missing("libfaketime", "none of its usual places has it".to_owned())
        })?;
        let file = folder.join(format!("{name}.clock"));
        let clock = Self { file, library };
        clock.set(0, 1.0)?;
        Ok(clock)
    }

    /// Returns what a process' environment must say to have this clock.
    pub fn env(&self) -> Vec<(String, String)> {
        let file = self.file.display().to_string();
        [
            ("LD_PRELOAD", self.library),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            ("FAKETIME_CACHE_DURATION", NOTICED_SECONDS),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    /// Sets it off by so many seconds, and lets it run so much faster.
    pub fn set(&self, seconds: i64, rate: f64) -> Result<()> {
        let text = format!("{seconds:+} x{rate}\n");
        // Renamed into place: whoever reads it finds a whole one.
        let new = self.file.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &self.file))
            .map_err(Error::io("a clock's file"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_process_believes_the_wrong_time() {
        let folder = tempfile::tempdir().unwrap();
        let clock = match Clock::prepare(folder.path(), "m0") {
            Ok(clock) => clock,
            Err(why) => {
                let said = format!("cannot run: {why}\n");
                return std::io::stderr().write_all(said.as_bytes()).unwrap();
            }
        };
        let off = || {
            let out = Command::new("date").arg("+%s").envs(clock.env()).output();
            let text = String::from_utf8(out.unwrap().stdout).unwrap();
            let there: i64 = text.trim().parse().unwrap();
            let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            there - i64::try_from(here.unwrap().as_secs()).unwrap()
        };
        assert!(off().abs() < 5);
        clock.set(3600, 1.0).unwrap();
        assert!((off() - 3600).abs() < 5, "{}", off());
        clock.set(-600, 1.0).unwrap();
        assert!((off() + 600).abs() < 5, "{}", off());
    }
}
