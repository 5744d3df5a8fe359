//! [`Fields`]: one row of COPY split into fields, in memory that is reused for the next row.

/// The fields of one row, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Fields {
    bytes: Vec<u8>,
    /// The end of each field in `bytes`, and whether it is a value; otherwise it is NULL.
    ends: Vec<(usize, bool)>,
}

impl Fields {
    /// Clears the row.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds bytes to the current field.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a byte to the current field.
    pub(super) fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Ends the current field.
    pub(super) fn end(&mut self) {
        self.ends.push((self.bytes.len(), true));
    }

    /// Ends the current field as NULL; no bytes may have been added to it.
    pub(super) fn end_null(&mut self) {
        self.ends.push((self.bytes.len(), false));
    }

    /// The number of fields.
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
