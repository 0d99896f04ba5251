//! `keelson up`: every part in one process, on an embedded store.
//!
//! Order up: store, API server, then controllers, scheduler and kubelet, which
//! reach the API as everybody else does, only without a socket. Order down is
//! the reverse. Nothing here decides anything; a part that dies takes the
//! process with it, and the next start takes everything up where it was.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent::images::{ImageMap, ImageMapping};
use agent::{AgentOptions, RuntimeKind};
use anyhow::{Context, bail};
use apiserver::authn::UserInfo;
use client::{Client, Transport};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::say;

/// How long the parts may take to end after they were asked to.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(40);

/// Where under the data directory the store lies.
const STORE_DIR: &str = "store";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where everything is kept [default: keelson in the user's data folder].
    #[arg(long, env = "KEELSON_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The address the API is served on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,
    /// The port the API is served on; 0 takes a free one.
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// The loopback port on which the store speaks etcd v3; 0 takes a free one.
    #[arg(long, default_value_t = 2379)]
    store_port: u16,
    /// The range Services get their addresses from.
    #[arg(long, default_value = "10.96.0.0/16")]
    service_cluster_ip_range: String,
    /// The name of the one node [default: the machine's host name].
    #[arg(long)]
    node_name: Option<String>,
    /// What runs containers.
    #[arg(long, value_enum, default_value_t)]
    runtime: RuntimeKind,
    /// The socket of the CRI runtime.
    #[arg(long, default_value = agent::options::CONTAINERD_SOCKET)]
    container_runtime_endpoint: PathBuf,
    /// Gives an image a meaning: image=directory-or-command. May be repeated.
    #[arg(long = "image-map", value_name = "IMAGE=DIR|COMMAND")]
    image_map: Vec<ImageMapping>,
    /// Leave the pods' processes running at a graceful end; the next start
    /// takes them over.
    #[arg(long)]
    leave_pods: bool,
    /// Serve the API over its store and nothing else: no controller, scheduler or
    /// kubelet acts on what is written. For operators' tests.
    #[arg(long, conflicts_with_all = ["node_name", "image_map", "leave_pods"])]
    api_only: bool,
}

/// Runs until the process is asked to end, or a part ends by itself.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let started = Instant::now();
    let runtime = apiserver::cli::runtime()
        .worker_threads(2)
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(up(args, started))
}

async fn up(args: Args, started: Instant) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let data_dir = data_dir(args.data_dir.as_deref())?;
    let agent_options = match args.api_only {
        true => None,
        false => Some(agent_options(&args, &data_dir)?),
    };
    if let Some(options) = &agent_options {
        agent::check(options)?;
    }
    kvserver::check_usable(&data_dir.join(STORE_DIR)).map_err(kvserver::StartError::from)?;
    check_free(SocketAddr::new(args.bind_address, args.port), "--port")?;
    check_free(
        SocketAddr::from(([127, 0, 0, 1], args.store_port)),
        "--store-port",
    )?;

    let mut store = kvserver::Server::start(store_config(&args, &data_dir)).await?;
    let api = apiserver::Server::start(api_config(&args, &data_dir, &store)).await?;
    let kubeconfig = data_dir.join("kubeconfig");
    api.write_admin_kubeconfig(&kubeconfig)?;

    let token = CancellationToken::new();
    let mut parts = Parts {
        tasks: JoinSet::new(),
        token: token.clone(),
    };
    if let Some(options) = &agent_options {
        start_loops(&mut parts, &api);
        let node = start_kubelet(&mut parts, &api, options.clone())?;
        tokio::select! {
            ready = node => ready.context("the kubelet ended before its node was ready")?,
            ended = parts.any_ended() => return Err(ended),
            () = signals.next() => return Ok(()),
        };
    } else {
        tokio::select! {
            () = api.ready() => {}
            () = signals.next() => return Ok(()),
        }
    }
    announce(&args, &kubeconfig, store.client_addr, started);

    let result = tokio::select! {
        () = signals.next() => Ok(()),
        ended = parts.any_ended() => Err(ended),
        () = store.wait() => Err(anyhow::anyhow!("the store stopped; its log says why")),
    };
    api.begin_shutdown();
    token.cancel();
    parts.all_ended().await;
    if let Some(options) = agent_options.filter(|_| !args.leave_pods && result.is_ok()) {
        stop_pods(&options.root_dir, &mut signals).await?;
    }
    api.shutdown().await;
    store.shutdown().await;
    result
}

/// Returns the folder everything is kept in.
fn data_dir(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(dir) = given {
        // Shims and kubeconfigs hold paths; they must mean the same from any
        // working directory.
        return std::path::absolute(dir).with_context(|| format!("--data-dir {}", dir.display()));
    }
    let base = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")))
        .filter(|p| p.is_absolute());
    match base {
        Some(base) => Ok(base.join("keelson")),
        None => bail!("neither HOME nor XDG_DATA_HOME says where to keep data; give --data-dir"),
    }
}

/// Fails if a port is taken, before anything is touched. Port 0 never is.
fn check_free(addr: SocketAddr, flag: &str) -> anyhow::Result<()> {
    match std::net::TcpListener::bind(addr) {
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
            bail!("cannot listen on {addr}: {e}; choose another port with {flag}")
        }
        // Whoever really listens there says what else is wrong.
        _ => Ok(()),
    }
}

fn store_config(args: &Args, data_dir: &Path) -> kvserver::Config {
    let mut config = kvserver::Config::new(data_dir.join(STORE_DIR));
    config.listen_client_urls = vec![format!("http://127.0.0.1:{}", args.store_port)];
    config
}

fn api_config(args: &Args, data_dir: &Path, store: &kvserver::Running) -> apiserver::Config {
    let store = apiserver::StoreSource::Embedded(store.handle.clone());
    let mut config = apiserver::Config::new(store, data_dir.join("pki"), args.port);
    config.bind.set_ip(args.bind_address);
    config.port_flag = "--port";
    config.service_cidr = args.service_cluster_ip_range.clone();
    config
}

fn agent_options(args: &Args, data_dir: &Path) -> anyhow::Result<AgentOptions> {
    let name = match &args.node_name {
        Some(name) => name.clone(),
        None => agent::hostname(),
    };
    let mut options = AgentOptions::new(name, data_dir.join("kubelet"));
    options.image_map = ImageMap(args.image_map.clone());
    options.runtime = args.runtime;
    options.container_runtime_endpoint = args.container_runtime_endpoint.clone();
    Ok(options)
}

/// Makes a client that calls the API server's pipeline without a socket.
fn local_client(api: &apiserver::Running, user: UserInfo, name: &str) -> Client {
    Client::new(Transport::service(api.local_service(user))).named(name)
}

/// Starts the controllers and the scheduler.
fn start_loops(parts: &mut Parts, api: &apiserver::Running) {
    let user = UserInfo::component("system:kube-controller-manager");
    let controllers = local_client(api, user, "kube-controller-manager");
    let options = manager::ManagerOptions {
        leader_elect: false,
        cluster_ca: Some(api.pki().ca_pem().to_owned()),
        ..manager::ManagerOptions::default()
    };
    parts.start("the controllers", |token| async move {
        manager::run_controllers(controllers, options, token)
            .await
            .map_err(Into::into)
    });
    let user = UserInfo::component("system:kube-scheduler");
    let scheduler = local_client(api, user, "kube-scheduler");
    parts.start("the scheduler", |token| async move {
        let options = manager::scheduler_loop::SchedulerOptions::default();
        manager::scheduler_loop::run_scheduler(scheduler, options, token)
            .await
            .map_err(Into::into)
    });
}

/// Starts the kubelet; the returned future ends when its node is Ready.
fn start_kubelet(
    parts: &mut Parts,
    api: &apiserver::Running,
    mut options: AgentOptions,
) -> anyhow::Result<tokio::sync::oneshot::Receiver<SocketAddr>> {
    let names = [
        options.node_name.clone(),
        options.node_ip.to_string(),
        "localhost".to_owned(),
    ];
    options.server_tls = Some(api.kubelet_tls(&options.node_name, &names)?);
    let user = UserInfo::new(
        format!("system:node:{}", options.node_name),
        ["system:nodes"],
    );
    let client = local_client(api, user, "kubelet");
    let (ready, node) = tokio::sync::oneshot::channel();
    parts.start("the kubelet", |token| async move {
        Box::pin(agent::run(client, options, ready, token))
            .await
            .map_err(Into::into)
    });
    Ok(node)
}

/// Tells how to use what is up.
fn announce(args: &Args, kubeconfig: &Path, store: Option<SocketAddr>, started: Instant) {
    say::line(&format!("kubeconfig  {}", kubeconfig.display()));
    if let Some(addr) = store {
        say::line(&format!("store       http://{addr}"));
    }
    say::line("");
    say::line(&format!("  export KUBECONFIG={}", kubeconfig.display()));
    let tries: &[&str] = match args.api_only {
        true => &["kubectl api-resources"],
        false => &[
            "kubectl create deployment web --image=host -- sleep 3600",
            "kubectl scale deployment web --replicas=5",
            "kubectl get pods -o wide",
        ],
    };
    for line in tries {
        say::line(&format!("  {line}"));
    }
    say::line("");
    say::line(&format!("ready in {} ms", started.elapsed().as_millis()));
}

/// Ends the pods' processes: gently, or at once when asked a second time.
async fn stop_pods(root_dir: &Path, signals: &mut Signals) -> anyhow::Result<()> {
    say::line("stopping the pods, each within its grace period; Ctrl-C again kills them");
    tokio::select! {
        stopped = agent::stop_all(root_dir, Duration::MAX) => {
            stopped?;
            return Ok(());
        }
        () = signals.next() => {}
    }
    agent::stop_all(root_dir, Duration::ZERO).await?;
    Ok(())
}

/// The signals that ask the process to end. Listened to from the start to the
/// end, so that none falls between two waits.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
        })
    }

    /// Waits for the next one.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The loops that run on top of the API.
struct Parts {
    tasks: JoinSet<(&'static str, anyhow::Result<()>)>,
    token: CancellationToken,
}

impl Parts {
    fn start<F>(&mut self, name: &'static str, part: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let part = part(self.token.clone());
        self.tasks.spawn(async move { (name, part.await) });
    }

    /// Waits until a part ends and says why; none should while we run.
    async fn any_ended(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            None => std::future::pending().await,
            Some(Err(panic)) => anyhow::anyhow!("a part panicked: {panic}"),
            Some(Ok((name, Ok(())))) => anyhow::anyhow!("{name} ended"),
            Some(Ok((name, Err(error)))) => error.context(format!("{name} failed")),
        }
    }

    /// Waits until every part has ended, for a while.
    async fn all_ended(&mut self) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_PATIENCE, all).await.is_err() {
            tracing::warn!("some parts did not end in {SHUTDOWN_PATIENCE:?}");
        }
    }
}
