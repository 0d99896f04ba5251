//! Logs: through the API server from a kubelet that checks who asks.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use apiserver::body::{BoxBody, streaming};
use apiserver::pki::Identity;
use futures::StreamExt;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::harness::{Answer, Api, PATIENCE, PODS, pod};

type Lines = Arc<Mutex<Option<mpsc::Receiver<&'static str>>>>;

/// A kubelet that answers every log with its URL, and follows with more lines
/// as they are sent. Returns its port and the sender of lines.
async fn kubelet(api: &Api) -> (u16, mpsc::Sender<&'static str>) {
    let tls = api
        .running
        .kubelet_tls("n1", &["127.0.0.1".to_owned()])
        .unwrap();
    kubelet_with(tls).await
}

/// The same with a certificate it made itself, as a kubelet does that is given
/// none; it still lets in only the cluster.
async fn self_signed_kubelet(api: &Api) -> (u16, mpsc::Sender<&'static str>) {
    let own = rcgen::generate_simple_self_signed(["n1".to_owned()]).unwrap();
    let identity = Identity {
        cert_pem: own.cert.pem(),
        key_pem: own.signing_key.serialize_pem(),
    };
    let ca = api.running.pki().ca_pem();
    kubelet_with(apiserver::serve::tls::mutual_config(&identity, ca).unwrap()).await
}

async fn kubelet_with(tls: Arc<rustls::ServerConfig>) -> (u16, mpsc::Sender<&'static str>) {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = tcp.local_addr().unwrap().port();
    let (sender, lines) = mpsc::channel(4);
    let lines: Lines = Arc::new(Mutex::new(Some(lines)));
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(tls);
        while let Ok((stream, _)) = tcp.accept().await {
            tokio::spawn(serve(acceptor.clone(), stream, lines.clone()));
        }
    });
    (port, sender)
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, lines: Lines) {
    // A peer that is not believed ends here.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, &lines);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // Ends with the client's; how does not matter here.
    drop(connection.await);
}

fn answer(request: &Request<Incoming>, lines: &Lines) -> Response<BoxBody> {
    let (out, mut written) = mpsc::channel::<String>(4);
    let follow = request.uri().query().unwrap_or_default().contains("follow");
    let more = lines.lock().unwrap().take_if(|_| follow);
    let first = format!("{}\n", request.uri());
    tokio::spawn(async move {
        out.send(first).await.unwrap();
        let Some(mut more) = more else { return };
        loop {
            tokio::select! {
                () = out.closed() => return,
                line = more.recv() => match line {
                    Some(line) => out.send(line.to_owned()).await.unwrap(),
                    None => return,
                },
            }
        }
    });
    let frames = futures::stream::poll_fn(move |cx| written.poll_recv(cx));
    let mut response = Response::new(streaming(frames.map(|text| Ok(text.into()))));
    if request.uri().path().contains("/missing/") {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

async fn with_node(api: &Api, port: u16) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    api.post("/api/v1/nodes", &node).await.ok();
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    api.merge("/api/v1/nodes/n1/status", &status).await.ok();
}

#[tokio::test]
async fn logs_come_from_the_kubelet_of_the_node() {
    let api = Api::start().await;
    let (port, lines) = kubelet(&api).await;
    with_node(&api, port).await;
    api.post(PODS, &pod("a")).await.ok();
    let log = format!("{PODS}/a/log");
    api.get(&log)
        .await
        .refused(400, "BadRequest", "does not have a host assigned");
    let bind = json!({"target": {"kind": "Node", "name": "n1"}});
    api.post(&format!("{PODS}/a/binding"), &bind).await.ok();

    let answer = api.get(&format!("{log}?tailLines=5&timestamps=true")).await;
    assert_eq!(answer.header("content-type"), "text/plain");
    assert_eq!(
        answer.text(),
        "/containerLogs/default/a/c?timestamps=true&tailLines=5\n"
    );
    api.get(&format!("{log}?container=x")).await.refused(
        400,
        "BadRequest",
        "container x is not valid for pod a",
    );
    api.get(&format!("{log}?tailLines=-1"))
        .await
        .refused(422, "Invalid", "tailLines");

    let mut watch = api.watch(&format!("{log}?follow=true")).await;
    assert_eq!(
        watch.raw().await,
        "/containerLogs/default/a/c?follow=true\n"
    );
    lines.send("one\n").await.unwrap();
    assert_eq!(watch.raw().await, "one\n");
    drop(watch);
    // With the reader gone the kubelet's stream ends too.
    tokio::time::timeout(PATIENCE, lines.closed())
        .await
        .expect("let go in time");
}

#[tokio::test]
async fn a_kubelet_lets_in_only_the_cluster_and_errors_are_passed_on() {
    let api = Api::start().await;
    let (port, _lines) = kubelet(&api).await;
    with_node(&api, port).await;
    let stranger = Api::start().await;
    with_node(&stranger, port).await;
    let bind = json!({"target": {"kind": "Node", "name": "n1"}});
    for (api, name) in [(&api, "missing"), (&stranger, "a")] {
        api.post(PODS, &pod(name)).await.ok();
        api.post(&format!("{PODS}/{name}/binding"), &bind)
            .await
            .ok();
    }
    let path = |name: &str| format!("{PODS}/{name}/log");
    api.get(&path("missing"))
        .await
        .refused(404, "NotFound", "/containerLogs/default/missing/c");
    // Another cluster's server is not believed, nor does it believe this kubelet.
    stranger
        .get(&path("a"))
        .await
        .refused(500, "InternalError", "certificate");
    let _: Value = api.get(PODS).await.ok();
}

/// Creates a pod on the node, and asks for its log.
async fn log_of(api: &Api, port: u16) -> Answer {
    with_node(api, port).await;
    let bind = json!({"target": {"kind": "Node", "name": "n1"}});
    api.post(PODS, &pod("a")).await.ok();
    api.post(&format!("{PODS}/a/binding"), &bind).await.ok();
    api.get(&format!("{PODS}/a/log")).await
}

#[tokio::test]
async fn a_kubelet_may_sign_for_itself_unless_an_authority_is_named() {
    let api = Api::start().await;
    let (port, _lines) = self_signed_kubelet(&api).await;
    let answer = log_of(&api, port).await;
    assert_eq!(answer.text(), "/containerLogs/default/a/c\n");

    // Started again over the same certificates, with an authority named.
    let ca = api.dir.path().join("pki/ca.crt");
    let strict = Api::start_with(|config| {
        config.cert_dir = api.dir.path().join("pki");
        config.kubelet_ca_file = Some(ca);
    })
    .await;
    log_of(&strict, port)
        .await
        .refused(500, "InternalError", "certificate");
    // Those of that authority are believed.
    let (port, _lines) = kubelet(&strict).await;
    let status = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    strict.merge("/api/v1/nodes/n1/status", &status).await.ok();
    let answer = strict.get(&format!("{PODS}/a/log")).await;
    assert_eq!(answer.text(), "/containerLogs/default/a/c\n");
}
