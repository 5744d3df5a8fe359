//! `nextval`, `currval`, `lastval` and `setval`, and the value of an identity column.
//!
//! They are volatile: each row gets a value of its own. The name of a sequence is looked up when the call runs, among the
//! names of the statement, and so are the rights of who runs the statement:
//!
//! | function | needs on the sequence |
//! |---|---|
//! | `nextval` | USAGE or UPDATE |
//! | `currval`, `lastval` | USAGE or SELECT |
//! | `setval` | UPDATE |
//! | `identity_value` | nothing: the engine alone calls it, for who may insert into the table |
//!
//! USAGE of a sequence is the right `table-insert` on it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;
use node::identity::Action;

use super::session_catalog::StatementView;
use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::semantics::pg_function::no_function;
use crate::engine::sequences::Sequences;
use crate::table::catalog::PUBLIC;
use crate::table::{Counter, Entry, Sequence};
use crate::text::identifiers::parts;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    Next,
    Current,
    Last,
    Set,
    Identity,
}

impl Which {
    const ALL: [Which; 5] = [Which::Next, Which::Current, Which::Last, Which::Set, Which::Identity];

    fn name(self) -> &'static str {
        match self {
            Which::Next => "nextval",
            Which::Current => "currval",
            Which::Last => "lastval",
            Which::Set => "setval",
            Which::Identity => ast::IDENTITY_VALUE,
        }
    }
}

/// Registers the functions.
pub(crate) fn register(context: &SessionContext, shared: &Arc<StatementView>, sequences: &Arc<Sequences>) {
    for which in Which::ALL {
        let signature = match which {
            Which::Last => Signature::nullary(Volatility::Volatile),
            _ => Signature::user_defined(Volatility::Volatile),
        };
        let (shared, sequences) = (Arc::clone(shared), Arc::clone(sequences));
        context.register_udf(ScalarUDF::from(Call { which, signature, shared, sequences }));
    }
}

struct Call {
    which: Which,
    signature: Signature,
    shared: Arc<StatementView>,
    sequences: Arc<Sequences>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.which.name())
    }
}

// A session has each function once.
impl PartialEq for Call {
    fn eq(&self, other: &Call) -> bool {
        self.which == other.which && Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Call {}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.which.hash(state);
    }
}

impl ScalarUDFImpl for Call {
    fn name(&self) -> &str {
        self.which.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DfResult<Vec<DataType>> {
        let is_text = |kind: &DataType| kind.is_string() || *kind == DataType::Null;
        let is_whole = |kind: &DataType| kind.is_integer() || is_text(kind);
        let fits = match (self.which, arguments) {
            (Which::Next | Which::Current | Which::Identity, [name]) => is_text(name),
            (Which::Set, [name, value]) => is_text(name) && is_whole(value),
            (Which::Set, [name, value, is_called]) => {
                is_text(name) && is_whole(value) && (is_text(is_called) || *is_called == DataType::Boolean)
            }
            _ => false,
        };
        if !fits {
            return Err(no_function(self.which.name(), arguments).into());
        }
        Ok([DataType::Utf8, DataType::Int64, DataType::Boolean].into_iter().take(arguments.len()).collect())
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays = arguments.args.iter().map(|value| value.to_array(rows)).collect::<DfResult<Vec<_>>>()?;
        Ok(ColumnarValue::Array(self.values(&arrays, rows)?))
    }
}

impl Call {
    fn values(&self, arrays: &[ArrayRef], rows: usize) -> Result<ArrayRef, SqlError> {
        if rows == 0 {
            return Ok(Arc::new(Int64Array::from(Vec::<i64>::new())));
        }
        if self.which == Which::Last {
            return Ok(Arc::new(Int64Array::from_value(self.last()?, rows)));
        }
        let names = cast(&arrays[0], &DataType::Utf8)?;
        let names = names.as_string::<i32>();
        let is_same = (1..rows).all(|row| names.is_null(row) == names.is_null(0) && names.value(row) == names.value(0));
        if is_same && !names.is_null(0) && matches!(self.which, Which::Next | Which::Identity) {
            return Ok(Arc::new(Int64Array::from(self.take(names.value(0), rows)?)));
        }
        let each = |row: usize| -> Result<Option<i64>, SqlError> {
            if arrays.iter().any(|array| array.is_null(row)) {
                return Ok(None);
            }
            let name = names.value(row);
            match self.which {
                Which::Current => self.current(name).map(Some),
                Which::Set => {
                    let last = arrays[1].as_primitive::<Int64Type>().value(row);
                    let is_called = arrays.get(2).is_none_or(|array| array.as_boolean().value(row));
                    self.set(name, Counter { last, is_called }).map(Some)
                }
                _ => Ok(self.take(name, 1)?.first().copied()),
            }
        };
        let values = (0..rows).map(each).collect::<Result<Vec<_>, _>>()?;
        Ok(Arc::new(Int64Array::from(values)))
    }

    /// The sequence of a name, for who has one of these rights on it. Errors: 42P01, 42809, 42501, 42602.
    fn find(&self, name: &str, actions: &[Action]) -> Result<Arc<Sequence>, SqlError> {
        let wrong = || SqlError::statement("42602", format!("invalid name syntax: \"{name}\""));
        let parts = parts(name).ok_or_else(wrong)?;
        let (schema, known) = match parts.as_slice() {
            [name] => (PUBLIC, name),
            [schema, name] => (schema.as_str(), name),
            [database, schema, name] if database == ast::DATABASE => (schema.as_str(), name),
            _ => return Err(SqlError::unsupported(format!("the name {name}"))),
        };
        // Before anything tells what is there. The engine's own calls, for identity columns, have no actions.
        if let Some(access) = self.shared.access().filter(|_| !actions.is_empty()) {
            access.schema(schema)?;
        }
        let sequence = match self.shared.catalog().get(schema, known) {
            Some(Entry::Sequence(sequence)) => Arc::clone(sequence),
            Some(_) => return Err(SqlError::statement("42809", format!("\"{known}\" is not a sequence"))),
            None => return Err(SqlError::statement("42P01", format!("relation \"{name}\" does not exist"))),
        };
        self.require(&sequence, actions)?;
        Ok(sequence)
    }

    fn require(&self, sequence: &Sequence, actions: &[Action]) -> Result<(), SqlError> {
        let Some(access) = self.shared.access().filter(|_| !actions.is_empty()) else { return Ok(()) };
        let (schema, name) = (sequence.schema_name.as_str(), sequence.name.as_str());
        access.one_of(actions, "sequence", schema, name)?;
        self.shared.still(&access, schema, name, false)
    }

    fn take(&self, name: &str, count: usize) -> Result<Vec<i64>, SqlError> {
        let actions: &[Action] = match self.which {
            Which::Identity => &[],
            _ => &[Action::TableInsert, Action::TableUpdate],
        };
        let sequence = self.find(name, actions)?;
        self.changes()?;
        let (values, end) = self.sequences.take(&sequence, count)?;
        if let Some(last) = values.last() {
            self.shared.taken.take(sequence, *last, &self.shared.catalog());
        }
        end.map_or(Ok(values), Err)
    }

    fn current(&self, name: &str) -> Result<i64, SqlError> {
        let sequence = self.find(name, &[Action::TableInsert, Action::TableSelect])?;
        let value = self.shared.taken.value(sequence.id);
        value.ok_or_else(|| {
            let message = format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name);
            SqlError::transaction("55000", message)
        })
    }

    fn last(&self) -> Result<i64, SqlError> {
        let last = self.shared.taken.last();
        // A sequence that was dropped has no last value.
        let is_there = |last: &Sequence| self.shared.catalog().sequences().any(|known| known.id == last.id);
        match last.filter(|(last, _)| is_there(last)) {
            Some((last, value)) => {
                self.require(&last, &[Action::TableInsert, Action::TableSelect])?;
                Ok(value)
            }
            None => Err(SqlError::transaction("55000", "lastval is not yet defined in this session")),
        }
    }

    fn set(&self, name: &str, counter: Counter) -> Result<i64, SqlError> {
        let sequence = self.find(name, &[Action::TableUpdate])?;
        self.changes()?;
        self.sequences.set(&sequence, counter)?;
        if counter.is_called {
            self.shared.taken.set(sequence.id, counter.last);
        }
        Ok(counter.last)
    }

    /// Errors: 25006 in a transaction that only reads.
    fn changes(&self) -> Result<(), SqlError> {
        match self.shared.is_read_only() && self.which != Which::Identity {
            true => {
                let message = format!("cannot execute {}() in a read-only transaction", self.which.name());
                Err(SqlError::transaction("25006", message))
            }
            false => Ok(()),
        }
    }
}
