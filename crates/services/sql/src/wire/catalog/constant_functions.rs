//! Functions of the catalogs that read no table: constant results, names of types and of encodings,
//! bounds of arrays.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListBuilder, StringArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use super::keywords::Keywords;
use super::roles::UTF8;
use super::types::formatted;
use crate::SqlError;
use crate::text::identifiers::parts;

/// Functions that return true here: every object can be named without its schema, and everybody may use functions,
/// types and what there is one of.
const TRUE: [&str; 17] = [
    "has_function_privilege",
    "has_language_privilege",
    "has_tablespace_privilege",
    "has_type_privilege",
    "pg_collation_is_visible",
    "pg_conversion_is_visible",
    "pg_function_is_visible",
    "pg_opclass_is_visible",
    "pg_operator_is_visible",
    "pg_opfamily_is_visible",
    "pg_relation_is_publishable",
    "pg_statistics_obj_is_visible",
    "pg_table_is_visible",
    "pg_ts_config_is_visible",
    "pg_ts_dict_is_visible",
    "pg_ts_parser_is_visible",
    "pg_type_is_visible",
];

/// Functions that return false here.
const FALSE: [&str; 3] = ["pg_is_in_recovery", "pg_is_other_temp_schema", "row_security_active"];

/// Functions for texts that do not exist here: partitions, triggers, rules, extended statistics, source texts
/// of functions.
const NO_TEXT: [&str; 11] = [
    "pg_describe_object",
    "pg_get_function_arguments",
    "pg_get_function_identity_arguments",
    "pg_get_function_result",
    "pg_get_function_sqlbody",
    "pg_get_functiondef",
    "pg_get_partition_constraintdef",
    "pg_get_partkeydef",
    "pg_get_ruledef",
    "pg_get_statisticsobjdef_columns",
    "pg_get_triggerdef",
];

/// Functions for counts that are not kept for a single table: its bytes, and how often it is read.
const NO_COUNT: [&str; 7] = [
    "pg_database_size",
    "pg_indexes_size",
    "pg_relation_size",
    "pg_stat_get_numscans",
    "pg_table_size",
    "pg_tablespace_size",
    "pg_total_relation_size",
];

/// Registers the functions.
pub(super) fn register(context: &SessionContext) {
    let constants = [
        (&TRUE[..], ScalarValue::from(true)),
        (&FALSE, ScalarValue::from(false)),
        (&NO_TEXT, ScalarValue::Utf8(None)),
        (&NO_COUNT, ScalarValue::Int64(None)),
    ];
    for (names, value) in constants {
        for name in names {
            let kind = value.data_type();
            let value = value.clone();
            add(context, name, kind, move |_| Ok(ColumnarValue::Scalar(value.clone())));
        }
    }
    add(context, "getdatabaseencoding", DataType::Utf8, |_| Ok(ColumnarValue::Scalar(ScalarValue::from("UTF8"))));
    // The server has no separate folder for a tablespace.
    add(context, "pg_tablespace_location", DataType::Utf8, |_| Ok(ColumnarValue::Scalar(ScalarValue::from(""))));
    let texts = || DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
    add(context, "format_type", DataType::Utf8, format_type);
    add(context, "pg_size_pretty", DataType::Utf8, size_pretty);
    add(context, "pg_encoding_to_char", DataType::Utf8, |args| {
        let name =
            |encoding: Option<i64>| encoding.map(|encoding| if encoding == i64::from(UTF8) { "UTF8" } else { "" });
        Ok(ColumnarValue::Array(Arc::new(numbers(args, 0)?.into_iter().map(name).collect::<StringArray>())))
    });
    add(context, "pg_char_to_encoding", DataType::Int32, |args| {
        let names = cast(&args.args[0].to_array(args.number_rows)?, &DataType::Utf8)?;
        let is_utf8 = |name: &str| matches!(name.to_ascii_lowercase().as_str(), "utf8" | "utf-8" | "unicode");
        let number = |name: Option<&str>| name.map(|name| if is_utf8(name) { UTF8 } else { -1 });
        Ok(ColumnarValue::Array(Arc::new(names.as_string::<i32>().iter().map(number).collect::<Int32Array>())))
    });
    add(context, "parse_ident", texts(), parse_ident);
    add(context, "current_schemas", texts(), current_schemas);
    add(context, "array_upper", DataType::Int32, |args| bound(args, |length| length));
    add(context, "array_lower", DataType::Int32, |args| bound(args, |_| 1));
    context.register_udtf("pg_get_keywords", Arc::new(Keywords));
}

/// The implementation of a function.
type Work = dyn Fn(&ScalarFunctionArgs) -> Result<ColumnarValue> + Send + Sync;

/// A function that accepts any arguments.
struct Answering {
    name: &'static str,
    signature: Signature,
    kind: DataType,
    work: Box<Work>,
}

pub(super) fn add(
    context: &SessionContext,
    name: &'static str,
    kind: DataType,
    work: impl Fn(&ScalarFunctionArgs) -> Result<ColumnarValue> + Send + Sync + 'static,
) {
    // No arguments are accepted too: pg_is_in_recovery().
    let signature = Signature::one_of(vec![TypeSignature::Nullary, TypeSignature::VariadicAny], Volatility::Stable);
    context.register_udf(ScalarUDF::from(Answering { name, signature, kind, work: Box::new(work) }));
}

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Answering {
    fn eq(&self, other: &Answering) -> bool {
        self.name == other.name
    }
}

impl Eq for Answering {}

impl Hash for Answering {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Answering {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.kind.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        (self.work)(&args)
    }
}

/// Refuses a call with too few arguments.
fn at_least(args: &ScalarFunctionArgs, count: usize) -> Result<()> {
    match args.args.len() >= count {
        true => Ok(()),
        false => Err(SqlError::statement("42883", "the function needs more arguments").into()),
    }
}

/// An argument of all rows as numbers. Errors: 42883 without it.
pub(super) fn numbers(args: &ScalarFunctionArgs, at: usize) -> Result<Vec<Option<i64>>> {
    at_least(args, at + 1)?;
    let numbers = cast(&args.args[at].to_array(args.number_rows)?, &DataType::Int64)?;
    Ok(numbers.as_primitive::<Int64Type>().iter().collect())
}

fn format_type(args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
    let modifiers =
        numbers(args, 1)?.into_iter().map(|modifier| modifier.and_then(|modifier| i32::try_from(modifier).ok()));
    let found = numbers(args, 0)?.into_iter().zip(modifiers).map(|(oid, modifier)| {
        let oid = oid?;
        Some(u32::try_from(oid).map_or_else(|_| "???".into(), |oid| formatted(oid, modifier)))
    });
    Ok(ColumnarValue::Array(Arc::new(found.collect::<StringArray>())))
}

/// Bytes in PostgreSQL's notation: rounded, in the unit in which the number is below 10240.
fn size_pretty(args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
    let found = numbers(args, 0)?.into_iter().map(|bytes| Some(pretty(bytes?)));
    Ok(ColumnarValue::Array(Arc::new(found.collect::<StringArray>())))
}

fn pretty(bytes: i64) -> String {
    let (mut count, mut units) = (i128::from(bytes), ["bytes", "kB", "MB", "GB", "TB", "PB"].iter());
    let mut unit = units.next().copied().unwrap_or_default();
    for larger in units {
        if count.abs() < 10_240 {
            break;
        }
        count = (count.abs() + 512) / 1024 * count.signum();
        unit = larger;
    }
    format!("{count} {unit}")
}

fn parse_ident(args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
    at_least(args, 1)?;
    let names = cast(&args.args[0].to_array(args.number_rows)?, &DataType::Utf8)?;
    let mut lists = ListBuilder::new(StringBuilder::new());
    for name in names.as_string::<i32>() {
        let Some(name) = name else {
            lists.append_null();
            continue;
        };
        let message = || SqlError::statement("22023", format!("string is not a valid identifier: \"{name}\""));
        lists.append_value(parts(name).ok_or_else(message)?.into_iter().map(Some));
    }
    Ok(ColumnarValue::Array(Arc::new(lists.finish())))
}

/// The schemas in which names without a schema are searched; on request also the implicit ones.
fn current_schemas(args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
    at_least(args, 1)?;
    let unsaid = cast(&args.args[0].to_array(args.number_rows)?, &DataType::Boolean)?;
    let mut lists = ListBuilder::new(StringBuilder::new());
    for unsaid in unsaid.as_boolean() {
        match unsaid {
            None => lists.append_null(),
            Some(true) => lists.append_value(["pg_catalog", "public"].map(Some)),
            Some(false) => lists.append_value([Some("public")]),
        }
    }
    // One value if one was given: `generate_series` accepts no others.
    let lists: ArrayRef = Arc::new(lists.finish());
    match &args.args[0] {
        ColumnarValue::Scalar(_) => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&lists, 0)?)),
        ColumnarValue::Array(_) => Ok(ColumnarValue::Array(lists)),
    }
}

/// A bound of an array's first dimension; arrays have no others here. NULL for an empty array.
fn bound(args: &ScalarFunctionArgs, of: impl Fn(i32) -> i32) -> Result<ColumnarValue> {
    let dimensions = numbers(args, 1)?;
    let lists = args.args[0].to_array(args.number_rows)?;
    let Some(lists) = lists.as_list_opt::<i32>() else {
        return Err(SqlError::statement("42883", "array_upper and array_lower take an array").into());
    };
    let bounds = dimensions.iter().enumerate().map(|(row, dimension)| {
        let length = if lists.is_null(row) { 0 } else { lists.value_length(row) };
        (*dimension == Some(1) && length > 0).then(|| of(length))
    });
    let bounds: ArrayRef = Arc::new(bounds.collect::<Int32Array>());
    match &args.args[0] {
        ColumnarValue::Scalar(_) => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&bounds, 0)?)),
        ColumnarValue::Array(_) => Ok(ColumnarValue::Array(bounds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_units_that_leave_up_to_five_digits() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (-10_240, "-10 kB"),
            (10_485_247, "10239 kB"),
            (10_485_760, "10 MB"),
            (1 << 40, "1024 GB"),
            (i64::MAX, "8192 PB"),
        ] {
            assert_eq!(pretty(bytes), expected);
        }
    }
}
