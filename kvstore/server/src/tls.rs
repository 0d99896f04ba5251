//! TLS of the client listener, from PEM files as etcd's flags name them.

use std::{path::Path, sync::Arc};

use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::TlsAcceptor;

use crate::config::{ClientTls, StartError};

/// Makes an acceptor. With a trusted CA, a client must show a certificate of it.
pub(crate) fn acceptor(tls: &ClientTls) -> Result<TlsAcceptor, StartError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| StartError::Tls(error.to_string()))?;
    let builder = match &tls.trusted_ca_file {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|error| failed(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder
                .with_client_cert_verifier(verifier.build().map_err(|error| failed(path, &error))?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&tls.key_file)
        .map_err(|error| failed(&tls.key_file, &error))?;
    let mut config = builder
        .with_single_cert(certificates(&tls.cert_file)?, key)
        .map_err(|error| failed(&tls.cert_file, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| failed(path, &error))?;
    let found: Result<Vec<_>, _> = found.collect();
    let found = found.map_err(|error| failed(path, &error))?;
    if found.is_empty() {
        return Err(failed(path, &"no certificate in it"));
    }
    Ok(found)
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> StartError {
    StartError::Tls(format!("{}: {error}", path.display()))
}
