//! [`ValueSizeLimit`]: functions whose values may be much larger than their arguments request memory before they make
//! them.
//!
//! ```text
//!   plan --types, semantics--> ValueSizeLimit --optimizer--> plan that runs
//! ```
//!
//! Each of these functions has an upper bound of its result's size, which is cheap to compute from its arguments. If
//! there is no room for the bound, the function processes fewer rows at a time, down to one. If there is no room for
//! one row's value, the statement ends with 53200. Rows that take many steps are processed a few at a time, too: between
//! them the statement may be asked to end. The optimizer's rules evaluate constants: they leave large values to the
//! query, which makes them once for a batch.
//!
//! A document of a few kilobytes may have megabytes of text (`1e999`) and of parts: how many follows from its bytes, which are read for that.
//!
//! All other functions make no more than their arguments take, once a value that all rows share was copied for each of
//! them. The session's account bounds small excesses, between two batches. Where no function would request memory,
//! [`LARGE`] is put around a value that all rows may share: branches of CASE, columns, arguments of aggregates.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::Array;
use datafusion::arrow::compute::concat;
use datafusion::arrow::compute::kernels::concat_elements::concat_elements_dyn;
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
use super::cancellation::Canceller;
use super::memory_budget::{Account, OUT_OF_MEMORY};
use super::value_bounds::{self, CallSize, DOCUMENTS_MAX, LARGE, SMALL_BYTES};
use super::value_lengths::is_long;
use super::window_values::aggregates;
use crate::SqlError;
use crate::engine::semantics::pg_function::PgFunction;
use crate::table::types::JSONB;

/// A larger constant is not made while a query is planned: it would be copied for each row of a batch.
const CONSTANT_BYTES: u128 = 64 << 10;

/// A builder that is full allocates twice its size, and copies.
const BUILDER: u128 = 2;

/// What calls of a session's statements look at.
#[derive(Clone, Debug)]
struct CallLimits {
    account: Arc<Account>,
    canceller: Canceller,
}

/// The rule: it replaces functions by ones that request memory first.
#[derive(Debug)]
pub(crate) struct ValueSizeLimit {
    limits: CallLimits,
}

impl ValueSizeLimit {
    /// The rule for a session with this account, whose statements are ended by this canceller.
    pub(crate) fn new(account: &Arc<Account>, canceller: &Canceller) -> ValueSizeLimit {
        ValueSizeLimit { limits: CallLimits { account: account.clone(), canceller: canceller.clone() } }
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
                let expr = accounted(expr, &schema, &self.limits)?;
                let expr = if is_column { expr.transform_data(|expr| shared(expr, &self.limits))? } else { expr };
                Ok(expr.update_data(|expr| name.restore(expr)))
            })
        };
        Ok(plan.transform_up_with_subqueries(asks)?.data)
    }
}

/// The same expression, whose functions request memory first.
fn accounted(expr: Expr, schema: &DFSchema, limits: &CallLimits) -> DfResult<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right })
            if are_texts(&left, &right, schema) =>
        {
            Ok(Transformed::yes(bounded(
                ScalarFunction { func: Arc::new(JOINED.udf()), args: vec![*left, *right] },
                limits,
            )))
        }
        Expr::ScalarFunction(call) if !call.func.inner().is::<BoundedFunction>() && is_bounded(&call, schema) => {
            Ok(Transformed::yes(bounded(call, limits)))
        }
        Expr::Case(mut case) => {
            let values = case.when_then_expr.iter_mut().map(|(_, value)| value).chain(case.else_expr.as_mut());
            let mut changed = false;
            for value in values {
                let given = std::mem::replace(value.as_mut(), lit(true));
                let asks = shared(given, limits)?;
                changed |= asks.transformed;
                **value = asks.data;
            }
            Ok(if changed { Transformed::yes(Expr::Case(case)) } else { Transformed::no(Expr::Case(case)) })
        }
        Expr::AggregateFunction(mut call) => {
            let args = std::mem::take(&mut call.params.args);
            let asks = args.into_iter().map_until_stop_and_collect(|arg| shared(arg, limits))?;
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
                let asks = shared(std::mem::replace(value, lit(true)), limits)?;
                changed = asks.transformed;
                *value = asks.data;
            }
            Ok(match aggregates::over_window(&call, schema, &limits.account) {
                Some(call) => Transformed::yes(Expr::from(call)),
                None if changed => Transformed::yes(Expr::WindowFunction(call)),
                None => Transformed::no(Expr::WindowFunction(call)),
            })
        }
        other => Ok(Transformed::no(other)),
    })
}

fn bounded(ScalarFunction { func, args }: ScalarFunction, limits: &CallLimits) -> Expr {
    let func = Arc::new(ScalarUDF::from(BoundedFunction { inner: func.inner().clone(), limits: limits.clone() }));
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
    value_bounds::is_bounded(name)
        || value_bounds::writes_documents(name) && call.args.first().is_some_and(is_document)
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
fn shared(expr: Expr, limits: &CallLimits) -> DfResult<Transformed<Expr>> {
    let is_large = match &expr {
        Expr::Literal(value, _) => value.size() as u128 > CONSTANT_BYTES,
        Expr::ScalarSubquery(_) => true,
        _ => false,
    };
    Ok(match is_large {
        true => Transformed::yes(bounded(ScalarFunction { func: Arc::new(GIVEN.udf()), args: vec![expr] }, limits)),
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
    limits: CallLimits,
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
    /// Makes the values; fewer rows at a time if there is no room for all, or if they take many steps. Errors: 53200 if there is no room
    /// for one row; why the statement must end.
    fn make(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let name = self.inner.name();
        let size = CallSize::of(name, &args)?;
        let all = size.bytes_of(0, args.number_rows.max(1));
        let is_shared = value_bounds::are_shared(&args);
        if is_shared && cancellable_rules::are_applied() && all > CONSTANT_BYTES {
            self.limits.account.check_room(all.saturating_mul(BUILDER))?;
            return Err(SqlError::unsupported("a large constant while a query is planned").into());
        }
        // A value that all rows share is copied for each of them when it becomes a column.
        let all = if is_shared { all.saturating_mul(args.number_rows as u128) } else { all };
        let is_long = !is_shared && size.rows_within_steps(0, args.number_rows) < args.number_rows;
        if !is_long && all.saturating_add(size.scratch) <= SMALL_BYTES {
            return self.inner.invoke_with_args(args);
        }
        let is_text = value_bounds::writes_documents(name) && value_bounds::is_of_document(&args);
        if !is_shared && all > DOCUMENTS_MAX && is_text {
            let error = SqlError::statement(OUT_OF_MEMORY, "out of memory");
            return Err(error.with_detail("Documents of one batch have more than 2 GiB of text.").into());
        }
        if is_long {
            return self.make_in_parts(&args, &size);
        }
        match self.limits.account.reserve(all.saturating_mul(BUILDER).saturating_add(size.scratch)) {
            Ok(_room) => self.inner.invoke_with_args(args),
            Err(_) if !is_shared && args.number_rows > 1 => self.make_in_parts(&args, &size),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Makes the values of some rows after those of others; between them the statement may be asked to end.
    fn make_in_parts(&self, args: &ScalarFunctionArgs, size: &CallSize) -> DfResult<ColumnarValue> {
        let (mut parts, mut made, mut start, mut most) = (Vec::new(), 0, 0, args.number_rows);
        while start < args.number_rows {
            self.limits.canceller.current().check()?;
            let rows = size.rows_within_steps(start, most.min(args.number_rows - start));
            let bytes = size.bytes_of(start, rows).saturating_mul(BUILDER).saturating_add(size.scratch);
            match self.limits.account.reserve(bytes) {
                Ok(_room) => {
                    let part = self.inner.invoke_with_args(cut(args, start, rows))?.into_array(rows)?;
                    made += part.get_array_memory_size();
                    parts.push(part);
                    start += rows;
                }
                Err(refused) if rows < 2 => return Err(refused.into()),
                Err(_) => most = rows / 2,
            }
        }
        let _room = self.limits.account.reserve(made as u128)?;
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
        Some(ScalarUDF::from(BoundedFunction { inner, limits: self.limits.clone() }))
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
                ExprSimplifyResult::Simplified(accounted(expr, &DFSchema::empty(), &self.limits)?.data)
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
