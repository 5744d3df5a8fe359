//! Search: the Elasticsearch API over documents that lie in the node's store.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod dates;
pub mod directory;
pub mod document;
pub mod error;
pub mod index;
pub mod mapping;
pub mod schema;
pub mod view;

pub use error::SearchError;
