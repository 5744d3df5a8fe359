//! The published figure as SVG: documents a second of a race against the number of concurrent races, the media side by side. One
//! panel for each size of bulks.
//!
//! ```text
//!   docs/s |      #          a group of bars for each number of races,
//!          |  # # #          in it a bar for each medium, from SATA on
//!          +---------
//!             1   2 races
//! ```
//!
//! Pure. The axis begins at 0 and ends at the panel's largest value; a missing figure has no bar.

use std::fmt::Write as _;

use workload::table::grouped;

use crate::media::MEDIA;
use crate::race::RallyRow;

/// Width of the picture, and height of a panel, in the units of SVG.
const WIDTH: f64 = 640.0;
const PANEL: f64 = 300.0;
/// The part of a panel that has bars: left, right, top, bottom.
const PLOT: (f64, f64, f64, f64) = (80.0, 620.0, 48.0, 250.0);
/// Colours of the media, which stay apart in print and for people who see no red or green.
const COLOURS: [&str; 3] = ["#9e9e9e", "#4f81bd", "#e08214"];

/// The sizes of bulks, in the order of the rows.
pub fn sizes(rows: &[RallyRow]) -> Vec<usize> {
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.bulk).collect();
    sizes.dedup();
    sizes
}

/// Draws all panels.
pub fn draw(rows: &[RallyRow]) -> String {
    let sizes = sizes(rows);
    let height = PANEL * sizes.len().max(1) as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (number, bulk) in sizes.iter().enumerate() {
        let rows: Vec<&RallyRow> = rows.iter().filter(|row| row.bulk == *bulk).collect();
        let _ = writeln!(out, "<g transform=\"translate(0 {})\">", PANEL * number as f64);
        panel(&mut out, *bulk, &rows);
        out.push_str("</g>\n");
    }
    out + "</svg>\n"
}

fn panel(out: &mut String, bulk: usize, rows: &[&RallyRow]) {
    let (left, right, above, below) = PLOT;
    let top = rows.iter().filter_map(|row| row.median_docs_per_s).fold(0.0, f64::max);
    let _ =
        writeln!(out, "<text x=\"{left}\" y=\"20\" font-size=\"14\">Median docs/s of a race, bulks of {bulk}</text>");
    for (at, medium) in MEDIA.iter().enumerate() {
        let x = left + 110.0 * at as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"28\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{}\" y=\"37\">{}</text>",
            COLOURS[at],
            x + 14.0,
            medium.name
        );
    }
    for part in 0..=4 {
        let share = f64::from(part) / 4.0;
        let y = below - (below - above) * share;
        let _ = writeln!(
            out,
            "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            y + 4.0,
            grouped(top * share)
        );
    }
    let mut races: Vec<usize> = rows.iter().map(|row| row.races).collect();
    races.dedup();
    let group = (right - left) / races.len().max(1) as f64;
    let bar = group * 0.8 / MEDIA.len() as f64;
    for (number, of) in races.iter().enumerate() {
        let begin = left + group * (number as f64 + 0.1);
        for row in rows.iter().filter(|row| row.races == *of) {
            let at = MEDIA.iter().position(|medium| medium.name == row.tier).unwrap_or_default();
            if let Some(rate) = row.median_docs_per_s.filter(|_| top > 0.0) {
                let height = (below - above) * rate / top;
                let _ = writeln!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{}\"><title>{} x {}: {} docs/s</title></rect>",
                    begin + bar * at as f64,
                    below - height,
                    bar - 2.0,
                    COLOURS[at],
                    row.races,
                    row.tier,
                    grouped(rate)
                );
            }
        }
        let middle = begin + group * 0.4;
        let unit = if *of == 1 { "race" } else { "races" };
        let _ =
            writeln!(out, "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{of} {unit}</text>", below + 18.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tier: &'static str, bulk: usize, races: usize, docs: Option<f64>) -> RallyRow {
        RallyRow {
            tier,
            bulk,
            races,
            median_docs_per_s: docs,
            docs_per_s: docs,
            bulk_ms: None,
            search_ms: None,
            persist_share: None,
            cpu_us_per_doc: None,
        }
    }

    #[test]
    fn a_bar_is_as_high_as_its_rate_and_what_is_missing_has_none() {
        let rows = [
            row("SATA", 1, 1, Some(50.0)),
            row("NVMe", 1, 1, None),
            row("App Direct", 1, 1, Some(100.0)),
            row("SATA", 5, 2, None),
        ];
        let svg = draw(&rows);
        assert_eq!(svg.matches("<title>").count(), 2, "{svg}");
        assert_eq!(svg.matches("<g ").count(), 2, "a panel for each size");
        assert!(svg.contains("height=\"202.0\" fill=\"#e08214\"><title>1 x App Direct: 100 docs/s"), "{svg}");
        assert!(svg.contains("height=\"101.0\" fill=\"#9e9e9e\"><title>1 x SATA: 50 docs/s"), "{svg}");
        assert!(svg.ends_with("</svg>\n") && draw(&[]).ends_with("</svg>\n"));
    }
}
