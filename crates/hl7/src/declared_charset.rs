//! The charset that a message declares in MSH-18: read from a message, and written into a draft.

use crate::charset::Charset;
use crate::{Draft, EditError, Message, Path, Place, SegmentName};

impl Charset {
    /// The charset MSH-18 declares. Its first repetition is the default and the others may be switched to, so an
    /// ISO 2022 one in any place wins: it starts as ASCII. Else the first that is known; none where none is.
    #[must_use]
    pub fn declared(message: &Message<'_>) -> Option<Charset> {
        Charset::declared_by(message.header().field(18).bytes(), message.delimiters())
    }

    /// Writes this charset into MSH-18 of a draft, if MSH-18 names another.
    ///
    /// # Errors
    /// [`EditError`] where the message's delimiters do not let the name stand there.
    pub fn declare(self, draft: &mut Draft<'_>) -> Result<(), EditError> {
        let place = Path::new(SegmentName::MSH, Place::field(18));
        let delimiters = draft.delimiters();
        if Charset::declared_by(draft.get(&place).bytes(), delimiters) == Some(self) {
            return Ok(());
        }
        draft.set(&place, &self.declaration(delimiters)).map(|_| ())
    }
}
