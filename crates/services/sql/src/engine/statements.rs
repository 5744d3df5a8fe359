//! The statements, each of which runs in a session: changes of rows, changes of tables, roles and rights, COPY,
//! EXPLAIN.

pub(crate) mod advisory_calls;
pub(crate) mod alter_table;
pub(crate) mod bulk_load;
pub(crate) mod changed_table;
pub(crate) mod check_constraints;
pub(crate) mod column_defaults;
pub(crate) mod column_definitions;
pub(crate) mod copy;
pub(crate) mod create_drop;
pub(crate) mod create_external_table;
pub(crate) mod create_view;
mod cursor_statements;
mod execute;
pub(crate) mod explain;
pub(crate) mod indexes;
pub(crate) mod insert;
pub(crate) mod literal_values;
pub(crate) mod new_object;
pub(crate) mod point_query;
mod prepare;
pub(crate) mod read_columns;
mod repeats;
pub(crate) mod rights;
pub(crate) mod row_changes;
mod row_entries;
mod select_for_update;
pub(crate) mod sequences;
pub(crate) mod session_statements;
pub(crate) mod table_rewrite;
pub(crate) mod update_delete;
pub(crate) mod upsert;
