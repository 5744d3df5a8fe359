//! [`CastTypes`]: the types of casts where DataFusion has another type for the name: times in microseconds, as they are
//! stored, and a numeric without a size, which keeps the digits of its argument.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{self, ExactNumberInfo};

use crate::SqlError;
use crate::table::SqlType;
use crate::table::types::NUMERIC_DIGITS;

/// The name of the field of a cast to a numeric without a size.
const ANY_NUMERIC: &str = "numeric";

/// The type of a parameter that is a numeric with the digits of its value. Nothing else has this type.
pub(crate) const NUMERIC: DataType = DataType::Decimal256(76, 38);

/// The type of a cast to a numeric without a size.
pub(crate) fn any_numeric() -> FieldRef {
    let (precision, scale) = NUMERIC_DIGITS;
    Arc::new(Field::new(ANY_NUMERIC, DataType::Decimal128(precision, scale), true))
}

/// The type planner.
#[derive(Debug)]
pub(crate) struct CastTypes;

impl TypePlanner for CastTypes {
    fn plan_type_field(&self, kind: &ast::DataType) -> DfResult<Option<FieldRef>> {
        use ast::DataType as T;
        let name = match kind {
            T::Numeric(ExactNumberInfo::None) | T::Decimal(ExactNumberInfo::None) | T::Dec(ExactNumberInfo::None) => {
                ANY_NUMERIC
            }
            T::Timestamp(..) | T::Time(..) | T::Uuid | T::JSONB => "",
            _ => return Ok(None),
        };
        let found = SqlType::from_ast(kind).ok();
        if found.and_then(|kind| kind.digits()).is_some_and(|digits| digits < 6) {
            // A plain cast is restated before: see `postgres_syntax`.
            return Err(SqlError::unsupported(format!("{kind} here")).into());
        }
        Ok(found.map(|kind| Arc::new(Field::new(name, kind.arrow(), true))))
    }
}

/// Whether a cast is one to a numeric without a size.
pub(crate) fn keeps_digits(field: &Field) -> bool {
    matches!(field.data_type(), DataType::Decimal128(..)) && field.name() == ANY_NUMERIC
}
