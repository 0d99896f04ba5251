//! How long operations took, and how many there were.

use std::{collections::BTreeMap, fmt::Write as _};

use checkers::history::{Fault, Time};

use super::{Act, Class, Extent, grouped, seconds, svg};

/// As many operations are drawn one by one; of more only what stands out in each piece
/// of time.
const POINTS_MAX: usize = 6000;

/// How many pieces of time there are.
const BINS: usize = 400;

/// How high a plot is.
const HEIGHT: f64 = 220.0;

/// Says what the colours mean.
pub(super) fn legend() -> String {
    let mut out = svg::begin(svg::WIDTH, 18.0, "what the colours mean");
    let words = [
        (Class::Ok, "acknowledged"),
        (Class::Fail, "refused"),
        (Class::Info, "unknown outcome"),
    ];
    let mut x = svg::LEFT;
    for (class, word) in words {
        let _ = writeln!(
            out,
            "<rect class=\"{}\" x=\"{x}\" y=\"4\" width=\"10\" height=\"10\"/><text x=\"{}\" y=\"13\">{word}</text>",
            class.word(),
            x + 15.0
        );
        x += 140.0;
    }
    let _ = writeln!(
        out,
        "<rect class=\"band\" x=\"{x}\" y=\"4\" width=\"10\" height=\"10\" style=\"opacity:.4\"/><text x=\"{}\" y=\"13\">fault</text>",
        x + 15.0
    );
    out.push_str("</svg>\n");
    out
}

struct Point {
    at: Time,
    took: Time,
    class: Class,
}

/// Draws how long each operation took, on a scale of powers of ten.
pub(super) fn latency(acts: &[Act<'_>], faults: &[Fault], extent: Extent) -> String {
    let points: Vec<_> = acts
        .iter()
        .map(|act| Point {
            at: act.call,
            took: act.ret.saturating_sub(act.call).max(1),
            class: act.class,
        })
        .collect();
    let shown = if points.len() > POINTS_MAX {
        extremes(&points, extent)
    } else {
        points.iter().collect()
    };
    let least = shown.iter().map(|p| p.took).min().unwrap_or(1);
    let most = shown.iter().map(|p| p.took).max().unwrap_or(1);
    let low = seconds(least).log10().floor();
    let high = seconds(most).log10().ceil().max(low + 1.0);
    let y = |took: f64| svg::TOP + HEIGHT * (high - took.log10()) / (high - low);
    let total = svg::TOP + HEIGHT + svg::BOTTOM;
    let mut out = svg::begin(svg::WIDTH, total, "latency of operations over time");
    svg::bands(&mut out, faults, extent, HEIGHT);
    let mut power = low;
    while power <= high {
        let at = y(10_f64.powf(power));
        axis(&mut out, at, &svg::duration(10_f64.powf(power)));
        power += 1.0;
    }
    for point in shown {
        let _ = writeln!(
            out,
            "<circle class=\"{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.6\" opacity=\".7\"/>",
            point.class.word(),
            svg::x(extent, point.at),
            y(seconds(point.took))
        );
    }
    svg::times(&mut out, extent, HEIGHT);
    out.push_str("</svg>\n");
    out.push_str(&quantiles(&points));
    out
}

fn axis(out: &mut String, y: f64, word: &str) {
    let _ = writeln!(
        out,
        "<path class=\"axis\" d=\"M{} {y:.1}H{}\"/><text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{word}</text>",
        svg::LEFT,
        svg::WIDTH - svg::RIGHT,
        svg::LEFT - 6.0,
        y + 4.0
    );
}

/// Keeps of each piece of time and each outcome the fastest, the slowest, and some
/// between.
fn extremes(points: &[Point], extent: Extent) -> Vec<&Point> {
    let mut bins: BTreeMap<(usize, Class), Vec<&Point>> = BTreeMap::new();
    for point in points {
        let bin = bin(extent, point.at);
        bins.entry((bin, point.class)).or_default().push(point);
    }
    let mut kept = Vec::new();
    for mut bin in bins.into_values() {
        bin.sort_by_key(|point| (point.took, point.at));
        let last = bin.len() - 1;
        let mut places = [0, last / 4, last / 2, last * 9 / 10, last * 99 / 100, last].to_vec();
        places.dedup();
        kept.extend(places.into_iter().map(|at| bin[at]));
    }
    kept
}

fn bin(extent: Extent, at: Time) -> usize {
    let part = u128::from(at.clamp(extent.from, extent.to) - extent.from);
    let bin = part * (BINS as u128) / u128::from(extent.length());
    usize::try_from(bin).unwrap_or(BINS).min(BINS - 1)
}

fn quantiles(points: &[Point]) -> String {
    let ok = points.iter().filter(|point| point.class == Class::Ok);
    let mut took: Vec<_> = ok.map(|point| point.took).collect();
    took.sort_unstable();
    let Some(last) = took.len().checked_sub(1) else {
        return String::new();
    };
    let at = |part: usize| svg::duration(seconds(took[last * part / 1000]));
    format!(
        "<p>Acknowledged: median {}, 99 % within {}, 99.9 % within {}, slowest {}.</p>\n",
        at(500),
        at(990),
        at(999),
        at(1000)
    )
}

/// Draws how many operations ended in each piece of time.
#[expect(clippy::cast_precision_loss, reason = "pixels")]
pub(super) fn rate(acts: &[Act<'_>], faults: &[Fault], extent: Extent) -> String {
    let bins = BINS.min(acts.len().div_ceil(4)).max(1);
    let mut counts = vec![[0usize; 3]; bins];
    for act in acts {
        let at = bin(extent, act.ret) * bins / BINS;
        counts[at][act.class as usize] += 1;
    }
    let width = seconds(extent.length()) / bins as f64;
    let per_second = |count: usize| count as f64 / width;
    let most = counts.iter().flatten().copied().max().unwrap_or(1);
    let most = per_second(most).max(1e-9);
    let step = svg::step(most / 4.0);
    let high = (most / step).ceil() * step;
    let y = |rate: f64| svg::TOP + HEIGHT * (1.0 - rate / high);
    let total = svg::TOP + HEIGHT + svg::BOTTOM;
    let mut out = svg::begin(svg::WIDTH, total, "operations per second over time");
    svg::bands(&mut out, faults, extent, HEIGHT);
    let mut tick = 0.0;
    while tick <= high * 1.0001 {
        let word = if high < 10.0 {
            format!("{tick:.1}")
        } else {
            // As many as fit in a plot fit in this.
            grouped(tick as usize)
        };
        axis(&mut out, y(tick), &word);
        tick += step;
    }
    let plot = svg::WIDTH - svg::LEFT - svg::RIGHT;
    for class in Class::ALL {
        if counts.iter().all(|counts| counts[class as usize] == 0) {
            continue;
        }
        let mut path = String::new();
        for (at, counts) in counts.iter().enumerate() {
            let x = svg::LEFT + plot * (at as f64 + 0.5) / bins as f64;
            let to = if at == 0 { 'M' } else { 'L' };
            let _ = write!(
                path,
                "{to}{x:.1} {:.1}",
                y(per_second(counts[class as usize]))
            );
        }
        let _ = writeln!(out, "<path class=\"line {}\" d=\"{path}\"/>", class.word());
    }
    svg::times(&mut out, extent, HEIGHT);
    out.push_str("</svg>\n");
    out
}
