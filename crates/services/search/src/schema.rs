//! From a mapping to the library's schema, and the fields that every index has.
//!
//! ```text
//!   _id      the document's id, one term          _seq   its sequence number, a column: where its source lies in the store
//!   _names   the names of the fields it has       t0..   texts, analyzed by `analysis`      f0..   everything else
//! ```
//!
//! The schema only grows at its end: a segment written with an older one is read with the newer one.

use tantivy::schema::{
    DateOptions, DateTimePrecision, Field, FieldEntry, FieldType, IndexRecordOption, IpAddrOptions, NumericOptions,
    Schema, SchemaBuilder, TextFieldIndexing, TextOptions,
};

use crate::mapping::{FieldKind, MappedField, Mapping};
use crate::packed_terms::{PACKED, PackedTokenizer};

/// The document's id.
pub const ID: &str = "_id";
/// The document's sequence number.
pub const SEQ: &str = "_seq";
/// The names of its fields.
pub const NAMES: &str = "_names";

fn one_term(fast: bool) -> TextOptions {
    let indexing = TextFieldIndexing::default()
        .set_tokenizer("raw")
        .set_fieldnorms(false)
        .set_index_option(IndexRecordOption::Basic);
    let options = TextOptions::default().set_indexing_options(indexing);
    if fast { options.set_fast("raw") } else { options }
}

/// The schema of a new index: texts for the mapping and `spare` more, then the other fields.
pub fn of_mapping(mapping: &Mapping, spare: u32) -> Schema {
    let mut builder = Schema::builder();
    builder.add_text_field(ID, one_term(false));
    builder.add_u64_field(SEQ, NumericOptions::default().set_fast());
    builder.add_text_field(NAMES, one_term(false));
    for text in 0..mapping.columns().texts + spare {
        let indexing = TextFieldIndexing::default()
            .set_tokenizer(PACKED)
            .set_fieldnorms(true)
            .set_index_option(IndexRecordOption::WithFreqsAndPositions);
        builder.add_text_field(&format!("t{text}"), TextOptions::default().set_indexing_options(indexing));
    }
    add_others(&mut builder, mapping, 0);
    builder.build()
}

/// Gives an index the tokenizer of its texts. Errors: its texts have another one, so that it was written by an older program.
pub fn register(index: &tantivy::Index) -> Result<(), String> {
    index.tokenizers().register(PACKED, PackedTokenizer);
    let is_packed = |entry: &FieldEntry| match entry.field_type() {
        FieldType::Str(options) if entry.name().starts_with('t') => {
            options.get_indexing_options().is_none_or(|indexing| indexing.tokenizer() == PACKED)
        }
        _ => true,
    };
    match index.schema().fields().all(|(_, entry)| is_packed(entry)) {
        true => Ok(()),
        false => Err("an older program wrote it in another format".to_owned()),
    }
}

/// The schema that a segment's schema grows to for a mapping with more fields; `None` if it would need more text columns, and
/// `Some(None)` if it has all.
pub fn grown(schema: &Schema, mapping: &Mapping) -> Option<Option<Schema>> {
    let texts = schema.fields().filter(|(_, entry)| entry.name().starts_with('t')).count();
    if mapping.columns().texts as usize > texts {
        return None;
    }
    let others = schema.fields().filter(|(_, entry)| entry.name().starts_with('f')).count() as u32;
    if others == mapping.columns().others {
        return Some(None);
    }
    let mut builder = Schema::builder();
    for (_, entry) in schema.fields() {
        builder.add_field(entry.clone());
    }
    add_others(&mut builder, mapping, others);
    Some(Some(builder.build()))
}

/// The columns from `f{from}` on, in order of their numbers.
fn add_others(builder: &mut SchemaBuilder, mapping: &Mapping, from: u32) {
    let number = |field: &MappedField| field.column.strip_prefix('f').and_then(|number| number.parse::<u32>().ok());
    let mut others: Vec<(u32, &MappedField)> =
        mapping.fields().filter_map(|field| Some((number(field)?, &**field))).collect();
    others.sort_by_key(|(number, _)| *number);
    for (_, field) in others.into_iter().filter(|(number, _)| *number >= from) {
        add_column(builder, field);
    }
}

fn add_column(builder: &mut SchemaBuilder, field: &MappedField) {
    let name = &field.column;
    let numeric = || {
        let options = NumericOptions::default();
        let options = if field.indexed { options.set_indexed() } else { options };
        if field.doc_values || field.indexed { options.set_fast() } else { options }
    };
    match field.kind {
        FieldKind::Text => unreachable!("texts have columns of their own"),
        FieldKind::Keyword => {
            if field.indexed {
                builder.add_text_field(name, one_term(field.doc_values));
            } else {
                let options = TextOptions::default();
                builder.add_text_field(
                    name,
                    if field.doc_values { options.set_fast("raw") } else { options.set_stored() },
                );
            }
        }
        FieldKind::Integer(_) => {
            builder.add_i64_field(name, numeric());
        }
        FieldKind::UnsignedLong => {
            builder.add_u64_field(name, numeric());
        }
        FieldKind::Real(_) => {
            builder.add_f64_field(name, numeric());
        }
        FieldKind::Boolean => {
            builder.add_bool_field(name, numeric());
        }
        FieldKind::Date => {
            // Not indexed: ranges over the column are as fast, and terms would be a third of a small document's index.
            builder
                .add_date_field(name, DateOptions::default().set_fast().set_precision(DateTimePrecision::Milliseconds));
        }
        FieldKind::Opaque => {
            builder.add_text_field(name, TextOptions::default());
        }
        FieldKind::Ip => {
            builder.add_ip_addr_field(name, IpAddrOptions::default().set_indexed().set_fast());
        }
    }
}

/// What stands in [`NAMES`] for a document that was sent with a routing.
pub const ROUTING: &str = "_routing";

/// What stands in [`NAMES`] for a document with a value that is not indexed: malformed, or too long.
pub const IGNORED: &str = "_ignored";

/// What stands in [`NAMES`] for such a value of this field.
pub fn ignored_name(path: &str) -> String {
    format!("_ignored:{path}")
}

/// The three fields that every index has.
#[derive(Clone, Copy, Debug)]
pub struct OwnFields {
    /// See [`ID`].
    pub id: Field,
    /// See [`SEQ`].
    pub seq: Field,
    /// See [`NAMES`].
    pub names: Field,
}

impl OwnFields {
    /// Those of a schema made here.
    ///
    /// # Panics
    ///
    /// If the schema was made elsewhere.
    pub fn of(schema: &Schema) -> OwnFields {
        let field = |name: &str| schema.get_field(name).expect("every index has it");
        OwnFields { id: field(ID), seq: field(SEQ), names: field(NAMES) }
    }
}
