//! [`sent`]: texts in a form that replies can contain.

/// A text for a reply. A zero byte inside would end it early and shift the rest, so zero bytes are removed.
pub(super) fn sent(text: &str) -> String {
    text.replace('\0', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_byte_in_a_text_does_not_shift_what_follows() {
        assert_eq!(sent("na\0me\0"), "name");
    }
}
