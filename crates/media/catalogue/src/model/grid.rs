//! Bandwidth by size and threads: curves of a medium scaled to a number of modules, and a fast lookup table.
//!
//! # Other numbers of modules
//!
//! A module handles its share of the threads. So `n` modules with `t` threads have `n / m` times the bandwidth of the
//! measured `m` modules with `t * m / n` threads; one thread never has more than it had alone. The measured 1, 2, 4 and
//! 6 modules of the 256 GB 100 series agree with this: scaled from 6 modules, half of the 405 points of fewer modules
//! lie within 3 %, nine tenths within 17 % (a test in `model`). The worst ones have many threads per module, where the
//! decline is steeper than 6 modules with 32 threads show. After the last measured number of threads a curve stays
//! flat.
//!
//! # Other sizes
//!
//! Between two measured sizes: linear over the logarithm of the size. Outside: the nearest measured one.

use crate::medium::Curve;

/// A curve scaled to a number of modules.
#[derive(Clone, Debug)]
pub(super) struct Scaled {
    points: Vec<(f64, f64)>,
    /// Requested modules divided by measured modules.
    ratio: f64,
}

impl Scaled {
    pub(super) fn new(curve: &Curve, ratio: f64) -> Scaled {
        Scaled { points: curve.points.clone(), ratio }
    }

    /// The numbers of threads at which the curve bends.
    pub(super) fn bends(&self) -> impl Iterator<Item = f64> + '_ {
        let bends = self.points.iter().map(|(threads, _)| threads * self.ratio);
        // With few modules, the limit of one thread may end before the first measured point.
        std::iter::once(1.0).chain(bends).filter(|threads| *threads >= 1.0)
    }

    /// GB/s of all `threads` together.
    pub(super) fn at(&self, threads: f64) -> f64 {
        let together = self.ratio * between(&self.points, threads / self.ratio);
        if self.ratio < 1.0 { together.min(self.points[0].1 * threads) } else { together }
    }
}

/// Linear between points with increasing x; through the origin before the first, flat after the last.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
    let Some(after) = points.iter().position(|point| point.0 >= x) else { return points[points.len() - 1].1 };
    let (x1, y1) = points[after];
    let (x0, y0) = if after == 0 { (0.0, 0.0) } else { points[after - 1] };
    y0 + (y1 - y0) * (x - x0) / (x1 - x0)
}

/// Bandwidth in GB/s by bytes of one access and number of threads.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    /// Increasing; each with its binary logarithm.
    sizes: Vec<(f64, f64)>,
    /// Increasing, from 1.
    threads: Vec<f64>,
    /// By size, then threads.
    rows: Vec<Vec<f64>>,
    /// By size: the maximum over all numbers of threads.
    peaks: Vec<f64>,
}

impl Grid {
    /// Samples `bandwidth(bytes, threads)` at `sizes` and `threads`.
    pub(super) fn sample(mut sizes: Vec<f64>, mut threads: Vec<f64>, bandwidth: impl Fn(f64, f64) -> f64) -> Grid {
        for axis in [&mut sizes, &mut threads] {
            axis.sort_by(f64::total_cmp);
            axis.dedup();
        }
        let row = |bytes: &f64| threads.iter().map(|threads| bandwidth(*bytes, *threads)).collect::<Vec<f64>>();
        let rows: Vec<Vec<f64>> = sizes.iter().map(row).collect();
        let peaks = rows.iter().map(|row| row.iter().copied().fold(0.0, f64::max)).collect();
        Grid { sizes: sizes.into_iter().map(|bytes| (bytes, bytes.log2())).collect(), threads, rows, peaks }
    }

    /// From curves of several sizes, linear over the logarithm of the size.
    pub(super) fn of(curves: &[(f64, Scaled)]) -> Grid {
        let sizes = curves.iter().map(|(bytes, _)| *bytes).collect();
        let threads = curves.iter().flat_map(|(_, curve)| curve.bends()).collect();
        // Each size has its own curve: the sampled size is always one of them.
        Grid::sample(sizes, threads, |bytes, threads| {
            curves.iter().find(|(size, _)| *size == bytes).map_or(0.0, |(_, curve)| curve.at(threads))
        })
    }

    /// GB/s of `threads` threads that access `bytes` at a time.
    pub(super) fn at(&self, bytes: f64, threads: f64) -> f64 {
        let (low, high, share) = self.size(bytes);
        let column = self.threads.iter().position(|limit| *limit >= threads);
        let value = |row: &[f64]| match column {
            None => row[row.len() - 1],
            Some(0) => row[0],
            Some(at) => {
                let (from, to) = (self.threads[at - 1], self.threads[at]);
                row[at - 1] + (row[at] - row[at - 1]) * (threads - from) / (to - from)
            }
        };
        let below = value(&self.rows[low]);
        if low == high { below } else { below + (value(&self.rows[high]) - below) * share }
    }

    /// The maximum of GB/s over all numbers of threads, with accesses of `bytes`.
    pub(super) fn peak(&self, bytes: f64) -> f64 {
        let (low, high, share) = self.size(bytes);
        self.peaks[low] + (self.peaks[high] - self.peaks[low]) * share
    }

    pub(super) fn sizes(&self) -> impl Iterator<Item = f64> + '_ {
        self.sizes.iter().map(|size| size.0)
    }

    pub(super) fn threads(&self) -> impl Iterator<Item = f64> + '_ {
        self.threads.iter().copied()
    }

    pub(super) fn largest(&self) -> f64 {
        self.sizes[self.sizes.len() - 1].0
    }

    /// The two sizes around `bytes`, and its relative position between them.
    fn size(&self, bytes: f64) -> (usize, usize, f64) {
        match self.sizes.iter().position(|size| size.0 >= bytes) {
            None => (self.sizes.len() - 1, self.sizes.len() - 1, 0.0),
            Some(0) => (0, 0, 0.0),
            Some(at) if self.sizes[at].0 == bytes => (at, at, 0.0),
            Some(at) => {
                let (from, to) = (self.sizes[at - 1].1, self.sizes[at].1);
                (at - 1, at, (bytes.log2() - from) / (to - from))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_linear_between_its_points_through_the_origin_and_flat_after_the_last() {
        let points = [(1.0, 2.0), (4.0, 8.0), (8.0, 6.0)];
        for (x, y) in [(0.5, 1.0), (1.0, 2.0), (2.0, 4.0), (6.0, 7.0), (8.0, 6.0), (99.0, 6.0)] {
            assert_eq!(between(&points, x), y, "{x}");
        }
    }

    #[test]
    fn twice_the_modules_do_twice_the_work_with_twice_the_threads_and_one_thread_gains_nothing() {
        let points = vec![(1.0, 2.0), (4.0, 8.0), (8.0, 6.0)];
        let double = Scaled { points: points.clone(), ratio: 2.0 };
        let half = Scaled { points, ratio: 0.5 };
        assert_eq!((double.at(1.0), double.at(8.0), double.at(16.0)), (2.0, 16.0, 12.0));
        assert_eq!((half.at(1.0), half.at(2.0), half.at(4.0)), (2.0, 4.0, 3.0));
    }
}
