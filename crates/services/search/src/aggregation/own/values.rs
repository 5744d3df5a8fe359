//! [`Values`]: the values of a field in one segment.

use std::net::Ipv6Addr;

use tantivy::columnar::{Column, StrColumn};
use tantivy::{DateTime, DocId, SegmentReader};

use crate::aggregation::key_value::KeyValue;
use crate::error::SearchError;
use crate::mapping::FieldKind;
use crate::view::IndexView;

/// The values of a field in a segment.
pub(super) enum Values {
    /// No document has one.
    None,
    Flags(Column<bool>),
    Wholes(Column<i64>),
    Unsigned(Column<u64>),
    Reals(Column<f64>),
    Dates(Column<DateTime>),
    Addresses(Column<Ipv6Addr>),
    Texts(StrColumn),
}

impl Values {
    /// Those of a field of an index in one of its segments. Errors: the column cannot be read.
    pub(super) fn of(view: &IndexView, reader: &SegmentReader, path: &str) -> Result<Values, SearchError> {
        let Some(field) = view.mapping.field(path).filter(|field| view.column(field).is_some()) else {
            return Ok(Values::None);
        };
        let (fast, name) = (reader.fast_fields(), field.column.as_str());
        Ok(match field.kind {
            FieldKind::Boolean => fast.column_opt(name)?.map_or(Values::None, Values::Flags),
            FieldKind::Integer(_) => fast.column_opt(name)?.map_or(Values::None, Values::Wholes),
            FieldKind::UnsignedLong => fast.column_opt(name)?.map_or(Values::None, Values::Unsigned),
            FieldKind::Real(_) => fast.column_opt(name)?.map_or(Values::None, Values::Reals),
            FieldKind::Date => fast.column_opt(name)?.map_or(Values::None, Values::Dates),
            FieldKind::Ip => fast.column_opt(name)?.map_or(Values::None, Values::Addresses),
            FieldKind::Keyword => fast.str(name)?.map_or(Values::None, Values::Texts),
            FieldKind::Text | FieldKind::Opaque => Values::None,
        })
    }

    /// The numbers of a document; none for texts and addresses.
    pub(super) fn numbers(&self, doc: DocId, found: &mut Vec<f64>) {
        found.clear();
        match self {
            Values::Flags(column) => found.extend(column.values_for_doc(doc).map(|flag| f64::from(u8::from(flag)))),
            Values::Wholes(column) => found.extend(column.values_for_doc(doc).map(|whole| whole as f64)),
            Values::Unsigned(column) => found.extend(column.values_for_doc(doc).map(|whole| whole as f64)),
            Values::Reals(column) => found.extend(column.values_for_doc(doc)),
            Values::Dates(column) => {
                found.extend(column.values_for_doc(doc).map(|date| date.into_timestamp_millis() as f64));
            }
            Values::None | Values::Addresses(_) | Values::Texts(_) => {}
        }
    }

    /// The distinct values of a document, in order. Errors: the terms cannot be read.
    pub(super) fn keys(&self, doc: DocId) -> Result<Vec<KeyValue>, SearchError> {
        let mut keys: Vec<KeyValue> = match self {
            Values::None => Vec::new(),
            Values::Flags(column) => column.values_for_doc(doc).map(KeyValue::Flag).collect(),
            Values::Wholes(column) => column.values_for_doc(doc).map(|whole| KeyValue::Whole(whole.into())).collect(),
            Values::Unsigned(column) => column.values_for_doc(doc).map(|whole| KeyValue::Whole(whole.into())).collect(),
            Values::Reals(column) => column.values_for_doc(doc).map(KeyValue::Real).collect(),
            Values::Dates(column) => {
                column.values_for_doc(doc).map(|date| KeyValue::Date(date.into_timestamp_millis())).collect()
            }
            Values::Addresses(column) => column.values_for_doc(doc).map(KeyValue::Address).collect(),
            Values::Texts(column) => {
                let mut texts = Vec::new();
                for ord in column.term_ords(doc) {
                    let mut text = String::new();
                    column
                        .ord_to_str(ord, &mut text)
                        .map_err(|error| SearchError::internal(format!("terms of a column: {error}")))?;
                    texts.push(KeyValue::Text(text));
                }
                texts
            }
        };
        keys.sort();
        keys.dedup();
        Ok(keys)
    }
}
