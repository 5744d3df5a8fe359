//! [`IndexView`]: an index at one moment, as queries and aggregations see it.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
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
    /// Whether a query looks up as many terms as its `max_expansions` says. Not in an index of which some see a part only: the terms that
    /// are looked up are then no hint of those that others have.
    pub expansions: bool,
}

impl Default for QueryBounds {
    fn default() -> QueryBounds {
        QueryBounds { terms: TERMS_MAX, regex_chars: REGEX_CHARS_MAX, expansions: true }
    }
}

/// Most columns whose terms are opened before a search asks for them.
const USED_MAX: usize = 256;

/// The columns of an index whose terms its queries read: those of new segments are opened before searches see the segments.
#[derive(Debug, Default)]
pub struct UsedTerms {
    columns: Mutex<BTreeSet<String>>,
}

impl UsedTerms {
    /// A query reads the terms of a column.
    pub fn note(&self, column: &str) {
        let mut columns = self.columns.lock();
        if columns.len() < USED_MAX && !columns.contains(column) {
            columns.insert(column.to_owned());
        }
    }

    /// Opens the terms of these columns in all segments. What cannot be read fails the search that reads it.
    pub(crate) fn open(&self, searcher: &Searcher) {
        let columns = self.columns.lock().clone();
        let schema = searcher.schema();
        let fields = columns.iter().filter_map(|column| schema.get_field(column).ok());
        for field in fields.filter(|field| schema.get_field_entry(*field).is_indexed()) {
            searcher.segment_readers().iter().for_each(|reader| drop(reader.inverted_index(field)));
        }
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
    /// The columns whose terms its queries read.
    pub used: Arc<UsedTerms>,
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
