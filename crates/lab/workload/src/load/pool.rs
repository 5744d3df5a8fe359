//! The messages of a run, prepared before the clock starts.
//!
//! ```text
//! body k   inbound frame   0x0B MSH|...|T4-000-0000000|... 0x1C 0x0D       the control id patched before each send
//!          expected        [billing, laboratory, pharmacy, registry], each with the places of the control id
//! message n of service s has body (s * STRIDE + n) mod bodies
//! ```
//!
//! Every delivery is compared byte for byte with what the inbound message should have become, at the price of one pass
//! over its bytes: the expectation of a body is computed once, by `expect` (plain code that shares nothing with the engine),
//! and only the control id differs from message to message.

use std::ops::Range;

use memchr::memmem;

use crate::messages::{Generator, control_id};

/// How far apart in the pool the first messages of neighbouring services are: a prime, so that the services send different mixes.
const STRIDE: usize = 37;

/// The message that an interface should receive for an inbound message: interface (0 based) and message to message.
pub type Expectation = fn(usize, &[u8]) -> Vec<u8>;

/// Prepared messages.
pub struct Pool {
    bodies: Vec<Body>,
}

struct Body {
    frame: Vec<u8>,
    control_id: Range<usize>,
    expected: Vec<Expected>,
}

struct Expected {
    bytes: Vec<u8>,
    /// The positions of the control id; MSH-10 first.
    control_ids: Vec<Range<usize>>,
}

impl Pool {
    /// Generates `bodies` messages from `seed` and works out what each of `interfaces` should receive.
    pub fn new(seed: u64, bodies: usize, interfaces: usize, expectation: Expectation) -> Self {
        let mut generator = Generator::new(seed);
        let body = |_| {
            let sample = generator.sample();
            let expected = (0..interfaces).map(|at| Expected::new(expectation(at, &sample.bytes))).collect();
            let mut frame = vec![0x0B];
            frame.extend_from_slice(&sample.bytes);
            frame.extend_from_slice(&[0x1C, 0x0D]);
            Body { frame, control_id: sample.control_id.start + 1..sample.control_id.end + 1, expected }
        };
        Pool { bodies: (0..bodies).map(body).collect() }
    }

    /// The frame of message `sequence` of `service`, ready to send.
    pub fn frame(&mut self, service: usize, sequence: usize) -> &[u8] {
        let index = self.index(service, sequence);
        let body = &mut self.bodies[index];
        control_id::write(&mut body.frame[body.control_id.clone()], service, sequence);
        &body.frame
    }

    /// Whether `received` is what `interface` should get for message `sequence` of `service`.
    pub fn matches(&self, interface: usize, service: usize, sequence: usize, received: &[u8]) -> bool {
        let expected = &self.bodies[self.index(service, sequence)].expected[interface];
        let mut id = [0; control_id::BYTES];
        control_id::write(&mut id, service, sequence);
        expected.matches(&id, received)
    }

    /// The message that `interface` should get for message `sequence` of `service`.
    pub fn expected(&self, interface: usize, service: usize, sequence: usize) -> Vec<u8> {
        let expected = &self.bodies[self.index(service, sequence)].expected[interface];
        let mut bytes = expected.bytes.clone();
        for place in &expected.control_ids {
            control_id::write(&mut bytes[place.clone()], service, sequence);
        }
        bytes
    }

    /// Mean length of the messages, in bytes.
    pub fn mean_bytes(&self) -> usize {
        self.bodies.iter().map(|body| body.frame.len() - 3).sum::<usize>() / self.bodies.len()
    }

    fn index(&self, service: usize, sequence: usize) -> usize {
        (service * STRIDE + sequence) % self.bodies.len()
    }
}

impl Expected {
    fn new(bytes: Vec<u8>) -> Self {
        let places = memmem::find_iter(&bytes, control_id::BLANK).map(|at| at..at + control_id::BYTES);
        Expected { control_ids: places.collect(), bytes }
    }

    fn matches(&self, id: &[u8], received: &[u8]) -> bool {
        if received.len() != self.bytes.len() {
            return false;
        }
        let mut from = 0;
        for place in &self.control_ids {
            if received[from..place.start] != self.bytes[from..place.start] || &received[place.clone()] != id {
                return false;
            }
            from = place.end;
        }
        received[from..] == self.bytes[from..]
    }
}

/// Where two messages first differ, for a person: the segments around that place.
pub(super) fn difference(expected: &[u8], received: &[u8]) -> String {
    let mut theirs = received.split(|byte| *byte == b'\r');
    for line in expected.split(|byte| *byte == b'\r') {
        match theirs.next() {
            Some(other) if other == line => {}
            Some(other) => {
                return format!("expected {} but received {}", line.escape_ascii(), other.escape_ascii());
            }
            None => return format!("expected {} but the message ends", line.escape_ascii()),
        }
    }
    let extra = theirs.next().unwrap_or_default();
    format!("more than expected: {}", extra.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(_: usize, inbound: &[u8]) -> Vec<u8> {
        inbound.to_vec()
    }

    #[test]
    fn a_delivery_matches_only_its_own_message_and_no_byte_may_differ() {
        let mut pool = Pool::new(5, 16, 1, same);
        let frame = pool.frame(3, 21).to_vec();
        let message = &frame[1..frame.len() - 2];
        assert!(pool.matches(0, 3, 21, message));
        assert_eq!(pool.expected(0, 3, 21), message);
        assert!(!pool.matches(0, 3, 21 + 16, message), "the same body under another control id");
        for at in 0..message.len() {
            let mut changed = message.to_vec();
            changed[at] ^= 1;
            assert!(!pool.matches(0, 3, 21, &changed), "byte {at}");
        }
        assert!(!pool.matches(0, 3, 21, &message[..message.len() - 1]));
    }

    #[test]
    fn a_difference_names_the_segment() {
        let text = difference(b"MSH|a\rPID|1\r", b"MSH|a\rPID|2\r");
        assert_eq!(text, "expected PID|1 but received PID|2");
        assert_eq!(difference(b"A\rB\r", b"A\r"), "expected B but received ");
        assert_eq!(difference(b"A", b"A\rB"), "more than expected: B");
    }
}
