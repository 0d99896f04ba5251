//! The way down: announced, then gone.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::credentials::connect;
use crate::harness::{Api, CONFIG_MAPS, PATIENCE, config_map};

/// Asks over the network, as the administrator.
async fn ask(api: &Api, method: &str, path: &str, body: &str) -> String {
    let admin = api.running.pki().admin().unwrap();
    let mut stream = connect(api, Some(&admin), b"http/1.1").await;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes));
    // The server may close without a TLS goodbye; what was read counts.
    drop(read.await.expect("an answer in time"));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn an_announced_stop_refuses_writes_from_outside_only() {
    let api = Api::start().await;
    let map = |name: &str| config_map(name).to_string();
    let answer = ask(&api, "POST", CONFIG_MAPS, &map("before")).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");

    api.running.begin_shutdown();
    let answer = ask(&api, "GET", "/readyz", "").await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(answer.contains("[-]shutdown failed"), "{answer}");
    assert_eq!(api.get("/livez").await.text(), "ok");

    let before = format!("{CONFIG_MAPS}/before");
    for (method, path) in [("POST", CONFIG_MAPS), ("DELETE", &before)] {
        let answer = ask(&api, method, path, &map("late")).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(
            answer.to_lowercase().contains("retry-after: 5\r\n"),
            "{answer}"
        );
        assert!(answer.contains("shutting down"), "{answer}");
    }
    let answer = ask(&api, "GET", &before, "").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // Those inside may still write: a kubelet reports how its pods ended.
    api.post(CONFIG_MAPS, &config_map("inside")).await.ok();
    api.running.shutdown().await;
}
