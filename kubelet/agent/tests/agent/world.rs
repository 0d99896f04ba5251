//! One agent, its API server in memory, and what is asked about them.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::AgentOptions;
use agent::serving::{self, Identity};
use client::testing::Fake;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// Limit of a test's patience.
pub(super) const PATIENCE: Duration = Duration::from_secs(40);
const PODS: &str = "/api/v1/pods";

pub(super) struct World {
    pub(super) dir: TempDir,
    pub(super) api: Fake,
    pub(super) agent: Option<Agent>,
    authority: CertifiedIssuer<'static, KeyPair>,
}

pub(super) struct Agent {
    pub(super) address: SocketAddr,
    token: CancellationToken,
    task: JoinHandle<Result<(), agent::AgentError>>,
}

impl World {
    pub(super) async fn new() -> Self {
        let mut world = World {
            dir: tempfile::tempdir().unwrap(),
            api: Fake::default(),
            agent: None,
            authority: authority(),
        };
        world.start_agent().await;
        world
    }

    pub(super) async fn start_agent(&mut self) {
        let mut options = AgentOptions::new("n1", self.dir.path());
        options.shim_command = vec![OsString::from(env!("CARGO_BIN_EXE_test-shim"))];
        options
            .image_map
            .0
            .push("greeter=echo greetings".parse().unwrap());
        options.server_tls = Some(self.server_tls());
        let token = CancellationToken::new();
        let (ready, is_ready) = oneshot::channel();
        let task = tokio::spawn(agent::run(self.api.client(), options, ready, token.clone()));
        let address = tokio::time::timeout(PATIENCE, is_ready)
            .await
            .unwrap()
            .unwrap();
        self.agent = Some(Agent {
            address,
            token,
            task,
        });
    }

    pub(super) async fn stop_agent(&mut self) {
        let agent = self.agent.take().unwrap();
        agent.token.cancel();
        tokio::time::timeout(PATIENCE, agent.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    pub(super) async fn request(&self, method: &str, path: &str, body: Value) -> Value {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .body(http_body_util::Full::new(bytes::Bytes::from(
                body.to_string(),
            )))
            .unwrap();
        let response = self.api.answer(request).await.unwrap();
        let body = http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap();
        serde_json::from_slice(&body.to_bytes()).unwrap()
    }

    pub(super) async fn create_pod(&self, name: &str, spec: Value) -> String {
        let mut spec = spec;
        spec["nodeName"] = json!("n1");
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
            "status": {"phase": "Pending"}});
        let made = self
            .request("POST", "/api/v1/namespaces/default/pods", pod)
            .await;
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Marks a pod as deleted, as the API server does while the node still has it.
    pub(super) async fn delete_pod(&self, name: &str, grace: i64) {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let mut pod = self.request("GET", &path, Value::Null).await;
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        pod["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("resourceVersion");
        self.request("PUT", &path, pod).await;
    }

    pub(super) fn pod(&self, name: &str) -> Option<Value> {
        self.api
            .objects(PODS)
            .into_iter()
            .find(|p| p["metadata"]["name"] == name)
    }

    pub(super) fn container(&self, name: &str) -> Value {
        self.pod(name)
            .map(|p| p["status"]["containerStatuses"][0].clone())
            .unwrap_or_default()
    }

    pub(super) fn events(&self, reason: &str) -> Vec<String> {
        let events = self.api.objects("/api/v1/events");
        let found = events.iter().filter(|e| e["reason"] == reason);
        found
            .map(|e| e["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    pub(super) async fn until(&self, what: &str, holds: impl Fn(&World) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            let pods = serde_json::to_string_pretty(&self.api.objects(PODS)).unwrap();
            assert!(Instant::now() < deadline, "never happened: {what}\n{pods}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns the identity of the node's server: self-signed, and answering
    /// the clients of this world's authority.
    pub(super) fn server_tls(&self) -> Arc<rustls::ServerConfig> {
        let names = ["n1", "127.0.0.1"].map(str::to_owned);
        let identity = Identity::self_signed(&self.dir.path().join("pki"), &names).unwrap();
        let ca = self.authority.pem();
        serving::server_config(identity, ca.as_bytes(), Path::new("ca")).unwrap()
    }

    /// Returns the configuration of the API server's client.
    pub(super) fn client_config(&self) -> rustls::ClientConfig {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["apiserver".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let config = self
            .trusting()
            .with_client_auth_cert(vec![certificate.der().clone()], key);
        config.unwrap()
    }

    /// Asks the kubelet's server as the API server does; returns the whole answer.
    pub(super) async fn get(&self, path: &str) -> String {
        self.get_with(self.client_config(), path).await.unwrap()
    }

    /// Begins a client that trusts the kubelet's own certificate.
    pub(super) fn trusting(
        &self,
    ) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = RootCertStore::empty();
        let own = CertificateDer::from_pem_file(self.dir.path().join("pki/kubelet.crt"));
        roots.add(own.unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
    }

    /// Connects to the kubelet's server.
    pub(super) async fn connect(
        &self,
        config: rustls::ClientConfig,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let address = self.agent.as_ref().unwrap().address;
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("n1").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await
    }

    pub(super) async fn get_with(
        &self,
        config: rustls::ClientConfig,
        path: &str,
    ) -> std::io::Result<String> {
        let mut stream = self.connect(config).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // The kubelet ends the connection without a TLS farewell.
        match stream.read_to_end(&mut answer).await {
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof && !answer.is_empty() => {}
            read => drop(read?),
        }
        Ok(String::from_utf8(answer).unwrap())
    }

    pub(super) fn processes(&self) -> Vec<i64> {
        marked(self.dir.path())
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

impl Drop for World {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _gone = std::process::Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .output();
        }
    }
}

fn marked(root: &Path) -> Vec<i64> {
    let root = root.canonicalize().unwrap();
    let mark = format!("KEELSON_ROOTFS={}", root.display());
    let is_marked = |pid: i64| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environ)
            .split('\0')
            .any(|v| v.starts_with(&mark))
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i64>().ok());
    pids.filter(|pid| is_marked(*pid)).collect()
}

pub(super) fn sleeper() -> Value {
    json!({"containers": [{"name": "app", "image": "host", "command": ["sleep", "3700"]}]})
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|c| {
        c.iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True")
    })
}
