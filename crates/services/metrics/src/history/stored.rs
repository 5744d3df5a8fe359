//! [`HistoryStore`]: the rings in a tree of the node's store.
//!
//! ```text
//!   `n` + number                    the name of a series, and when it was seen last, as JSON; at most NAMES_MAX
//!   `p` + ring + interval           a row; big-endian, so that a ring lies in the order of time
//! ```
//!
//! Invariants: a row is whole or absent; a ring has no more rows than intervals, once a row was written; a coarser row is made from the
//! stored rows of the next finer ring, so that a crash loses none of it; a clock that was set back or ahead leaves no row that stays.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use store::{Cursor, Direction, Snapshot, Store, StoreError, Transaction, TreeId};

use super::rows::{Gathering, HistoryPoint, HistoryRange, RINGS, Row, Summary, encode, points};

/// The tree.
const TREE: &str = "node.history";

const NAME: u8 = b'n';
const ROW: u8 = b'p';

/// Most names of series that are remembered: of those beyond, the one that was seen least recently is forgotten, with its points.
const NAMES_MAX: usize = 1_000;

/// Most bytes of a name.
const NAME_BYTES_MAX: usize = 200;

/// Rows that are removed with each one that is written: more than come.
const REMOVED_MAX: usize = 16;

/// So long after it was noted before that a series was seen, it is noted again, microseconds: a day.
const SEEN_US: i64 = 86_400_000_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct KnownSeries {
    name: String,
    seen_us: i64,
}

/// A series, and when it was seen last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeriesInfo {
    /// Its name.
    pub name: String,
    /// Microseconds since 1970, to a day.
    pub seen_us: i64,
}

#[derive(Debug, Clone, Default)]
struct Names {
    by_number: BTreeMap<u32, KnownSeries>,
    by_name: BTreeMap<String, u32>,
    last: u32,
}

/// See the module's text.
#[derive(Debug)]
pub struct HistoryStore {
    store: Store,
    /// Held while a row is written.
    writing: Mutex<()>,
    /// Names as they are stored. Who asks for them waits for no medium: it is held for moments.
    names: Mutex<Names>,
}

fn row_key(ring: usize, interval: i64) -> Vec<u8> {
    // Before 1970 there are no rows.
    let interval = u64::try_from(interval).unwrap_or(0);
    [&[ROW, u8::try_from(ring).unwrap_or(u8::MAX)][..], &interval.to_be_bytes()].concat()
}

fn interval_of(key: &[u8]) -> Option<i64> {
    i64::try_from(u64::from_be_bytes(key.get(2..)?.try_into().ok()?)).ok()
}

fn name_key(number: u32) -> Vec<u8> {
    [&[NAME][..], &number.to_be_bytes()].concat()
}

/// What both a snapshot and a transaction can do.
trait Reads {
    fn rows(&self, tree: TreeId, from: &[u8], to: &[u8], direction: Direction) -> Cursor;
}

impl Reads for Snapshot {
    fn rows(&self, tree: TreeId, from: &[u8], to: &[u8], direction: Direction) -> Cursor {
        self.scan(tree, Bound::Included(from), Bound::Included(to), direction)
    }
}

impl Reads for Transaction {
    fn rows(&self, tree: TreeId, from: &[u8], to: &[u8], direction: Direction) -> Cursor {
        self.scan(tree, Bound::Included(from), Bound::Included(to), direction)
    }
}

/// Rows of a ring from one interval to another, in the order of time.
fn rows_between(of: &impl Reads, tree: TreeId, ring: usize, (from, to): (i64, i64)) -> Cursor {
    of.rows(tree, &row_key(ring, from), &row_key(ring, to), Direction::Forward)
}

/// The newest interval of a ring that is stored.
fn newest(of: &impl Reads, tree: TreeId, ring: usize) -> Result<Option<i64>, StoreError> {
    let mut rows = of.rows(tree, &row_key(ring, 0), &row_key(ring, i64::MAX), Direction::Backward);
    Ok(rows.next_key()?.and_then(|(key, _)| interval_of(&key)))
}

impl HistoryStore {
    /// In this store. Nothing is written before the first row.
    ///
    /// # Errors
    /// The store's.
    pub fn open(store: Store) -> Result<HistoryStore, StoreError> {
        let mut names = Names::default();
        let snapshot = store.snapshot();
        if let Some(tree) = snapshot.tree(TREE)? {
            let mut rows = snapshot.rows(tree, &name_key(0), &name_key(u32::MAX), Direction::Forward);
            while let Some((key, bytes)) = rows.next()? {
                let number = key.get(1..).and_then(|number| Some(u32::from_be_bytes(number.try_into().ok()?)));
                let Some((number, known)) = number.zip(serde_json::from_slice::<KnownSeries>(&bytes).ok()) else {
                    continue;
                };
                names.last = names.last.max(number);
                names.by_name.insert(known.name.clone(), number);
                names.by_number.insert(number, known);
            }
        }
        Ok(HistoryStore { store, writing: Mutex::default(), names: Mutex::new(names) })
    }

    /// The series that there are, by name.
    pub fn series(&self) -> Vec<SeriesInfo> {
        let names = self.names.lock();
        let info = |(name, number): (&String, &u32)| {
            let seen_us = names.by_number.get(number).map_or(0, |known| known.seen_us);
            SeriesInfo { name: name.clone(), seen_us }
        };
        names.by_name.iter().map(info).collect()
    }

    /// Writes the values of a moment, microseconds since 1970, and the intervals of coarser rings that are over; durable when it returns.
    ///
    /// # Errors
    /// The store's: nothing was written.
    pub(super) fn write(&self, values: &[(String, f64)], at_us: i64) -> Result<(), StoreError> {
        let _one = self.writing.lock();
        let mut next = self.names.lock().clone();
        let mut transaction = self.store.begin();
        let tree = match transaction.tree(TREE)? {
            Some(tree) => tree,
            None => transaction.create_tree(TREE)?,
        };
        let key = row_key(0, RINGS[0].interval(at_us));
        // A node that was restarted within an interval adds to what it wrote before.
        let mut row: Row = transaction.get(tree, &key)?.map(|bytes| points(&bytes).collect()).unwrap_or_default();
        for (name, value) in values.iter().filter(|(name, _)| name.len() <= NAME_BYTES_MAX) {
            let number = known(&mut transaction, tree, &mut next, (name, at_us))?;
            let value = *value as f32;
            row.insert(number, Summary { mean: value, least: value, most: value });
        }
        transaction.put(tree, &key, &encode(&row))?;
        for ring in 1..RINGS.len() {
            roll_up(&mut transaction, tree, ring, at_us)?;
        }
        for ring in 0..RINGS.len() {
            remove_old(&mut transaction, tree, ring, at_us)?;
        }
        transaction.commit()?;
        *self.names.lock() = next;
        Ok(())
    }

    /// The points of a series within a range before a moment, microseconds since 1970, in their order; the last one may be of an interval
    /// that is not over. `None`: there is no such series.
    ///
    /// # Errors
    /// The store's.
    pub fn points(
        &self,
        series: &str,
        range: HistoryRange,
        now_us: i64,
    ) -> Result<Option<Vec<HistoryPoint>>, StoreError> {
        let Some(number) = self.names.lock().by_name.get(series).copied() else { return Ok(None) };
        let snapshot = self.store.snapshot();
        let Some(tree) = snapshot.tree(TREE)? else { return Ok(Some(Vec::new())) };
        let (ring, seconds) = range.ring();
        let from_us = now_us.saturating_sub(seconds * 1_000_000);
        let mut all = BTreeMap::new();
        collect(&snapshot, tree, (ring, from_us, now_us), &|number_of| number_of == number, &mut all)?;
        let of = |(interval, row): (i64, Row)| Some(row.get(&number)?.at(RINGS[ring].begin_us(interval)));
        Ok(Some(all.into_iter().filter_map(of).collect()))
    }

    /// The points of some series within a range, by name, as [`points`](HistoryStore::points): each row is read once for all of them. Those
    /// that there are not are left out.
    ///
    /// # Errors
    /// The store's.
    pub fn points_of(
        &self,
        series: &[String],
        range: HistoryRange,
        now_us: i64,
    ) -> Result<Vec<(String, Vec<HistoryPoint>)>, StoreError> {
        let wanted: Vec<(String, u32)> = {
            let names = self.names.lock();
            series.iter().filter_map(|name| Some((name.clone(), *names.by_name.get(name)?))).collect()
        };
        self.of_numbers(wanted, range, now_us)
    }

    /// The points of all series within a range, by name, as [`points`](HistoryStore::points).
    ///
    /// # Errors
    /// The store's.
    pub fn summaries(&self, range: HistoryRange, now_us: i64) -> Result<Vec<(String, Vec<HistoryPoint>)>, StoreError> {
        let names = self.names.lock().by_name.clone();
        self.of_numbers(names.into_iter().collect(), range, now_us)
    }

    fn of_numbers(
        &self,
        wanted: Vec<(String, u32)>,
        range: HistoryRange,
        now_us: i64,
    ) -> Result<Vec<(String, Vec<HistoryPoint>)>, StoreError> {
        let snapshot = self.store.snapshot();
        let Some(tree) = snapshot.tree(TREE)? else { return Ok(Vec::new()) };
        let (ring, seconds) = range.ring();
        let from_us = now_us.saturating_sub(seconds * 1_000_000);
        let numbers: BTreeSet<u32> = wanted.iter().map(|(_, number)| *number).collect();
        let mut all = BTreeMap::new();
        collect(&snapshot, tree, (ring, from_us, now_us), &|number| numbers.contains(&number), &mut all)?;
        let points = |(name, number): (String, u32)| {
            let of = |(interval, row): (&i64, &Row)| Some(row.get(&number)?.at(RINGS[ring].begin_us(*interval)));
            (name, all.iter().filter_map(of).collect())
        };
        Ok(wanted.into_iter().map(points).collect())
    }
}

/// The rows of a ring with the series that are wanted, and those of intervals that are only in finer rings yet.
fn collect(
    snapshot: &Snapshot,
    tree: TreeId,
    (ring, from_us, now_us): (usize, i64, i64),
    wants: &dyn Fn(u32) -> bool,
    all: &mut BTreeMap<i64, Row>,
) -> Result<(), StoreError> {
    let (from, to) = (RINGS[ring].interval(from_us), RINGS[ring].interval(now_us));
    let mut rows = rows_between(snapshot, tree, ring, (from, to));
    while let Some((key, bytes)) = rows.next()? {
        let Some(interval) = interval_of(&key) else { continue };
        all.insert(interval, points(&bytes).filter(|(number, _)| wants(*number)).collect());
    }
    if ring == 0 {
        return Ok(());
    }
    let open = newest(snapshot, tree, ring)?.map_or(from, |newest| (newest + 1).max(from));
    let mut finer = BTreeMap::new();
    collect(snapshot, tree, (ring - 1, RINGS[ring].begin_us(open), now_us), wants, &mut finer)?;
    all.extend(gather(ring, finer));
    Ok(())
}

/// Rows of the next finer ring as rows of this one.
fn gather(ring: usize, finer: impl IntoIterator<Item = (i64, Row)>) -> BTreeMap<i64, Row> {
    let mut gathered: BTreeMap<i64, BTreeMap<u32, Gathering>> = BTreeMap::new();
    for (interval, row) in finer {
        let into = gathered.entry(RINGS[ring].interval(RINGS[ring - 1].begin_us(interval))).or_default();
        for (number, summary) in row {
            into.entry(number).or_default().add(summary);
        }
    }
    let row = |row: BTreeMap<u32, Gathering>| -> Row {
        row.into_iter().filter_map(|(number, gathering)| Some((number, gathering.summary()?))).collect()
    };
    gathered.into_iter().map(|(interval, of)| (interval, row(of))).collect()
}

/// The number of a series, which may be a new one.
fn known(
    transaction: &mut Transaction,
    tree: TreeId,
    names: &mut Names,
    (name, at_us): (&str, i64),
) -> Result<u32, StoreError> {
    let number = match names.by_name.get(name) {
        Some(number) => *number,
        None => {
            if names.by_number.len() >= NAMES_MAX {
                forget(transaction, tree, names)?;
            }
            names.last += 1;
            names.last
        }
    };
    let is_noted = names.by_number.get(&number).is_some_and(|known| (known.seen_us - at_us).abs() < SEEN_US);
    if !is_noted {
        let known = KnownSeries { name: name.to_owned(), seen_us: at_us };
        let bytes = serde_json::to_vec(&known).expect("plain data becomes JSON");
        transaction.put(tree, &name_key(number), &bytes)?;
        names.by_name.insert(name.to_owned(), number);
        names.by_number.insert(number, known);
    }
    Ok(number)
}

/// Forgets the series that was seen least recently. Its number is not used again, so that its points are nobody's.
fn forget(transaction: &mut Transaction, tree: TreeId, names: &mut Names) -> Result<(), StoreError> {
    // The last number stays: after a restart the next one is the one behind it.
    let others = names.by_number.iter().filter(|(number, _)| **number != names.last);
    let oldest = others.min_by_key(|(_, known)| known.seen_us).map(|(number, _)| *number);
    if let Some(known) = oldest.and_then(|number| names.by_number.remove(&number)) {
        names.by_name.remove(&known.name);
    }
    if let Some(number) = oldest {
        transaction.delete(tree, &name_key(number))?;
    }
    Ok(())
}

/// Makes the rows of a ring for intervals that are over, from those of the next finer one.
fn roll_up(transaction: &mut Transaction, tree: TreeId, ring: usize, at_us: i64) -> Result<(), StoreError> {
    let (this, finer) = (RINGS[ring], RINGS[ring - 1]);
    let is_now = this.interval(at_us);
    // Of a clock that was ahead there may be later ones: they go with the old rows.
    let begin = newest(transaction, tree, ring)?
        .filter(|newest| *newest < is_now)
        .map_or(is_now - this.intervals, |newest| newest + 1);
    if begin >= is_now {
        return Ok(());
    }
    let from = finer.interval(this.begin_us(begin));
    let to = finer.interval(this.begin_us(is_now)) - 1;
    let mut over = Vec::new();
    let mut rows = rows_between(transaction, tree, ring - 1, (from.max(0), to.max(0)));
    while let Some((key, bytes)) = rows.next()? {
        over.extend(interval_of(&key).map(|interval| (interval, points(&bytes).collect::<Row>())));
    }
    drop(rows);
    for (interval, row) in gather(ring, over) {
        let key = row_key(ring, interval);
        if transaction.get(tree, &key)?.is_none() {
            transaction.put(tree, &key, &encode(&row))?;
        }
    }
    Ok(())
}

/// Removes rows of a ring that are too old, or of a time that has not come.
fn remove_old(transaction: &mut Transaction, tree: TreeId, ring: usize, at_us: i64) -> Result<(), StoreError> {
    let is_now = RINGS[ring].interval(at_us);
    let oldest = is_now - RINGS[ring].intervals + 1;
    for (from, to) in [(0, oldest - 1), (is_now + 1, i64::MAX)] {
        if to < from {
            continue;
        }
        let mut rows = rows_between(transaction, tree, ring, (from, to));
        let mut keys = Vec::new();
        while let (true, Some((key, _))) = (keys.len() < REMOVED_MAX, rows.next_key()?) {
            keys.push(key);
        }
        drop(rows);
        keys.iter().try_for_each(|key| transaction.delete(tree, key))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
