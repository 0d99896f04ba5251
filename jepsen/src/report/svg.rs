//! Drawings as text.

use std::fmt::Write as _;

use checkers::history::{Fault, Time};

use super::{Extent, seconds};

/// How wide plots are, with their margins.
pub(super) const WIDTH: f64 = 1080.0;
/// Where plots begin: the words of the vertical axis stand before.
pub(super) const LEFT: f64 = 64.0;
/// What is left free at the other end.
pub(super) const RIGHT: f64 = 12.0;
/// How high the line above a plot is, in which faults are named.
pub(super) const TOP: f64 = 18.0;
/// How high the line below a plot is, in which times stand.
pub(super) const BOTTOM: f64 = 22.0;

/// How many bands of faults are drawn; more are too thin to see, and are merged.
const BANDS_MAX: usize = 400;

/// Makes text of any text that may stand in a page.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // What XML may not hold is shown as such.
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Begins a drawing.
pub(super) fn begin(width: f64, height: f64, says: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n",
        escape(says)
    )
}

/// Returns where a time stands.
#[expect(clippy::cast_precision_loss, reason = "pixels")]
pub(super) fn x(extent: Extent, at: Time) -> f64 {
    let part = at.clamp(extent.from, extent.to) - extent.from;
    LEFT + (WIDTH - LEFT - RIGHT) * (part as f64 / extent.length() as f64)
}

/// Draws the time below a plot of some height.
pub(super) fn times(out: &mut String, extent: Extent, height: f64) {
    let length = seconds(extent.length());
    let step = step(length / 8.0);
    let bottom = TOP + height;
    let _ = writeln!(
        out,
        "<path class=\"axis\" d=\"M{LEFT} {bottom}H{}\"/>",
        WIDTH - RIGHT
    );
    let mut tick = 0.0;
    while tick <= length * 1.0001 {
        let x = LEFT + (WIDTH - LEFT - RIGHT) * (tick / length);
        let _ = writeln!(
            out,
            "<path class=\"axis\" d=\"M{x:.1} {bottom}v4\"/><text class=\"soft\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            duration(tick)
        );
        tick += step;
    }
}

/// Rounds a distance between ticks up to one that people count in.
pub(super) fn step(least: f64) -> f64 {
    let ten = 10_f64.powf(least.max(1e-9).log10().floor());
    let fits = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * ten);
    fits.into_iter().find(|n| *n >= least).unwrap_or(10.0 * ten)
}

/// Writes a time in the unit it is best read in.
pub(super) fn duration(seconds: f64) -> String {
    let (number, unit) = match seconds {
        0.0 => (0.0, "s"),
        s if s < 1e-6 => (s * 1e9, "ns"),
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = usize::from(number.fract() > 0.01);
    format!("{number:.digits$} {unit}")
}

/// Draws what was done to the cluster, behind a plot of some height.
pub(super) fn bands(out: &mut String, nemesis: &[Fault], extent: Extent, height: f64) {
    let mut named: Option<f64> = None;
    let mut faults: Vec<_> = nemesis.iter().collect();
    faults.sort_by_key(|fault| fault.from);
    for fault in faults.iter().take(BANDS_MAX) {
        let (from, to) = (x(extent, fault.from), x(extent, fault.to));
        let width = (to - from).max(1.5);
        let _ = writeln!(
            out,
            "<rect class=\"band\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{} {}</title></rect>",
            escape(&fault.kind),
            escape(&fault.detail)
        );
        // A name is written where it does not run into the last.
        if named.is_none_or(|end| end < from) {
            let kind = escape(&fault.kind);
            let _ = writeln!(
                out,
                "<text class=\"soft\" x=\"{from:.1}\" y=\"{:.1}\" font-size=\"11\">{kind}</text>",
                TOP - 5.0
            );
            named =
                Some(from + 7.0 * f64::from(u16::try_from(fault.kind.len()).unwrap_or(9)) + 8.0);
        }
    }
}
