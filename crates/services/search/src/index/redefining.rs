//! Changing what is stored about indices, of one or of several at once: settings, aliases, whether they are closed.
//!
//! Invariant: the definitions of several indices are one transaction, and nobody who holds the lock that a caller names sees some
//! of them new and others old.

use std::sync::Arc;

use super::{IndexDefinition, SearchIndex, catalog};
use crate::error::SearchError;

/// Changes what is stored about several indices of one node, each named once: all of them, or none. Durable when it returns. They
/// are seen while the guard lives that `lock` returns. Callers lock indices in one order.
///
/// Errors: those of the store; an index is being made again (503), or was deleted.
pub(crate) fn redefine_all<G>(
    changes: Vec<(&SearchIndex, impl FnOnce(&mut IndexDefinition))>,
    lock: impl FnOnce() -> G,
) -> Result<(), SearchError> {
    let (mut writers, mut definitions) = (Vec::new(), Vec::new());
    for (index, change) in changes {
        // The writer's lock: a mapping update saves the definition too.
        writers.push(index.lock_writer()?);
        index.check_deleted()?;
        let mut definition = IndexDefinition::clone(&index.definition.read());
        change(&mut definition);
        definitions.push((index, definition));
    }
    let Some((first, _)) = definitions.first() else { return Ok(()) };
    catalog::save_all(&first.place.store, definitions.iter().map(|(_, definition)| definition))?;
    let _seen = lock();
    for (index, definition) in definitions {
        *index.definition.write() = Arc::new(definition);
    }
    Ok(())
}
