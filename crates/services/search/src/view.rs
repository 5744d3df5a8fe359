//! [`IndexView`]: an index at one moment, as queries and aggregations see it.

use std::sync::Arc;

use tantivy::Searcher;
use tantivy::schema::{Field, Schema};

use crate::analysis::{Analyzer, Analyzers};
use crate::error::SearchError;
use crate::mapping::{MappedField, Mapping};
use crate::schema::OwnFields;
use crate::zones::ZonedColumns;

/// The most values of a `terms` query where an index says nothing, and of `ids` (Elasticsearch's `index.max_terms_count`).
pub const TERMS_MAX: usize = 65_536;

/// The longest regular expression where an index says nothing, in characters (Elasticsearch's `index.max_regex_length`).
pub const REGEX_CHARS_MAX: usize = 1000;

/// What the settings of an index allow of its queries.
#[derive(Clone, Copy, Debug)]
pub struct QueryBounds {
    /// Values of a `terms` query.
    pub terms: usize,
    /// Characters of a regular expression.
    pub regex_chars: usize,
}

impl Default for QueryBounds {
    fn default() -> QueryBounds {
        QueryBounds { terms: TERMS_MAX, regex_chars: REGEX_CHARS_MAX }
    }
}

/// An index at one moment.
#[derive(Clone)]
pub struct IndexView {
    /// The index's name.
    pub name: String,
    /// Its fields.
    pub mapping: Arc<Mapping>,
    /// Its analyzers.
    pub analyzers: Arc<Analyzers>,
    /// What it can find.
    pub searcher: Searcher,
    /// The schema of `searcher`.
    pub schema: Schema,
    /// The fields that every index has.
    pub own: OwnFields,
    /// What its settings allow of queries.
    pub bounds: QueryBounds,
    /// What is known of the columns of its segments.
    pub(crate) zones: Arc<ZonedColumns>,
}

impl IndexView {
    /// The library's field of a mapped field; none until the first document with it is searchable.
    pub fn column(&self, field: &MappedField) -> Option<Field> {
        self.schema.get_field(&field.column).ok()
    }

    /// The analyzer of a text's queries. Errors: the mapping names one that is not there.
    pub fn search_analyzer(&self, field: &MappedField) -> Result<&Analyzer, SearchError> {
        let name = field.search_analyzer.as_deref().or(field.analyzer.as_deref()).unwrap_or("default");
        self.analyzers.get(name)
    }
}

impl std::fmt::Debug for IndexView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexView").field("name", &self.name).finish_non_exhaustive()
    }
}
