//! Every integration test of the crate, in one binary.

mod agreement;
mod corpus;
mod mllp;
mod model;
