//! Who is let in where TLS is spoken, and what happens when files change.

use std::net::SocketAddr;

use kvserver::{Config, Server, TlsFiles, TlsVersion};

use crate::{
    pki::{Ca, Client, Leaf, der},
    store::Store,
};

async fn start(files: TlsFiles, change: impl FnOnce(&mut Config)) -> (Store, SocketAddr) {
    let store = Store::start_with(|config| {
        config.listen_client_urls = vec!["https://127.0.0.1:0".to_owned()];
        config.client_tls = Some(files);
        change(config);
    })
    .await;
    let addr = store.running().client_addr.unwrap();
    (store, addr)
}

fn shown(leaf: &Leaf) -> Vec<u8> {
    use rustls_pki_types::{CertificateDer, pem::PemObject as _};
    let cert = CertificateDer::from_pem_slice(leaf.cert.as_bytes());
    cert.unwrap().to_vec()
}

#[tokio::test]
async fn only_the_trusted_authority_is_believed() {
    let (ca, other) = (Ca::new(), Ca::new());
    let (_store, addr) = start(ca.files(), |_| {}).await;
    let friend = ca.leaf("friend", &["x"], 7);
    let stranger = other.leaf("friend", &["x"], 7);
    assert!(Client::new(&ca, Some(&friend)).admitted(addr).await);
    assert!(!Client::new(&ca, Some(&stranger)).admitted(addr).await);
    assert!(!Client::new(&ca, None).admitted(addr).await);
}

#[tokio::test]
async fn without_an_authority_nobody_is_asked() {
    let ca = Ca::new();
    let mut files = ca.files();
    files.trusted_ca_file = None;
    let (_store, addr) = start(files, |_| {}).await;
    assert!(Client::new(&ca, None).admitted(addr).await);
}

#[tokio::test]
async fn the_next_connection_meets_the_new_certificate() {
    let ca = Ca::new();
    let (_store, addr) = start(ca.files(), |_| {}).await;
    let friend = ca.leaf("friend", &["x"], 7);
    let client = Client::new(&ca, Some(&friend));
    let first = client.get(addr, "/health").await.unwrap().1;
    let renewed = ca.leaf("server", &["localhost"], 2);
    ca.install("server", &renewed);
    let second = client.get(addr, "/health").await.unwrap().1;
    assert_ne!(first, second);
    assert_eq!(second, shown(&renewed));
    // What cannot be used leaves the old one in place: a key that does not fit,
    // half a certificate, nothing at all.
    let other = ca.leaf("server", &["localhost"], 3);
    ca.write("server.key", &other.key);
    assert_eq!(client.get(addr, "/health").await.unwrap().1, second);
    ca.write("server.crt", &other.cert[..100]);
    assert_eq!(client.get(addr, "/health").await.unwrap().1, second);
    std::fs::remove_file(ca.path("server.crt")).unwrap();
    assert_eq!(client.get(addr, "/health").await.unwrap().1, second);
    // And is used once it is whole.
    ca.install("server", &other);
    assert_eq!(client.get(addr, "/health").await.unwrap().1, shown(&other));
}

#[tokio::test]
async fn a_new_authority_is_believed_and_the_old_one_no_more() {
    let (ca, next) = (Ca::new(), Ca::new());
    let (_store, addr) = start(ca.files(), |_| {}).await;
    let (old, new) = (ca.leaf("a", &["x"], 7), next.leaf("a", &["x"], 7));
    assert!(!Client::new(&ca, Some(&new)).admitted(addr).await);
    ca.write("ca.crt", &next.cert);
    assert!(Client::new(&ca, Some(&new)).admitted(addr).await);
    assert!(!Client::new(&ca, Some(&old)).admitted(addr).await);
}

#[tokio::test]
async fn a_revoked_certificate_is_not_believed() {
    let ca = Ca::new();
    let (pem, _) = ca.revoke(&[8]);
    let mut files = ca.files();
    files.crl_file = Some(ca.write("crl", pem));
    let (_store, addr) = start(files, |_| {}).await;
    let (seven, eight) = (ca.leaf("a", &["x"], 7), ca.leaf("a", &["x"], 8));
    let admitted = async |leaf| Client::new(&ca, Some(leaf)).admitted(addr).await;
    assert!(admitted(&seven).await);
    assert!(!admitted(&eight).await);
    // DER is read, too, and a change counts for the next connection.
    ca.write("crl", ca.revoke(&[7]).1);
    assert!(!admitted(&seven).await);
    assert!(admitted(&eight).await);
    ca.write("crl", ca.revoke(&[]).0);
    assert!(admitted(&seven).await);
    // Nobody knows who is revoked: nobody comes in.
    ca.write("crl", "nonsense");
    assert!(!admitted(&seven).await);
    std::fs::remove_file(ca.path("crl")).unwrap();
    assert!(!admitted(&eight).await);
    ca.write("crl", ca.revoke(&[7]).0);
    assert!(admitted(&eight).await && !admitted(&seven).await);
}

#[tokio::test]
async fn a_name_may_be_asked_for() {
    let ca = Ca::new();
    let host = ca.leaf("a", &["node.example.com"], 7);
    let wild = ca.leaf("a", &["*.example.com"], 8);
    let address = ca.leaf("b", &["10.1.2.3"], 9);
    let other = ca.leaf("a", &["node.example.org"], 10);
    let named = ca.leaf("node.example.com", &["x"], 11);
    let admitted = async |addr, leaf| Client::new(&ca, Some(leaf)).admitted(addr).await;
    let mut files = ca.files();
    files.allowed_hostnames = vec!["node.example.com".to_owned(), "10.1.2.3".to_owned()];
    let (_store, addr) = start(files.clone(), |_| {}).await;
    assert!(admitted(addr, &host).await);
    assert!(admitted(addr, &wild).await);
    assert!(admitted(addr, &address).await);
    assert!(!admitted(addr, &other).await);
    // The common name is no hostname.
    assert!(!admitted(addr, &named).await);
    files.allowed_hostnames = Vec::new();
    files.allowed_cns = vec!["a".to_owned()];
    let (_store, addr) = start(files, |_| {}).await;
    assert!(admitted(addr, &host).await);
    assert!(!admitted(addr, &address).await);
}

#[tokio::test]
async fn versions_and_suites_are_bounded() {
    static OLD: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];
    static NEW: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
    let ca = Ca::new();
    let friend = ca.leaf("a", &["x"], 7);
    let admitted = async |addr| {
        let with = |versions| Client {
            versions,
            ..Client::new(&ca, Some(&friend))
        };
        let (old, new) = (with(OLD), with(NEW));
        (old.admitted(addr).await, new.admitted(addr).await)
    };
    let (_store, addr) = start(ca.files(), |_| {}).await;
    assert_eq!(admitted(addr).await, (true, true));
    let min = |config: &mut Config| config.tls_rules.min = Some(TlsVersion::Tls13);
    let (_store, addr) = start(ca.files(), min).await;
    assert_eq!(admitted(addr).await, (false, true));
    let max = |config: &mut Config| config.tls_rules.max = Some(TlsVersion::Tls12);
    let (_store, addr) = start(ca.files(), max).await;
    assert_eq!(admitted(addr).await, (true, false));
    // The server's key is ECDSA, so that of suites for RSA none fits in TLS 1.2.
    let (_store, addr) = start(ca.files(), |config| {
        let suite = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned();
        config.tls_rules.cipher_suites = vec![suite];
    })
    .await;
    assert_eq!(admitted(addr).await, (false, true));
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_before_anything_is_made() {
    let ca = Ca::new();
    let refusal = async |change: &dyn Fn(&mut TlsFiles)| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new(dir.path().join("data"));
        config.listen_client_urls = vec!["https://127.0.0.1:0".to_owned()];
        let mut files = ca.files();
        change(&mut files);
        config.client_tls = Some(files);
        let error = Server::start(config).await.unwrap_err().to_string();
        assert!(!dir.path().join("data").exists(), "nothing was made");
        error
    };
    let nowhere = ca.path("nowhere");
    let garbage = ca.write("garbage", "nonsense");
    let other = ca.install("other", &ca.leaf("x", &["y"], 9)).1;
    let error = refusal(&|files| files.cert_file = nowhere.clone()).await;
    assert!(
        error.contains("client TLS") && error.contains("nowhere"),
        "{error}"
    );
    let error = refusal(&|files| files.key_file = other.clone()).await;
    assert!(error.contains("server.crt"), "{error}");
    let error = refusal(&|files| files.trusted_ca_file = Some(garbage.clone())).await;
    assert!(error.contains("garbage"), "{error}");
    let error = refusal(&|files| files.crl_file = Some(garbage.clone())).await;
    assert!(error.contains("garbage"), "{error}");
    let pair = Some((ca.path("server.crt"), other.clone()));
    let error = refusal(&|files| files.client_pair.clone_from(&pair)).await;
    assert!(error.contains("server.crt"), "{error}");
}

#[tokio::test]
async fn a_member_makes_its_own_certificates_once() {
    let ca = Ca::new();
    let mut store = Store::start_with(|config| {
        config.listen_client_urls = vec!["https://localhost:0".to_owned()];
        config.listen_peer_urls = vec!["https://127.0.0.1:0".to_owned()];
        config.auto_tls.client = true;
        config.auto_tls.peer = true;
    })
    .await;
    let fixture = |store: &Store, name| store.config.data_dir.join("fixtures").join(name);
    let cert = fixture(&store, "client/cert.pem");
    let made = der(&cert);
    let key = std::fs::metadata(fixture(&store, "client/key.pem")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&key.permissions());
    assert_eq!(mode & 0o777, 0o600, "the key is the owner's");
    assert_ne!(made, der(&fixture(&store, "peer/cert.pem")));
    // Nobody signed it but itself, so a stranger does not believe it.
    let addr = store.running().client_addr.unwrap();
    assert!(!Client::new(&ca, None).admitted(addr).await);
    store.restart().await;
    assert_eq!(der(&cert), made);
    std::fs::remove_file(&cert).unwrap();
    store.restart().await;
    assert_ne!(der(&cert), made, "what was removed is made anew");
}
