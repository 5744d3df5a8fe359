//! Values between PostgreSQL's layouts and Arrow's arrays.
//!
//! ```text
//!   out   array, row  --write-->  text or binary             rows of results, COPY TO
//!   in    text or binary  --build::Column-->  array          parameters, COPY FROM
//! ```

pub(crate) mod build;
mod list;
mod write;

pub(crate) use build::Column;
pub(crate) use write::write;
