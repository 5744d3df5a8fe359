//! Functions of the catalogs that tell of the session's tables.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;

use super::facts::{Facts, Moment};
use crate::wire::login::SERVER_VERSION;

/// A function of an object's number, or of nothing, that answers text.
struct Told {
    name: &'static str,
    signature: Signature,
    tell: Box<dyn Fn(Option<u32>) -> Option<String> + Send + Sync>,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Told {
    fn eq(&self, other: &Told) -> bool {
        self.name == other.name
    }
}

impl Eq for Told {}

impl Hash for Told {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Told {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut texts = StringBuilder::new();
        match args.args.first() {
            None => (0..args.number_rows).for_each(|_| texts.append_option((self.tell)(None))),
            Some(numbers) => {
                let numbers = cast(&numbers.to_array(args.number_rows)?, &DataType::Int64)?;
                for number in numbers.as_primitive::<Int64Type>() {
                    let number = number.and_then(|number| u32::try_from(number).ok());
                    texts.append_option(number.and_then(|number| (self.tell)(Some(number))));
                }
            }
        }
        Ok(ColumnarValue::Array(Arc::new(texts.finish()) as ArrayRef))
    }
}

fn register_one(
    context: &SessionContext,
    name: &'static str,
    signature: Signature,
    tell: impl Fn(Option<u32>) -> Option<String> + Send + Sync + 'static,
) {
    context.register_udf(ScalarUDF::from(Told { name, signature, tell: Box::new(tell) }));
}

/// Adds the functions, in place of any of their names.
pub(super) fn register(context: &SessionContext, facts: &Facts, user: &str) {
    let none = || Signature::nullary(Volatility::Stable);
    let any = || Signature::variadic_any(Volatility::Stable);
    register_one(context, "version", none(), |_| Some(format!("PostgreSQL {SERVER_VERSION}")));
    let me = user.to_owned();
    register_one(context, "session_user", none(), move |_| Some(me.clone()));
    let me = user.to_owned();
    register_one(context, "pg_get_userbyid", any(), move |_| Some(me.clone()));
    let of = facts.clone();
    register_one(context, "pg_get_indexdef", any(), move |oid| index(&of.now(), oid?));
    let of = facts.clone();
    register_one(context, "pg_get_constraintdef", any(), move |oid| constraint(&of.now(), oid?));
}

fn index(moment: &Moment, oid: u32) -> Option<String> {
    let relation = moment.relations.iter().find(|relation| !relation.key.is_empty() && relation.index_oid() == oid)?;
    let (name, schema, table) = (&relation.key_name, &relation.namespace.name, &relation.name);
    Some(format!("CREATE UNIQUE INDEX {name} ON {schema}.{table} USING btree ({})", relation.key_columns()))
}

fn constraint(moment: &Moment, oid: u32) -> Option<String> {
    let mut keyed = moment.relations.iter().filter(|relation| !relation.key.is_empty());
    let relation = keyed.find(|relation| relation.constraint_oid() == oid)?;
    Some(format!("PRIMARY KEY ({})", relation.key_columns()))
}
