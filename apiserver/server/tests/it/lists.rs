//! Lists that are longer than what is made of them at once.

use std::io::Read as _;

use apiserver::storage::Store as _;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::credentials::connect;
use crate::harness::{Api, CONFIG_MAPS, PATIENCE};

/// Puts large objects where a server finds them, which is quicker than to create them.
async fn fill(api: &Api, count: usize, bytes: usize) {
    for n in 0..count {
        let name = format!("large-{n:04}");
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": name, "namespace": "default", "labels": {"large": "yes"},
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "data": {"k": "x".repeat(bytes)}});
        let key = format!("/registry/configmaps/default/{name}");
        let done = api.store.put(&key, object.to_string().into(), 0, None);
        done.await.unwrap();
    }
}

fn large(list: &Value, rows: &str) -> usize {
    let items = list[rows].as_array().unwrap().iter();
    let name = |item: &Value| {
        let object = item.get("object").unwrap_or(item);
        object["metadata"]["name"].as_str().unwrap().to_owned()
    };
    items.filter(|i| name(i).starts_with("large-")).count()
}

/// How many lists of a namespace's config maps have lasted some time.
async fn listed(api: &Api) -> u64 {
    let text = api.get("/metrics").await.text();
    let mut counts = text.lines().filter(|line| {
        line.starts_with("apiserver_request_duration_seconds_count{")
            && [
                "verb=\"LIST\"",
                "resource=\"configmaps\"",
                "scope=\"namespace\"",
            ]
            .iter()
            .all(|label| line.contains(label))
    });
    let count = counts.next().and_then(|line| line.rsplit(' ').next());
    count.unwrap().parse().unwrap()
}

#[tokio::test]
async fn long_lists_come_in_parts_and_whole() {
    let api = Api::start().await;
    fill(&api, 300, 2000).await;
    let path = format!("{CONFIG_MAPS}?labelSelector=large%3Dyes");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (path, accept, rows) in [
        (&path, "application/json", "items"),
        (&path, table, "rows"),
        (
            &format!("{path}&includeObject=Object"),
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "rows",
        ),
        (
            &path,
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "items",
        ),
        (&CONFIG_MAPS.to_owned(), "application/json", "items"),
    ] {
        let plain = api.get_as(path, accept).await;
        assert_eq!(plain.header("content-type"), "application/json");
        let list = plain.json();
        assert_eq!(large(&list, rows), 300, "{path} {accept}");
        let request = Request::get(path)
            .header("accept", accept)
            .header("accept-encoding", "gzip")
            .body(Full::default())
            .unwrap();
        let packed = api.send(request).await;
        if plain.bytes.len() < 128 << 10 {
            assert_eq!(packed.json()[rows], list[rows]);
            continue;
        }
        assert_eq!(packed.header("content-encoding"), "gzip");
        assert_eq!(packed.header("vary"), "Accept-Encoding");
        let mut unpacked = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(&packed.bytes[..]);
        decoder.read_to_end(&mut unpacked).unwrap();
        let unpacked: Value = serde_json::from_slice(&unpacked).unwrap();
        assert_eq!(unpacked[rows], list[rows]);
    }
    // No frame is much larger than what is made at once.
    let before = listed(&api).await;
    let mut body = api.open(CONFIG_MAPS, "application/json").await;
    assert_eq!(http_body::Body::size_hint(&body).exact(), None);
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.len() < (64 << 10) + 4096, "{}", data.len());
        bytes += data.len();
    }
    assert!(bytes > 300 * 2000);
    // It lasts until its end.
    assert_eq!(listed(&api).await, before);
    drop(body);
    assert_eq!(listed(&api).await, before + 1);
    // Pages add up to as much, and say how much is left.
    let (mut token, mut seen) = (String::new(), 0);
    loop {
        let page = format!("{CONFIG_MAPS}?limit=130&continue={token}");
        let page = api.get(&page).await.ok();
        seen += page["items"].as_array().unwrap().len();
        let Some(next) = page["metadata"]["continue"].as_str() else {
            break;
        };
        let left = page["metadata"]["remainingItemCount"].as_u64().unwrap();
        let all = api.get(CONFIG_MAPS).await.ok();
        let all = all["items"].as_array().unwrap().len();
        assert_eq!(seen as u64 + left, all as u64);
        token = next.to_owned();
    }
    assert!(seen >= 300);
}

#[tokio::test]
async fn a_list_that_is_not_taken_in_time_breaks_off() {
    let api = Api::start().await;
    // More than the buffers of both ends take.
    fill(&api, 400, 100 << 10).await;
    let admin = api.running.pki().admin().unwrap();
    let ask = async |timeout: &str| {
        let mut stream = connect(&api, Some(&admin), b"http/1.1").await;
        let head = format!(
            "GET {CONFIG_MAPS}?timeout={timeout} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut first = vec![0; 1024];
        stream.read_exact(&mut first).await.unwrap();
        let text = String::from_utf8_lossy(&first).to_lowercase();
        assert!(text.starts_with("http/1.1 200 "), "{text}");
        assert!(text.contains("transfer-encoding: chunked"), "{text}");
        stream
    };
    let rest = async |mut stream: tokio_rustls::client::TlsStream<tokio::net::TcpStream>| {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes));
        // An end without a TLS close is an end too.
        drop(read.await.expect("the connection ends"));
        bytes
    };
    let whole = rest(ask("60s").await).await;
    assert!(whole.ends_with(b"\r\n0\r\n\r\n"));
    assert!(whole.len() > 400 * (100 << 10));

    let slow = ask("4s").await;
    tokio::time::sleep(std::time::Duration::from_millis(4500)).await;
    let part = rest(slow).await;
    assert!(part.len() < whole.len());
    assert!(!part.ends_with(b"\r\n0\r\n\r\n"), "looks complete");
}
