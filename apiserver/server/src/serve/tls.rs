//! TLS: what the server shows, and whom it believes.
//!
//! A client certificate is optional, and a bad one does not fail the
//! handshake: HTTP must be able to answer 401 (a client that only sees a TLS
//! alert cannot tell a wrong credential from a broken network). So the
//! handshake checks that the peer *holds* the key of the certificate it shows,
//! and [`ClientTrust::identify`] then checks, once per connection, whether that
//! certificate is one we trust. Nothing but that verdict reaches
//! authentication. A certificate that cannot be read (X.509 v1, or garbage)
//! passes the handshake without that proof, and [`ClientTrust::identify`]
//! refuses it by the same test.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::authn::{Peer, UserInfo};
use crate::pki::{Facts, Identity};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM text holds no certificate or key.
    #[error("{what}: {reason}")]
    Pem {
        /// Which text.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate and key do not fit, or cannot be used.
    #[error("TLS configuration: {0}")]
    Config(#[from] rustls::Error),
    /// The authorities cannot be used.
    #[error("CA: {0}")]
    Authorities(#[from] rustls::server::VerifierBuilderError),
}

/// The authorities whose client certificates are believed.
#[derive(Clone, Debug)]
pub struct ClientTrust {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientTrust {
    /// Creates the trust in every authority of these PEM texts.
    pub fn new(ca_pems: &[String]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for pem in ca_pems {
            for cert in certificates("client CA", pem)? {
                roots.add(cert)?;
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { verifier })
    }

    /// Decides who is at the other end, from the certificates it proved to
    /// hold.
    pub fn identify(&self, chain: Option<&[CertificateDer<'_>]>) -> Peer {
        let Some((leaf, intermediates)) = chain.and_then(<[_]>::split_first) else {
            return Peer::Anonymous;
        };
        // Of these the handshake took no proof: see `ProofOnly`.
        if !is_readable(leaf) {
            tracing::debug!("client certificate cannot be read");
            return Peer::BadCertificate;
        }
        if let Err(e) = self
            .verifier
            .verify_client_cert(leaf, intermediates, UnixTime::now())
        {
            tracing::debug!(error = %e, "client certificate refused");
            return Peer::BadCertificate;
        }
        match Facts::of_der(leaf) {
            Some(facts) if !facts.common_name.is_empty() => Peer::Certificate {
                user: UserInfo::new(facts.common_name, facts.organizations),
                not_after: facts.not_after,
            },
            _ => Peer::BadCertificate,
        }
    }
}

/// Builds the server's TLS configuration; offers HTTP/2 before HTTP/1.1.
pub fn server_config(
    identity: &Identity,
    trust: &ClientTrust,
) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let chain = certificates("serving certificate", &identity.cert_pem)?;
    let key =
        PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(|e| TlsError::Pem {
            what: "serving key",
            reason: e.to_string(),
        })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(ProofOnly(trust.verifier.clone())))
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Builds the TLS configuration of a server that lets in only the holders of a
/// certificate of one authority: kubelets.
pub fn mutual_config(
    identity: &Identity,
    ca_pem: &str,
) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let trust = ClientTrust::new(&[ca_pem.to_owned()])?;
    let chain = certificates("serving certificate", &identity.cert_pem)?;
    let key =
        PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(|e| TlsError::Pem {
            what: "serving key",
            reason: e.to_string(),
        })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(trust.verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Which serving certificates of kubelets are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletTrust {
    /// Those of the authority, and self-signed ones, as a kubelet makes itself
    /// when it is given none. (kube-apiserver believes any certificate unless
    /// `--kubelet-certificate-authority` is given.)
    SelfSignedToo,
    /// Those of the authority only.
    AuthorityOnly,
    /// All of them, for who asks for a log and does not mind whose it is.
    Anybody,
}

/// Builds the TLS configuration of a client with a certificate: the server
/// towards kubelets.
pub fn kubelet_config(
    ca_pem: &str,
    trust: KubeletTrust,
    identity: &Identity,
) -> Result<rustls::ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    for cert in certificates("kubelet CA", ca_pem)? {
        roots.add(cert)?;
    }
    let chain = certificates("client certificate", &identity.cert_pem)?;
    let key =
        PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(|e| TlsError::Pem {
            what: "client key",
            reason: e.to_string(),
        })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = KubeletVerifier {
        authority: WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()?,
        trust,
    };
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(chain, key)?)
}

/// Verifies kubelets: by the authority first. That the peer holds the key of
/// its certificate is verified in any case.
#[derive(Debug)]
struct KubeletVerifier {
    authority: Arc<WebPkiServerVerifier>,
    trust: KubeletTrust,
}

impl ServerCertVerifier for KubeletVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let result = self.authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let self_signed = || Facts::of_der(end_entity).is_some_and(|f| f.subject == f.issuer);
        match result {
            Err(_) if self.trust == KubeletTrust::Anybody => Ok(ServerCertVerified::assertion()),
            Err(_) if self.trust == KubeletTrust::SelfSignedToo && self_signed() => {
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority.supported_verify_schemes()
    }
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |reason: String| TlsError::Pem { what, reason };
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| bad(e.to_string()))?;
    if found.is_empty() {
        return Err(bad("no certificate found".to_owned()));
    }
    Ok(found)
}

/// Tells whether the verifier can read a certificate at all: it knows X.509 v3
/// only (RFC 5280), as most of the web does.
fn is_readable(cert: &CertificateDer<'_>) -> bool {
    ParsedCertificate::try_from(cert).is_ok()
}

/// Verifies that the peer holds the key of its certificate, and leaves the
/// question whether to trust that certificate to [`ClientTrust::identify`].
///
/// Signatures are checked by rustls's own verifier, unchanged, except those of
/// certificates it cannot read: these pass, for nobody believes them later.
#[derive(Debug)]
struct ProofOnly(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ProofOnly {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Hints the trusted authorities, so that a client with several
    /// certificates picks the right one.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !is_readable(cert) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !is_readable(cert) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
