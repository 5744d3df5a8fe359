//! Runs a plan: on threads of its own, cancelled between two batches, for a reader on another thread.

pub(crate) mod cancellable_stream;
pub(crate) mod checked_plan;
pub(crate) mod owned_batches;
mod query_limits;
pub(crate) mod query_task;
pub(crate) mod query_threads;
mod sorted_joins;
