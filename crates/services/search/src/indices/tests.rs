//! Tests of the indices of a node.
