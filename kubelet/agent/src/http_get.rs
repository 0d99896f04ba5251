//! One HTTP GET for probes and hooks: no redirects, no keep-alive, and for
//! HTTPS no check of the certificate, as the kubelet's prober.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;

/// How much of an answer's body is read (upstream's probe limit, 10 KiB).
const BODY_BYTES_MAX: usize = 10 * 1024;

/// Performs the GET and returns the status; errors are texts for events.
pub(crate) async fn get(
    action: &HTTPGetAction,
    container: &Container,
    default_host: &str,
    user_agent: &str,
    timeout: Duration,
) -> Result<u16, String> {
    match tokio::time::timeout(
        timeout,
        try_get(action, container, default_host, user_agent),
    )
    .await
    {
        Ok(result) => result,
        Err(_elapsed) => {
            Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into())
        }
    }
}

/// Writes the URL a GET asks for, for messages.
pub(crate) fn url(action: &HTTPGetAction, container: &Container, default_host: &str) -> String {
    let host = action
        .host
        .as_deref()
        .filter(|h| !h.is_empty())
        .unwrap_or(default_host);
    let scheme = action.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
    let port =
        port(&action.port, container).map_or_else(|_unknown| String::new(), |p| format!(":{p}"));
    let path = action
        .path
        .as_deref()
        .unwrap_or_default()
        .trim_start_matches('/');
    format!("{scheme}://{host}{port}/{path}")
}

async fn try_get(
    action: &HTTPGetAction,
    container: &Container,
    default_host: &str,
    user_agent: &str,
) -> Result<u16, String> {
    let host = action
        .host
        .as_deref()
        .filter(|h| !h.is_empty())
        .unwrap_or(default_host);
    let port = port(&action.port, container)?;
    let path = action
        .path
        .as_deref()
        .filter(|p| !p.is_empty())
        .unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut request = http::Request::get(format!("{slash}{path}"))
        .header(http::header::HOST, format!("{host}:{port}"))
        .header(http::header::USER_AGENT, user_agent)
        .header(http::header::ACCEPT, "*/*");
    for header in action.http_headers.iter().flatten() {
        request = request.header(&header.name, &header.value);
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let stream = connect(host, port).await?;
    if action.scheme.as_deref() == Some("HTTPS") {
        let name = ServerName::try_from(host.to_owned()).map_err(|e| e.to_string())?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls_config()?));
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|e| e.to_string())?;
        exchange(TokioIo::new(stream), request).await
    } else {
        exchange(TokioIo::new(stream), request).await
    }
}

/// Opens a connection; the error reads as Go's dialer's.
pub(crate) async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port)).await.map_err(|error| {
        let cause = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
            _ => error.to_string(),
        };
        format!("dial tcp {host}:{port}: {cause}")
    })
}

async fn exchange<T>(io: T, request: http::Request<Empty<Bytes>>) -> Result<u16, String>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(io).await.map_err(|e| e.to_string())?;
    let driver = tokio::spawn(connection);
    let response = sender
        .send_request(request)
        .await
        .map_err(|e| e.to_string());
    let status = match response {
        Ok(response) => {
            let status = response.status().as_u16();
            // Read so that the server can finish; more than the limit is not needed.
            let _body = Limited::new(response.into_body(), BODY_BYTES_MAX)
                .collect()
                .await;
            Ok(status)
        }
        Err(error) => Err(error),
    };
    driver.abort();
    status
}

/// Finds a port given by number or by the name of one of the container's ports.
pub(crate) fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|p| p.name.as_deref() == Some(name))
            .map(|p| p.container_port)
            .or_else(|| name.parse().ok()),
    };
    number
        .and_then(|n| u16::try_from(n).ok())
        .filter(|n| *n > 0)
        .ok_or_else(|| {
            format!(
                "couldn't find port {port:?} in container {:?}",
                container.name
            )
        })
}

fn tls_config() -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth())
}

/// Accepts every certificate: a probe asks whether something answers, not who.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
