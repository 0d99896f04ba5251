//! The first bytes of a connection: which protocol its client speaks.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How every HTTP/2 connection begins (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a client speaks, and what it has said so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    Http1(Bytes),
    Http2(Bytes),
}

/// Reads until the protocol is certain; none if the client hangs up before. How long
/// that may take is the caller's to say: half a preface is no reason to stay.
pub(super) async fn read(io: &mut (impl AsyncRead + Unpin)) -> Option<Greeting> {
    let mut said = BytesMut::with_capacity(PREFACE.len());
    loop {
        if said.len() == PREFACE.len() {
            return Some(Greeting::Http2(said.freeze()));
        }
        let mut rest = (&mut *io).take((PREFACE.len() - said.len()) as u64);
        if !matches!(rest.read_buf(&mut said).await, Ok(1..)) {
            return None;
        }
        if !PREFACE.starts_with(&said) {
            return Some(Greeting::Http1(said.freeze()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn greeting(mut bytes: &[u8]) -> Option<Greeting> {
        read(&mut bytes).await
    }

    #[tokio::test]
    async fn one_different_byte_is_http_1() {
        let get = Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(greeting(&get).await, Some(Greeting::Http1(get)));
        let put = Bytes::from_static(b"PRIX");
        assert_eq!(greeting(&put).await, Some(Greeting::Http1(put)));
    }

    #[tokio::test]
    async fn only_the_whole_preface_is_http_2() {
        let whole = Some(Greeting::Http2(Bytes::from_static(PREFACE)));
        assert_eq!(greeting(PREFACE).await, whole);
        assert_eq!(greeting(&[PREFACE, b"more"].concat()).await, whole);
        assert_eq!(greeting(&PREFACE[..23]).await, None);
        assert_eq!(greeting(b"").await, None);
    }
}
