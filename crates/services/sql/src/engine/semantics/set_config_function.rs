//! `set_config(name, value, is_local)` as plans find it: with its types, and refusing to run. `statements::session_statements` runs it where
//! it is the only item of a SELECT without FROM: a plan must not change settings.

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;

use crate::SqlError;

/// Its name.
pub(crate) const SET_CONFIG: &str = "set_config";

/// Registers the function, for the types of its calls.
pub(crate) fn register(context: &SessionContext) {
    let kinds = vec![DataType::Utf8, DataType::Utf8, DataType::Boolean];
    let signature = Signature::exact(kinds, Volatility::Volatile);
    context.register_udf(ScalarUDF::from(SetConfigFunction { signature }));
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SetConfigFunction {
    signature: Signature,
}

impl ScalarUDFImpl for SetConfigFunction {
    fn name(&self) -> &str {
        SET_CONFIG
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let error = SqlError::unsupported("set_config beside other items, or with FROM");
        Err(error.with_hint("Call it in a SELECT of its own, or use SET.").into())
    }
}
