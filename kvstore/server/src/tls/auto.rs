//! Certificates the member makes for itself (`--auto-tls`, `--peer-auto-tls`).
//!
//! As etcd's (transport, SelfCert) they lie in `fixtures/` of the data directory,
//! are made once and then used until somebody removes them. Clients cannot verify
//! them against anything but themselves: they keep listeners out, not impostors.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use super::Side;
use crate::config::{StartError, TlsFiles};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Names the files of a side that makes its own.
pub(crate) fn own_files(side: Side, data_dir: &Path) -> TlsFiles {
    let dir = data_dir.join("fixtures").join(side.name());
    TlsFiles {
        cert_file: dir.join("cert.pem"),
        key_file: dir.join("key.pem"),
        ..TlsFiles::default()
    }
}

/// Returns the files, making them if they are not there.
pub(crate) fn ensure_files(
    side: Side,
    data_dir: &Path,
    hosts: &[String],
    years: u32,
) -> Result<TlsFiles, StartError> {
    let dir = data_dir.join("fixtures").join(side.name());
    let files = own_files(side, data_dir);
    if !(files.cert_file.exists() && files.key_file.exists()) {
        make(&files, &dir, hosts, years).map_err(|reason| StartError::Tls {
            what: side.name(),
            reason: format!("cannot make a certificate in {}: {reason}", dir.display()),
        })?;
    }
    Ok(files)
}

fn make(files: &TlsFiles, dir: &Path, hosts: &[String], years: u32) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut hosts = hosts.to_vec();
    hosts.sort();
    hosts.dedup();
    let mut params = CertificateParams::new(hosts).map_err(|error| text(&error))?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "etcd");
    let now = SystemTime::now();
    let end = YEAR
        .checked_mul(years)
        .and_then(|validity| now.checked_add(validity))
        .ok_or("it would be valid for too long")?;
    params.not_before = now.into();
    params.not_after = end.into();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::CrlSign,
    ];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(|error| text(&error))?;
    let certificate = params.self_signed(&key).map_err(|error| text(&error))?;
    fs::create_dir_all(dir).map_err(|error| text(&error))?;
    write(&files.cert_file, &certificate.pem(), 0o644).map_err(|error| text(&error))?;
    write(&files.key_file, &key.serialize_pem(), 0o600).map_err(|error| text(&error))?;
    tracing::warn!(dir = %dir.display(), years, "automatically generate certificates");
    Ok(())
}

/// Writes a file that only `mode` may read; one from before is replaced.
fn write(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let mut file = options.open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}
