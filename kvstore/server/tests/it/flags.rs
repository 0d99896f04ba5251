//! The argument lists that kubeadm and k3s give etcd start a member here.

use std::collections::BTreeMap;

use kvserver::{
    Running, Server,
    cli::{Asked, Plan, read},
};

use crate::pki::{Ca, Client};

/// Certificates under the names kubeadm and k3s use, all of one authority.
fn certificates(ca: &Ca, names: &[&str]) {
    for name in names {
        ca.install(name, &ca.leaf("member", &["localhost", "127.0.0.1"], 1));
    }
}

fn plan(args: &[String]) -> Plan {
    match read(args, &BTreeMap::new()).unwrap() {
        Asked::Run(plan) => *plan,
        Asked::Print(text) => panic!("{text}"),
    }
}

async fn start(plan: Plan) -> Running {
    Server::start(plan.config).await.unwrap()
}

/// Says who is served: a client with a certificate over TLS, and probes without.
async fn check(running: &Running, ca: &Ca, client_addr: std::net::SocketAddr) {
    let client = ca.leaf("client", &["x"], 2);
    assert!(Client::new(ca, Some(&client)).admitted(client_addr).await);
    assert!(!Client::new(ca, None).admitted(client_addr).await);
    let peer = ca.leaf("peer", &["127.0.0.1"], 3);
    assert!(
        Client::new(ca, Some(&peer))
            .admitted(running.peer_addrs[0])
            .await
    );
    assert!(!Client::new(ca, None).admitted(running.peer_addrs[0]).await);
    assert_eq!(running.metrics_addrs.len(), 1);
}

/// kubeadm since 1.34 (cmd/kubeadm/app/phases/etcd/local.go), with ports and folders
/// of our own; `old` is as it was with etcd 3.5.
async fn kubeadm(old: bool) {
    let ca = Ca::new();
    certificates(&ca, &["server", "peer"]);
    let pki = ca.dir.path().display();
    let mut args = vec![
        "--advertise-client-urls=https://10.0.0.4:2379".to_owned(),
        format!("--cert-file={pki}/server.crt"),
        "--client-cert-auth=true".to_owned(),
        format!("--data-dir={pki}/data"),
        "--initial-advertise-peer-urls=https://10.0.0.4:2380".to_owned(),
        "--initial-cluster=cp1=https://10.0.0.4:2380".to_owned(),
        format!("--key-file={pki}/server.key"),
        "--listen-client-urls=https://127.0.0.1:0,https://127.0.0.2:0".to_owned(),
        "--listen-metrics-urls=http://127.0.0.1:0".to_owned(),
        "--listen-peer-urls=https://127.0.0.1:0".to_owned(),
        "--name=cp1".to_owned(),
        format!("--peer-cert-file={pki}/peer.crt"),
        "--peer-client-cert-auth=true".to_owned(),
        format!("--peer-key-file={pki}/peer.key"),
        format!("--peer-trusted-ca-file={pki}/ca.crt"),
        "--snapshot-count=10000".to_owned(),
        format!("--trusted-ca-file={pki}/ca.crt"),
    ];
    let newer = [
        "--feature-gates=InitialCorruptCheck=true",
        "--watch-progress-notify-interval=5s",
    ];
    let older = [
        "--experimental-initial-corrupt-check=true",
        "--experimental-watch-progress-notify-interval=5s",
    ];
    args.extend(if old { older } else { newer }.map(str::to_owned));
    let running = start(plan(&args)).await;
    assert_eq!(running.client_addrs.len(), 2);
    check(&running, &ca, running.client_addrs[0]).await;
    running.shutdown().await;
    // As kubeadm does when a member comes back.
    args.push("--initial-cluster-state=existing".to_owned());
    start(plan(&args)).await.shutdown().await;
}

#[tokio::test]
async fn kubeadms_arguments_start_a_member() {
    kubeadm(false).await;
}

#[tokio::test]
async fn older_kubeadms_arguments_start_a_member() {
    kubeadm(true).await;
}

/// k3s writes its configuration to a file (pkg/etcd/etcd.go, ETCDConfig).
#[tokio::test]
async fn k3s_configuration_starts_a_member() {
    let ca = Ca::new();
    certificates(&ca, &["server-client", "peer-server-client"]);
    let pki = ca.dir.path().display();
    let file = ca.write(
        "config",
        format!(
            "name: server-1-5f2a\n\
             data-dir: {pki}/etcd\n\
             listen-client-urls: https://127.0.0.1:0\n\
             listen-client-http-urls: https://127.0.0.1:0\n\
             listen-metrics-urls: http://127.0.0.1:0\n\
             listen-peer-urls: https://127.0.0.1:0\n\
             advertise-client-urls: https://10.0.0.4:2379\n\
             initial-advertise-peer-urls: https://10.0.0.4:2380\n\
             initial-cluster: server-1-5f2a=https://10.0.0.4:2380\n\
             initial-cluster-state: new\n\
             heartbeat-interval: 500\n\
             election-timeout: 5000\n\
             snapshot-count: 10000\n\
             logger: zap\n\
             log-outputs: [stderr]\n\
             experimental-initial-corrupt-check: true\n\
             experimental-watch-progress-notify-interval: 5000000000\n\
             client-transport-security:\n  \
               cert-file: {pki}/server-client.crt\n  \
               client-cert-auth: true\n  \
               key-file: {pki}/server-client.key\n  \
               trusted-ca-file: {pki}/ca.crt\n\
             peer-transport-security:\n  \
               cert-file: {pki}/peer-server-client.crt\n  \
               client-cert-auth: true\n  \
               key-file: {pki}/peer-server-client.key\n  \
               trusted-ca-file: {pki}/ca.crt\n"
        ),
    );
    let running = start(plan(&[format!("--config-file={}", file.display())])).await;
    check(&running, &ca, running.http_addrs[0]).await;
    running.shutdown().await;
}
