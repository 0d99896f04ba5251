//! The log reader against files written as the shim writes them.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kubelet_core::cri_log::{Stream, write_line};

use super::*;

/// Limit of a test's patience.
const PATIENCE: Duration = Duration::from_secs(20);

fn line(n: i64) -> Vec<u8> {
    let mut out = Vec::new();
    let time = Timestamp::from_second(1_000 + n).unwrap();
    write_line(
        &mut out,
        time,
        Stream::Stdout,
        false,
        format!("line {n}").as_bytes(),
    );
    out
}

fn lines(range: std::ops::Range<i64>) -> Vec<u8> {
    range.flat_map(line).collect()
}

fn shown(range: std::ops::Range<i64>) -> String {
    range.map(|n| format!("line {n}\n")).collect()
}

async fn read(path: &Path, options: LogOptions) -> String {
    let (tx, mut rx) = mpsc::channel(4);
    let path = path.to_owned();
    let task = tokio::spawn(async move { send_log(&path, &options, || false, &tx).await });
    let mut text = Vec::new();
    while let Some(chunk) = rx.recv().await {
        text.extend_from_slice(&chunk.unwrap());
    }
    task.await.unwrap();
    String::from_utf8(text).unwrap()
}

fn with(change: impl FnOnce(&mut LogOptions)) -> LogOptions {
    let mut options = LogOptions::default();
    change(&mut options);
    options
}

/// Three files: 0..10 rotated twice, 10..20 rotated once, 20..30 current.
fn rotated_log(dir: &Path) -> PathBuf {
    let path = dir.join("0.log");
    fs::write(rotated(&path, 2), lines(0..10)).unwrap();
    fs::write(rotated(&path, 1), lines(10..20)).unwrap();
    fs::write(&path, lines(20..30)).unwrap();
    path
}

#[tokio::test]
async fn a_log_is_read_across_its_rotated_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = rotated_log(dir.path());
    assert_eq!(read(&path, LogOptions::default()).await, shown(0..30));
}

#[tokio::test]
async fn the_tail_is_found_from_the_end_and_may_span_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = rotated_log(dir.path());
    for (tail, first) in [
        (0, 30),
        (1, 29),
        (10, 20),
        (11, 19),
        (25, 5),
        (30, 0),
        (99, 0),
    ] {
        let options = with(|o| o.tail_lines = Some(tail));
        assert_eq!(read(&path, options).await, shown(first..30), "tail {tail}");
    }
}

#[tokio::test]
async fn the_tail_of_a_file_larger_than_a_block() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    fs::write(&path, lines(0..5_000)).unwrap();
    for tail in [1, 1_500, 4_999, 5_000] {
        let options = with(|o| o.tail_lines = Some(tail));
        let first = 5_000 - i64::try_from(tail).unwrap();
        assert_eq!(
            read(&path, options).await,
            shown(first..5_000),
            "tail {tail}"
        );
    }
}

#[tokio::test]
async fn since_timestamps_and_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = rotated_log(dir.path());
    let since = Timestamp::from_second(1_028).unwrap();
    assert_eq!(
        read(&path, with(|o| o.since = Some(since))).await,
        shown(28..30)
    );
    let text = read(
        &path,
        with(|o| (o.timestamps, o.tail_lines) = (true, Some(1))),
    )
    .await;
    assert_eq!(text, "1970-01-01T00:17:09.000000000Z line 29\n");
    assert_eq!(
        read(&path, with(|o| o.limit_bytes = Some(9))).await,
        "line 0\nli"
    );
}

#[tokio::test]
async fn parts_of_a_line_are_joined() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let mut out = Vec::new();
    for (partial, text) in [(true, "one "), (true, "two "), (false, "three")] {
        write_line(
            &mut out,
            Timestamp::UNIX_EPOCH,
            Stream::Stdout,
            partial,
            text.as_bytes(),
        );
    }
    fs::write(&path, out).unwrap();
    let text = read(&path, with(|o| o.timestamps = true)).await;
    assert_eq!(text, "1970-01-01T00:00:00.000000000Z one two three\n");
}

#[tokio::test]
async fn a_log_that_is_not_there_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        read(&dir.path().join("0.log"), LogOptions::default()).await,
        ""
    );
}

/// Receives until `text` ends with `end`.
async fn expect(rx: &mut mpsc::Receiver<io::Result<Bytes>>, text: &mut String, end: &str) {
    let wait = async {
        while !text.ends_with(end) {
            let chunk = rx.recv().await.expect("the log ended early").unwrap();
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

#[tokio::test]
async fn following_goes_on_across_rotation_until_the_container_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let alive = Arc::new(AtomicBool::new(true));
    let (tx, mut rx) = mpsc::channel(4);
    let task = tokio::spawn({
        let (path, alive) = (path.clone(), Arc::clone(&alive));
        async move {
            let options = with(|o| o.follow = true);
            send_log(&path, &options, || alive.load(Ordering::SeqCst), &tx).await;
        }
    });
    let mut text = String::new();
    fs::write(&path, lines(0..3)).unwrap();
    expect(&mut rx, &mut text, "line 2\n").await;
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&lines(3..5)).unwrap();
    // Rotated twice before the reader looks again.
    fs::rename(&path, rotated(&path, 1)).unwrap();
    fs::write(&path, lines(5..7)).unwrap();
    fs::rename(rotated(&path, 1), rotated(&path, 2)).unwrap();
    fs::rename(&path, rotated(&path, 1)).unwrap();
    fs::write(&path, lines(7..9)).unwrap();
    expect(&mut rx, &mut text, "line 8\n").await;
    assert_eq!(text, shown(0..9));
    alive.store(false, Ordering::SeqCst);
    tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
    assert!(rx.recv().await.is_none());
}
