//! [`SpaceLimits`]: what transactions leave to the records of services, so that tables cannot take the room of messages.
//!
//! ```text
//!   pages in use          |########################|.................|      <= pages: transactions that grow are refused beyond
//!   free on their medium  ....................|######################|      >= reserve: the same
//! ```
//!
//! Asked before anything of a transaction is in the journal, and again for each part of one that spills: so it counts for bulk
//! loads, for rows that move to another form, and for spilled transactions. Records of services, and transactions that change only
//! the trees of the interpreter, are not asked; nor are those that remove more than they set.

use crate::StoreError;
use crate::store::{FIRST_TREE, Inner};
use crate::writes::WriteBuffer;

/// A number of bytes, and what its setting is called: the error says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceLimit {
    /// Bytes.
    pub bytes: u64,
    /// Name of the setting, for people.
    pub setting: &'static str,
}

/// See the file's essay. Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceLimits {
    /// Bytes of pages in use, of tables and messages together, beyond which transactions that grow are refused.
    pub pages: Option<SpaceLimit>,
    /// Bytes of the medium of the pages that they leave free; pages that can be given out count as free.
    pub reserve: Option<SpaceLimit>,
}

impl Inner {
    /// Errors: [`StoreError::Full`], which names the setting.
    pub(crate) fn within_limits(&self, writes: &WriteBuffer) -> Result<(), StoreError> {
        let SpaceLimits { pages, reserve } = self.options.limits;
        if pages.is_none() && reserve.is_none() {
            return Ok(());
        }
        let grows = writes.grows();
        if grows == 0 || !writes.trees().any(|tree| tree.0 >= FIRST_TREE) {
            return Ok(());
        }
        let page_bytes = self.space.page_bytes();
        if let Some(SpaceLimit { bytes, setting }) = pages {
            let used = self.space.usage().used * page_bytes;
            if used.saturating_add(grows) > bytes {
                let text = format!("{setting} lets tables grow up to {bytes} bytes of pages, and {used} are in use");
                return Err(StoreError::Full(text.into()));
            }
        }
        let Some(SpaceLimit { bytes, setting }) = reserve else { return Ok(()) };
        let Some(free) = self.maintenance.data_devices.free_bytes()? else { return Ok(()) };
        let free = free.saturating_add(self.space.available() * page_bytes);
        if free < bytes.saturating_add(grows) {
            let text = format!("{setting} leaves {bytes} bytes of the medium to messages, and {free} are free");
            return Err(StoreError::Full(text.into()));
        }
        Ok(())
    }
}
