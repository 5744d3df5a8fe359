//! [`Row`]: a row of a catalog, and the values in it.

use datafusion::scalar::ScalarValue;

/// A row: values of the columns that are not empty.
pub(super) type Row = Vec<(&'static str, ScalarValue)>;

/// The OID of an object. Catalogs store PostgreSQL's unsigned OIDs as integers.
pub(super) fn int(oid: u32) -> ScalarValue {
    ScalarValue::from(oid as i32)
}

/// A text.
pub(super) fn text(text: &str) -> ScalarValue {
    ScalarValue::from(text)
}
