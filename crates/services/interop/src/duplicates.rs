//! Which messages were seen before: a bounded window over (service, MSH-3, MSH-4, MSH-10), with a hash of the content,
//! since senders do reuse control ids for other messages.
//!
//! Invariants: at most `capacity` messages are remembered, the oldest forgotten first; a message that was refused is
//! forgotten, so that its resend does not count as a duplicate. Identities are checksums ([`SearchKeys`])
//! that the rows of the store hold too, and recovery fills the window again from the newest of
//! those. A sender that makes identities collide can cause another's message to be flagged; to cause it to be dropped,
//! it would have to know the content.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};
use std::sync::LazyLock;

use hl7::{Message, Path, Value};

use crate::record::search::SearchKeys;

/// Messages remembered by default: at 100 messages a second, about 40 minutes; 40 bytes each.
pub const CAPACITY: usize = 1 << 18;

/// The window's entry for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Not in the window; it is now.
    New,
    /// The same id with the same content, which is in the journal's hands.
    Same,
    /// The same id with the same content, whose ingest has not ended (it waits for room in a queue, for example).
    Pending,
    /// The same id with other content.
    OtherContent,
}

/// Identity of a message in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    id: u64,
    content: u64,
}

#[derive(Debug, Clone, Copy)]
struct Remembered {
    content: u64,
    submitted: bool,
}

impl Key {
    /// The identity of a message with these search keys.
    pub fn of(keys: &SearchKeys) -> Key {
        Key { id: keys.identity, content: keys.content }
    }

    /// The same as a row holds it.
    pub fn stored(id: u64, content: u64) -> Key {
        Key { id, content }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Window {
    seen: HashMap<u64, Remembered, foldhash::fast::RandomState>,
    order: VecDeque<u64>,
    capacity: usize,
}

impl Window {
    /// An empty window of `capacity` messages.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a window of no messages sees nothing");
        Self { seen: HashMap::default(), order: VecDeque::new(), capacity }
    }

    /// Whether the message was seen; if not, it is from now on, as one on its way in.
    pub fn see(&mut self, key: Key) -> Seen {
        match self.seen.entry(key.id) {
            MapEntry::Occupied(known) if known.get().content == key.content => {
                if known.get().submitted {
                    Seen::Same
                } else {
                    Seen::Pending
                }
            }
            MapEntry::Occupied(mut known) => {
                known.insert(Remembered { content: key.content, submitted: false });
                Seen::OtherContent
            }
            MapEntry::Vacant(place) => {
                place.insert(Remembered { content: key.content, submitted: false });
                self.order.push_back(key.id);
                if self.order.len() > self.capacity {
                    let oldest = self.order.pop_front().expect("longer than the capacity");
                    self.seen.remove(&oldest);
                }
                Seen::New
            }
        }
    }

    /// The message has been submitted to the journal.
    pub fn submitted(&mut self, key: Key) {
        if let Some(known) = self.seen.get_mut(&key.id).filter(|known| known.content == key.content) {
            known.submitted = true;
        }
    }

    /// Forgets a message that was not stored after all. One of the same id and other content stays.
    pub fn forget(&mut self, key: Key) {
        if self.seen.get(&key.id).is_some_and(|known| known.content == key.content) {
            self.seen.remove(&key.id);
            // Refused messages are few and young, so the search from the young end is short.
            if let Some(at) = self.order.iter().rposition(|id| *id == key.id) {
                self.order.remove(at);
            }
        }
    }
}

/// The control id, MSH-10, for logs and lists; empty where there is none. It names a message, not a patient.
pub fn control_id(message: &Message<'_>) -> String {
    static CONTROL: LazyLock<Path> = LazyLock::new(|| "MSH-10".parse().expect("a constant path"));
    match message.get(&CONTROL) {
        Value::Present(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::of(&SearchKeys::read("in", text.as_bytes(), None))
    }

    #[test]
    fn the_window_tells_resent_from_reused_ids_and_forgets_the_oldest() {
        let mut window = Window::new(2);
        let first = key("MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5\rPID|1\r");
        let reused = key("MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5\rPID|2\r");
        let second = key("MSH|^~\\&|A|B|||2026||ADT^A01|2|P|2.5\r");
        let third = key("MSH|^~\\&|A|C|||2026||ADT^A01|2|P|2.5\r");
        assert_eq!(window.see(first), Seen::New);
        assert_eq!(window.see(first), Seen::Pending, "it is not known to be stored yet");
        window.submitted(first);
        assert_eq!(window.see(first), Seen::Same);
        assert_eq!(window.see(reused), Seen::OtherContent);
        assert_eq!(window.see(second), Seen::New);
        assert_eq!(window.see(third), Seen::New, "another facility is another sender");
        assert_eq!(window.see(first), Seen::New, "the window holds two");
    }

    #[test]
    fn a_refused_message_is_not_a_duplicate_when_resent() {
        let mut window = Window::new(2);
        let key = key("MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5\r");
        assert_eq!(window.see(key), Seen::New);
        window.forget(key);
        assert_eq!(window.see(key), Seen::New);
    }
}
