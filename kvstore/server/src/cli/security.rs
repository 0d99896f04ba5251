//! Flags of TLS: whose certificates are shown, and whose are believed.

use super::flag::{Flag, Kind, Values};
use crate::config::{AutoTls, Config, StartError, TlsFiles, TlsVersion};

pub(super) const FLAGS: &[Flag] = &[
    Flag::new(
        "cert-file",
        Kind::Text,
        "",
        "Path to the client server TLS cert file.",
    ),
    Flag::new(
        "key-file",
        Kind::Text,
        "",
        "Path to the client server TLS key file.",
    ),
    Flag::new(
        "client-cert-auth",
        Kind::Bool,
        "false",
        "Enable client cert authentication.",
    ),
    Flag::new(
        "client-cert-file",
        Kind::Text,
        "",
        "Path to a certificate the server shows as a client. Checked, and otherwise unused: the gateway does not dial.",
    ),
    Flag::new("client-key-file", Kind::Text, "", "Path to its key."),
    Flag::new(
        "client-crl-file",
        Kind::Text,
        "",
        "Path to the client certificate revocation list file, PEM or DER.",
    ),
    Flag::new(
        "client-cert-allowed-hostname",
        Kind::List,
        "",
        "Comma-separated list of SAN hostnames for client cert authentication.",
    ),
    Flag::new(
        "trusted-ca-file",
        Kind::Text,
        "",
        "Path to the client server TLS trusted CA cert file.",
    ),
    Flag::new(
        "auto-tls",
        Kind::Bool,
        "false",
        "Client TLS using generated certificates.",
    ),
    Flag::new(
        "peer-cert-file",
        Kind::Text,
        "",
        "Path to the peer server TLS cert file.",
    ),
    Flag::new(
        "peer-key-file",
        Kind::Text,
        "",
        "Path to the peer server TLS key file.",
    ),
    Flag::new(
        "peer-client-cert-auth",
        Kind::Bool,
        "false",
        "Enable peer client cert authentication.",
    ),
    Flag::new(
        "peer-client-cert-file",
        Kind::Text,
        "",
        "Path to a certificate the member shows to its peers when it dials them, if another.",
    ),
    Flag::new("peer-client-key-file", Kind::Text, "", "Path to its key."),
    Flag::new(
        "peer-trusted-ca-file",
        Kind::Text,
        "",
        "Path to the peer server TLS trusted CA file.",
    ),
    Flag::new(
        "peer-cert-allowed-cn",
        Kind::List,
        "",
        "Comma-separated list of allowed CNs for inter-peer TLS authentication.",
    ),
    Flag::new(
        "peer-cert-allowed-hostname",
        Kind::List,
        "",
        "Comma-separated list of allowed SAN hostnames for inter-peer TLS authentication.",
    ),
    Flag::new(
        "peer-auto-tls",
        Kind::Bool,
        "false",
        "Peer TLS using generated certificates if --peer-key-file and --peer-cert-file are not provided.",
    ),
    Flag::new(
        "self-signed-cert-validity",
        Kind::Count,
        "1",
        "Validity in years of the certificates that --auto-tls and --peer-auto-tls generate.",
    ),
    Flag::new(
        "peer-crl-file",
        Kind::Text,
        "",
        "Path to the peer certificate revocation list file, PEM or DER.",
    ),
    Flag::new(
        "peer-skip-client-san-verification",
        Kind::Bool,
        "false",
        "Skip the check of a peer's address against its certificate.",
    )
    .old("experimental-peer-skip-client-san-verification"),
    Flag::new(
        "cipher-suites",
        Kind::List,
        "",
        "Comma-separated list of TLS cipher suites, by Go's names (empty for all).",
    ),
    Flag::new(
        "tls-min-version",
        Kind::Choice(&["TLS1.2", "TLS1.3", ""]),
        "TLS1.2",
        "Minimum TLS version: TLS1.2 or TLS1.3.",
    ),
    Flag::new(
        "tls-max-version",
        Kind::Choice(&["TLS1.2", "TLS1.3", ""]),
        "",
        "Maximum TLS version: TLS1.2 or TLS1.3 (empty for the highest).",
    ),
];

/// The flags that name a listener's files.
struct Names {
    cert: &'static str,
    key: &'static str,
    client_cert: &'static str,
    client_key: &'static str,
    auth: &'static str,
    ca: &'static str,
    crl: &'static str,
    hostnames: &'static str,
}

const CLIENT: Names = Names {
    cert: "cert-file",
    key: "key-file",
    client_cert: "client-cert-file",
    client_key: "client-key-file",
    auth: "client-cert-auth",
    ca: "trusted-ca-file",
    crl: "client-crl-file",
    hostnames: "client-cert-allowed-hostname",
};

const PEER: Names = Names {
    cert: "peer-cert-file",
    key: "peer-key-file",
    client_cert: "peer-client-cert-file",
    client_key: "peer-client-key-file",
    auth: "peer-client-cert-auth",
    ca: "peer-trusted-ca-file",
    crl: "peer-crl-file",
    hostnames: "peer-cert-allowed-hostname",
};

pub(super) fn apply(
    values: &Values,
    config: &mut Config,
    notes: &mut Vec<String>,
) -> Result<(), StartError> {
    config.client_tls = files(values, &CLIENT)?;
    config.peer_tls = files(values, &PEER)?;
    if let Some(tls) = &mut config.client_tls {
        // Only the configuration file can name these; etcd has no flag for it.
        tls.allowed_cns = values.list(super::file::CLIENT_ALLOWED_CN.name);
        exclusive(values, super::file::CLIENT_ALLOWED_CN.name, &CLIENT)?;
    }
    if let Some(tls) = &mut config.peer_tls {
        tls.allowed_cns = values.list("peer-cert-allowed-cn");
        tls.check_address = !values.boolean("peer-skip-client-san-verification");
        exclusive(values, "peer-cert-allowed-cn", &PEER)?;
    }
    config.auto_tls = AutoTls {
        client: values.boolean("auto-tls"),
        peer: values.boolean("peer-auto-tls"),
        years: u32::try_from(values.count("self-signed-cert-validity")).unwrap_or(u32::MAX),
    };
    let auto = config.auto_tls;
    if (auto.client || auto.peer) && auto.years == 0 {
        return Err(StartError::Flag {
            flag: "self-signed-cert-validity",
            reason: "is invalid, it should be greater than 0".to_owned(),
        });
    }
    for (auto, given, what) in [
        (auto.client, &config.client_tls, "client"),
        (auto.peer, &config.peer_tls, "peer"),
    ] {
        if auto && given.is_some() {
            notes.push(format!("ignoring {what} auto TLS since certs given"));
        }
    }
    rules(values, config)
}

/// Reads a listener's files; `None` if it has no certificate.
fn files(values: &Values, names: &Names) -> Result<Option<TlsFiles>, StartError> {
    let pair = |cert: &'static str, key: &'static str| match (values.path(cert), values.path(key)) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        (Some(_), None) => Err(alone(cert, key)),
        (None, Some(_)) => Err(alone(key, cert)),
    };
    let own = pair(names.cert, names.key)?;
    let client = pair(names.client_cert, names.client_key)?;
    let trusted_ca_file = values.path(names.ca);
    let Some((cert_file, key_file)) = own else {
        return Ok(None);
    };
    for flag in [names.auth, names.crl, names.hostnames] {
        // Nobody would be asked for a certificate, or anybody's would do.
        let asked = match flag == names.auth {
            true => values.boolean(flag),
            false => values.some_text(flag).is_some(),
        };
        if asked && trusted_ca_file.is_none() {
            return Err(alone(flag, names.ca));
        }
    }
    Ok(Some(TlsFiles {
        cert_file,
        key_file,
        client_pair: client,
        trusted_ca_file,
        crl_file: values.path(names.crl),
        allowed_hostnames: values.list(names.hostnames),
        ..TlsFiles::default()
    }))
}

/// Says which flag a flag needs beside it.
fn alone(flag: &'static str, other: &str) -> StartError {
    StartError::Flag {
        flag,
        reason: format!("needs --{other} beside it"),
    }
}

/// Refuses common names and hostnames together, as etcd does.
fn exclusive(values: &Values, cns: &'static str, names: &Names) -> Result<(), StartError> {
    if values.some_text(cns).is_some() && values.some_text(names.hostnames).is_some() {
        return Err(StartError::Flag {
            flag: cns,
            reason: format!("and --{} are mutually exclusive", names.hostnames),
        });
    }
    if values.some_text(cns).is_some() && values.some_text(names.ca).is_none() {
        return Err(alone(cns, names.ca));
    }
    Ok(())
}

fn rules(values: &Values, config: &mut Config) -> Result<(), StartError> {
    let version = |name| match values.text(name) {
        "TLS1.2" => Some(TlsVersion::Tls12),
        "TLS1.3" => Some(TlsVersion::Tls13),
        _ => None,
    };
    let rules = &mut config.tls_rules;
    rules.min = version("tls-min-version");
    rules.max = version("tls-max-version");
    rules.cipher_suites = values.list("cipher-suites");
    let refuse = |flag, reason: String| Err(StartError::Flag { flag, reason });
    if let (Some(min), Some(max)) = (rules.min, rules.max)
        && min > max
    {
        let reason = "min version (TLS1.3) is greater than max version (TLS1.2)".to_owned();
        return refuse("tls-min-version", reason);
    }
    if rules.min == Some(TlsVersion::Tls13) && !rules.cipher_suites.is_empty() {
        let reason = "cipher suites cannot be configured when only TLS1.3 is enabled".to_owned();
        return refuse("cipher-suites", reason);
    }
    crate::tls::check_cipher_suites(&rules.cipher_suites)
        .or_else(|reason| refuse("cipher-suites", reason))
}
