//! The transport over real sockets, with mutual TLS and HTTP/2.

use std::sync::Arc;

use client::config::User;
use client::{Client, Kubeconfig};
use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use k8s_openapi::api::core::v1::Namespace;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use client::testing::Fake;

struct Ca {
    pem: String,
    der: rustls_pki_types::CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

fn ca() -> Ca {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let cert = params.self_signed(&key).unwrap();
    Ca {
        pem: cert.pem(),
        der: cert.der().clone(),
        issuer: Issuer::new(params, key),
    }
}

fn signed(ca: &Ca, name: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, &ca.issuer).unwrap(), key)
}

/// Serves `fake` with TLS, demanding a certificate of `ca`; returns the address.
async fn serve(fake: Fake, ca: &Ca) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(ca.der.clone()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
    let (cert, key) = signed(ca, "localhost");
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (acceptor, fake) = (acceptor.clone(), fake.clone());
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else {
                    return;
                };
                let service = service_fn(move |request: Request<Incoming>| {
                    let fake = fake.clone();
                    async move {
                        assert_eq!(request.version(), http::Version::HTTP_2);
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        fake.answer(Request::from_parts(head, body.into())).await
                    }
                });
                let io = TokioIo::new(tls);
                // A client that refuses the server ends the connection with an error.
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(io, service)
                    .await;
            });
        }
    });
    address
}

#[tokio::test]
async fn kubeconfig_to_request_with_mutual_tls() {
    let (fake, ca) = (Fake::default(), ca());
    let server = serve(fake.clone(), &ca).await;
    let (cert, key) = signed(&ca, "admin");
    let user = User::certificate(cert.pem().as_bytes(), key.serialize_pem().as_bytes());
    let file = Kubeconfig::single("test", &server, ca.pem.as_bytes(), user);
    let config = Kubeconfig::parse(&file.to_yaml().unwrap())
        .unwrap()
        .client_config(None)
        .unwrap();
    let client = Client::from_config(&config).unwrap();
    let mut ns = Namespace::default();
    ns.metadata.name = Some("a".into());
    client.create(None, &ns).await.unwrap();
    assert_eq!(
        client
            .get::<Namespace>(None, "a")
            .await
            .unwrap()
            .metadata
            .name,
        ns.metadata.name
    );

    // Without a certificate the server refuses; with the wrong authority the client does.
    let nobody = Kubeconfig::single("test", &server, ca.pem.as_bytes(), User::default());
    let stranger = Kubeconfig::single("test", &server, self::ca().pem.as_bytes(), User::default());
    for file in [nobody, stranger] {
        let client = Client::from_config(&file.client_config(None).unwrap()).unwrap();
        let error = client.get::<Namespace>(None, "a").await.unwrap_err();
        assert!(matches!(error, client::Error::Transport(_)), "{error}");
    }
}
