//! The statistics of a scan for the optimizer: the number of rows, and facts about their values.

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, Statistics};
use datafusion::scalar::ScalarValue;

use super::Scanned;
use super::filter::Conjunct;
use super::prune::Pruner;
use super::stream::sample;

/// The number of vectors that are examined to estimate how many rows fulfil the conditions.
const SAMPLES: usize = 4;

/// Statistics that are counted, or, with conditions, estimated from a sample.
pub(crate) fn statistics(
    scanned: &Arc<Scanned>,
    projection: &[usize],
    conjuncts: &[Conjunct],
    fetch: Option<usize>,
) -> Result<Statistics> {
    let all: usize = scanned.row_groups.list.iter().map(|row_group| row_group.rows()).sum();
    let fixed: Vec<Conjunct> = conjuncts.iter().filter(|conjunct| !conjunct.dynamic).cloned().collect();
    let rows = if fixed.is_empty() { all } else { passing(scanned, &fixed, all)? };
    let limited = fetch.map_or(rows, |fetch| rows.min(fetch));
    let exact = conjuncts.is_empty();
    let count = |rows: usize| if exact { Precision::Exact(rows) } else { Precision::Inexact(rows) };
    let untouched =
        exact && fetch.is_none() && scanned.row_groups.list.iter().all(|row_group| row_group.deleted.is_empty());
    let columns = projection.iter().map(|&column| facts(scanned, column, limited, untouched)).collect::<Vec<_>>();
    let bytes = projection.iter().map(|&column| {
        let kind = scanned.addressed.field(column).data_type();
        // A text takes its view and some bytes more.
        limited * kind.primitive_width().unwrap_or(32)
    });
    Ok(Statistics {
        num_rows: count(limited),
        total_byte_size: Precision::Inexact(bytes.sum()),
        column_statistics: columns,
    })
}

/// The statistics of one of `parts` equal parts.
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
    for (number, row_group) in scanned.row_groups.list.iter().enumerate() {
        if !pruner.may_hold(&row_group.metadata).unwrap_or(true) {
            continue;
        }
        let vectors = pruner.vectors(&row_group.metadata).unwrap_or(None);
        for vector in (0..row_group.metadata.vectors()).filter(|&at| vectors.as_ref().is_none_or(|all| all[at])) {
            wanted.push((number, vector));
            rows += row_group.metadata.vector_rows(vector);
        }
    }
    let (mut passed, mut asked) = (0, 0);
    let step = wanted.len().div_ceil(SAMPLES).max(1);
    for &(row_group, vector) in wanted.iter().skip(step / 2).step_by(step) {
        // For a condition that cannot be evaluated before the query runs, such as a subquery, assume that a fifth of
        // the rows fulfil it. DataFusion assumes the same for conditions that it knows nothing about.
        let rows = scanned.row_groups.list[row_group].metadata.vector_rows(vector);
        let (some, of) = sample(scanned, conjuncts, row_group, vector).unwrap_or((rows / 5, rows));
        (passed, asked) = (passed + some, asked + of);
    }
    // If no row of the sample fulfils the conditions, others may: count half a row.
    let share = if asked == 0 { 0.0 } else { (passed as f64).max(0.5) / asked as f64 };
    Ok(((rows as f64 * share).ceil() as usize).min(all))
}

fn facts(scanned: &Scanned, column: usize, rows: usize, exact: bool) -> ColumnStatistics {
    let mut all = ColumnStatistics::new_unknown();
    let (mut nulls, mut largest, mut sum) = (0usize, 0usize, 0usize);
    let (mut least, mut most) = (None::<ScalarValue>, None::<ScalarValue>);
    let mut sure = exact;
    for row_group in scanned.row_groups.list.iter() {
        let Some(facts) = row_group.metadata.columns.get(column) else { return all };
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
    // If values rarely repeat inside a row group, assume that the next row group has other values.
    let average = scanned.row_groups.list.iter().map(|row_group| row_group.metadata.rows).max().unwrap_or(1);
    let distinct = if largest * 4 > average { sum } else { largest };
    all.distinct_count = Precision::Inexact(distinct.min(rows.max(1)));
    all
}
