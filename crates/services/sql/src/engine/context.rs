//! DataFusion's context of a session: our names, PostgreSQL's dialect, exact decimals, one memory limit for all.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::optimizer::analyzer::resolve_grouping_function::ResolveGroupingFunction;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::prelude::SessionContext;

use super::budget::Account;
use super::growth::Growth;
use super::kinds::Kinds;
use super::meaning::Meaning;
use super::names::{DATABASE, Names, Shared};
use super::operators::Operators;
use super::patterns::likes::ESCAPED;
use super::{Canceller, Engine, averages, calls, digests, moments, numbers, rules, series, sums};
use crate::column::session_config;
use crate::table::catalog::PUBLIC;

/// A batch has a row for so many bytes of memory: 1024 at 64 MiB.
const BATCH_OF: usize = 64 << 10;

/// DataFusion's batches, which scans are measured with, and those below which each costs more than its rows.
const BATCH_ROWS_MAX: usize = 8192;
const BATCH_ROWS_MIN: usize = 128;

/// Of little memory a sort merges its batches as they are: where it makes one of several, DataFusion 55.2 counts the texts of that for each
/// batch it then cuts it into.
const SORT_TOGETHER_BYTES: usize = 0;

/// A sort sets aside this part of the memory for its merge, up to DataFusion's 10 MiB.
const MERGE_OF: usize = 64;

pub(crate) fn make(
    engine: &Engine,
    shared: &Arc<Shared>,
    canceller: &Canceller,
    account: &Arc<Account>,
) -> SessionContext {
    let mut config = session_config(engine.options.threads)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(DATABASE, PUBLIC)
        .with_information_schema(true);
    let bytes = engine.options.query_bytes;
    // Of little memory a batch is a small part, and so is what a merge sets aside.
    config = config.with_batch_size((bytes / BATCH_OF).clamp(BATCH_ROWS_MIN, BATCH_ROWS_MAX).next_power_of_two());
    let options = config.options_mut();
    options.execution.sort_spill_reservation_bytes = (bytes / MERGE_OF).clamp(1 << 16, 10 << 20);
    if options.execution.batch_size.get() < BATCH_ROWS_MAX {
        options.execution.sort_in_place_threshold_bytes = SORT_TOGETHER_BYTES;
    }
    // As in PostgreSQL, 0.1 is a numeric and not a float.
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.dialect = datafusion::config::Dialect::PostgreSQL;
    // What EXPLAIN shows; VERBOSE shows how it came about.
    options.explain.physical_plan_only = true;
    options.execution.time_zone = Some("+00:00".into());
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(engine.runtime.clone())
        .with_default_features()
        .with_analyzer_rules(vec![
            Arc::new(ResolveGroupingFunction::new()),
            Arc::new(Operators),
            Arc::new(TypeCoercion::new()),
            Arc::new(Meaning),
            Arc::new(Growth::new(account)),
        ])
        .with_type_planner(Arc::new(Kinds))
        .build();
    let context = SessionContext::new_with_state(rules::checked(state, canceller));
    context.register_catalog(DATABASE, Arc::new(Names::new(shared.clone())));
    context.register_udf(crate::hl7::function());
    let others = [&moments::TIMEZONE, &moments::EXTRACT, &moments::DATE_PART, &calls::CHR, &ESCAPED];
    for function in numbers::CALLED.iter().chain(&digests::DIGESTS).chain(others) {
        context.register_udf(function.udf());
    }
    series::register(&context);
    context.register_udaf(sums::function());
    context.register_udaf(averages::function());
    // The context is new: nothing was set before.
    let _ = shared.state.set(context.state_weak_ref());
    context
}
