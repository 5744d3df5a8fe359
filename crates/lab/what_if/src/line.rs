//! A straight line through measured points, by least squares: how the rate without an added delay is read off.
//!
//! A command with a fixed number of clients that wait for their storage takes `time for one = own work + requests x latency`: a line over
//! the latency. Where it is no line (the processor is the bound at one end, queues at the other), the points lie beside it, and the largest
//! distance says so.

/// A line through points, and how far these lie beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// The value at 0.
    pub at_zero: f64,
    /// By how much the value grows for each unit.
    pub slope: f64,
    /// The largest distance of a point from the line, as a part of the point's value.
    pub residual: f64,
}

impl Line {
    /// The line through `points` of position and value; none if they are fewer than three, or all at one position.
    pub fn through(points: &[(f64, f64)]) -> Option<Line> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
        if points.len() < 3 || spread <= 0.0 {
            return None;
        }
        let slope = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum::<f64>() / spread;
        Some(Line::with(points, y_mean - slope * x_mean, slope))
    }

    /// The mean of some points, one at least, as a line without a slope.
    pub fn flat(points: &[(f64, f64)]) -> Line {
        Line::with(points, points.iter().map(|(_, y)| y).sum::<f64>() / points.len() as f64, 0.0)
    }

    fn with(points: &[(f64, f64)], at_zero: f64, slope: f64) -> Line {
        let beside = points.iter().map(|(x, y)| ((at_zero + slope * x) / y - 1.0).abs());
        Line { at_zero, slope, residual: beside.fold(0.0, f64::max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_give_it_back_and_others_say_how_far_they_are() {
        let line = Line::through(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0), (5.0, 13.0)]).expect("a line");
        assert!((line.at_zero - 3.0).abs() < 1e-9 && (line.slope - 2.0).abs() < 1e-9 && line.residual < 1e-9);
        // Flat at first, as a command that its processor bounds, then rising.
        let bent = Line::through(&[(1.0, 10.0), (2.0, 10.0), (3.0, 10.0), (4.0, 20.0)]).expect("a line");
        assert!(bent.residual > 0.2, "{bent:?}");
    }

    #[test]
    fn two_points_or_one_position_are_no_line() {
        assert_eq!(Line::through(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(Line::through(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    }
}
