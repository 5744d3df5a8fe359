//! Rings, points and rows: what the history is made of. Pure.
//!
//! A row of a ring has the points of all series of one interval:
//!
//! ```text
//!   series u32 | mean f32 | least f32 | most f32       little-endian, one behind the other, by rising series
//! ```

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A ring of intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ring {
    /// The length of an interval, seconds.
    pub(super) seconds: i64,
    /// How many are kept.
    pub(super) intervals: i64,
}

/// From the finest to the coarsest: each is made from the one before, which keeps more than one of its intervals.
pub(super) const RINGS: [Ring; 5] = [
    Ring { seconds: 10, intervals: 360 },
    Ring { seconds: 60, intervals: 1_500 },
    Ring { seconds: 900, intervals: 768 },
    Ring { seconds: 3_600, intervals: 840 },
    Ring { seconds: 86_400, intervals: 400 },
];

impl Ring {
    /// The number of the interval that a moment, microseconds since 1970, is in.
    pub(super) fn interval(self, us: i64) -> i64 {
        us.div_euclid(self.seconds * 1_000_000)
    }

    /// When an interval begins, microseconds since 1970.
    pub(super) fn begin_us(self, interval: i64) -> i64 {
        interval.saturating_mul(self.seconds * 1_000_000)
    }
}

/// How far back somebody looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HistoryRange {
    /// An hour, by 10 seconds.
    #[serde(rename = "1h")]
    Hour,
    /// A day, by minutes.
    #[serde(rename = "1d")]
    Day,
    /// A week, by 15 minutes.
    #[serde(rename = "1w")]
    Week,
    /// 35 days, by hours.
    #[serde(rename = "1m")]
    Month,
    /// 400 days, by days.
    #[serde(rename = "1y")]
    Year,
}

impl HistoryRange {
    /// Its ring, and its length in seconds.
    pub(super) fn ring(self) -> (usize, i64) {
        match self {
            HistoryRange::Hour => (0, 3_600),
            HistoryRange::Day => (1, 86_400),
            HistoryRange::Week => (2, 7 * 86_400),
            HistoryRange::Month => (3, 35 * 86_400),
            HistoryRange::Year => (4, 400 * 86_400),
        }
    }

    /// The time between two points, seconds.
    pub fn step_s(self) -> i64 {
        RINGS[self.ring().0].seconds
    }

    /// The whole length, seconds.
    pub fn length_s(self) -> i64 {
        self.ring().1
    }
}

impl FromStr for HistoryRange {
    type Err = String;

    fn from_str(text: &str) -> Result<HistoryRange, String> {
        match text {
            "1h" => Ok(HistoryRange::Hour),
            "1d" => Ok(HistoryRange::Day),
            "1w" => Ok(HistoryRange::Week),
            "1m" => Ok(HistoryRange::Month),
            "1y" => Ok(HistoryRange::Year),
            _ => Err(format!("`{text}` is no range: there are 1h, 1d, 1w, 1m (35 days) and 1y (400 days)")),
        }
    }
}

/// A point of a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HistoryPoint {
    /// When its interval begins, microseconds since 1970.
    pub at_us: i64,
    /// The mean of what was looked at.
    pub mean: f32,
    /// The least.
    pub least: f32,
    /// The most.
    pub most: f32,
}

/// The figures of an interval of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    pub(super) mean: f32,
    pub(super) least: f32,
    pub(super) most: f32,
}

impl Summary {
    pub(super) fn at(self, at_us: i64) -> HistoryPoint {
        HistoryPoint { at_us, mean: self.mean, least: self.least, most: self.most }
    }
}

/// Several intervals as one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gathering {
    sum: f64,
    count: u32,
    least: f32,
    most: f32,
}

impl Gathering {
    pub(super) fn add(&mut self, of: Summary) {
        self.least = if self.count == 0 { of.least } else { self.least.min(of.least) };
        self.most = if self.count == 0 { of.most } else { self.most.max(of.most) };
        self.sum += f64::from(of.mean);
        self.count += 1;
    }

    /// `None`: nothing was added.
    pub(super) fn summary(self) -> Option<Summary> {
        let mean = self.sum / f64::from(self.count);
        (self.count > 0).then_some(Summary { mean: mean as f32, least: self.least, most: self.most })
    }
}

/// The points of one interval, by the numbers of their series.
pub(super) type Row = BTreeMap<u32, Summary>;

const POINT_BYTES: usize = 16;

/// The bytes of a row.
pub(super) fn encode(row: &Row) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(row.len() * POINT_BYTES);
    for (series, Summary { mean, least, most }) in row {
        bytes.extend_from_slice(&series.to_le_bytes());
        [mean, least, most].iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    }
    bytes
}

/// The points in the bytes of a row. What is no whole point is left out.
pub(super) fn points(bytes: &[u8]) -> impl Iterator<Item = (u32, Summary)> + '_ {
    bytes.chunks_exact(POINT_BYTES).map(|point| {
        let word = |at: usize| [point[at], point[at + 1], point[at + 2], point[at + 3]];
        let value = |at: usize| f32::from_le_bytes(word(at));
        (u32::from_le_bytes(word(0)), Summary { mean: value(4), least: value(8), most: value(12) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written_and_bytes_that_are_none_are_answered() {
        let value = |mean: f32| Summary { mean, least: mean - 1.0, most: mean + 1.0 };
        let row: Row = [(7, value(1.5)), (9, value(-2.0))].into();
        let bytes = encode(&row);
        assert_eq!((bytes.len(), points(&bytes).collect::<Row>()), (32, row));
        assert_eq!(points(&bytes[..20]).count(), 1);
        assert_eq!(points(&[]).count(), 0);
    }

    #[test]
    fn each_ring_keeps_more_than_an_interval_of_the_next_and_together_they_have_the_rows_that_are_promised() {
        for pair in RINGS.windows(2) {
            let [finer, coarser] = pair else { panic!("two") };
            assert!(finer.seconds * finer.intervals >= coarser.seconds * 2, "{finer:?}");
            assert_eq!(coarser.seconds % finer.seconds, 0);
        }
        assert_eq!(RINGS.iter().map(|ring| ring.intervals).sum::<i64>(), 3_868);
        for range in ["1h", "1d", "1w", "1m", "1y"] {
            let (ring, seconds) = range.parse::<HistoryRange>().expect("a range").ring();
            assert!(RINGS[ring].seconds * RINGS[ring].intervals >= seconds, "{range}");
        }
        assert!("2h".parse::<HistoryRange>().expect_err("none").contains("1h, 1d"));
    }

    #[test]
    fn intervals_that_are_gathered_have_the_least_the_most_and_the_mean_of_the_means() {
        let mut gathering = Gathering::default();
        assert_eq!(gathering.summary(), None);
        gathering.add(Summary { mean: 2.0, least: -1.0, most: 3.0 });
        gathering.add(Summary { mean: 4.0, least: 1.0, most: 9.0 });
        assert_eq!(gathering.summary(), Some(Summary { mean: 3.0, least: -1.0, most: 9.0 }));
    }
}
