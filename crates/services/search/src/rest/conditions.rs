//! What must hold before a document is written: versions, and the number of its last operation.
//!
//! Invariant: a condition that cannot be read refuses the operation; it never becomes none.

use serde_json::Value;

use super::api::AskedRequest;
use crate::error::SearchError;
use crate::index::{ExpectedVersion, PartialUpdate};

/// Elasticsearch's refusal of a request that makes no sense.
pub(super) fn invalid(reason: impl std::fmt::Display) -> SearchError {
    SearchError::new(400, "action_request_validation_exception", format!("Validation Failed: 1: {reason};"))
}

/// A condition of an operation in a body: a number, or a text that is one; null is none. Errors: it is something else.
pub(super) fn condition(name: &str, value: &Value) -> Result<Option<u64>, SearchError> {
    let number = match value {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.map(Some).ok_or_else(|| {
        SearchError::argument(format!("[{name}] is a whole number that is not negative, and not [{value}]"))
    })
}

/// The greatest version that a document can be given: the next one is still a number of 63 bits, as clients read it.
const VERSION_MAX: u64 = i64::MAX as u64 - 1;

/// What must hold before the operation, by the values of `version`, `version_type`, `if_seq_no` and `if_primary_term`.
pub(super) fn expected(
    version: Option<u64>,
    version_type: Option<&str>,
    seq: Option<u64>,
    term: Option<u64>,
) -> Result<ExpectedVersion, SearchError> {
    if let Some(version) = version.filter(|version| *version > VERSION_MAX) {
        return Err(invalid(format!("illegal version value [{version}], it is at most [{VERSION_MAX}]")));
    }
    match (version_type, version, seq, term) {
        (None | Some("internal"), None, None, None) => Ok(ExpectedVersion::Any),
        (None | Some("internal"), None, Some(seq), Some(term)) => Ok(ExpectedVersion::Seq(seq, term)),
        (None | Some("internal"), Some(_), ..) => Err(invalid(
            "internal versioning can not be used for optimistic concurrency control. Please use `if_seq_no` and \
             `if_primary_term` instead",
        )),
        (Some("external"), Some(version), None, None) => Ok(ExpectedVersion::External(version)),
        (Some("external_gte"), Some(version), None, None) => Ok(ExpectedVersion::ExternalGte(version)),
        (Some(kind @ ("external" | "external_gte")), None, None, None) => {
            Err(invalid(format!("illegal version value [-4] for version type [{}]", kind.to_uppercase())))
        }
        (_, _, Some(_), None) | (_, _, None, Some(_)) => Err(invalid("ifSeqNo and ifPrimaryTerm go together")),
        (Some(_), _, Some(_), _) => Err(invalid("compare and write operations can not use versioning")),
        (Some(other), ..) => Err(SearchError::argument(format!("No version type match [{other}]"))),
    }
}

/// The same, of the parameters of a request.
pub(super) fn expected_of(request: &AskedRequest<'_>) -> Result<ExpectedVersion, SearchError> {
    expected(
        request.number("version")?,
        request.parameter("version_type"),
        request.number("if_seq_no")?,
        request.number("if_primary_term")?,
    )
}

/// What must hold before an update, by what the request says of it, and its body. Errors: it may make the document.
pub(super) fn expected_of_update(
    update: &PartialUpdate,
    by_request: ExpectedVersion,
    in_body: ExpectedVersion,
) -> Result<ExpectedVersion, SearchError> {
    let expected = if by_request == ExpectedVersion::Any { in_body } else { by_request };
    match update.upsert.is_some() && expected != ExpectedVersion::Any {
        true => Err(invalid("upsert requests don't support `if_seq_no` and `if_primary_term`")),
        false => Ok(expected),
    }
}
