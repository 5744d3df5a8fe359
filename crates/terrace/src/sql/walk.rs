//! What the tables of the message history have in common: which messages a query needs, and the walk over them.
//!
//! ```text
//!   bounds  id =                              that one
//!           control_id, mrn, status, type, interface =  the engine's index of it
//!           received_at <, =, >               the index by time, from there to there
//!           anything else                     all of it, in the order in which messages came
//! ```
//!
//! Rows of which only the time, the type that was asked for, and how many they are is wanted are made of the index alone: to count
//! messages none is read.
//!
//! Rows are made of one message after the other, at the query's one snapshot, a batch at a time. A bound is only used to read less;
//! the rows that come are checked again by the query.

#[cfg(test)]
mod tests;

use std::ops::Bound;
use std::sync::Arc;

use hl7::Reading;
use hl7::charset::Charset;
use interop::InteropError;
use interop::record::Status;
use interop::rows::read::{ById, ByText, ByTime};
use interop::rows::{Brief, Reader, TEXT_BYTES_MAX, search};
use sql::arrow::array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray,
};
use sql::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use sql::{ColumnBound, Relation, ScalarValue, ScanRequest, SqlError};
use store::{Direction, Snapshot, TreeId};

/// Columns by which messages are found, as positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) id: usize,
    pub(super) interface: usize,
    pub(super) control: usize,
    pub(super) mrn: usize,
    pub(super) kind: usize,
    pub(super) received: usize,
    /// Where the table has it: what was decided of a message, or what became of an output.
    pub(super) status: Option<usize>,
}

/// One table: what rows a message becomes, and what columns the rows have.
pub(super) trait Table: std::fmt::Debug + Send + Sync + 'static {
    /// A row.
    type Row: Send;
    /// Where the keys are.
    const KEYS: Keys;
    /// Columns that [`brief_rows`](Table::brief_rows) makes, beside that of types where one is asked for. Empty: none, and each
    /// message is read.
    const BRIEF: &'static [usize] = &[];

    /// The columns.
    fn fields() -> Vec<Field>;

    /// Adds the rows of a message of which only such columns are wanted, from what an index says of it.
    fn brief_rows(_: &Scan, id: u64, _: Brief, _: &mut Vec<Self::Row>) {
        unreachable!("message {id}: this table makes no rows of an index");
    }

    /// Adds the rows of a message.
    fn rows(scan: &Scan, id: u64, rows: &mut Vec<Self::Row>) -> Result<(), InteropError>;

    /// A column of rows.
    fn column(position: usize, rows: &[Self::Row]) -> ArrayRef;
}

/// A table as a relation.
#[derive(Debug)]
pub(super) struct History<T> {
    schema: SchemaRef,
    table: std::marker::PhantomData<T>,
}

impl<T: Table> Default for History<T> {
    fn default() -> History<T> {
        History { schema: Arc::new(Schema::new(T::fields())), table: std::marker::PhantomData }
    }
}

/// What a query wants, at its snapshot.
pub(super) struct Scan {
    pub(super) reader: Reader,
    projection: Vec<usize>,
    bounds: Vec<ColumnBound>,
}

impl Scan {
    pub(super) fn wants(&self, column: usize) -> bool {
        self.projection.contains(&column)
    }

    /// The text that a column must equal, if one.
    pub(super) fn text(&self, column: usize) -> Option<&str> {
        equal(&self.bounds, column).and_then(|value| match value {
            ScalarValue::Utf8(text) => text.as_deref(),
            _ => None,
        })
    }
}

/// The value that a column must equal, if one.
fn equal(bounds: &[ColumnBound], column: usize) -> Option<&ScalarValue> {
    bounds.iter().filter(|bound| bound.column == column).find_map(|bound| match (&bound.from, &bound.to) {
        (Bound::Included(from), Bound::Included(to)) if from == to => Some(from),
        _ => None,
    })
}

/// Ids of messages, some with what the index says of them.
enum Ids {
    One(Option<u64>),
    Text(ByText),
    State(ById),
    Time(ByTime),
}

impl Ids {
    fn of(scan: &Scan, keys: Keys) -> Ids {
        if let Some(ScalarValue::Int64(Some(id))) = equal(&scan.bounds, keys.id) {
            return Ids::One(u64::try_from(*id).ok());
        }
        let (reader, trees) = (&scan.reader, scan.reader.trees());
        let by_text = |indexes: [(usize, TreeId); 2]| {
            let found = indexes.into_iter().find_map(|(column, tree)| Some((tree, scan.text(column)?)));
            found.map(|(tree, text)| Ids::Text(reader.by_text(tree, text, Direction::Forward)))
        };
        let few = by_text([(keys.control, trees.by_control), (keys.mrn, trees.by_mrn)]);
        let few = few.or_else(|| by_state(reader, scan.text(keys.status?)?).map(Ids::State));
        let many = || by_text([(keys.kind, trees.by_type), (keys.interface, trees.by_interface)]);
        if let Some(ids) = few.or_else(many) {
            return ids;
        }
        let received = scan.bounds.iter().filter(|bound| bound.column == keys.received);
        let since = received.clone().filter_map(|bound| micros(&bound.from)).max();
        // The index ends before its bound: one microsecond more takes an inclusive one in.
        let until = received.filter_map(|bound| micros(&bound.to)).min().map(|at| at.saturating_add(1));
        Ids::Time(reader.by_time(since, until, Direction::Forward))
    }

    /// The next id, and what the index says of it, where it says that.
    fn next(&mut self) -> Result<Option<(u64, Option<Brief>)>, InteropError> {
        Ok(match self {
            Ids::One(id) => id.take().map(|id| (id, None)),
            Ids::Text(ids) => ids.next_entry()?.map(|(id, value)| (id, Brief::decode(&value))),
            Ids::State(ids) => ids.next()?.map(|id| (id, None)),
            Ids::Time(ids) => ids
                .next()?
                .map(|(received_us, id, summary)| (id, Some(Brief { received_us, outputs: summary.outputs }))),
        })
    }
}

/// Messages of which one row has this status, where few have it.
fn by_state(reader: &Reader, status: &str) -> Option<ById> {
    let few = [
        ("dropped", Status::Dropped),
        ("unmatched", Status::Unmatched),
        ("rejected", Status::Rejected),
        ("errored", Status::Errored),
    ];
    match status {
        "failed" => Some(reader.with_failed_output(Direction::Forward)),
        "waiting" => Some(reader.with_waiting_output(Direction::Forward)),
        _ => few.iter().find(|(name, _)| *name == status).and_then(|(_, of)| reader.by_status(*of, Direction::Forward)),
    }
}

fn micros(bound: &Bound<ScalarValue>) -> Option<i64> {
    match bound {
        Bound::Included(ScalarValue::TimestampMicrosecond(at, _))
        | Bound::Excluded(ScalarValue::TimestampMicrosecond(at, _)) => *at,
        _ => None,
    }
}

impl<T: Table> Relation for History<T> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn scan(
        &self,
        snapshot: &Snapshot,
        request: &ScanRequest,
    ) -> Result<Box<dyn Iterator<Item = Result<RecordBatch, SqlError>> + Send>, SqlError> {
        let (projection, bounds) = (request.projection.clone(), request.bounds.clone());
        let scan = Scan { reader: Reader::at(snapshot.clone()), projection, bounds };
        // A text that the index may have cut is not known from it.
        let one_type = scan.text(T::KEYS.kind).is_some_and(|text| text.len() < TEXT_BYTES_MAX);
        let is_brief = |column: &usize| T::BRIEF.contains(column) || *column == T::KEYS.kind && one_type;
        let is_brief = !T::BRIEF.is_empty() && scan.projection.iter().all(is_brief);
        let ids = Ids::of(&scan, T::KEYS);
        Ok(Box::new(Walk::<T> {
            is_brief,
            ids,
            schema: Arc::new(self.schema.project(&request.projection)?),
            batch: request.batch_rows.max(1),
            // Rows that do not fit the bounds are not counted, and not known here.
            left: request.limit.filter(|_| request.bounds.is_empty()).unwrap_or(usize::MAX),
            rows: Vec::new(),
            scan,
        }))
    }
}

/// A walk over messages, a batch at a time.
struct Walk<T: Table> {
    scan: Scan,
    ids: Ids,
    /// Whether an index says all that is wanted.
    is_brief: bool,
    schema: SchemaRef,
    batch: usize,
    /// Rows that are still wanted.
    left: usize,
    rows: Vec<T::Row>,
}

impl<T: Table> Iterator for Walk<T> {
    type Item = Result<RecordBatch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.clear();
        while self.rows.len() < self.batch.min(self.left) {
            let next = self.ids.next();
            let read = |entry: Option<(u64, Option<Brief>)>| match entry {
                Some((id, Some(brief))) if self.is_brief => {
                    T::brief_rows(&self.scan, id, brief, &mut self.rows);
                    Ok(true)
                }
                Some((id, _)) => T::rows(&self.scan, id, &mut self.rows).map(|()| true),
                None => Ok(false),
            };
            match next.and_then(read) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.left = 0;
                    return Some(Err(read_error(error)));
                }
            }
        }
        self.left -= self.rows.len().min(self.left);
        (!self.rows.is_empty()).then(|| {
            let columns = self.scan.projection.iter().map(|position| T::column(*position, &self.rows)).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
        })
    }
}

fn read_error(error: InteropError) -> SqlError {
    match error {
        InteropError::Store(error) => error.into(),
        other => store::StoreError::Corrupt(other.to_string().into()).into(),
    }
}

/// Control id, first medical record number and type of a message; nothing of what is no message.
pub(super) fn search_keys(raw: &[u8], charset: Option<Charset>) -> [Option<String>; 3] {
    let mut keys = [None, None, None];
    if let Ok(message) = Reading::lenient(raw, charset).message() {
        search::texts(&message, |index, text| {
            let key = match index {
                search::Index::Control => &mut keys[0],
                search::Index::Mrn => &mut keys[1],
                search::Index::Type => &mut keys[2],
            };
            key.get_or_insert_with(|| text.to_owned());
        });
    }
    keys
}

/// The message that rows of its content belong to: their first columns.
#[derive(Debug)]
pub(super) struct About {
    id: u64,
    interface: String,
    keys: [Option<String>; 3],
    received_us: i64,
}

/// See [`About::of`].
pub(super) type Found = (Arc<About>, bytes::Bytes, Option<Charset>);

/// How many columns these are.
pub(super) const ABOUT: usize = 6;

/// Where the keys are among them.
pub(super) const ABOUT_KEYS: Keys =
    Keys { id: 0, interface: 1, control: 2, mrn: 3, kind: 4, received: 5, status: None };

impl About {
    /// The columns.
    pub(super) fn fields() -> Vec<Field> {
        vec![
            Field::new("message_id", DataType::Int64, false),
            text_field("interface"),
            text_field("control_id"),
            text_field("mrn"),
            text_field("type"),
            Field::new("received_at", DataType::Timestamp(TimeUnit::Microsecond, None), false),
        ]
    }

    /// A message, its bytes as received and the charset they came in where they declare none; none where there is none of this
    /// id.
    pub(super) fn of(scan: &Scan, id: u64) -> Result<Option<Found>, InteropError> {
        let Some((stored, _)) = scan.reader.inbound(id)? else { return Ok(None) };
        let wants_keys = [ABOUT_KEYS.control, ABOUT_KEYS.mrn, ABOUT_KEYS.kind].into_iter().any(|at| scan.wants(at));
        let keys = if wants_keys { search_keys(&stored.raw, stored.charset) } else { [None, None, None] };
        let about = About { id, interface: stored.service, keys, received_us: stored.received_us };
        Ok(Some((Arc::new(about), stored.raw, stored.charset)))
    }

    /// One of the columns.
    pub(super) fn column<'a>(position: usize, of: impl Iterator<Item = &'a About>) -> ArrayRef {
        match position {
            0 => numbers(of.map(|about| about.id)),
            1 => Arc::new(of.map(|about| Some(about.interface.as_str())).collect::<StringArray>()),
            5 => Arc::new(TimestampMicrosecondArray::from_iter_values(of.map(|about| about.received_us))),
            _ => Arc::new(of.map(|about| about.keys[position - 2].as_deref()).collect::<StringArray>()),
        }
    }
}

/// A column of text that may be NULL.
pub(super) fn text_field(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

/// A column of numbers that may be NULL.
pub(super) fn count_field(name: &str) -> Field {
    Field::new(name, DataType::Int32, true)
}

/// Ids as a column.
pub(super) fn numbers(ids: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(ids.map(|id| i64::try_from(id).unwrap_or(i64::MAX)).collect::<Int64Array>())
}

/// Counts as a column.
pub(super) fn counts(counts: impl Iterator<Item = Option<u32>>) -> ArrayRef {
    Arc::new(counts.map(|count| count.map(|count| i32::try_from(count).unwrap_or(i32::MAX))).collect::<Int32Array>())
}
