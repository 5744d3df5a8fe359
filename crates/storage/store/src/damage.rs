//! [`Damage`]: what is wrong with stored bytes, and where; and [`Quarantine`], the pages known to be damaged.
//!
//! ```text
//!   a page cannot be read, or does not verify      Corrupt, with page and length          cache, page, tree
//!        |  the reader's tree and key are added, and the key range of the page
//!        v
//!   Quarantine: one entry per page, one log line per page      checked by the allocator: such a page is never allocated again
//! ```
//!
//! A reader that arrives too late at a freed page finds other content there: that is not damage. So only code whose
//! error is final makes an entry.
//!
//! All of this is in memory: after a restart a damaged page is found again when it is read again. This module repairs
//! nothing.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::page_id::PageId;

/// How many pages are logged individually; further ones are only counted and kept from being allocated.
const TOLD_MAX: usize = 1000;

/// A description of what is wrong, and the affected pages, if any. `Display` gives the description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage(Arc<Facts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    text: String,
    /// The first page, and how many.
    pages: Option<(PageId, u32)>,
    /// The text contains the tree and the place.
    is_placed: bool,
    /// The medium cannot read it, and takes long to report that.
    is_unreadable: bool,
}

impl Damage {
    /// Damage of pages.
    pub(crate) fn of(first: PageId, pages: u32, text: impl Display) -> Damage {
        let text = text.to_string();
        Damage(Arc::new(Facts { text, pages: Some((first, pages)), is_placed: false, is_unreadable: false }))
    }

    /// Damage of pages that the medium cannot read.
    pub(crate) fn unreadable(first: PageId, pages: u32, text: impl Display) -> Damage {
        Damage(Arc::new(Facts { is_unreadable: true, ..Facts::clone(&Damage::of(first, pages, text).0) }))
    }

    /// Whether the medium cannot read it.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.0.is_unreadable
    }

    /// The affected pages: the first, and how many. `None` if it concerns something else.
    pub fn pages(&self) -> Option<(PageId, u32)> {
        self.0.pages
    }

    /// Whether the text contains the tree, and the place on the medium.
    pub(crate) fn is_placed(&self) -> bool {
        self.0.is_placed
    }

    /// The same damage with another text.
    pub(crate) fn said(&self, text: impl Display) -> Damage {
        Damage(Arc::new(Facts { text: text.to_string(), ..Facts::clone(&self.0) }))
    }

    /// The same damage with a text that contains everything known about its place.
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

/// A page, or a run of pages, that was found to be damaged since the store was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The first page.
    pub page: PageId,
    /// How many.
    pub pages: u32,
    /// The name of the tree that it belongs to.
    pub tree: String,
    /// What is wrong with it, and the affected keys.
    pub why: String,
}

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// Indexed by first page.
    entries: RwLock<BTreeMap<PageId, Quarantined>>,
    /// Number of pages of all entries, so that readers need no lock.
    pages: AtomicU64,
}

impl Quarantine {
    /// Adds an entry; returns whether it was new.
    pub(crate) fn note(&self, entry: Quarantined) -> bool {
        let mut entries = self.entries.write();
        if entries.contains_key(&entry.page) {
            return false;
        }
        let Quarantined { page, pages, tree, why } = &entry;
        if entries.len() < TOLD_MAX {
            tracing::error!(%page, pages, tree, why, "damaged and set aside; `terrace repair` shows what can be done");
        } else if entries.len() == TOLD_MAX {
            tracing::error!("many pages are damaged; further ones are not logged individually");
        }
        self.pages.fetch_add(u64::from(*pages), Ordering::Release);
        entries.insert(*page, entry);
        true
    }

    /// Whether a page of a run is damaged.
    pub(crate) fn holds(&self, first: PageId, pages: u32) -> bool {
        if self.pages.load(Ordering::Acquire) == 0 {
            return false;
        }
        let entries = self.entries.read();
        let before = entries.range(..=first).next_back().is_some_and(|(page, entry)| page.0 + entry.pages > first.0);
        before || entries.range(first..PageId(first.0 + pages)).next().is_some()
    }

    /// All entries, in page order.
    pub(crate) fn list(&self) -> Vec<Quarantined> {
        self.entries.read().values().cloned().collect()
    }

    /// Pages of all entries.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Removes all entries: the damage is repaired or its content given up.
    pub(crate) fn clear(&self) {
        let mut entries = self.entries.write();
        entries.clear();
        self.pages.store(0, Ordering::Release);
    }
}

/// A key for display: as text if it is text, else as bytes; shortened if it is long.
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

/// The keys from `low` to `high`, for display.
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
