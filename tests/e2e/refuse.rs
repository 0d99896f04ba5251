//! What `keelson` refuses at start, and in which words.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::harness::{Program, alone};

struct Attempt {
    code: Option<i32>,
    said: String,
}

fn attempt(folder: &Path, args: &[&str]) -> Attempt {
    let stderr = folder.join("stderr");
    fs::write(&stderr, "").unwrap();
    let mut program = Program::start(&stderr, args);
    let status = program.wait();
    Attempt {
        code: status.code(),
        said: program.errors(),
    }
}

/// Makes a data directory with a few acknowledged writes by the API server.
fn used_data_dir(folder: &Path) -> PathBuf {
    let data = folder.join("data");
    let mut program = Program::start(
        &folder.join("first"),
        &[
            "up",
            &format!("--data-dir={}", data.display()),
            "--port=0",
            "--store-port=0",
        ],
    );
    program.line("ready in");
    program.kill();
    data
}

fn up(folder: &Path, data: &Path) -> Attempt {
    attempt(
        folder,
        &[
            "up",
            &format!("--data-dir={}", data.display()),
            "--port=0",
            "--store-port=0",
        ],
    )
}

#[test]
fn a_port_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let data = folder.path().join("data");
    for (flag, other) in [("--port", "--store-port"), ("--store-port", "--port")] {
        let got = attempt(
            folder.path(),
            &[
                "up",
                "--data-dir",
                data.to_str().unwrap(),
                &format!("{flag}={port}"),
                &format!("{other}=0"),
            ],
        );
        assert_eq!(got.code, Some(1), "{}", got.said);
        let named = got.said.contains(&port.to_string());
        assert!(
            named && got.said.contains(&format!("with {flag}")),
            "{}",
            got.said
        );
    }
}

#[test]
fn a_data_dir_in_use_or_of_a_newer_version() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut first = Program::start(
        &folder.path().join("first"),
        &[
            "up",
            &format!("--data-dir={}", data.display()),
            "--port=0",
            "--store-port=0",
        ],
    );
    first.line("ready in");
    let second = up(folder.path(), &data);
    assert_eq!(second.code, Some(1), "{}", second.said);
    assert!(second.said.contains("lock"), "{}", second.said);
    first.kill();
}

/// Returns the newest log segment, and how many of its bytes are in use.
fn last_segment(data: &Path) -> (PathBuf, u64) {
    let mut segments: Vec<PathBuf> = fs::read_dir(data.join("store/wal"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "wal"))
        .collect();
    segments.sort();
    let bytes = fs::read(segments.last().unwrap()).unwrap();
    let used = bytes.iter().rposition(|b| *b != 0).unwrap() as u64 + 1;
    (segments.pop().unwrap(), used)
}

#[test]
fn a_newer_format_is_not_touched() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = used_data_dir(folder.path());
    let version = data.join("store/VERSION");
    let newer = fs::read_to_string(&version).unwrap().replace('4', "999");
    fs::write(&version, newer).unwrap();
    let (segment, _) = last_segment(&data);
    let before = fs::read(&segment).unwrap();
    let got = up(folder.path(), &data);
    assert_eq!(got.code, Some(1), "{}", got.said);
    assert!(
        got.said.contains("999") && got.said.contains("knows 4"),
        "{}",
        got.said
    );
    assert!(fs::read(&segment).unwrap() == before, "the log was touched");
}

#[test]
fn a_torn_last_record_is_dropped_and_said() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = used_data_dir(folder.path());
    let (segment, used) = last_segment(&data);
    let torn = File::options().write(true).open(&segment).unwrap();
    torn.write_all_at(&[0; 3], used - 3).unwrap();
    drop(torn);
    let stderr = folder.path().join("second");
    let mut program = Program::start(
        &stderr,
        &[
            "up",
            &format!("--data-dir={}", data.display()),
            "--port=0",
            "--store-port=0",
        ],
    );
    program.line("ready in");
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(program.errors().contains(name), "{}", program.errors());
    program.terminate();
}

#[test]
fn a_flipped_byte_is_named() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = used_data_dir(folder.path());
    let (segment, used) = last_segment(&data);
    let file = File::options()
        .read(true)
        .write(true)
        .open(&segment)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, used / 2).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], used / 2).unwrap();
    drop(file);
    let got = up(folder.path(), &data);
    assert_eq!(got.code, Some(1), "{}", got.said);
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(
        got.said.contains(name) && got.said.contains("at byte"),
        "{}",
        got.said
    );
}

#[test]
fn a_node_name_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let got = attempt(
        folder.path(),
        &[
            "up",
            "--data-dir",
            data.to_str().unwrap(),
            "--node-name=Bad_Name",
        ],
    );
    assert_eq!(got.code, Some(1), "{}", got.said);
    assert!(
        got.said.contains("Bad_Name") && got.said.contains("RFC 1123"),
        "{}",
        got.said
    );
    assert!(!data.exists(), "nothing was made");
}

#[test]
fn a_cri_socket_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let got = attempt(
        folder.path(),
        &[
            "up",
            &format!("--data-dir={}", data.display()),
            "--port=0",
            "--store-port=0",
            "--runtime=cri",
            "--container-runtime-endpoint=unix:///nowhere/containerd.sock",
        ],
    );
    assert_eq!(got.code, Some(1), "{}", got.said);
    assert!(
        got.said.contains("/nowhere/containerd.sock"),
        "{}",
        got.said
    );
    assert!(got.said.contains("--runtime=process"), "{}", got.said);
}
