//! One round of one case: watches open, writes go, what came is checked.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hdrhistogram::Histogram;

use super::cases::Case;
use super::clock;
use super::crew::Crew;
use super::figures::Figures;
use super::order::{Edges, Objects, Order, Pace, Said, Saw, Watch, Word, Write};
use super::server::Server;
use crate::cluster;
use crate::drive::median;

/// How long after the word the writes' window may begin: all must have heard it.
const LEAD: Duration = Duration::from_millis(50);

/// How a round is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) warm_up: Duration,
    pub(super) window: Duration,
    /// In how many processes watchers are.
    pub(super) processes: usize,
    pub(super) streams_per_connection: usize,
}

/// What a round showed.
pub(super) struct Round {
    seconds: f64,
    writes: u64,
    cpu_us: u64,
    load_us: u64,
    other_cores: f64,
    rss_per_watcher_kb: f64,
    peak_kb: u64,
    saw: Saw,
    acked: Histogram<u64>,
    sent: Histogram<u64>,
    /// What those saw who read in their own way.
    pub(super) others: Vec<Saw>,
}

/// Divides numbers among processes, as evenly as can be: the first and how many.
pub(super) fn shares(count: usize, processes: usize) -> Vec<(usize, usize)> {
    let processes = processes.clamp(1, count.max(1));
    let edge = |nth: usize| count * nth / processes;
    (0..processes)
        .map(|nth| (edge(nth), edge(nth + 1) - edge(nth)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// What a window took.
pub(super) struct Window {
    pub(super) edges: Edges,
    /// The CPU that the server used, and the load.
    pub(super) cpu_us: u64,
    load_us: u64,
    /// How many cores were busy with something else.
    other_cores: f64,
    /// What was said before its end.
    pub(super) early: Vec<(usize, Said)>,
}

/// Sets the window, lets everybody go, and returns the CPU used within it.
pub(super) async fn window(
    server: &Server,
    crew: &mut Crew,
    whom: &[usize],
    plan: Plan,
) -> anyhow::Result<Window> {
    let micros = |span: Duration| u64::try_from(span.as_micros());
    let from = clock::now() + micros(LEAD)? + micros(plan.warm_up)?;
    let edges = Edges {
        from,
        to: from + micros(plan.window)?,
    };
    crew.tell(whom, &Word::Go(edges)).await?;
    let mut early = crew.work_until(edges.from).await?;
    server.forget_peak()?;
    let (before, began) = (used(server, crew)?, clock::now());
    early.extend(crew.work_until(edges.to).await?);
    let (after, took) = (used(server, crew)?, clock::now() - began);
    // Who shares the cores with the load may look at the clock a little late.
    let part = (edges.to - edges.from) as f64 / took.max(1) as f64;
    let within = |nth: usize| after[nth].saturating_sub(before[nth]) as f64 * part;
    let (server, load, ours) = (within(0), within(1), within(2));
    let other = within(3) - server - load - ours;
    Ok(Window {
        edges,
        cpu_us: server as u64,
        load_us: load as u64,
        other_cores: (other / (edges.to - edges.from) as f64).max(0.0),
        early,
    })
}

/// Returns the CPU that the server, the load, this process and all together have used.
fn used(server: &Server, crew: &Crew) -> anyhow::Result<[u64; 4]> {
    let ours = cluster::cpu_us(std::process::id())?;
    Ok([server.cpu_us()?, crew.cpu_us()?, ours, cluster::busy_us()?])
}

/// Runs a round. Those who read in their own way have a process each.
pub(super) async fn round(
    server: &Server,
    case: &Case,
    plan: Plan,
    objects: Objects,
    others: &[Pace],
) -> anyhow::Result<Round> {
    let door = server.door();
    let revision = objects.revision(&door).await?;
    let rss = server.rss_kb()?;
    let watch = |first: usize, count: usize, pace: Pace| {
        Order::Watch(Watch {
            door: door.clone(),
            wire: case.wire,
            objects,
            first,
            count,
            streams_per_connection: plan.streams_per_connection,
            revision,
            pace,
        })
    };
    let orders: Vec<Order> = shares(case.watchers, plan.processes)
        .into_iter()
        .map(|(first, count)| watch(first, count, Pace::Full))
        .collect();
    let mut crew = Crew::new();
    let watching = crew.hire_all(&orders).await?;
    let opened = server.rss_kb()?.saturating_sub(rss);
    let others: Vec<Order> = others.iter().map(|pace| watch(0, 1, *pace)).collect();
    let others = crew.hire_all(&others).await?;
    let writing = crew
        .hire(&Order::Write(Write {
            door: door.clone(),
            wire: case.wire,
            objects,
            lanes: case.lanes(),
            rate: case.rate(),
            fan: case.fan(),
        }))
        .await?;
    let everybody: Vec<usize> = [&watching[..], &others, &[writing]].concat();
    let window = window(server, &mut crew, &everybody, plan).await?;
    let peak_kb = server.peak_kb()?;
    let did = crew.results(&[writing], window.early).await?;
    let Some(Said::Did(did)) = did.into_iter().next() else {
        bail!("the writers do not say what they wrote");
    };
    let in_window = did.written.iter().filter(|w| window.edges.contain(w.acked));
    let writes = in_window.count() as u64;
    let whom = [&watching[..], &others].concat();
    crew.tell(&whom, &Word::Finish(did.written)).await?;
    let mut round = Round {
        seconds: plan.window.as_secs_f64(),
        writes,
        cpu_us: window.cpu_us,
        load_us: window.load_us,
        other_cores: window.other_cores,
        rss_per_watcher_kb: opened as f64 / case.watchers.max(1) as f64,
        peak_kb,
        saw: Saw::default(),
        acked: Histogram::new(3)?,
        sent: Histogram::new(3)?,
        others: Vec::new(),
    };
    let mut said = crew.results_of(&whom).await?;
    said.sort_by_key(|(nth, _)| *nth);
    for (nth, said) in said {
        match said {
            Said::Saw(saw) if others.contains(&nth) => round.others.push(saw),
            Said::Saw(saw) => round.take(saw)?,
            _ => bail!("a watcher does not say what it saw"),
        }
    }
    Ok(round)
}

impl Round {
    /// Takes what the watchers of one process saw.
    fn take(&mut self, one: Saw) -> anyhow::Result<()> {
        clock::add(&mut self.acked, &one.since_acked)?;
        clock::add(&mut self.sent, &one.since_sent)?;
        let all = &mut self.saw;
        all.events += one.events;
        all.bytes += one.bytes;
        all.in_window += one.in_window;
        all.gaps += one.gaps;
        all.duplicates += one.duplicates;
        all.backwards += one.backwards;
        all.strange += one.strange;
        all.ended.extend(one.ended);
        Ok(())
    }

    pub(super) fn line(&self) -> String {
        format!(
            "{:.0} events/s, p99 {:.1} ms, {:.2} µs of CPU each",
            self.saw.in_window as f64 / self.seconds,
            self.acked.value_at_quantile(0.99) as f64 / 1000.0,
            self.cpu_us as f64 / self.saw.in_window.max(1) as f64,
        )
    }
}

/// Says how watches ended, each way once.
pub(super) fn endings<'a>(rounds: impl IntoIterator<Item = &'a Round>) -> Vec<String> {
    let endings = rounds.into_iter().flat_map(|round| &round.saw.ended);
    let endings: BTreeSet<&String> = endings.collect();
    endings.into_iter().cloned().collect()
}

/// Takes the middle of each figure, and the sum of what must not be.
pub(super) fn sum_up(case: &Case, target: &str, rounds: &[Round]) -> anyhow::Result<Figures> {
    let first = rounds.first().context("no round")?;
    let middle = |of: &dyn Fn(&Round) -> f64| median(rounds.iter().map(of).collect());
    let quantile = |q: f64| middle(&|r: &Round| r.acked.value_at_quantile(q) as f64);
    let all = |of: &dyn Fn(&Saw) -> u64| rounds.iter().map(|r| of(&r.saw)).sum::<u64>();
    let per_event = |of: u64, r: &Round| match r.saw.in_window {
        0 => 0.0,
        events => of as f64 / events as f64,
    };
    Ok(Figures {
        case: case.name(),
        target: target.to_owned(),
        watchers: case.watchers as u64,
        events_per_s: middle(&|r| r.saw.in_window as f64 / r.seconds),
        writes_per_s: middle(&|r| r.writes as f64 / r.seconds),
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        p999_us: quantile(0.999),
        p99_since_sent_us: middle(&|r| r.sent.value_at_quantile(0.99) as f64),
        server_cpu_us_per_event: middle(&|r| per_event(r.cpu_us, r)),
        server_cpu_us_per_write: middle(&|r| r.cpu_us as f64 / r.writes.max(1) as f64),
        load_cpu_us_per_event: middle(&|r| per_event(r.load_us, r)),
        other_cores: middle(&|r| r.other_cores),
        bytes_per_event: middle(&|r| r.saw.bytes as f64 / r.saw.events.max(1) as f64),
        // Later rounds find memory that the first has left.
        rss_kb_per_watcher: first.rss_per_watcher_kb,
        peak_rss_mb: middle(&|r| r.peak_kb as f64 / 1024.0),
        endings: endings(rounds),
        terminated: all(&|saw| saw.ended.len() as u64),
        gaps: all(&|saw| saw.gaps),
        duplicates: all(&|saw| saw.duplicates),
        backwards: all(&|saw| saw.backwards),
        strange: all(&|saw| saw.strange),
    })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn shares_are_all_there_is() {
        for (count, processes) in [(0, 2), (1, 2), (7, 3), (10_000, 4), (3, 8)] {
            let shares = shares(count, processes);
            assert_eq!(shares.iter().map(|(_, n)| n).sum::<usize>(), count);
            assert!(shares.len() <= processes);
            let mut next = 0;
            for (first, n) in shares {
                assert_eq!(first, next);
                next = first + n;
            }
        }
    }
}
