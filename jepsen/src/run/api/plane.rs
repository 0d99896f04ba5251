//! The control plane on the cluster: API servers, controllers and a scheduler, each a
//! process of its own, with a relay on every way between two of them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use client::{Client, ClientConfig};
use faults::{Bed, Error, Process, Relay, Result, runtime, until};
use rustix::process::Signal;

/// How often API servers make the store forget what is older than that.
const COMPACTION: &str = "10s";
/// How long one question whether an API server is ready may take.
const READY_PATIENCE: Duration = Duration::from_secs(2);
/// As whom the relay knows API servers, beside the members of the store,
const APIS: usize = 1000;
/// and those who talk to them.
const LOOPS: usize = 2000;
/// Which loops there are: two of one kind, so that one takes over from the other.
const KINDS: [&str; 3] = ["controllers", "controllers", "scheduler"];
/// Words in a log that mean that its process fell over.
const LAST_WORDS: &str = "panicked at";
/// What an API server logs once it serves.
const SERVING: &str = "serving the Kubernetes API";
/// Where all of this listens.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// One process of the plane.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    args: Vec<String>,
    log: PathBuf,
    process: Option<Process>,
}

impl Part {
    fn new(folder: &Path, name: String, args: Vec<String>) -> Self {
        Self {
            log: folder.join(format!("{name}.log")),
            name,
            args,
            process: None,
        }
    }

    fn start(&mut self, program: &Path) -> Result<()> {
        let mut command = Command::new(program);
        command.args(&self.args);
        self.process = Some(Process::spawn(&mut command, &self.log)?);
        Ok(())
    }

    /// Stops it without any chance to say goodbye.
    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    /// Sends it a signal, if it runs.
    pub(super) fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.as_mut().map_or(Ok(()), |p| p.signal(signal))
    }

    /// Asks it to end, and waits for that.
    pub(super) fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::CONT)?;
        if let Some(mut process) = self.process.take() {
            process.terminate()?;
        }
        Ok(())
    }

    /// Returns how it ended, if it did by itself.
    fn ended(&mut self) -> Option<String> {
        let process = self.process.as_mut()?;
        let status = process.ended()?;
        let log = process.log();
        self.process = None;
        let served = log.contains(SERVING);
        let last = log.lines().last().unwrap_or_default();
        Some(format!(
            "{status}, served: {served}; the last it said: {last}"
        ))
    }
}

/// The whole plane. Its processes end with it.
#[derive(Debug)]
pub(super) struct Plane {
    // Declared first: they end before the relay goes.
    pub(super) apis: Vec<Part>,
    pub(super) loops: Vec<Part>,
    urls: Vec<String>,
    clients: Vec<Client>,
    pub(super) relay: Relay,
    nodes: usize,
    program: PathBuf,
    folder: PathBuf,
    /// Whatever ended and had no reason to.
    pub(super) crashes: Vec<String>,
}

impl Plane {
    /// Starts so many API servers on a cluster, and what talks to them.
    pub(super) fn start(program: PathBuf, apis: usize, bed: &Bed) -> Result<Self> {
        let folder = bed.cluster.folder().join("plane");
        fs::create_dir_all(&folder).map_err(failed(&folder))?;
        let mut plane = Self {
            apis: Vec::new(),
            loops: Vec::new(),
            urls: Vec::new(),
            clients: Vec::new(),
            relay: Relay::default(),
            nodes: bed.cluster.members.len(),
            program,
            folder,
            crashes: Vec::new(),
        };
        for at in 0..apis {
            plane.plan(at, bed)?;
            // One after the other: the first makes the certificates of all.
            plane.apis[at].start(&plane.program)?;
            plane.await_served(at)?;
            plane.learn(at)?;
        }
        for (at, kind) in KINDS.into_iter().enumerate() {
            let kubeconfig = plane.folder.join(format!("loop{at}.kubeconfig"));
            let args = vec![
                kind.to_owned(),
                format!("--kubeconfig={}", kubeconfig.display()),
            ];
            let part = Part::new(&plane.folder, format!("{kind}{at}"), args);
            plane.loops.push(part);
            plane.point(at, at % apis)?;
            plane.loops[at].start(&plane.program)?;
        }
        Ok(plane)
    }

    fn plan(&mut self, at: usize, bed: &Bed) -> Result<()> {
        let mut store = Vec::new();
        for (member, there) in bed.cluster.members.iter().enumerate() {
            let address = socket(&there.client_url)?;
            let relayed = self.relay.stand_between(APIS + at, member, HERE, address)?;
            store.push(format!("http://{relayed}"));
        }
        // Each begins with another member, and so sees the store through another.
        store.rotate_left(at % self.nodes);
        let port = free_port()?;
        let args = [
            "apiserver".to_owned(),
            format!("--etcd-servers={}", store.join(",")),
            format!("--bind-address={HERE}"),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", self.folder.join("certs").display()),
            format!("--kubeconfig-out={}", self.kubeconfig(at).display()),
            format!("--etcd-compaction-interval={COMPACTION}"),
        ];
        self.urls.push(format!("https://{HERE}:{port}"));
        let part = Part::new(&self.folder, format!("a{at}"), args.into());
        self.apis.push(part);
        Ok(())
    }

    fn kubeconfig(&self, at: usize) -> PathBuf {
        self.folder.join(format!("a{at}.kubeconfig"))
    }

    fn await_served(&mut self, at: usize) -> Result<()> {
        let kubeconfig = self.kubeconfig(at);
        until(format!("a{at} to serve"), || match self.apis[at].ended() {
            Some(how) => Err(how),
            None if kubeconfig.exists() => Ok(()),
            None => Err("no kubeconfig yet".to_owned()),
        })
    }

    fn learn(&mut self, at: usize) -> Result<()> {
        let config = self.config(at)?;
        let client = Client::from_config(&config).map_err(|e| Error::Unfit(e.to_string()))?;
        self.clients.push(client);
        Ok(())
    }

    /// Returns how to reach an API server.
    pub(super) fn config(&self, at: usize) -> Result<ClientConfig> {
        let config = ClientConfig::from_file(&self.kubeconfig(at));
        config.map_err(|e| Error::Unfit(e.to_string()))
    }

    /// Lets a loop talk to this API server from its next start on, over a relay.
    pub(super) fn point(&mut self, at: usize, api: usize) -> Result<()> {
        let there = socket(&self.urls[api])?;
        let relayed = self
            .relay
            .stand_between(LOOPS + at, APIS + api, HERE, there)?;
        let from = self.kubeconfig(api);
        let text = fs::read_to_string(&from).map_err(failed(&from))?;
        let text = text.replace(&self.urls[api], &format!("https://{relayed}"));
        let to = self.folder.join(format!("loop{at}.kubeconfig"));
        fs::write(&to, text).map_err(failed(&to))
    }

    /// Returns all ways between an API server and the store.
    pub(super) fn ways_below(&self, api: usize) -> Vec<(usize, usize)> {
        (0..self.nodes).map(|member| (APIS + api, member)).collect()
    }

    /// Returns all ways between a loop and the API servers.
    pub(super) fn ways_above(&self, at: usize) -> Vec<(usize, usize)> {
        let apis = 0..self.apis.len();
        apis.map(|api| (LOOPS + at, APIS + api)).collect()
    }

    /// Starts what does not run, and waits until all API servers are ready.
    pub(super) fn revive(&mut self) -> Result<()> {
        self.relay.calm();
        self.look_for_crashes();
        for part in self.apis.iter_mut().chain(&mut self.loops) {
            part.signal(Signal::CONT)?;
        }
        for at in 0..self.apis.len() {
            self.await_ready(at)?;
        }
        for part in &mut self.loops {
            if part.process.is_none() {
                part.start(&self.program)?;
            }
        }
        Ok(())
    }

    /// Waits until an API server is ready; one that gave up on the store meanwhile is
    /// started again.
    pub(super) fn await_ready(&mut self, at: usize) -> Result<()> {
        let client = self.clients[at].clone();
        until(format!("a{at} to be ready"), || {
            self.look_for_crashes();
            if self.apis[at].process.is_none() {
                self.apis[at]
                    .start(&self.program)
                    .map_err(|e| e.to_string())?;
            }
            let asked =
                async { tokio::time::timeout(READY_PATIENCE, client.get_raw("/readyz")).await };
            match runtime().block_on(asked) {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(elapsed) => Err(elapsed.to_string()),
            }
        })
    }

    /// Notes what ended without a reason. An API server may give up before it served:
    /// without a store it is of no use.
    pub(super) fn look_for_crashes(&mut self) {
        for part in self.apis.iter_mut().chain(&mut self.loops) {
            if let Some(how) = part.ended()
                && !how.contains("served: false")
            {
                self.crashes.push(format!("{} ended: {how}", part.name));
            }
        }
    }

    /// Ends everybody who talks to the API servers.
    pub(super) fn stop_loops(&mut self) -> Result<()> {
        self.look_for_crashes();
        self.loops.iter_mut().try_for_each(Part::terminate)
    }

    /// Ends the API servers.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.look_for_crashes();
        self.apis.iter_mut().try_for_each(Part::terminate)
    }

    /// Copies all logs into a folder, and tells of those in which somebody fell over.
    pub(super) fn keep_logs(&mut self, folder: &Path) -> Result<()> {
        for part in self.apis.iter().chain(&self.loops) {
            let to = folder.join(format!("{}.log", part.name));
            fs::copy(&part.log, &to).map_err(failed(&to))?;
            let log = fs::read_to_string(&part.log).unwrap_or_default();
            let bad = log.lines().find(|line| line.contains(LAST_WORDS));
            let name = &part.name;
            self.crashes
                .extend(bad.map(|line| format!("{name} logged: {line}")));
        }
        Ok(())
    }
}

fn socket(url: &str) -> Result<SocketAddr> {
    let address = url
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    let wrong = |_not_one| Error::Unfit(format!("no address: {url}"));
    address.parse().map_err(wrong)
}

/// Returns a port nobody has now: an API server must have the same one again.
fn free_port() -> Result<u16> {
    let free = TcpListener::bind((HERE, 0)).and_then(|l| l.local_addr());
    let free = free.map_err(|e| Error::Io("a free port".to_owned(), e))?;
    Ok(free.port())
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.display().to_string();
    move |source| Error::Io(path, source)
}
