//! TLS of the listeners, from files as etcd's flags name them.
//!
//! Files are looked at before each handshake and read again if any changed, so that
//! the next connection meets the new certificate (etcd: transport/listener.go reads
//! them at each handshake). A new certificate or key that cannot be used leaves the
//! old one in place; a new list of revoked certificates that cannot be read refuses
//! connections, because nobody knows any more who is revoked.

mod auto;
mod client;
mod load;
mod suites;
mod verify;

use std::{
    fmt, fs,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use rustls::{ServerConfig, ServerConnection};

pub(crate) use self::client::{ClientTls, Trust};
pub(crate) use self::{
    auto::{ensure_files, own_files},
    suites::check as check_cipher_suites,
};
use crate::config::{StartError, TlsFiles, TlsRules};

/// Whose listeners a configuration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Peer,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Peer => "peer",
        }
    }
}

/// What a file looked like, to see a change without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp(Option<(SystemTime, u64, u64)>);

impl Stamp {
    fn of(path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        let found = fs::metadata(path).ok();
        Self(found.and_then(|found| Some((found.modified().ok()?, found.len(), found.ino()))))
    }
}

/// Certificates in use.
struct State {
    /// As of the last attempt to read them.
    stamps: Vec<Stamp>,
    config: Arc<ServerConfig>,
    /// Why nobody is let in, if the list of revoked certificates is lost.
    closed: Option<String>,
}

/// A listener's certificates, kept up to date with their files.
pub(crate) struct Certificates {
    side: Side,
    files: TlsFiles,
    rules: TlsRules,
    watched: Vec<PathBuf>,
    state: Mutex<State>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("side", &self.side)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the files for the first time; they must be usable.
    pub(crate) fn open(side: Side, files: TlsFiles, rules: TlsRules) -> Result<Self, StartError> {
        let mut watched = vec![files.cert_file.clone(), files.key_file.clone()];
        watched.extend(files.trusted_ca_file.clone());
        watched.extend(files.crl_file.clone());
        let stamps = watched.iter().map(|path| Stamp::of(path)).collect();
        let refuse = |reason| StartError::Tls {
            what: side.name(),
            reason,
        };
        if let Some((cert, key)) = &files.client_pair {
            load::check_pair(cert, key).map_err(refuse)?;
        }
        let config = load::server_config(&files, &rules).map_err(|error| refuse(error.text))?;
        Ok(Self {
            side,
            files,
            rules,
            watched,
            state: Mutex::new(State {
                stamps,
                config,
                closed: None,
            }),
        })
    }

    /// Returns what the next handshake should use; an error says why there should
    /// be none.
    pub(crate) fn current(&self) -> Result<Arc<ServerConfig>, String> {
        let mut state = self.lock();
        let stamps: Vec<Stamp> = self.watched.iter().map(|path| Stamp::of(path)).collect();
        if stamps != state.stamps {
            state.stamps = stamps;
            let side = self.side.name();
            match load::server_config(&self.files, &self.rules) {
                Ok(config) => {
                    tracing::info!(side, "certificates have changed and were read again");
                    state.config = config;
                    state.closed = None;
                }
                Err(error) => {
                    let reason = &error.text;
                    tracing::warn!(side, %reason, "certificates have changed and cannot be read");
                    if error.crl {
                        state.closed = Some(error.text);
                    }
                }
            }
        }
        match &state.closed {
            None => Ok(Arc::clone(&state.config)),
            Some(reason) => Err(reason.clone()),
        }
    }

    /// Says what is wrong with where a client comes from, if its certificate says
    /// where it should.
    pub(crate) async fn check_address(
        &self,
        connection: &ServerConnection,
        address: Option<IpAddr>,
    ) -> Result<(), String> {
        match (self.files.check_address, address, leaf(connection)) {
            (true, Some(address), Some(leaf)) => verify::address(leaf, address).await,
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change to it is one assignment; a panic leaves none half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn leaf(connection: &ServerConnection) -> Option<&[u8]> {
    Some(connection.peer_certificates()?.first()?.as_ref())
}

/// Returns the common name in the certificate a client showed. Only certificates
/// that were believed get this far.
pub(crate) fn peer_common_name(connection: &ServerConnection) -> Option<String> {
    verify::common_name(leaf(connection)?)
}
