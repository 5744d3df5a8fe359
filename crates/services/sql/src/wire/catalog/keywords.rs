//! The table function `pg_get_keywords()`: the words of [`keywords`](crate::text::keywords), their kinds, and whether they may be a label
//! without AS.

use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{MemTable, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::error::Result;

use crate::text::keywords::{COLUMNS, FUNCTIONS, RESERVED, UNRESERVED, WITH_AS};

/// Kinds of keywords: `catcode`, `catdesc`, the words.
const KINDS: [(&str, &str, &str); 4] = [
    ("U", "unreserved", UNRESERVED),
    ("C", "unreserved (cannot be function or type name)", COLUMNS),
    ("T", "reserved (can be function or type name)", FUNCTIONS),
    ("R", "reserved", RESERVED),
];

/// The function `pg_get_keywords()`.
#[derive(Debug)]
pub(super) struct Keywords;

impl TableFunctionImpl for Keywords {
    fn call_with_args(&self, _: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let mut all: Vec<(&str, &str, &str)> = Vec::new();
        for (code, kind, words) in KINDS {
            all.extend(words.split(' ').map(|word| (word, code, kind)));
        }
        all.sort_unstable();
        let is_bare = |word: &str| !WITH_AS.split(' ').any(|other| other == word);
        let bare: Vec<bool> = all.iter().map(|(word, ..)| is_bare(word)).collect();
        let found = bare.iter().map(|is_bare| if *is_bare { "can be bare label" } else { "requires AS" });
        let texts = |texts: Vec<&str>| Arc::new(StringArray::from(texts));
        let field = |name: &str| Field::new(name, DataType::Utf8, true);
        let schema = Arc::new(Schema::new(vec![
            field("word"),
            field("catcode"),
            Field::new("barelabel", DataType::Boolean, true),
            field("catdesc"),
            field("baredesc"),
        ]));
        let columns: Vec<Arc<dyn datafusion::arrow::array::Array>> = vec![
            texts(all.iter().map(|(word, ..)| *word).collect()),
            texts(all.iter().map(|(_, code, _)| *code).collect()),
            Arc::new(BooleanArray::from(bare.clone())),
            texts(all.iter().map(|(.., kind)| *kind).collect()),
            texts(found.collect()),
        ];
        let batch = RecordBatch::try_new(schema.clone(), columns)?;
        Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
    }
}
