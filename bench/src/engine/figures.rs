//! All figures of one engine, and the table of all engines side by side.

use std::io::Write;

use serde::Serialize;

use super::crash::Crashes;
use super::measure::{Loaded, Opened};

/// Everything that was found out about one engine.
#[derive(Serialize)]
pub(crate) struct Figures {
    pub(crate) engine: String,
    pub(crate) what: String,
    pub(crate) loaded: Option<Loaded>,
    pub(crate) opened: Option<Opened>,
    pub(crate) kills: Crashes,
    pub(crate) cuts: Crashes,
    /// Why figures are missing.
    pub(crate) failed: Vec<String>,
}

/// Is one line of the table: what it says, and the figure of an engine, if there is one.
type Line = (&'static str, fn(&Figures) -> Option<String>);

const LINES: &[Line] = &[
    ("revisions", |f| {
        Some(f.loaded.as_ref()?.revisions.to_string())
    }),
    ("load: revisions/s", |f| {
        Some(format!("{:.0}", f.loaded.as_ref()?.revisions_per_s))
    }),
    ("load: CPU µs/revision", |f| {
        Some(format!("{:.2}", f.loaded.as_ref()?.cpu_us_per_revision))
    }),
    ("all of it: CPU µs/revision", |f| {
        let loaded = f.loaded.as_ref()?;
        Some(format!("{:.2}", loaded.cpu_us_per_revision_in_all))
    }),
    ("load: bytes to disk/byte of rows", |f| {
        Some(format!("{:.2}", f.loaded.as_ref()?.bytes_per_byte))
    }),
    ("load: write+flush p50 ms", |f| {
        Some(ms(f.loaded.as_ref()?.load.write_and_flush.p50_us))
    }),
    ("load: write+flush p99 ms", |f| {
        Some(ms(f.loaded.as_ref()?.load.write_and_flush.p99_us))
    }),
    ("load: flush p50 ms", |f| {
        Some(ms(f.loaded.as_ref()?.load.flush.p50_us))
    }),
    ("load: flush p99 ms", |f| {
        Some(ms(f.loaded.as_ref()?.load.flush.p99_us))
    }),
    ("small batches: write+flush p50 ms", |f| {
        Some(ms(f.loaded.as_ref()?.steady.write_and_flush.p50_us))
    }),
    ("small batches: write+flush p99 ms", |f| {
        Some(ms(f.loaded.as_ref()?.steady.write_and_flush.p99_us))
    }),
    ("small batches: flush p50 ms", |f| {
        Some(ms(f.loaded.as_ref()?.steady.flush.p50_us))
    }),
    ("small batches: flush p99 ms", |f| {
        Some(ms(f.loaded.as_ref()?.steady.flush.p99_us))
    }),
    ("compaction: s", |f| {
        Some(format!("{:.2}", f.loaded.as_ref()?.compaction_s))
    }),
    ("tidying: s", |f| {
        Some(format!("{:.2}", f.loaded.as_ref()?.tidy_s))
    }),
    ("disk MB, loaded", |f| {
        Some(mb(f.loaded.as_ref()?.loaded_disk_bytes))
    }),
    ("disk MB, compacted", |f| {
        Some(mb(f.loaded.as_ref()?.compacted_disk_bytes))
    }),
    ("disk MB, tidied", |f| {
        Some(mb(f.loaded.as_ref()?.tidied_disk_bytes))
    }),
    ("disk MB, opened again", |f| {
        Some(mb(f.opened.as_ref()?.disk_bytes))
    }),
    ("rows MB, compacted", |f| Some(mb(f.opened.as_ref()?.bytes))),
    ("RSS peak MB, writing", |f| {
        Some(f.loaded.as_ref()?.rss_peak_mb.to_string())
    }),
    ("RSS peak MB, opening", |f| {
        Some(f.opened.as_ref()?.rss_mb.to_string())
    }),
    ("open ms", |f| {
        Some(format!("{:.0}", f.opened.as_ref()?.open_ms))
    }),
    ("scan ms", |f| {
        Some(format!("{:.0}", f.opened.as_ref()?.scan_ms))
    }),
    ("block read p50 µs", |f| {
        Some(format!("{:.1}", f.opened.as_ref()?.read.p50_us))
    }),
    ("block read p99 µs", |f| {
        Some(format!("{:.1}", f.opened.as_ref()?.read.p99_us))
    }),
    ("block read CPU µs", |f| {
        Some(format!("{:.1}", f.opened.as_ref()?.cpu_us_per_read))
    }),
    ("kills: whole/lost/torn/shut", |f| Some(outcome(&f.kills))),
    ("cuts: whole/lost/torn/shut", |f| Some(outcome(&f.cuts))),
    ("open+scan after a crash, ms max", |f| {
        let slowest = f.kills.open_ms_max.max(f.cuts.open_ms_max);
        (slowest > 0.0).then(|| format!("{slowest:.0}"))
    }),
];

fn ms(us: f64) -> String {
    format!("{:.2}", us / 1_000.0)
}

fn mb(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}

/// Says how crashes went, in the order of the line's name.
fn outcome(crashes: &Crashes) -> String {
    let Crashes {
        tried,
        whole,
        lost,
        torn,
        unopened,
        ..
    } = crashes;
    match tried {
        0 => "not tried".to_owned(),
        _ => format!("{whole}/{lost}/{torn}/{unopened}"),
    }
}

/// Prints a line for each figure and a column for each engine.
pub(crate) fn print(all: &[Figures], out: &mut impl Write) -> anyhow::Result<()> {
    let cells: Vec<Vec<String>> = all.iter().map(column).collect();
    let name = LINES.iter().map(|(name, _)| width(name)).max();
    let name = name.unwrap_or(0);
    let mut line = |first: &str, nth: Option<usize>| -> anyhow::Result<()> {
        write!(out, "{first}{:1$}", "", name - width(first))?;
        for (engine, column) in all.iter().zip(&cells) {
            let wide = column.iter().map(|cell| width(cell)).max().unwrap_or(0);
            let wide = wide.max(width(&engine.engine));
            let cell = nth.map_or(&engine.engine, |nth| &column[nth]);
            write!(out, "  {:1$}{cell}", "", wide - width(cell))?;
        }
        Ok(writeln!(out)?)
    };
    line("", None)?;
    for (nth, (name, _)) in LINES.iter().enumerate() {
        line(name, Some(nth))?;
    }
    for engine in all {
        let name = &engine.engine;
        for (kind, crashes) in [("kills", &engine.kills), ("cuts", &engine.cuts)] {
            for why in crashes.not_tried.iter().chain(&crashes.notes) {
                writeln!(out, "{name}, {kind}: {why}")?;
            }
        }
        for why in &engine.failed {
            writeln!(out, "{name}: {why}")?;
        }
    }
    Ok(())
}

fn column(engine: &Figures) -> Vec<String> {
    let cells = LINES.iter().map(|(_, cell)| cell(engine));
    cells.map(|cell| cell.unwrap_or("-".to_owned())).collect()
}

/// Counts characters, not bytes.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_wrong_is_in_the_table() {
        let crashes = Crashes {
            tried: 9,
            whole: 6,
            lost: 2,
            unopened: 1,
            notes: vec!["round 3: lost: batch 1 is the last of 2".to_owned()],
            ..Crashes::default()
        };
        let not_tried = Crashes {
            not_tried: Some("FUSE is missing here".to_owned()),
            ..Crashes::default()
        };
        let figures = Figures {
            engine: "some".to_owned(),
            what: "an engine".to_owned(),
            loaded: None,
            opened: None,
            kills: crashes,
            cuts: not_tried,
            failed: vec!["it did not load".to_owned()],
        };
        let mut out = Vec::new();
        print(&[figures], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in [
            "6/2/0/1",
            "not tried",
            "some, kills: round 3: lost",
            "some, cuts: FUSE is missing here",
            "some: it did not load",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let lines: Vec<_> = text.lines().take(LINES.len() + 1).map(width).collect();
        assert!(lines.iter().all(|wide| *wide == lines[0]), "{text}");
    }
}
