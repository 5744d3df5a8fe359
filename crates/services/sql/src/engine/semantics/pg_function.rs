//! [`PgFunction`]: scalar functions with PostgreSQL's results, each a row of a table: the types that it accepts, the
//! type that it returns, and its computation over whole arrays.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::SqlError;

/// The facts about an argument when a statement is planned: its type, and its value if it is a constant.
pub(crate) type Argument<'a> = (&'a DataType, Option<&'a ScalarValue>);

/// A function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PgFunction {
    /// The name; functions that can be called are called by it.
    pub(crate) name: &'static str,
    /// The types to which arguments of some types are converted. For these types it returns the same types.
    pub(crate) wants: fn(&[DataType]) -> Result<Vec<DataType>, SqlError>,
    /// The type of the result.
    pub(crate) gives: fn(&[Argument<'_>]) -> Result<DataType, SqlError>,
    /// The result, of that type.
    pub(crate) run: fn(&[ArrayRef], &DataType) -> Result<ArrayRef, SqlError>,
    /// The operator between the arguments in the name of a column; `None` for a call.
    pub(crate) between: Option<&'static str>,
}

impl PgFunction {
    /// The function for a context, or for a call with [`of`](PgFunction::of).
    pub(crate) fn udf(self) -> ScalarUDF {
        // It has all of DataFusion's names: a session that is made from another one registers all functions by all of their names, in any
        // order, and DataFusion's own would come back.
        let aliases = match self.name {
            "date_part" => vec!["datepart".to_owned()],
            "date_trunc" => vec!["datetrunc".to_owned()],
            "substr" => vec!["substring".to_owned()],
            "to_char" => vec!["date_format".to_owned()],
            _ => Vec::new(),
        };
        ScalarUDF::from(Call { meant: self, signature: Signature::user_defined(Volatility::Immutable), aliases })
    }

    /// Computes a call; of constants alone once.
    pub(crate) fn invoke(&self, arguments: &ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let alone = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if alone { 1 } else { arguments.number_rows };
        let arrays = arguments.args.iter().map(|value| value.to_array(rows)).collect::<DfResult<Vec<_>>>()?;
        let result = (self.run)(&arrays, arguments.return_field.data_type())?;
        match alone {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }

    /// A call.
    pub(crate) fn of(self, args: Vec<Expr>) -> Expr {
        Expr::ScalarFunction(ScalarFunction { func: Arc::new(self.udf()), args })
    }
}

/// PostgreSQL's name of an Arrow type.
pub(crate) fn type_name(kind: &DataType) -> String {
    let field = Field::new("", kind.clone(), true);
    crate::table::SqlType::from_arrow(&field).map_or_else(|_| kind.to_string(), |kind| kind.name())
}

/// The error that there is no function for arguments of these types.
pub(crate) fn no_function(name: &str, arguments: &[DataType]) -> SqlError {
    let types: Vec<String> = arguments.iter().map(type_name).collect();
    SqlError::statement("42883", format!("function {name}({}) does not exist", types.join(", ")))
}

struct Call {
    meant: PgFunction,
    signature: Signature,
    aliases: Vec<String>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.meant.name)
    }
}

// Each name has only one function.
impl PartialEq for Call {
    fn eq(&self, other: &Call) -> bool {
        self.meant.name == other.meant.name
    }
}

impl Eq for Call {}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.meant.name.hash(state);
    }
}

impl Call {
    fn shown(&self, args: &[String]) -> String {
        match self.meant.between {
            Some(between) => args.join(between),
            None => format!("{}({})", self.meant.name, args.join(",")),
        }
    }
}

impl ScalarUDFImpl for Call {
    fn name(&self) -> &str {
        self.meant.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn display_name(&self, args: &[Expr]) -> DfResult<String> {
        Ok(self.shown(&args.iter().map(Expr::to_string).collect::<Vec<_>>()))
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        Ok(self.shown(&args.iter().map(|arg| arg.schema_name().to_string()).collect::<Vec<_>>()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DfResult<Vec<DataType>> {
        Ok((self.meant.wants)(arguments)?)
    }

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        Ok((self.meant.gives)(&arguments.iter().map(|kind| (kind, None)).collect::<Vec<_>>())?)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let fields = args.arg_fields.iter().zip(args.scalar_arguments);
        let arguments: Vec<Argument<'_>> = fields.map(|(field, value)| (field.data_type(), *value)).collect();
        Ok(Arc::new(Field::new(self.name(), (self.meant.gives)(&arguments)?, true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        self.meant.invoke(&arguments)
    }
}
