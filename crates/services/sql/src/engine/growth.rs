//! [`Growth`]: functions whose values may be much larger than what they are made of ask for room before they make them.
//!
//! ```text
//!   plan --types, meaning--> Growth --optimizer--> plan that runs
//! ```
//!
//! Each of these functions has an upper bound of what it makes of its arguments, which costs little to compute. Where the bound is
//! beyond what there is room for, the rows are halved, down to one; where one row's value has no room, the statement ends with 53200.
//! Constants are evaluated by the optimizer's rules: they leave large values to the query, which makes them once for a batch.
//!
//! A function that is not among them can make no more than a few times what it is given; the account of the session bounds
//! that between two batches.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::optimizer::AnalyzerRule;

use super::budget::Account;
use super::rules;
use crate::SqlError;

/// A constant beyond this is not made while a query is planned: it would be copied for each row of a batch.
const CONSTANT_BYTES: u128 = 64 << 10;

/// Bounds below this are not looked at: a batch of them is small.
const SMALL_BYTES: u128 = 1 << 20;

/// A builder that has no more room takes twice what it has, and copies.
const BUILDER: u128 = 2;

/// Steps that a function may take for one row, where it takes more than it has letters: about a second's.
const STEPS_MAX: u128 = 1 << 29;

/// Bytes that a function makes at most of a row of arguments.
type Bound = fn(&Row<'_>) -> u128;

/// The bound of a function; none where it makes no more than a few times what it is given.
fn bound(name: &str) -> Option<Bound> {
    Some(match name {
        "repeat" => |row| row.bytes(0) * row.count(1),
        // A letter has at most four bytes.
        "lpad" | "rpad" => |row| row.bytes(0) + 4 * row.count(1),
        "replace" => |row| {
            let each = row.bytes(2).max(1);
            row.bytes(0) + row.bytes(0).div_ceil(row.bytes(1).max(1)) * each
        },
        // Each match may be replaced by all groups, of which each may be the whole text.
        "regexp_replace" => |row| {
            let matches = if row.bytes(3) > 0 { row.bytes(0) + 1 } else { 1 };
            let groups = row.bytes(2) / 2;
            row.bytes(0) + matches * row.bytes(2) + groups * row.bytes(0) * matches.min(row.bytes(0).isqrt() + 1)
        },
        "concat" | "||" | "overlay" | "array_append" | "array_prepend" | "array_concat" | "make_array" => {
            |row| row.all_bytes()
        }
        "concat_ws" => |row| row.all_bytes() + row.bytes(0) * row.width(),
        "translate" | "encode" | "upper" | "lower" | "initcap" | "reverse" | "quote_literal" => |row| 4 * row.bytes(0),
        "string_to_array" | "regexp_split_to_array" => |row| 24 * row.bytes(0),
        "array_to_string" => |row| row.bytes(0) * (1 + row.bytes(1)),
        "array_repeat" => |row| row.bytes(0).max(8) * row.count(1),
        "array_resize" => |row| row.bytes(0) + row.bytes(2).max(8) * row.count(1),
        "range" | "generate_series" => |row| match row.width() {
            1 => 8 * row.count(0),
            _ => 8 * row.number(1).abs_diff(row.number(0)) as u128 / u128::from(row.number(2).unsigned_abs().max(1)),
        },
        _ => return None,
    })
}

/// Steps of a function that takes more than it has letters; none where it does not.
fn steps(name: &str) -> Option<Bound> {
    Some(match name {
        "levenshtein" => |row| row.bytes(0) * row.bytes(1),
        _ => return None,
    })
}

/// One row of arguments.
struct Row<'a> {
    arguments: &'a [Argument],
    row: usize,
}

/// An argument: numbers, or how many bytes texts and lists have.
struct Argument {
    is_number: bool,
    values: Values,
}

enum Values {
    One(i64),
    Each(Vec<i64>),
}

impl Row<'_> {
    /// A number, 0 where there is none, or the bytes of a text or list.
    fn number(&self, at: usize) -> i64 {
        match self.arguments.get(at).map(|argument| &argument.values) {
            None => 0,
            Some(Values::One(number)) => *number,
            Some(Values::Each(numbers)) => numbers[self.row],
        }
    }

    fn count(&self, at: usize) -> u128 {
        u128::try_from(self.number(at)).unwrap_or(0)
    }

    fn bytes(&self, at: usize) -> u128 {
        match self.arguments.get(at) {
            Some(Argument { is_number: true, .. }) => 8,
            _ => self.count(at),
        }
    }

    fn width(&self) -> u128 {
        self.arguments.len() as u128
    }

    fn all_bytes(&self) -> u128 {
        (0..self.arguments.len()).map(|at| self.bytes(at)).sum()
    }
}

/// What of an argument bounds what is made of it.
fn argument(value: &ColumnarValue) -> DfResult<Argument> {
    let is_number = value.data_type().is_integer();
    let values = match value {
        ColumnarValue::Scalar(value) => Values::One(lengths(&value.to_array()?)?.first().copied().unwrap_or(0)),
        ColumnarValue::Array(array) => Values::Each(lengths(array)?),
    };
    Ok(Argument { is_number, values })
}

fn lengths(array: &ArrayRef) -> DfResult<Vec<i64>> {
    fn of<'a, T: AsRef<[u8]> + ?Sized + 'a>(values: impl Iterator<Item = Option<&'a T>>) -> Vec<i64> {
        values.map(|value| value.map_or(0, |value| value.as_ref().len() as i64)).collect()
    }
    Ok(match array.data_type() {
        DataType::Utf8 => of(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => of(array.as_string::<i64>().iter()),
        DataType::Utf8View => of(array.as_string_view().iter()),
        DataType::Binary => of(array.as_binary::<i32>().iter()),
        DataType::LargeBinary => of(array.as_binary::<i64>().iter()),
        DataType::BinaryView => of(array.as_binary_view().iter()),
        kind if kind.is_integer() => {
            let numbers = cast(array, &DataType::Int64)?;
            numbers.as_primitive::<Int64Type>().iter().map(|number| number.unwrap_or(0)).collect()
        }
        // Of lists the mean: their sum is what counts.
        kind if kind.is_nested() => {
            let mean = array.to_data().get_slice_memory_size()?.div_ceil(array.len().max(1));
            vec![mean as i64; array.len()]
        }
        _ => vec![16; array.len()],
    })
}

/// The rule: it puts the functions that ask in the place of those that do not.
#[derive(Debug)]
pub(crate) struct Growth {
    account: Arc<Account>,
}

impl Growth {
    /// For a session with this account.
    pub(crate) fn new(account: &Arc<Account>) -> Growth {
        Growth { account: account.clone() }
    }
}

impl AnalyzerRule for Growth {
    fn name(&self) -> &str {
        "growth"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        let asks = |plan: LogicalPlan| plan.map_expressions(|expr| asking(expr, &self.account));
        Ok(plan.transform_up_with_subqueries(asks)?.data)
    }
}

/// The same expression, whose functions ask.
fn asking(expr: Expr, account: &Arc<Account>) -> DfResult<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::ScalarFunction(ScalarFunction { func, args })
            if !func.inner().is::<BoundedFunction>() && (bound(func.name()).or(steps(func.name()))).is_some() =>
        {
            let inner = func.inner().clone();
            let func = Arc::new(ScalarUDF::from(BoundedFunction { inner, account: account.clone() }));
            Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
        }
        other => Ok(Transformed::no(other)),
    })
}

/// A function that asks for room first; all else is that of the function it stands for.
#[derive(Debug)]
struct BoundedFunction {
    inner: Arc<dyn ScalarUDFImpl>,
    account: Arc<Account>,
}

impl PartialEq for BoundedFunction {
    fn eq(&self, other: &BoundedFunction) -> bool {
        self.inner.name() == other.inner.name()
    }
}

impl Eq for BoundedFunction {}

impl Hash for BoundedFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.name().hash(state);
    }
}

impl BoundedFunction {
    /// Errors: 53200 where what the rows give has no room; then a half of them may have.
    fn ask(&self, args: &ScalarFunctionArgs) -> DfResult<()> {
        let name = self.inner.name();
        let arguments: Vec<Argument> = args.args.iter().map(argument).collect::<DfResult<_>>()?;
        let arguments = &arguments[..];
        let each = arguments.iter().any(|argument| matches!(argument.values, Values::Each(_)));
        let rows = if each { args.number_rows } else { 1 };
        let of = |bound: Bound| (0..rows).map(move |row| bound(&Row { arguments, row })).collect::<Vec<u128>>();
        if let Some(steps) = steps(name) {
            if of(steps).into_iter().any(|steps| steps > STEPS_MAX) {
                let message = format!("{name} of texts that long takes too many steps");
                return Err(SqlError::statement("54000", message).into());
            }
            return Ok(());
        }
        let Some(bound) = bound(name) else { return Ok(()) };
        let bytes: u128 = of(bound).into_iter().fold(0, u128::saturating_add);
        if rules::are_applied() && bytes > CONSTANT_BYTES {
            self.account.afford(BUILDER * bytes)?;
            return Err(SqlError::unsupported("a large constant while a query is planned").into());
        }
        // A value that all rows share is copied for each of them where it becomes a column.
        let bytes = if each { bytes } else { bytes.saturating_mul(args.number_rows as u128) };
        if bytes > SMALL_BYTES {
            self.account.afford(bytes.saturating_mul(BUILDER))?;
        }
        Ok(())
    }

    /// Makes the values, of fewer rows at a time where there is no room for all.
    fn make(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let Err(refused) = self.ask(&args) else { return self.inner.invoke_with_args(args) };
        let each = args.args.iter().any(|value| matches!(value, ColumnarValue::Array(_)));
        if !each || args.number_rows < 2 {
            return Err(refused);
        }
        let half = args.number_rows / 2;
        let part = |start: usize, rows: usize| {
            let cut = |value: &ColumnarValue| match value {
                ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(start, rows)),
                one => one.clone(),
            };
            let part = ScalarFunctionArgs {
                args: args.args.iter().map(cut).collect(),
                arg_fields: args.arg_fields.clone(),
                number_rows: rows,
                return_field: args.return_field.clone(),
                config_options: args.config_options.clone(),
            };
            self.make(part)?.into_array(rows)
        };
        let (first, second) = (part(0, half)?, part(half, args.number_rows - half)?);
        self.account.afford((first.get_array_memory_size() + second.get_array_memory_size()) as u128)?;
        Ok(ColumnarValue::Array(concat(&[first.as_ref(), second.as_ref()])?))
    }
}

impl ScalarUDFImpl for BoundedFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, kinds: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(kinds)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = self.inner.with_updated_config(config)?.inner().clone();
        Some(ScalarUDF::from(BoundedFunction { inner, account: self.account.clone() }))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        self.make(args)
    }

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> DfResult<ExprSimplifyResult> {
        Ok(match self.inner.simplify(args, context)? {
            ExprSimplifyResult::Simplified(expr) => ExprSimplifyResult::Simplified(asking(expr, &self.account)?.data),
            original => original,
        })
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> DfResult<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn propagate_constraints(&self, interval: &Interval, inputs: &[&Interval]) -> DfResult<Option<Vec<Interval>>> {
        self.inner.propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> DfResult<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> DfResult<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn coerce_types(&self, kinds: &[DataType]) -> DfResult<Vec<DataType>> {
        self.inner.coerce_types(kinds)
    }
}
