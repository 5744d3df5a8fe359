//! Function calls that have another meaning in PostgreSQL for some types of arguments: they are rewritten, or refused
//! by name.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Int32Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, WindowFunctionDefinition, lit, when};

use super::json_comparisons::is_json;
use super::pg_function::{PgFunction, no_function, type_name};
use super::{
    datetime_functions, interval_comparisons, moment_functions, numeric_literals, pattern_functions,
    regular_expressions, text_functions,
};
use crate::SqlError;

/// Functions of texts to which DataFusion would pass bytes in their written form, `\x..`.
const OF_TEXT: &[&str] = &[
    "upper",
    "lower",
    "initcap",
    "left",
    "right",
    "lpad",
    "rpad",
    "replace",
    "translate",
    "reverse",
    "split_part",
    "trim",
    "btrim",
    "ltrim",
    "rtrim",
    "strpos",
    "position",
    "repeat",
    "ascii",
    "starts_with",
    "bit_length",
    "overlay",
    "concat",
    "concat_ws",
    "ends_with",
    "contains",
];

/// `length(bytea)`.
const BYTES: PgFunction = PgFunction {
    name: "byte_length",
    wants: |_| Ok(vec![DataType::Binary]),
    gives: |_| Ok(DataType::Int32),
    run: |arrays, _| {
        let bytes = arrays[0].as_binary::<i32>();
        Ok(Arc::new(bytes.iter().map(|bytes| bytes.map(|bytes| bytes.len() as i32)).collect::<Int32Array>()))
    },
    between: None,
};

/// `chr(code)`.
pub(crate) const CHR: PgFunction = PgFunction {
    name: "chr",
    wants: |types| match types {
        [kind] if kind.is_integer() || kind.is_null() => Ok(vec![DataType::Int64]),
        _ => Err(no_function("chr", types)),
    },
    gives: |_| Ok(DataType::Utf8),
    run: |arrays, _| {
        let letters = arrays[0].as_primitive::<Int64Type>().iter().map(|code| match code {
            None => Ok(None),
            Some(0) => Err(SqlError::value("54000", "null character not permitted")),
            Some(..0) => Err(SqlError::value("22023", "character number must be positive")),
            Some(code) => match u32::try_from(code).ok().and_then(char::from_u32) {
                Some(letter) => Ok(Some(letter.to_string())),
                None => Err(SqlError::value("54000", format!("requested character not valid for encoding: {code}"))),
            },
        });
        Ok(Arc::new(letters.collect::<Result<StringArray, SqlError>>()?))
    },
    between: None,
};

/// Rewrites a call to have PostgreSQL's meaning. Errors: 0A000 for unsupported calls.
pub(crate) fn rewrite(call: ScalarFunction, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let counts = is_integer(&call, schema);
    let meant = restated(call, schema)?;
    Ok(match counts {
        true => Transformed::yes(Expr::Cast(Cast::new(Box::new(meant.data), DataType::Int32))),
        false => meant,
    })
}

/// Whether the result is an integer in PostgreSQL, where DataFusion has 64 bits, or no sign.
fn is_integer(call: &ScalarFunction, schema: &DFSchema) -> bool {
    let is_narrow = |arg: &Expr| matches!(arg.get_type(schema), Ok(DataType::Int16 | DataType::Int32));
    match call.func.name() {
        "array_length" | "array_ndims" | "array_position" | "cardinality" | "regexp_count" | "regexp_instr" => true,
        "gcd" | "lcm" => call.args.iter().all(is_narrow),
        _ => false,
    }
}

fn restated(call: ScalarFunction, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let ScalarFunction { func, mut args } = call;
    let name = func.name();
    interval_comparisons::check_call(name, &args, schema)?;
    let kind = |at: usize| args.get(at).and_then(|arg: &Expr| arg.get_type(schema).ok());
    let is_bytes = |at: usize| kind(at).is_some_and(|kind| kind.is_binary());
    match name {
        // Scans know DataFusion's own function.
        "date_trunc" if args.len() == 2 && moment_functions::is_plain(&args[0]) => {
            match kind(1) {
                Some(DataType::Timestamp(..)) => {}
                Some(DataType::Date32) => {
                    args[1] = args[1].clone().cast_to(&datetime_functions::moment(), schema)?;
                }
                _ => return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args }))),
            }
            let func = datafusion::functions::datetime::date_trunc();
            return Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })));
        }
        "length" | "char_length" | "character_length" | "octet_length" if is_bytes(0) => {
            return Ok(Transformed::yes(BYTES.of(args)));
        }
        "pg_typeof" if args.len() == 1 => {
            let name = of_type(&args[0], schema)?.map(|name| Transformed::yes(lit(name)));
            return Ok(name.unwrap_or_else(|| Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args }))));
        }
        // A truth value is one letter, where its type's own notation is used and not a cast to text.
        "concat" | "concat_ws" | "format" | "quote_literal" | "quote_nullable"
            if (0..args.len()).any(|at| kind(at).is_some_and(|kind| kind.is_nested())) =>
        {
            let error = SqlError::unsupported(format!("{name} of an array"));
            return Err(error.with_hint("Use array_to_string.").into());
        }
        "concat" | "concat_ws" | "format" if (0..args.len()).any(|at| kind(at) == Some(DataType::Boolean)) => {
            args.iter_mut().try_for_each(|arg| as_letter(arg, schema))?;
        }
        // DataFusion removes the first only; PostgreSQL removes all.
        "array_remove" => {
            let func = datafusion::functions_nested::remove::array_remove_all_udf();
            return Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })));
        }
        // An empty array has no dimensions, so it has no length in one.
        "array_length" => {
            let length = Expr::ScalarFunction(ScalarFunction { func, args });
            let args = vec![length, lit(0_u64)];
            let func = datafusion::functions::core::nullif();
            return Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })));
        }
        "coalesce" | "greatest" | "least" | "nullif" => {
            if !one_kind(&mut args.iter_mut().collect::<Vec<_>>(), name, schema)? {
                return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })));
            }
        }
        _ if OF_TEXT.contains(&name) && (0..args.len()).any(is_bytes) => {
            let error = SqlError::unsupported(format!("function {name} of bytea"));
            return Err(error.with_hint("encode(value, 'hex') converts bytes to text.").into());
        }
        _ if name.starts_with("regexp_") && !pattern_functions::CALLED.iter().any(|own| own.name == name) => {
            if !pattern(name, &mut args)? {
                return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })));
            }
        }
        _ => return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args }))),
    }
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
}

/// A truth value as `t` or `f`; nothing else is changed.
fn as_letter(arg: &mut Expr, schema: &DFSchema) -> DfResult<()> {
    if arg.get_type(schema).ok() == Some(DataType::Boolean) {
        let value = arg.clone();
        *arg = when(value.clone(), lit("t")).when(Expr::Not(Box::new(value)), lit("f")).end()?;
    }
    Ok(())
}

/// `pg_typeof` of a text by what its field tells; `None` for another value. Errors: 0A000 for results of functions, which are text where
/// PostgreSQL has varchar, and for arrays, whose numbers are bigint.
fn of_type(value: &Expr, schema: &DFSchema) -> Result<Option<String>, SqlError> {
    let Ok((_, field)) = value.to_field(schema) else { return Ok(None) };
    let refused = |what: &str| Err(SqlError::unsupported(format!("pg_typeof of {what}")));
    match (value, field.data_type()) {
        (_, kind) if kind.is_nested() => refused("an array"),
        (Expr::Literal(..), kind) if is_text(kind) => Ok(Some("unknown".to_owned())),
        (Expr::Column(_), kind) if is_text(kind) => Ok(Some(text_functions::type_name(&field))),
        _ if is_json(value, schema) => Ok(Some("json".to_owned())),
        // `'a' || x`
        (Expr::BinaryExpr(_), kind) if is_text(kind) => Ok(Some("text".to_owned())),
        (_, kind) if is_text(kind) => refused("a text that is neither a column nor a plain cast"),
        _ => Ok(None),
    }
}

pub(crate) fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// The results of CASE, converted to one type.
pub(crate) fn case(mut case: Case, schema: &DFSchema) -> Result<Transformed<Expr>, SqlError> {
    let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
    let mut results: Vec<&mut Expr> = results.chain(case.else_expr.as_deref_mut()).collect();
    let changed = one_kind(&mut results, "CASE", schema)?;
    let expr = Expr::Case(case);
    Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// Quoted literals beside values of another type get that type. Returns whether any was changed. Errors: 42804 for
/// other text.
fn one_kind(values: &mut [&mut Expr], what: &str, schema: &DFSchema) -> Result<bool, SqlError> {
    let kinds: Vec<Option<DataType>> = values.iter().map(|value| value.get_type(schema).ok()).collect();
    let others = || kinds.iter().flatten().filter(|kind| !is_text(kind) && !kind.is_null());
    let widest = others().find(|kind| kind.is_floating()).or_else(|| others().find(|kind| kind.is_decimal()));
    let Some(kind) = widest.or_else(|| others().next()).cloned() else { return Ok(false) };
    let mut changed = false;
    for (value, own) in values.iter_mut().zip(&kinds) {
        if !own.as_ref().is_some_and(is_text) {
            continue;
        }
        let Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) = &**value else {
            let name = type_name(&kind);
            let message = format!("{what} types text and {name} cannot be matched");
            return Err(SqlError::statement("42804", message).with_hint("Cast one of them."));
        };
        **value = match kind.is_decimal() {
            true => Expr::Literal(numeric_literals::of_text(text)?, None),
            false => Expr::Cast(Cast::new(Box::new(value.clone()), kind.clone())),
        };
        changed = true;
    }
    Ok(changed)
}

/// Rewrites the arguments of a function of regular expressions. Returns whether they have changed.
fn pattern(name: &str, args: &mut [Expr]) -> Result<bool, SqlError> {
    if args.len() < 2 {
        return Ok(false);
    }
    let only_finds = name == "regexp_like";
    let text = |at: usize, args: &[Expr]| match args.get(at) {
        None => Some(String::new()),
        Some(Expr::Literal(ScalarValue::Utf8(text), _)) => Some(text.clone().unwrap_or_default()),
        Some(_) => None,
    };
    let flags_at = if name == "regexp_replace" { 3 } else { 2 };
    if matches!(name, "regexp_replace" | "regexp_like" | "regexp_match") {
        let known = text(flags_at, args).is_some_and(|flags| flags.bytes().all(|flag| matches!(flag, b'g' | b'i')));
        if !known {
            return Err(SqlError::unsupported(format!("{name} with other flags than g and i")));
        }
    }
    // For DataFusion `$1` is a group; for PostgreSQL it is plain text.
    if name == "regexp_replace"
        && text(2, args).is_none_or(|with| with.contains('$') || with.contains("\\&") || with.contains("\\\\"))
    {
        return Err(SqlError::unsupported("regexp_replace with $, \\& or \\\\ in the replacement"));
    }
    let given = std::mem::replace(&mut args[1], lit(ScalarValue::Null));
    let (pattern, changed) =
        if only_finds { regular_expressions::for_match(given)? } else { regular_expressions::for_text(given)? };
    args[1] = pattern;
    Ok(changed)
}

/// Refuses aggregates whose result would be wrong.
pub(crate) fn check_aggregate(expr: &Expr, schema: &DFSchema) -> Result<(), SqlError> {
    let (name, args) = match expr {
        Expr::AggregateFunction(call) => (call.func.name(), &call.params.args),
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(func) => (func.name(), &call.params.args),
            WindowFunctionDefinition::WindowUDF(_) => return Ok(()),
        },
        _ => return Ok(()),
    };
    let Some(kind) = args.first().and_then(|arg| arg.get_type(schema).ok()) else { return Ok(()) };
    let spreads = name.starts_with("stddev") || name.starts_with("var");
    if spreads && !kind.is_floating() && !kind.is_null() {
        let error = SqlError::unsupported(format!("{name} of a numeric or a whole number"));
        return Err(error.with_hint("Cast the value to double precision."));
    }
    let is_distinct = match expr {
        Expr::AggregateFunction(call) => call.params.distinct,
        Expr::WindowFunction(call) => call.params.distinct,
        _ => false,
    };
    if is_distinct {
        interval_comparisons::check_distinct(name, &kind)?;
    }
    let in_window = matches!(expr, Expr::WindowFunction(_));
    if in_window && matches!(name, "min" | "max") && matches!(kind, DataType::Interval(_)) {
        let error = SqlError::unsupported(format!("{name}(interval) in a window"));
        return Err(error.with_hint("Order by the interval and take the first, or use extract(epoch from ..)."));
    }
    if matches!(name, "min" | "max") && kind == DataType::Boolean {
        return Err(no_function(name, &[kind]).with_hint("Use bool_and or bool_or."));
    }
    Ok(())
}
