//! Digests: `md5`, which returns text, and `sha224` to `sha512`, which return bytes. For texts their bytes are used.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use md5::{Digest, Md5};
use sha2::{Sha224, Sha256, Sha384, Sha512};

use super::pg_function::{PgFunction, no_function};
use crate::SqlError;

/// The functions.
pub(crate) const DIGESTS: [PgFunction; 5] = [
    PgFunction {
        name: "md5",
        wants: |types| bytes_of("md5", types),
        gives: |_| Ok(DataType::Utf8),
        run: |arrays, _| {
            let hex = |digest: Vec<u8>| digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let texts = digests::<Md5>(&arrays[0]).into_iter().map(|digest| digest.map(hex));
            Ok(Arc::new(texts.collect::<StringArray>()))
        },
        between: None,
    },
    sha("sha224", |types| bytes_of("sha224", types), |arrays, _| Ok(array(digests::<Sha224>(&arrays[0])))),
    sha("sha256", |types| bytes_of("sha256", types), |arrays, _| Ok(array(digests::<Sha256>(&arrays[0])))),
    sha("sha384", |types| bytes_of("sha384", types), |arrays, _| Ok(array(digests::<Sha384>(&arrays[0])))),
    sha("sha512", |types| bytes_of("sha512", types), |arrays, _| Ok(array(digests::<Sha512>(&arrays[0])))),
];

const fn sha(
    name: &'static str,
    wants: fn(&[DataType]) -> Result<Vec<DataType>, SqlError>,
    run: fn(&[ArrayRef], &DataType) -> Result<ArrayRef, SqlError>,
) -> PgFunction {
    PgFunction { name, wants, gives: |_| Ok(DataType::Binary), run, between: None }
}

fn bytes_of(name: &str, types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    match types {
        [kind] if kind.is_string() || kind.is_null() => Ok(vec![DataType::Utf8]),
        [kind] if kind.is_binary() => Ok(vec![DataType::Binary]),
        _ => Err(no_function(name, types)),
    }
}

fn digests<D: Digest>(values: &ArrayRef) -> Vec<Option<Vec<u8>>> {
    let digest = |bytes: Option<&[u8]>| bytes.map(|bytes| D::digest(bytes).to_vec());
    match values.data_type() {
        DataType::Utf8 => values.as_string::<i32>().iter().map(|text| digest(text.map(str::as_bytes))).collect(),
        _ => values.as_binary::<i32>().iter().map(digest).collect(),
    }
}

fn array(digests: Vec<Option<Vec<u8>>>) -> ArrayRef {
    Arc::new(digests.iter().map(Option::as_deref).collect::<BinaryArray>())
}
