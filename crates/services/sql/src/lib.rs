//! SQL over PostgreSQL's wire protocol.
#![forbid(unsafe_code)]
