//! From PEM files to a rustls configuration.

use std::{collections::BTreeSet, fmt::Display, fs, path::Path, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::prelude::{CertificateRevocationList, FromDer as _};

use super::{suites, verify::Verifier};
use crate::config::{TlsFiles, TlsRules};

/// Why files cannot be used.
#[derive(Debug)]
pub(super) struct Unusable {
    pub(super) text: String,
    /// Whether it is the list of revoked certificates.
    pub(super) crl: bool,
}

impl From<String> for Unusable {
    fn from(text: String) -> Self {
        Self { text, crl: false }
    }
}

/// Makes a configuration. With a trusted CA, a client must show a certificate of it.
pub(super) fn server_config(
    files: &TlsFiles,
    rules: &TlsRules,
) -> Result<Arc<ServerConfig>, Unusable> {
    let revoked = match &files.crl_file {
        None => BTreeSet::new(),
        Some(path) => revoked(path).map_err(|text| Unusable { text, crl: true })?,
    };
    let provider = suites::provider(rules)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&suites::versions(rules))
        .map_err(|error| error.to_string())?;
    let builder = match &files.trusted_ca_file {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                let added = roots.add(certificate);
                added.map_err(|error| failed(path, &error))?;
            }
            let inner = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| failed(path, &error))?;
            builder.with_client_cert_verifier(Arc::new(Verifier {
                inner,
                revoked,
                allowed_cns: files.allowed_cns.clone(),
                allowed_hostnames: files.allowed_hostnames.clone(),
            }))
        }
    };
    let key = key(&files.key_file)?;
    let mut config = builder
        .with_single_cert(certificates(&files.cert_file)?, key)
        .map_err(|error| failed(&files.cert_file, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if files.trusted_ca_file.is_some() {
        // A resumed session is not verified again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// Checks that a certificate and its key can be used.
pub(super) fn check_pair(cert: &Path, key_file: &Path) -> Result<(), String> {
    let provider = rustls::crypto::ring::default_provider();
    let signer = provider
        .key_provider
        .load_private_key(key(key_file)?)
        .map_err(|error| failed(key_file, &error))?;
    rustls::sign::CertifiedKey::new(certificates(cert)?, signer)
        .keys_match()
        .map_err(|error| failed(cert, &error))
}

pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| failed(path, &error))
}

pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| failed(path, &error))?;
    let found: Result<Vec<_>, _> = found.collect();
    let found = found.map_err(|error| failed(path, &error))?;
    if found.is_empty() {
        return Err(failed(path, &"no certificate in it"));
    }
    Ok(found)
}

/// Reads the serial numbers of revoked certificates, from PEM or DER. As in etcd,
/// who issued the list is not asked.
fn revoked(path: &Path) -> Result<BTreeSet<Vec<u8>>, String> {
    let bytes = fs::read(path).map_err(|error| failed(path, &error))?;
    let lists = match bytes.starts_with(b"-----") {
        false => vec![bytes],
        true => {
            let found = rustls_pki_types::CertificateRevocationListDer::pem_slice_iter(&bytes)
                .map(|list| list.map(|list| list.as_ref().to_vec()))
                .collect::<Result<Vec<_>, _>>();
            found.map_err(|error| failed(path, &error))?
        }
    };
    if lists.is_empty() {
        return Err(failed(path, &"no list of revoked certificates in it"));
    }
    let mut serials = BTreeSet::new();
    for list in &lists {
        let (_, list) = CertificateRevocationList::from_der(list)
            .map_err(|error| failed(path, &format!("no list of revoked certificates: {error}")))?;
        let revoked = list.iter_revoked_certificates();
        serials.extend(revoked.map(|entry| entry.user_certificate.to_bytes_be()));
    }
    Ok(serials)
}

pub(super) fn failed(path: &Path, error: &dyn Display) -> String {
    format!("{}: {error}", path.display())
}
