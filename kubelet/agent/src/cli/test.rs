//! Flags become options, and the server they describe refuses strangers.

use std::fs;

use clap::Parser as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

#[derive(clap::Parser)]
struct Program {
    #[command(flatten)]
    kubelet: KubeletArgs,
}

fn parse(args: &[&str]) -> KubeletArgs {
    let args = ["kubelet", "--root-dir", "/r"].iter().chain(args);
    Program::try_parse_from(args).unwrap().kubelet
}

fn options(args: &[&str]) -> AgentOptions {
    parse(args).options().unwrap()
}

#[test]
fn defaults_are_the_kubelets() {
    let defaults = options(&["--hostname-override", "N1"]);
    assert_eq!(
        (defaults.node_name.as_str(), defaults.port),
        ("n1", KUBELET_PORT)
    );
    assert_eq!(defaults.log_dir, Path::new("/r/logs"));
    let endpoint = ["--container-runtime-endpoint", "unix:///run/x.sock"];
    assert_eq!(
        options(&endpoint).container_runtime_endpoint,
        Path::new("/run/x.sock")
    );
    let maps = ["--image-map", "a=one two", "--image-map", "b=three"];
    assert_eq!(options(&maps).image_map.0.len(), 2);
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    for args in [
        ["--image-map", "a"],
        ["--runtime", "magic"],
        ["--tls-cert-file", "x"],
    ] {
        assert!(
            Program::try_parse_from(["kubelet"].iter().chain(&args)).is_err(),
            "{args:?}"
        );
    }
}

/// An authority with a certificate for `localhost`, all in PEM and DER.
struct Identity {
    authority: String,
    certificate: String,
    key: String,
}

fn identity() -> Identity {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    Identity {
        authority: authority.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    }
}

fn client(trusted: &Identity, own: Option<&Identity>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(trusted.authority.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            builder
                .with_client_auth_cert(vec![certificate], key)
                .unwrap()
        }
    }
}

/// Connects over a pipe; reports whether a byte comes back.
async fn is_served(server: Arc<rustls::ServerConfig>, client: ClientConfig) -> bool {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let serve = async {
        let mut stream = tokio_rustls::TlsAcceptor::from(server).accept(far).await?;
        stream.write_all(b"x").await?;
        stream.shutdown().await
    };
    let call = async {
        let name = ServerName::try_from("localhost").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
        let mut stream = connector.connect(name, near).await?;
        stream.read_u8().await
    };
    let (_served, called) = tokio::join!(serve, call);
    called.is_ok()
}

#[tokio::test]
async fn only_clients_of_the_named_authority_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let (own, stranger) = (identity(), identity());
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert, key, ca) = (
        write("c", &own.certificate),
        write("k", &own.key),
        write("a", &own.authority),
    );
    let args = [
        "--tls-cert-file",
        &cert,
        "--tls-private-key-file",
        &key,
        "--client-ca-file",
        &ca,
    ];
    // The file's authority counts, not the kubeconfig's.
    let other = stranger.authority.as_bytes();
    let server = parse(&args).server_tls("n1", Some(other)).unwrap();
    assert!(is_served(Arc::clone(&server), client(&own, Some(&own))).await);
    assert!(!is_served(Arc::clone(&server), client(&own, Some(&stranger))).await);
    assert!(!is_served(server, client(&own, None)).await);
    let swapped = ["--tls-cert-file", &key, "--tls-private-key-file", &cert];
    let tls = parse(&swapped).server_tls("n1", Some(other));
    assert!(matches!(tls, Err(AgentError::Tls(_))));
}

/// Without flags the server signs for itself and answers the clients of the
/// authority the kubeconfig names; without that either it does not start.
#[tokio::test]
async fn without_files_the_kubeconfigs_authority_decides() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().display().to_string();
    let (cluster, stranger) = (identity(), identity());
    let args = Program::try_parse_from(["kubelet", "--root-dir", &root]).unwrap();
    let ca = cluster.authority.as_bytes();
    let server = args.kubelet.server_tls("n1", Some(ca)).unwrap();
    // Whoever calls a kubelet that signs for itself trusts just that certificate.
    let signed = fs::read_to_string(dir.path().join("pki/kubelet.crt")).unwrap();
    let kubelet = Identity {
        authority: signed,
        ..identity()
    };
    assert!(is_served(Arc::clone(&server), client(&kubelet, Some(&cluster))).await);
    assert!(!is_served(Arc::clone(&server), client(&kubelet, Some(&stranger))).await);
    assert!(!is_served(server, client(&kubelet, None)).await);

    let refused = args.kubelet.server_tls("n1", None).unwrap_err();
    assert!(
        refused.to_string().contains("--client-ca-file"),
        "{refused}"
    );
}
