//! [`Rates`]: what happened each second, of two collections of counts; and the points that charts show of the last minutes.
//!
//! Pure: of figures alone. Counts that went back (of a node that was started again they would) have no rate.

use std::collections::{BTreeMap, VecDeque};

use crate::admin::{NodeFigures, TierFigures};

/// Points that are kept: 5 minutes of seconds.
pub(crate) const POINTS: usize = 300;

/// Rates of an operation, in a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct OperationRates {
    pub(crate) delivered: f64,
    pub(crate) failed: f64,
    pub(crate) retried: f64,
}

/// Rates of a tier, in a second. What is not counted there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TierRates {
    pub(crate) reads: Option<f64>,
    pub(crate) writes: Option<f64>,
    pub(crate) read_bytes: Option<f64>,
    pub(crate) written_bytes: Option<f64>,
}

impl TierRates {
    /// Reads and writes together.
    pub(crate) fn operations(&self) -> Option<f64> {
        sum(self.reads, self.writes)
    }

    /// Bytes of both.
    pub(crate) fn bytes(&self) -> Option<f64> {
        sum(self.read_bytes, self.written_bytes)
    }
}

fn sum(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (None, None) => None,
        (one, other) => Some(one.unwrap_or(0.0) + other.unwrap_or(0.0)),
    }
}

/// Rates of a node, in a second.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) stored: Option<f64>,
    pub(crate) delivered: Option<f64>,
    pub(crate) operations: BTreeMap<String, OperationRates>,
    pub(crate) tiers: BTreeMap<String, TierRates>,
    /// Microseconds that a write of the journal took in the mean, with its flush; none without a write.
    pub(crate) journal_write_us: Option<f64>,
    /// Parts of lookups in the cache: near, far, missed; none without a lookup.
    pub(crate) cache: Option<[f64; 3]>,
    pub(crate) journal_records: Option<f64>,
}

fn rate(before: u64, now: u64, seconds: f64) -> Option<f64> {
    Some(now.checked_sub(before)? as f64 / seconds)
}

impl Rates {
    /// Of two collections; nothing is known without time between them.
    pub(crate) fn between(before: &NodeFigures, now: &NodeFigures) -> Rates {
        let seconds = now.at_us.saturating_sub(before.at_us) as f64 / 1e6;
        if seconds < 0.05 || before.pid != now.pid {
            return Rates::default();
        }
        let mut rates = Rates {
            stored: rate(before.stored, now.stored, seconds),
            cache: cache(before, now),
            journal_write_us: mean_write(before, now),
            journal_records: rate(before.journal.records, now.journal.records, seconds),
            ..Rates::default()
        };
        for operation in &now.operations {
            let Some(former) = before.operations.iter().find(|former| former.name == operation.name) else { continue };
            let of = |before, now| rate(before, now, seconds).unwrap_or_default();
            let of_operation = OperationRates {
                delivered: of(former.delivered, operation.delivered),
                failed: of(former.failed, operation.failed),
                retried: of(former.retried, operation.retried),
            };
            *rates.delivered.get_or_insert(0.0) += of_operation.delivered;
            rates.operations.insert(operation.name.clone(), of_operation);
        }
        for tier in &now.tiers {
            if let Some(former) = before.tiers.iter().find(|former| former.name == tier.name) {
                rates.tiers.insert(tier.name.clone(), tier_rates(former, tier, seconds));
            }
        }
        rates
    }
}

fn tier_rates(before: &TierFigures, now: &TierFigures, seconds: f64) -> TierRates {
    let of = |before: Option<u64>, now: Option<u64>| rate(before?, now?, seconds);
    TierRates {
        reads: of(before.reads, now.reads),
        writes: of(before.writes, now.writes),
        read_bytes: of(before.read_bytes, now.read_bytes),
        written_bytes: of(before.written_bytes, now.written_bytes),
    }
}

fn cache(before: &NodeFigures, now: &NodeFigures) -> Option<[f64; 3]> {
    let of = |before: u64, now: u64| now.checked_sub(before).map(|found| found as f64);
    let near = of(before.cache.near_hits, now.cache.near_hits)?;
    let far = of(before.cache.far_hits, now.cache.far_hits)?;
    let missed = of(before.cache.misses, now.cache.misses)?;
    let all = near + far + missed;
    (all > 0.0).then(|| [near / all, far / all, missed / all])
}

fn mean_write(before: &NodeFigures, now: &NodeFigures) -> Option<f64> {
    let writes = now.journal.writes.checked_sub(before.journal.writes).filter(|writes| *writes > 0)?;
    Some(now.journal.write_us.checked_sub(before.journal.write_us)? as f64 / writes as f64)
}

/// A point of the charts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Point {
    pub(crate) at_us: i64,
    pub(crate) stored: Option<f64>,
    pub(crate) delivered: Option<f64>,
    /// Operations of each tier, by its name.
    pub(crate) tiers: BTreeMap<String, f64>,
    pub(crate) journal_write_us: Option<f64>,
}

impl Point {
    /// Of rates at a moment.
    pub(crate) fn of(at_us: i64, rates: &Rates) -> Point {
        let tiers = rates.tiers.iter().filter_map(|(name, tier)| Some((name.clone(), tier.operations()?)));
        Point {
            at_us,
            stored: rates.stored,
            delivered: rates.delivered,
            tiers: tiers.collect(),
            journal_write_us: rates.journal_write_us,
        }
    }
}

/// The points of the last minutes, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct History(VecDeque<Point>);

impl History {
    /// Adds one; the oldest goes beyond the bound.
    pub(crate) fn push(&mut self, point: Point) {
        if self.0.len() == POINTS {
            self.0.pop_front();
        }
        self.0.push_back(point);
    }

    /// All of them.
    pub(crate) fn points(&self) -> impl Iterator<Item = &Point> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{CacheFigures, JournalFigures, OperationFigures};

    fn figures(at_us: i64, stored: u64) -> NodeFigures {
        let operation = OperationFigures { name: "out".into(), delivered: stored * 2, ..OperationFigures::default() };
        let tier = TierFigures {
            name: "home".into(),
            writes: Some(stored),
            reads: None,
            written_bytes: Some(stored * 100),
            ..TierFigures::default()
        };
        NodeFigures {
            at_us,
            stored,
            operations: vec![operation],
            tiers: vec![tier],
            journal: JournalFigures { writes: stored, write_us: stored * 31, ..JournalFigures::default() },
            cache: CacheFigures { near_hits: stored * 3, misses: stored, ..CacheFigures::default() },
            ..NodeFigures::default()
        }
    }

    #[test]
    fn rates_are_of_the_time_between_and_of_what_is_counted() {
        let rates = Rates::between(&figures(0, 10), &figures(2_000_000, 110));
        assert_eq!((rates.stored, rates.delivered), (Some(50.0), Some(100.0)));
        assert_eq!(rates.journal_write_us, Some(31.0));
        assert_eq!(rates.cache, Some([0.75, 0.0, 0.25]));
        let tier = rates.tiers["home"];
        assert_eq!((tier.reads, tier.operations(), tier.bytes()), (None, Some(50.0), Some(5_000.0)));
    }

    #[test]
    fn nothing_is_known_of_no_time_of_no_work_and_of_counts_that_went_back() {
        assert_eq!(Rates::between(&figures(0, 10), &figures(0, 11)), Rates::default());
        let none = Rates::between(&figures(0, 10), &figures(1_000_000, 10));
        assert_eq!((none.stored, none.journal_write_us, none.cache), (Some(0.0), None, None));
        let back = Rates::between(&figures(0, 10), &figures(1_000_000, 5));
        assert_eq!((back.stored, back.cache, back.journal_write_us), (None, None, None));
    }

    #[test]
    fn the_history_is_bounded() {
        let mut history = History::default();
        (0..1_000).for_each(|at_us| history.push(Point { at_us, ..Point::default() }));
        assert_eq!((history.points().count(), history.points().next().map(|point| point.at_us)), (POINTS, Some(700)));
    }
}
