//! Whose certificate is believed, beyond that a trusted authority signed it.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::{danger::HandshakeSignatureValid, verify_server_name},
    server::{
        ParsedCertificate,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// How long finding the addresses of a host in a certificate may take. A peer whose
/// name is not found by then is refused.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Verifies clients' certificates.
#[derive(Debug)]
pub(super) struct Verifier {
    /// Checks signatures, times and purpose.
    pub(super) inner: Arc<dyn ClientCertVerifier>,
    /// Serial numbers that are not believed.
    pub(super) revoked: BTreeSet<Vec<u8>>,
    /// Anybody, if both of these are empty.
    pub(super) allowed_cns: Vec<String>,
    pub(super) allowed_hostnames: Vec<String>,
}

impl Verifier {
    /// Checks that no certificate shown is revoked (etcd: transport, checkCRL).
    fn check_revoked(&self, shown: &[&CertificateDer<'_>]) -> Result<(), Error> {
        if self.revoked.is_empty() {
            return Ok(());
        }
        for certificate in shown {
            let parsed = parse(certificate).ok_or(CertificateError::BadEncoding)?;
            if self.revoked.contains(&parsed.serial.to_bytes_be()) {
                return Err(CertificateError::Revoked.into());
            }
        }
        Ok(())
    }

    /// Checks the name in the certificate (etcd: transport, VerifyPeerCertificate).
    fn check_name(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        if self.allowed_cns.is_empty() && self.allowed_hostnames.is_empty() {
            return Ok(());
        }
        let by_cn = common_name(leaf).is_some_and(|name| self.allowed_cns.contains(&name));
        let parsed = ParsedCertificate::try_from(leaf)?;
        let by_host = self.allowed_hostnames.iter().any(|host| {
            ServerName::try_from(host.as_str())
                .is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
        });
        match by_cn || by_host {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .inner
            .verify_client_cert(end_entity, intermediates, now)?;
        let shown: Vec<_> = std::iter::once(end_entity).chain(intermediates).collect();
        self.check_revoked(&shown)?;
        self.check_name(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der)
        .ok()
        .map(|(_, parsed)| parsed)
}

/// Returns the subject's common name.
pub(super) fn common_name(der: &[u8]) -> Option<String> {
    let parsed = parse(der)?;
    // Of several the last counts, as in Go.
    let name = parsed.subject().iter_common_name().last()?;
    name.as_str().ok().map(str::to_owned)
}

/// Checks that a certificate is for the address its owner comes from (etcd:
/// transport, checkCertSAN). One that names neither addresses nor hosts may come
/// from anywhere. A host is looked up; a pattern such as `*.example.com` cannot be.
pub(super) async fn address(der: &[u8], address: IpAddr) -> Result<(), String> {
    let Some((addresses, hosts)) = names(der) else {
        return Err("the certificate cannot be read".to_owned());
    };
    if addresses.is_empty() && hosts.is_empty() || addresses.contains(&address) {
        return Ok(());
    }
    for host in hosts.iter().filter(|host| !host.starts_with("*.")) {
        let found = tokio::net::lookup_host((host.as_str(), 0));
        if let Ok(Ok(mut found)) = tokio::time::timeout(LOOKUP_TIMEOUT, found).await
            && found.any(|found| found.ip().to_canonical() == address)
        {
            return Ok(());
        }
    }
    Err(format!(
        "tls: \"{address}\" does not match any of DNSNames {hosts:?} or addresses {addresses:?}"
    ))
}

/// Returns the addresses and the hosts that a certificate is for.
fn names(der: &[u8]) -> Option<(Vec<IpAddr>, Vec<String>)> {
    let parsed = parse(der)?;
    let (mut addresses, mut hosts) = (Vec::new(), Vec::new());
    let names = parsed.subject_alternative_name().ok()?;
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::DNSName(host) => hosts.push((*host).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
                addresses.extend(v4.or(v6).ok());
            }
            _ => {}
        }
    }
    Some((addresses, hosts))
}
