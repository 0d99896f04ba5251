//! The house rules a machine can check, run as an ordinary test so that they
//! cannot decay: who may depend on whom, what a pure crate may not know, how
//! long a file may be, and which marks may not land.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The longest a Rust file may be.
const FILE_LINES_MAX: usize = 600;

/// Files that may be longer, each with its reason. The list may only shrink.
const LONG_FILES: &[(&str, &str)] = &[];

/// Every crate, the folder it lives in, and which crates of the workspace it
/// may depend on. `pure` crates know no I/O at all.
struct Crate {
    name: &'static str,
    folder: &'static str,
    pure: bool,
    may_use: &'static [&'static str],
}

const fn pure(name: &'static str, folder: &'static str, may_use: &'static [&'static str]) -> Crate {
    Crate {
        name,
        folder,
        pure: true,
        may_use,
    }
}

const fn shell(
    name: &'static str,
    folder: &'static str,
    may_use: &'static [&'static str],
) -> Crate {
    Crate {
        name,
        folder,
        pure: false,
        may_use,
    }
}

const CRATES: &[Crate] = &[
    shell("proto", "proto", &[]),
    pure("meta", "machinery/meta", &[]),
    pure("mutants", "kvstore/mutants", &[]),
    pure("mvcc", "kvstore/mvcc", &["mutants"]),
    pure("member", "kvstore/member", &["mvcc", "mutants"]),
    shell("bbolt", "kvstore/bbolt", &[]),
    pure("registry", "apiserver/registry", &["meta"]),
    pure("watchcache", "apiserver/watchcache", &["meta"]),
    pure("plan", "controllers/plan", &["meta"]),
    pure("scheduler", "controllers/scheduler", &["meta"]),
    pure("kubelet-core", "kubelet/core", &["meta"]),
    pure("spdy", "kubelet/spdy", &[]),
    shell("disk", "kvstore/disk", &["mvcc", "member", "mutants"]),
    shell("client", "machinery/client", &["meta"]),
    shell(
        "kvserver",
        "kvstore/server",
        &["proto", "mvcc", "member", "disk", "bbolt", "mutants"],
    ),
    shell(
        "apiserver",
        "apiserver/server",
        &[
            "proto",
            "meta",
            "mvcc",
            "registry",
            "watchcache",
            "kvserver",
        ],
    ),
    shell(
        "manager",
        "controllers/manager",
        &["meta", "client", "plan", "scheduler"],
    ),
    shell(
        "agent",
        "kubelet/agent",
        &["meta", "client", "kubelet-core", "spdy"],
    ),
    pure("checkers", "jepsen/checkers", &[]),
    shell("faults", "jepsen/faults", &["proto"]),
];

/// Words a pure crate's sources may not contain, with what to do instead.
const IMPURE: &[(&str, &str)] = &[
    ("tokio", "keep tasks in the shell"),
    ("std::fs", "files belong to the shell"),
    ("std::net::Tcp", "sockets belong to the shell"),
    ("std::thread", "threads belong to the shell"),
    ("Instant::now", "time is passed in"),
    ("SystemTime::now", "time is passed in"),
    ("Timestamp::now", "time is passed in"),
    ("rand::rng", "randomness is passed in"),
    ("thread_rng", "randomness is passed in"),
];

/// Marks that may not land anywhere.
const BANNED: &[&str] = &[
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
    concat!("FIX", "ME"),
    concat!("#[igno", "re"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Lists files below a folder, leaving build output and dot folders out.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.map(|e| e.unwrap().path()) {
            let name = entry.file_name().unwrap().to_string_lossy().into_owned();
            if entry.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(entry);
                }
            } else if name.ends_with(ending) {
                found.push(entry);
            }
        }
    }
    found.sort();
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap()
        .to_string_lossy()
        .into_owned()
}

fn check(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn crates_depend_only_downwards() {
    let mut problems = Vec::new();
    let ours: BTreeMap<_, _> = CRATES.iter().map(|c| (c.name, c)).collect();
    for krate in CRATES {
        let manifest = root().join(krate.folder).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        assert_eq!(
            manifest["package"]["name"].as_str(),
            Some(krate.name),
            "{}",
            krate.folder
        );
        let dependencies = manifest.get("dependencies").and_then(|d| d.as_table());
        for name in dependencies.into_iter().flat_map(|d| d.keys()) {
            if ours.contains_key(name.as_str()) && !krate.may_use.contains(&name.as_str()) {
                problems.push(format!("{} may not depend on {name}", krate.name));
            }
            if krate.pure && matches!(name.as_str(), "tokio" | "hyper" | "tonic" | "rand") {
                problems.push(format!(
                    "{} is pure and may not depend on {name}",
                    krate.name
                ));
            }
        }
    }
    check(&problems);
}

#[test]
fn every_crate_is_in_the_law() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    for member in members.iter().filter_map(|m| m.as_str()) {
        let outside = matches!(member, "bench" | "jepsen" | "jepsen/sim");
        let listed = CRATES.iter().any(|c| c.folder == member);
        assert!(outside || listed, "{member} has no line in CRATES");
    }
}

#[test]
fn pure_crates_are_pure() {
    let mut problems = Vec::new();
    for krate in CRATES.iter().filter(|c| c.pure) {
        let folder = root().join(krate.folder);
        if !folder.join("clippy.toml").exists() {
            problems.push(format!("{} has no clippy.toml with the bans", krate.folder));
        }
        for file in files(&folder.join("src"), ".rs") {
            let text = fs::read_to_string(&file).unwrap();
            for (number, line) in text.lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                for (word, instead) in IMPURE {
                    if code.contains(word) {
                        let at = format!("{}:{}", relative(&file), number + 1);
                        problems.push(format!("{at}: `{word}` in a pure crate: {instead}"));
                    }
                }
            }
        }
    }
    check(&problems);
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut problems = Vec::new();
    for file in files(&root(), ".rs") {
        let name = relative(&file);
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().count();
        let allowed = LONG_FILES.iter().any(|(f, _)| *f == name);
        if lines > FILE_LINES_MAX && !allowed {
            problems.push(format!(
                "{name}: {lines} lines, the limit is {FILE_LINES_MAX}"
            ));
        }
        let in_source = name.contains("src/") || name.starts_with("tests/");
        let first = text
            .lines()
            .find(|l| !l.starts_with("#!["))
            .unwrap_or_default();
        if in_source && !first.starts_with("//!") {
            problems.push(format!(
                "{name}: begins without a `//!` that says what it is"
            ));
        }
    }
    check(&problems);
}

#[test]
fn unfinished_marks_do_not_land() {
    let mut problems = Vec::new();
    for file in files(&root(), ".rs") {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            for mark in BANNED.iter().filter(|m| line.contains(**m)) {
                problems.push(format!("{}:{}: {mark}", relative(&file), number + 1));
            }
        }
    }
    check(&problems);
}

#[test]
fn pages_have_one_title() {
    for file in files(&root(), ".md") {
        let text = fs::read_to_string(&file).unwrap();
        let mut in_code = false;
        let titles = text
            .lines()
            .filter(|l| {
                in_code ^= l.starts_with("```");
                !in_code && l.starts_with("# ")
            })
            .count();
        assert_eq!(titles, 1, "{} has {titles} titles", relative(&file));
    }
}
