//! Field merge against scripts and against laws.
//!
//! `cases/*.yaml` are scripts: a type, and what managers do to one object of it;
//! `golden/*.txt` is what came of each step: the object, who owns what, or the
//! refusal. To accept a changed outcome run with `UPDATE_GOLDENFILES=1` and read
//! the difference. [`laws`] holds for all objects and all orders of steps.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that reads its inputs"
)]

mod laws;
mod notation;
mod script;

use std::io::Write as _;
use std::path::Path;

use goldenfile::Mint;

#[test]
fn scripts_end_as_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fieldmerge");
    let mut mint = Mint::new(folder.join("golden"));
    let mut inputs: Vec<_> = std::fs::read_dir(folder.join("cases"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(inputs.len() >= 10, "inputs are missing");
    for input in inputs {
        let text = std::fs::read(&input).unwrap();
        let script = registry::json::decode_yaml(&text, 1 << 20).unwrap();
        assert!(
            script.duplicates.is_empty(),
            "{input:?}: {:?}",
            script.duplicates
        );
        let name = input.file_stem().and_then(|s| s.to_str()).unwrap();
        let mut golden = mint.new_goldenfile(format!("{name}.txt")).unwrap();
        golden
            .write_all(script::run(&script.value).as_bytes())
            .unwrap();
    }
}
