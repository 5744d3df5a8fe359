//! Every integration test of the crate, in one binary.

mod ack;
mod agreement;
mod batch;
mod corpus;
mod draft;
mod escape;
mod invariants;
mod mask;
mod message;
mod mllp;
mod model;
mod path;
mod protocol;
mod reading;
