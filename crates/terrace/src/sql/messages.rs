//! `hl7.messages`: the message history as a table, one row for each object: a message as received, and each of its outputs.
//!
//! ```text
//!   id | object | direction | interface | transform | status | reason | control_id | mrn | type | received_at | body
//!        0 in, from 1 out                                               of the message as received       text, see below
//! ```
//!
//! Conditions on `control_id`, `mrn`, `type` and `received_at` are answered from the engine's indexes; everything else
//! walks over the messages in the order in which they came. All rows are of the query's one snapshot.
//!
//! `body` is text: bytes that are not UTF-8 are shown as the replacement character, because a column of text has to be
//! text; the bytes themselves are what `terrace message show` prints. `received_at` has no zone: it is UTC.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use interop::InteropError;
use interop::rows::read::{ByText, ByTime};
use interop::rows::{Reader, search};
use sql::arrow::array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray,
};
use sql::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use sql::{ColumnBound, Relation, ScalarValue, ScanRequest, SqlError};
use store::{Direction, Snapshot};

const CONTROL: usize = 7;
const MRN: usize = 8;
const TYPE: usize = 9;
const RECEIVED: usize = 10;
const BODY: usize = 11;

/// The relation.
#[derive(Debug)]
pub struct Messages {
    schema: SchemaRef,
}

impl Default for Messages {
    fn default() -> Messages {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let fields = vec![
            Field::new("id", DataType::Int64, false),
            Field::new("object", DataType::Int32, false),
            text("direction"),
            text("interface"),
            text("transform"),
            text("status"),
            text("reason"),
            text("control_id"),
            text("mrn"),
            text("type"),
            Field::new("received_at", DataType::Timestamp(TimeUnit::Microsecond, None), false),
            text("body"),
        ];
        Messages { schema: Arc::new(Schema::new(fields)) }
    }
}

/// One object.
struct Row {
    id: i64,
    object: i32,
    direction: &'static str,
    interface: String,
    transform: Option<String>,
    status: String,
    reason: Option<String>,
    control_id: Option<String>,
    mrn: Option<String>,
    kind: Option<String>,
    received_us: i64,
    body: Option<String>,
}

/// Ids, from an index or in the order of time.
enum Ids {
    Text(ByText),
    Time(ByTime),
}

impl Ids {
    fn of(reader: &Reader, bounds: &[ColumnBound]) -> Ids {
        let trees = reader.trees();
        for (column, tree) in [(CONTROL, trees.by_control), (MRN, trees.by_mrn), (TYPE, trees.by_type)] {
            if let Some(text) = bounds.iter().find(|bound| bound.column == column).and_then(equal_text) {
                return Ids::Text(reader.by_text(tree, text, Direction::Forward));
            }
        }
        let received = bounds.iter().find(|bound| bound.column == RECEIVED);
        let since = received.and_then(|bound| micros(&bound.from));
        // The index ends before its bound: one microsecond more takes an inclusive one in; what is too much is checked again.
        let until = received.and_then(|bound| micros(&bound.to)).map(|at| at.saturating_add(1));
        Ids::Time(reader.by_time(since, until, Direction::Forward))
    }

    fn next(&mut self) -> Result<Option<u64>, InteropError> {
        match self {
            Ids::Text(ids) => ids.next(),
            Ids::Time(ids) => Ok(ids.next()?.map(|(_, id, _)| id)),
        }
    }
}

fn equal_text(bound: &ColumnBound) -> Option<&str> {
    match (&bound.from, &bound.to) {
        (Bound::Included(ScalarValue::Utf8(Some(from))), Bound::Included(ScalarValue::Utf8(Some(to))))
            if from == to =>
        {
            Some(from)
        }
        _ => None,
    }
}

fn micros(bound: &Bound<ScalarValue>) -> Option<i64> {
    match bound {
        Bound::Included(ScalarValue::TimestampMicrosecond(at, _))
        | Bound::Excluded(ScalarValue::TimestampMicrosecond(at, _)) => *at,
        _ => None,
    }
}

impl Relation for Messages {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn scan(
        &self,
        snapshot: &Snapshot,
        request: &ScanRequest,
    ) -> Result<Box<dyn Iterator<Item = Result<RecordBatch, SqlError>> + Send>, SqlError> {
        let reader = Reader::at(snapshot.clone());
        let ids = Ids::of(&reader, &request.bounds);
        let schema = Arc::new(self.schema.project(&request.projection)?);
        let left = request.limit.unwrap_or(usize::MAX);
        let walk = Walk {
            reader,
            ids,
            schema,
            projection: request.projection.clone(),
            batch: request.batch_rows.max(1),
            left,
        };
        Ok(Box::new(walk))
    }
}

/// A walk over messages, a batch at a time.
struct Walk {
    reader: Reader,
    ids: Ids,
    schema: SchemaRef,
    projection: Vec<usize>,
    batch: usize,
    /// Rows that are still wanted.
    left: usize,
}

impl Iterator for Walk {
    type Item = Result<RecordBatch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rows = Vec::new();
        while rows.len() < self.batch.min(self.left) {
            match self.ids.next().and_then(|id| id.map_or(Ok(false), |id| self.message(id, &mut rows).map(|()| true))) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.left = 0;
                    return Some(Err(read_error(error)));
                }
            }
        }
        self.left -= rows.len().min(self.left);
        (!rows.is_empty()).then(|| self.columns(&rows))
    }
}

fn read_error(error: InteropError) -> SqlError {
    match error {
        InteropError::Store(error) => error.into(),
        other => store::StoreError::Corrupt(other.to_string().into()).into(),
    }
}

impl Walk {
    fn wants(&self, column: usize) -> bool {
        self.projection.contains(&column)
    }

    /// Adds a message with its outputs.
    fn message(&self, id: u64, rows: &mut Vec<Row>) -> Result<(), InteropError> {
        let Some((stored, outputs)) = self.reader.inbound(id)? else { return Ok(()) };
        let keys = if [CONTROL, MRN, TYPE].into_iter().any(|column| self.wants(column)) {
            keys(&stored.raw)
        } else {
            [None, None, None]
        };
        let [control_id, mrn, kind] = keys;
        let body = |bytes: &Bytes| self.wants(BODY).then(|| String::from_utf8_lossy(bytes).into_owned());
        let id_text = i64::try_from(id).unwrap_or(i64::MAX);
        rows.push(Row {
            id: id_text,
            object: 0,
            direction: "in",
            interface: stored.service.clone(),
            transform: None,
            status: format!("{:?}", stored.status).to_lowercase(),
            reason: Some(stored.reason.clone()),
            control_id: control_id.clone(),
            mrn: mrn.clone(),
            kind: kind.clone(),
            received_us: stored.received_us,
            body: body(&stored.raw),
        });
        let fates = if outputs > 0 { self.reader.fates(id)? } else { Vec::new() };
        for n in 0..outputs {
            let output = self.reader.output(id, n, &stored.raw)?;
            let fate = fates.iter().find(|fate| fate.output == n);
            rows.push(Row {
                id: id_text,
                object: i32::from(n) + 1,
                direction: "out",
                interface: output.operation,
                transform: (!output.transform.is_empty()).then_some(output.transform),
                status: fate.map_or("waiting".to_owned(), |fate| format!("{:?}", fate.fate).to_lowercase()),
                reason: fate.map(|fate| fate.note.clone()),
                control_id: control_id.clone(),
                mrn: mrn.clone(),
                kind: kind.clone(),
                received_us: stored.received_us,
                body: body(&output.body),
            });
        }
        Ok(())
    }

    fn columns(&self, rows: &[Row]) -> Result<RecordBatch, SqlError> {
        let text =
            |of: &dyn Fn(&Row) -> Option<String>| Arc::new(rows.iter().map(of).collect::<StringArray>()) as ArrayRef;
        let column = |position: &usize| -> ArrayRef {
            match *position {
                0 => Arc::new(rows.iter().map(|row| row.id).collect::<Int64Array>()),
                1 => Arc::new(rows.iter().map(|row| row.object).collect::<Int32Array>()),
                2 => text(&|row| Some(row.direction.to_owned())),
                3 => text(&|row| Some(row.interface.clone())),
                4 => text(&|row| row.transform.clone()),
                5 => text(&|row| Some(row.status.clone())),
                6 => text(&|row| row.reason.clone()),
                CONTROL => text(&|row| row.control_id.clone()),
                MRN => text(&|row| row.mrn.clone()),
                TYPE => text(&|row| row.kind.clone()),
                RECEIVED => {
                    Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.received_us)))
                }
                BODY => text(&|row| row.body.clone()),
                other => panic!("the relation has no column {other}"),
            }
        };
        let columns = self.projection.iter().map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// Control id, first medical record number and type of a message; nothing of what is no message.
fn keys(raw: &[u8]) -> [Option<String>; 3] {
    let mut keys = [None, None, None];
    if let Ok(message) = hl7::Message::parse(raw) {
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
