//! Starting and stopping a member: its directory, its threads, its listeners.

use std::{
    net::SocketAddr,
    sync::{Arc, mpsc},
    thread,
};

use disk::{DataDir, Rows};
use member::{Input, Member};
use tokio::sync::oneshot;

use crate::{
    accept,
    auth::{AuthToken, Caller, Jwt},
    config::{Config, StartError},
    core::{Core, Parts, request_timeout},
    driver,
    edge::Edge,
    handle::Handle,
    identity::{self, Known},
    listen::{self, Bound, Door},
    metrics::Metrics,
    shared::Shared,
    store::{self, Beginning, Store},
    threads::{self, LogJob, Report, RowsJob},
    tls::{self, Certificates, Side},
};

/// Starts members.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts a member on a thread of its own and returns once it leads and serves.
    pub async fn start(config: Config) -> Result<Running, StartError> {
        let (tell, told) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("kvstore".to_owned())
            .spawn(move || run(config, tell))
            .map_err(|source| StartError::System {
                what: "the member's thread",
                source,
            })?;
        let started = told.await.unwrap_or(Err(StartError::Stopped));
        let Started {
            addrs,
            handle,
            ended,
        } = match started {
            Ok(started) => started,
            Err(error) => {
                // It has nothing left to do but return, and frees the directory.
                let _ended = thread.join();
                return Err(error);
            }
        };
        let of = |wanted: fn(&Door) -> bool| {
            let found = addrs.iter().filter(|(door, _)| wanted(door));
            found.map(|(_, addr)| *addr).collect::<Vec<_>>()
        };
        let client_addrs = of(|door| matches!(door, Door::Clients { .. }));
        Ok(Running {
            client_addr: client_addrs.first().copied(),
            client_addrs,
            http_addrs: of(|door| *door == Door::Http),
            metrics_addrs: of(|door| *door == Door::Metrics),
            peer_addrs: of(|door| *door == Door::Peers),
            handle,
            thread: Some(thread),
            ended: Some(ended),
        })
    }
}

/// A member that runs on its own threads until it is shut down or dropped.
///
/// Dropping it ends its threads without writing rows back first, as losing power
/// would, and frees the directory; what was acknowledged is in the log.
#[derive(Debug)]
pub struct Running {
    /// Where clients are served, with the real port; none without a client URL.
    pub client_addr: Option<SocketAddr>,
    /// All addresses where clients are served.
    pub client_addrs: Vec<SocketAddr>,
    /// Where clients are served over plain HTTP only.
    pub http_addrs: Vec<SocketAddr>,
    /// Where metrics and health are served in addition.
    pub metrics_addrs: Vec<SocketAddr>,
    /// Where peers are served.
    pub peer_addrs: Vec<SocketAddr>,
    /// The way in without a socket.
    pub handle: Handle,
    thread: Option<thread::JoinHandle<()>>,
    ended: Option<oneshot::Receiver<()>>,
}

impl Running {
    /// Stops serving, brings everything to disk and returns when it is there.
    pub async fn shutdown(mut self) {
        self.handle
            .shared
            .write_back_at_end
            .store(true, std::sync::atomic::Ordering::Release);
        self.handle.shared.stop.cancel();
        self.wait().await;
    }

    /// Waits until the member has stopped.
    pub async fn wait(&mut self) {
        if let Some(ended) = &mut self.ended {
            // Either way its work is over.
            let _dropped = ended.await;
            self.ended = None;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.shared.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It answers within one sync of the disk. A panic in it was logged.
            let _panicked = thread.join();
        }
    }
}

struct Started {
    /// What is bound, but for sockets in the file system.
    addrs: Vec<(Door, SocketAddr)>,
    handle: Handle,
    ended: oneshot::Receiver<()>,
}

/// The member's thread: everything from opening its files to closing them.
fn run(config: Config, tell: oneshot::Sender<Result<Started, StartError>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(source) => {
            let _gone = tell.send(Err(StartError::System {
                what: "the member's runtime",
                source,
            }));
            return;
        }
    };
    let (end, ended) = oneshot::channel();
    let opened = runtime.block_on(async { Open::all(config) });
    let open = match opened {
        Ok(open) => open,
        Err(error) => {
            let _gone = tell.send(Err(error));
            return;
        }
    };
    let Open {
        shared,
        listeners,
        threads,
        dir,
    } = open;
    runtime.block_on(async {
        let handle = Handle { shared: Arc::clone(&shared), caller: Caller::Internal };
        lead(&shared).await;
        publish(&shared).await;
        let addrs: Vec<_> = listeners
            .iter()
            .filter_map(|(bound, _)| Some((bound.door, bound.addr()?)))
            .collect();
        let clients = listeners.iter().filter(|(bound, _)| matches!(bound.door, Door::Clients { .. }));
        let addresses: Vec<_> = clients.map(|(bound, _)| bound.address()).collect();
        let driver = tokio::spawn(driver::drive(Arc::clone(&shared)));
        let edge = Edge::new(handle.clone());
        let edges: Vec<_> = listeners
            .into_iter()
            .map(|(bound, tls)| tokio::spawn(accept::serve(bound, tls, Arc::clone(&edge))))
            .collect();
        tracing::info!(addresses = %format!("[{}]", addresses.join(", ")), member = %format!("{:x}", shared.ids.member), "ready to serve client requests");
        let gone = tell.send(Ok(Started { addrs, handle, ended })).is_err();
        if gone {
            // Whoever started the member did not wait for it.
            shared.stop.cancel();
        }
        shared.stop.cancelled().await;
        // Calls under way fail now, so that their connections end.
        let core = shared.remove();
        let _panicked = futures::future::join_all(edges).await;
        let _panicked = driver.await;
        threads.end(core, &shared);
    });
    // Connections that did not end in time go with the runtime, before the lock.
    drop(runtime);
    drop(dir);
    let _gone = end.send(());
}

/// Takes turns until this member leads and has applied its whole log.
async fn lead(shared: &Shared) {
    loop {
        let leads = shared
            .with(|core| core.member.leads_alone())
            .unwrap_or(true);
        if leads {
            return;
        }
        shared.wake.notified().await;
        if driver::take_turn(shared, shared.now()) {
            shared.wake.notify_one();
        }
    }
}

/// Tells the others, if it is new, what this member says of itself, and waits until
/// it has applied that (etcd: publishV3).
async fn publish(shared: &Shared) {
    let said = || {
        let config = &shared.config;
        let urls = shared.client_urls.get().cloned().unwrap_or_default();
        (config.name.clone(), urls)
    };
    let known = |core: &mut Core| {
        let member = core.machine.membership().get(shared.ids.member);
        member.is_none_or(|m| (m.name.clone(), m.client_urls.clone()) == said())
    };
    if shared.with(known).unwrap_or(true) {
        return;
    }
    let (name, client_urls) = said();
    let id = shared.ids.member;
    let publish = mvcc::MemberCommand::Publish {
        id,
        name,
        client_urls,
    };
    let publish = mvcc::Command::Member(publish);
    if shared.with(|core| core.propose_unasked(publish)).is_err() {
        // It is stopping.
        return;
    }
    loop {
        driver::take_turn(shared, shared.now());
        if shared.with(known).unwrap_or(true) {
            return;
        }
        shared.wake.notified().await;
    }
}

/// Everything that is open while a member runs.
struct Open {
    shared: Arc<Shared>,
    listeners: Vec<(Bound, Option<Arc<Certificates>>)>,
    threads: Threads,
    dir: DataDir,
}

impl Open {
    /// Binds and reads certificates, then opens the directory, so that a port in use
    /// or a file that is missing changes nothing.
    fn all(mut config: Config) -> Result<Self, StartError> {
        if !disk::in_use(&config.data_dir) {
            identity::first(&config)?;
        }
        let jwt = signer(&config)?;
        let bound = listen::bind_all(&config)?;
        let given = |side, files: &Option<crate::TlsFiles>| {
            let files = files.clone();
            let open = |files| Certificates::open(side, files, config.tls_rules.clone());
            files.map(open).transpose().map(|open| open.map(Arc::new))
        };
        let mut client = given(Side::Client, &config.client_tls)?;
        let mut peer = given(Side::Peer, &config.peer_tls)?;
        let dir = DataDir::open_with_log(&config.data_dir, config.wal_dir.as_deref())?;
        client = make_own(Side::Client, config.auto_tls.client, client, &config)?;
        peer = make_own(Side::Peer, config.auto_tls.peer, peer, &config)?;
        let listeners = bound.into_iter().map(|bound| {
            let certificates = match bound.door {
                Door::Peers => &peer,
                _ => &client,
            };
            let certificates = certificates.clone().filter(|_| bound.tls);
            (bound, certificates)
        });
        let listeners: Vec<_> = listeners.collect();
        let known = Known::settle(&config, &dir)?;
        config
            .initial_advertise_peer_urls
            .clone_from(&known.peer_urls);
        let mut advertised = config.advertise_client_urls.clone();
        if advertised.is_empty() {
            let clients = listeners
                .iter()
                .filter(|(bound, _)| matches!(bound.door, Door::Clients { .. }));
            advertised.extend(clients.flat_map(|(bound, _)| bound.urls()));
        }
        let metrics = Metrics::new(&config, known.ids.member);
        let shared = Arc::new(Shared::new(config, known.ids, metrics, jwt));
        let _first = shared.client_urls.set(advertised);
        let threads = open_core(&shared, &dir)?;
        known.note(&dir)?;
        Ok(Self {
            shared,
            listeners,
            threads,
            dir,
        })
    }
}

/// Makes a side's certificates if it wants its own and was given none.
fn make_own(
    side: Side,
    wanted: bool,
    given: Option<Arc<Certificates>>,
    config: &Config,
) -> Result<Option<Arc<Certificates>>, StartError> {
    if given.is_some() || !wanted {
        return Ok(given);
    }
    let urls = match side {
        Side::Client => [
            &config.listen_client_urls[..],
            &config.listen_client_http_urls,
        ]
        .concat(),
        Side::Peer => config.listen_peer_urls.clone(),
    };
    let hosts = listen::hosts(&urls);
    let files = tls::ensure_files(side, &config.data_dir, &hosts, config.auto_tls.years)?;
    let made = Certificates::open(side, files, config.tls_rules.clone())?;
    Ok(Some(Arc::new(made)))
}

/// Loads the keys of signed tokens, if tokens are to be signed.
fn signer(config: &Config) -> Result<Option<Arc<Jwt>>, StartError> {
    let AuthToken::Jwt(options) = &config.auth_token else {
        return Ok(None);
    };
    match Jwt::load(options) {
        Ok(jwt) => Ok(Some(Arc::new(jwt))),
        Err(reason) => Err(StartError::Flag {
            flag: "auth-token",
            reason,
        }),
    }
}

/// Reads log and rows back, starts the disk threads, and stands for election.
fn open_core(shared: &Arc<Shared>, dir: &DataDir) -> Result<Threads, StartError> {
    let config = &shared.config;
    let Store {
        rows,
        machine,
        wal,
        recovered,
    } = Store::open(
        config,
        shared.ids,
        dir,
        Beginning::New(first_members(shared)),
    )?;
    let applied = machine.applied_index();
    tracing::info!(
        revision = machine.revision(),
        applied,
        entries = recovered.last_index().saturating_sub(applied),
        "opened the store",
    );
    let member = Member::new(member_config(shared, &machine), recovered).map_err(|source| {
        StartError::Member {
            dir: config.data_dir.clone(),
            source,
        }
    })?;

    let reporter = Arc::clone(shared);
    let report: Report = Arc::new(move |done| reporter.report(done));
    let (log, log_jobs) = mpsc::channel();
    let (rows_sender, rows_jobs) = mpsc::channel();
    let metrics = &shared.metrics;
    let log_thread = threads::start_log(
        wal,
        log_jobs,
        log.clone(),
        Arc::clone(&report),
        Arc::clone(metrics),
    )?;
    let rows_thread = threads::start_rows(rows.clone(), rows_jobs, report, Arc::clone(metrics))?;
    let mut core = Core::new(
        Parts {
            member,
            machine,
            log: log.clone(),
            rows_jobs: rows_sender.clone(),
            metrics: Arc::clone(metrics),
            proposal_ids: Arc::clone(&shared.proposal_ids),
            applied: Arc::clone(&shared.applied),
            auth_on: Arc::clone(&shared.auth_on),
        },
        config,
    );
    let now = shared.now();
    core.step(Input::Covered(applied), now);
    // Nobody else can: a lone voter need not wait for an election timeout.
    core.step(Input::Campaign, now);
    shared.install(core);
    Ok(Threads {
        log,
        rows_sender,
        log_thread,
        rows_thread,
        rows,
    })
}

/// Returns the members that a store begins with: this one.
fn first_members(shared: &Shared) -> mvcc::Membership {
    let config = &shared.config;
    let member = mvcc::MemberInfo {
        id: shared.ids.member,
        name: config.name.clone(),
        peer_urls: config.initial_advertise_peer_urls.clone(),
        client_urls: shared.client_urls.get().cloned().unwrap_or_default(),
        learner: false,
    };
    mvcc::Membership::new(shared.ids.cluster, [member])
}

fn member_config(shared: &Shared, machine: &mvcc::StateMachine) -> member::Config {
    let config = &shared.config;
    let ticks = config.election_timeout.as_millis() / config.heartbeat_interval.as_millis().max(1);
    member::Config {
        id: shared.ids.member,
        conf_state: store::for_raft(machine.membership().conf_state()),
        boot_id: rand::random(),
        applied: machine.applied_index(),
        election_ticks: usize::try_from(ticks).unwrap_or(10).max(2),
        heartbeat_ticks: 1,
        pre_vote: config.pre_vote,
        seed: rand::random(),
        read_retry: config.election_timeout / 2,
        read_timeout: request_timeout(config),
        catch_up_entries: 5_000,
    }
}

/// The threads that write to disk.
struct Threads {
    log: mpsc::Sender<LogJob>,
    rows_sender: mpsc::Sender<RowsJob>,
    log_thread: thread::JoinHandle<()>,
    rows_thread: thread::JoinHandle<()>,
    rows: Rows,
}

impl Threads {
    /// Ends the threads and closes the files. Everything is written back first if
    /// the member was told to shut down.
    fn end(self, core: Option<Core>, shared: &Shared) {
        let _ended = self.log.send(LogJob::Stop);
        let _ended = self.rows_sender.send(RowsJob::Stop);
        // A panic in them was logged; the files are as after losing power.
        let _panicked = self.log_thread.join();
        let _panicked = self.rows_thread.join();
        let Some(mut core) = core else { return };
        if shared
            .write_back_at_end
            .load(std::sync::atomic::Ordering::Acquire)
        {
            core.settle_reports(shared.reported());
            if let Err(error) = store::write_everything_back(&mut core.machine, &self.rows) {
                // The log has it all; the next start replays it.
                tracing::warn!(%error, "could not write rows back while stopping");
            }
        }
    }
}
