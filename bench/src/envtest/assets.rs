//! Programs, certificates and flags, as envtest prepares them.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use client::ClientConfig;
use client::config::{Kubeconfig, User};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::process::{Child, Command};

/// Who signs certificates.
struct Authority {
    pem: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "envtest");
        Ok(Self {
            pem: params.self_signed(&key)?.pem(),
            key_pem: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Returns a certificate and its key.
    fn issue(
        &self,
        names: &[&str],
        subject: &[(DnType, &str)],
    ) -> anyhow::Result<(String, String)> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok((cert.pem(), key.serialize_pem()))
    }
}

/// What envtest has before it starts anything.
pub(super) struct Assets {
    folder: tempfile::TempDir,
    serving: Authority,
    clients: Authority,
}

impl Assets {
    pub(super) fn new(keelson: &Path) -> anyhow::Result<Self> {
        let keelson = std::path::absolute(keelson)?;
        let assets = Self {
            folder: tempfile::tempdir()?,
            serving: Authority::new()?,
            clients: Authority::new()?,
        };
        for name in ["etcd", "kube-apiserver"] {
            std::os::unix::fs::symlink(&keelson, assets.path(name))?;
        }
        std::fs::create_dir(assets.path("certs"))?;
        let tokens = Authority::new()?;
        let (cert, key) = assets.serving.issue(&["localhost", "127.0.0.1"], &[])?;
        for (name, text) in [
            ("apiserver.crt", &cert),
            ("apiserver.key", &key),
            ("client-cert-auth-ca.crt", &assets.clients.pem),
            ("sa-signer.crt", &tokens.pem),
            ("sa-signer.key", &tokens.key_pem),
        ] {
            std::fs::write(assets.path("certs").join(name), text)?;
        }
        Ok(assets)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a store; returns where it serves.
    pub(super) fn start_etcd(&self, folder: &Path) -> anyhow::Result<(Child, SocketAddr)> {
        let (clients, peers) = (free_address()?, free_address()?);
        let child = Command::new(self.path("etcd"))
            .arg(format!("--advertise-client-urls=http://{clients}"))
            .arg(format!("--data-dir={}", folder.join("data").display()))
            .arg(format!("--listen-client-urls=http://{clients}"))
            .arg(format!("--listen-peer-urls=http://{peers}"))
            .arg("--unsafe-no-fsync=true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the store")?;
        Ok((child, clients))
    }

    /// Starts an API server over a store; returns how an administrator reaches it.
    pub(super) fn start_apiserver(
        &self,
        folder: &Path,
        store: SocketAddr,
    ) -> anyhow::Result<(Child, ClientConfig)> {
        let address = free_address()?;
        // Each writes into its folder of certificates.
        let certs = folder.join("certs");
        std::fs::create_dir(&certs)?;
        for entry in std::fs::read_dir(self.path("certs"))? {
            let entry = entry?;
            std::fs::copy(entry.path(), certs.join(entry.file_name()))?;
        }
        let certs = certs.display();
        let url = format!("https://{address}");
        let child = Command::new(self.path("kube-apiserver"))
            .arg("--allow-privileged=true")
            .arg("--authorization-mode=RBAC")
            .arg(format!("--bind-address={}", address.ip()))
            .arg(format!("--cert-dir={certs}"))
            .arg(format!("--client-ca-file={certs}/client-cert-auth-ca.crt"))
            .arg("--disable-admission-plugins=ServiceAccount")
            .arg(format!("--etcd-servers=http://{store}"))
            .arg(format!("--secure-port={}", address.port()))
            .arg(format!("--service-account-issuer={url}/"))
            .arg(format!("--service-account-key-file={certs}/sa-signer.crt"))
            .arg(format!(
                "--service-account-signing-key-file={certs}/sa-signer.key"
            ))
            .arg("--service-cluster-ip-range=10.0.0.0/24")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the API server")?;
        let subject = [
            (DnType::CommonName, "admin"),
            (DnType::OrganizationName, "system:masters"),
        ];
        let (cert, key) = self.clients.issue(&[], &subject)?;
        let user = User::certificate(cert.as_bytes(), key.as_bytes());
        let config = Kubeconfig::single("envtest", &url, self.serving.pem.as_bytes(), user);
        Ok((child, config.client_config(None)?))
    }
}

/// Finds a port that was free a moment ago, which is all that can be known.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
