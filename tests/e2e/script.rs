//! Runs scripts of others' clients: a script that ends well has shown what it is for.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often a script is looked at.
const POLL: Duration = Duration::from_millis(50);

/// Runs a command to its end, which must be a good one; one that takes longer than
/// `patience` is stopped and fails. What it says goes to a file in `folder` first.
pub(crate) fn passes(command: &mut Command, folder: &Path, patience: Duration) {
    let said = folder.join("script-output");
    let output = std::fs::File::create(&said).unwrap();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let deadline = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        thread::sleep(POLL);
    };
    let said = std::fs::read_to_string(said).unwrap_or_default();
    assert!(
        status.is_some_and(|s| s.success()),
        "{command:?}: {status:?}\n{said}"
    );
    eprintln!("{said}");
}
