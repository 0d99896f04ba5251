//! A store of one member, etcd's or ours, in a folder of its own.

use std::path::Path;
use std::process::Command;

use crate::harness::{Program, free_address, tool, until};

/// Whose server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Etcd,
    Keelson,
}

/// A running server; it ends when this is dropped.
pub(crate) struct Server {
    kind: Kind,
    address: String,
    folder: tempfile::TempDir,
    // Declared last of what matters: it dies before its folder goes.
    _program: Program,
}

impl Server {
    /// Starts one that speaks plain HTTP; `None` if the tool is missing.
    pub(crate) fn start(kind: Kind) -> Option<Self> {
        Self::run(kind, tempfile::tempdir().unwrap(), "http", &[])
    }

    /// Starts one that speaks TLS, and that only to clients with a certificate.
    pub(crate) fn start_with_tls(kind: Kind) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path());
        let file = |name: &str| folder.path().join(name).display().to_string();
        let flags = [
            format!("--cert-file={}", file("server.crt")),
            format!("--key-file={}", file("server.key")),
            format!("--trusted-ca-file={}", file("ca.crt")),
            "--client-cert-auth=true".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Self::run(kind, folder, "https", &flags)
    }

    fn run(kind: Kind, folder: tempfile::TempDir, scheme: &str, flags: &[&str]) -> Option<Self> {
        let data = format!("--data-dir={}", folder.path().join("data").display());
        let stderr = folder.path().join("server-stderr");
        let (program, port) = match kind {
            Kind::Keelson => {
                let listen = format!("--listen-client-urls={scheme}://127.0.0.1:0");
                let peers = "--listen-peer-urls=http://127.0.0.1:0";
                let mut args = vec!["kvstore", &data, &listen, peers];
                args.extend(flags);
                let program = Program::start(&stderr, &args);
                let line = program.logged("ready to serve client requests");
                (program, port_in(&line))
            }
            Kind::Etcd => {
                let etcd = tool("etcd")?;
                let address = free_address();
                let client = format!("{scheme}://{address}");
                let peer = format!("http://{}", free_address());
                let mut command = Command::new(etcd);
                command
                    .arg(&data)
                    .args(["--listen-client-urls", &client])
                    .args(["--advertise-client-urls", &client])
                    .args(["--listen-peer-urls", &peer])
                    .args(["--initial-advertise-peer-urls", &peer])
                    .arg(format!("--initial-cluster=default={peer}"))
                    .args(flags);
                let program = Program::spawn(&mut command, &stderr);
                program.logged("ready to serve client requests");
                until("the port of etcd", || {
                    std::net::TcpStream::connect(address).map_err(|e| e.to_string())
                });
                (program, address.port())
            }
        };
        Some(Self {
            kind,
            // By name, since the certificates have names.
            address: format!("localhost:{port}"),
            folder,
            _program: program,
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the folder the test may write to.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Finds the port of 127.0.0.1 in a line of the log.
fn port_in(line: &str) -> u16 {
    let start = line.find("127.0.0.1:").unwrap() + "127.0.0.1:".len();
    let digits: String = line[start..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap()
}

/// Makes an authority and certificates for the server and a client.
fn certificates(folder: &Path) {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
    write("ca.crt", ca.self_signed(&ca_key).unwrap().pem());
    let issuer = rcgen::Issuer::new(ca, ca_key);
    for (owner, names) in [
        ("server", ["localhost", "127.0.0.1"]),
        ("client", ["client", "client.local"]),
    ] {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(names.map(str::to_owned)).unwrap();
        // The common name makes whoever shows the client's certificate user "al".
        let common = if owner == "client" { "al" } else { owner };
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, common);
        write(
            &format!("{owner}.crt"),
            params.signed_by(&key, &issuer).unwrap().pem(),
        );
        write(&format!("{owner}.key"), key.serialize_pem());
    }
}
