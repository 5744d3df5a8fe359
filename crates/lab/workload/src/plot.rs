//! Curves and bars drawn in characters: a figure by threads, several of them in one picture; or one figure of several things.
//!
//! ```text
//!   20 |      bbbb
//!      |   aa*aaaaaaaa        a curve is its letter; `*` where two fall together
//!    0 +---------------
//!       1            16
//! ```
//!
//! Pure. The y axis begins at 0, so that heights compare; the x axis has one column for each unit, up to the largest x.

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The character it is drawn with.
    pub letter: char,
    /// What it is.
    pub name: String,
    /// Its points, by rising x; x at least 1. Between two points the line is straight.
    pub points: Vec<(usize, f64)>,
}

/// Draws `curves`, so many `lines` high, with `unit` on the y axis. Nothing at all for curves without points.
pub fn draw(curves: &[Curve], lines: usize, unit: &str) -> String {
    let points = || curves.iter().flat_map(|curve| curve.points.iter());
    let top = points().map(|point| point.1).fold(0.0, f64::max);
    let right = points().map(|point| point.0).max().unwrap_or(0);
    if top <= 0.0 || right == 0 || lines < 2 {
        return String::new();
    }
    let mut cells = vec![vec![' '; right]; lines];
    for curve in curves {
        for x in 1..=right {
            let Some(y) = at(&curve.points, x) else { continue };
            let height = (y / top * (lines - 1) as f64).round() as usize;
            let cell = &mut cells[lines - 1 - height.min(lines - 1)][x - 1];
            *cell = if *cell == ' ' || *cell == curve.letter { curve.letter } else { '*' };
        }
    }
    let mut out = format!("{unit}\n");
    for (line, row) in cells.iter().enumerate() {
        let value = top * (lines - 1 - line) as f64 / (lines - 1) as f64;
        let label = if line % 4 == 0 || line == lines - 1 { format!("{value:.1}") } else { String::new() };
        let row: String = row.iter().collect();
        out += format!("{label:>7} | {row}").trim_end();
        out.push('\n');
    }
    out += &format!("{:>7} +-{}\n", "", "-".repeat(right));
    out += &format!("{:>9}1{:>width$} threads\n", " ", right, width = right.saturating_sub(1));
    for curve in curves {
        out += &format!("{:>9}{} = {}\n", "", curve.letter, curve.name);
    }
    out
}

/// Draws a line for each name and value, the longest so many characters long, with the value in `unit` behind it.
pub fn bars(rows: &[(String, f64)], width: usize, unit: &str) -> String {
    let top = rows.iter().map(|row| row.1).fold(0.0, f64::max);
    let names = rows.iter().map(|row| row.0.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (name, value) in rows {
        let length = if top > 0.0 { (value / top * width as f64).round() as usize } else { 0 };
        out += &format!("{name:names$} |{} {value:.2} {unit}\n", "#".repeat(length));
    }
    out
}

/// The value at `x`, on the straight line between the points beside it; none outside of them.
fn at(points: &[(usize, f64)], x: usize) -> Option<f64> {
    let after = points.iter().position(|point| point.0 >= x)?;
    let (right, high) = points[after];
    if right == x {
        return Some(high);
    }
    let (left, low) = *points.get(after.checked_sub(1)?)?;
    Some(low + (high - low) * (x - left) as f64 / (right - left) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(letter: char, points: &[(usize, f64)]) -> Curve {
        Curve { letter, name: format!("curve {letter}"), points: points.to_vec() }
    }

    #[test]
    fn two_curves_cross_where_they_should() {
        let picture = draw(&[curve('a', &[(1, 0.0), (5, 4.0)]), curve('b', &[(1, 4.0), (5, 0.0)])], 5, "GB/s");
        let wanted = "GB/s\n    4.0 | b   a\n        |  b a\n        |   *\n        |  a b\n    0.0 | a   b\n        \
                      +------\n         1   5 threads\n         a = curve a\n         b = curve b\n";
        assert_eq!(picture, wanted);
    }

    #[test]
    fn between_points_the_line_is_straight_and_outside_there_is_none() {
        let points = [(2, 1.0), (4, 3.0), (5, 3.0)];
        for (x, value) in [(1, None), (2, Some(1.0)), (3, Some(2.0)), (5, Some(3.0)), (6, None)] {
            assert_eq!(at(&points, x), value, "at {x}");
        }
    }

    #[test]
    fn bars_are_as_long_as_their_values_and_begin_at_zero() {
        let picture = bars(&[("a".into(), 1.0), ("bc".into(), 4.0), ("d".into(), 0.0)], 8, "s");
        assert_eq!(picture, "a  |## 1.00 s\nbc |######## 4.00 s\nd  | 0.00 s\n");
        assert_eq!(bars(&[("a".into(), 0.0)], 8, "s"), "a | 0.00 s\n");
    }

    #[test]
    fn nothing_to_draw_draws_nothing() {
        assert_eq!(draw(&[], 10, "GB/s"), "");
        assert_eq!(draw(&[curve('a', &[(1, 0.0)])], 10, "GB/s"), "");
    }
}
