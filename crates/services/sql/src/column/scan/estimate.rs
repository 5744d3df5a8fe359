//! What a scan tells the optimizer: how many rows, and what is in them.

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, Statistics};
use datafusion::scalar::ScalarValue;

use super::Scanned;
use super::filter::Conjunct;
use super::prune::Pruner;
use super::stream::sample;

/// Vectors that are looked at to learn how many rows pass.
const SAMPLES: usize = 4;

/// Counted, or with conditions estimated from a sample.
pub(crate) fn statistics(
    scanned: &Arc<Scanned>,
    projection: &[usize],
    conjuncts: &[Conjunct],
    fetch: Option<usize>,
) -> Result<Statistics> {
    let all: usize = scanned.segments.list.iter().map(|segment| segment.rows()).sum();
    let fixed: Vec<Conjunct> = conjuncts.iter().filter(|conjunct| !conjunct.dynamic).cloned().collect();
    let rows = if fixed.is_empty() { all } else { passing(scanned, &fixed, all)? };
    let limited = fetch.map_or(rows, |fetch| rows.min(fetch));
    let exact = conjuncts.is_empty();
    let count = |rows: usize| if exact { Precision::Exact(rows) } else { Precision::Inexact(rows) };
    let untouched = exact && fetch.is_none() && scanned.segments.list.iter().all(|segment| segment.deleted.is_empty());
    let columns = projection.iter().map(|&column| facts(scanned, column, limited, untouched)).collect::<Vec<_>>();
    let bytes = projection.iter().map(|&column| {
        let kind = scanned.addressed.field(column).data_type();
        // A text takes its view and something more.
        limited * kind.primitive_width().unwrap_or(32)
    });
    Ok(Statistics {
        num_rows: count(limited),
        total_byte_size: Precision::Inexact(bytes.sum()),
        column_statistics: columns,
    })
}

/// One of so many equal parts.
pub(crate) fn part_of(all: &Statistics, parts: usize) -> Statistics {
    let share = |count: &Precision<usize>| match count.get_value() {
        Some(count) => Precision::Inexact(count.div_ceil(parts)),
        None => Precision::Absent,
    };
    let mut part = all.clone().to_inexact();
    (part.num_rows, part.total_byte_size) = (share(&all.num_rows), share(&all.total_byte_size));
    part
}

fn passing(scanned: &Arc<Scanned>, conjuncts: &[Conjunct], all: usize) -> Result<usize> {
    let mut pruner = Pruner::new(conjuncts, scanned);
    let mut wanted = Vec::new();
    let mut rows = 0;
    for (number, segment) in scanned.segments.list.iter().enumerate() {
        if !pruner.may_hold(&segment.descriptor).unwrap_or(true) {
            continue;
        }
        let vectors = pruner.vectors(&segment.descriptor).unwrap_or(None);
        for vector in (0..segment.descriptor.vectors()).filter(|&at| vectors.as_ref().is_none_or(|all| all[at])) {
            wanted.push((number, vector));
            rows += segment.descriptor.vector_rows(vector);
        }
    }
    let (mut passed, mut asked) = (0, 0);
    let step = wanted.len().div_ceil(SAMPLES).max(1);
    for &(segment, vector) in wanted.iter().skip(step / 2).step_by(step) {
        // What cannot be answered before the query runs, such as a subquery, is taken to let a fifth pass, which is
        // what DataFusion assumes of conditions that it knows nothing of.
        let rows = scanned.segments.list[segment].descriptor.vector_rows(vector);
        let (some, of) = sample(scanned, conjuncts, segment, vector).unwrap_or((rows / 5, rows));
        (passed, asked) = (passed + some, asked + of);
    }
    // None of a sample is not none: as if half a row had passed.
    let share = if asked == 0 { 0.0 } else { (passed as f64).max(0.5) / asked as f64 };
    Ok(((rows as f64 * share).ceil() as usize).min(all))
}

fn facts(scanned: &Scanned, column: usize, rows: usize, exact: bool) -> ColumnStatistics {
    let mut all = ColumnStatistics::new_unknown();
    let (mut nulls, mut largest, mut sum) = (0usize, 0usize, 0usize);
    let (mut least, mut most) = (None::<ScalarValue>, None::<ScalarValue>);
    let mut sure = exact;
    for segment in scanned.segments.list.iter() {
        let Some(facts) = segment.descriptor.columns.get(column) else { return all };
        nulls += facts.zone.nulls as usize;
        largest = largest.max(facts.distinct as usize);
        sum += facts.distinct as usize;
        if facts.zone.least.is_null() || facts.zone.largest.is_null() {
            return all;
        }
        sure &= facts.zone.exact;
        let (low, high) = (facts.zone.least.clone(), facts.zone.largest.clone());
        least = Some(match least.take() {
            Some(known) if known <= low => known,
            _ => low,
        });
        most = Some(match most.take() {
            Some(known) if known >= high => known,
            _ => high,
        });
    }
    let say = |value: Option<ScalarValue>| match (value, sure) {
        (None, _) => Precision::Absent,
        (Some(value), true) => Precision::Exact(value),
        (Some(value), false) => Precision::Inexact(value),
    };
    all.null_count = if exact { Precision::Exact(nulls) } else { Precision::Inexact(nulls.min(rows)) };
    all.min_value = say(least);
    all.max_value = say(most);
    // Where values hardly repeat inside a segment, they are taken to be others in the next one.
    let average = scanned.segments.list.iter().map(|segment| segment.descriptor.rows).max().unwrap_or(1);
    let distinct = if largest * 4 > average { sum } else { largest };
    all.distinct_count = Precision::Inexact(distinct.min(rows.max(1)));
    all
}
