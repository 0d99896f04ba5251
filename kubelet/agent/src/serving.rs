//! The identity of the kubelet's server, and whom it answers.
//!
//! There is no plain server: who cannot present a certificate of the client
//! authority is refused in the handshake. The identity comes from files, or is
//! made here and signed by itself, as upstream's kubelet does without
//! `--tls-cert-file`. An API server told to check kubelets' certificates needs
//! the former.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::error::AgentError;
use crate::runtime::now;

/// How long a self-signed certificate is valid, in days (upstream: a year).
const VALID_DAYS: i64 = 365;
/// A self-signed certificate with fewer days left is made anew at the next start.
const RENEW_BEFORE_DAYS: i64 = 30;
/// The names upstream's kubelet gives its own pair.
const FILES: (&str, &str) = ("kubelet.crt", "kubelet.key");

/// A certificate chain with its key.
#[derive(Debug)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn bad(path: &Path, error: &dyn std::fmt::Display) -> AgentError {
    AgentError::Tls(format!("{}: {error}", path.display()))
}

fn issue(error: rcgen::Error) -> AgentError {
    AgentError::Tls(format!("cannot make a serving certificate: {error}"))
}

impl Identity {
    /// Reads an identity from PEM files.
    pub fn from_files(cert: &Path, key: &Path) -> Result<Self, AgentError> {
        let chain = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| bad(cert, &e))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|e| bad(key, &e))?;
        Ok(Identity { chain, key })
    }

    /// Returns the self-signed identity kept in a directory, made when there is
    /// none for these names and addresses that is good for a while.
    pub fn self_signed(dir: &Path, names: &[String]) -> Result<Self, AgentError> {
        let (cert_path, key_path) = (dir.join(FILES.0), dir.join(FILES.1));
        if let Ok(kept) = Identity::from_files(&cert_path, &key_path)
            && kept.chain.first().is_some_and(|c| is_good(c, names))
            && kept.is_pair()
        {
            return Ok(kept);
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(AgentError::file(dir))?;
        let (cert, key) = make(names)?;
        write(&key_path, &key, 0o600)?;
        write(&cert_path, &cert, 0o644)?;
        Identity::from_files(&cert_path, &key_path)
    }

    /// Reports whether the key is the certificate's.
    fn is_pair(&self) -> bool {
        let key = rustls::crypto::ring::sign::any_supported_type(&self.key);
        key.is_ok_and(|key| {
            let pair = rustls::sign::CertifiedKey::new(self.chain.clone(), key);
            pair.keys_match().is_ok()
        })
    }
}

/// Makes the server's configuration: only clients with a certificate of the
/// authorities in `client_ca` (PEM) are answered. `origin` names it in errors.
pub fn server_config(
    identity: Identity,
    client_ca: &[u8],
    origin: &Path,
) -> Result<Arc<ServerConfig>, AgentError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(client_ca) {
        let certificate = certificate.map_err(|e| bad(origin, &e))?;
        roots.add(certificate).map_err(|e| bad(origin, &e))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // Fails if there is no authority at all.
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|e| bad(origin, &e))?;
    let tls = |error: rustls::Error| AgentError::Tls(error.to_string());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(tls)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain, identity.key)
        .map(Arc::new)
        .map_err(tls)
}

/// Makes a certificate for names and addresses, and its key, both PEM.
fn make(names: &[String]) -> Result<(String, String), AgentError> {
    let mut params = CertificateParams::new(names.to_vec()).map_err(issue)?;
    let subject = names.first().cloned().unwrap_or_default();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("system:node:{subject}"));
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let today = now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let date = |days: i64| {
        let d = today.saturating_add(jiff::Span::new().days(days));
        // A civil month and day are always in 1..=31.
        let (month, day) = (d.month().unsigned_abs(), d.day().unsigned_abs());
        date_time_ymd(i32::from(d.year()), month, day)
    };
    // From yesterday on: clocks differ.
    (params.not_before, params.not_after) = (date(-1), date(VALID_DAYS));
    let key = KeyPair::generate().map_err(issue)?;
    let cert = params.self_signed(&key).map_err(issue)?;
    Ok((cert.pem(), key.serialize_pem()))
}

/// Reports whether a certificate is for these names and valid for a while.
fn is_good(certificate: &CertificateDer<'_>, names: &[String]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    let left = certificate.validity().not_after.timestamp() - now().as_second();
    let Ok(Some(found)) = certificate.subject_alternative_name() else {
        return false;
    };
    let found: Vec<String> = found
        .value
        .general_names
        .iter()
        .filter_map(name_text)
        .collect();
    left >= RENEW_BEFORE_DAYS * 24 * 3600 && names.iter().all(|name| found.contains(name))
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let ip = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            ip.ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

/// Writes a file beside its place and renames it.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), AgentError> {
    let staging = path.with_extension("new");
    let written = fs::remove_file(&staging)
        .or_else(crate::container_dir::missing_is_fine)
        .and_then(|()| {
            let mut options = OpenOptions::new();
            options.create_new(true).write(true).mode(mode);
            let mut file = options.open(&staging)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&staging, path)
        });
    written.map_err(AgentError::file(path))
}

#[cfg(test)]
mod test {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_self_signed_identity_is_kept_until_it_no_longer_fits() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("pki");
        let names = |more: &str| ["n1", "10.0.0.1", "fd00::1", more].map(str::to_owned);
        let first = Identity::self_signed(&dir, &names("localhost")).unwrap();
        let again = Identity::self_signed(&dir, &names("localhost")).unwrap();
        assert_eq!(first.chain, again.chain);
        let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(FILES.1), 0o600);

        let other = Identity::self_signed(&dir, &names("n2")).unwrap();
        assert_ne!(other.chain, first.chain, "a new name");
        let key = KeyPair::generate().unwrap().serialize_pem();
        write(&dir.join(FILES.1), &key, 0o600).unwrap();
        let third = Identity::self_signed(&dir, &names("n2")).unwrap();
        assert_ne!(third.chain, other.chain, "another key");
        assert!(third.is_pair());
    }

    #[test]
    fn without_an_authority_there_is_no_server() {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::self_signed(dir.path(), &["n1".to_owned()]).unwrap();
        let error = server_config(identity, b"", Path::new("ca.crt")).unwrap_err();
        assert!(error.to_string().contains("ca.crt"), "{error}");
    }
}
