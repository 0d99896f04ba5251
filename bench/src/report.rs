//! One table for people, the same figures as JSON for machines.

use std::fmt;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::engine::figures::{self, Figures};
use crate::fanout::figures::Results;
use crate::machine::Machine;

/// One measured case.
#[derive(Serialize)]
pub(crate) struct Run {
    pub(crate) case: String,
    pub(crate) target: String,
    /// How many measurements the percentiles are of.
    pub(crate) samples: u64,
    /// Zero where the rate was given.
    pub(crate) ops_per_s: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) p999_us: u64,
    pub(crate) max_us: u64,
    /// How many took longer than a tenth of a second.
    pub(crate) over_100ms: u64,
    /// CPU the server used for each operation (a pod brought up and taken down
    /// again, a put with all that went on beside it), its children left out.
    pub(crate) server_cpu_us_per_op: f64,
    pub(crate) server_rss_mb: u64,
    /// How often the log and the rows were synced for each operation.
    pub(crate) syncs_per_op: f64,
    /// By how much the files grew for each operation.
    pub(crate) disk_bytes_per_op: f64,
}

/// A figure that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    OpsPerSecond,
    P50,
    P99,
    Max,
    CpuPerOp,
    Rss,
}

impl Metric {
    /// Returns what it is called in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OpsPerSecond => "ops_per_s",
            Self::P50 => "p50_us",
            Self::P99 => "p99_us",
            Self::Max => "max_us",
            Self::CpuPerOp => "server_cpu_us_per_op",
            Self::Rss => "server_rss_mb",
        }
    }

    pub(crate) fn of(self, run: &Run) -> f64 {
        match self {
            Self::OpsPerSecond => run.ops_per_s,
            Self::P50 => run.p50_us as f64,
            Self::P99 => run.p99_us as f64,
            Self::Max => run.max_us as f64,
            Self::CpuPerOp => run.server_cpu_us_per_op,
            Self::Rss => run.server_rss_mb as f64,
        }
    }
}

impl Run {
    /// Summarises latencies in microseconds.
    pub(crate) fn of(case: String, latencies: &Histogram<u64>) -> Self {
        Self {
            case,
            target: "keelson".to_owned(),
            samples: latencies.len(),
            ops_per_s: 0.0,
            p50_us: latencies.value_at_quantile(0.50),
            p99_us: latencies.value_at_quantile(0.99),
            p999_us: latencies.value_at_quantile(0.999),
            max_us: latencies.max(),
            over_100ms: latencies.len() - latencies.count_between(0, 100_000),
            server_cpu_us_per_op: 0.0,
            server_rss_mb: 0,
            syncs_per_op: 0.0,
            disk_bytes_per_op: 0.0,
        }
    }
}

/// Everything one invocation measured.
#[derive(Default, Serialize)]
pub(crate) struct Report {
    pub(crate) runs: Vec<Run>,
    /// What a large store takes; empty where nobody asked.
    pub(crate) sizes: Vec<Size>,
    /// Ours over a peer's; empty where no peer took part.
    pub(crate) ratios: Vec<Ratio>,
    /// What some figures may be at most; empty where nothing was asked of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) bounds: Vec<Bound>,
    /// The engines that were compared; empty where nobody asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) engines: Vec<Figures>,
    /// What watchers were shown, and what it cost; none where nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fanout: Option<Results>,
}

/// A report, and what it is of.
#[derive(Serialize)]
struct Measured<'a> {
    machine: Machine,
    #[serde(flatten)]
    report: &'a Report,
}

/// What a store takes at one moment, or took meanwhile.
#[derive(Serialize)]
pub(crate) struct Size {
    pub(crate) case: String,
    pub(crate) target: String,
    pub(crate) seconds: f64,
    pub(crate) rss_mb: u64,
    pub(crate) peak_rss_mb: u64,
    pub(crate) disk_mb: u64,
}

/// One figure of ours over the peer's in the same run.
#[derive(Serialize)]
pub(crate) struct Ratio {
    pub(crate) case: String,
    pub(crate) metric: String,
    pub(crate) ours_over_peer: f64,
    /// What it should be at most or at least.
    pub(crate) margin: Option<f64>,
    /// Whether it is.
    pub(crate) held: Option<bool>,
}

/// A figure that must not be above a bound.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bound {
    pub(crate) case: String,
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) at_most: f64,
    pub(crate) held: bool,
}

impl Bound {
    pub(crate) fn new(case: &str, what: &str, value: f64, at_most: f64) -> Self {
        Self {
            case: case.to_owned(),
            what: what.to_owned(),
            value,
            at_most,
            held: value <= at_most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.held { "within" } else { "NOT within" };
        let (case, what, value) = (&self.case, &self.what, short(self.value));
        write!(f, "{case}: {what}: {value}, {verdict} {}", self.at_most)
    }
}

/// Writes a number as short as its size allows.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == v.trunc() => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

impl Report {
    /// Takes a run, and what some of its figures may be at most.
    pub(crate) fn push(&mut self, run: Run, bounds: &[(Metric, f64)]) {
        let bound = |&(metric, at_most): &(Metric, f64)| {
            Bound::new(&run.case, metric.name(), metric.of(&run), at_most)
        };
        self.bounds.extend(bounds.iter().map(bound));
        self.runs.push(run);
    }

    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if !self.engines.is_empty() {
            return figures::print(&self.engines, &mut out);
        }
        if !self.sizes.is_empty() {
            return self.print_sizes(&mut out);
        }
        if let Some(fanout) = &self.fanout {
            return fanout.print(&mut out);
        }
        let width = self.runs.iter().map(|run| run.case.len()).max();
        let width = width.unwrap_or(0).max("case".len());
        writeln!(
            out,
            "{:<8} {:<width$} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10} {:>7} {:>8} {:>8}",
            "target",
            "case",
            "samples",
            "op/s",
            "p50 ms",
            "p99 ms",
            "p999 ms",
            "max ms",
            ">100 ms",
            "cpu µs/op",
            "rss MB",
            "syncs/op",
            "disk B/op"
        )?;
        for r in &self.runs {
            writeln!(
                out,
                "{:<8} {:<width$} {:>9} {:>9.0} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10.1} {:>7} {:>8.3} {:>8.0}",
                r.target,
                r.case,
                r.samples,
                r.ops_per_s,
                millis(r.p50_us),
                millis(r.p99_us),
                millis(r.p999_us),
                millis(r.max_us),
                r.over_100ms,
                r.server_cpu_us_per_op,
                r.server_rss_mb,
                r.syncs_per_op,
                r.disk_bytes_per_op
            )?;
        }
        for ratio in &self.ratios {
            let verdict = match (ratio.margin, ratio.held) {
                (Some(margin), Some(true)) => format!(", within {margin}"),
                (Some(margin), Some(false)) => format!(", NOT within {margin}"),
                _ => String::new(),
            };
            writeln!(
                out,
                "{} {}: {:.2} of the peer's{verdict}",
                ratio.case, ratio.metric, ratio.ours_over_peer
            )?;
        }
        for bound in &self.bounds {
            writeln!(out, "{bound}")?;
        }
        Ok(())
    }

    fn print_sizes(&self, out: &mut impl Write) -> anyhow::Result<()> {
        writeln!(
            out,
            "{:<8} {:<28} {:>9} {:>8} {:>9} {:>9}",
            "target", "case", "seconds", "rss MB", "peak MB", "disk MB"
        )?;
        for s in &self.sizes {
            writeln!(
                out,
                "{:<8} {:<28} {:>9.1} {:>8} {:>9} {:>9}",
                s.target, s.case, s.seconds, s.rss_mb, s.peak_rss_mb, s.disk_mb
            )?;
        }
        Ok(())
    }

    pub(crate) fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        let measured = Measured {
            machine: Machine::this(),
            report: self,
        };
        let text = serde_json::to_string_pretty(&measured)?;
        std::fs::write(path, text + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

fn millis(us: u64) -> String {
    format!("{}.{:02}", us / 1000, us % 1000 / 10)
}

/// Writes a line to standard output.
pub(crate) fn say(line: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}

/// Writes a line to standard error; there is nobody to tell if that fails.
pub(crate) fn say_error(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}
