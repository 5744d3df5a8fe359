//! PostgreSQL's meaning of expressions where DataFusion's differs: functions, casts, operators, types.
//!
//! ```text
//!   plan --operators--> types made equal (DataFusion's) --after_coercion--> optimizer
//! ```
//!
//! Everything here works on expressions and arrays: no session, no store.

pub(crate) mod advisory_functions;
pub(crate) mod after_coercion;
pub(crate) mod assignment_casts;
pub(crate) mod avg_aggregate;
pub(crate) mod byte_notations;
pub(crate) mod cast_types;
pub(crate) mod checked_arithmetic;
mod correlated_subqueries;
pub(crate) mod datetime_functions;
pub(crate) mod digest_functions;
pub(crate) mod function_calls;
pub(crate) mod generate_series;
pub(crate) mod interval_aggregates;
mod interval_comparisons;
pub(crate) mod interval_functions;
pub(crate) mod interval_planner;
mod json_comparisons;
pub(crate) mod json_functions;
pub(crate) mod jsonb_builders;
pub(crate) mod jsonb_functions;
pub(crate) mod like_patterns;
pub(crate) mod list_statistics;
pub(crate) mod moment_functions;
pub(crate) mod notify_function;
pub(crate) mod numeric_division;
pub(crate) mod numeric_functions;
mod numeric_literals;
pub(crate) mod operators;
pub(crate) mod own_types;
pub(crate) mod pattern_functions;
pub(crate) mod pg_function;
pub(crate) mod regular_expressions;
mod rows;
pub(crate) mod set_config_function;
pub(crate) mod signed_windows;
pub(crate) mod substrings;
pub(crate) mod sum_aggregate;
pub(crate) mod templates;
pub(crate) mod text_casts;
pub(crate) mod text_functions;
pub(crate) mod type_inference;
pub(crate) mod whole_quotients;
