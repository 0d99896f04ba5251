//! `jepsen check FILE`: judges a history that some run left behind.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use checkers::{
    history::{self, History},
    judge::{Judgement, Settings, judge},
    lease, wgl,
};

use crate::{report, say};

/// Judges a recorded history. Exits with 0 if it is valid, 1 if a promise was broken, 2
/// if nobody can tell, 3 if the harness itself is wrong.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The history, as JSON lines.
    file: PathBuf,
    /// Writes report.html and summary.json into this folder.
    #[arg(long)]
    report: Option<PathBuf>,
    /// How many steps to search for an order of one key without revisions.
    #[arg(long, default_value_t = wgl::Budget::default().steps_per_key)]
    steps: u64,
    /// How much too early a lease may end, in milliseconds: clocks do not run alike.
    #[arg(long, default_value_t = 0)]
    early_ms: u64,
    /// How much too late a lease may end, in milliseconds; not looked at if not given.
    #[arg(long)]
    late_ms: Option<u64>,
}

/// Judges the file.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let name = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot open {name}"))?;
    let history = history::read(BufReader::new(file)).with_context(|| format!("in {name}"))?;
    say::line(&format!(
        "{} operations and {} watches read in {:.1?}",
        history.len(),
        history.watches.len(),
        start.elapsed()
    ));
    let nanos = |ms: u64| u64::try_from(Duration::from_millis(ms).as_nanos()).unwrap_or(u64::MAX);
    let settings = Settings {
        budget: wgl::Budget {
            steps_per_key: args.steps,
            ..wgl::Budget::default()
        },
        leases: lease::Limits {
            early: nanos(args.early_ms),
            late: args.late_ms.map(nanos),
        },
    };
    let start = Instant::now();
    let judgement = judge(&history, &settings);
    tell(&judgement);
    say::line(&format!("judged in {:.1?}", start.elapsed()));
    if let Some(folder) = &args.report {
        write(&history, &judgement, folder)?;
    }
    Ok(report::exit_code(&judgement.verdict))
}

fn write(history: &History, judgement: &Judgement, folder: &Path) -> anyhow::Result<()> {
    let page = report::write(history, judgement, folder)?;
    say::line(&format!("report: {}", page.display()));
    Ok(())
}

/// Prints what each checker says, and what is wrong.
pub(crate) fn tell(judgement: &Judgement) {
    for finding in &judgement.findings {
        let (checker, checked) = (finding.checker, finding.checked);
        let mut line = format!("{checker:8} {checked:>9}  {}", finding.verdict.word());
        if let Some(why) = report::why(&finding.verdict) {
            line += &format!(": {why}");
        }
        say::line(&line);
        for anomaly in finding.verdict.anomalies() {
            say::line(&format!("    {}: {}", anomaly.name, anomaly.text));
        }
    }
    say::line(&format!("verdict: {}", judgement.verdict.word()));
}
