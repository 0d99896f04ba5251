//! A counterexample: what happened, one line each, from call to return, and arrows for
//! what must come before what.
//!
//! Time is drawn in order and not to scale: what matters is what overlaps what.

use std::{collections::BTreeMap, fmt::Write as _};

use checkers::verdict::{Example, Node};

use super::svg::{begin, escape};

/// How wide the part with the boxes is.
const PLOT: f64 = 420.0;
/// Where it begins: names of processes stand before.
const LEFT: f64 = 56.0;
/// How high a line is.
const ROW: f64 = 34.0;
/// How wide a letter is, about.
const LETTER: f64 = 7.3;

pub(super) fn draw(example: &Example) -> String {
    if example.nodes.is_empty() {
        return String::new();
    }
    let mut order: Vec<_> = (0..example.nodes.len()).collect();
    order.sort_by_key(|at| {
        let span = example.nodes[*at].span;
        (span.call, span.ret, *at)
    });
    let rows: BTreeMap<_, _> = order
        .iter()
        .zip(0u16..)
        .map(|(at, row)| (*at, row))
        .collect();
    let moments = moments(&example.nodes);
    let longest = example
        .nodes
        .iter()
        .map(|node| node.label.chars().count())
        .max();
    let text = LETTER * f64::from(u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX));
    let width = LEFT + PLOT + 24.0 + text;
    let height = ROW * f64::from(u16::try_from(order.len()).unwrap_or(u16::MAX)) + 12.0;
    let mut out = begin(width, height, "the operations that contradict each other");
    out.push_str(
        "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path class=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n",
    );
    let x = |at: u64| {
        let place = moments.get(&at).copied().unwrap_or_default();
        let steps = u16::try_from(moments.len().max(2) - 1).unwrap_or(u16::MAX);
        LEFT + PLOT * f64::from(place) / f64::from(steps)
    };
    for (at, node) in example.nodes.iter().enumerate() {
        let y = middle(&rows, at);
        let (from, to) = (x(node.span.call), x(node.span.ret));
        let _ = writeln!(
            out,
            "<text class=\"soft\" x=\"0\" y=\"{:.1}\">{}</text><rect class=\"ok\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"12\" rx=\"3\" opacity=\".75\"/><text class=\"code\" x=\"{}\" y=\"{:.1}\">{}</text>",
            y + 4.0,
            process(node),
            y - 6.0,
            (to - from).max(4.0),
            LEFT + PLOT + 20.0,
            y + 4.0,
            escape(&node.label)
        );
    }
    for edge in &example.edges {
        let (Some(one), Some(two)) = (example.nodes.get(edge.from), example.nodes.get(edge.to))
        else {
            continue;
        };
        let (y1, y2) = (middle(&rows, edge.from), middle(&rows, edge.to));
        // From where the first ends to where the second begins; against time the arrow
        // runs back, and that is the contradiction.
        let (x1, x2) = (
            x(one.span.ret).max(x(one.span.call) + 4.0),
            x(two.span.call),
        );
        let bend = if y2 > y1 { 1.0 } else { -1.0 };
        let (c1, c2) = (y1 + bend * ROW * 0.6, y2 - bend * ROW * 0.6);
        let (tx, ty) = (f64::midpoint(x1, x2), f64::midpoint(y1, y2));
        let _ = writeln!(
            out,
            "<path class=\"edge\" marker-end=\"url(#tip)\" d=\"M{x1:.1} {y1:.1}C{x1:.1} {c1:.1} {x2:.1} {c2:.1} {x2:.1} {:.1}\"/><text class=\"why\" x=\"{tx:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            y2 - bend * 6.0,
            // Arrows both ways between two lines keep their words apart.
            ty + if bend > 0.0 { -2.0 } else { 10.0 },
            escape(&edge.label)
        );
    }
    out.push_str("</svg>\n");
    out
}

fn middle(rows: &BTreeMap<usize, u16>, at: usize) -> f64 {
    ROW * (f64::from(rows.get(&at).copied().unwrap_or_default()) + 0.5) + 4.0
}

/// What is no client is a member or the log itself.
fn process(node: &Node) -> String {
    if node.span.process > 1 << 30 {
        "log".to_owned()
    } else {
        format!("p{}", node.span.process)
    }
}

/// Numbers the moments at which something begins or ends.
fn moments(nodes: &[Node]) -> BTreeMap<u64, u16> {
    let mut moments: Vec<_> = nodes
        .iter()
        .flat_map(|node| [node.span.call, node.span.ret])
        .collect();
    moments.sort_unstable();
    moments.dedup();
    moments.into_iter().zip(0..).collect()
}
