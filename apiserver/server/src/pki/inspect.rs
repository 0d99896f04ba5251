//! What a certificate says, read back.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The facts decisions are made on.
pub(crate) struct Facts {
    /// The subject's common name: the user.
    pub(crate) common_name: String,
    /// The subject's organizations: the groups.
    pub(crate) organizations: Vec<String>,
    /// The subject, DER.
    pub(crate) subject: Vec<u8>,
    /// The issuer, DER.
    pub(crate) issuer: Vec<u8>,
    /// The public key's bits.
    pub(crate) public_key: Vec<u8>,
    /// The alternative names, addresses in text form.
    pub(crate) names: Vec<String>,
    /// When it ceases to be valid, in Unix seconds.
    pub(crate) not_after: i64,
}

impl Facts {
    /// Reads the first certificate of a PEM text.
    pub(crate) fn of_pem(pem: &str) -> Option<Self> {
        Self::of_der(&CertificateDer::from_pem_slice(pem.as_bytes()).ok()?)
    }

    /// Reads a certificate.
    pub(crate) fn of_der(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, cert) = X509Certificate::from_der(der).ok()?;
        let subject = cert.subject();
        let text = |a: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            a.as_str().unwrap_or_default().to_owned()
        };
        let names = match cert.subject_alternative_name() {
            Ok(Some(san)) => san
                .value
                .general_names
                .iter()
                .filter_map(name_text)
                .collect(),
            _ => Vec::new(),
        };
        Some(Self {
            common_name: subject
                .iter_common_name()
                .next()
                .map(text)
                .unwrap_or_default(),
            organizations: subject.iter_organization().map(text).collect(),
            subject: subject.as_raw().to_vec(),
            issuer: cert.issuer().as_raw().to_vec(),
            public_key: cert.public_key().subject_public_key.data.to_vec(),
            names,
            not_after: cert.validity().not_after.timestamp(),
        })
    }

    /// Returns the whole days until it ceases to be valid; negative afterwards.
    pub(crate) fn days_left(&self) -> i64 {
        (self.not_after - jiff::Timestamp::now().as_second()).div_euclid(24 * 3600)
    }
}

/// Returns the organizations a certificate is asked for, given the request in
/// base64 of PEM; none of what cannot be read, which validation refuses.
pub(crate) fn requested_groups(request: &str) -> Vec<String> {
    let pem = STANDARD.decode(request).unwrap_or_default();
    let Some(Ok(pem)) = Pem::iter_from_buffer(&pem).next() else {
        return Vec::new();
    };
    match X509CertificationRequest::from_der(&pem.contents) {
        Ok((_, request)) => request
            .certification_request_info
            .subject
            .iter_organization()
            .map(|o| o.as_str().unwrap_or_default().to_owned())
            .collect(),
        Err(_) => Vec::new(),
    }
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(n) => Some((*n).to_owned()),
        GeneralName::IPAddress(b) => match b.len() {
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(*b).ok()?).to_string()),
            16 => Some(IpAddr::from(<[u8; 16]>::try_from(*b).ok()?).to_string()),
            _ => None,
        },
        _ => None,
    }
}
