//! Certificates: the cluster's authority and everything it signs.
//!
//! Kept in one directory under kubeadm's names, keys readable by the owner
//! only. A certificate that is still good (signed by this authority, for this
//! subject and these names, not about to expire) is used again; anything else
//! is issued anew, so that deleting a file is all a rotation takes. Keys are
//! ECDSA P-256: making one costs less than a millisecond.

mod files;
mod inspect;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

pub(crate) use inspect::{Facts, requested_groups};

pub use files::write_private;

/// Begins the name of every authority that is made here.
const CA_NAME: &[u8] = b"keelson-ca";
/// How long the authority is valid, in days.
const CA_DAYS: i64 = 3650;
/// How long a certificate is valid, in days, as kubeadm issues them.
const LEAF_DAYS: i64 = 365;
/// A certificate with fewer days left than this is issued anew at the next
/// start.
const RENEW_BEFORE_DAYS: i64 = 30;

/// Why certificates cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file holds no usable certificate or key.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate cannot be made.
    #[error("cannot issue certificate for {subject:?}: {source}")]
    Issue {
        /// Whom it was for.
        subject: String,
        /// Why.
        source: rcgen::Error,
    },
}

/// A certificate with its key, both PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate chain.
    pub cert_pem: String,
    /// The private key.
    pub key_pem: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity(..)")
    }
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    Server,
    Client,
}

/// The authority of one cluster, and the directory it lives in.
pub struct Pki {
    dir: PathBuf,
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pki({})", self.dir.display())
    }
}

impl Pki {
    /// Opens the directory's authority, creating both when there is none.
    pub fn open(dir: &Path) -> Result<Self, PkiError> {
        files::create_private_dir(dir)?;
        let (cert_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
        let found = match (
            files::read_optional(&cert_path)?,
            files::read_optional(&key_path)?,
        ) {
            (Some(cert), Some(key)) => {
                let key = KeyPair::from_pem(&key).map_err(|e| malformed(&key_path, e))?;
                let facts = inspect::Facts::of_pem(&cert)
                    .ok_or_else(|| malformed(&cert_path, "no certificate in it"))?;
                (facts.days_left() >= RENEW_BEFORE_DAYS).then_some((cert, key))
            }
            // Half an authority is somebody's: an operator's own CA whose key
            // lies elsewhere must not be overwritten.
            (Some(_), None) => return Err(malformed(&key_path, "missing beside ca.crt")),
            (None, Some(_)) => return Err(malformed(&cert_path, "missing beside ca.key")),
            (None, None) => None,
        };
        let (ca_pem, key) = match found {
            Some(found) => found,
            None => {
                let (cert, key) = new_authority()?;
                files::write_private(&key_path, key.serialize_pem().as_bytes())?;
                files::write_public(&cert_path, cert.as_bytes())?;
                (cert, key)
            }
        };
        let issuer =
            Issuer::from_ca_cert_pem(&ca_pem, key).map_err(|e| malformed(&cert_path, e))?;
        Ok(Self {
            dir: dir.to_owned(),
            ca_pem,
            issuer,
        })
    }

    /// Returns the authority's certificate, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns the directory the files lie in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the API server's serving certificate for these names and
    /// addresses. One that somebody else put there is used as it is, as
    /// kube-apiserver does with `--cert-dir`.
    pub fn api_serving(&self, names: &[String]) -> Result<Identity, PkiError> {
        const FILE: &str = "apiserver";
        if let Some(theirs) = self.foreign(FILE)? {
            return Ok(theirs);
        }
        self.identity(FILE, "kube-apiserver", &[], names, Usage::Server)
    }

    /// Returns a certificate that neither this authority nor an earlier one has signed.
    fn foreign(&self, file: &str) -> Result<Option<Identity>, PkiError> {
        let (cert_path, key_path) = self.paths(file);
        let Some(cert_pem) = files::read_optional(&cert_path)? else {
            return Ok(None);
        };
        let facts = inspect::Facts::of_pem(&cert_pem);
        let ca = inspect::Facts::of_pem(&self.ca_pem).map(|ca| ca.subject);
        let named = |issuer: &[u8]| issuer.windows(CA_NAME.len()).any(|part| part == CA_NAME);
        let ours = |facts: inspect::Facts| {
            named(&facts.issuer) || ca.is_some_and(|subject| subject == facts.issuer)
        };
        // One that cannot be read was torn while it was written.
        if facts.is_none_or(ours) {
            return Ok(None);
        }
        let key_pem = files::read_optional(&key_path)?;
        let missing = || malformed(&key_path, format!("missing beside {file}.crt"));
        let key_pem = key_pem.ok_or_else(missing)?;
        Ok(Some(Identity { cert_pem, key_pem }))
    }

    fn paths(&self, file: &str) -> (PathBuf, PathBuf) {
        let path = |ending| self.dir.join(format!("{file}.{ending}"));
        (path("crt"), path("key"))
    }

    /// Returns a kubelet's serving certificate.
    pub fn kubelet_serving(&self, node: &str, names: &[String]) -> Result<Identity, PkiError> {
        let cn = format!("system:node:{node}");
        self.identity(
            &format!("kubelet-{node}"),
            &cn,
            &["system:nodes"],
            names,
            Usage::Server,
        )
    }

    /// Returns the private key that signs tokens of service accounts, PEM. Its
    /// public half lies beside it, for whoever has to believe them.
    pub fn service_account_key(&self) -> Result<String, PkiError> {
        let path = self.dir.join("sa.key");
        if let Some(found) = files::read_optional(&path)? {
            return Ok(found);
        }
        let key = KeyPair::generate().map_err(|source| PkiError::Issue {
            subject: "service accounts".to_owned(),
            source,
        })?;
        files::write_private(&path, key.serialize_pem().as_bytes())?;
        files::write_public(&self.dir.join("sa.pub"), key.public_key_pem().as_bytes())?;
        // As it lies there: another server may have been at it too.
        Ok(files::read_optional(&path)?.unwrap_or_else(|| key.serialize_pem()))
    }

    /// Returns the administrator's certificate.
    pub fn admin(&self) -> Result<Identity, PkiError> {
        self.client("admin", "kubernetes-admin", &["system:masters"])
    }

    /// Returns the certificate with which a node's kubelet calls the API.
    pub fn node_client(&self, node: &str) -> Result<Identity, PkiError> {
        let cn = format!("system:node:{node}");
        self.client(&format!("kubelet-client-{node}"), &cn, &["system:nodes"])
    }

    /// Returns the certificate with which the API server calls kubelets.
    pub fn kubelet_client(&self) -> Result<Identity, PkiError> {
        let cn = "kube-apiserver-kubelet-client";
        self.client("apiserver-kubelet-client", cn, &["system:masters"])
    }

    /// Returns a component's certificate, such as `system:kube-scheduler`.
    pub fn component(&self, user: &str) -> Result<Identity, PkiError> {
        let file = user.rsplit(':').next().unwrap_or(user).to_owned();
        self.client(&file, user, &[])
    }

    /// Returns a client certificate, kept in `<file>.crt` and `<file>.key`.
    pub fn client(&self, file: &str, user: &str, groups: &[&str]) -> Result<Identity, PkiError> {
        self.identity(file, user, groups, &[], Usage::Client)
    }

    fn identity(
        &self,
        file: &str,
        user: &str,
        groups: &[&str],
        names: &[String],
        usage: Usage,
    ) -> Result<Identity, PkiError> {
        let (cert_path, key_path) = self.paths(file);
        if let (Some(cert_pem), Some(key_pem)) = (
            files::read_optional(&cert_path)?,
            files::read_optional(&key_path)?,
        ) && self.still_good(&cert_pem, &key_pem, user, groups, names)
        {
            return Ok(Identity { cert_pem, key_pem });
        }
        let made = self.issue(user, groups, names, usage)?;
        files::write_private(&key_path, made.key_pem.as_bytes())?;
        files::write_public(&cert_path, made.cert_pem.as_bytes())?;
        Ok(made)
    }

    fn still_good(
        &self,
        cert: &str,
        key: &str,
        user: &str,
        groups: &[&str],
        names: &[String],
    ) -> bool {
        let (Some(facts), Some(ca)) = (
            inspect::Facts::of_pem(cert),
            inspect::Facts::of_pem(&self.ca_pem),
        ) else {
            return false;
        };
        let Ok(key) = KeyPair::from_pem(key) else {
            return false;
        };
        facts.days_left() >= RENEW_BEFORE_DAYS
            && facts.issuer == ca.subject
            && facts.public_key == key.public_key_raw()
            && facts.common_name == user
            && facts.organizations == groups
            && names.iter().all(|n| facts.names.contains(n))
    }

    fn issue(
        &self,
        user: &str,
        groups: &[&str],
        names: &[String],
        usage: Usage,
    ) -> Result<Identity, PkiError> {
        let failed = |source| PkiError::Issue {
            subject: user.to_owned(),
            source,
        };
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            // rcgen keeps one value per type; certificates here name at most
            // one group.
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        params.subject_alt_names = names
            .iter()
            .map(|n| match n.parse::<IpAddr>() {
                Ok(ip) => Ok(SanType::IpAddress(ip)),
                Err(_) => n.as_str().try_into().map(SanType::DnsName),
            })
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match usage {
            Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, LEAF_DAYS);
        let key = KeyPair::generate().map_err(failed)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Identity {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

fn malformed(path: &Path, reason: impl ToString) -> PkiError {
    PkiError::Malformed {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// Makes a self-signed authority whose name carries the time, so that
/// certificates of an earlier one are told apart by their issuer alone.
fn new_authority() -> Result<(String, KeyPair), PkiError> {
    let name = String::from_utf8_lossy(CA_NAME);
    let cn = format!("{name}@{}", jiff::Timestamp::now().as_microsecond());
    let failed = |source| PkiError::Issue {
        subject: "CA".to_owned(),
        source,
    };
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, cn);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    set_validity(&mut params, CA_DAYS);
    let key = KeyPair::generate().map_err(failed)?;
    let cert = params.self_signed(&key).map_err(failed)?;
    Ok((cert.pem(), key))
}

/// Sets validity from yesterday (clocks differ) for a number of days.
fn set_validity(params: &mut CertificateParams, days: i64) {
    let today = jiff::Zoned::now()
        .with_time_zone(jiff::tz::TimeZone::UTC)
        .date();
    let date = |d: jiff::civil::Date| {
        // A civil month and day are always in 1..=31.
        let (month, day) = (d.month().unsigned_abs(), d.day().unsigned_abs());
        rcgen::date_time_ymd(i32::from(d.year()), month, day)
    };
    params.not_before = date(today.saturating_sub(jiff::Span::new().days(1)));
    params.not_after = date(today.saturating_add(jiff::Span::new().days(days)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_kept_until_they_no_longer_fit() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path()).unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let first = pki.api_serving(&names).unwrap();
        let admin = pki.admin().unwrap();

        let again = Pki::open(dir.path()).unwrap();
        assert_eq!(again.ca_pem(), pki.ca_pem());
        assert_eq!(again.api_serving(&names).unwrap().cert_pem, first.cert_pem);
        assert_eq!(again.admin().unwrap().cert_pem, admin.cert_pem);

        let more = [names.clone(), vec!["10.96.0.1".to_owned()]].concat();
        let widened = again.api_serving(&more).unwrap();
        assert_ne!(
            widened.cert_pem, first.cert_pem,
            "a new name needs a new certificate"
        );

        for f in ["ca.crt", "ca.key"] {
            std::fs::remove_file(dir.path().join(f)).unwrap();
        }
        let other = Pki::open(dir.path()).unwrap();
        assert_ne!(
            other.admin().unwrap().cert_pem,
            admin.cert_pem,
            "signed by another authority"
        );
    }

    #[test]
    fn a_serving_certificate_of_somebody_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["there".to_owned()]).unwrap();
        let cert = params.self_signed(&key).unwrap().pem();
        let path = dir.path().join("apiserver.crt");
        std::fs::write(&path, &cert).unwrap();
        let pki = Pki::open(dir.path()).unwrap();
        let text = pki.api_serving(&[]).unwrap_err().to_string();
        assert!(text.contains("apiserver.key"), "{text}");
        std::fs::write(dir.path().join("apiserver.key"), key.serialize_pem()).unwrap();
        assert_eq!(pki.api_serving(&[]).unwrap().cert_pem, cert);
        std::fs::write(&path, &cert[..40]).unwrap();
        assert_ne!(
            pki.api_serving(&[]).unwrap().cert_pem,
            cert,
            "a torn one is not used"
        );
    }

    #[test]
    fn keys_are_for_the_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(&dir.path().join("pki")).unwrap();
        pki.admin().unwrap();
        for key in ["ca.key", "admin.key"] {
            let mode = std::fs::metadata(pki.dir().join(key))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{key}");
        }
    }

    #[test]
    fn half_an_authority_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        Pki::open(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join("ca.key")).unwrap();
        let text = Pki::open(dir.path()).unwrap_err().to_string();
        assert!(text.contains("ca.key"), "{text}");
    }
}
