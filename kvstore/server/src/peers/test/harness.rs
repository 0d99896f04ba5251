//! Members that consist of links only, and record what comes over them.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proto::peer as pb;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{
    TlsFiles, TlsRules,
    identity::Ids,
    peers::{Address, Dialler, Meters, Note, Peers, PeersConfig, Sink, SnapshotBody},
    tls::{Certificates, ClientTls, Side, Trust},
};

/// How long anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(20);

/// Short, so that a link that is gone is noticed within a second.
pub(super) const ELECTION: Duration = Duration::from_millis(200);

pub(super) const CLUSTER: u64 = 0xc0ffee;

type SnapshotFn = dyn Fn(Bytes, SnapshotBody) -> futures::future::BoxFuture<'static, Result<(), Status>>
    + Send
    + Sync;

/// Writes down what a member hears.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) heard: Mutex<Heard>,
    changed: Notify,
    pub(super) on_snapshot: Mutex<Option<Arc<SnapshotFn>>>,
    /// Who it says the members are.
    pub(super) members: Mutex<Vec<pb::Member>>,
}

#[derive(Default)]
pub(super) struct Heard {
    pub(super) notes: Vec<(u64, Note)>,
    /// How often notes came.
    pub(super) batches: usize,
    pub(super) unreachable: BTreeMap<u64, usize>,
    pub(super) linked: BTreeMap<u64, usize>,
    pub(super) removed: Vec<u64>,
}

impl Recorder {
    fn note<T>(&self, f: impl FnOnce(&mut Heard) -> T) -> T {
        let done = f(&mut self.heard.lock().unwrap());
        self.changed.notify_one();
        done
    }

    /// Waits until what was heard is as it should be.
    pub(super) async fn until(&self, what: &str, f: impl Fn(&Heard) -> bool) {
        until(what, || f(&self.heard.lock().unwrap()), &self.changed).await;
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        let heard = self.heard.lock().unwrap();
        let ids = heard.notes.iter().map(|(_, note)| match note {
            Note::Forward { id, .. } => *id,
            other => panic!("{other:?}"),
        });
        ids.collect()
    }
}

/// Waits for a condition; asks again whenever something changed, and now and then.
async fn until(what: &str, f: impl Fn() -> bool, changed: &Notify) {
    let waiting = async {
        while !f() {
            let _again = tokio::time::timeout(Duration::from_millis(10), changed.notified()).await;
        }
    };
    let done = tokio::time::timeout(DEADLINE, waiting).await;
    assert!(done.is_ok(), "never: {what}");
}

/// Waits for a condition.
pub(super) async fn eventually(what: &str, f: impl Fn() -> bool) {
    until(what, f, &Notify::new()).await;
}

#[tonic::async_trait]
impl Sink for Recorder {
    fn notes(&self, from: u64, notes: Vec<Note>) {
        self.note(|heard| {
            heard.batches += 1;
            heard
                .notes
                .extend(notes.into_iter().map(|note| (from, note)));
        });
    }

    fn unreachable(&self, peer: u64) {
        self.note(|heard| *heard.unreachable.entry(peer).or_default() += 1);
    }

    fn linked(&self, peer: u64) {
        self.note(|heard| *heard.linked.entry(peer).or_default() += 1);
    }

    fn removed(&self, by: u64) {
        self.note(|heard| heard.removed.push(by));
    }

    async fn snapshot(&self, _from: u64, head: Bytes, body: SnapshotBody) -> Result<(), Status> {
        let how = self.on_snapshot.lock().unwrap().clone();
        how.expect("a test that sends snapshots says how to take them")(head, body).await
    }

    async fn lease_renew(&self, id: i64) -> Result<i64, Status> {
        match id {
            0 => Err(Status::not_found("etcdserver: requested lease not found")),
            id => Ok(id * 2),
        }
    }

    async fn lease_time_to_live(
        &self,
        request: pb::LeaseTimeToLiveRequest,
    ) -> Result<pb::LeaseTimeToLiveReply, Status> {
        Ok(pb::LeaseTimeToLiveReply {
            ttl: request.id,
            granted_ttl: 9,
            keys: vec![Bytes::from_static(b"k"); usize::from(request.keys)],
        })
    }

    async fn hash_kv(&self, revision: i64) -> Result<pb::HashKvReply, Status> {
        if revision < 0 {
            // One that takes for ever.
            std::future::pending::<()>().await;
        }
        Ok(pb::HashKvReply {
            hash: 7,
            hash_revision: revision,
            ..pb::HashKvReply::default()
        })
    }

    async fn members(&self) -> Result<pb::MembersReply, Status> {
        Ok(pb::MembersReply {
            cluster_id: CLUSTER,
            members: self.members.lock().unwrap().clone(),
            ..pb::MembersReply::default()
        })
    }

    async fn change_membership(&self, change: Bytes) -> Result<Bytes, Status> {
        Ok([&change[..], b" done"].concat().into())
    }

    async fn status(&self) -> Result<pb::StatusReply, Status> {
        Ok(pb::StatusReply {
            term: 5,
            ..pb::StatusReply::default()
        })
    }
}

/// How a member is to be.
#[derive(Clone)]
pub(super) struct Spec {
    pub(super) id: u64,
    pub(super) cluster: u64,
    /// Its port; zero is any.
    pub(super) port: u16,
    pub(super) tls: Option<(TlsFiles, Trust)>,
}

impl Spec {
    pub(super) fn of(id: u64) -> Self {
        Self {
            id,
            cluster: CLUSTER,
            port: 0,
            tls: None,
        }
    }
}

/// A member.
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) peers: Peers,
    pub(super) sink: Arc<Recorder>,
    pub(super) addr: SocketAddr,
    pub(super) url: String,
    stop: CancellationToken,
}

impl Node {
    pub(super) async fn start(spec: Spec) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", spec.port)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let scheme = if spec.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{}", addr.port());
        let (files, trust) = match &spec.tls {
            Some((files, trust)) => (Some(files.clone()), *trust),
            None => (None, Trust::Authorities),
        };
        let rules = TlsRules::default;
        let tls = ClientTls::open(Side::Peer, files.clone(), rules(), trust).unwrap();
        let certificates =
            files.map(|files| Arc::new(Certificates::open(Side::Peer, files, rules()).unwrap()));
        let stop = CancellationToken::new();
        let peers = Peers::new(PeersConfig {
            ids: Ids {
                member: spec.id,
                cluster: spec.cluster,
            },
            peer_urls: vec![url.clone()],
            election_timeout: ELECTION,
            dialler: Dialler {
                tls: Arc::new(tls),
                timeout: Duration::from_secs(1),
            },
            meters: Meters::default(),
            stop: stop.clone(),
        });
        let sink = Arc::new(Recorder::default());
        let weak = Arc::downgrade(&sink);
        peers.start(weak);
        tokio::spawn(serve(listener, certificates, peers.clone(), stop.clone()));
        Self {
            id: spec.id,
            peers,
            sink,
            addr,
            url,
            stop,
        }
    }

    pub(super) fn dialler(&self) -> Dialler {
        self.peers.inner.dialler.clone()
    }

    pub(super) fn address(&self) -> Address {
        Address {
            id: self.id,
            urls: vec![self.url.clone()],
        }
    }

    /// Tells it who the members are.
    pub(super) fn knows(&self, members: &[Address]) {
        self.peers.update(members, &BTreeSet::new());
    }

    pub(super) fn forward(&self, to: u64, id: u64, bytes: usize) -> Result<(), super::Undelivered> {
        let data = Bytes::from(vec![0; bytes]);
        self.peers.send(to, Note::Forward { id, data })
    }

    pub(super) async fn linked(&self, to: u64) {
        let what = format!("{} linked to {to}", self.id);
        eventually(&what, || self.peers.active_for(to).is_some()).await;
    }

    pub(super) async fn cut_off(&self, from: u64) {
        let what = format!("{} cut off from {from}", self.id);
        eventually(&what, || self.peers.active_for(from).is_none()).await;
    }

    /// Ends it as a crash would; what connects to its port is refused then.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        let addr = self.addr;
        let gone = async { while TcpStream::connect(addr).await.is_ok() {} };
        tokio::time::timeout(DEADLINE, gone).await.unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(
    listener: TcpListener,
    certificates: Option<Arc<Certificates>>,
    peers: Peers,
    stop: CancellationToken,
) {
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted.unwrap().0,
        };
        let (peers, stop, certificates) = (peers.clone(), stop.clone(), certificates.clone());
        tokio::spawn(async move {
            let conversing = async {
                match certificates {
                    None => converse(stream, peers).await,
                    Some(certificates) => {
                        let config = certificates.current().unwrap();
                        let acceptor = tokio_rustls::TlsAcceptor::from(config);
                        if let Ok(stream) = acceptor.accept(stream).await {
                            converse(stream, peers).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = conversing => {}
            }
        });
    }
}

async fn converse<T>(stream: T, peers: Peers)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let peers = peers.clone();
        async move { Ok::<_, Infallible>(peers.answer(request).await) }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service);
    let _ended = connection.await;
}

/// A network between two members that can be made to stand still.
pub(super) struct Wire {
    pub(super) url: String,
    frozen: watch::Sender<bool>,
}

impl Wire {
    pub(super) async fn to(addr: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (frozen, is_frozen) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(addr).await else {
                    continue;
                };
                let ((near_read, near_write), (far_read, far_write)) =
                    (near.into_split(), far.into_split());
                tokio::spawn(pump(near_read, far_write, is_frozen.clone()));
                tokio::spawn(pump(far_read, near_write, is_frozen.clone()));
            }
        });
        Self { url, frozen }
    }

    /// From now on nothing is read and nothing is passed on.
    pub(super) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut frozen: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        if frozen.wait_for(|frozen| !frozen).await.is_err() {
            return;
        }
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            Ok(()) = frozen.changed() => continue,
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                if to.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// An authority that signs certificates for 127.0.0.1.
pub(super) struct Ca {
    dir: tempfile::TempDir,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Ca {
    pub(super) fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let dir = tempfile::tempdir().unwrap();
        let cert = params.self_signed(&key).unwrap().pem();
        std::fs::write(dir.path().join("ca.crt"), cert).unwrap();
        let issuer = rcgen::Issuer::new(params, key);
        Self { dir, issuer }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Signs a certificate for a host, and writes it down under a name.
    pub(super) fn files(&self, name: &str, host: &str) -> TlsFiles {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![host.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        let (cert_file, key_file) = (
            self.path(&format!("{name}.crt")),
            self.path(&format!("{name}.key")),
        );
        std::fs::write(&cert_file, cert).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        TlsFiles {
            cert_file,
            key_file,
            trusted_ca_file: Some(self.path("ca.crt")),
            ..TlsFiles::default()
        }
    }
}
