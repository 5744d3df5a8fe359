//! [`Prepared`]: a parsed statement, with what is known of its parameters and its result.

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::sql::sqlparser::ast::Statement;

/// One statement, ready to run in the session that prepared it.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) statement: Option<Statement>,
    pub(crate) parameters: Vec<Option<DataType>>,
    pub(crate) schema: Option<SchemaRef>,
}

impl Prepared {
    /// The types of `$1`, `$2`, ...; `None` where nothing says: send text, and it is used as such.
    pub fn parameter_types(&self) -> &[Option<DataType>] {
        &self.parameters
    }

    /// The columns of its rows; `None` for a statement without any.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Whether there is nothing in it but blanks and comments.
    pub fn is_empty(&self) -> bool {
        self.statement.is_none()
    }

    /// What was parsed; `None` for an empty statement.
    pub fn statement(&self) -> Option<&Statement> {
        self.statement.as_ref()
    }
}
