//! Who did what when: a lane for each client, and what was done to the cluster behind.

use std::{collections::BTreeMap, fmt::Write as _};

use checkers::history::Fault;

use super::{Act, Class, Extent, svg};

/// As many operations are drawn one by one; more are counted in cells.
const OPS_MAX: usize = 4000;

/// As many lanes are drawn; further clients share the last.
const LANES_MAX: usize = 40;

/// How many cells a lane has.
const CELLS: usize = 500;

/// How high a lane is.
const LANE: f64 = 12.0;

pub(super) fn draw(acts: &[Act<'_>], faults: &[Fault], extent: Extent) -> String {
    let lanes = lanes(acts);
    let count = lanes.values().max().map_or(1, |lane| lane + 1);
    let height = LANE * f64::from(u16::try_from(count).unwrap_or(u16::MAX));
    let total = svg::TOP + height + svg::BOTTOM;
    let mut out = svg::begin(svg::WIDTH, total, "operations of each client over time");
    svg::bands(&mut out, faults, extent, height);
    if acts.len() <= OPS_MAX {
        each(&mut out, acts, &lanes, extent);
    } else {
        cells(&mut out, acts, &lanes, extent);
    }
    for lane in 0..count {
        let y = top(lane) + LANE - 3.0;
        let _ = writeln!(
            out,
            "<text class=\"soft\" x=\"{}\" y=\"{y:.1}\" text-anchor=\"end\" font-size=\"9\">{}</text>",
            svg::LEFT - 6.0,
            if lane + 1 == LANES_MAX {
                "others".to_owned()
            } else {
                format!("client {lane}")
            }
        );
    }
    svg::times(&mut out, extent, height);
    out.push_str("</svg>\n");
    out.push_str(&super::plots::legend());
    out
}

fn top(lane: usize) -> f64 {
    svg::TOP + LANE * f64::from(u16::try_from(lane).unwrap_or(u16::MAX))
}

/// Gives each process a lane. A client that went on as another process after an unknown
/// outcome takes the lane that has been free the longest.
fn lanes(acts: &[Act<'_>]) -> BTreeMap<u32, usize> {
    let mut spans: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for act in acts {
        let span = spans.entry(act.process).or_insert((act.call, act.ret));
        *span = (span.0.min(act.call), span.1.max(act.ret));
    }
    let mut order: Vec<_> = spans.into_iter().collect();
    order.sort_by_key(|(process, (call, _))| (*call, *process));
    let mut free: Vec<u64> = Vec::new();
    let mut lanes = BTreeMap::new();
    for (process, (call, ret)) in order {
        let lane = (0..free.len())
            .filter(|lane| free[*lane] < call)
            .min_by_key(|lane| free[*lane]);
        let lane = match lane {
            Some(lane) => lane,
            None if free.len() < LANES_MAX => {
                free.push(0);
                free.len() - 1
            }
            None => LANES_MAX - 1,
        };
        free[lane] = free[lane].max(ret);
        lanes.insert(process, lane);
    }
    lanes
}

fn each(out: &mut String, acts: &[Act<'_>], lanes: &BTreeMap<u32, usize>, extent: Extent) {
    for act in acts {
        let lane = lanes.get(&act.process).copied().unwrap_or_default();
        let (from, to) = (svg::x(extent, act.call), svg::x(extent, act.ret));
        let _ = writeln!(
            out,
            "<rect class=\"{}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\" rx=\"1\"><title>{}</title></rect>",
            act.class.word(),
            top(lane) + 1.0,
            (to - from).max(1.0),
            LANE - 2.0,
            svg::escape(&act.what.to_string())
        );
    }
}

/// Draws a cell for each piece of time in which a client was at work; the worst outcome
/// gives the colour, the number of operations the strength.
fn cells(out: &mut String, acts: &[Act<'_>], lanes: &BTreeMap<u32, usize>, extent: Extent) {
    let mut cells: BTreeMap<(usize, usize), [u32; 3]> = BTreeMap::new();
    for act in acts {
        let lane = lanes.get(&act.process).copied().unwrap_or_default();
        let from = cell(extent, act.call);
        // A long operation is at work in all the cells it covers.
        let to = cell(extent, act.ret).max(from);
        for at in from..=to {
            let counts = cells.entry((lane, at)).or_default();
            counts[act.class as usize] += 1;
        }
    }
    let most = cells.values().map(|c| c.iter().sum()).max().unwrap_or(1u32);
    let width = (svg::WIDTH - svg::LEFT - svg::RIGHT) / 500.0;
    for ((lane, at), counts) in cells {
        let all: u32 = counts.iter().sum();
        let worst = Class::ALL
            .into_iter()
            .rev()
            .find(|c| counts[*c as usize] > 0);
        let strength = 0.35 + 0.65 * f64::from(all) / f64::from(most);
        let x = svg::LEFT + width * f64::from(u16::try_from(at).unwrap_or_default());
        let _ = writeln!(
            out,
            "<rect class=\"{}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{}\" opacity=\"{strength:.2}\"/>",
            worst.unwrap_or(Class::Ok).word(),
            top(lane) + 1.0,
            LANE - 2.0
        );
    }
}

fn cell(extent: Extent, at: u64) -> usize {
    let cells = CELLS as u128;
    let part = u128::from(at.clamp(extent.from, extent.to) - extent.from);
    let cell = part * cells / u128::from(extent.length());
    usize::try_from(cell).unwrap_or(CELLS).min(CELLS - 1)
}
