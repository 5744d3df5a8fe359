//! [`Comments`]: what COMMENT ON says about an object, its columns and its indexes.
//!
//! They are rows of the tree `sql.catalog`, one of each object that has some: `c / schema / 00 / name`, without a name for a schema, and
//! without both for the database. A row is removed with its object, renamed with it, and loses what is about columns and indexes that
//! are gone when the table's definition is stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use store::{StoreError, Transaction, TreeId};

use super::definition::Table;
use crate::SqlError;

/// Most bytes of a comment.
const TEXT_MOST: usize = 8 << 10;

/// Most bytes of all comments of an object with its columns and indexes: every session has all of them in memory.
const OBJECT_MOST: usize = 1 << 20;

/// What is said about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comments {
    /// About itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// About the columns of a table, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, String>,
    /// About the columns of a view, which keep their positions, by these from 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub positions: BTreeMap<u32, String>,
    /// About the indexes of a table, also that of its primary key, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub indexes: BTreeMap<String, String>,
}

/// The comments of all objects, by schema and name; a schema has no name, and the database neither.
pub type AllComments = BTreeMap<(String, String), Comments>;

/// What of an object a comment is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommentPart {
    /// All of it.
    Whole,
    /// A column of a table.
    Column(String),
    /// The column of a view at this position, from 1.
    Position(u32),
    /// An index of a table.
    Index(String),
}

impl Comments {
    /// Says something about a part, or nothing any more. Errors: 54000.
    pub(crate) fn set(&mut self, part: CommentPart, text: Option<String>) -> Result<(), SqlError> {
        if text.as_ref().is_some_and(|text| text.len() > TEXT_MOST) {
            return Err(SqlError::statement("54000", format!("a comment has at most {TEXT_MOST} bytes")));
        }
        match part {
            CommentPart::Whole => self.whole = text,
            CommentPart::Column(name) => put(&mut self.columns, name, text),
            CommentPart::Position(position) => put(&mut self.positions, position, text),
            CommentPart::Index(name) => put(&mut self.indexes, name, text),
        }
        Ok(())
    }

    /// A column of a table has another name.
    pub(crate) fn rename_column(&mut self, from: &str, to: &str) {
        let text = self.columns.remove(from);
        put(&mut self.columns, to.to_owned(), text);
    }

    /// An index of a table has another name.
    pub(crate) fn rename_index(&mut self, from: &str, to: &str) {
        let text = self.indexes.remove(from);
        put(&mut self.indexes, to.to_owned(), text);
    }

    /// Forgets what is about columns and indexes that a table does not have.
    pub(super) fn keep_those_of(&mut self, table: &Table) {
        self.columns.retain(|column, _| table.position(column).is_some());
        let is_index = |name: &str| table.indexes.iter().any(|index| index.name == name);
        self.indexes.retain(|name, _| *name == table.key_name || is_index(name));
    }
}

/// The error of a catalog that cannot be read.
pub(super) fn damaged(why: impl std::fmt::Display) -> SqlError {
    StoreError::Corrupt(format!("the catalog of tables cannot be read: {why}").into()).into()
}

fn put<K: Ord>(texts: &mut BTreeMap<K, String>, key: K, text: Option<String>) {
    match text {
        Some(text) => drop(texts.insert(key, text)),
        None => drop(texts.remove(&key)),
    }
}

fn key(schema: &str, name: &str) -> Vec<u8> {
    format!("c{schema}\0{name}").into_bytes()
}

/// Schema and name of an object, and what is said about it.
type ObjectComments = ((String, String), Comments);

/// Reads a row of the tree; `None` if it is none of comments.
pub(super) fn read(key: &[u8], value: &[u8]) -> Result<Option<ObjectComments>, SqlError> {
    let Some(rest) = key.strip_prefix(b"c") else { return Ok(None) };
    let text = std::str::from_utf8(rest).map_err(damaged)?;
    let (schema, name) = text.split_once('\0').ok_or_else(|| damaged("comments without an object"))?;
    Ok(Some(((schema.into(), name.into()), serde_json::from_slice(value).map_err(damaged)?)))
}

/// Changes what is said about an object. Errors: those of `change`; 54000.
pub(crate) fn change(
    transaction: &mut Transaction,
    tree: TreeId,
    (schema, name): (&str, &str),
    change: impl FnOnce(&mut Comments) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    let key = key(schema, name);
    let stored = transaction.get(tree, &key)?;
    let before: Comments = match &stored {
        Some(value) => serde_json::from_slice(value).map_err(damaged)?,
        None => Comments::default(),
    };
    let mut after = before.clone();
    change(&mut after)?;
    if after == before {
        return Ok(());
    }
    if after == Comments::default() {
        return Ok(transaction.delete(tree, &key)?);
    }
    let value = serde_json::to_vec(&after).map_err(damaged)?;
    if value.len() > OBJECT_MOST {
        let message =
            format!("the comments of an object with its columns and indexes have at most {OBJECT_MOST} bytes");
        return Err(SqlError::statement("54000", message));
    }
    Ok(transaction.put(tree, &key, &value)?)
}

/// An object has another name: so have its comments.
pub(crate) fn rename(
    transaction: &mut Transaction,
    tree: TreeId,
    schema: &str,
    (from, to): (&str, &str),
) -> Result<(), SqlError> {
    match transaction.get(tree, &key(schema, from))? {
        Some(value) => {
            transaction.put(tree, &key(schema, to), &value)?;
            remove(transaction, tree, schema, from)
        }
        None => Ok(()),
    }
}

/// An object is dropped, and its comments with it.
pub(super) fn remove(transaction: &mut Transaction, tree: TreeId, schema: &str, name: &str) -> Result<(), SqlError> {
    Ok(transaction.delete(tree, &key(schema, name))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_stored_as_in_the_golden_text_and_bounded() {
        let mut comments = Comments::default();
        for (part, text) in [
            (CommentPart::Whole, "of t"),
            (CommentPart::Column("a".into()), "of a"),
            (CommentPart::Position(2), "of b"),
            (CommentPart::Index("t_pkey".into()), "of the key"),
        ] {
            comments.set(part, Some(text.to_owned())).expect("it is short");
        }
        let golden =
            r#"{"whole":"of t","columns":{"a":"of a"},"positions":{"2":"of b"},"indexes":{"t_pkey":"of the key"}}"#;
        assert_eq!(serde_json::to_string(&comments).expect("it is JSON"), golden);
        let read = read(b"cpublic\0t", golden.as_bytes()).expect("it is read");
        assert_eq!(read, Some((("public".to_owned(), "t".to_owned()), comments.clone())));
        comments.set(CommentPart::Whole, Some("x".repeat(TEXT_MOST + 1))).expect_err("it is long");
        comments.rename_column("a", "b");
        comments.rename_column("none", "c");
        assert_eq!(comments.columns, BTreeMap::from([("b".to_owned(), "of a".to_owned())]));
        comments.set(CommentPart::Column("b".into()), None).expect("it is short");
        assert!(comments.columns.is_empty());
    }
}
