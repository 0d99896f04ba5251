//! A certificate authority of one's own, and a client that speaks just enough TLS
//! and HTTP to see who is let in.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use kvserver::TlsFiles;
use rcgen::{
    CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// An authority, and a folder for what it signs.
pub(crate) struct Ca {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) cert: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let cert = params.self_signed(&key).unwrap().pem();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.crt"), &cert).unwrap();
        Self {
            dir,
            cert,
            issuer: Issuer::new(params, key),
        }
    }

    /// Signs a certificate for hosts and addresses.
    pub(crate) fn leaf(&self, cn: &str, names: &[&str], serial: u64) -> Leaf {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, cn);
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().unwrap();
        Leaf {
            cert: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// Signs a list of revoked certificates, in PEM and DER.
    pub(crate) fn revoke(&self, serials: &[u64]) -> (String, Vec<u8>) {
        let day = |year| rcgen::date_time_ymd(year, 1, 1);
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: day(2020),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: day(2020),
            next_update: day(2100),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).unwrap();
        (list.pem().unwrap(), list.der().to_vec())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a file in place as a careful operator does: all of it at once.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        let temporary = self.path("new");
        std::fs::write(&temporary, bytes).unwrap();
        std::fs::rename(&temporary, &path).unwrap();
        path
    }

    /// Writes a certificate and its key.
    pub(crate) fn install(&self, name: &str, leaf: &Leaf) -> (PathBuf, PathBuf) {
        let key = self.write(&format!("{name}.key"), &leaf.key);
        (self.write(&format!("{name}.crt"), &leaf.cert), key)
    }

    /// Returns files for a listener that asks its clients for certificates.
    pub(crate) fn files(&self) -> TlsFiles {
        let server = self.leaf("server", &["localhost"], 1);
        let (cert_file, key_file) = self.install("server", &server);
        TlsFiles {
            cert_file,
            key_file,
            trusted_ca_file: Some(self.path("ca.crt")),
            ..TlsFiles::default()
        }
    }
}

/// What a client brings.
#[derive(Clone)]
pub(crate) struct Client<'a> {
    pub(crate) ca: &'a Ca,
    pub(crate) leaf: Option<&'a Leaf>,
    pub(crate) versions: &'static [&'static rustls::SupportedProtocolVersion],
}

impl<'a> Client<'a> {
    pub(crate) fn new(ca: &'a Ca, leaf: Option<&'a Leaf>) -> Self {
        Self {
            ca,
            leaf,
            versions: rustls::ALL_VERSIONS,
        }
    }

    /// Sends a GET; returns the body and the certificate the server showed, or why
    /// the connection failed.
    pub(crate) async fn get(
        &self,
        addr: SocketAddr,
        path: &str,
    ) -> Result<(String, Vec<u8>), std::io::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.ca.cert.as_bytes()).unwrap();
        roots.add(root).unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match self.leaf {
            None => builder.with_no_client_auth(),
            Some(leaf) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(leaf.cert.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap(),
                )
                .unwrap(),
        };
        let stream = TcpStream::connect(addr).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
        let body = reply.split_once("\r\n\r\n").unwrap().1.to_owned();
        Ok((body, shown))
    }

    /// Says whether the server lets the client in.
    pub(crate) async fn admitted(&self, addr: SocketAddr) -> bool {
        match self.get(addr, "/version").await {
            Ok((body, _)) => {
                assert!(body.contains("etcdserver"), "{body}");
                true
            }
            Err(_) => false,
        }
    }
}

/// Reads the one certificate of a PEM file.
pub(crate) fn der(path: &Path) -> Vec<u8> {
    CertificateDer::from_pem_file(path).unwrap().to_vec()
}
