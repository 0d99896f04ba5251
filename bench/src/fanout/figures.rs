//! What `bench fanout` found: a table, facts, and whether margins were kept.

use std::io::Write;

use serde::Serialize;

use crate::plot::{self, Bar};
use crate::report::{Bound, short};

/// The most cores that may be busy with something else for figures to be believed.
const QUIET_CORES: f64 = 0.25;

/// What one case showed of one server; of several rounds the middle of each figure.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) case: String,
    pub(crate) target: String,
    pub(crate) watchers: u64,
    pub(crate) events_per_s: f64,
    pub(crate) writes_per_s: f64,
    /// From the acknowledgement of the write to the arrival of the event; zero where
    /// the event came first.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    /// From the moment the write was sent.
    pub(crate) p99_since_sent_us: f64,
    /// Zero where the server's processes are not known.
    pub(crate) server_cpu_us_per_event: f64,
    pub(crate) server_cpu_us_per_write: f64,
    /// What the processes of the load used themselves.
    pub(crate) load_cpu_us_per_event: f64,
    /// How many cores were busy with neither; with a server whose processes are not
    /// known, it is among them.
    pub(crate) other_cores: f64,
    pub(crate) bytes_per_event: f64,
    /// What opening a watch added to the server's memory, its part of a connection
    /// among it.
    pub(crate) rss_kb_per_watcher: f64,
    pub(crate) peak_rss_mb: f64,
    /// Watches that the server ended, and how.
    pub(crate) terminated: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) endings: Vec<String>,
    pub(crate) gaps: u64,
    pub(crate) duplicates: u64,
    /// Events at a version not above that of the one before.
    pub(crate) backwards: u64,
    /// Events nobody asked for.
    pub(crate) strange: u64,
}

impl Figures {
    /// Says what is broken; nothing may be, on any server that is to be believed.
    fn broken(&self) -> Option<String> {
        let wrong = [
            (self.gaps, "gaps"),
            (self.duplicates, "duplicates"),
            (self.backwards, "versions that go backwards"),
            (self.strange, "strange events"),
        ];
        let wrong = wrong.iter().filter(|(count, _)| *count > 0);
        let wrong: Vec<_> = wrong.map(|(count, of)| format!("{count} {of}")).collect();
        let at = format!("{}, {}", self.case, self.target);
        (!wrong.is_empty()).then(|| format!("{at}: {}", wrong.join(", ")))
    }
}

/// Something else that was found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fact {
    pub(crate) case: String,
    pub(crate) target: String,
    pub(crate) what: String,
    pub(crate) value: f64,
}

/// Everything that one run found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) figures: Vec<Figures>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) checks: Vec<Bound>,
    /// What makes the run a failure.
    pub(crate) broken: Vec<String>,
}

impl Results {
    /// Takes the figures of a case.
    pub(super) fn add(&mut self, figures: Figures) {
        self.broken.extend(figures.broken());
        self.figures.push(figures);
    }

    pub(super) fn fact(&mut self, case: &str, target: &str, what: &str, value: f64) {
        self.facts.push(Fact {
            case: case.to_owned(),
            target: target.to_owned(),
            what: what.to_owned(),
            value,
        });
    }

    /// Holds a figure against a bound.
    pub(super) fn check(&mut self, case: &str, what: &str, value: f64, at_most: f64) {
        self.checks.push(Bound::new(case, what, value, at_most));
    }

    pub(super) fn breaks(&mut self, what: String) {
        self.broken.push(what);
    }

    /// Fails if anything is broken.
    pub(crate) fn verdict(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.broken.is_empty(), "{}", self.broken.join("\n"));
        Ok(())
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> anyhow::Result<()> {
        if !self.figures.is_empty() {
            self.print_table(out)?;
        }
        let loaded = self.figures.iter().map(|f| f.other_cores);
        if loaded.fold(0.0, f64::max) > QUIET_CORES {
            writeln!(
                out,
                "something else used more than {QUIET_CORES} of a core meanwhile (other): \
                 believe these figures little"
            )?;
        }
        for fact in &self.facts {
            let (at, of) = (&fact.case, &fact.target);
            writeln!(out, "{at}, {of}: {}: {}", fact.what, short(fact.value))?;
        }
        for check in &self.checks {
            writeln!(out, "{check}")?;
        }
        for broken in &self.broken {
            writeln!(out, "BROKEN: {broken}")?;
        }
        Ok(())
    }

    fn print_table(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let width = self.figures.iter().map(|f| f.case.len()).max();
        let width = width.unwrap_or(0).max("case".len());
        writeln!(
            out,
            "{:<8} {:<width$} {:>10} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>10} {:>5} {:>8} {:>8} {:>7} {:>5} {:>4} {:>4}",
            "target",
            "case",
            "events/s",
            "writes/s",
            "p50 ms",
            "p99 ms",
            "p999 ms",
            "cpu µs/ev",
            "cpu µs/wr",
            "load µs/ev",
            "other",
            "bytes/ev",
            "kB/watch",
            "peak MB",
            "ended",
            "gaps",
            "dups"
        )?;
        for f in &self.figures {
            writeln!(
                out,
                "{:<8} {:<width$} {:>10.0} {:>8.0} {:>8.2} {:>8.2} {:>8.2} {:>9.2} {:>9.1} {:>10.2} {:>5.2} {:>8.0} {:>8.1} {:>7.0} {:>5} {:>4} {:>4}",
                f.target,
                f.case,
                f.events_per_s,
                f.writes_per_s,
                f.p50_us / 1000.0,
                f.p99_us / 1000.0,
                f.p999_us / 1000.0,
                f.server_cpu_us_per_event,
                f.server_cpu_us_per_write,
                f.load_cpu_us_per_event,
                f.other_cores,
                f.bytes_per_event,
                f.rss_kb_per_watcher,
                f.peak_rss_mb,
                f.terminated,
                f.gaps,
                f.duplicates
            )?;
        }
        Ok(())
    }

    /// Draws the server's CPU for each delivered event.
    pub(super) fn plot(&self) -> String {
        let bars: Vec<Bar> = self
            .figures
            .iter()
            .filter(|f| f.server_cpu_us_per_event > 0.0)
            .map(|f| Bar {
                label: format!("{}, {}", f.case, f.target),
                value: f.server_cpu_us_per_event,
                mark: None,
                held: (f.target != "keelson").then_some(false),
            })
            .collect();
        let longest = bars.iter().map(|bar| bar.value).fold(1.0, f64::max);
        plot::bars("server CPU, µs for each delivered event", &bars, longest)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn anything_wrong_with_a_stream_fails_the_run() {
        let mut results = Results::default();
        results.add(Figures {
            case: "whole".to_owned(),
            terminated: 3,
            ..Figures::default()
        });
        assert!(results.verdict().is_ok());
        let wrong: [fn(&mut Figures); 4] = [
            |f| f.gaps = 1,
            |f| f.duplicates = 1,
            |f| f.backwards = 1,
            |f| f.strange = 1,
        ];
        for make in wrong {
            let mut figures = Figures::default();
            make(&mut figures);
            let mut results = Results::default();
            results.add(figures);
            assert!(results.verdict().is_err());
        }
    }

    #[test]
    fn margins_are_printed_either_way() {
        let mut results = Results::default();
        results.check("a", "CPU", 2.5, 3.0);
        results.check("b", "CPU", 3.5, 3.0);
        let mut out = Vec::new();
        results.print(&mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("a: CPU: 2.50, within 3"), "{out}");
        assert!(out.contains("b: CPU: 3.50, NOT within 3"), "{out}");
    }
}
