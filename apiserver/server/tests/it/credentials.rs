//! Who may speak, over real TLS: certificates, tokens, and none.

use std::sync::Arc;

use apiserver::pki::Identity;
use base64::Engine;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SigningKey};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::{Api, PATIENCE};

/// Connects to a server, with a client certificate or without.
pub(crate) async fn connect(
    api: &Api,
    identity: Option<&Identity>,
    alpn: &[u8],
) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(api.running.pki().ca_pem().as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = vec![CertificateDer::from_pem_slice(identity.cert_pem.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
            let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
            // Not through the builder's own method, which refuses to show what
            // it cannot read.
            let pair = SingleCertAndKey::from(CertifiedKey::new(chain, key));
            builder.with_client_cert_resolver(Arc::new(pair))
        }
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    let tcp = TcpStream::connect(api.running.addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await
        .unwrap()
}

/// Sends one request and returns the answer as text.
pub(crate) async fn ask(
    api: &Api,
    identity: Option<&Identity>,
    path: &str,
    header: &str,
) -> String {
    let mut stream = connect(api, identity, b"http/1.1").await;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut text));
    // The server may close without a TLS goodbye; what was read counts.
    drop(read.await.expect("an answer in time"));
    String::from_utf8_lossy(&text).into_owned()
}

/// Issues a client certificate of an authority given by its files.
fn issue(ca_pem: &str, ca_key: &str, expired: bool) -> Identity {
    let issuer = Issuer::from_ca_cert_pem(ca_pem, KeyPair::from_pem(ca_key).unwrap()).unwrap();
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "mallory");
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if expired {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    let cert = params.signed_by(&key, &issuer).unwrap();
    Identity {
        cert_pem: cert.pem(),
        key_pem: key.serialize_pem(),
    }
}

/// Splits DER into the elements of which it is the concatenation: tag, whole.
fn elements(mut der: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while !der.is_empty() {
        let (head, size) = header(der);
        let (whole, rest) = der.split_at(head + size);
        found.push((whole[0], whole));
        der = rest;
    }
    found
}

/// Returns the sizes of an element's header and of its content.
fn header(der: &[u8]) -> (usize, usize) {
    match usize::from(der[1]) {
        short @ 0..0x80 => (2, short),
        more => {
            let digits = &der[2..2 + (more - 0x80)];
            let size = digits.iter().fold(0, |n, d| n << 8 | usize::from(*d));
            (2 + digits.len(), size)
        }
    }
}

fn content(der: &[u8]) -> &[u8] {
    &der[header(der).0..]
}

/// Builds an element.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let size = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[tag, 0x82][..], &size, content].concat()
}

/// Makes an X.509 v1 certificate of a v3 one: without version and extensions,
/// signed anew by the same authority. `openssl x509 -req` makes such ones.
fn as_v1(identity: &Identity, ca_key: &str) -> Identity {
    let der = CertificateDer::from_pem_slice(identity.cert_pem.as_bytes()).unwrap();
    let parts = elements(content(&der));
    let tbs: Vec<u8> = elements(content(parts[0].1))
        .into_iter()
        .filter(|(tag, _)| !matches!(tag, 0xa0 | 0xa3))
        .flat_map(|(_, whole)| whole.to_vec())
        .collect();
    let tbs = element(0x30, &tbs);
    let signature = KeyPair::from_pem(ca_key).unwrap().sign(&tbs).unwrap();
    let signature = element(0x03, &[&[0][..], &signature].concat());
    let cert = element(0x30, &[&tbs[..], parts[1].1, &signature].concat());
    let text = base64::engine::general_purpose::STANDARD.encode(cert);
    Identity {
        cert_pem: format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"),
        key_pem: identity.key_pem.clone(),
    }
}

#[track_caller]
fn assert_unauthorized(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(
        answer.contains(r#""reason":"Unauthorized","code":401"#),
        "{answer}"
    );
}

#[tokio::test]
async fn certificates_say_who_one_is() {
    let api = Api::start().await;
    let pods = "/api/v1/pods";
    let admin = api.running.pki().admin().unwrap();
    assert!(
        ask(&api, Some(&admin), pods, "")
            .await
            .starts_with("HTTP/1.1 200 ")
    );

    let node = api.running.pki().node_client("n1").unwrap();
    let answer = ask(&api, Some(&node), "/apis/apps/v1/deployments", "").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(
        answer.contains(r#"User \"system:node:n1\" cannot list resource \"deployments\""#),
        "{answer}"
    );

    assert_unauthorized(&ask(&api, None, pods, "").await);
    for open in ["/healthz", "/readyz", "/version"] {
        assert!(
            ask(&api, None, open, "").await.starts_with("HTTP/1.1 200 "),
            "{open}"
        );
    }
    assert_unauthorized(&ask(&api, None, "/apis", "").await);
}

#[tokio::test]
async fn certificates_that_are_not_believed_are_answered_with_401() {
    let api = Api::start().await;
    let read = |dir: &std::path::Path, f: &str| std::fs::read_to_string(dir.join(f)).unwrap();
    let dir = api.dir.path().join("pki");
    let (ca, key) = (read(&dir, "ca.crt"), read(&dir, "ca.key"));
    let valid = issue(&ca, &key, false);
    assert!(
        ask(&api, Some(&valid), "/api/v1/pods", "")
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    let expired = issue(&ca, &key, true);
    assert_unauthorized(&ask(&api, Some(&expired), "/api/v1/pods", "").await);

    for of in [&valid, &expired] {
        let old = as_v1(of, &key);
        assert_unauthorized(&ask(&api, Some(&old), "/api/v1/pods", "").await);
        // Not even as a stranger, where strangers are let in.
        assert_unauthorized(&ask(&api, Some(&old), "/version", "").await);
    }

    let other = tempfile::tempdir().unwrap();
    let foreign = apiserver::pki::Pki::open(other.path())
        .unwrap()
        .admin()
        .unwrap();
    assert_unauthorized(&ask(&api, Some(&foreign), "/api/v1/pods", "").await);
    // A server's certificate is no client's.
    let serving = api
        .running
        .pki()
        .kubelet_serving("n1", &["localhost".to_owned()])
        .unwrap();
    assert_unauthorized(&ask(&api, Some(&serving), "/api/v1/pods", "").await);
}

#[tokio::test]
async fn tokens_say_who_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.csv");
    std::fs::write(&file, "secret,alice,1,\"system:masters\"\nplain,bob,2\n").unwrap();
    let api = Api::start_with(|c| c.token_auth_file = Some(file)).await;
    let with = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let pods = "/api/v1/pods";
    assert!(
        ask(&api, None, pods, &with("secret"))
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    assert!(
        ask(&api, None, pods, &with("plain"))
            .await
            .starts_with("HTTP/1.1 403 ")
    );
    assert_unauthorized(&ask(&api, None, pods, &with("guess")).await);
    assert_unauthorized(&ask(&api, None, "/healthz", &with("guess")).await);
}

#[tokio::test]
async fn another_authority_may_be_believed_too() {
    let other = tempfile::tempdir().unwrap();
    let pki = apiserver::pki::Pki::open(other.path()).unwrap();
    let api = Api::start_with(|c| c.client_ca_file = Some(other.path().join("ca.crt"))).await;
    let admin = pki.admin().unwrap();
    assert!(
        ask(&api, Some(&admin), "/api/v1/pods", "")
            .await
            .starts_with("HTTP/1.1 200 ")
    );
}

#[tokio::test]
async fn the_kubeconfig_is_private_and_complete() {
    use std::os::unix::fs::PermissionsExt;
    let api = Api::start().await;
    let path = api.dir.path().join("kubeconfig");
    api.running.write_admin_kubeconfig(&path).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let text = std::fs::read_to_string(&path).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["current-context"], "keelson");
    assert_eq!(
        config["clusters"][0]["cluster"]["server"],
        api.running.url()
    );
}
