//! Retention of the audit: the oldest entries go when they are too old, or when there are more bytes than are to be kept.
//!
//! ```text
//!   1 2 3 | 4 5 6 7 8 ...                  entries 1 to 3 shall go
//!   ... 8, entry 9 "audit.remove 3:HASH"    durable first
//!   anchor 3:HASH, 4 5 6 7 8 9              then one transaction: the anchor, and the rows away
//! ```
//!
//! A crash between the two leaves an entry that confirms nothing yet; the next pass writes another one. The newest entry always
//! stays. Where nothing is set, nothing is ever removed. What cannot be read is reported, and goes with the entries around it.

use std::ops::Bound;
use std::time::Duration;

use store::{Direction, StoreError};

use super::chain::REMOVED;
use super::entry::AuditEntry;
use super::reading::next;
use super::record::{AuditHead, ChainedEntry, EntryHash};
use super::rows::{encode_anchor, entry_key};
use super::writing::{Audit, OldDamage, RoomFor};
use crate::error::NodeError;

/// Entries that one transaction removes: some 40 KB of its record.
pub(super) const PER_TRANSACTION: usize = 4_096;

/// A pass begins when the oldest entry has been too old for so long: otherwise each entry that leaves would write one.
const AGE_SLACK: Duration = Duration::from_secs(3_600);

/// The part of the bytes to be kept that there may be too many, for the same reason.
const BYTES_SLACK: u64 = 32;

impl Audit {
    /// Removes what need not be kept, at `now_us` by a trusted clock; `stop` ends it between transactions. Also looks whether
    /// there is room again. Returns how many entries were removed. It blocks.
    ///
    /// # Errors
    /// The store's, and `Audit` where the entry about it is refused; what was removed before stays removed.
    pub fn tend(&self, now_us: i64, stop: &dyn Fn() -> bool) -> Result<u64, NodeError> {
        let removed = self.remove_due(now_us, stop);
        self.look_for_room();
        removed
    }

    fn remove_due(&self, now_us: i64, stop: &dyn Fn() -> bool) -> Result<u64, NodeError> {
        let mut removed = 0;
        let (mut slack, mut ahead_of) = (true, 0);
        while !stop() {
            let Some((last, bytes)) = self.due(now_us, slack, &mut ahead_of)? else { break };
            let gone = self.remove(last, bytes)?;
            removed += gone;
            slack = false;
            if gone < PER_TRANSACTION as u64 {
                break;
            }
        }
        Ok(removed)
    }

    /// The newest of the entries that shall go with the next transaction, and the bytes of all up to it, ever. `ahead_of`: entries before
    /// this one are known to go; it is moved to the first that goes behind more entries of a clock that was ahead than one transaction removes.
    fn due(&self, now_us: i64, slack: bool, ahead_of: &mut u64) -> Result<Option<(AuditHead, u64)>, StoreError> {
        let (Some(tree), settings) = (self.tree, self.settings) else { return Ok(None) };
        if settings.keep.is_none() && settings.keep_bytes.is_none() {
            return Ok(None);
        }
        let (kept, removed, newest) = {
            let state = self.lock();
            (self.bytes_of(&state), state.removed, state.head.number)
        };
        let excess = settings.keep_bytes.map_or(0, |keep| kept.saturating_sub(keep));
        let is_much = excess > settings.keep_bytes.filter(|_| slack).map_or(0, |keep| keep / BYTES_SLACK);
        let cut_us = |slack: Duration| {
            let age = settings.keep.map(|keep| keep.saturating_add(slack).as_micros());
            age.map_or(0, |age| u128::try_from(now_us).unwrap_or(0).saturating_sub(age))
        };
        let (begins_us, cut_us) = (cut_us(if slack { AGE_SLACK } else { Duration::ZERO }), cut_us(Duration::ZERO));
        if settings.keep.is_none() && !is_much {
            return Ok(None);
        }
        let first = entry_key(1);
        let snapshot = self.store().snapshot();
        let mut cursor = snapshot.scan(tree, Bound::Included(&first), Bound::Unbounded, Direction::Forward);
        let (mut due, mut damage, mut readable, mut bound) = (None, OldDamage::default(), 0, None);
        while readable < PER_TRANSACTION || due.is_none() {
            let Some((number, row)) = next(&mut cursor, &mut |why| damage.add(why))? else { break };
            if number >= newest {
                break;
            }
            let Some(entry) = ChainedEntry::decode(&row) else {
                damage.row(number);
                continue;
            };
            readable += 1;
            let end = entry.bytes_before.saturating_add(row.len() as u64);
            let too_many = is_much && end.saturating_sub(removed) <= excess;
            let is_old = u128::from(entry.time_us) < if due.is_none() { begins_us } else { cut_us };
            let too_old = is_old || number < *ahead_of;
            // By a clock that was ahead then: it is as old as what follows it, and does not keep that.
            let is_ahead = i64::try_from(entry.time_us).map_or(true, |time_us| time_us > now_us);
            if !too_many && !too_old && is_ahead {
                if readable == PER_TRANSACTION {
                    bound = Some((AuditHead { number, hash: EntryHash::of(&row) }, end));
                }
                continue;
            }
            if !too_many && !too_old {
                break;
            }
            if due.is_none() && bound.is_some() {
                *ahead_of = number;
                due = bound.take();
                break;
            }
            due = Some((AuditHead { number, hash: EntryHash::of(&row) }, end));
        }
        self.set_damaged(damage.report());
        Ok(due)
    }

    /// Removes all entries up to one, which is confirmed first.
    fn remove(&self, last: AuditHead, bytes: u64) -> Result<u64, NodeError> {
        let Some(tree) = self.tree else { return Ok(0) };
        let ticket = self.append(AuditEntry::new(REMOVED, last.to_string()), RoomFor::Retention)?;
        self.wait(ticket)?;
        let mut transaction = self.store().begin();
        let (first, end) = (entry_key(1), entry_key(last.number));
        let (first, end) = (Bound::Included(&first[..]), Bound::Included(&end[..]));
        let mut keys = Vec::new();
        let mut cursor = transaction.scan(tree, first, end, Direction::Forward);
        loop {
            match cursor.next_key() {
                Ok(Some((key, _))) => keys.push(key),
                Ok(None) => break,
                // Keys in a part that cannot be read are not known, and stay in it.
                Err(StoreError::Corrupt(_)) => drop(cursor.skip_damage()?),
                Err(error) => return Err(error.into()),
            }
        }
        for key in &keys {
            transaction.delete(tree, key)?;
        }
        transaction.put(tree, &entry_key(0), &encode_anchor(last))?;
        transaction.commit()?;
        self.set_removed(bytes);
        Ok(keys.len() as u64)
    }
}
