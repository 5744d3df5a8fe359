//! Every integration test of the crate, in one binary.

mod corpus;
mod mllp;
