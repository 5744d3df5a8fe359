//! Calls of functions that mean something else in PostgreSQL for some types of arguments: restated, or refused by name.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Int32Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, WindowFunctionDefinition, lit};

use super::meant::{Meant, no_function};
use super::{moments, patterns};
use crate::SqlError;

/// Functions of texts that DataFusion would hand bytes to as they are written, `\x..`.
const OF_TEXT: &[&str] = &[
    "upper",
    "lower",
    "initcap",
    "substr",
    "substring",
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
const BYTES: Meant = Meant {
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
pub(super) const CHR: Meant = Meant {
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
            Some(code) => match u32::try_from(code).ok().and_then(char::from_u32) {
                Some(letter) => Ok(Some(letter.to_string())),
                None => Err(SqlError::value("54000", format!("requested character not valid for encoding: {code}"))),
            },
        });
        Ok(Arc::new(letters.collect::<Result<StringArray, SqlError>>()?))
    },
    between: None,
};

/// A call as it was meant. Errors: 0A000 for what is not supported.
pub(super) fn rewrite(call: ScalarFunction, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let ScalarFunction { func, mut args } = call;
    let name = func.name();
    let kind = |at: usize| args.get(at).and_then(|arg: &Expr| arg.get_type(schema).ok());
    let is_bytes = |at: usize| kind(at).is_some_and(|kind| kind.is_binary());
    match name {
        "date_trunc" if kind(1) == Some(DataType::Date32) => {
            args[1] = args[1].clone().cast_to(&moments::moment(), schema)?;
        }
        "length" | "char_length" | "character_length" | "octet_length" if is_bytes(0) => {
            return Ok(Transformed::yes(BYTES.of(args)));
        }
        // The first only, in DataFusion; PostgreSQL's removes all.
        "array_remove" => {
            let func = datafusion::functions_nested::remove::array_remove_all_udf();
            return Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })));
        }
        // An empty array has no dimensions, and so no length of one.
        "array_length" => {
            let length = Expr::ScalarFunction(ScalarFunction { func, args });
            let args = vec![length, lit(0_u64)];
            let func = datafusion::functions::core::nullif();
            return Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })));
        }
        "to_timestamp" if args.len() != 1 || kind(0).is_some_and(|kind| !kind.is_numeric() && !kind.is_null()) => {
            let error = SqlError::unsupported("to_timestamp of a text");
            return Err(error.with_hint("Cast the text to timestamp or timestamptz.").into());
        }
        "coalesce" | "greatest" | "least" | "nullif" => {
            if !one_kind(&mut args.iter_mut().collect::<Vec<_>>(), name, schema)? {
                return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })));
            }
        }
        _ if OF_TEXT.contains(&name) && (0..args.len()).any(is_bytes) => {
            let error = SqlError::unsupported(format!("function {name} of bytea"));
            return Err(error.with_hint("encode(value, 'hex') makes text of bytes.").into());
        }
        _ if name.starts_with("regexp_") => {
            if !pattern(name, &mut args)? {
                return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })));
            }
        }
        _ => return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args }))),
    }
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
}

pub(super) fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// The results of CASE as values of one type.
pub(super) fn case(mut case: Case, schema: &DFSchema) -> Result<Transformed<Expr>, SqlError> {
    let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
    let mut results: Vec<&mut Expr> = results.chain(case.else_expr.as_deref_mut()).collect();
    let changed = one_kind(&mut results, "CASE", schema)?;
    let expr = Expr::Case(case);
    Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// Quoted literals beside values of another type are of that type; whether any was. Errors: 42804 for other text.
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
            let message = format!("{what} types text and {kind} cannot be matched");
            return Err(SqlError::statement("42804", message).with_hint("Cast one of them."));
        };
        **value = match kind.is_decimal() {
            true => Expr::Literal(super::operators::literal(text)?, None),
            false => Expr::Cast(Cast::new(Box::new(value.clone()), kind.clone())),
        };
        changed = true;
    }
    Ok(changed)
}

/// The arguments of a function of regular expressions; whether they are others now.
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
    // `$1` is a group to DataFusion, and itself in PostgreSQL.
    if name == "regexp_replace"
        && text(2, args).is_none_or(|with| with.contains('$') || with.contains("\\&") || with.contains("\\\\"))
    {
        return Err(SqlError::unsupported("regexp_replace with $, \\& or \\\\ in what is put in place"));
    }
    let given = std::mem::replace(&mut args[1], lit(ScalarValue::Null));
    let (pattern, changed) = if only_finds { patterns::for_match(given)? } else { patterns::for_text(given)? };
    args[1] = pattern;
    Ok(changed)
}

/// Refuses aggregates that would answer something else.
pub(super) fn check_aggregate(expr: &Expr, schema: &DFSchema) -> Result<(), SqlError> {
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
        let error = SqlError::unsupported(format!("{name} of {kind}, which is a numeric of many digits,"));
        return Err(error.with_hint("Cast the value to double precision."));
    }
    if matches!(name, "min" | "max") && matches!(kind, DataType::Interval(_)) {
        let error = SqlError::unsupported(format!("{name}(interval)"));
        return Err(error.with_hint("Order by the interval and take the first, or use extract(epoch from ..)."));
    }
    if matches!(name, "min" | "max") && kind == DataType::Boolean {
        return Err(no_function(name, &[kind]).with_hint("Use bool_and or bool_or."));
    }
    Ok(())
}
