//! What PEM texts in objects must hold: certificates, and requests for them.

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

const REQUEST: &str = "CERTIFICATE REQUEST";
const CERTIFICATE: &str = "CERTIFICATE";

/// Checks a request for a certificate, and that it is signed with the key it is
/// for.
pub fn check_request(bytes: &[u8]) -> Result<(), String> {
    let pem = match Pem::iter_from_buffer(bytes).next() {
        Some(Ok(pem)) if pem.label == REQUEST => pem,
        _ => return Err(format!("PEM block type must be {REQUEST}")),
    };
    let (rest, request) = X509CertificationRequest::from_der(&pem.contents)
        .map_err(|e| format!("asn1: structure error: {e}"))?;
    if !rest.is_empty() {
        return Err("asn1: syntax error: trailing data".to_owned());
    }
    request.verify_signature().map_err(|e| match e {
        X509Error::SignatureUnsupportedAlgorithm => {
            "x509: cannot verify signature: algorithm unimplemented".to_owned()
        }
        _ => "x509: signature over certificate request error: verification failed".to_owned(),
    })
}

/// Checks a chain of certificates; an empty text is none, and right.
pub fn check_certificates(bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut blocks = 0;
    for pem in Pem::iter_from_buffer(bytes) {
        let Ok(pem) = pem else { break };
        if pem.label != CERTIFICATE {
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {:?}",
                pem.label
            ));
        }
        blocks += 1;
        X509Certificate::from_der(&pem.contents)
            .map_err(|e| format!("x509: malformed certificate: {e}"))?;
    }
    match blocks {
        0 => Err("must contain at least one CERTIFICATE PEM block".to_owned()),
        _ => Ok(()),
    }
}
