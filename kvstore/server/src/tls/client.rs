//! The other end of a handshake: what this member shows when it dials another, and
//! whom it believes.
//!
//! As etcd's (client/pkg/transport, TLSInfo.ClientConfig): it shows the client pair
//! if there is one, else the listener's own certificate; it believes what the trusted
//! CA signed for the host it dials, or, without a CA, what the system's do. Members
//! that made their certificates themselves believe anything.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::{
    Side, Stamp,
    load::{self, certificates, failed, key},
    suites,
};
use crate::config::{StartError, TlsFiles, TlsRules};

/// Where systems keep the authorities they believe (Go: crypto/x509, root_linux.go).
const SYSTEM_ROOTS: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Whom a member believes when it dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Whoever shows a certificate for the host that is dialled.
    Authorities,
    /// Anybody: certificates are made by the members themselves.
    Anybody,
}

struct State {
    stamps: Vec<Stamp>,
    config: Arc<ClientConfig>,
}

/// What a member shows and believes when it dials, kept up to date with its files.
pub(crate) struct ClientTls {
    side: Side,
    files: Option<TlsFiles>,
    rules: TlsRules,
    trust: Trust,
    watched: Vec<PathBuf>,
    state: Mutex<State>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("side", &self.side)
            .field("files", &self.files)
            .field("trust", &self.trust)
            .finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads the files for the first time; they must be usable. Without files nothing
    /// is shown, and the system says who is believed.
    pub(crate) fn open(
        side: Side,
        files: Option<TlsFiles>,
        rules: TlsRules,
        trust: Trust,
    ) -> Result<Self, StartError> {
        let mut watched = Vec::new();
        if let Some(files) = &files {
            let (cert, key) = shown(files);
            watched = vec![cert.to_owned(), key.to_owned()];
            watched.extend(files.trusted_ca_file.clone());
        }
        let stamps = watched.iter().map(|path| Stamp::of(path)).collect();
        let config =
            client_config(files.as_ref(), &rules, trust).map_err(|reason| StartError::Tls {
                what: side.name(),
                reason,
            })?;
        Ok(Self {
            side,
            files,
            rules,
            trust,
            watched,
            state: Mutex::new(State { stamps, config }),
        })
    }

    /// Returns what the next handshake should use. New files that cannot be used
    /// leave the old ones in place.
    pub(crate) fn current(&self) -> Arc<ClientConfig> {
        // Each change to it is one assignment; a panic leaves none half done.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps: Vec<Stamp> = self.watched.iter().map(|path| Stamp::of(path)).collect();
        if stamps != state.stamps {
            state.stamps = stamps;
            let side = self.side.name();
            match client_config(self.files.as_ref(), &self.rules, self.trust) {
                Ok(config) => {
                    tracing::info!(side, "certificates to dial with were read again");
                    state.config = config;
                }
                Err(reason) => {
                    tracing::warn!(side, %reason, "certificates to dial with cannot be read");
                }
            }
        }
        Arc::clone(&state.config)
    }
}

/// Returns the files of the certificate that is shown, and of its key.
fn shown(files: &TlsFiles) -> (&Path, &Path) {
    match &files.client_pair {
        Some((cert, key)) => (cert, key),
        None => (&files.cert_file, &files.key_file),
    }
}

fn client_config(
    files: Option<&TlsFiles>,
    rules: &TlsRules,
    trust: Trust,
) -> Result<Arc<ClientConfig>, String> {
    let provider = suites::provider(rules)?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&suites::versions(rules))
        .map_err(|error| error.to_string())?;
    let builder = match trust {
        Trust::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Believer(provider))),
        Trust::Authorities => {
            let ca = files.and_then(|files| files.trusted_ca_file.as_deref());
            builder.with_root_certificates(roots(ca)?)
        }
    };
    let mut config = match files {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let (cert, key_file) = shown(files);
            load::check_pair(cert, key_file)?;
            builder
                .with_client_auth_cert(certificates(cert)?, key(key_file)?)
                .map_err(|error| failed(cert, &error))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would go on with certificates that have changed since.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Reads the authorities that are believed.
fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|error| failed(path, &error))?;
            }
        }
        None => {
            let found = SYSTEM_ROOTS.iter().find_map(|path| {
                let found = certificates(Path::new(path));
                found.ok()
            });
            // A system without any believes nobody; the first handshake says so.
            roots.add_parsable_certificates(found.unwrap_or_default());
        }
    }
    Ok(roots)
}

/// Believes every certificate, and only checks that whoever shows it has its key.
#[derive(Debug)]
struct Believer(Arc<CryptoProvider>);

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
