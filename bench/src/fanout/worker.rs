//! A process of the load: it takes one order and carries it out.

use std::io::Write as _;

use anyhow::{Context as _, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use super::order::{Order, Said, Word};
use super::{asking, idle, watchers, writers};

/// Who gave the order: told and heard over standard output and input.
pub(super) struct Boss {
    lines: Lines<BufReader<Stdin>>,
}

impl Boss {
    /// Says something.
    pub(super) fn say(&mut self, said: &Said) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(said)?;
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        out.write_all(&line)?;
        Ok(out.flush()?)
    }

    /// Waits for the next word. Nothing is lost if that is given up.
    pub(super) async fn hear(&mut self) -> anyhow::Result<Word> {
        let line = self.lines.next_line().await?;
        // Whoever has gone needs nothing more.
        Ok(serde_json::from_str(&line.context("told no more")?)?)
    }
}

/// Lets this process, and those that it starts, open as many files as it may.
pub(super) fn raise_limit() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .context("cannot raise the limit of open files")
}

/// Carries out the order that is on standard input.
pub(crate) async fn run() -> anyhow::Result<()> {
    raise_limit()?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let Some(order) = lines.next_line().await? else {
        bail!("no order");
    };
    let order: Order = serde_json::from_str(&order)?;
    let mut boss = Boss { lines };
    let done = match order {
        Order::Watch(order) => watchers::run(order, &mut boss).await,
        Order::Write(order) => writers::run(order, &mut boss).await,
        Order::Idle(order) => idle::hold(order, &mut boss).await,
        Order::Nodes(order) => asking::nodes(order, &mut boss).await,
        Order::Gets(order) => asking::gets(order, &mut boss).await,
        Order::Lists(order) => asking::lists(order, &mut boss).await,
    };
    if let Err(error) = done {
        boss.say(&Said::Failed(format!("{error:#}")))?;
    }
    Ok(())
}
