//! The services that the messages of a fed index came in by: what a caller may see of such an index is decided by them.

use std::collections::BTreeSet;

use super::SearchIndex;
use crate::error::SearchError;

/// Most services of an index. A production has some hundreds at most; the names of old ones stay until their messages go.
const SERVICES_MAX: usize = 10_000;

/// The field of an index's documents that names the service of a message; `None`: they are no messages, or have no such field.
pub(crate) fn service_field(index: &SearchIndex) -> Option<&str> {
    index.feeding.as_ref().and_then(|feeding| feeding.service_field())
}

/// The services that an index's searchable documents name. What becomes searchable later may name more.
///
/// Errors: those of the medium; there are too many.
pub(crate) fn services(index: &SearchIndex) -> Result<BTreeSet<String>, SearchError> {
    let unreadable =
        |error: std::io::Error| SearchError::internal(format!("the services of an index cannot be read: {error}"));
    let mut services = BTreeSet::new();
    let open = index.view();
    let mapping = index.mapping();
    let field = service_field(index).and_then(|path| mapping.field(path));
    let Some(column) = field.and_then(|field| open.view.column(field)) else { return Ok(services) };
    for reader in open.view.searcher.segment_readers() {
        let inverted = reader.inverted_index(column)?;
        let mut terms = inverted.terms().stream().map_err(unreadable)?;
        while terms.advance() {
            if services.len() == SERVICES_MAX {
                let reason = format!("the index names more than {SERVICES_MAX} services");
                return Err(SearchError::internal(reason));
            }
            services.insert(String::from_utf8_lossy(terms.key()).into_owned());
        }
    }
    Ok(services)
}
