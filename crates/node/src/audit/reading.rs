//! Reads entries: those that match a filter, page by page, and the whole chain.
//!
//! Anything that cannot be read is named among the entries; it does not end the reading.

use std::ops::Bound;

use serde::{Deserialize, Serialize};
use store::{Cursor, Direction, Snapshot, StoreError, TreeId};

use super::chain::{ChainCheck, ChainReport};
use super::entry::{ActorKind, AuditOutcome};
use super::record::{AuditHead, ChainedEntry, EntryHash};
use super::rows::{AUDIT_TREE, decode_anchor, entry_key, number_of_key};

/// Entries of one page at most.
pub const PAGE_ENTRIES: usize = 1_000;

/// Entries that are looked at for one page at most.
const PAGE_LOOKS: usize = 50_000;

/// Which entries are wanted; every given condition must hold.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditFilter {
    /// Written at or after, microseconds since 1970.
    pub since_us: Option<i64>,
    /// Written before, microseconds since 1970.
    pub until_us: Option<i64>,
    /// Only by the actor of this name, or `uid:N`.
    pub actor: Option<String>,
    /// Only of this action, or of those that begin with it and a point: `message` for `message.body`.
    pub action: Option<String>,
    /// Only about this object.
    pub object: Option<String>,
    /// Only the reads of this message.
    pub message: Option<u64>,
    /// Only with this outcome.
    pub outcome: Option<AuditOutcome>,
}

impl AuditFilter {
    /// Whether an entry is wanted.
    pub fn matches(&self, chained: &ChainedEntry) -> bool {
        let (time_us, entry) = (i64::try_from(chained.time_us).unwrap_or(i64::MAX), &chained.entry);
        let is_actor = |wanted: &String| {
            let of_uid = wanted.strip_prefix("uid:").and_then(|uid| uid.parse().ok());
            entry.actor.name == *wanted
                || of_uid.is_some_and(|uid| entry.actor.kind == ActorKind::Local && entry.actor.id == Some(uid))
                || (entry.actor.kind == ActorKind::Node && wanted == "node")
        };
        let is_action = |wanted: &String| {
            let rest = entry.action.strip_prefix(wanted.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let reads = |id: u64| entry.reads.ranges.iter().any(|(first, last)| *first <= id && id <= *last);
        self.since_us.is_none_or(|since| time_us >= since)
            && self.until_us.is_none_or(|until| time_us < until)
            && self.actor.as_ref().is_none_or(is_actor)
            && self.action.as_ref().is_none_or(is_action)
            && self.object.as_ref().is_none_or(|object| entry.object == *object)
            && self.message.is_none_or(reads)
            && self.outcome.is_none_or(|outcome| entry.outcome == outcome)
    }
}

/// What a page is of.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditQuery {
    /// Which entries.
    pub filter: AuditFilter,
    /// From the newest back, not from the oldest on.
    pub newest_first: bool,
    /// The number to begin with; none: the oldest or the newest.
    pub from: Option<u64>,
    /// Entries of the page; 0, and more than [`PAGE_ENTRIES`]: as many as that.
    pub limit: usize,
}

/// An entry as it is shown: with its own hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownEntry {
    /// The SHA-256 of its record.
    pub hash: EntryHash,
    /// The entry.
    #[serde(flatten)]
    pub chained: ChainedEntry,
}

/// A page.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// The entries, in the order that was asked for.
    pub entries: Vec<ShownEntry>,
    /// Where the next page begins; none where there is none.
    pub next: Option<u64>,
    /// What cannot be read.
    pub damaged: Vec<String>,
}

/// The audit at one moment.
#[derive(Debug, Clone)]
pub struct AuditReader {
    snapshot: Snapshot,
    tree: Option<TreeId>,
}

/// The next row, past what cannot be read.
pub(super) fn next(
    cursor: &mut Cursor,
    damaged: &mut dyn FnMut(&str),
) -> Result<Option<(u64, bytes::Bytes)>, StoreError> {
    loop {
        match cursor.next() {
            Ok(Some((key, row))) => match number_of_key(&key) {
                Some(number) => return Ok(Some((number, row))),
                None => damaged("a key of the audit cannot be read"),
            },
            Ok(None) => return Ok(None),
            Err(StoreError::Corrupt(why)) => {
                damaged(&why);
                // None: the row alone cannot be read, as its value in another page, and the walk is behind it.
                cursor.skip_damage()?;
            }
            Err(error) => return Err(error),
        }
    }
}

impl AuditReader {
    /// What a snapshot sees; nothing where the store has no audit yet.
    ///
    /// # Errors
    /// The store's.
    pub fn at(snapshot: Snapshot) -> Result<AuditReader, StoreError> {
        let tree = snapshot.tree(AUDIT_TREE)?;
        Ok(AuditReader { snapshot, tree })
    }

    /// The entries of a page.
    ///
    /// # Errors
    /// The store's.
    pub fn page(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        let mut page = AuditPage::default();
        let Some(tree) = self.tree else { return Ok(page) };
        let (first, last) = match (query.newest_first, query.from) {
            (true, from) => (1, from.unwrap_or(u64::MAX)),
            (false, from) => (from.unwrap_or(1).max(1), u64::MAX),
        };
        let direction = if query.newest_first { Direction::Backward } else { Direction::Forward };
        let (first, last) = (entry_key(first), entry_key(last));
        let bounds = (Bound::Included(&first[..]), Bound::Included(&last[..]));
        let mut cursor = self.snapshot.scan(tree, bounds.0, bounds.1, direction);
        let limit = if query.limit == 0 { PAGE_ENTRIES } else { query.limit.min(PAGE_ENTRIES) };
        let mut looks = 0;
        let damaged = &mut page.damaged;
        while let Some((number, row)) = next(&mut cursor, &mut |why| damaged.push(why.to_owned()))? {
            if page.entries.len() == limit || looks == PAGE_LOOKS {
                page.next = Some(number);
                break;
            }
            looks += 1;
            match ChainedEntry::decode(&row) {
                Some(chained) if query.filter.matches(&chained) => {
                    page.entries.push(ShownEntry { hash: EntryHash::of(&row), chained });
                }
                Some(_) => {}
                None => damaged.push(format!("entry {number} cannot be read: it was changed")),
            }
        }
        Ok(page)
    }

    /// The newest entry; the anchor, or number 0, where there is none.
    ///
    /// # Errors
    /// The store's.
    pub fn head(&self) -> Result<AuditHead, StoreError> {
        let Some(tree) = self.tree else { return Ok(AuditHead::default()) };
        let mut cursor = self.snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
        Ok(cursor.next()?.map_or_else(AuditHead::default, |(key, row)| match number_of_key(&key) {
            Some(0) => decode_anchor(&row).unwrap_or_default(),
            number => AuditHead { number: number.unwrap_or(0), hash: EntryHash::of(&row) },
        }))
    }

    /// Checks the whole chain, against heads that were kept elsewhere.
    ///
    /// # Errors
    /// The store's; damage is a part of the result.
    pub fn verify(&self, heads: &[AuditHead]) -> Result<ChainReport, StoreError> {
        let Some(tree) = self.tree else { return Ok(ChainCheck::new(None, heads).finish()) };
        let mut unreadable = Vec::new();
        let anchor = match self.snapshot.get(tree, &entry_key(0)) {
            Ok(row) => row.map(|row| decode_anchor(&row)),
            Err(StoreError::Corrupt(why)) => {
                unreadable.push(why.to_string());
                None
            }
            Err(error) => return Err(error),
        };
        if anchor == Some(None) {
            unreadable.push("the anchor cannot be read: it was changed".to_owned());
        }
        let mut check = ChainCheck::new(anchor.flatten(), heads);
        unreadable.iter().for_each(|why| check.damaged(why));
        let first = entry_key(1);
        let mut cursor = self.snapshot.scan(tree, Bound::Included(&first), Bound::Unbounded, Direction::Forward);
        let mut damage = Vec::new();
        while let Some((number, row)) = next(&mut cursor, &mut |why| damage.push(why.to_owned()))? {
            damage.drain(..).for_each(|why| check.damaged(why));
            check.row(number, &row);
        }
        damage.drain(..).for_each(|why| check.damaged(why));
        Ok(check.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::entry::{Actor, AuditEntry, Reads};

    #[test]
    fn each_condition_of_a_filter_must_hold() {
        let actor = Actor { kind: ActorKind::Local, id: Some(7), name: "ada".to_owned() };
        let entry = AuditEntry { actor, reads: Reads::one(9), ..AuditEntry::new("message.body", "message 9") };
        let chained = ChainedEntry { number: 1, time_us: 100, entry, ..ChainedEntry::default() };
        let matches = |filter: AuditFilter| filter.matches(&chained);
        let text = |text: &str| Some(text.to_owned());
        assert!(matches(AuditFilter::default()));
        for (filter, holds) in [
            (AuditFilter { since_us: Some(100), until_us: Some(101), ..Default::default() }, true),
            (AuditFilter { since_us: Some(101), ..Default::default() }, false),
            (AuditFilter { until_us: Some(100), ..Default::default() }, false),
            (AuditFilter { actor: text("ada"), action: text("message"), ..Default::default() }, true),
            (AuditFilter { actor: text("uid:7"), action: text("message.body"), ..Default::default() }, true),
            (AuditFilter { actor: text("uid:8"), ..Default::default() }, false),
            (AuditFilter { actor: text("node"), ..Default::default() }, false),
            (AuditFilter { action: text("mess"), ..Default::default() }, false),
            (AuditFilter { object: text("message 9"), message: Some(9), ..Default::default() }, true),
            (AuditFilter { object: text("message 9"), message: Some(8), ..Default::default() }, false),
            (AuditFilter { outcome: Some(AuditOutcome::Refused), ..Default::default() }, false),
        ] {
            assert_eq!(matches(filter.clone()), holds, "{filter:?}");
        }
    }
}
