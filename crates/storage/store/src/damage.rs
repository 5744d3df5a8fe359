//! [`Damage`]: what is wrong with what was stored, and where; and [`Quarantine`], the pages known to be damaged.
//!
//! ```text
//!   a page cannot be read, or does not verify      Corrupt, with page and length          cache, page, tree
//!        |  the reader's tree and key are added, and what lies between the fences above it
//!        v
//!   Quarantine: one entry a page, one log line a page      asked by the allocator: such a page is never given out again
//! ```
//!
//! A reader that comes too late to a page that was freed sees something else there: that is no damage. So an entry is made only
//! by whoever knows that its error is final.
//!
//! All of it is in memory: after a restart a page is found again when it is read again. What it does not do: it mends nothing.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::page_id::PageId;

/// So many pages are told apart; more are only counted and kept from being given out.
const TOLD_MAX: usize = 1000;

/// What is wrong, in words, and the pages that it is about where it is about some. Reads as its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage(Arc<Facts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    text: String,
    /// The first page, and how many.
    pages: Option<(PageId, u32)>,
    /// It was said where it lies.
    is_placed: bool,
    /// The medium does not give it back, and takes its time to say so.
    is_unreadable: bool,
}

impl Damage {
    /// Of pages.
    pub(crate) fn of(first: PageId, pages: u32, text: impl Display) -> Damage {
        let text = text.to_string();
        Damage(Arc::new(Facts { text, pages: Some((first, pages)), is_placed: false, is_unreadable: false }))
    }

    /// Of pages that the medium does not give back.
    pub(crate) fn unreadable(first: PageId, pages: u32, text: impl Display) -> Damage {
        Damage(Arc::new(Facts { is_unreadable: true, ..Facts::clone(&Damage::of(first, pages, text).0) }))
    }

    /// Whether the medium does not give it back.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.0.is_unreadable
    }

    /// The pages that it is about: the first, and how many. None where it is about something else.
    pub fn pages(&self) -> Option<(PageId, u32)> {
        self.0.pages
    }

    /// Whether it was said in which tree, and where on the medium, it is.
    pub(crate) fn is_placed(&self) -> bool {
        self.0.is_placed
    }

    /// The same, with more words around it.
    pub(crate) fn said(&self, text: impl Display) -> Damage {
        Damage(Arc::new(Facts { text: text.to_string(), ..Facts::clone(&self.0) }))
    }

    /// The same, with all that is known of its place.
    pub(crate) fn placed(&self, text: impl Display) -> Damage {
        Damage(Arc::new(Facts { text: text.to_string(), is_placed: true, ..Facts::clone(&self.0) }))
    }
}

impl Deref for Damage {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

impl Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl From<String> for Damage {
    fn from(text: String) -> Damage {
        Damage(Arc::new(Facts { text, pages: None, is_placed: false, is_unreadable: false }))
    }
}

impl From<&str> for Damage {
    fn from(text: &str) -> Damage {
        text.to_owned().into()
    }
}

/// A page, or a run of pages, that is known to be damaged since the store was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The first page.
    pub page: PageId,
    /// How many.
    pub pages: u32,
    /// The tree that it belongs to, by name.
    pub tree: String,
    /// What is wrong with it, and which keys it concerns.
    pub why: String,
}

/// See the file's essay.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// By first page.
    entries: RwLock<BTreeMap<PageId, Quarantined>>,
    /// Pages of all entries, so that who asks need not lock.
    pages: AtomicU64,
}

impl Quarantine {
    /// Notes a page; whether it was new.
    pub(crate) fn note(&self, entry: Quarantined) -> bool {
        let mut entries = self.entries.write();
        if entries.contains_key(&entry.page) {
            return false;
        }
        let Quarantined { page, pages, tree, why } = &entry;
        if entries.len() < TOLD_MAX {
            tracing::error!(%page, pages, tree, why, "damaged and set aside; `terrace repair` says what can be done");
        } else if entries.len() == TOLD_MAX {
            tracing::error!("many pages are damaged; no more of them are told one by one");
        }
        self.pages.fetch_add(u64::from(*pages), Ordering::Release);
        entries.insert(*page, entry);
        true
    }

    /// Whether something of a run is damaged.
    pub(crate) fn holds(&self, first: PageId, pages: u32) -> bool {
        if self.pages.load(Ordering::Acquire) == 0 {
            return false;
        }
        let entries = self.entries.read();
        let before = entries.range(..=first).next_back().is_some_and(|(page, entry)| page.0 + entry.pages > first.0);
        before || entries.range(first..PageId(first.0 + pages)).next().is_some()
    }

    /// All of them, in the order of their pages.
    pub(crate) fn list(&self) -> Vec<Quarantined> {
        self.entries.read().values().cloned().collect()
    }

    /// Pages of all entries.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Forgets all: what they held is repaired or given up.
    pub(crate) fn clear(&self) {
        let mut entries = self.entries.write();
        entries.clear();
        self.pages.store(0, Ordering::Release);
    }
}

/// A key for people: as text where it is one, else its bytes; cut where it is long.
pub(crate) fn shown(key: &[u8]) -> String {
    const LONG: usize = 40;
    let text = match std::str::from_utf8(key) {
        Ok(text) if !text.is_empty() && !text.chars().any(char::is_control) => format!("'{text}'"),
        _ => format!("0x{}", key.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    };
    match text.char_indices().nth(LONG) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// Keys from `low` to `high`, for people.
pub(crate) fn range_shown(low: &[u8], high: &[u8]) -> String {
    match (low, high) {
        ([], []) => "all its keys".to_owned(),
        ([], high) => format!("keys before {}", shown(high)),
        (low, []) => format!("keys from {} on", shown(low)),
        (low, high) => format!("keys from {} to {}", shown(low), shown(high)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(page: u32, pages: u32) -> Quarantined {
        Quarantined { page: PageId(page), pages, tree: "t".into(), why: "torn".into() }
    }

    #[test]
    fn a_run_is_held_where_any_page_of_it_is_damaged_and_each_is_noted_once() {
        let quarantine = Quarantine::default();
        assert!(!quarantine.holds(PageId(0), 100));
        assert!(quarantine.note(entry(10, 4)) && quarantine.note(entry(20, 1)));
        assert!(!quarantine.note(entry(10, 4)), "a second time");
        for (first, pages, held) in
            [(9, 1, false), (9, 2, true), (13, 1, true), (14, 6, false), (14, 7, true), (21, 9, false)]
        {
            assert_eq!(quarantine.holds(PageId(first), pages), held, "{first}+{pages}");
        }
        assert_eq!((quarantine.pages(), quarantine.list().len()), (5, 2));
        quarantine.clear();
        assert!(!quarantine.holds(PageId(10), 4) && quarantine.pages() == 0);
    }

    #[test]
    fn keys_are_shown_as_text_or_as_bytes_and_never_raw() {
        assert_eq!(
            (shown(b"id-7").as_str(), shown(b"\x1b]0;").as_str(), shown(b"").as_str()),
            ("'id-7'", "0x1b5d303b", "0x")
        );
        assert_eq!(range_shown(b"", b"m"), "keys before 'm'");
        assert!(shown(&[b'x'; 500]).len() < 50);
    }
}
