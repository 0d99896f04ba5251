//! The fuzz targets on a stable compiler: every input that ever broke one, and
//! a number of inputs from a fixed seed. `fuzz/` has the targets, and runs them
//! for as long as one likes with libFuzzer.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a library for the fuzzer")]
mod targets;

use std::path::Path;

/// Inputs made for each target, unless [`MORE`] says how many; some seconds' worth in a
/// debug build.
const INPUTS: u64 = 2000;
/// The same for targets of which an input is many steps.
const INPUTS_OF_MANY: u64 = 400;
/// How often each good body is damaged.
const DAMAGED: usize = 12;
/// Where the number of inputs is read from.
const MORE: &str = "HOSTILE_INPUTS";
/// Bytes of the longest input.
const LENGTH_MAX: u64 = 600;

/// Draws numbers from a seed (xorshift64*), so that a failure can be run again.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.next() % LENGTH_MAX;
        (0..len).map(|_| (self.next() >> 56) as u8).collect()
    }
}

/// Runs a target; a panic in it names the input. Those that take bodies are also given
/// good ones, whole and with a few bytes changed.
fn holds(name: &str) {
    let (_, target) = targets::TARGETS.iter().find(|(n, _)| *n == name).unwrap();
    let run = |what: &str, input: &[u8]| {
        let quiet = std::panic::AssertUnwindSafe(|| target(input));
        if std::panic::catch_unwind(quiet).is_err() {
            let hex: String = input.iter().map(|b| format!("{b:02x}")).collect();
            panic!("{name} breaks on {what}: {hex}");
        }
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/regressions")
        .join(name);
    for entry in std::fs::read_dir(&folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        run(&path.display().to_string(), &std::fs::read(&path).unwrap());
    }
    for (_, object, input) in targets::bodies().iter().filter(|(of, ..)| *of == name) {
        run(object, input);
        let mut dice = Dice(0x5851_F42D_4C95_7F2D);
        for damaged in 0..DAMAGED {
            let mut input = input.clone();
            for _ in 0..=damaged % 4 {
                let at = 5 + dice.next() as usize % (input.len() - 5);
                input[at] = (dice.next() >> 56) as u8;
            }
            run(object, &input);
        }
    }
    let more = std::env::var(MORE)
        .ok()
        .and_then(|inputs| inputs.parse().ok());
    let inputs = match name {
        "applied" | "requests" => INPUTS_OF_MANY,
        _ => INPUTS,
    };
    for seed in 1..=more.unwrap_or(inputs) {
        let input = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)).bytes();
        run(&format!("seed {seed}"), &input);
    }
}

#[test]
fn every_target_is_run_here() {
    let mut names: Vec<_> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "applied",
            "bbolt_file",
            "body_json",
            "body_protobuf",
            "body_yaml",
            "edge",
            "json",
            "patches",
            "paths",
            "request",
            "requests",
            "rows",
            "selectors",
            "wal",
            "wal_records"
        ]
    );
}

#[test]
fn damaged_logs() {
    holds("wal");
}

#[test]
fn sealed_records_that_say_anything() {
    holds("wal_records");
}

#[test]
fn damaged_bbolt_files() {
    holds("bbolt_file");
}

#[test]
fn damaged_rows() {
    holds("rows");
}

#[test]
fn requests_of_any_bytes() {
    holds("request");
}

#[test]
fn bodies_of_the_gateway() {
    holds("json");
}

#[test]
fn connections_that_say_anything() {
    holds("edge");
}

#[test]
fn kubernetes_bodies_in_json() {
    holds("body_json");
}

#[test]
fn kubernetes_bodies_in_yaml() {
    holds("body_yaml");
}

#[test]
fn kubernetes_bodies_in_protobuf() {
    holds("body_protobuf");
}

#[test]
fn selectors_of_labels_and_fields() {
    holds("selectors");
}

#[test]
fn paths_and_queries() {
    holds("paths");
}

#[test]
fn patches_in_three_languages() {
    holds("patches");
}

#[test]
fn configurations_of_several_managers() {
    holds("applied");
}

#[test]
fn requests_to_a_whole_server() {
    holds("requests");
}
