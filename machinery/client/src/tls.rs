//! TLS for the transport: whom to trust, and who we are.
//!
//! Only `ring` does the cryptography. Without a configured authority the machine's
//! bundle is read, so a kubeconfig of a public endpoint works.

use std::fs;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig as TlsConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::config::ClientConfig;
use crate::error::{Error, Result};

/// Is where Linux distributions keep their bundle of authorities.
const SYSTEM_CA_BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Builds rustls' configuration; `used` is false for a plain `http://` server.
pub(crate) fn client_config(config: &ClientConfig, used: bool) -> Result<TlsConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = TlsConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Config(format!("TLS versions: {e}")))?;
    let builder = if config.insecure_skip_tls_verify {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TrustAnyone(provider)))
    } else {
        builder.with_root_certificates(roots(config, used)?)
    };
    match (&config.client_certificate_pem, &config.client_key_pem) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert, "client certificate")?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|e| Error::Config(format!("client key: {e}")))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| Error::Config(format!("client certificate: {e}")))
        }
        (None, None) => Ok(builder.with_no_client_auth()),
        _ => Err(Error::Config(
            "a client certificate and its key must be given together".into(),
        )),
    }
}

fn roots(config: &ClientConfig, used: bool) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    if let Some(pem) = &config.ca_pem {
        for cert in certificates(pem, "certificate authority")? {
            store
                .add(cert)
                .map_err(|e| Error::Config(format!("certificate authority: {e}")))?;
        }
    } else if used {
        let Some(pem) = SYSTEM_CA_BUNDLES
            .iter()
            .find_map(|path| fs::read(path).ok())
        else {
            return Err(Error::Config(
                "no certificate authority given and no system bundle found".into(),
            ));
        };
        // One odd certificate in a machine's bundle must not make the rest useless.
        store.add_parsable_certificates(certificates(&pem, "system authorities")?);
    }
    Ok(store)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let list = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| Error::Config(format!("{what}: {e}")))?;
    if list.is_empty() {
        return Err(Error::Config(format!("{what}: no PEM certificate found")));
    }
    Ok(list)
}

/// Accepts any server, for `insecure-skip-tls-verify: true` only.
#[derive(Debug)]
struct TrustAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
