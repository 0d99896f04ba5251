//! What kubectl does that needs no node.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::Value;

use crate::api::Api;
use crate::harness::{PATIENCE, Program, until};

pub(crate) fn kubectl_api_versions(api: &Api) {
    let said = api.kubectl().run("api-versions");
    assert!(said.lines().any(|l| l == "v1"), "{said}");
}

pub(crate) fn kubectl_version(api: &Api) {
    let said = api.kubectl().run("version");
    for word in ["Client Version: v1.", "Server Version: v1."] {
        assert!(said.contains(word), "{said}");
    }
    let whole: Value = serde_json::from_str(&api.kubectl().run("version -o json")).unwrap();
    for side in ["clientVersion", "serverVersion"] {
        for part in ["major", "minor", "gitVersion", "buildDate", "platform"] {
            let text = whole[side][part].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{side}.{part}: {whole}");
        }
        assert!(whole[side]["gitCommit"].is_string(), "{side}: {whole}");
    }
}

pub(crate) fn kubectl_diff(api: &Api) {
    let (k, namespace) = (api.kubectl(), api.namespace());
    let manifest = |image: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\n\
             metadata: {{name: httpd-deployment, namespace: {namespace}}}\n\
             spec:\n  replicas: 1\n  selector: {{matchLabels: {{app: httpd}}}}\n  template:\n    \
             metadata: {{labels: {{app: httpd}}}}\n    \
             spec: {{containers: [{{name: httpd, image: {image}}}]}}\n"
        )
    };
    k.run(&format!(
        "create -f {}",
        api.file(&manifest("nobody/httpd:1"))
    ));
    let out = k.output(&format!(
        "diff -f {}",
        api.file(&manifest("nobody/busybox:1"))
    ));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    for line in [
        "-      - image: nobody/httpd:1",
        "+      - image: nobody/busybox:1",
    ] {
        assert!(said.contains(line), "{said}");
    }
    k.run(&format!(
        "delete deployment httpd-deployment -n {namespace}"
    ));
}

/// Starts a proxy that says where it serves.
fn proxy(api: &Api, flags: &[&str]) -> Program {
    let (kubectl, kubeconfig, home) = api.kubectl_program();
    let log = home.join(api.name("proxy"));
    Program::spawn(
        Command::new(kubectl)
            .arg("proxy")
            .args(flags)
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", home),
        &log,
    )
}

/// Asks what versions there are, over any stream.
fn ask(mut stream: impl Read + Write) {
    write!(stream, "GET /api/ HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{answer}");
    let versions: Value = serde_json::from_str(body).unwrap();
    assert!(
        !versions["versions"].as_array().unwrap().is_empty(),
        "{versions}"
    );
}

pub(crate) fn kubectl_proxy_port(api: &Api) {
    let mut proxy = proxy(api, &["--port=0", "--disable-filter"]);
    let address = proxy.line("Starting to serve on ");
    let stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    ask(stream);
}

pub(crate) fn kubectl_proxy_socket(api: &Api) {
    let (_, _, home) = api.kubectl_program();
    let socket = home.join(api.name("socket"));
    let mut proxy = proxy(api, &[&format!("--unix-socket={}", socket.display())]);
    proxy.line("Starting to serve on ");
    let stream = until("the socket", || {
        UnixStream::connect(&socket).map_err(|e| e.to_string())
    });
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    ask(stream);
}
