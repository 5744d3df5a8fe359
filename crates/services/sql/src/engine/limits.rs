//! The requests and limits that end a statement: cancel requests and time, memory, temporary files.

pub(crate) mod cancellable_rules;
pub(crate) mod cancellation;
pub(crate) mod memory_budget;
pub(crate) mod memory_pool;
pub(crate) mod sealed_spill;
pub(crate) mod spill_options;
mod value_bounds;
mod value_lengths;
pub(crate) mod value_size;
pub(crate) mod window_values;
