//! Tests of the engine from outside, through the same calls that the wire uses.

/// The allocator of the binary, so the memory of statements is counted.
#[global_allocator]
static ALLOCATOR: device::CountedHeap = device::CountedHeap;

mod cancelling;
mod changes;
mod constraints;
mod crash;
mod cursors;
mod encrypted;
mod external;
mod foreign_keys;
mod histories;
mod index_crashes;
mod index_histories;
mod indexes;
mod large_tables;
mod locks;
mod maintenance;
mod memory;
mod numbers;
mod prepared_statements;
mod queries;
mod rights;
mod sequences;
mod sessions;
mod sql_reference;
mod support;
mod table_locks;
mod texts;
mod two_stores;
mod types;
mod upserts;
mod views;
mod waiting;
