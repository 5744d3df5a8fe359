//! The control id (MSH-10) of a generated message: which service it was sent to and its place in that service's sequence.
//!
//! ```text
//! T4-007-0004799      14 bytes: "T4-", service (3 digits), "-", sequence from 0 (7 digits)
//! ```
//!
//! Fixed width, so that a prepared message is patched in place; within the 20 characters of MSH-10 up to version 2.6.

/// Length of a control id in bytes.
pub const BYTES: usize = 14;
/// The maximum number of services that a control id can distinguish.
pub const MAX_SERVICES: usize = 1_000;
/// The most messages a service can send.
pub const MAX_SEQUENCE: usize = 10_000_000;
/// MSH-10 of a message that has not been patched: service 0, sequence 0.
pub const BLANK: &str = "T4-000-0000000";

/// Writes the control id of message `sequence` of `service`.
///
/// # Panics
/// If `out` is not `BYTES` long, or a number does not fit.
pub fn write(out: &mut [u8], service: usize, sequence: usize) {
    assert!(service < MAX_SERVICES && sequence < MAX_SEQUENCE, "a control id has 3 and 7 digits");
    out[..3].copy_from_slice(b"T4-");
    digits(&mut out[3..6], service);
    out[6] = b'-';
    digits(&mut out[7..BYTES], sequence);
}

/// The service and sequence of a control id, or nothing if it is not one of ours.
pub fn read(id: &[u8]) -> Option<(usize, usize)> {
    if id.len() != BYTES || &id[..3] != b"T4-" || id[6] != b'-' {
        return None;
    }
    Some((number(&id[3..6])?, number(&id[7..])?))
}

fn digits(out: &mut [u8], mut value: usize) {
    for place in out.iter_mut().rev() {
        *place = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    digits.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + usize::from(digit - b'0')))
}
