//! The workloads: what clients do. A new one is one file and one line in [`ALL`].

mod append;
mod auth;
mod kubernetes;
mod kv;
mod lease;
mod lock;
mod register;
mod set;
mod watch;
mod wr;

use std::future::Future;
use std::pin::Pin;

use super::client::Client;

/// What one client of a workload does, until it is told to stop.
type Doing = Pin<Box<dyn Future<Output = ()>>>;

/// One workload.
#[derive(Clone, Copy)]
pub(super) struct Workload {
    /// What it is called.
    pub(super) name: &'static str,
    /// What it does, in a line.
    pub(super) about: &'static str,
    /// How many clients it takes.
    pub(super) clients: usize,
    /// Whether it runs with the others, when all are asked for.
    pub(super) with_others: bool,
    /// Nemeses that it is not itself without.
    pub(super) nemeses: &'static str,
    pub(super) run: fn(Client) -> Doing,
}

impl Workload {
    const fn new(
        name: &'static str,
        about: &'static str,
        clients: usize,
        run: fn(Client) -> Doing,
    ) -> Self {
        Self {
            name,
            about,
            clients,
            with_others: true,
            nemeses: "",
            run,
        }
    }

    const fn alone(self) -> Self {
        Self {
            with_others: false,
            ..self
        }
    }

    const fn with(self, nemeses: &'static str) -> Self {
        Self { nemeses, ..self }
    }
}

/// All workloads.
pub(super) const ALL: &[Workload] = &[
    Workload::new(
        "kv",
        "puts, deletes, ranges and transactions of all kinds",
        6,
        |c| Box::pin(kv::run(c)),
    ),
    Workload::new(
        "register",
        "reads, writes and compare-and-swap of single keys",
        5,
        |c| Box::pin(register::run(c)),
    ),
    Workload::new(
        "set",
        "elements added to a set by compare-and-swap",
        3,
        |c| Box::pin(set::run(c)),
    ),
    Workload::new("append", "transactions that append to lists", 4, |c| {
        Box::pin(append::run(c))
    }),
    Workload::new("wr", "transactions that read and write registers", 4, |c| {
        Box::pin(wr::run(c))
    }),
    Workload::new(
        "watch",
        "watches from the past, from now and from the future",
        5,
        |c| Box::pin(watch::run(c)),
    ),
    Workload::new(
        "lease",
        "leases granted, renewed, revoked, and left to expire",
        4,
        |c| Box::pin(lease::run(c)),
    ),
    Workload::new("lock", "locks whose holders are fenced", 3, |c| {
        Box::pin(lock::run(c, lock::Guard::Fence))
    }),
    Workload::new("kubernetes", "what API servers do", 4, |c| {
        Box::pin(kubernetes::run(c))
    }),
    Workload::new("membership", "as kv, while members come and go", 6, |c| {
        Box::pin(kv::run(c))
    })
    .alone()
    .with("replace"),
    Workload::new("auth", "rights given and taken away", 5, |c| {
        Box::pin(auth::run(c))
    })
    .alone(),
    Workload::new(
        "lock-alone",
        "locks without a fence, which are unsafe: a run that finds nothing is suspicious",
        3,
        |c| Box::pin(lock::run(c, lock::Guard::None)),
    )
    .alone()
    .with("pause"),
];

/// Finds workloads by their names; `all` is all that can run together.
pub(super) fn named(names: &str) -> anyhow::Result<Vec<Workload>> {
    if names == "all" {
        return Ok(ALL.iter().filter(|w| w.with_others).copied().collect());
    }
    names
        .split(',')
        .map(|name| {
            let found = ALL.iter().find(|w| w.name == name).copied();
            found.ok_or_else(|| {
                let known: Vec<&str> = ALL.iter().map(|w| w.name).collect();
                anyhow::anyhow!(
                    "no workload is called {name}; there are {}",
                    known.join(", ")
                )
            })
        })
        .collect()
}
