//! Who somebody is, proved by a signature: of a token, or of a certificate.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use kvserver::{AuthToken, Config, JwtOptions, Server, StartError, TlsFiles};
use proto::etcdserverpb as pb;

use crate::{
    auth_who::{Client, DENIED, EMPTY, INVALID, cheap, furnish, says},
    store::{DEADLINE, Store, put, range},
};

const OLD: (i32, &str) = (3, "etcdserver: revision of auth store is old");

/// Keys for tests, as `openssl genrsa` and `openssl rsa -pubout` write them.
const RSA_PRIVATE: &str = include_str!("keys/rsa.pem");
const RSA_PUBLIC: &str = include_str!("keys/rsa.pub.pem");
const RSA_OTHER_PUBLIC: &str = include_str!("keys/other.pub.pem");

fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn jwt(method: &str, private: Option<PathBuf>, public: Option<PathBuf>) -> JwtOptions {
    JwtOptions {
        sign_method: method.to_owned(),
        public_key: public,
        private_key: private,
        ttl: Duration::from_secs(300),
    }
}

fn with(options: JwtOptions) -> impl FnOnce(&mut Config) {
    |config| {
        cheap(config);
        config.auth_token = AuthToken::Jwt(options);
    }
}

#[tokio::test]
async fn tokens_are_signed_in_every_way() {
    let dir = tempfile::tempdir().unwrap();
    let pair = |algorithm| {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        (key.serialize_pem(), Some(key.public_key_pem()))
    };
    let rsa = || (RSA_PRIVATE.to_owned(), Some(RSA_PUBLIC.to_owned()));
    let ways = [
        ("RS256", rsa()),
        ("RS512", rsa()),
        ("PS384", rsa()),
        ("ES256", pair(&rcgen::PKCS_ECDSA_P256_SHA256)),
        ("ES384", pair(&rcgen::PKCS_ECDSA_P384_SHA384)),
        ("EdDSA", pair(&rcgen::PKCS_ED25519)),
        (
            "HS256",
            ("a secret of more than thirty-two bytes".to_owned(), None),
        ),
    ];
    for (method, (private, public)) in ways {
        let private = file(dir.path(), &format!("{method}.pem"), &private);
        let public = public.map(|text| file(dir.path(), &format!("{method}.pub"), &text));
        // The public key may be given, or is made of the private.
        for public in [public.clone(), None] {
            let options = jwt(method, Some(private.clone()), public);
            let store = Store::start_with(with(options)).await;
            let nobody = Client::nobody(&store).await;
            furnish(&nobody).await;
            let token = nobody.token("ann", "ap").await.unwrap();
            assert_eq!(token.split('.').count(), 3, "{method}");
            let ann = nobody.with(&token);
            ann.kv().put(put("a", "1")).await.unwrap();
            ann.kv().range(range("a", "")).await.unwrap();
            says(ann.kv().put(put("b", "1")).await, DENIED);
            // The signature is over all of it.
            let (said, signature) = token.rsplit_once('.').unwrap();
            let (head, claims) = said.split_once('.').unwrap();
            for forged in [
                format!("{head}.{claims}."),
                format!("{head}.{}.{signature}", claims.replace('e', "f")),
                format!("eyJhbGciOiJub25lIn0.{claims}."),
                "a.b.c".to_owned(),
            ] {
                says(nobody.with(&forged).kv().put(put("a", "1")).await, INVALID);
            }
            says(nobody.kv().put(put("a", "1")).await, EMPTY);
        }
    }
}

#[tokio::test]
async fn a_signed_token_grows_old_with_every_change() {
    let dir = tempfile::tempdir().unwrap();
    let secret = file(dir.path(), "secret", "the secret");
    let store = Store::start_with(with(jwt("HS512", Some(secret), None))).await;
    let nobody = Client::nobody(&store).await;
    furnish(&nobody).await;
    let ann = nobody.login("ann", "ap").await;
    let root = nobody.login("root", "rp").await;
    ann.kv().put(put("a", "1")).await.unwrap();
    root.role("other", &[]).await;
    says(ann.kv().put(put("a", "2")).await, OLD);
    says(ann.kv().range(range("a", "")).await, OLD);
    // Administration asks for who root is now.
    root.role("third", &[]).await;
    let ann = nobody.login("ann", "ap").await;
    ann.kv().put(put("a", "3")).await.unwrap();
}

#[tokio::test]
async fn a_signed_token_ends() {
    let dir = tempfile::tempdir().unwrap();
    let secret = file(dir.path(), "secret", "the secret");
    let options = JwtOptions {
        ttl: Duration::from_secs(1),
        ..jwt("HS256", Some(secret), None)
    };
    let store = Store::start_with(with(options)).await;
    let nobody = Client::nobody(&store).await;
    furnish(&nobody).await;
    let ann = nobody.login("ann", "ap").await;
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while ann.kv().range(range("a", "")).await.is_ok() {
        assert!(tokio::time::Instant::now() < deadline, "it never ends");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    says(ann.kv().range(range("a", "")).await, INVALID);
}

#[tokio::test]
async fn a_public_key_alone_checks_only() {
    let dir = tempfile::tempdir().unwrap();
    let public = file(dir.path(), "rsa.pub", RSA_PUBLIC);
    let private = file(dir.path(), "rsa.pem", RSA_PRIVATE);
    let store = Store::start_with(with(jwt("RS256", None, Some(public)))).await;
    let nobody = Client::nobody(&store).await;
    furnish(&nobody).await;
    let refused = nobody.token("ann", "ap").await;
    says(
        refused,
        (2, "auth: token signing attempted with verify-only key"),
    );
    // Somebody else signs: a store with the private key, and as many changes.
    let signer = Store::start_with(with(jwt("RS256", Some(private), None))).await;
    let there = Client::nobody(&signer).await;
    furnish(&there).await;
    let token = there.token("ann", "ap").await.unwrap();
    nobody.with(&token).kv().put(put("a", "1")).await.unwrap();
}

#[tokio::test]
async fn keys_that_cannot_be_used_stop_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let private = file(dir.path(), "rsa.pem", RSA_PRIVATE);
    let other = file(dir.path(), "other.pub", RSA_OTHER_PUBLIC);
    let nothing = dir.path().join("nothing");
    for (options, said) in [
        (jwt("", Some(private.clone()), None), "sign-method"),
        (jwt("none", Some(private.clone()), None), "sign-method"),
        (jwt("RS256", None, None), "missing key data"),
        (jwt("HS256", None, Some(other.clone())), "missing key data"),
        (jwt("RS256", Some(nothing), None), "nothing"),
        (jwt("RS256", Some(other.clone()), None), "priv-key"),
        (jwt("RS256", Some(private), Some(other)), "don't match"),
    ] {
        let mut config = Config::new(dir.path().join("data"));
        config.auth_token = AuthToken::Jwt(options);
        match Server::start(config).await {
            Err(StartError::Flag { flag, reason }) => {
                assert_eq!(flag, "auth-token");
                assert!(reason.contains(said), "{reason}");
            }
            started => panic!("{said}: {started:?}"),
        }
    }
    assert!(!dir.path().join("data").exists(), "nothing was made");
}

#[tokio::test]
async fn a_certificate_names_its_user() {
    let dir = tempfile::tempdir().unwrap();
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_cert = ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let make = |common_name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut cert = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let name = rcgen::DnType::CommonName;
        cert.distinguished_name.push(name, common_name);
        let cert = cert.signed_by(&key, &issuer).unwrap();
        (cert.pem(), key.serialize_pem())
    };
    let (server_cert, server_key) = make("server");
    let files = TlsFiles {
        cert_file: file(dir.path(), "server.crt", &server_cert),
        key_file: file(dir.path(), "server.key", &server_key),
        trusted_ca_file: Some(file(dir.path(), "ca.crt", &ca_cert.pem())),
        ..TlsFiles::default()
    };
    for by_name in [true, false] {
        let files = files.clone();
        let store = Store::start_with(|config| {
            cheap(config);
            config.listen_client_urls = vec!["https://127.0.0.1:0".to_owned()];
            config.client_tls = Some(files);
            config.client_cert_auth = by_name;
        })
        .await;
        let port = store.running().client_addr.unwrap().port();
        let ca = ca_cert.pem();
        let connect = async |common_name: &str| {
            let (cert, key) = make(common_name);
            let tls = tonic::transport::ClientTlsConfig::new()
                .ca_certificate(tonic::transport::Certificate::from_pem(&ca))
                .domain_name("localhost")
                .identity(tonic::transport::Identity::from_pem(cert, key));
            let url = format!("https://localhost:{port}");
            let endpoint = tonic::transport::Channel::from_shared(url).unwrap();
            let channel = endpoint.tls_config(tls).unwrap().connect().await;
            Client::over(channel.unwrap())
        };
        let (ann, ghost) = (connect("ann").await, connect("ghost").await);
        furnish(&ghost).await;
        if !by_name {
            says(ann.kv().put(put("a", "1")).await, EMPTY);
            continue;
        }
        ann.kv().put(put("a", "1")).await.unwrap();
        says(ann.kv().put(put("b", "1")).await, DENIED);
        says(ghost.kv().put(put("a", "1")).await, DENIED);
        let off = ghost.auth().auth_disable(pb::AuthDisableRequest {}).await;
        says(off, (9, "etcdserver: user name not found"));
        // A token says more than the certificate it comes with.
        let root = ann.login("root", "rp").await;
        root.kv().put(put("b", "1")).await.unwrap();
        says(ann.with("x.1").kv().put(put("a", "1")).await, INVALID);
    }
}
