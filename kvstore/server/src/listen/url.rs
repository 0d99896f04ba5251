//! The URLs of etcd's flags (client/pkg/types, NewURLs).

use std::{net::IpAddr, path::PathBuf};

/// What a URL says: where, and whether TLS is spoken there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) tls: bool,
    pub(crate) place: Place,
}

/// Where a URL points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Url {
    /// Reads a URL; an error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let scheme = || {
            Err(format!(
                "URL scheme must be http, https, unix, or unixs: {text}"
            ))
        };
        let Some((name, rest)) = text.split_once(':') else {
            return scheme();
        };
        let tls = match name {
            "http" | "unix" => false,
            "https" | "unixs" => true,
            _ => return scheme(),
        };
        if name.starts_with("unix") {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            if path.is_empty() {
                return Err(format!("URL names no socket: {text}"));
            }
            let place = Place::Unix(path.into());
            return Ok(Self { tls, place });
        }
        let form = || format!("URL address does not have the form \"host:port\": {text}");
        let rest = rest.strip_prefix("//").ok_or_else(form)?;
        if rest.contains(['/', '?', '#']) {
            return Err(format!("URL must not contain a path: {text}"));
        }
        let (host, port) = rest.rsplit_once(':').ok_or_else(form)?;
        let host = match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(address) => address,
            // An IPv6 address without brackets hides where its port begins.
            None if host.contains(':') => return Err(form()),
            None => host,
        };
        let port = port
            .parse()
            .map_err(|_not_a_port| format!("URL has no port between 0 and 65535: {text}"))?;
        let host = host.to_owned();
        let place = Place::Tcp { host, port };
        Ok(Self { tls, place })
    }

    /// Says whether there is no host where there should be one.
    pub(crate) fn host_is_missing(&self) -> bool {
        matches!(&self.place, Place::Tcp { host, .. } if host.is_empty())
    }

    /// Says whether a listener may be bound there: names other than localhost may
    /// not (etcd: embed, checkBindURLs).
    pub(crate) fn may_bind(&self) -> bool {
        match &self.place {
            Place::Tcp { host, .. } => host == "localhost" || host.parse::<IpAddr>().is_ok(),
            Place::Unix(_) => true,
        }
    }

    /// Returns what a certificate for it names.
    pub(crate) fn host(&self) -> String {
        match &self.place {
            Place::Tcp { host, .. } => host.clone(),
            Place::Unix(path) => {
                let text = path.to_string_lossy();
                text.split([':', '/']).next().unwrap_or_default().to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_every_scheme() {
        let tcp = |tls, host: &str, port| {
            let host = host.to_owned();
            let place = Place::Tcp { host, port };
            Ok(Url { tls, place })
        };
        assert_eq!(
            Url::parse("http://localhost:2379"),
            tcp(false, "localhost", 2379)
        );
        assert_eq!(Url::parse(" https://10.0.0.1:0 "), tcp(true, "10.0.0.1", 0));
        assert_eq!(Url::parse("http://[::1]:1"), tcp(false, "::1", 1));
        let unix = |tls, path: &str| {
            let place = Place::Unix(path.into());
            Ok(Url { tls, place })
        };
        assert_eq!(Url::parse("unix://localhost:7"), unix(false, "localhost:7"));
        assert_eq!(Url::parse("unix:///run/s"), unix(false, "/run/s"));
        assert_eq!(Url::parse("unixs:/run/s"), unix(true, "/run/s"));
    }

    #[test]
    fn senseless_urls() {
        for (text, words) in [
            ("127.0.0.1:2379", "scheme"),
            ("ftp://127.0.0.1:1", "scheme"),
            ("", "scheme"),
            ("http://127.0.0.1", "host:port"),
            ("http:127.0.0.1:1", "host:port"),
            ("http://::1:2379", "host:port"),
            ("http://127.0.0.1:2379/v3", "path"),
            ("http://127.0.0.1:x", "port"),
            ("http://127.0.0.1:65536", "port"),
            ("unix://", "socket"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn only_addresses_and_localhost_can_be_bound() {
        let may = |text| Url::parse(text).unwrap().may_bind();
        assert!(may("http://0.0.0.0:1") && may("http://localhost:1") && may("http://[::]:1"));
        assert!(may("unix://a:1"));
        assert!(!may("http://example.com:1") && !may("http://:1"));
    }
}
