//! What is measured: a store, an API server on its embedded store, or one by URL.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::Args;
use super::http::{Ask, Manner, Site};
use super::order::{Door, Wire};
use crate::cluster::{self, Cluster};
use crate::target::Target;

/// How long an API server may take until it is ready for writes.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// A server that runs.
pub(super) struct Server {
    pub(super) name: String,
    kind: Kind,
}

enum Kind {
    Store(Target),
    Api(Box<Cluster>),
    /// Somebody else's; its processes where they are on this machine and known.
    Remote {
        kubeconfig: PathBuf,
        url: String,
        pids: Vec<u32>,
    },
}

impl Server {
    /// Starts all servers that speak a protocol, ours first.
    pub(super) async fn start_all(
        keelson: Option<&Path>,
        args: &Args,
        wire: Wire,
    ) -> anyhow::Result<Vec<Self>> {
        let mut servers = Vec::new();
        if wire == Wire::Etcd {
            let mut stores = Vec::new();
            stores.extend(keelson.map(Target::keelson).transpose()?);
            stores.extend(args.peer.as_deref().map(Target::peer).transpose()?);
            for mut store in stores {
                store.start().await?;
                servers.push(Self {
                    name: store.name.clone(),
                    kind: Kind::Store(store),
                });
            }
            return Ok(servers);
        }
        if let Some(keelson) = keelson {
            let cluster = Cluster::api_only(keelson).await?;
            servers.push(Self {
                name: "keelson".to_owned(),
                kind: Kind::Api(Box::new(cluster)),
            });
        }
        if let Some(url) = &args.url {
            let kubeconfig = args.kubeconfig.clone();
            servers.push(Self {
                name: args.name.clone(),
                kind: Kind::Remote {
                    kubeconfig: kubeconfig.context("--url wants --kubeconfig")?,
                    url: url.clone(),
                    pids: args.pid.clone(),
                },
            });
        }
        for server in &servers {
            server.await_ready().await?;
        }
        Ok(servers)
    }

    async fn await_ready(&self) -> anyhow::Result<()> {
        let site = Arc::new(Site::of(&self.door())?);
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let mut connection = site.connect(Manner::default()).await?;
            let (status, body) = connection.ask(Ask::get("/readyz")).await?;
            if status.is_success() {
                return Ok(());
            }
            if tokio::time::Instant::now() > until {
                bail!("not ready: {}", String::from_utf8_lossy(&body));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns where it is.
    pub(super) fn door(&self) -> Door {
        match &self.kind {
            Kind::Store(target) => Door::Store(target.url()),
            Kind::Api(cluster) => Door::Api {
                kubeconfig: cluster.kubeconfig(),
                url: None,
            },
            Kind::Remote {
                kubeconfig, url, ..
            } => Door::Api {
                kubeconfig: kubeconfig.clone(),
                url: Some(url.clone()),
            },
        }
    }

    /// Tells whether it goes on after us with what was made in it.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self.kind, Kind::Remote { .. })
    }

    /// Tells whether margins are about it.
    pub(super) fn is_ours(&self) -> bool {
        self.name == "keelson"
    }

    fn pids(&self) -> anyhow::Result<Vec<u32>> {
        Ok(match &self.kind {
            Kind::Store(target) => target.pids().collect(),
            Kind::Api(cluster) => vec![cluster.pid()?],
            Kind::Remote { pids, .. } => pids.clone(),
        })
    }

    fn sum(&self, of: impl Fn(u32) -> anyhow::Result<u64>) -> anyhow::Result<u64> {
        self.pids()?.into_iter().map(of).sum()
    }

    /// Returns the CPU it has used, in microseconds; none where it is not known.
    pub(super) fn cpu_us(&self) -> anyhow::Result<u64> {
        self.sum(cluster::cpu_us)
    }

    pub(super) fn rss_kb(&self) -> anyhow::Result<u64> {
        self.sum(|pid| cluster::memory_kb(pid, "VmRSS:"))
    }

    pub(super) fn peak_kb(&self) -> anyhow::Result<u64> {
        self.sum(|pid| cluster::memory_kb(pid, "VmHWM:"))
    }

    pub(super) fn forget_peak(&self) -> anyhow::Result<()> {
        self.pids()?.into_iter().try_for_each(cluster::forget_peak)
    }

    /// Ends it, if it is ours to end.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        match self.kind {
            Kind::Store(mut target) => target.stop().await,
            Kind::Api(cluster) => cluster.down().await,
            Kind::Remote { .. } => Ok(()),
        }
    }
}
