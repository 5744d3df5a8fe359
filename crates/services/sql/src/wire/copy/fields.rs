//! [`Fields`]: one row of COPY taken apart, in memory that is used again for the next row.

/// The fields of one row, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Fields {
    bytes: Vec<u8>,
    /// Where each field ends in `bytes`, and whether it is a value; else it is NULL.
    ends: Vec<(usize, bool)>,
}

impl Fields {
    /// Forgets the row.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds bytes to the field that is being made.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a byte to the field that is being made.
    pub(super) fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Ends the field.
    pub(super) fn end(&mut self) {
        self.ends.push((self.bytes.len(), true));
    }

    /// Ends the field as NULL; nothing of it may have been added.
    pub(super) fn end_null(&mut self) {
        self.ends.push((self.bytes.len(), false));
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// A field; `None` is NULL. There must be one with this number.
    pub(crate) fn get(&self, at: usize) -> Option<&[u8]> {
        let (end, value) = self.ends[at];
        let start = if at == 0 { 0 } else { self.ends[at - 1].0 };
        value.then(|| &self.bytes[start..end])
    }
}
