//! The common part of the tables of the message history: which messages a query needs, and the walk over them.
//!
//! ```text
//!   bounds  id =                              that one
//!           control_id, mrn, status, type, interface =  the engine's index of it
//!           received_at <, =, >               the index by time, from there to there
//!           anything else                     all of it, in the order in which messages came, read leaf by leaf
//! ```
//!
//! If a query needs only the time, the requested type and the number of rows, they are made from the index alone:
//! counting messages reads no message.
//!
//! Rows are made of one message after the other, at the query's one snapshot, a batch at a time. A bound only reduces
//! the reading; the query checks the rows again. All messages are read in parts, which the partitions of a scan share
//! ([`SharedParts`]).

#[cfg(test)]
mod masked_ways;
#[cfg(test)]
pub(super) mod tests;

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use hl7::mask::Masker;
use interop::InteropError;
use interop::record::Status;
use interop::record::search::TEXT_BYTES_MAX;
use interop::rows::read::{ById, ByText, ByTime};
use interop::rows::{Brief, PartedWalk, ReadMessage, Reader, SharedParts, Wanted};
use node::audit::{Audit, Reads};
use sql::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use sql::arrow::datatypes::{Field, Schema, SchemaRef};
use sql::{ColumnBound, ScalarValue, ScanRequest, SqlError, VirtualRows, VirtualScan, VirtualTable};
use store::{Direction, ReadAhead, Snapshot, TreeId};

use super::rights::{self, ScanRights};

/// Columns by which messages are found, as positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) id: usize,
    pub(super) interface: usize,
    pub(super) control: usize,
    pub(super) mrn: usize,
    pub(super) kind: usize,
    pub(super) received: usize,
    /// If the table has it: the decision on a message, or the outcome of an output.
    pub(super) status: Option<usize>,
}

impl Keys {
    /// The columns that have values of a message, and their paths in it.
    fn paths(self) -> [(usize, &'static str); 3] {
        [(self.mrn, "PID-3.1"), (self.control, "MSH-10"), (self.kind, "MSH-9")]
    }
}

/// One table: the rows of a message, and their columns.
pub(super) trait Table: std::fmt::Debug + Send + Sync + 'static {
    /// A row.
    type Row: Send;
    /// Where the keys are.
    const KEYS: Keys;
    /// Columns that [`brief_rows`](Table::brief_rows) makes, besides that of types if one is requested. Empty: none,
    /// and each message is read.
    const BRIEF: &'static [usize] = &[];

    /// Columns with what is in messages.
    const BODIES: &'static [usize];
    /// Columns that no mask changes: nothing in them is made of what is in messages. The others may be.
    const OUTSIDE: &'static [usize] = &[];
    /// Whether every row tells what is in a message.
    const IS_BODY: bool = false;
    /// Its name in schema `hl7`.
    const NAME: &'static str;

    /// The columns.
    fn fields() -> Vec<Field>;

    /// Adds the rows of a message if only such columns are requested, from its values in an index.
    fn brief_rows(_: &Scan, id: u64, _: Brief, _: &mut Vec<Self::Row>) {
        unreachable!("message {id}: this table makes no rows of an index");
    }

    /// The parts that rows are made from besides a message as received. Provided: none.
    fn wanted(_: &Scan) -> Wanted {
        Wanted::default()
    }

    /// Whether rows are made from a message's keys. Provided: they may be.
    fn wants_keys(_: &Scan) -> bool {
        true
    }

    /// Adds the rows of a message.
    fn rows(scan: &Scan, message: ReadMessage, rows: &mut Vec<Self::Row>);

    /// Bytes of a row's values, where they may be many.
    fn row_bytes(row: &Self::Row) -> usize;

    /// A column of rows.
    fn column(position: usize, rows: &[Self::Row]) -> ArrayRef;
}

/// The largest number of messages that are looked up together: about as many as 1 MiB holds.
const LOOKUPS_MAX: usize = 256;

/// The largest number of partitions of a scan: their parts must fit together into the share of the page cache that scans may take.
const PARTITIONS_MAX: usize = 4;

/// A table as a relation.
#[derive(Debug)]
pub(super) struct History<T> {
    schema: SchemaRef,
    audit: Option<Arc<Audit>>,
    masker: Arc<Masker>,
    table: std::marker::PhantomData<T>,
}

impl<T: Table> History<T> {
    /// What callers read is recorded in `audit`, and masked by `masker` where they may not see it otherwise.
    pub(super) fn new(audit: Option<&Arc<Audit>>, masker: &Arc<Masker>) -> History<T> {
        let schema = Arc::new(Schema::new(T::fields()));
        History { schema, audit: audit.cloned(), masker: Arc::clone(masker), table: std::marker::PhantomData }
    }
}

/// The request of a query, at its snapshot.
pub(super) struct Scan {
    pub(super) reader: Reader,
    projection: Vec<usize>,
    /// Those that an index may be asked for.
    bounds: Vec<ColumnBound>,
    /// `None`: all rows, as they are.
    rights: Option<ScanRights>,
}

impl Scan {
    /// Whether the rows of a service's messages are there.
    fn may(&self, service: &str) -> Result<bool, SqlError> {
        self.rights.as_ref().map_or(Ok(true), |rights| rights.may(service))
    }

    pub(super) fn wants(&self, column: usize) -> bool {
        self.projection.contains(&column)
    }

    /// Whether a mask could change any of its columns.
    fn shows_messages<T: Table>(&self) -> bool {
        let bound = self.bounds.iter().map(|bound| bound.column);
        T::IS_BODY || self.projection.iter().copied().chain(bound).any(|column| !T::OUTSIDE.contains(&column))
    }

    /// Whether a column must equal this.
    pub(super) fn is_only(&self, column: usize, value: &ScalarValue) -> bool {
        equal(&self.bounds, column) == Some(value)
    }

    /// The text that a column must equal, if one.
    pub(super) fn text(&self, column: usize) -> Option<&str> {
        text(&self.bounds, column)
    }
}

/// The text that a column must equal, if one.
fn text(bounds: &[ColumnBound], column: usize) -> Option<&str> {
    equal(bounds, column).and_then(|value| match value {
        ScalarValue::Utf8(text) => text.as_deref(),
        _ => None,
    })
}

/// The value that a column must equal, if one.
fn equal(bounds: &[ColumnBound], column: usize) -> Option<&ScalarValue> {
    bounds.iter().filter(|bound| bound.column == column).find_map(|bound| match (&bound.from, &bound.to) {
        (Bound::Included(from), Bound::Included(to)) if from == to => Some(from),
        _ => None,
    })
}

/// Whether no index is of use, so that all messages are read. `is_brief`: the values of an index are enough.
fn reads_all(bounds: &[ColumnBound], keys: Keys, is_brief: bool) -> bool {
    let is_text = |column| matches!(equal(bounds, column), Some(ScalarValue::Utf8(Some(_))));
    let of_state = keys.status.and_then(|status| text(bounds, status)).is_some_and(has_index);
    let is_one = matches!(equal(bounds, keys.id), Some(ScalarValue::Int64(Some(_))));
    let is_timed = |bound: &ColumnBound| micros(&bound.from).is_some() || micros(&bound.to).is_some();
    let is_timed = bounds.iter().any(|bound| bound.column == keys.received && is_timed(bound));
    let by_text = [keys.control, keys.mrn, keys.kind, keys.interface].into_iter().any(is_text);
    !(is_brief || is_one || is_timed || by_text || of_state)
}

/// An index, and which messages it has.
enum Found {
    One(Option<u64>),
    Text(ByText),
    State(ById),
    Time(ByTime),
}

/// Ids from an index. Their messages are looked up some at a time, so that they are read together.
struct Lookups {
    found: Found,
    /// Found and not looked up yet, in the order of the index.
    ids: VecDeque<u64>,
    /// How many of them are loaded.
    loaded: usize,
    /// How many were requested last. The next time it is twice as many, so that few are loaded in vain.
    last: usize,
    ahead: ReadAhead,
}

impl Lookups {
    fn new(found: Found) -> Lookups {
        Lookups { found, ids: VecDeque::new(), loaded: 0, last: 0, ahead: ReadAhead::default() }
    }

    /// The next message. It is loaded together with those after it.
    fn next(&mut self, reader: &Reader, wanted: Wanted) -> Result<Option<ReadMessage>, InteropError> {
        loop {
            if self.ids.is_empty() {
                self.last = (2 * self.last).clamp(1, LOOKUPS_MAX);
                self.loaded = 0;
                while self.ids.len() < self.last
                    && let Some((id, _)) = self.found.next()?
                {
                    self.ids.push_back(id);
                }
            }
            if self.loaded == 0 && self.ids.len() > 1 {
                self.load(reader, wanted);
            }
            let Some(id) = self.ids.pop_front() else { return Ok(None) };
            self.loaded = self.loaded.saturating_sub(1);
            // An index entry without its message is damage, which a check reports.
            if let Some(message) = reader.read(id, wanted)? {
                return Ok(Some(message));
            }
        }
    }

    fn load(&mut self, reader: &Reader, wanted: Wanted) {
        let mut ids: Vec<u64> = self.ids.iter().copied().collect();
        let is_in_order = ids.is_sorted();
        ids.sort_unstable();
        let loaded = reader.load(&ids, wanted, &mut self.ahead);
        // In the index by time, neighbours may be out of order: then those that are not loaded are read one by one.
        self.loaded = if is_in_order { loaded } else { ids.len() };
    }
}

/// Where the rows of a walk come from.
enum Source {
    /// The values of an index.
    Brief(Found),
    /// Messages that an index has.
    Lookups(Lookups),
    /// All messages, or a part of them.
    All(PartedWalk),
}

impl Found {
    /// By the index that narrows most, else that by time.
    fn of(scan: &Scan, keys: Keys) -> Found {
        if let Some(ScalarValue::Int64(Some(id))) = equal(&scan.bounds, keys.id) {
            return Found::One(u64::try_from(*id).ok());
        }
        let (reader, trees) = (&scan.reader, scan.reader.trees());
        let by_text = |indexes: [(usize, TreeId); 2]| {
            let found = indexes.into_iter().find_map(|(column, tree)| Some((tree, scan.text(column)?)));
            found.map(|(tree, text)| Found::Text(reader.by_text(tree, text, Direction::Forward)))
        };
        let few = by_text([(keys.control, trees.by_control), (keys.mrn, trees.by_mrn)]);
        let few = few.or_else(|| by_state(reader, scan.text(keys.status?)?).map(Found::State));
        let many = || by_text([(keys.kind, trees.by_type), (keys.interface, trees.by_interface)]);
        if let Some(ids) = few.or_else(many) {
            return ids;
        }
        let received = scan.bounds.iter().filter(|bound| bound.column == keys.received);
        let since = received.clone().filter_map(|bound| micros(&bound.from)).max();
        // The index ends before its bound: one microsecond more takes an inclusive one in.
        let until = received.filter_map(|bound| micros(&bound.to)).min().map(|at| at.saturating_add(1));
        Found::Time(reader.by_time(since, until, Direction::Forward))
    }

    /// The next message's id, and its value in the index, if the index has one.
    fn next(&mut self) -> Result<Option<(u64, Option<Brief>)>, InteropError> {
        Ok(match self {
            Found::One(id) => id.take().map(|id| (id, None)),
            Found::Text(ids) => ids.next_entry()?.map(|(id, value)| (id, Brief::decode(&value))),
            Found::State(ids) => ids.next()?.map(|id| (id, None)),
            Found::Time(ids) => ids
                .next()?
                .map(|(received_us, id, summary)| (id, Some(Brief { received_us, outputs: summary.outputs }))),
        })
    }
}

/// Decisions that few messages have, by name.
const FEW: [(&str, Status); 4] = [
    ("dropped", Status::Dropped),
    ("unmatched", Status::Unmatched),
    ("rejected", Status::Rejected),
    ("errored", Status::Errored),
];

/// Whether there is an index of the messages of which one row has this status.
fn has_index(status: &str) -> bool {
    matches!(status, "failed" | "set-aside" | "waiting") || FEW.iter().any(|(name, _)| *name == status)
}

/// Messages of which one row has this status, where few have it.
fn by_state(reader: &Reader, status: &str) -> Option<ById> {
    match status {
        "failed" => Some(reader.with_failed_output(Direction::Forward)),
        "set-aside" => Some(reader.with_set_aside_output(Direction::Forward)),
        "waiting" => Some(reader.with_waiting_output(Direction::Forward)),
        _ => FEW.iter().find(|(name, _)| *name == status).and_then(|(_, of)| reader.by_status(*of, Direction::Forward)),
    }
}

fn micros(bound: &Bound<ScalarValue>) -> Option<i64> {
    match bound {
        Bound::Included(ScalarValue::TimestampMicrosecond(at, _))
        | Bound::Excluded(ScalarValue::TimestampMicrosecond(at, _)) => *at,
        _ => None,
    }
}

impl<T: Table> VirtualTable for History<T> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn partitions(&self, request: &ScanRequest, most: usize) -> usize {
        if reads_all(&request.bounds, T::KEYS, is_brief::<T>(request, &request.bounds)) {
            most.min(PARTITIONS_MAX)
        } else {
            1
        }
    }

    fn scan(&self, snapshot: &Snapshot, request: &ScanRequest) -> Result<Arc<dyn VirtualScan>, SqlError> {
        let (projection, bounds) = (request.projection.clone(), &request.bounds);
        let schema = Arc::new(self.schema.project(&projection)?);
        let is_body = |column: &usize| T::BODIES.contains(column);
        let reads_bodies =
            T::IS_BODY || projection.iter().any(is_body) || bounds.iter().any(|bound| is_body(&bound.column));
        let rights = ScanRights::of(request, reads_bodies, T::NAME, (self.audit.clone(), Arc::clone(&self.masker)))?;
        let bounds = rights.as_ref().map_or_else(|| bounds.clone(), |rights| rights.bounds(bounds, &T::KEYS.paths()));
        let is_brief = is_brief::<T>(request, &bounds);
        if is_brief {
            rights.as_ref().into_iter().for_each(ScanRights::keep_all);
        }
        let scan = Arc::new(Scan { reader: Reader::at(snapshot.clone()), projection, bounds, rights });
        let wanted = T::wanted(&scan);
        let all = reads_all(&scan.bounds, T::KEYS, is_brief);
        let all = all.then(|| SharedParts::new(&scan.reader, wanted, request.partitions));
        Ok(Arc::new(HistoryScan::<T> {
            scan,
            schema,
            is_brief,
            wanted,
            all,
            batch_rows: request.batch_rows.max(1),
            batch_bytes: request.batch_bytes.max(1),
            // Rows that do not fit the bounds are not counted, and not known here.
            limit: request.limit.filter(|_| request.bounds.is_empty()).unwrap_or(usize::MAX),
            table: std::marker::PhantomData,
        }))
    }
}

/// Whether an index contains all requested columns.
fn is_brief<T: Table>(request: &ScanRequest, bounds: &[ColumnBound]) -> bool {
    // A text that the index may have cut is not known from it.
    let one_type = text(bounds, T::KEYS.kind).is_some_and(|text| text.len() < TEXT_BYTES_MAX);
    let is_brief = |column: &usize| T::BRIEF.contains(column) || *column == T::KEYS.kind && one_type;
    !T::BRIEF.is_empty() && rights::has_all(request.identity.as_ref()) && request.projection.iter().all(is_brief)
}

/// A scan in progress.
struct HistoryScan<T> {
    scan: Arc<Scan>,
    schema: SchemaRef,
    is_brief: bool,
    wanted: Wanted,
    /// Where all messages are read: their parts.
    all: Option<Arc<SharedParts>>,
    batch_rows: usize,
    batch_bytes: usize,
    limit: usize,
    table: std::marker::PhantomData<T>,
}

impl<T: Table> VirtualScan for HistoryScan<T> {
    fn rows(&self, partition: usize) -> VirtualRows {
        let index = || if partition == 0 { Found::of(&self.scan, T::KEYS) } else { Found::One(None) };
        let source = match &self.all {
            Some(parts) => Source::All(parts.walk(partition)),
            None if self.is_brief => Source::Brief(index()),
            None => Source::Lookups(Lookups::new(index())),
        };
        Box::new(Walk::<T> {
            scan: Arc::clone(&self.scan),
            source,
            wanted: self.wanted,
            shows_messages: self.scan.shows_messages::<T>(),
            wants_keys: T::wants_keys(&self.scan),
            schema: Arc::clone(&self.schema),
            batch_rows: self.batch_rows,
            batch_bytes: self.batch_bytes,
            left: self.limit,
            rows: Vec::new(),
            reads: Reads::default(),
            has_more: true,
        })
    }
}

/// A walk over messages, a batch at a time.
struct Walk<T: Table> {
    scan: Arc<Scan>,
    source: Source,
    wanted: Wanted,
    /// Whether a mask could change any of them.
    shows_messages: bool,
    wants_keys: bool,
    schema: SchemaRef,
    batch_rows: usize,
    batch_bytes: usize,
    /// Rows that are still wanted.
    left: usize,
    rows: Vec<T::Row>,
    /// The messages of these rows.
    reads: Reads,
    /// Whether the source has not ended.
    has_more: bool,
}

impl<T: Table> Walk<T> {
    /// Adds the rows of the next message; no where there is none.
    fn add_next(&mut self) -> Result<bool, SqlError> {
        let Some(message) = self.next_message().map_err(read_error)? else { return Ok(self.has_more) };
        let (scan, rows) = (&*self.scan, &mut self.rows);
        if scan.may(&message.stored.service)? {
            let (ReadMessage { id, stored, outcomes }, before) = (message, rows.len());
            let stored = match &scan.rights {
                Some(rights) if self.shows_messages => rights.seen(stored, self.wants_keys),
                _ => stored,
            };
            T::rows(scan, ReadMessage { id, stored, outcomes }, rows);
            if rows.len() > before {
                self.reads.push(id);
            }
        }
        Ok(true)
    }

    /// The next message to make rows of; `None` if its rows were made of an index, or there is none.
    fn next_message(&mut self) -> Result<Option<ReadMessage>, InteropError> {
        let (scan, rows) = (&*self.scan, &mut self.rows);
        self.has_more = true;
        let message = match &mut self.source {
            Source::Brief(found) => match found.next()? {
                Some((id, Some(brief))) => {
                    T::brief_rows(scan, id, brief, rows);
                    return Ok(None);
                }
                Some((id, None)) => match scan.reader.read(id, self.wanted)? {
                    None => return Ok(None),
                    message => message,
                },
                None => None,
            },
            Source::Lookups(lookups) => lookups.next(&scan.reader, self.wanted)?,
            Source::All(messages) => messages.next()?,
        };
        self.has_more = message.is_some();
        Ok(message)
    }
}

impl<T: Table> Iterator for Walk<T> {
    type Item = Result<RecordBatch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.clear();
        let mut bytes = 0;
        while self.rows.len() < self.batch_rows.min(self.left) && bytes < self.batch_bytes {
            let before = self.rows.len();
            match self.add_next() {
                Ok(true) => bytes += self.rows[before..].iter().map(T::row_bytes).sum::<usize>(),
                Ok(false) => break,
                Err(error) => {
                    self.left = 0;
                    return Some(Err(error));
                }
            }
        }
        self.left -= self.rows.len().min(self.left);
        let reads = std::mem::take(&mut self.reads);
        if let Some(Err(error)) = self.scan.rights.as_ref().map(|rights| rights.read(reads)) {
            self.left = 0;
            return Some(Err(error));
        }
        let batch = (!self.rows.is_empty()).then(|| {
            let columns = self.scan.projection.iter().map(|position| T::column(*position, &self.rows)).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
        });
        // They keep their places in the page cache: free them before the next batch is requested.
        self.rows.clear();
        batch
    }
}

fn read_error(error: InteropError) -> SqlError {
    match error {
        InteropError::Store(error) => error.into(),
        other => store::StoreError::Corrupt(other.to_string().into()).into(),
    }
}
