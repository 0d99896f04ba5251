//! From a configuration to a member that runs: its directory, its links, its threads.

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use disk::{DataDir, Rows};
use member::{Input, Member};

use crate::{
    auth::{AuthToken, Jwt},
    config::{Config, StartError},
    core::{Core, Parts, request_timeout},
    identity::Known,
    join,
    listen::{self, Bound, Door},
    metrics::Metrics,
    peers::{Address, Dialler, Links, Peers, PeersConfig, Sink},
    shared::Shared,
    sink::Inlet,
    store::{self, Beginning, Place, Store, for_raft},
    threads::{self, LogJob, LogWorker, Report, RowsJob, RowsWorker},
    tls::{self, Certificates, ClientTls, Side, Trust},
    world::World,
};

/// How long dialling a peer may take at most; less if elections are quick.
const DIAL_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// Everything that is open while a member runs.
pub(crate) struct Open {
    pub(crate) shared: Arc<Shared>,
    pub(crate) listeners: Vec<(Bound, Option<Arc<Certificates>>)>,
    pub(crate) threads: Threads,
    pub(crate) dir: DataDir,
    /// What takes in what peers send, as long as it is held.
    pub(crate) inlet: Arc<Inlet>,
}

impl Open {
    /// Binds and reads certificates, then opens the directory, so that a port in use
    /// or a file that is missing changes nothing.
    pub(crate) async fn all(mut config: Config) -> Result<Self, StartError> {
        if !disk::in_use(&config.data_dir) && !config.initial_cluster_existing {
            join::new_cluster(&config)?;
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
        let dialler = dialler(&config)?;
        let (known, first) = begin(&config, &dir, &dialler).await?;
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
        let shared = Arc::new(Shared::new(
            config,
            known.ids,
            metrics,
            jwt,
            World::machine(),
        ));
        let _first = shared.client_urls.set(advertised);
        let inlet = Arc::new(Inlet::new(Arc::clone(&shared), dir.home()));
        let peers = link(&shared, dialler, &inlet, &first);
        let threads = open_core(&shared, &dir, peers, &first)?;
        known.note(&dir)?;
        Ok(Self {
            shared,
            listeners,
            threads,
            dir,
            inlet,
        })
    }
}

/// Finds out who this member is and, if it has no data, whom it begins with.
async fn begin(
    config: &Config,
    dir: &DataDir,
    dialler: &Dialler,
) -> Result<(Known, join::Start), StartError> {
    if let Some(known) = Known::of_data(config, dir)? {
        return Ok((known, join::Start::Again));
    }
    let (beginning, start): (_, fn(_) -> _) = match config.initial_cluster_existing {
        true => (
            join::existing_cluster(config, dialler).await?,
            join::Start::Joining,
        ),
        false => {
            let beginning = join::new_cluster(config)?;
            join::check_not_bootstrapped(config, &beginning, dialler).await?;
            (beginning, join::Start::New)
        }
    };
    let known = Known::new(beginning.ids, &config.initial_advertise_peer_urls);
    Ok((known, start(beginning)))
}

/// Says how peers are dialled.
fn dialler(config: &Config) -> Result<Dialler, StartError> {
    let own = config.auto_tls.peer && config.peer_tls.is_none();
    let (files, trust) = match own {
        // Whoever made its certificates itself is believed by nobody who looks.
        true => (
            Some(tls::own_files(Side::Peer, &config.data_dir)),
            Trust::Anybody,
        ),
        false => (config.peer_tls.clone(), Trust::Authorities),
    };
    let tls = ClientTls::open(Side::Peer, files, config.tls_rules.clone(), trust)?;
    Ok(Dialler {
        tls: Arc::new(tls),
        timeout: config.election_timeout.min(DIAL_TIMEOUT_MAX),
    })
}

/// Makes the links to the members this one begins with. Those it has applied follow
/// once the store is open.
fn link(shared: &Arc<Shared>, dialler: Dialler, inlet: &Arc<Inlet>, first: &join::Start) -> Peers {
    let peers = Peers::new(PeersConfig {
        ids: shared.ids,
        peer_urls: shared.config.initial_advertise_peer_urls.clone(),
        election_timeout: shared.config.election_timeout,
        dialler,
        meters: shared.metrics.network.clone(),
        stop: shared.stop.clone(),
    });
    let weak = Arc::downgrade(inlet);
    let weak: std::sync::Weak<dyn Sink> = weak;
    peers.start(weak);
    if let join::Start::Joining(beginning) = first {
        let addresses: Vec<_> = beginning
            .members
            .iter()
            .map(|member| Address {
                id: member.id,
                urls: member.peer_urls.clone(),
            })
            .collect();
        peers.update(&addresses, &BTreeSet::new());
    }
    let _first = shared.peers.set(peers.clone());
    peers
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

/// Reads log and rows back, starts the disk threads, and, if nobody else can lead,
/// stands for election.
fn open_core(
    shared: &Arc<Shared>,
    dir: &DataDir,
    peers: Peers,
    first: &join::Start,
) -> Result<Threads, StartError> {
    let beginning = match first {
        join::Start::New(beginning) => {
            let urls = shared.client_urls.get().map_or(&[][..], Vec::as_slice);
            Beginning::New(beginning.membership(urls))
        }
        join::Start::Joining(_) | join::Start::Again => Beginning::Joining,
    };
    let place = Place::of(dir, &shared.config);
    let built = build(shared, &place, Arc::new(peers), beginning)?;
    let log_thread = threads::start_log(built.log_worker, built.log.clone())?;
    let rows_thread = threads::start_rows(built.rows_worker)?;
    shared.install(built.core);
    Ok(Threads {
        log: built.log,
        rows_sender: built.rows,
        log_thread,
        rows_thread,
    })
}

/// A core that has been brought up from its data, and what works for it.
pub(crate) struct Built {
    /// To be installed once its workers can work.
    pub(crate) core: Core,
    pub(crate) log: mpsc::Sender<LogJob>,
    pub(crate) log_worker: LogWorker,
    pub(crate) rows: mpsc::Sender<RowsJob>,
    pub(crate) rows_worker: RowsWorker,
}

/// Reads log and rows back and, if nobody else can lead, stands for election.
pub(crate) fn build(
    shared: &Arc<Shared>,
    place: &Place,
    peers: Arc<dyn Links>,
    beginning: Beginning,
) -> Result<Built, StartError> {
    let config = &shared.config;
    let Store {
        rows,
        machine,
        wal,
        recovered,
    } = Store::open(config, shared.ids, place, beginning)?;
    let applied = machine.applied_index();
    tracing::info!(
        revision = machine.revision(),
        applied,
        entries = recovered.last_index().saturating_sub(applied),
        "opened the store",
    );
    let conf_state = for_raft(machine.membership().conf_state());
    let lone = conf_state.is_lone(shared.ids.member);
    let member = make_member(shared, applied, conf_state, recovered)?;

    let reporter = Arc::clone(shared);
    let report: Report = Arc::new(move |done| reporter.report(done));
    let (log, log_jobs) = mpsc::channel();
    let (rows_sender, rows_jobs) = mpsc::channel();
    let log_worker = LogWorker {
        wal,
        home: place.home.clone(),
        jobs: log_jobs,
        report: Arc::clone(&report),
        metrics: Arc::clone(&shared.metrics),
    };
    let metrics = Arc::clone(&shared.metrics);
    let rows_worker = RowsWorker::new(rows, place.home.clone(), rows_jobs, report, metrics);
    let mut core = Core::new(
        Parts {
            ids: shared.ids,
            member,
            machine,
            peers,
            rows_path: place.rows.clone(),
            log: log.clone(),
            rows_jobs: rows_sender.clone(),
            metrics: Arc::clone(&shared.metrics),
            proposal_ids: Arc::clone(&shared.proposal_ids),
            auth_on: Arc::clone(&shared.auth_on),
            world: shared.world.clone(),
        },
        config,
    );
    let now = shared.now();
    core.step(Input::Covered(applied), now);
    if lone {
        // Nobody else can: a lone voter need not wait for an election timeout.
        core.step(Input::Campaign, now);
    }
    Ok(Built {
        core,
        log,
        log_worker,
        rows: rows_sender,
        rows_worker,
    })
}

/// Makes the member of what its log remembers.
fn make_member(
    shared: &Shared,
    applied: u64,
    conf_state: member::ConfState,
    recovered: member::Recovered,
) -> Result<Member, StartError> {
    let config = &shared.config;
    let ticks = config.election_timeout.as_millis() / config.heartbeat_interval.as_millis().max(1);
    let made = member::Config {
        id: shared.ids.member,
        conf_state,
        boot_id: shared.world.random(),
        applied,
        election_ticks: usize::try_from(ticks).unwrap_or(10).max(2),
        heartbeat_ticks: 1,
        pre_vote: config.pre_vote,
        seed: shared.world.random(),
        read_retry: config.election_timeout / 2,
        read_timeout: request_timeout(config),
        catch_up_entries: config.catch_up_entries,
    };
    Member::new(made, recovered).map_err(|source| StartError::Member {
        dir: config.data_dir.clone(),
        source,
    })
}

/// The threads that write to disk.
pub(crate) struct Threads {
    log: mpsc::Sender<LogJob>,
    rows_sender: mpsc::Sender<RowsJob>,
    log_thread: thread::JoinHandle<()>,
    /// Returns the rows that were in use last.
    rows_thread: thread::JoinHandle<Rows>,
}

impl Threads {
    /// Ends the threads and closes the files. Everything is written back first if
    /// the member was told to shut down.
    pub(crate) fn end(self, core: Option<Core>, shared: &Shared) {
        let _ended = self.log.send(LogJob::Stop);
        let _ended = self.rows_sender.send(RowsJob::Stop);
        // A panic in them was logged; the files are as after losing power.
        let _panicked = self.log_thread.join();
        let rows = self.rows_thread.join();
        let (Some(mut core), Ok(rows)) = (core, rows) else {
            return;
        };
        if shared
            .write_back_at_end
            .load(std::sync::atomic::Ordering::Acquire)
        {
            core.settle_reports(shared.reported());
            if let Err(error) = store::write_everything_back(&mut core.machine, &rows) {
                // The log has it all; the next start replays it.
                tracing::warn!(%error, "could not write rows back while stopping");
            }
        }
    }
}
