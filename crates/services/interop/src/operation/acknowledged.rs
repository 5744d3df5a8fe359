//! [`Acknowledged`]: the messages that a receiver was sent, for answers that come late.
//!
//! ```text
//!   message 1 --> CA (it is delivered) ; message 2 --> CA ; message 3 --> ..  AA of 1, AE of 2, CA of 3
//!                                                                             passed over    the answer
//! ```
//!
//! In the enhanced mode of HL7 (2.9.2) a commit acknowledgement is followed by an application acknowledgement, which may come after any
//! number of further messages. It is the answer to none of these, and no reason to send one of them again.
//!
//! A receiver may send such an answer on a later connection too, and one to a message that was given up for want of an answer.
//!
//! Invariants: memory is bounded, and the oldest ids leave first.

use std::collections::{HashMap, VecDeque};

use hl7::ack::{Code, Received};

/// Ids at most.
const MOST: usize = 4096;

/// Bytes of ids at most: their length is the sender's.
const BYTES_MOST: usize = 256 << 10;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    /// The number of the message, and of the connection on which it was sent last, by control id.
    numbers: HashMap<Box<[u8]>, (u64, u64)>,
    /// The ids, oldest first.
    order: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// The connection in use.
    connection: u64,
}

impl Acknowledged {
    /// The connection is another one.
    pub(super) fn reconnected(&mut self) {
        self.connection += 1;
    }

    /// The message with this control id was sent, and answered or given up.
    pub(super) fn add(&mut self, control_id: &[u8], number: u64) {
        let id = control_id.trim_ascii_end();
        if let Some((_, connection)) = self.numbers.insert(id.into(), (number, self.connection)) {
            if connection != self.connection {
                // It is as young as its connection.
                self.order.retain(|other| **other != *id);
                self.order.push_back(id.into());
            }
            return;
        }
        self.order.push_back(id.into());
        self.bytes += id.len();
        while self.order.len() > MOST || self.bytes > BYTES_MOST {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= oldest.len();
            self.numbers.remove(&oldest);
        }
    }

    /// Whether a message with this control id was sent on the connection in use: a late answer to it could be taken for that of another.
    pub(super) fn has_here(&self, control_id: &[u8]) -> bool {
        self.numbers.get(control_id.trim_ascii_end()).is_some_and(|(_, connection)| *connection == self.connection)
    }

    /// Whether an answer is a late one to one of them. Where it is a refusal that is logged: the message counts as delivered, since the
    /// receiver has taken the responsibility for it.
    pub(super) fn passes(&self, received: &Received<'_>, operation: &str) -> bool {
        let Some((id, _)) = self.numbers.get(received.control_id.trim_ascii_end()) else { return false };
        if !matches!(received.code, Code::AA | Code::CA) {
            let code = received.code;
            tracing::warn!(operation, id, ?code, "a late answer refuses a message that was sent before");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_answered_is_known_until_much_else_was_answered_in_bounded_memory() {
        let mut acknowledged = Acknowledged::default();
        for number in 0..10_000_u64 {
            acknowledged.add(format!("{number}  ").as_bytes(), number);
        }
        for (id, expected) in
            [("9999", true), ("9999 ", true), ("5904", true), ("5903", false), ("1", false), ("", false)]
        {
            assert_eq!(acknowledged.has_here(id.as_bytes()), expected, "{id}");
        }
        for length in [100_000, 100_001, 300_000] {
            acknowledged.add(&vec![b'x'; length], 1);
            assert!(acknowledged.bytes <= BYTES_MOST && acknowledged.numbers.len() == acknowledged.order.len());
        }
        assert_eq!(acknowledged.numbers.len(), 0, "one that is longer than all may be is not kept");
        acknowledged.add(b"1", 1);
        acknowledged.reconnected();
        assert!(
            !acknowledged.has_here(b"1") && acknowledged.numbers.contains_key(&b"1"[..]),
            "it is of the connection before"
        );
    }
}
