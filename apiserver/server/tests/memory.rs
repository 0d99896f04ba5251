//! What hostile bodies and long lists cost: no memory worth the name, and of bodies
//! little time. In a process of its own, whose memory is nobody else's.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "it/harness.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod harness;

use std::time::{Duration, Instant};

use apiserver::storage::Store as _;
use harness::{Api, CONFIG_MAPS, config_map};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::sync::Mutex;

/// Only one test at a time: each measures the memory of the process.
static ALONE: Mutex<()> = Mutex::const_new(());

/// How often each body is sent.
const TIMES: usize = 8;
/// By how much the memory in use may grow meanwhile: some bodies at their largest, and
/// what the allocator keeps of them.
const GROWTH_MAX_KB: u64 = 48 << 10;
/// How long one body may take on a busy machine.
const EACH_MAX: Duration = Duration::from_secs(5);

/// Reads a number of `/proc/self/status`, in kilobytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.unwrap().trim_matches([':', '\t', ' ', 'k', 'B']);
    number.parse().unwrap()
}

/// Levels of aliases, each ten times the one before.
fn bomb() -> String {
    let mut text = "apiVersion: v1\nkind: ConfigMap\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(",");
        text += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    text
}

/// Bodies, the language each is in, and how they may be refused.
fn bodies() -> Vec<(Method, &'static str, String, u16)> {
    let json = |inner: &str| {
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"x":{inner}}}"#)
    };
    let nested = json(&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)));
    let chain = "{\"data\":".repeat(10_000);
    let large = json(&format!("\"{}\"", "x".repeat(4 << 20)));
    let copies = {
        let mut list = vec![r#"{"op":"add","path":"/x","value":["xxxxxxxxxxxx"]}"#.to_owned()];
        list.extend((0..60).map(|_| r#"{"op":"copy","from":"/x","path":"/x/-"}"#.to_owned()));
        format!("[{}]", list.join(","))
    };
    let (post, patch) = (Method::POST, Method::PATCH);
    vec![
        (post.clone(), "application/json", nested.clone(), 400),
        (post.clone(), "application/json", chain.clone(), 400),
        (
            post.clone(),
            "application/json",
            nested[..9_000].to_owned(),
            400,
        ),
        (post.clone(), "application/json", large.clone(), 413),
        (post.clone(), "application/yaml", bomb(), 400),
        (post.clone(), "application/yaml", "- ".repeat(10_000), 400),
        (post.clone(), "application/yaml", "{a: ".repeat(10_000), 400),
        (
            post,
            "application/vnd.kubernetes.protobuf",
            format!("k8s\0{}", "\u{12}".repeat(10_000)),
            400,
        ),
        (patch.clone(), "application/apply-patch+yaml", bomb(), 400),
        (
            patch.clone(),
            "application/apply-patch+yaml",
            "- ".repeat(10_000),
            400,
        ),
        (
            patch.clone(),
            "application/apply-patch+yaml",
            large.clone(),
            413,
        ),
        (
            patch.clone(),
            "application/merge-patch+json",
            nested.clone(),
            400,
        ),
        (
            patch.clone(),
            "application/strategic-merge-patch+json",
            chain,
            400,
        ),
        (patch.clone(), "application/json-patch+json", copies, 422),
        (
            patch.clone(),
            "application/json-patch+json",
            "[".repeat(10_000),
            400,
        ),
        (patch, "application/json-patch+json", large, 413),
    ]
}

#[tokio::test]
async fn hostile_bodies_cost_nothing() {
    let _alone = ALONE.lock().await;
    let api = Api::start().await;
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let path = format!("{CONFIG_MAPS}/a?fieldManager=m");
    let bodies = bodies();
    let before = status("VmRSS");
    // From here on the peak is counted anew.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    for _ in 0..TIMES {
        for (method, media, body, code) in &bodies {
            let path = match *method {
                Method::POST => CONFIG_MAPS,
                _ => path.as_str(),
            };
            let started = Instant::now();
            let answer = api.call(method.clone(), path, media, body.clone()).await;
            let took = started.elapsed();
            let shown: String = body.chars().take(60).collect();
            assert_eq!(
                answer.code.as_u16(),
                *code,
                "{media} {shown}: {}",
                answer.text()
            );
            assert_eq!(answer.json()["code"], *code);
            assert!(took < EACH_MAX, "{media} {shown}: {took:?}");
        }
    }
    let grown = status("VmHWM").saturating_sub(before);
    assert!(grown < GROWTH_MAX_KB, "{grown} kB");
    let after = api.get(&format!("{CONFIG_MAPS}/a")).await.ok();
    assert_eq!(after, made, "nothing was changed");
}

/// How many objects are listed, and how large each is: 40 MB together.
const OBJECTS: usize = 400;
const OBJECT_BYTES: usize = 100 << 10;
/// By how much the memory in use may grow while lists of them are taken: less than one
/// such list.
const LISTS_GROWTH_MAX_KB: u64 = 32 << 10;

#[tokio::test]
async fn lists_cost_the_same_however_long_they_are() {
    let _alone = ALONE.lock().await;
    let api = Api::start().await;
    for n in 0..OBJECTS {
        let name = format!("large-{n:04}");
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": name, "namespace": "default"},
            "data": {"k": "x".repeat(OBJECT_BYTES)}});
        let key = format!("/registry/configmaps/default/{name}");
        let done = api.store.put(&key, object.to_string().into(), 0, None);
        done.await.unwrap();
    }
    // The cache has them all when the last is found.
    let last = format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dlarge-0399");
    assert_eq!(api.get(&last).await.ok()["items"][0]["kind"], "ConfigMap");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (accept, query, lists) in [
        ("application/json", "", 10),
        ("application/vnd.kubernetes.protobuf", "", 2),
        (table, "includeObject=Object", 2),
        ("application/yaml", "", 1),
    ] {
        let before = status("VmRSS");
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let path = format!("{CONFIG_MAPS}?{query}");
        let take = async || {
            let mut body = api.open(&path, accept).await;
            let mut taken = 0;
            while let Some(frame) = body.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                assert!(data.len() < 2 * OBJECT_BYTES, "{accept}: {}", data.len());
                taken += data.len();
            }
            taken
        };
        // All at once.
        for taken in futures::future::join_all((0..lists).map(|_| take())).await {
            assert!(taken > OBJECTS * OBJECT_BYTES, "{accept}: {taken}");
        }
        let grown = status("VmHWM").saturating_sub(before);
        assert!(grown < LISTS_GROWTH_MAX_KB, "{accept}: {grown} kB");
    }
}
