//! Tests of searches.
