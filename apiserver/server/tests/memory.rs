//! What hostile bodies cost: no memory worth the name, and little time. In a process
//! of its own, whose memory is nobody else's.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "it/harness.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod harness;

use std::time::{Duration, Instant};

use harness::{Api, CONFIG_MAPS, config_map};
use http::Method;

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
