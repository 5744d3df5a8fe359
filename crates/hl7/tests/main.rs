//! Every integration test of the crate, in one binary.

mod ack;
mod agreement;
mod corpus;
mod invariants;
mod mllp;
mod model;
