//! One table for people, the same figures as JSON for machines.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::Serialize;

/// One measured case.
#[derive(Serialize)]
pub(crate) struct Run {
    pub(crate) case: String,
    pub(crate) target: String,
    /// How many measurements the percentiles are of.
    pub(crate) samples: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
    /// How many took longer than a tenth of a second.
    pub(crate) over_100ms: u64,
    /// CPU the server used for each operation (a pod brought up and taken down
    /// again, a put with all that went on beside it), its children left out.
    pub(crate) server_cpu_us_per_op: u64,
    pub(crate) server_rss_mb: u64,
}

impl Run {
    /// Summarises latencies in microseconds.
    pub(crate) fn of(case: String, latencies: &Histogram<u64>) -> Self {
        Self {
            case,
            target: "keelson".to_owned(),
            samples: latencies.len(),
            p50_us: latencies.value_at_quantile(0.50),
            p99_us: latencies.value_at_quantile(0.99),
            max_us: latencies.max(),
            over_100ms: latencies.len() - latencies.count_between(0, 100_000),
            server_cpu_us_per_op: 0,
            server_rss_mb: 0,
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
}

impl Report {
    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if !self.sizes.is_empty() {
            return self.print_sizes(&mut out);
        }
        writeln!(
            out,
            "{:<8} {:<12} {:>8} {:>10} {:>10} {:>10} {:>9} {:>12} {:>8}",
            "target",
            "case",
            "samples",
            "p50 ms",
            "p99 ms",
            "max ms",
            ">100 ms",
            "cpu µs/op",
            "rss MB"
        )?;
        for r in &self.runs {
            writeln!(
                out,
                "{:<8} {:<12} {:>8} {:>10} {:>10} {:>10} {:>9} {:>12} {:>8}",
                r.target,
                r.case,
                r.samples,
                millis(r.p50_us),
                millis(r.p99_us),
                millis(r.max_us),
                r.over_100ms,
                r.server_cpu_us_per_op,
                r.server_rss_mb
            )?;
        }
        for ratio in &self.ratios {
            writeln!(
                out,
                "{} {}: {:.2} of the peer's",
                ratio.case, ratio.metric, ratio.ours_over_peer
            )?;
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
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

fn millis(us: u64) -> String {
    format!("{}.{}", us / 1000, us % 1000 / 100)
}

/// Writes a line to standard error; there is nobody to tell if that fails.
pub(crate) fn say_error(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}
