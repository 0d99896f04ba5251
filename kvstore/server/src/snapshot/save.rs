//! A snapshot of a running member, ours or etcd's, into a file (etcdctl's
//! `snapshot save`).
//!
//! It arrives beside its place and is moved there when the member's hash was
//! found right and all of it is on disk.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use disk::{Disk as _, RealDisk};
use proto::etcdserverpb::{
    self as pb, auth_client::AuthClient, maintenance_client::MaintenanceClient,
};
use sha2::{Digest as _, Sha256};
use tonic::{
    Request,
    metadata::MetadataValue,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::{
    Progress,
    error::{SnapshotError, hex},
    file::{HASH_BYTES, has_hash},
};

/// How long a member may take to answer the call for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest message taken; etcd sends 32 KiB.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Says whom to ask, and where to put it.
#[derive(Clone)]
pub struct Save {
    /// The member, as a URL or `host:port`.
    pub endpoint: String,
    /// The file to make.
    pub file: PathBuf,
    /// Certificates the member's must be signed by, PEM; makes `https` the default.
    pub cacert: Option<PathBuf>,
    /// The client's certificate and key, PEM.
    pub cert: Option<(PathBuf, PathBuf)>,
    /// A user and the password.
    pub user: Option<(String, String)>,
}

/// Tells what was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The bytes of the file.
    pub bytes: u64,
    /// The version of the member's schema; empty before etcd 3.6.
    pub version: String,
}

/// Saves a snapshot.
pub async fn save(order: &Save, progress: &mut Progress<'_>) -> Result<Saved, SnapshotError> {
    let mut part = order.file.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let saved = order.fetch(&part, progress).await.and_then(|saved| {
        let (from, to) = (&part, &order.file);
        fs::rename(from, to).map_err(SnapshotError::io("rename to", to))?;
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        RealDisk
            .sync_dir(parent)
            .map_err(SnapshotError::io("sync", parent))?;
        Ok(saved)
    });
    if saved.is_err() {
        // It may not have been made at all.
        let _gone = fs::remove_file(&part);
    }
    saved
}

impl Save {
    async fn fetch(
        &self,
        part: &Path,
        progress: &mut Progress<'_>,
    ) -> Result<Saved, SnapshotError> {
        let channel = self.connect().await?;
        let mut request = Request::new(pb::SnapshotRequest {});
        if let Some(token) = self.token(&channel).await? {
            request.metadata_mut().insert("token", token);
        }
        let mut client =
            MaintenanceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let said = |status: tonic::Status| self.failed(status.message());
        let mut stream = client.snapshot(request).await.map_err(said)?.into_inner();
        // The same rights as etcdctl gives it: there are passwords' hashes in it.
        let mut out = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(part)
            .map_err(SnapshotError::io("create", part))?;
        let write = || SnapshotError::io("write", part);
        let mut arriving = Arriving::default();
        let mut version = String::new();
        while let Some(message) = stream.message().await.map_err(said)? {
            out.write_all(&message.blob).map_err(write())?;
            arriving.take(&message.blob);
            version = message.version;
            progress(arriving.bytes, arriving.bytes + message.remaining_bytes);
        }
        arriving.check(&self.endpoint)?;
        out.sync_all().map_err(SnapshotError::io("sync", part))?;
        Ok(Saved {
            bytes: arriving.bytes,
            version,
        })
    }

    async fn connect(&self) -> Result<Channel, SnapshotError> {
        let tls = self.cacert.is_some() || self.cert.is_some();
        let url = match self.endpoint.contains("://") {
            true => self.endpoint.clone(),
            false if tls => format!("https://{}", self.endpoint),
            false => format!("http://{}", self.endpoint),
        };
        let secure = url.starts_with("https://");
        let mut endpoint = Endpoint::from_shared(url)
            .map_err(|error| self.failed(&error.to_string()))?
            .connect_timeout(CONNECT_TIMEOUT);
        if secure {
            let config = self.tls_config()?;
            endpoint = endpoint
                .tls_config(config)
                .map_err(|error| self.failed(&whole(&error)))?;
        }
        endpoint
            .connect()
            .await
            .map_err(|error| self.failed(&whole(&error)))
    }

    fn tls_config(&self) -> Result<ClientTlsConfig, SnapshotError> {
        let read = |path: &PathBuf| fs::read(path).map_err(SnapshotError::io("read", path));
        let mut config = ClientTlsConfig::new();
        if let Some(cacert) = &self.cacert {
            config = config.ca_certificate(Certificate::from_pem(read(cacert)?));
        }
        if let Some((cert, key)) = &self.cert {
            config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        Ok(config)
    }

    /// Exchanges user and password for a token.
    async fn token(
        &self,
        channel: &Channel,
    ) -> Result<Option<MetadataValue<tonic::metadata::Ascii>>, SnapshotError> {
        let Some((name, password)) = &self.user else {
            return Ok(None);
        };
        let request = pb::AuthenticateRequest {
            name: name.clone(),
            password: password.clone(),
        };
        let answer = AuthClient::new(channel.clone()).authenticate(request).await;
        let answer = answer.map_err(|status| self.failed(status.message()))?;
        let token = answer.into_inner().token;
        let token = token.parse();
        token
            .map(Some)
            .map_err(|_odd| self.failed("its token is no text"))
    }

    fn failed(&self, reason: &str) -> SnapshotError {
        SnapshotError::Member {
            endpoint: self.endpoint.clone(),
            reason: reason.to_owned(),
        }
    }
}

/// Writes an error with what caused it.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Hashes what arrives, but for the last bytes, which are the member's hash.
#[derive(Default)]
struct Arriving {
    hash: Sha256,
    last: Vec<u8>,
    bytes: u64,
}

impl Arriving {
    fn take(&mut self, blob: &[u8]) {
        self.bytes += blob.len() as u64;
        self.last.extend_from_slice(blob);
        let hashed = self.last.len().saturating_sub(HASH_BYTES as usize);
        self.hash.update(&self.last[..hashed]);
        self.last.drain(..hashed);
    }

    fn check(&mut self, endpoint: &str) -> Result<(), SnapshotError> {
        let found = self.hash.finalize_reset();
        if has_hash(self.bytes) && found.as_slice() == self.last {
            return Ok(());
        }
        Err(SnapshotError::Arrived {
            endpoint: endpoint.to_owned(),
            expected: hex(&self.last),
            found: hex(&found),
        })
    }
}
