//! [`SqlError`]: the errors of this crate, named by what the client can do about them. Each has the SQLSTATE that
//! PostgreSQL returns for it (PostgreSQL 15, appendix A).
//!
//! Errors also travel through DataFusion, packed as its `External`; [`SqlError::from`] unpacks them, and determines the
//! SQLSTATE of DataFusion's own errors.

use std::sync::Arc;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use store::StoreError;

use crate::error_texts;

/// SQLSTATE and texts of an error, as the wire protocol reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorFields {
    /// SQLSTATE, five characters.
    pub code: &'static str,
    /// One sentence, without a full stop.
    pub message: String,
    /// More about this occurrence.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// What it is about, if that is a constraint of a table.
    pub object: Option<Box<ErrorObject>>,
}

/// The constraint of a table that values violate, and the values that the detail tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorObject {
    /// The table's schema.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The column, for NOT NULL.
    pub column: Option<String>,
    /// The constraint's name.
    pub constraint: Option<String>,
    /// The columns whose values the detail tells, each with its value; none: it tells no values.
    pub told: Vec<(String, String)>,
    /// Whether the detail tells the row as a whole, and not a key.
    pub is_row: bool,
}

impl ErrorFields {
    /// Fields without detail and hint.
    pub fn new(code: &'static str, message: impl Into<String>) -> ErrorFields {
        ErrorFields { code, message: message.into(), detail: None, hint: None, object: None }
    }
}

/// Why a statement failed. Cheap to clone. The failed statement has changed nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SqlError {
    /// Write the statement differently: its syntax, names or types are wrong, or a part is not supported.
    #[error("{}", .0.message)]
    Statement(Box<ErrorFields>),
    /// Send other values: constraints, conversions, ranges.
    #[error("{}", .0.message)]
    Value(Box<ErrorFields>),
    /// Run the transaction again: another one changed the same rows or the same table first. SQLSTATE 40001.
    #[error("{0}")]
    Again(Arc<str>),
    /// The statement does not fit the state of the transaction: end it, or begin one.
    #[error("{}", .0.message)]
    Transaction(Box<ErrorFields>),
    /// A client requested the cancel. SQLSTATE 57014.
    #[error("canceling statement due to user request")]
    Cancelled,
    /// The statement took longer than `statement_timeout`. SQLSTATE 57014.
    #[error("canceling statement due to statement timeout")]
    TimedOut,
    /// The session ends: the node stops, or a user with the right to do so ends it. SQLSTATE 57P01.
    #[error("terminating connection due to administrator command")]
    Terminated,
    /// The store refused the statement: its text says what to do.
    #[error(transparent)]
    Store(StoreError),
    /// The query needs more than it may take, or this engine has a fault.
    #[error("{}", .0.message)]
    Engine(Box<ErrorFields>),
}

impl SqlError {
    /// The statement must be written differently.
    pub fn statement(code: &'static str, message: impl Into<String>) -> SqlError {
        SqlError::Statement(Box::new(ErrorFields::new(code, message)))
    }

    /// A part is not supported; a hint can say what to write instead. SQLSTATE 0A000.
    pub fn unsupported(what: impl std::fmt::Display) -> SqlError {
        SqlError::statement("0A000", format!("{what} is not supported"))
    }

    /// A subquery was restated, and the planner does not find columns of an outer query through that. SQLSTATE 0A000.
    pub(crate) fn hidden_columns() -> SqlError {
        SqlError::unsupported("a subquery that is a truth value and names columns of an outer query")
            .with_hint("Use EXISTS in WHERE.")
    }

    /// The values do not fit.
    pub fn value(code: &'static str, message: impl Into<String>) -> SqlError {
        SqlError::Value(Box::new(ErrorFields::new(code, message)))
    }

    /// The state of the transaction does not allow the statement.
    pub fn transaction(code: &'static str, message: impl Into<String>) -> SqlError {
        SqlError::Transaction(Box::new(ErrorFields::new(code, message)))
    }

    /// The same error with a detail about this occurrence.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> SqlError {
        if let Some(report) = self.inner() {
            report.detail = Some(detail.into());
        }
        self
    }

    /// The same error with a hint about what to do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> SqlError {
        if let Some(report) = self.inner() {
            report.hint = Some(hint.into());
        }
        self
    }

    /// The same error, about a constraint of a table.
    #[must_use]
    pub(crate) fn of_constraint(self, schema: &str, table: &str, constraint: &str) -> SqlError {
        let (schema, table, constraint) = (schema.into(), table.into(), Some(constraint.into()));
        self.about(ErrorObject { schema, table, constraint, ..ErrorObject::default() })
    }

    /// The same error, about something.
    #[must_use]
    pub(crate) fn about(mut self, object: ErrorObject) -> SqlError {
        if let Some(report) = self.inner() {
            report.object = Some(Box::new(object));
        }
        self
    }

    /// The same error with a detail that tells a row: its columns with their values.
    #[must_use]
    pub(crate) fn telling_row(mut self, told: Vec<(String, String)>) -> SqlError {
        if let Some(report) = self.inner() {
            let values: Vec<&str> = told.iter().map(|(_, value)| value.as_str()).collect();
            report.detail = Some(format!("Failing row contains ({}).", values.join(", ")));
            let object = report.object.get_or_insert_default();
            (object.told, object.is_row) = (told, true);
        }
        self
    }

    /// The same error without the values of columns that its reader may not read. As PostgreSQL does it, a key is told whole or not at all.
    #[must_use]
    pub(crate) fn hidden_from(mut self, may_read: impl Fn(&ErrorObject, &str) -> bool) -> SqlError {
        let Some(report) = self.inner() else { return self };
        let Some(object) = report.object.take() else { return self };
        let readable: Vec<&(String, String)> =
            object.told.iter().filter(|(column, _)| may_read(&object, column)).collect();
        if readable.len() < object.told.len() {
            let names: Vec<&str> = readable.iter().map(|(name, _)| name.as_str()).collect();
            let values: Vec<&str> = readable.iter().map(|(_, value)| value.as_str()).collect();
            report.detail = (object.is_row && !readable.is_empty())
                .then(|| format!("Failing row contains ({}) = ({}).", names.join(", "), values.join(", ")));
        }
        report.object = Some(object);
        self
    }

    fn inner(&mut self) -> Option<&mut ErrorFields> {
        match self {
            SqlError::Statement(report)
            | SqlError::Value(report)
            | SqlError::Transaction(report)
            | SqlError::Engine(report) => Some(report),
            SqlError::Again(_)
            | SqlError::Cancelled
            | SqlError::TimedOut
            | SqlError::Terminated
            | SqlError::Store(_) => None,
        }
    }

    /// The fields to send to the client.
    pub fn report(&self) -> ErrorFields {
        match self {
            SqlError::Statement(report)
            | SqlError::Value(report)
            | SqlError::Transaction(report)
            | SqlError::Engine(report) => (**report).clone(),
            SqlError::Again(why) => {
                let report = ErrorFields::new("40001", "could not serialize access due to concurrent update");
                ErrorFields { detail: Some(why.to_string()), hint: Some("Run the transaction again.".into()), ..report }
            }
            SqlError::Cancelled | SqlError::TimedOut | SqlError::Terminated => {
                ErrorFields::new(self.code(), self.to_string())
            }
            SqlError::Store(error) => ErrorFields::new(store_code(error), error.to_string()),
        }
    }

    /// SQLSTATE, five characters.
    pub fn code(&self) -> &'static str {
        match self {
            SqlError::Store(error) => store_code(error),
            SqlError::Again(_) => "40001",
            SqlError::Cancelled | SqlError::TimedOut => "57014",
            SqlError::Terminated => "57P01",
            SqlError::Statement(report)
            | SqlError::Value(report)
            | SqlError::Transaction(report)
            | SqlError::Engine(report) => report.code,
        }
    }
}

fn store_code(error: &StoreError) -> &'static str {
    match error {
        StoreError::Full(_) => "53100",
        StoreError::Corrupt(_) => "XX001",
        StoreError::Refused(_) => "54000",
        StoreError::TooOld => "72000",
        _ => "58030",
    }
}

impl From<StoreError> for SqlError {
    fn from(error: StoreError) -> SqlError {
        match error {
            StoreError::Conflict => SqlError::Again(error.to_string().into()),
            error => SqlError::Store(error),
        }
    }
}

impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }
}

impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> SqlError {
        let code = match &error {
            ArrowError::DivideByZero => "22012",
            ArrowError::ArithmeticOverflow(_) => "22003",
            ArrowError::CastError(text) | ArrowError::ParseError(text) => return conversion(text),
            ArrowError::NotYetImplemented(what) => return SqlError::unsupported(what),
            ArrowError::MemoryError(_) => "53200",
            ArrowError::ExternalError(inner) => return caused(inner.as_ref()),
            ArrowError::IoError(_, error) => return spilled(error),
            ArrowError::InvalidArgumentError(_) | ArrowError::ComputeError(_) => "22000",
            _ => "XX000",
        };
        match code {
            "22012" => SqlError::value(code, "division by zero"),
            "53200" | "XX000" => SqlError::Engine(Box::new(ErrorFields::new(code, error.to_string()))),
            // A numeric with too many digits is told as an invalid argument.
            _ if error.to_string().contains("too large to store") => SqlError::value("22003", "numeric field overflow"),
            _ => SqlError::value(code, error_texts::shown(&error.to_string())),
        }
    }
}

/// Finds our own error among the causes of an error that passed through other libraries.
fn caused(error: &(dyn std::error::Error + 'static)) -> SqlError {
    let mut cause = Some(error);
    while let Some(here) = cause {
        if let Some(ours) = here.downcast_ref::<SqlError>() {
            return ours.clone();
        }
        cause = here.source();
    }
    SqlError::Engine(Box::new(ErrorFields::new("XX000", error.to_string())))
}

/// The error for a text that is not a value of a type, or a number that does not fit in one.
fn conversion(text: &str) -> SqlError {
    let words = ["overflow", "out of range", "too large", "Can't cast value", "too small"];
    let range = words.iter().any(|word| text.contains(word));
    if let Some((_, kind)) = text.split_once("Can't cast value").and_then(|(_, rest)| rest.split_once(" to type ")) {
        return SqlError::value("22003", format!("{} out of range", error_texts::shown(kind).trim()));
    }
    SqlError::value(if range { "22003" } else { "22P02" }, error_texts::shown(text))
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> SqlError {
        match error {
            DataFusionError::External(inner) => match inner.downcast::<SqlError>() {
                Ok(error) => *error,
                Err(other) => caused(other.as_ref()),
            },
            DataFusionError::ObjectStore(error) => caused(error.as_ref()),
            DataFusionError::ParquetError(error) => caused(error.as_ref()),
            DataFusionError::ArrowError(error, _) => SqlError::from(*error),
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => SqlError::from(*inner),
            DataFusionError::Shared(shared) => from_shared(&shared),
            DataFusionError::Collection(mut errors) if !errors.is_empty() => SqlError::from(errors.swap_remove(0)),
            DataFusionError::SchemaError(error, _) => schema(&error),
            DataFusionError::SQL(error, _) => SqlError::statement("42601", error.to_string()),
            DataFusionError::NotImplemented(what) => SqlError::statement("0A000", error_texts::shown(&what)),
            DataFusionError::Plan(text) => plan(text),
            DataFusionError::Execution(text) => execution(text),
            DataFusionError::ResourcesExhausted(text) => SqlError::Engine(Box::new(ErrorFields::new("53200", text))),
            DataFusionError::IoError(error) => spilled(&error),
            error => internal(&error.to_string()),
        }
    }
}

/// An error that the library says is its own: some are those of a call.
fn internal(text: &str) -> SqlError {
    match error_texts::missing_function(text) {
        Some(name) => no_such_function(name),
        None => SqlError::Engine(Box::new(ErrorFields::new("XX000", error_texts::shown(text)))),
    }
}

fn no_such_function(name: &str) -> SqlError {
    SqlError::statement("42883", format!("function {name} does not exist for arguments of these types"))
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}

/// An error that several consumers of one input received: ours is found through its causes.
fn from_shared(error: &DataFusionError) -> SqlError {
    match error {
        DataFusionError::External(inner) => caused(inner.as_ref()),
        DataFusionError::ObjectStore(error) => caused(error.as_ref()),
        DataFusionError::ParquetError(error) => caused(error.as_ref()),
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::DivideByZero => SqlError::from(ArrowError::DivideByZero),
            ArrowError::ArithmeticOverflow(text) => SqlError::from(ArrowError::ArithmeticOverflow(text.clone())),
            ArrowError::CastError(text) | ArrowError::ParseError(text) => conversion(text),
            ArrowError::IoError(_, error) => spilled(error),
            other => SqlError::Engine(Box::new(ErrorFields::new("XX000", other.to_string()))),
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => from_shared(inner),
        DataFusionError::Shared(inner) => from_shared(inner),
        DataFusionError::Execution(text) => execution(text.clone()),
        DataFusionError::ResourcesExhausted(text) => {
            SqlError::Engine(Box::new(ErrorFields::new("53200", text.clone())))
        }
        DataFusionError::IoError(error) => spilled(error),
        other => internal(&other.to_string()),
    }
}

/// The error when rows could not be spilled to files, or not be read from them.
fn spilled(error: &std::io::Error) -> SqlError {
    let text = error.to_string();
    // DataFusion has no variant for its own limit; only the wording identifies it.
    let report = if text.contains("disk space during the spilling") {
        let report = ErrorFields::new("53400", "the query needs more space for spilled rows than it may take");
        ErrorFields { hint: Some("Process less at a time, or raise `spill_max` in [sql].".into()), ..report }
    } else if error.kind() == std::io::ErrorKind::StorageFull {
        ErrorFields::new("53100", format!("rows could not be spilled to temporary files: {text}"))
    } else {
        ErrorFields::new("58030", text)
    };
    SqlError::Engine(Box::new(report))
}

fn schema(error: &SchemaError) -> SqlError {
    // Tables and columns with such names are made where subqueries are restated; no statement can name them.
    let is_own = |field: &Column| {
        let table = field.relation.as_ref().map_or("", |table| table.table());
        field.name.starts_with('$') || table.starts_with('$')
    };
    match error {
        SchemaError::FieldNotFound { field, .. } if is_own(field) => SqlError::hidden_columns(),
        SchemaError::FieldNotFound { field, .. } => {
            SqlError::statement("42703", format!("column \"{}\" does not exist", field.flat_name()))
        }
        SchemaError::AmbiguousReference { field } => {
            SqlError::statement("42702", format!("column reference \"{}\" is ambiguous", field.name))
        }
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
            SqlError::statement("42701", format!("column \"{name}\" specified more than once"))
        }
    }
}

fn plan(text: String) -> SqlError {
    // DataFusion has one variant for all of these; only the wording distinguishes them.
    if let Some(name) = error_texts::missing_function(&text) {
        return no_such_function(name);
    }
    let code = if text.starts_with("table '") && text.ends_with("not found") {
        let name = text.trim_start_matches("table '").trim_end_matches("' not found");
        let name = name.trim_start_matches("terrace.").trim_start_matches("public.");
        return SqlError::statement("42P01", format!("relation \"{name}\" does not exist"));
    } else if text.contains("Invalid function") || text.contains("No function matches") {
        "42883"
    } else if text.contains("must appear in the GROUP BY") || text.contains("must be in GROUP BY") {
        "42803"
    } else if text.contains("coerc") || text.contains("Cannot infer common") || text.contains("type mismatch") {
        "42804"
    } else {
        "42601"
    };
    SqlError::statement(code, error_texts::shown(&text))
}

fn execution(text: String) -> SqlError {
    let lower = text.to_ascii_lowercase();
    if lower.contains("divide by zero") || lower.contains("division by zero") {
        return SqlError::value("22012", "division by zero");
    }
    if lower.contains("overflow") || lower.contains("out of range") {
        return SqlError::value("22003", text);
    }
    if lower.contains("more than one row") {
        return SqlError::value("21000", "more than one row returned by a subquery used as an expression");
    }
    if lower.contains("negative substring length") {
        return SqlError::value("22011", "negative substring length not allowed");
    }
    if lower.contains("regular expression did not compile") || lower.contains("regex parse error") {
        return SqlError::value("2201B", "invalid regular expression");
    }
    SqlError::value("22000", error_texts::shown(&text))
}
