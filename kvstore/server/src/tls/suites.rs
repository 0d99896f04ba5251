//! Versions and cipher suites, by the names etcd takes (client/pkg/tlsutil).

use std::sync::Arc;

use rustls::{
    CipherSuite, ProtocolVersion, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
};

use crate::config::{TlsRules, TlsVersion};

/// Suites by Go's names. Those of TLS 1.3 are always offered; naming them, as Go
/// allows, changes nothing.
const SUITES: &[(&str, CipherSuite)] = &[
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_128_GCM_SHA256,
    ),
    (
        "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_AES_256_GCM_SHA384,
    ),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
];

fn find(name: &str) -> Option<CipherSuite> {
    let found = SUITES.iter().find(|(known, _)| *known == name);
    found.map(|(_, suite)| *suite)
}

/// Refuses a suite by its name. Go knows more: those are weak, and not spoken here.
pub(crate) fn check(names: &[String]) -> Result<(), String> {
    match names.iter().find(|name| find(name).is_none()) {
        None => Ok(()),
        Some(name) => Err(format!("unexpected TLS cipher suite {name:?}")),
    }
}

/// Returns the versions that are spoken.
pub(super) fn versions(rules: &TlsRules) -> Vec<&'static SupportedProtocolVersion> {
    let all = [
        (TlsVersion::Tls12, &rustls::version::TLS12),
        (TlsVersion::Tls13, &rustls::version::TLS13),
    ];
    all.into_iter()
        .filter(|(version, _)| rules.min.is_none_or(|min| *version >= min))
        .filter(|(version, _)| rules.max.is_none_or(|max| *version <= max))
        .map(|(_, supported)| supported)
        .collect()
}

/// Returns the cryptography, with the suites that are allowed.
pub(super) fn provider(rules: &TlsRules) -> Result<Arc<CryptoProvider>, String> {
    let mut provider = ring::default_provider();
    if !rules.cipher_suites.is_empty() {
        check(&rules.cipher_suites)?;
        let named: Vec<_> = rules
            .cipher_suites
            .iter()
            .filter_map(|name| find(name))
            .collect();
        provider.cipher_suites.retain(|suite| {
            suite.version().version == ProtocolVersion::TLSv1_3 || named.contains(&suite.suite())
        });
    }
    Ok(Arc::new(provider))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_that_is_known_is_spoken() {
        let spoken = ring::default_provider().cipher_suites;
        for (name, suite) in SUITES {
            let known = spoken.iter().any(|spoken| spoken.suite() == *suite);
            assert!(known, "{name}");
        }
    }

    #[test]
    fn suites_bind_tls_1_2_only() {
        let name = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        let rules = TlsRules {
            cipher_suites: vec![name.to_owned()],
            ..TlsRules::default()
        };
        let suites = &provider(&rules).unwrap().cipher_suites;
        let old = suites
            .iter()
            .filter(|suite| suite.version().version == ProtocolVersion::TLSv1_2);
        let old: Vec<_> = old.map(|suite| suite.suite()).collect();
        assert_eq!(old, [CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]);
        assert_eq!(suites.len(), 4, "and those of TLS 1.3");
    }

    #[test]
    fn a_suite_that_is_not_spoken_is_refused_by_name() {
        let error = check(&["TLS_RSA_WITH_AES_128_CBC_SHA".to_owned()]).unwrap_err();
        assert!(error.contains("TLS_RSA_WITH_AES_128_CBC_SHA"), "{error}");
    }

    #[test]
    fn versions_are_bounded_on_both_sides() {
        let spoken = |min, max| {
            let rules = TlsRules {
                min,
                max,
                ..TlsRules::default()
            };
            versions(&rules).len()
        };
        assert_eq!(spoken(None, None), 2);
        assert_eq!(spoken(Some(TlsVersion::Tls12), None), 2);
        assert_eq!(spoken(Some(TlsVersion::Tls13), None), 1);
        assert_eq!(spoken(None, Some(TlsVersion::Tls12)), 1);
    }
}
