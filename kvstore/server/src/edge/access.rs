//! Who may ask over HTTP from where: browsers of other origins, and names this
//! server is not known by (etcd: embed/serve.go, accessController).

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderValue, Request, StatusCode, header};

use super::answer::{self, Answer};

/// Stands for everybody in `--cors` and `--host-whitelist`.
const ANYBODY: &str = "*";

/// The rules of one member.
#[derive(Debug)]
pub(super) struct Access {
    origins: BTreeSet<String>,
    hosts: BTreeSet<String>,
}

/// The origin that a browser is told may read the answer.
#[derive(Debug)]
pub(super) struct Cors(HeaderValue);

impl Access {
    pub(super) fn new(origins: &[String], hosts: &[String]) -> Self {
        Self {
            origins: origins.iter().cloned().collect(),
            hosts: hosts.iter().cloned().collect(),
        }
    }

    /// Refuses a request for a name that is not ours. A page in a browser can make its
    /// own name resolve to this address ("DNS rebinding", CVE-2018-5702); TLS would
    /// have stopped it by the certificate.
    pub(super) fn host_refusal<B>(&self, request: &Request<B>) -> Option<Answer> {
        let authority = request.uri().authority().map(http::uri::Authority::as_str);
        let named = request.headers().get(header::HOST);
        let host = authority.or(named.and_then(|host| host.to_str().ok()));
        let host = host_name(host.unwrap_or_default());
        if self.hosts.is_empty() || self.hosts.contains(ANYBODY) || self.hosts.contains(host) {
            return None;
        }
        tracing::warn!(host, "refused a request for an unknown host name");
        let text = format!(
            "\nThe name {host:?} in the Host header is not one this member answers to.\n\n\
             Add it (as in --host-whitelist {host:?}), or serve clients over https, which \
             proves the name.\nThis keeps web pages from reaching the store through a name of \
             their own (CVE-2018-5702).\n"
        );
        Some(answer::refusal(StatusCode::MISDIRECTED_REQUEST, &text))
    }

    /// Says whether the origin of a request may read the answer.
    pub(super) fn cors(&self, headers: &HeaderMap) -> Option<Cors> {
        if self.origins.is_empty() || self.origins.contains(ANYBODY) {
            return Some(Cors(HeaderValue::from_static(ANYBODY)));
        }
        let origin = headers.get(header::ORIGIN)?;
        let allowed = self.origins.contains(origin.to_str().ok()?);
        allowed.then(|| Cors(origin.clone()))
    }
}

impl Cors {
    pub(super) fn write(self, headers: &mut HeaderMap) {
        let methods = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE");
        let allowed = HeaderValue::from_static("accept, content-type, authorization");
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.0);
    }
}

/// Takes the port off, and the brackets of an IPv6 address with it.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => {
            let bare = name
                .strip_prefix('[')
                .and_then(|name| name.strip_suffix(']'));
            match bare {
                Some(bare) => bare,
                // More colons are an address without a port.
                None if name.contains(':') => host,
                None => name,
            }
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(hosts: &[&str], host: &str) -> bool {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let request = Request::builder().header("host", host).body(()).unwrap();
        Access::new(&[], &hosts).host_refusal(&request).is_some()
    }

    #[test]
    fn only_listed_hosts_are_served() {
        assert!(!refused(&["*"], "evil.com"));
        assert!(!refused(&[], "evil.com"));
        assert!(!refused(&["good.com"], "good.com:2379"));
        assert!(refused(&["good.com"], "evil.com:2379"));
        assert!(refused(&["good.com"], "not.good.com"));
        assert!(!refused(&["::1"], "[::1]:2379"));
        assert!(!refused(&["::1"], "::1"));
    }

    #[test]
    fn an_origin_is_told_only_what_concerns_it() {
        let allowed = |origins: &[&str], origin: &str| {
            let origins: Vec<String> = origins.iter().map(|one| (*one).to_owned()).collect();
            let mut headers = HeaderMap::new();
            headers.insert("origin", origin.parse().unwrap());
            let cors = Access::new(&origins, &[]).cors(&headers)?;
            Some(cors.0.to_str().unwrap().to_owned())
        };
        assert_eq!(allowed(&["*"], "http://a:80").as_deref(), Some("*"));
        assert_eq!(allowed(&[], "http://a:80").as_deref(), Some("*"));
        let two = ["http://a:80", "http://b:80"];
        assert_eq!(allowed(&two, "http://b:80").as_deref(), Some("http://b:80"));
        assert_eq!(allowed(&two, "http://c:80"), None);
    }
}
