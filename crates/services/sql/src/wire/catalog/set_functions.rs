//! Functions of lists that replace PostgreSQL's set-returning functions: `unnest` makes rows of their results.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, StructArray};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;

use crate::SqlError;

/// Registers the functions.
pub(super) fn register(context: &SessionContext) {
    for (name, gives) in [("expanded_array", Gives::Pairs), ("array_subscripts", Gives::Subscripts)] {
        let signature = Signature::variadic_any(Volatility::Immutable);
        context.register_udf(ScalarUDF::from(OfList { name, gives, signature }));
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Gives {
    /// `x`, the item, and `n`, its position from 1.
    Pairs,
    /// Positions from 1.
    Subscripts,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfList {
    name: &'static str,
    gives: Gives,
    signature: Signature,
}

fn pair_of(item: &DataType) -> Fields {
    vec![Field::new("x", item.clone(), true), Field::new("n", DataType::Int32, true)].into()
}

impl OfList {
    /// The type of the items of the result.
    fn item(&self, arguments: &[DataType]) -> Result<DataType> {
        let wrong = || SqlError::statement("42883", format!("function {} needs an array", self.name));
        let Some(DataType::List(field)) = arguments.first() else { return Err(wrong().into()) };
        Ok(match self.gives {
            Gives::Pairs => DataType::Struct(pair_of(field.data_type())),
            Gives::Subscripts => DataType::Int32,
        })
    }
}

impl ScalarUDFImpl for OfList {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(self.item(arguments)?, true))))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = arguments.args[0].to_array(arguments.number_rows)?;
        let item = self.item(&[array.data_type().clone()])?;
        let lists = array.as_list::<i32>();
        // Only the items of lists that are not NULL: a NULL list may have items in the array below it.
        let lengths: Vec<usize> =
            (0..lists.len()).map(|row| if lists.is_null(row) { 0 } else { lists.value(row).len() }).collect();
        let places: Int32Array = lengths.iter().flat_map(|length| 1..=*length as i32).map(Some).collect();
        let items: ArrayRef = match self.gives {
            Gives::Subscripts => Arc::new(places),
            Gives::Pairs => {
                let parts: Vec<ArrayRef> =
                    (0..lists.len()).filter(|row| !lists.is_null(*row)).map(|row| lists.value(row)).collect();
                let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
                let values = match parts.is_empty() {
                    true => lists.values().slice(0, 0),
                    false => datafusion::arrow::compute::concat(&parts)?,
                };
                let fields = pair_of(values.data_type());
                Arc::new(StructArray::try_new(fields, vec![values, Arc::new(places)], None)?)
            }
        };
        let nulls: NullBuffer = (0..lists.len()).map(|row| !lists.is_null(row)).collect();
        let field = Arc::new(Field::new_list_field(item, true));
        let list = ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), items, Some(nulls))?;
        Ok(ColumnarValue::Array(Arc::new(list)))
    }
}
