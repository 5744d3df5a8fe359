//! The body of the fuzz target of the envelope.

use crate::envelope::Envelope;
use crate::secret::Secret;

/// Decodes any bytes, as they are and with their checksum set right. What decodes must encode to an equal envelope, and be unlocked or
/// refused without a panic.
pub fn envelope(bytes: &[u8]) {
    check(bytes);
    if bytes.len() >= 16 {
        let mut bytes = bytes.to_vec();
        Envelope::set_checksum(&mut bytes);
        check(&bytes);
    }
}

fn check(bytes: &[u8]) {
    let Ok(envelope) = Envelope::decode(bytes) else { return };
    assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope.clone()), "an envelope encodes to itself");
    let _ = envelope.unlock(&Secret::new([1; 32]), "fuzz");
}
