//! From a statement to DataFusion's plan: the planner's context, the names it finds, and the column labels.

pub(crate) mod access;
pub(crate) mod catalog_cache;
pub(crate) mod column_labels;
pub(crate) mod compiled_checks;
pub(crate) mod expansion;
pub(crate) mod information_schema;
mod listed_columns;
mod listed_rows;
pub(crate) mod meanwhile;
mod object_views;
pub(crate) mod planner_context;
pub(crate) mod prepared;
pub(crate) mod rights_views;
pub(crate) mod sequence_functions;
pub(crate) mod sequence_rows;
pub(crate) mod session_catalog;
pub(crate) mod taken_values;
pub(crate) mod view_dependencies;
