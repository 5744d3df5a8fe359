//! DataFusion's context of a session: our names, PostgreSQL's dialect, exact decimals, one memory limit for all
//! sessions.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::optimizer::analyzer::resolve_grouping_function::ResolveGroupingFunction;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::prelude::SessionContext;

use super::session_catalog::{SessionCatalog, StatementView};
use super::{prepared, sequence_functions};
use crate::column::session_config;
use crate::engine::limits::cancellable_rules;
use crate::engine::limits::memory_budget::Account;
use crate::engine::limits::value_size::ValueSizeLimit;
use crate::engine::parse::ast::DATABASE;
use crate::engine::semantics::after_coercion::AfterCoercion;
use crate::engine::semantics::cast_types::CastTypes;
use crate::engine::semantics::interval_planner::IntervalPlanner;
use crate::engine::semantics::like_patterns::ESCAPED;
use crate::engine::semantics::operators::Operators;
use crate::engine::semantics::own_types::OwnTypePlanner;
use crate::engine::semantics::{
    advisory_functions, avg_aggregate, byte_notations, datetime_functions, digest_functions, function_calls,
    generate_series, interval_functions, json_functions, jsonb_builders, jsonb_functions, list_statistics,
    moment_functions, notify_function, numeric_functions, pattern_functions, set_config_function, signed_windows,
    substrings, sum_aggregate, templates, text_functions, whole_quotients,
};
use crate::engine::{Canceller, Engine};
use crate::table::catalog::PUBLIC;

/// A batch has one row for this number of bytes of memory: 1024 rows at 64 MiB.
const BATCH_OF: usize = 64 << 10;

/// The largest batch, DataFusion's default, with which scans were measured; and the smallest: a smaller batch costs
/// more than its rows.
const BATCH_ROWS_MAX: usize = 8192;
const BATCH_ROWS_MIN: usize = 128;

/// With little memory a sort merges its batches as they are. If it made one of several, DataFusion 55.2 would count the
/// texts of that one for each batch that it then cuts it into.
const SORT_TOGETHER_BYTES: usize = 0;

/// A sort reserves this part of the memory for its merge, up to DataFusion's 10 MiB.
const MERGE_OF: usize = 64;

pub(crate) fn make(
    engine: &Engine,
    shared: &Arc<StatementView>,
    canceller: &Canceller,
    account: &Arc<Account>,
) -> SessionContext {
    let mut config = session_config(engine.options.threads)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(DATABASE, PUBLIC)
        .with_information_schema(false);
    let names = Arc::clone(shared);
    let asked = prepared::Asked { canceller: canceller.clone(), names: Arc::new(move || names.catalog()) };
    config = config.with_extension(Arc::new(asked));
    let bytes = engine.options.query_bytes;
    // With little memory a batch is a small part of it, and so is a merge's reservation.
    config = config.with_batch_size((bytes / BATCH_OF).clamp(BATCH_ROWS_MIN, BATCH_ROWS_MAX).next_power_of_two());
    let options = config.options_mut();
    options.execution.sort_spill_reservation_bytes = (bytes / MERGE_OF).clamp(1 << 16, 10 << 20);
    if options.execution.batch_size.get() < BATCH_ROWS_MAX {
        options.execution.sort_in_place_threshold_bytes = SORT_TOGETHER_BYTES;
    }
    // As in PostgreSQL, 0.1 is a numeric and not a float.
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.dialect = datafusion::config::Dialect::PostgreSQL;
    // Whether a column of a UNION may be NULL is told differently by the planner's parts, and changes nothing.
    options.execution.skip_physical_aggregate_schema_check = true;
    // The part that EXPLAIN shows; VERBOSE also shows how it was made.
    options.explain.physical_plan_only = true;
    options.execution.time_zone = Some("+00:00".into());
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(engine.runtime.clone())
        .with_expr_planners(vec![Arc::new(IntervalPlanner), Arc::new(OwnTypePlanner)])
        .with_default_features()
        .with_analyzer_rules(vec![
            Arc::new(ResolveGroupingFunction::new()),
            Arc::new(Operators),
            Arc::new(TypeCoercion::new()),
            Arc::new(AfterCoercion),
            Arc::new(ValueSizeLimit::new(account, canceller)),
        ])
        .with_type_planner(Arc::new(CastTypes))
        .build();
    let context = SessionContext::new_with_state(cancellable_rules::checked(state, canceller));
    context.register_catalog(DATABASE, Arc::new(SessionCatalog::new(shared.clone())));
    register_functions(&context);
    sequence_functions::register(&context, shared, &engine.sequences);
    // The context is new: nothing was set before.
    let _ = shared.state.set(context.state_weak_ref());
    context
}

/// Registers the functions that DataFusion lacks, or that PostgreSQL has with another meaning.
fn register_functions(context: &SessionContext) {
    context.register_udf(crate::hl7_function::function());
    let others = [
        &datetime_functions::TIMEZONE,
        &datetime_functions::EXTRACT,
        &datetime_functions::DATE_PART,
        &function_calls::CHR,
        &ESCAPED,
        &moment_functions::ROUNDED,
        &substrings::SUBSTRING,
    ];
    let tables = [
        numeric_functions::CALLED,
        byte_notations::CALLED,
        list_statistics::CALLED,
        &digest_functions::DIGESTS,
        interval_functions::CALLED,
        moment_functions::CALLED,
        pattern_functions::CALLED,
        templates::CALLED,
        text_functions::CALLED,
        whole_quotients::CALLED,
    ];
    for function in tables.into_iter().flatten().chain(others) {
        context.register_udf(function.udf());
    }
    advisory_functions::register(context);
    json_functions::register(context);
    set_config_function::register(context);
    notify_function::register(context);
    jsonb_functions::register(context);
    jsonb_builders::register(context);
    signed_windows::register(context);
    generate_series::register(context);
    context.register_udaf(sum_aggregate::function());
    context.register_udaf(avg_aggregate::function());
}
