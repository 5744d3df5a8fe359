//! Checks the chain: whether every entry is there, in its order, as it was written.
//!
//! ```text
//!   anchor --> entry n+1 --> entry n+2 --> ... --> head          each entry names the hash of the one before
//!
//!   a number is missing                        deleted, or cut out
//!   a row has the entry of another number      reordered, or copied over
//!   an entry names another hash                the one before it was changed, or one was put in
//!   an entry that a given head names is gone   the tail was cut off, or an older backup restored
//!   nothing confirms the anchor                the beginning was cut off without retention
//! ```
//!
//! A function of the rows alone, without I/O. What it cannot find by itself: a newest part that was cut off or written anew as
//! a whole. For that a head has to be kept elsewhere, and given.

use serde::{Deserialize, Serialize};

use super::record::{AuditHead, ChainedEntry, EntryHash};

/// Action of the entry that confirms an anchor: its object is the anchor.
pub const REMOVED: &str = "audit.remove";
/// Action of the entry that a restore writes.
pub const RESTORED: &str = "node.restore";

/// Problems listed; more are counted.
const LISTED_MAX: usize = 20;

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainReport {
    /// Entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The newest entry that retention removed.
    pub anchor: Option<AuditHead>,
    /// The newest entry; the anchor, or number 0, where there is none.
    pub head: AuditHead,
    /// Given heads that are older than what is kept, so that they cannot be compared.
    pub unchecked: Vec<AuditHead>,
    /// The numbers of the entries that restores wrote.
    pub restored: Vec<u64>,
    /// The problems; the first ones as text.
    pub problems: Vec<String>,
    /// How much is wrong.
    pub wrong: u64,
}

impl ChainReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.wrong == 0
    }

    fn problem(&mut self, text: impl FnOnce() -> String) {
        self.wrong += 1;
        if self.problems.len() < LISTED_MAX {
            self.problems.push(text());
        }
    }
}

/// A check under way.
#[derive(Debug)]
pub struct ChainCheck {
    report: ChainReport,
    heads: Vec<AuditHead>,
    /// Bytes of all entries up to the newest, as the entries count them; none before the first, and behind a gap.
    total: Option<u64>,
    confirmed: bool,
}

impl ChainCheck {
    /// Begins behind `anchor`; `heads` are those that were kept elsewhere.
    pub fn new(anchor: Option<AuditHead>, heads: &[AuditHead]) -> ChainCheck {
        let head = anchor.unwrap_or_default();
        let total = anchor.is_none().then_some(0);
        let mut check = ChainCheck {
            report: ChainReport { anchor, head, ..ChainReport::default() },
            heads: heads.to_vec(),
            total,
            confirmed: false,
        };
        check.compare();
        check
    }

    /// Compares the given heads with the newest entry.
    fn compare(&mut self) {
        let head = self.report.head;
        let differs = |given: &&AuditHead| given.number == head.number && given.hash != head.hash;
        if self.heads.iter().any(|given| differs(&given)) {
            self.report.problem(|| format!("entry {} is not the one that the given head names", head.number));
        }
    }

    /// The next row, in the order of keys.
    pub fn row(&mut self, key: u64, value: &[u8]) {
        let hash = EntryHash::of(value);
        let (last, is_first) = (self.report.head, self.report.entries == 0);
        let expected = last.number.saturating_add(1);
        if key > expected {
            let missing = if key - 1 == expected {
                format!("entry {expected} is")
            } else {
                format!("entries {expected} to {} are", key - 1)
            };
            self.report.problem(|| format!("{missing} missing"));
        }
        if key < expected {
            self.report.problem(|| format!("entry {key} is there, and was removed or came before"));
        }
        match ChainedEntry::decode(value) {
            None => {
                self.report.problem(|| format!("entry {key} cannot be read: it was changed"));
                self.total = None;
            }
            Some(entry) if entry.number != key => {
                self.report.problem(|| format!("in place of entry {key} there is entry {}", entry.number));
                self.total = None;
            }
            Some(entry) => {
                if key == expected && entry.previous != last.hash {
                    let before = if is_first && last.number == 0 {
                        "the beginning".to_owned()
                    } else {
                        format!("entry {}", last.number)
                    };
                    self.report.problem(|| {
                        format!("entry {key} does not follow {before} as it is now: one of them was changed")
                    });
                }
                if key == expected && self.total.is_some_and(|total| total != entry.bytes_before) {
                    self.report.problem(|| format!("entry {key} counts other bytes before it than there are"));
                }
                self.total = Some(entry.bytes_before.saturating_add(value.len() as u64));
                self.confirmed |= entry.entry.action == REMOVED
                    && self.report.anchor.is_some_and(|anchor| anchor.to_string() == entry.entry.object);
                if entry.entry.action == RESTORED {
                    self.report.restored.push(key);
                }
            }
        }
        self.report.entries += 1;
        self.report.bytes += value.len() as u64;
        self.report.head = AuditHead { number: key, hash };
        self.compare();
    }

    /// A row or a part of the tree that cannot be read.
    pub fn damaged(&mut self, why: impl std::fmt::Display) {
        self.report.problem(|| format!("damaged: {why}"));
    }

    /// The result.
    pub fn finish(mut self) -> ChainReport {
        let (head, anchor) = (self.report.head, self.report.anchor);
        if let Some(anchor) = anchor.filter(|_| !self.confirmed) {
            self.report.problem(|| {
                format!("no entry confirms that the entries up to {} were removed by retention", anchor.number)
            });
        }
        let kept_from = anchor.map_or(0, |anchor| anchor.number);
        for given in std::mem::take(&mut self.heads) {
            if given.number > head.number {
                let restored = self
                    .report
                    .restored
                    .last()
                    .map(|at| format!("; entry {at} says that a backup was restored"))
                    .unwrap_or_default();
                self.report.problem(|| {
                    format!("the audit ends at entry {}, and the given head is entry {}: what is behind it was cut off, or an older backup restored{restored}", head.number, given.number)
                });
            } else if given.number < kept_from {
                self.report.unchecked.push(given);
            }
        }
        self.report
    }
}

/// Checks all rows, ascending.
pub fn verify<T: AsRef<[u8]>>(
    anchor: Option<AuditHead>,
    heads: &[AuditHead],
    rows: impl IntoIterator<Item = (u64, T)>,
) -> ChainReport {
    let mut check = ChainCheck::new(anchor, heads);
    rows.into_iter().for_each(|(key, value)| check.row(key, value.as_ref()));
    check.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::entry::AuditEntry;

    type Rows = Vec<(u64, Vec<u8>)>;

    fn head_of((key, value): &(u64, Vec<u8>)) -> AuditHead {
        AuditHead { number: *key, hash: EntryHash::of(value) }
    }

    /// Entries 1 to `count`; `action` names each.
    fn chain(count: u64, action: impl Fn(u64, &Rows) -> AuditEntry) -> Rows {
        let (mut rows, mut bytes_before) = (Rows::new(), 0);
        for number in 1..=count {
            let previous = rows.last().map(|row| head_of(row).hash).unwrap_or_default();
            let entry = action(number, &rows);
            let value = ChainedEntry { number, time_us: number, bytes_before, previous, cut: false, entry }.encode();
            bytes_before += value.len() as u64;
            rows.push((number, value));
        }
        rows
    }

    fn plain(count: u64) -> Rows {
        chain(count, |number, _| AuditEntry::new("message.body", format!("message {number}")))
    }

    fn found(rows: &Rows) -> Vec<String> {
        verify(None, &[], rows.iter().map(|(key, value)| (*key, value))).problems
    }

    #[test]
    fn a_whole_chain_is_sound_and_its_head_is_that_of_its_newest_entry() {
        let rows = plain(50);
        let heads: Vec<AuditHead> = rows.iter().map(head_of).collect();
        let report = verify(None, &heads, rows.clone());
        assert!(report.is_sound(), "{report:?}");
        assert_eq!((report.entries, report.head), (50, heads[49]));
        assert_eq!(report.bytes, rows.iter().map(|(_, value)| value.len() as u64).sum::<u64>());
        assert!(verify::<Vec<u8>>(None, &[], []).is_sound());
    }

    #[test]
    fn an_entry_that_was_deleted_is_missing_at_every_place_but_the_end() {
        for at in 0..19 {
            let mut rows = plain(20);
            rows.remove(at);
            assert_eq!(found(&rows), [format!("entry {} is missing", at + 1)]);
        }
        let mut rows = plain(20);
        rows.drain(3..8);
        assert_eq!(found(&rows), ["entries 4 to 8 are missing"]);
    }

    #[test]
    fn two_entries_that_change_places_are_found_whether_they_are_numbered_anew_or_not() {
        let mut rows = plain(20);
        let (one, other) = (rows[4].1.clone(), rows[9].1.clone());
        (rows[4].1, rows[9].1) = (other, one);
        assert_eq!(found(&rows)[0], "in place of entry 5 there is entry 10");
        for at in [4, 9] {
            let mut entry = ChainedEntry::decode(&rows[at].1).expect("it is one");
            entry.number = at as u64 + 1;
            rows[at].1 = entry.encode();
        }
        assert!(!found(&rows).is_empty());
    }

    #[test]
    fn any_change_of_an_entry_is_found_at_the_one_after_it() {
        let rows = plain(5);
        for bit in 0..rows[2].1.len() * 8 {
            let mut changed = rows.clone();
            changed[2].1[bit / 8] ^= 1 << (bit % 8);
            assert!(!found(&changed).is_empty(), "bit {bit}");
        }
    }

    #[test]
    fn an_entry_that_was_put_in_is_found_even_if_all_later_ones_are_numbered_anew() {
        let mut rows = plain(10);
        let mut forged = ChainedEntry::decode(&rows[4].1).expect("it is one");
        forged.entry.object = "message 1".to_owned();
        rows.insert(4, (5, forged.encode()));
        for (number, (key, value)) in (1..).zip(rows.iter_mut()) {
            let mut entry = ChainedEntry::decode(value).expect("it is one");
            (*key, entry.number) = (number, number);
            *value = entry.encode();
        }
        assert!(!found(&rows).is_empty());
    }

    #[test]
    fn a_tail_that_was_cut_off_or_written_anew_is_found_against_a_head_kept_elsewhere_and_only_so() {
        let rows = plain(20);
        let kept = head_of(&rows[19]);
        let cut = verify(None, &[kept], rows[..15].to_vec());
        assert!(cut.problems[0].contains("ends at entry 15, and the given head is entry 20"), "{cut:?}");
        assert!(verify(None, &[], rows[..15].to_vec()).is_sound(), "by itself it cannot be seen");
        let anew = chain(25, |number, _| AuditEntry::new("x", number.to_string()));
        assert_eq!(verify(None, &[kept], anew).problems, ["entry 20 is not the one that the given head names"]);
        assert!(!verify::<Vec<u8>>(None, &[kept], []).is_sound(), "all of it is gone");
    }

    #[test]
    fn a_beginning_that_retention_removed_is_confirmed_by_an_entry_and_any_other_is_not() {
        let rows = chain(20, |number, rows| match number {
            12 => AuditEntry::new(REMOVED, head_of(&rows[6]).to_string()),
            _ => AuditEntry::new("message.body", number.to_string()),
        });
        let (anchor, old) = (head_of(&rows[6]), head_of(&rows[2]));
        let kept = verify(Some(anchor), &[old, anchor], rows[7..].to_vec());
        assert!(kept.is_sound() && kept.unchecked == [old], "{kept:?}");
        let forged = head_of(&rows[8]);
        let problems = verify(Some(forged), &[], rows[9..].to_vec()).problems;
        assert_eq!(problems, ["no entry confirms that the entries up to 9 were removed by retention"]);
        assert_eq!(found(&rows[7..].to_vec())[0], "entries 1 to 7 are missing");
        let back = verify(Some(anchor), &[], rows[6..].to_vec());
        assert_eq!(back.problems, ["entry 7 is there, and was removed or came before"]);
    }

    #[test]
    fn a_restore_is_named_where_a_head_is_newer_than_what_is_there() {
        let rows = plain(20);
        let restored = chain(16, |number, _| match number {
            16 => AuditEntry::new(RESTORED, "backup"),
            _ => AuditEntry::new("message.body", format!("message {number}")),
        });
        let report = verify(None, &[head_of(&rows[19]), head_of(&rows[10])], restored);
        assert_eq!((report.restored, report.wrong), (vec![16], 1));
        assert!(report.problems[0].ends_with("entry 16 says that a backup was restored"));
    }
}
