//! The engine from outside, through the same calls that the wire makes.

/// As in the binary, so that what statements take is counted.
#[global_allocator]
static ALLOCATOR: device::CountedHeap = device::CountedHeap;

mod cancelling;
mod changes;
mod crash;
mod external;
mod forms;
mod histories;
mod memory;
mod numbers;
mod page;
mod queries;
mod sessions;
mod stored;
mod support;
mod texts;
mod upserts;
mod views;
