//! The functions of advisory locks, as plans find them: with their types, and refusing to run.
//!
//! A function that waits would keep a thread of a query. So `statements::advisory_calls` runs those that are the only items of a SELECT
//! without FROM, without a plan, and these refuse every other call.

use std::hash::{Hash, Hasher};

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;

use crate::SqlError;

/// What a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Lock { is_shared: bool, of_transaction: bool, waits: bool },
    Unlock { is_shared: bool },
    UnlockAll,
}

const fn lock(is_shared: bool, of_transaction: bool, waits: bool) -> Act {
    Act::Lock { is_shared, of_transaction, waits }
}

/// The functions, by name.
pub(crate) const FUNCTIONS: [(&str, Act); 11] = [
    ("pg_advisory_lock", lock(false, false, true)),
    ("pg_advisory_lock_shared", lock(true, false, true)),
    ("pg_advisory_xact_lock", lock(false, true, true)),
    ("pg_advisory_xact_lock_shared", lock(true, true, true)),
    ("pg_try_advisory_lock", lock(false, false, false)),
    ("pg_try_advisory_lock_shared", lock(true, false, false)),
    ("pg_try_advisory_xact_lock", lock(false, true, false)),
    ("pg_try_advisory_xact_lock_shared", lock(true, true, false)),
    ("pg_advisory_unlock", Act::Unlock { is_shared: false }),
    ("pg_advisory_unlock_shared", Act::Unlock { is_shared: true }),
    ("pg_advisory_unlock_all", Act::UnlockAll),
];

impl Act {
    /// A truth value, or nothing, which is an empty text.
    pub(crate) fn returns(self) -> DataType {
        match self {
            Act::Lock { waits: true, .. } | Act::UnlockAll => DataType::Utf8,
            _ => DataType::Boolean,
        }
    }

    fn takes(self) -> Signature {
        match self {
            Act::UnlockAll => Signature::nullary(Volatility::Volatile),
            _ => Signature::one_of(
                vec![
                    TypeSignature::Exact(vec![DataType::Int64]),
                    TypeSignature::Exact(vec![DataType::Int64, DataType::Int64]),
                ],
                Volatility::Volatile,
            ),
        }
    }
}

/// Registers the functions, for the types of their calls.
pub(crate) fn register(context: &SessionContext) {
    for (name, act) in FUNCTIONS {
        context.register_udf(ScalarUDF::from(Refusing { name, act, signature: act.takes() }));
    }
}

/// One of the functions in a plan.
#[derive(Debug)]
struct Refusing {
    name: &'static str,
    act: Act,
    signature: Signature,
}

impl PartialEq for Refusing {
    fn eq(&self, other: &Refusing) -> bool {
        self.name == other.name
    }
}

impl Eq for Refusing {}

impl Hash for Refusing {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Refusing {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.act.returns())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let error = SqlError::unsupported(format!("{} beside other items, or with FROM", self.name));
        Err(error.with_hint("Call it in a SELECT of its own.").into())
    }
}
