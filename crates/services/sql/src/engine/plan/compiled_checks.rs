//! [`CompiledChecks`]: the CHECK constraints of a table, ready to be evaluated over new rows, and [`CheckCache`], which keeps those
//! of a session's tables: compiling one takes milliseconds, and an INSERT of one row without it half of that.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use parking_lot::Mutex;

use crate::SqlError;
use crate::table::{Check, Table};

/// Conditions that a session keeps, of all its tables: some hundred kilobytes.
const CONDITIONS_MOST: usize = 256;

/// The compiled constraints of the tables into which a session has written, by the tables' numbers.
#[derive(Debug, Default)]
pub(crate) struct CheckCache(Mutex<HashMap<u64, Arc<CompiledChecks>>>);

impl CheckCache {
    /// Those of a table as it is now.
    pub(crate) fn of(&self, table: &Table) -> Option<Arc<CompiledChecks>> {
        self.0.lock().get(&table.id).filter(|checks| checks.are_of(table)).cloned()
    }

    /// Keeps those of a table, and forgets all others if these are too many together.
    pub(crate) fn keep(&self, table: u64, checks: CompiledChecks) {
        let mut kept = self.0.lock();
        kept.remove(&table);
        let many: usize = kept.values().map(|checks| checks.conditions.len()).sum();
        if many + checks.conditions.len() > CONDITIONS_MOST {
            kept.clear();
        }
        kept.insert(table, Arc::new(checks));
    }
}

/// The compiled conditions of a table.
#[derive(Debug)]
pub(crate) struct CompiledChecks {
    /// What was compiled, and for which columns.
    of: Vec<Check>,
    schema: SchemaRef,
    conditions: Vec<Arc<dyn PhysicalExpr>>,
}

impl CompiledChecks {
    /// The conditions of a table's constraints, in their order.
    pub(crate) fn new(table: &Table, conditions: Vec<Arc<dyn PhysicalExpr>>) -> CompiledChecks {
        CompiledChecks { of: table.checks.clone(), schema: table.schema.clone(), conditions }
    }

    /// Whether these are the table's.
    fn are_of(&self, table: &Table) -> bool {
        self.of == table.checks && self.schema == table.schema
    }

    /// The first constraint that a row violates, and the row. Errors: those of the conditions.
    pub(crate) fn violated(&self, table: &Table, columns: &[ArrayRef]) -> Result<Option<(&Check, usize)>, SqlError> {
        let batch = RecordBatch::try_new(table.schema.clone(), columns.to_vec())?;
        for (check, condition) in self.of.iter().zip(&self.conditions) {
            let outcome = condition.evaluate(&batch)?.into_array(batch.num_rows())?;
            // NULL alone has no type.
            let Some(outcome) = outcome.as_boolean_opt() else { continue };
            if let Some(row) = (0..outcome.len()).find(|row| outcome.is_valid(*row) && !outcome.value(*row)) {
                return Ok(Some((check, row)));
            }
        }
        Ok(None)
    }
}
