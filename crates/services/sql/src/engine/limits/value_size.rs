//! [`ValueSizeLimit`]: functions whose values may be much larger than their arguments request memory before they make
//! them.
//!
//! ```text
//!   plan --types, semantics--> ValueSizeLimit --optimizer--> plan that runs
//! ```
//!
//! Each of these functions has an upper bound of its result's size, which is cheap to compute from its arguments. If
//! there is no room for the bound, the function processes fewer rows at a time, down to one. If there is no room for
//! one row's value, the statement ends with 53200. The optimizer's rules evaluate constants: they leave large values to
//! the query, which makes them once for a batch.
//!
//! A document of a few kilobytes may have megabytes of text (`1e999`): how long its text is follows from its bytes, which are read for that.
//!
//! All other functions make no more than their arguments take, once a value that all rows share was copied for each of
//! them. The session's account bounds small excesses, between two batches. Where no function would request memory,
//! [`LARGE`] is put around a value that all rows may share: branches of CASE, columns, arguments of aggregates.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::kernels::concat_elements::concat_elements_dyn;
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeIterator};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, ExpressionPlacement, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, lit,
};
use datafusion::optimizer::AnalyzerRule;

use super::cancellable_rules;
use super::memory_budget::{Account, OUT_OF_MEMORY};
use super::value_lengths::{is_long, lengths};
use super::window_values::aggregates;
use crate::SqlError;
use crate::engine::semantics::pg_function::PgFunction;
use crate::engine::semantics::text_functions::format_sizes;
use crate::table::types::JSONB;
use crate::text::jsonb;

/// A function that returns its argument, and requests memory for its copies.
const LARGE: &str = "large";

/// A larger constant is not made while a query is planned: it would be copied for each row of a batch.
const CONSTANT_BYTES: u128 = 64 << 10;

/// Smaller bounds are not examined: a batch of such values is small.
const SMALL_BYTES: u128 = 1 << 20;

/// A builder that is full allocates twice its size, and copies.
const BUILDER: u128 = 2;

/// Most steps for one row, of a function whose steps exceed the number of characters: about a second's.
const STEPS_MAX: u128 = 1 << 29;

/// A document's parts, and its text before it is copied into its column.
const WRITTEN: u128 = 2;

/// Most bytes for documents that become text at a time: Arrow's texts have no more than 2 GiB in one column of a batch.
const DOCUMENTS_MAX: u128 = WRITTEN * i32::MAX as u128;

/// The largest number of bytes that a function makes of a row of arguments.
type Bound = fn(&Row<'_>) -> u128;

/// The bound of a function; `None` if its result is no larger than a few times its arguments.
fn bound(name: &str) -> Option<Bound> {
    Some(match name {
        "repeat" => |row| row.bytes(0) * row.count(1),
        // A character has at most four bytes.
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
        LARGE => |row| row.bytes(0),
        // One copy of the arguments, if all rows share one, and the value.
        "||" => |row| 2 * row.all_bytes(),
        "concat" | "overlay" | "array_append" | "array_prepend" | "array_concat" | "make_array" => {
            |row| row.all_bytes()
        }
        // The last two are the fields of the template and the sum of their widths. A value in quotes is at most twice as long.
        "format" => |row| {
            let (fields, widths) = (row.arguments.len() - 2, row.arguments.len() - 1);
            let longest = (1..fields).map(|at| row.bytes(at)).max().unwrap_or(0);
            row.bytes(0) + row.count(fields) * (2 * longest + 3) + row.count(widths)
        },
        "concat_ws" => |row| row.all_bytes() + row.bytes(0) * row.width(),
        "translate" | "encode" | "upper" | "lower" | "initcap" | "reverse" | "quote_literal" | "quote_ident"
        | "quote_nullable" => |row| 4 * row.bytes(0),
        "string_to_array" | "regexp_split_to_array" => |row| 24 * row.bytes(0),
        // All parts of a document are in memory when it is made of them.
        "jsonb_of_list" => |row| 4 * row.bytes(0),
        "jsonb_of_pairs" => |row| 8 * row.bytes(0),
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

/// Whether a function makes text of a document.
fn writes_documents(name: &str) -> bool {
    let of_parts = matches!(name, "json_get_text" | "json_extract_path_text" | "jsonb_extract_path_text");
    of_parts || matches!(name, "text_of" | "jsonb_pretty")
}

/// Whether a call's first argument is a document.
fn is_of_document(args: &ScalarFunctionArgs) -> bool {
    args.args.first().is_some_and(|value| value.data_type() == JSONB)
}

/// The most bytes for the text of each row's document, or for one if all rows share it.
fn written(args: &ScalarFunctionArgs, is_pretty: bool) -> DfResult<Vec<u128>> {
    let most = |bytes: Option<&[u8]>| -> u128 {
        // Of damaged bytes no text is made.
        bytes.map_or(0, |bytes| WRITTEN * jsonb::written_at_most(bytes, is_pretty).unwrap_or(0) as u128)
    };
    Ok(match args.args.first() {
        Some(ColumnarValue::Array(array)) => array.as_binary_view().iter().map(most).collect(),
        Some(ColumnarValue::Scalar(value)) => {
            let one = value.to_array()?;
            let rows = if are_shared(args) { 1 } else { args.number_rows };
            vec![most(one.as_binary_view().iter().next().flatten()); rows]
        }
        None => Vec::new(),
    })
}

/// Whether all rows share all arguments.
fn are_shared(args: &ScalarFunctionArgs) -> bool {
    args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)))
}

/// The steps of a function whose steps exceed the number of characters; `None` for others.
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

/// An argument: numbers, or the sizes of texts and lists in bytes.
struct Argument {
    is_number: bool,
    values: Values,
}

enum Values {
    One(i64),
    Each(Vec<i64>),
}

impl Row<'_> {
    /// A number, 0 if there is none, or the bytes of a text or list.
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

/// The approximate size of the arguments, each as a column; more if they are a part of larger columns.
fn taken(args: &ScalarFunctionArgs) -> u128 {
    let of = |value: &ColumnarValue| match value {
        ColumnarValue::Array(array) => array.get_array_memory_size() as u128,
        ColumnarValue::Scalar(value) => (value.size() as u128).saturating_mul(args.number_rows as u128),
    };
    args.args.iter().map(of).fold(0, u128::saturating_add)
}

/// The property of an argument that bounds the function's result.
fn argument(value: &ColumnarValue) -> DfResult<Argument> {
    let is_number = value.data_type().is_integer();
    let values = match value {
        ColumnarValue::Scalar(value) => Values::One(match value.try_as_str() {
            // This does not copy the text.
            Some(text) => text.map_or(0, |text| text.len() as i64),
            None => lengths(&value.to_array()?)?.first().copied().unwrap_or(0),
        }),
        ColumnarValue::Array(array) => Values::Each(lengths(array)?),
    };
    Ok(Argument { is_number, values })
}

/// The fields of a template of `format`, and the sum of their widths.
fn of_template(template: Option<&ColumnarValue>) -> DfResult<[Argument; 2]> {
    let sizes = |template: Option<&str>| template.map_or((0, 0), format_sizes);
    let (fields, widths) = match template {
        Some(ColumnarValue::Array(array)) => {
            let texts = cast(array, &DataType::Utf8)?;
            let (fields, widths) = texts.as_string::<i32>().iter().map(sizes).unzip();
            (Values::Each(fields), Values::Each(widths))
        }
        Some(ColumnarValue::Scalar(value)) => {
            let (fields, widths) = sizes(value.try_as_str().flatten());
            (Values::One(fields), Values::One(widths))
        }
        None => (Values::One(0), Values::One(0)),
    };
    Ok([fields, widths].map(|values| Argument { is_number: true, values }))
}

/// The rule: it replaces functions by ones that request memory first.
#[derive(Debug)]
pub(crate) struct ValueSizeLimit {
    account: Arc<Account>,
}

impl ValueSizeLimit {
    /// The rule for a session with this account.
    pub(crate) fn new(account: &Arc<Account>) -> ValueSizeLimit {
        ValueSizeLimit { account: account.clone() }
    }
}

impl AnalyzerRule for ValueSizeLimit {
    fn name(&self) -> &str {
        "growth"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        let asks = |plan: LogicalPlan| {
            let mut schema = merge_schema(&plan.inputs());
            if let LogicalPlan::TableScan(scan) = &plan {
                schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
            }
            let is_column = matches!(plan, LogicalPlan::Projection(_) | LogicalPlan::Sort(_));
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = accounted(expr, &schema, &self.account)?;
                let expr = if is_column { expr.transform_data(|expr| shared(expr, &self.account))? } else { expr };
                Ok(expr.update_data(|expr| name.restore(expr)))
            })
        };
        Ok(plan.transform_up_with_subqueries(asks)?.data)
    }
}

/// The same expression, whose functions request memory first.
fn accounted(expr: Expr, schema: &DFSchema, account: &Arc<Account>) -> DfResult<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right })
            if are_texts(&left, &right, schema) =>
        {
            Ok(Transformed::yes(bounded(
                ScalarFunction { func: Arc::new(JOINED.udf()), args: vec![*left, *right] },
                account,
            )))
        }
        Expr::ScalarFunction(call) if !call.func.inner().is::<BoundedFunction>() && is_bounded(&call, schema) => {
            Ok(Transformed::yes(bounded(call, account)))
        }
        Expr::Case(mut case) => {
            let values = case.when_then_expr.iter_mut().map(|(_, value)| value).chain(case.else_expr.as_mut());
            let mut changed = false;
            for value in values {
                let given = std::mem::replace(value.as_mut(), lit(true));
                let asks = shared(given, account)?;
                changed |= asks.transformed;
                **value = asks.data;
            }
            Ok(if changed { Transformed::yes(Expr::Case(case)) } else { Transformed::no(Expr::Case(case)) })
        }
        Expr::AggregateFunction(mut call) => {
            let args = std::mem::take(&mut call.params.args);
            let asks = args.into_iter().map_until_stop_and_collect(|arg| shared(arg, account))?;
            call.params.args = asks.data;
            Ok(if asks.transformed {
                Transformed::yes(Expr::AggregateFunction(call))
            } else {
                Transformed::no(Expr::AggregateFunction(call))
            })
        }
        Expr::WindowFunction(mut call) => {
            // The other arguments are constants, which the function reads as such.
            let mut changed = false;
            if let Some(value) = call.params.args.first_mut() {
                let asks = shared(std::mem::replace(value, lit(true)), account)?;
                changed = asks.transformed;
                *value = asks.data;
            }
            Ok(match aggregates::over_window(&call, schema, account) {
                Some(call) => Transformed::yes(Expr::from(call)),
                None if changed => Transformed::yes(Expr::WindowFunction(call)),
                None => Transformed::no(Expr::WindowFunction(call)),
            })
        }
        other => Ok(Transformed::no(other)),
    })
}

fn bounded(ScalarFunction { func, args }: ScalarFunction, account: &Arc<Account>) -> Expr {
    let func = Arc::new(ScalarUDF::from(BoundedFunction { inner: func.inner().clone(), account: account.clone() }));
    Expr::ScalarFunction(ScalarFunction { func, args })
}

/// Whether a function requests memory: functions of texts, bytes and lists, and those that make many values from a
/// number.
fn is_bounded(call: &ScalarFunction, schema: &DFSchema) -> bool {
    let is_long = |arg: &Expr| match arg {
        Expr::Literal(value, _) => value.size() as u128 > CONSTANT_BYTES,
        arg => arg.get_type(schema).is_ok_and(|kind| is_long(&kind)),
    };
    let is_document = |arg: &Expr| arg.get_type(schema).is_ok_and(|kind| kind == JSONB);
    let name = call.func.name();
    bound(name).or(steps(name)).is_some()
        || writes_documents(name) && call.args.first().is_some_and(is_document)
        || call.args.iter().any(is_long)
}

/// Whether `left || right` joins texts of one type: no lists, and no parameter whose type is not known yet.
fn are_texts(left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
    match (left.get_type(schema), right.get_type(schema)) {
        (Ok(left), Ok(right)) => left == right && left.is_string(),
        _ => false,
    }
}

/// Puts [`LARGE`] around a value that all rows may share, and that would be copied for each of them.
fn shared(expr: Expr, account: &Arc<Account>) -> DfResult<Transformed<Expr>> {
    let is_large = match &expr {
        Expr::Literal(value, _) => value.size() as u128 > CONSTANT_BYTES,
        Expr::ScalarSubquery(_) => true,
        _ => false,
    };
    Ok(match is_large {
        true => Transformed::yes(bounded(ScalarFunction { func: Arc::new(GIVEN.udf()), args: vec![expr] }, account)),
        false => Transformed::no(expr),
    })
}

/// `left || right`.
const JOINED: PgFunction = PgFunction {
    name: "||",
    wants: |kinds| Ok(kinds.to_vec()),
    gives: |arguments| Ok(arguments[0].0.clone()),
    run: |arrays, _| Ok(concat_elements_dyn(&arrays[0], &arrays[1])?),
    between: Some(" || "),
};

/// The function behind [`LARGE`].
const GIVEN: PgFunction = PgFunction {
    name: LARGE,
    wants: |kinds| Ok(kinds.to_vec()),
    gives: |arguments| Ok(arguments[0].0.clone()),
    run: |arrays, _| Ok(arrays[0].clone()),
    between: Some(""),
};

/// A function that requests memory first; everything else is that of the function it replaces.
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
    /// Makes the values; fewer rows at a time if there is no room for all. Errors: 53200 if there is no room for one
    /// row.
    fn make(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let bytes = self.bytes(&args)?;
        let all = bytes.iter().copied().fold(0, u128::saturating_add);
        let is_shared = are_shared(&args);
        if is_shared && cancellable_rules::are_applied() && all > CONSTANT_BYTES {
            self.account.check_room(BUILDER * all)?;
            return Err(SqlError::unsupported("a large constant while a query is planned").into());
        }
        // A value that all rows share is copied for each of them when it becomes a column.
        let all = if is_shared { all.saturating_mul(args.number_rows as u128) } else { all };
        if all <= SMALL_BYTES {
            return self.inner.invoke_with_args(args);
        }
        if !is_shared && all > DOCUMENTS_MAX && writes_documents(self.inner.name()) && is_of_document(&args) {
            let error = SqlError::statement(OUT_OF_MEMORY, "out of memory");
            return Err(error.with_detail("Documents of one batch have more than 2 GiB of text.").into());
        }
        match self.account.reserve(all.saturating_mul(BUILDER)) {
            Ok(_room) => self.inner.invoke_with_args(args),
            Err(_) if !is_shared && args.number_rows > 1 => self.make_in_parts(&args, &bytes),
            Err(refused) => Err(refused.into()),
        }
    }

    /// The upper bound of each row's value in bytes, or of one value if all rows share it; empty if it is small.
    /// Errors: 54000 for too many steps.
    fn bytes(&self, args: &ScalarFunctionArgs) -> DfResult<Vec<u128>> {
        let name = self.inner.name();
        if writes_documents(name) && is_of_document(args) {
            return written(args, name == "jsonb_pretty");
        }
        let (bound, steps) = (bound(name), steps(name));
        if bound.or(steps).is_none() && taken(args) <= SMALL_BYTES {
            return Ok(Vec::new());
        }
        let mut arguments: Vec<Argument> = args.args.iter().map(argument).collect::<DfResult<_>>()?;
        if name == "format" {
            arguments.extend(of_template(args.args.first())?);
        }
        let each = arguments.iter().any(|argument| matches!(argument.values, Values::Each(_)));
        let rows = if each { args.number_rows } else { 1 };
        let row = |row| Row { arguments: &arguments, row };
        if steps.is_some_and(|steps| (0..rows).any(|at| steps(&row(at)) > STEPS_MAX)) {
            let message = format!("{name} of texts that long takes too many steps");
            return Err(SqlError::statement("54000", message).into());
        }
        let bound = bound.unwrap_or(|row| row.all_bytes());
        Ok((0..rows).map(|at| bound(&row(at))).collect())
    }

    fn make_in_parts(&self, args: &ScalarFunctionArgs, bytes: &[u128]) -> DfResult<ColumnarValue> {
        let (mut parts, mut made, mut start, mut rows) = (Vec::new(), 0, 0, bytes.len() / 2);
        while start < bytes.len() {
            rows = rows.min(bytes.len() - start);
            let part = bytes[start..start + rows].iter().copied().fold(0, u128::saturating_add);
            match self.account.reserve(part.saturating_mul(BUILDER)) {
                Ok(_room) => {
                    let part = self.inner.invoke_with_args(cut(args, start, rows))?.into_array(rows)?;
                    made += part.get_array_memory_size();
                    parts.push(part);
                    start += rows;
                }
                Err(refused) if rows < 2 => return Err(refused.into()),
                Err(_) => rows /= 2,
            }
        }
        let _room = self.account.reserve(made as u128)?;
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
        Ok(ColumnarValue::Array(concat(&parts)?))
    }
}

/// Some rows of arguments.
fn cut(args: &ScalarFunctionArgs, start: usize, rows: usize) -> ScalarFunctionArgs {
    let cut = |value: &ColumnarValue| match value {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(start, rows)),
        one => one.clone(),
    };
    ScalarFunctionArgs {
        args: args.args.iter().map(cut).collect(),
        arg_fields: args.arg_fields.clone(),
        number_rows: rows,
        return_field: args.return_field.clone(),
        config_options: args.config_options.clone(),
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
            ExprSimplifyResult::Simplified(expr) => {
                ExprSimplifyResult::Simplified(accounted(expr, &DFSchema::empty(), &self.account)?.data)
            }
            original => original,
        })
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, context: &SimplifyContext) -> DfResult<PreimageResult> {
        self.inner.preimage(args, literal, context)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> DfResult<bool> {
        self.inner.strictly_order_preserving(inputs)
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(args)
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
