//! [`ScanLayout`]: which partition reads which row groups.
//!
//! If the first column of the primary key is a whole number, partitions are equal ranges of its values between the
//! table's least and largest value. Two tables with the same least and largest value, such as orders and their lines,
//! are then cut at the same values, and DataFusion joins and groups them by that column without repartitioning their
//! rows. A row group that crosses a border is read by both partitions, each of which takes its own rows. Otherwise each
//! partition gets every n-th row group.
//!
//! If row groups follow each other in key order without overlap, as a load in key order leaves them, a partition's rows
//! come in that order, and the plan declares it.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, SplitPoint};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr, PhysicalSortExpr, RangePartitioning,
};
use datafusion::physical_plan::PlanProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::scalar::ScalarValue;

use crate::column::{RowGroups, VECTOR_ROWS};

/// The least number of rows in a partition, if there is more than one.
const PARTITION_ROWS: usize = 2 * VECTOR_ROWS;

/// A row group that a partition reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The index of the row group in the list.
    pub(crate) row_group: usize,
    /// Whether some of its rows belong to another partition.
    pub(crate) across: bool,
}

/// The partitions of a scan.
#[derive(Clone, Debug)]
pub(crate) struct ScanLayout {
    pub(crate) parts: Vec<Vec<Part>>,
    /// The key columns, by position, in whose order the rows come; empty for none.
    ordered: Vec<usize>,
    /// The key's first column and the values where partitions after the first begin.
    ranges: Option<(usize, Vec<ScalarValue>)>,
}

impl ScanLayout {
    /// A layout of at most `partitions` partitions.
    pub(crate) fn new(row_groups: &RowGroups, partitions: usize) -> ScanLayout {
        let list = &row_groups.list;
        let rows: usize = list.iter().map(|row_group| row_group.rows()).sum();
        let count = partitions.min(rows / PARTITION_ROWS).max(1);
        let mut order: Vec<usize> = (0..list.len()).collect();
        let keyed = list.iter().all(|row_group| !row_group.metadata.keys.is_empty());
        let keys = |at: usize| &list[at].metadata.keys;
        let mut ordered = Vec::new();
        if keyed {
            order.sort_by(|&a, &b| keys(a).cmp(keys(b)));
            if order.windows(2).all(|pair| keys(pair[0]).last() < keys(pair[1]).first()) {
                ordered = row_groups.table.key.clone();
            }
        }
        if count == 1 {
            let parts = order.into_iter().map(|row_group| Part { row_group, across: false }).collect();
            return ScanLayout { parts: vec![parts], ordered, ranges: None };
        }
        if let Some(layout) = ScanLayout::by_ranges(row_groups, &order, count, &ordered) {
            return layout;
        }
        let count = count.min(list.len());
        let every = |first: usize| order.iter().skip(first).step_by(count);
        let parts = (0..count).map(|first| every(first).map(|&row_group| Part { row_group, across: false }).collect());
        ScanLayout { parts: parts.collect(), ordered, ranges: None }
    }

    fn by_ranges(row_groups: &RowGroups, order: &[usize], count: usize, ordered: &[usize]) -> Option<ScanLayout> {
        let &column = row_groups.table.key.first()?;
        let kind = row_groups.schema().field(column).data_type();
        if !matches!(kind, DataType::Int16 | DataType::Int32 | DataType::Int64) {
            return None;
        }
        let mut zones = Vec::new();
        for &row_group in order {
            let zone = &row_groups.list[row_group].metadata.columns.get(column)?.zone;
            zones.push((row_group, number(&zone.least)?, number(&zone.largest)?));
        }
        let least = zones.iter().map(|zone| zone.1).min()?;
        let largest = zones.iter().map(|zone| zone.2).max()?;
        let width = i128::from(largest) - i128::from(least) + 1;
        if width < count as i128 {
            return None;
        }
        let begin = |part: usize| i128::from(least) + width * part as i128 / count as i128;
        let part = |part: usize| {
            let (from, to) = (begin(part), begin(part + 1));
            let meets = |zone: &&(usize, i64, i64)| i128::from(zone.2) >= from && i128::from(zone.1) < to;
            let across = |zone: &(usize, i64, i64)| i128::from(zone.1) < from || i128::from(zone.2) >= to;
            zones.iter().filter(meets).map(|zone| Part { row_group: zone.0, across: across(zone) }).collect()
        };
        let border = |part: usize| ScalarValue::Int64(Some(begin(part) as i64)).cast_to(kind).ok();
        let borders = (1..count).map(border).collect::<Option<Vec<_>>>()?;
        let parts = (0..count).map(part).collect();
        Some(ScanLayout { parts, ordered: ordered.to_vec(), ranges: Some((column, borders)) })
    }

    /// The number of partitions.
    pub(crate) fn count(&self) -> usize {
        self.parts.len()
    }

    /// The condition for the rows of a partition in row groups that cross a border, over the addressed schema.
    pub(crate) fn bounds(&self, partition: usize, schema: &SchemaRef) -> Option<Arc<dyn PhysicalExpr>> {
        let (column, borders) = self.ranges.as_ref()?;
        let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(*column).name(), *column));
        let compare = |operator: Operator, value: &ScalarValue| -> Arc<dyn PhysicalExpr> {
            Arc::new(BinaryExpr::new(key.clone(), operator, Arc::new(Literal::new(value.clone()))))
        };
        let from = partition.checked_sub(1).and_then(|before| borders.get(before));
        let from = from.map(|value| compare(Operator::GtEq, value));
        let to = borders.get(partition).map(|value| compare(Operator::Lt, value));
        match (from, to) {
            (Some(from), Some(to)) => Some(Arc::new(BinaryExpr::new(from, Operator::And, to))),
            (from, to) => from.or(to),
        }
    }

    /// The properties of the plan's output.
    pub(crate) fn properties(&self, schema: SchemaRef, projection: &[usize]) -> Result<Arc<PlanProperties>> {
        let sorted = |position: usize| {
            let at = projection.iter().position(|&wanted| wanted == position)?;
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(at).name(), at));
            Some(PhysicalSortExpr::new(column, SortOptions::default()))
        };
        let partitioning = match &self.ranges {
            Some((column, borders)) => match sorted(*column).and_then(|key| LexOrdering::new([key])) {
                Some(key) => {
                    let borders = borders.iter().map(|value| SplitPoint::new(vec![value.clone()]));
                    Partitioning::Range(RangePartitioning::try_new(key, borders.collect())?)
                }
                None => Partitioning::UnknownPartitioning(self.count()),
            },
            None => Partitioning::UnknownPartitioning(self.count()),
        };
        let ordering: Vec<_> = self.ordered.iter().map_while(|&position| sorted(position)).collect();
        let known = match ordering.is_empty() {
            true => EquivalenceProperties::new(schema.clone()),
            false => EquivalenceProperties::new_with_orderings(schema.clone(), [ordering]),
        };
        Ok(Arc::new(PlanProperties::new(known, partitioning, EmissionType::Incremental, Boundedness::Bounded)))
    }
}

fn number(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int16(value) => value.map(i64::from),
        ScalarValue::Int32(value) => value.map(i64::from),
        ScalarValue::Int64(value) => *value,
        _ => None,
    }
}
