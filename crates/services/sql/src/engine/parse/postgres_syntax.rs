//! PostgreSQL's syntax that the planner does not know, as calls of functions and operators that it does.
//!
//! ```text
//!   interval '1 day'             '1 day'::interval             read by our own notation of intervals
//!   x SIMILAR TO p ESCAPE c      x ~ similar_to_escape(p, c)
//!   mod(a, b)                    a % b
//!   @ x, |/ x, ||/ x, ~x         abs(x), sqrt(x::float8), cbrt(x::float8), x # -1
//!   x::varchar(3), x::char(3)    left(x::text, 3)               a char(n) has no trailing blanks here
//!   x -> k, x ->> k, x #> '{k}'  json_get(x, k), json_get_text(x, k), json_extract_path(x, 'k'), json_whole(x)
//!   x ? k, x ?| a, x ?& a, x #- p  jsonb_exists(x, k), jsonb_exists_any, jsonb_exists_all, jsonb_delete_path
//!   jsonb_agg(x), jsonb_object_agg(k, x)  jsonb_of_list(array_agg(to_jsonb(x))), jsonb_of_pairs(array_agg(jsonb_pair(k, x)))
//!   substring(x FROM a FOR b)    substr(x, a, b): our own, which also takes bytes and patterns
//!   1e300::float8                '1e300'::float8
//!   x::json                      json_of(x), which checks it
//!   x::timestamp(0)              rounded_timestamp(x::timestamp, 0); time(0) and `time(0) '..'` alike
//!   (a, b) < (c, d)              a < c OR a = c AND b < d
//!   (a, b) IN ((1, 2), ..)       a = 1 AND b = 2 OR ..
//!   (a, b) IS NULL               a IS NULL AND b IS NULL; IS NOT NULL alike
//!   (a, b) OVERLAPS (c, d)       by the ends of both periods
//!   make_interval(days => 3)     make_interval(0, 0, 0, 3)
//!   gen_random_uuid()            uuid()::uuid: it makes the text of one
//!   localtimestamp, age(x)       now()::timestamp, age(current_date, x)
//!   current_timestamp(0)         rounded_timestamp(now(), 0)
//!   mode() WITHIN GROUP (..)     most_frequent(array_agg(..)); percentile_disc alike
//! ```
//!
//! Labels of columns come from the statement as it was written.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, CharacterLength, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Ident, Interval, TimezoneInfo, UnaryOperator, Value, WindowFrameBound,
    WindowType, visit_expressions,
};

use super::expressions::{binary, call, cast, equal_rows, nested, number};
use crate::text::array_text;

/// The parameters of `make_interval`, in their order.
const PARTS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// Functions that are others of the planner, for some of their arguments.
const RESTATED: [&str; 12] = [
    "mod",
    "age",
    "make_interval",
    "clock_timestamp",
    "statement_timestamp",
    "transaction_timestamp",
    "current_timestamp",
    "localtimestamp",
    "localtime",
    "gen_random_uuid",
    "every",
    "variance",
];

/// The expression in the planner's syntax; the expression itself if the planner knows it.
pub(super) fn restated(expr: Expr) -> Expr {
    match expr {
        Expr::Interval(interval) => interval_of(interval),
        Expr::SimilarTo { negated, expr, pattern, escape_char } => {
            let escape = escape_char.map(Expr::Value);
            let pattern = call("similar_to_escape", std::iter::once(*pattern).chain(escape).collect());
            let op = if negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
            nested(binary(*expr, op, pattern))
        }
        Expr::UnaryOp { op: UnaryOperator::PGAbs, expr } => call("abs", vec![*expr]),
        Expr::UnaryOp { op: UnaryOperator::PGSquareRoot, expr } => call("sqrt", vec![cast(*expr, double())]),
        Expr::UnaryOp { op: UnaryOperator::PGCubeRoot, expr } => call("cbrt", vec![cast(*expr, double())]),
        Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr } => {
            nested(binary(*expr, BinaryOperator::PGBitwiseXor, number("-1")))
        }
        Expr::BinaryOp { left, op: BinaryOperator::Overlaps, right } => overlaps(*left, *right),
        Expr::BinaryOp { left, op, right } if order_of(&op).is_some() => match (*left, *right) {
            (Expr::Tuple(left), Expr::Tuple(right)) if left.len() == right.len() => ordered_rows(left, right, &op),
            (left, right) => binary(left, op, right),
        },
        Expr::BinaryOp { left, op: BinaryOperator::Arrow, right } => call("json_get", vec![*left, *right]),
        Expr::BinaryOp { left, op: BinaryOperator::LongArrow, right } => call("json_get_text", vec![*left, *right]),
        Expr::BinaryOp { left, op: op @ (BinaryOperator::HashArrow | BinaryOperator::HashLongArrow), right } => {
            at_path(*left, op, *right)
        }
        Expr::BinaryOp { left, op, right } if document_function(&op).is_some() => {
            call(document_function(&op).unwrap_or_default(), vec![*left, *right])
        }
        Expr::IsNull(row) => each_of(*row, |value| Expr::IsNull(Box::new(value))),
        Expr::IsNotNull(row) => each_of(*row, |value| Expr::IsNotNull(Box::new(value))),
        Expr::Substring { expr, substring_from, substring_for, .. } => {
            let from = substring_from.map_or_else(|| number("1"), |from| *from);
            let length = substring_for.map(|length| *length);
            call("substr", [*expr, from].into_iter().chain(length).collect())
        }
        Expr::InList { expr, list, negated } => match *expr {
            Expr::Tuple(row) => row_in_list(&row, list, negated),
            expr => Expr::InList { expr: Box::new(expr), list, negated },
        },
        Expr::Cast { expr, data_type, kind: CastKind::Cast | CastKind::DoubleColon, .. } => sized(*expr, data_type),
        Expr::TypedString(typed)
            if matches!(typed.data_type, DataType::Timestamp(Some(_), _) | DataType::Time(Some(_), _)) =>
        {
            sized(Expr::Value(typed.value), typed.data_type)
        }
        Expr::Identifier(name) if name.quote_style.is_none() => local_time(name),
        Expr::Function(function) => function_of(with_frame(function)),
        other => other,
    }
}

/// PostgreSQL's function of an operator that only documents have.
fn document_function(op: &BinaryOperator) -> Option<&'static str> {
    Some(match op {
        BinaryOperator::Question => "jsonb_exists",
        BinaryOperator::QuestionPipe => "jsonb_exists_any",
        BinaryOperator::QuestionAnd => "jsonb_exists_all",
        BinaryOperator::HashMinus => "jsonb_delete_path",
        _ => return None,
    })
}

fn double() -> DataType {
    DataType::DoublePrecision
}

fn interval() -> DataType {
    DataType::Interval { fields: None, precision: None }
}

/// An interval in quotes is read as a cast reads it; a unit behind the quotes is that of its number.
fn interval_of(interval_: Interval) -> Expr {
    let Interval { value, leading_field, leading_precision, last_field, fractional_seconds_precision } = interval_;
    let plain = leading_precision.is_none() && last_field.is_none() && fractional_seconds_precision.is_none();
    let text = match value.as_ref() {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    };
    match (text, &leading_field) {
        (Some(text), None) if plain => cast(Expr::Value(Value::SingleQuotedString(text).into()), interval()),
        (Some(text), Some(field)) if plain && text.trim().parse::<f64>().is_ok() => {
            let text = format!("{} {}", text.trim(), field.to_string().to_lowercase());
            cast(Expr::Value(Value::SingleQuotedString(text).into()), interval())
        }
        _ => Expr::Interval(Interval {
            value,
            leading_field,
            leading_precision,
            last_field,
            fractional_seconds_precision,
        }),
    }
}

/// A call whose window has a frame of intervals: the planner reads them itself, and takes no cast there.
fn with_frame(mut function: Function) -> Function {
    let Some(WindowType::WindowSpec(window)) = &mut function.over else { return function };
    let Some(frame) = &mut window.window_frame else { return function };
    for bound in std::iter::once(&mut frame.start_bound).chain(&mut frame.end_bound) {
        let (WindowFrameBound::Preceding(Some(length)) | WindowFrameBound::Following(Some(length))) = bound else {
            continue;
        };
        if let Expr::Cast { expr, data_type: DataType::Interval { .. }, .. } = length.as_ref() {
            let value = expr.clone();
            **length = Expr::Interval(Interval {
                value,
                leading_field: None,
                leading_precision: None,
                last_field: None,
                fractional_seconds_precision: None,
            });
        }
    }
    function
}

/// The comparison of all values but the last of a row.
fn order_of(op: &BinaryOperator) -> Option<BinaryOperator> {
    match op {
        BinaryOperator::Lt | BinaryOperator::LtEq => Some(BinaryOperator::Lt),
        BinaryOperator::Gt | BinaryOperator::GtEq => Some(BinaryOperator::Gt),
        _ => None,
    }
}

fn ordered_rows(left: Vec<Expr>, right: Vec<Expr>, op: &BinaryOperator) -> Expr {
    let strict = order_of(op).unwrap_or(BinaryOperator::Lt);
    let mut pairs = left.into_iter().zip(right).rev();
    let Some((left, right)) = pairs.next() else { return Expr::Value(Value::Null.into()) };
    let mut found = binary(left, op.clone(), right);
    for (left, right) in pairs {
        let equal = binary(left.clone(), BinaryOperator::Eq, right.clone());
        let rest = nested(binary(equal, BinaryOperator::And, nested(found)));
        found = binary(binary(left, strict.clone(), right), BinaryOperator::Or, rest);
    }
    nested(found)
}

/// What is said of a row holds for each of its values; a row is also `ROW(..)`.
fn each_of(row: Expr, of: fn(Expr) -> Expr) -> Expr {
    let values = match row {
        Expr::Tuple(values) if !values.is_empty() => values,
        Expr::Nested(inner) if matches!(*inner, Expr::Tuple(_) | Expr::Nested(_)) => return each_of(*inner, of),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            match arguments(&function).filter(|values| !values.is_empty()) {
                Some(values) => values.into_iter().map(|(_, value)| value).collect(),
                None => return of(Expr::Function(function)),
            }
        }
        other => return of(other),
    };
    let each = values.into_iter().map(|value| nested(of(nested(value))));
    let all = each.reduce(|one, other| binary(one, BinaryOperator::And, other));
    nested(all.unwrap_or_else(|| Expr::Value(Value::Null.into())))
}

fn row_in_list(row: &[Expr], list: Vec<Expr>, negated: bool) -> Expr {
    let each = list.into_iter().map(|other| match other {
        Expr::Tuple(values) => equal_rows(row, values),
        other => other,
    });
    let any = each.reduce(|one, other| binary(one, BinaryOperator::Or, other));
    let any = nested(any.unwrap_or_else(|| Expr::Value(Value::Null.into())));
    if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(any) } } else { any }
}

/// Two periods overlap if one begins within the other. Their ends may be in any order; an interval is a length. Where an end is unknown, so is
/// what it decides: `x < x` is NULL for a NULL, and false else.
fn overlaps(left: Expr, right: Expr) -> Expr {
    let ends = |period: Expr| match period {
        Expr::Tuple(values) => match <[Expr; 2]>::try_from(values) {
            Ok([begin, end]) => Ok((begin.clone(), if is_interval(&end) { plus(begin, end) } else { end })),
            Err(values) => Err(Box::new(Expr::Tuple(values))),
        },
        other => Err(Box::new(other)),
    };
    let (left, right) = match (ends(left), ends(right)) {
        (Ok(left), Ok(right)) => (left, right),
        (left, right) => {
            let back =
                |side: Result<(Expr, Expr), Box<Expr>>| side.map_or_else(|it| *it, |(a, b)| Expr::Tuple(vec![a, b]));
            return binary(back(left), BinaryOperator::Overlaps, back(right));
        }
    };
    let first = |(one, other): &(Expr, Expr)| call("least", vec![one.clone(), other.clone()]);
    let last = |(one, other): &(Expr, Expr)| call("greatest", vec![one.clone(), other.clone()]);
    let less = |one, other| nested(binary(one, BinaryOperator::Lt, other));
    let equal = |one, other| nested(binary(one, BinaryOperator::Eq, other));
    let both = |one, other| nested(binary(one, BinaryOperator::And, other));
    let or = |one, other| nested(binary(one, BinaryOperator::Or, other));
    // NULL if an end of the period is, and false else.
    let open = |(one, other): &(Expr, Expr)| or(less(one.clone(), one.clone()), less(other.clone(), other.clone()));
    let closed = |period: &(Expr, Expr)| Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(open(period)) };
    // The end of a period with an unknown end decides nothing: `within` is NULL then.
    let within = |moment: &(Expr, Expr), period: &(Expr, Expr)| {
        both(or(less(first(moment), last(period)), open(period)), closed(period))
    };
    let after = |one: &(Expr, Expr), other: &(Expr, Expr)| {
        both(less(first(other), first(one)), or(within(one, other), open(one)))
    };
    let same = both(equal(first(&left), first(&right)), both(closed(&left), closed(&right)));
    nested(or(same, or(after(&left, &right), after(&right, &left))))
}

fn plus(left: Expr, right: Expr) -> Expr {
    nested(binary(left, BinaryOperator::Plus, right))
}

fn is_interval(expr: &Expr) -> bool {
    match expr {
        Expr::Interval(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::Interval { .. }),
        Expr::Nested(inner) => is_interval(inner),
        _ => false,
    }
}

/// A cast to a type with a length or a precision: a cast without it, and what the length means.
fn sized(expr: Expr, data_type: DataType) -> Expr {
    use DataType as T;
    let limit = |expr, length: &CharacterLength| match length {
        CharacterLength::IntegerLength { length, .. } => {
            call("left", vec![cast(expr, T::Text), number(&length.to_string())])
        }
        CharacterLength::Max => cast(expr, T::Text),
    };
    let one = CharacterLength::IntegerLength { length: 1, unit: None };
    match data_type {
        T::Varchar(Some(length)) | T::CharacterVarying(Some(length)) | T::CharVarying(Some(length)) => {
            limit(expr, &length)
        }
        T::Character(length) | T::Char(length) => call("rtrim", vec![limit(expr, &length.unwrap_or(one))]),
        T::Real | T::Float4 | T::Float8 | T::DoublePrecision | T::Double(_) | T::Float(_) => {
            cast(quoted_number(expr), data_type)
        }
        T::JSON => call("json_of", vec![cast(expr, T::Text)]),
        T::Timestamp(Some(digits), zone) => {
            let zone = if matches!(zone, TimezoneInfo::WithoutTimeZone) { TimezoneInfo::None } else { zone };
            rounded(cast(expr, T::Timestamp(None, zone)), digits)
        }
        T::Time(Some(digits), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            rounded(cast(expr, T::Time(None, TimezoneInfo::None)), digits)
        }
        data_type => cast(expr, data_type),
    }
}

/// A time with six digits has all that are stored.
fn rounded(time: Expr, digits: u64) -> Expr {
    if digits < 6 { call("rounded_timestamp", vec![time, number(&digits.to_string())]) } else { time }
}

/// A number that is cast to a float is read as one, as PostgreSQL reads the text of a numeric: the nearest one, of any exponent.
fn quoted_number(expr: Expr) -> Expr {
    match expr {
        Expr::Value(value) => match value.value {
            Value::Number(text, false) => Expr::Value(Value::SingleQuotedString(text).into()),
            other => Expr::Value(other.into()),
        },
        Expr::Nested(inner) => nested(quoted_number(*inner)),
        other => other,
    }
}

/// `json #> path`. A path that is no constant, or no array of texts, stays as it is, and the planner refuses it.
fn at_path(json: Expr, op: BinaryOperator, path: Expr) -> Expr {
    let steps = match &path {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => array_text::parse(text),
            _ => None,
        },
        _ => None,
    };
    let is_json = op == BinaryOperator::HashArrow;
    match steps.as_deref() {
        Some([]) => call(if is_json { "json_whole" } else { "json_whole_text" }, vec![json]),
        Some(steps) => {
            let name = if is_json { "json_extract_path" } else { "json_extract_path_text" };
            let steps = steps.iter().map(|step| match step {
                Some(step) => Expr::Value(Value::SingleQuotedString(step.clone()).into()),
                None => Expr::Value(Value::Null.into()),
            });
            call(name, std::iter::once(json).chain(steps).collect())
        }
        None => binary(json, op, path),
    }
}

fn local_time(name: Ident) -> Expr {
    let now = || call("now", Vec::new());
    match name.value.to_ascii_lowercase().as_str() {
        "localtimestamp" => cast(now(), DataType::Timestamp(None, TimezoneInfo::None)),
        "localtime" => cast(now(), DataType::Time(None, TimezoneInfo::None)),
        _ => Expr::Identifier(name),
    }
}

/// The arguments of a plain call.
fn arguments(function: &Function) -> Option<Vec<(Option<String>, Expr)>> {
    let plain = function.over.is_none() && function.filter.is_none() && function.within_group.is_empty();
    let list = match &function.args {
        // `localtimestamp` has no brackets.
        FunctionArguments::None if plain => return Some(Vec::new()),
        FunctionArguments::List(list) => list,
        _ => return None,
    };
    if !plain || list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return None;
    }
    let each = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some((None, expr.clone())),
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. } => {
            Some((Some(name.value.to_lowercase()), expr.clone()))
        }
        FunctionArg::ExprNamed { name, arg: FunctionArgExpr::Expr(expr), .. } => {
            Some((Some(name.to_string().to_lowercase()), expr.clone()))
        }
        _ => None,
    });
    each.collect()
}

/// `percentile_disc(p) WITHIN GROUP (ORDER BY x)` and `mode()` are functions of the list of all values in their order.
fn of_ordered_list(name: &str, function: Function) -> Expr {
    let FunctionArguments::List(given) = &function.args else { return Expr::Function(function) };
    let [key] = function.within_group.as_slice() else { return Expr::Function(function) };
    let plain = function.over.is_none() && given.duplicate_treatment.is_none() && given.clauses.is_empty();
    let (of, arguments) = match (name, given.args.as_slice()) {
        ("mode", []) if plain => ("most_frequent", Vec::new()),
        ("percentile_disc", [FunctionArg::Unnamed(FunctionArgExpr::Expr(fraction))]) if plain => {
            ("discrete_percentile", vec![fraction.clone()])
        }
        _ => return Expr::Function(function),
    };
    let Expr::Function(mut list) = call("array_agg", vec![key.expr.clone()]) else { return Expr::Function(function) };
    let mut by = key.clone();
    if matches!(by.expr, Expr::Value(_)) {
        // The planner takes a number for the place of a column.
        by.expr = Expr::IsNull(Box::new(by.expr));
    }
    if let FunctionArguments::List(list) = &mut list.args {
        list.clauses.push(FunctionArgumentClause::OrderBy(vec![by]));
    }
    let there = Expr::IsNotNull(Box::new(nested(key.expr.clone())));
    list.filter = Some(Box::new(match function.filter {
        Some(filter) => binary(nested(*filter), BinaryOperator::And, there),
        None => there,
    }));
    call(of, std::iter::once(Expr::Function(list)).chain(arguments).collect())
}

/// An aggregate of documents is a function of the list of all values.
fn of_documents(name: &str, mut function: Function) -> Expr {
    let FunctionArguments::List(list) = &mut function.args else { return Expr::Function(function) };
    let values = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    let (of, value) = match (name, values.collect::<Option<Vec<_>>>().as_deref()) {
        ("jsonb_agg", Some([value])) => ("jsonb_of_list", call("to_jsonb", vec![value.clone()])),
        ("jsonb_object_agg", Some([key, value])) if list.duplicate_treatment.is_none() => {
            ("jsonb_of_pairs", call("jsonb_pair", vec![key.clone(), value.clone()]))
        }
        _ => return Expr::Function(function),
    };
    list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(value))];
    function.name = Ident::new("array_agg").into();
    call(of, vec![Expr::Function(function)])
}

/// The type of a cast to a text of any length: the planner has one type for both. `None` where aggregates may be within it.
fn text_type(value: &Expr) -> Option<&'static str> {
    let is_call = |expr: &Expr| match expr {
        Expr::Function(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    match value {
        Expr::Nested(inner) => text_type(inner),
        Expr::Cast { expr, .. } if visit_expressions(expr, is_call).is_break() => None,
        Expr::Cast { data_type: DataType::Text, .. } => Some("text"),
        Expr::Cast { data_type: DataType::Varchar(None) | DataType::CharacterVarying(None), .. } => {
            Some("character varying")
        }
        _ => None,
    }
}

/// A call that names a sequence: the functions take its name and not its number.
fn of_sequence(mut function: Function) -> Expr {
    if let FunctionArguments::List(list) = &mut function.args
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = list.args.first_mut()
        && let Expr::Cast { expr, data_type: DataType::Regclass, .. } = first
    {
        *first = (**expr).clone();
    }
    Expr::Function(function)
}

fn function_of(function: Function) -> Expr {
    let name = function.name.to_string().to_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    if matches!(name, "mode" | "percentile_disc") {
        return of_ordered_list(name, function);
    }
    if matches!(name, "jsonb_agg" | "jsonb_object_agg") {
        return of_documents(name, function);
    }
    if matches!(name, "nextval" | "currval" | "setval") {
        return of_sequence(function);
    }
    if name == "pg_typeof"
        && let Some([(None, value)]) = arguments(&function).as_deref()
        && let Some(kind) = text_type(value)
    {
        return Expr::Value(Value::SingleQuotedString(kind.to_owned()).into());
    }
    if matches!(name, "array_length" | "array_ndims" | "array_position" | "cardinality") {
        // The planner counts without a sign.
        return cast(Expr::Function(function), DataType::Int(None));
    }
    if !RESTATED.contains(&name) {
        return Expr::Function(function);
    }
    if matches!(name, "every" | "variance") {
        let other = if name == "every" { "bool_and" } else { "var_samp" };
        return Expr::Function(Function { name: Ident::new(other).into(), ..function });
    }
    let Some(given) = arguments(&function) else { return Expr::Function(function) };
    let mut unnamed = given.iter().filter(|(name, _)| name.is_none()).map(|(_, expr)| expr.clone());
    match (name, given.len()) {
        ("mod", 2) => match (unnamed.next(), unnamed.next()) {
            (Some(left), Some(right)) => nested(binary(nested(left), BinaryOperator::Modulo, nested(right))),
            _ => Expr::Function(function),
        },
        ("age", 1) => call("age", vec![call("current_date", Vec::new()), given[0].1.clone()]),
        ("clock_timestamp" | "statement_timestamp" | "transaction_timestamp", 0) => call("now", Vec::new()),
        ("gen_random_uuid", 0) => cast(call("uuid", Vec::new()), DataType::Uuid),
        ("localtimestamp" | "localtime", 0) => local_time(Ident::new(name)),
        ("localtime", 1) => call("rounded_timestamp", vec![local_time(Ident::new(name)), given[0].1.clone()]),
        ("localtimestamp", 1) => call("rounded_timestamp", vec![local_time(Ident::new(name)), given[0].1.clone()]),
        ("current_timestamp", 1) => call("rounded_timestamp", vec![call("now", Vec::new()), given[0].1.clone()]),
        ("make_interval", _) if given.iter().any(|(name, _)| name.is_some()) => {
            let mut parts = vec![number("0"); PARTS.len()];
            for (at, (name, expr)) in given.into_iter().enumerate() {
                let place = match &name {
                    None => Some(at),
                    Some(name) => PARTS.iter().position(|part| part == name),
                };
                match place.and_then(|place| parts.get_mut(place)) {
                    Some(part) => *part = expr,
                    None => return Expr::Function(function),
                }
            }
            call("make_interval", parts)
        }
        _ => Expr::Function(function),
    }
}
