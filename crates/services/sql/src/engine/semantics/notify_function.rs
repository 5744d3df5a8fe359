//! `pg_notify(channel, payload)` as plans find it: with its types, and refusing to run. `statements::notification_statements` runs it where
//! it is the only item of a SELECT without FROM: elsewhere a plan could be run in part, or twice.

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;

use crate::SqlError;

/// Its name.
pub(crate) const PG_NOTIFY: &str = "pg_notify";

/// Registers the function, for the types of its calls.
pub(crate) fn register(context: &SessionContext) {
    let signature = Signature::exact(vec![DataType::Utf8, DataType::Utf8], Volatility::Volatile);
    context.register_udf(ScalarUDF::from(NotifyFunction { signature }));
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NotifyFunction {
    signature: Signature,
}

impl ScalarUDFImpl for NotifyFunction {
    fn name(&self) -> &str {
        PG_NOTIFY
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Nothing, which is an empty text.
    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let error = SqlError::unsupported("pg_notify beside other items, or with FROM");
        Err(error.with_hint("Call it in a SELECT of its own.").into())
    }
}
