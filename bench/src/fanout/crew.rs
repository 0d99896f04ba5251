//! The processes of the load, as the one that measures sees them.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::clock;
use super::order::{Order, Said, Word};
use crate::cluster;

/// How long a process may take to get ready, or to sum up.
const PATIENCE: Duration = Duration::from_secs(300);

/// Processes, each with an order. They end with this.
pub(super) struct Crew {
    hands: Vec<Hand>,
    said: mpsc::UnboundedReceiver<(usize, Said)>,
    says: mpsc::UnboundedSender<(usize, Said)>,
}

struct Hand {
    /// Killed when it is dropped.
    child: Child,
    stdin: ChildStdin,
    /// Whether it is told what has arrived.
    follows: bool,
    arrived: u64,
}

impl Crew {
    pub(super) fn new() -> Self {
        let (says, said) = mpsc::unbounded_channel();
        Self {
            hands: Vec::new(),
            said,
            says,
        }
    }

    /// Starts a process with an order and waits until it is ready; returns its number.
    pub(super) async fn hire(&mut self, order: &Order) -> anyhow::Result<usize> {
        let nth = self.start(order).await?;
        self.ready(1).await?;
        Ok(nth)
    }

    /// Starts processes that get ready at the same time.
    pub(super) async fn hire_all(&mut self, orders: &[Order]) -> anyhow::Result<Vec<usize>> {
        let mut numbers = Vec::with_capacity(orders.len());
        for order in orders {
            numbers.push(self.start(order).await?);
        }
        self.ready(orders.len()).await?;
        Ok(numbers)
    }

    async fn start(&mut self, order: &Order) -> anyhow::Result<usize> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("fanout-worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a process of the load")?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let nth = self.hands.len();
        tokio::spawn(listen(nth, stdout, self.says.clone()));
        let mut hand = Hand {
            child,
            stdin,
            follows: matches!(order, Order::Write(write) if write.rate.is_none()),
            arrived: 0,
        };
        hand.tell(&serde_json::to_vec(order)?).await?;
        self.hands.push(hand);
        Ok(nth)
    }

    /// Returns the CPU that all of them have used, in microseconds.
    pub(super) fn cpu_us(&self) -> anyhow::Result<u64> {
        let pids = self.hands.iter().filter_map(|hand| hand.child.id());
        pids.map(cluster::cpu_us).sum()
    }

    /// Waits until so many are ready.
    pub(super) async fn ready(&mut self, mut count: usize) -> anyhow::Result<()> {
        while count > 0 {
            if let (_, Said::Ready) = self.hear(PATIENCE).await? {
                count -= 1;
            }
        }
        Ok(())
    }

    /// Tells some of them something.
    pub(super) async fn tell(&mut self, whom: &[usize], word: &Word) -> anyhow::Result<()> {
        let line = serde_json::to_vec(word)?;
        for &nth in whom {
            self.hands[nth].tell(&line).await?;
        }
        Ok(())
    }

    /// Waits for what somebody says that is for us; passes on what is for writers.
    async fn hear(&mut self, patience: Duration) -> anyhow::Result<(usize, Said)> {
        loop {
            let said = tokio::time::timeout(patience, self.said.recv()).await;
            let said = said.context("a process of the load is not heard of")?;
            match said.context("nobody is left")? {
                (_, Said::Failed(why)) => bail!("a process of the load: {why}"),
                (nth, Said::Arrived(events)) => {
                    self.hands[nth].arrived = events;
                    let all = self.hands.iter().map(|hand| hand.arrived).sum();
                    let line = serde_json::to_vec(&Word::Arrived(all))?;
                    for hand in self.hands.iter_mut().filter(|hand| hand.follows) {
                        // One that has ended needs to know no more.
                        drop(hand.tell(&line).await);
                    }
                }
                said => return Ok(said),
            }
        }
    }

    /// Passes on what arrives, until a moment.
    pub(super) async fn work_until(&mut self, at: u64) -> anyhow::Result<Vec<(usize, Said)>> {
        let mut early = Vec::new();
        loop {
            tokio::select! {
                () = clock::sleep_until(at) => return Ok(early),
                said = self.hear(PATIENCE) => early.push(said?),
            }
        }
    }

    /// Waits until each of some has said what it saw or did, if it has not already.
    pub(super) async fn results(
        &mut self,
        whom: &[usize],
        early: Vec<(usize, Said)>,
    ) -> anyhow::Result<Vec<Said>> {
        let mut results = early;
        results.retain(|(nth, _)| whom.contains(nth));
        while results.len() < whom.len() {
            let said = self.hear(PATIENCE).await?;
            if whom.contains(&said.0) {
                results.push(said);
            }
        }
        Ok(results.into_iter().map(|(_, said)| said).collect())
    }

    /// Waits until each of some has said it, and tells who said what.
    pub(super) async fn results_of(
        &mut self,
        whom: &[usize],
    ) -> anyhow::Result<Vec<(usize, Said)>> {
        let mut results = Vec::with_capacity(whom.len());
        while results.len() < whom.len() {
            results.push(self.hear(PATIENCE).await?);
        }
        Ok(results)
    }
}

impl Hand {
    async fn tell(&mut self, line: &[u8]) -> anyhow::Result<()> {
        self.stdin.write_all(line).await?;
        self.stdin.write_all(b"\n").await?;
        Ok(self.stdin.flush().await?)
    }
}

/// Passes on what a process says until it ends.
async fn listen(nth: usize, from: ChildStdout, says: mpsc::UnboundedSender<(usize, Said)>) {
    let mut lines = BufReader::new(from).lines();
    let mut finished = false;
    loop {
        let said = match lines.next_line().await {
            Ok(Some(line)) => serde_json::from_str(&line)
                .unwrap_or_else(|error| Said::Failed(format!("{error}: {line}"))),
            Ok(None) if finished => return,
            Ok(None) => Said::Failed("it ended".to_owned()),
            Err(error) => Said::Failed(error.to_string()),
        };
        let failed = matches!(said, Said::Failed(_));
        finished |= matches!(said, Said::Saw(_) | Said::Did(_));
        if says.send((nth, said)).is_err() || failed {
            return;
        }
    }
}
