//! Search: documents with mappings, versions and sequence numbers in the node's store, and an index over them.
//!
//! ```text
//!   mapping, analysis, dates   what the fields of an index are, and how texts and dates are read
//!   document, schema           from a source to what the index holds of it
//!   scalars                    single values as their types read them
//!   packed_terms               analyzed texts on their way to the library
//!   index                      documents in the store, the writer, refreshes, persisted states, recovery
//!   indices                    all of a node: names, aliases, templates, settings, upkeep
//!   directory                  the library's files on devices of a shelf
//!   hash, shards               how Elasticsearch spreads documents
//!   source                     which parts of a source a response shows
//!   memory, stop               memory of what a search finds, and when it has to end before it is done
//!   strict                     JSON whose objects have each key once, and that takes only so much memory
//!   view, zones                an index at one moment, and the bounds of its columns
//!   aggregation                from the aggregations of a search to the library's, and back to a response
//!   hits                       searches: the best hits, their documents, aggregations
//!   query                      from the query language to a query of the library
//!   rest, rights, recording    the requests of the Elasticsearch API, who may send them, and their entries in the audit
//! ```
//!
//! This is the only crate that knows the index library. The truth is in the store: an index is made of the documents, and made
//! again from them if its files are lost or damaged ([`index`]).
#![forbid(unsafe_code)]

pub mod aggregation;
pub mod analysis;
pub mod dates;
pub mod directory;
pub mod document;
pub mod error;
mod hash;
pub mod hits;
pub mod index;
pub mod indices;
pub mod mapping;
pub mod memory;
mod packed_terms;
pub mod query;
mod recording;
pub mod rest;
pub mod rights;
mod scalars;
pub mod schema;
pub mod shards;
pub mod source;
pub mod stop;
mod strict;
pub mod view;
mod waiting;
mod zones;

pub use error::SearchError;
