//! Ratios as a picture: one bar each, and where its margin is.

use crate::report::Ratio;

/// Measures of the picture, in pixels.
const ROW: usize = 22;
const LABEL: usize = 470;
const WIDTH: f64 = 660.0;

/// The longest ratio: more than this is cut.
const LONGEST: f64 = 3.0;

/// One bar.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    /// Where its margin is.
    pub(crate) mark: Option<f64>,
    /// Whether it keeps it.
    pub(crate) held: Option<bool>,
}

/// Draws ours over the peer's, as SVG.
pub(crate) fn ratios(ratios: &[Ratio]) -> String {
    let bars: Vec<Bar> = ratios
        .iter()
        .map(|ratio| Bar {
            label: format!("{}: {}", ratio.case, ratio.metric),
            value: ratio.ours_over_peer,
            mark: ratio.margin,
            held: ratio.held,
        })
        .collect();
    let title = "ours / the peer's; a mark is the margin";
    let one = LABEL as f64 + WIDTH / LONGEST;
    let height = ROW * (bars.len() + 2);
    let line =
        format!("<line x1=\"{one}\" x2=\"{one}\" y1=\"{ROW}\" y2=\"{height}\" stroke=\"#999\"/>\n");
    drawn(title, &bars, LONGEST, &line)
}

/// Draws bars, of which the longest possible is given.
pub(crate) fn bars(title: &str, bars: &[Bar], longest: f64) -> String {
    drawn(title, bars, longest, "")
}

fn drawn(title: &str, bars: &[Bar], longest: f64, behind: &str) -> String {
    let height = ROW * (bars.len() + 2);
    let width = LABEL + WIDTH as usize + 80;
    let scale = WIDTH / longest;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"16\" font-weight=\"bold\">{title}</text>\n{behind}"
    );
    for (nth, bar) in bars.iter().enumerate() {
        let y = ROW * (nth + 1) + 4;
        let length = bar.value.clamp(0.0, longest) * scale;
        let fill = match bar.held {
            Some(true) => "#4a9d5b",
            Some(false) => "#c8553d",
            None => "#7a8ca3",
        };
        let text = y + 13;
        let end = LABEL as f64 + length + 6.0;
        svg += &format!(
            "<text x=\"10\" y=\"{text}\">{}</text>\
             <rect x=\"{LABEL}\" y=\"{y}\" width=\"{length:.1}\" height=\"16\" fill=\"{fill}\"/>\
             <text x=\"{end:.1}\" y=\"{text}\">{:.2}</text>\n",
            bar.label, bar.value
        );
        if let Some(mark) = bar.mark {
            let x = LABEL as f64 + mark.clamp(0.0, longest) * scale;
            let bottom = y + 18;
            let top = y - 2;
            svg += &format!(
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"black\" stroke-width=\"2\"/>\n"
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_ratio() {
        let drawn = ratios(&[Ratio {
            case: "put".to_owned(),
            metric: "p50_us".to_owned(),
            ours_over_peer: 0.5,
            margin: Some(0.9),
            held: Some(true),
        }]);
        assert!(drawn.contains("width=\"110.0\""), "{drawn}");
        assert!(drawn.contains("put: p50_us") && drawn.contains("0.50"));
    }
}
