//! Functions of the catalogs that describe the session's tables.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use parking_lot::Mutex;

use super::catalog_row::{Row, text};
use super::session_objects::{Facts, Moment, SessionFacts};
use crate::SqlError;
use crate::engine::Settings;
use crate::table::catalog::PUBLIC;
use crate::text::identifiers::quoted;
use crate::wire::login::SERVER_VERSION;

/// Computes the text for an object's OID, and possibly for a part of it.
type Tell = dyn Fn(Option<u32>, Option<usize>) -> Option<String> + Send + Sync;

/// A function of an object's OID and of the number of a part of it, or without arguments, that returns a text.
struct Told {
    name: &'static str,
    signature: Signature,
    tell: Box<Tell>,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Told {
    fn eq(&self, other: &Told) -> bool {
        self.name == other.name
    }
}

impl Eq for Told {}

impl Hash for Told {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Told {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut texts = StringBuilder::new();
        let numbers = |at: usize| match args.args.get(at) {
            Some(numbers) if at == 0 || args.arg_fields[at].data_type().is_integer() => {
                cast(&numbers.to_array(args.number_rows)?, &DataType::Int64).map(Some)
            }
            _ => Ok(None),
        };
        let (numbers, parts) = (numbers(0)?, numbers(1)?);
        for row in 0..args.number_rows {
            let value = |numbers: &ArrayRef| {
                let numbers = numbers.as_primitive::<Int64Type>();
                (!numbers.is_null(row)).then(|| numbers.value(row))
            };
            let number = numbers.as_ref().map(|numbers| value(numbers).and_then(|number| u32::try_from(number).ok()));
            let part = parts.as_ref().and_then(value).and_then(|part| usize::try_from(part).ok());
            texts.append_option(match number {
                Some(None) => None,
                number => (self.tell)(number.flatten(), part),
            });
        }
        Ok(ColumnarValue::Array(Arc::new(texts.finish()) as ArrayRef))
    }
}

fn register_one(
    context: &SessionContext,
    name: &'static str,
    signature: Signature,
    tell: impl Fn(Option<u32>, Option<usize>) -> Option<String> + Send + Sync + 'static,
) {
    context.register_udf(ScalarUDF::from(Told { name, signature, tell: Box::new(tell) }));
}

/// Registers the functions; they replace others of the same names.
pub(super) fn register(context: &SessionContext, facts: &Facts) {
    let none = || Signature::nullary(Volatility::Stable);
    let any = || Signature::variadic_any(Volatility::Stable);
    register_one(context, "version", none(), |_, _| Some(format!("PostgreSQL {SERVER_VERSION}")));
    for name in ["current_user", "current_role", "user"] {
        let about = Arc::clone(&facts.about);
        register_one(context, name, none(), move |_, _| Some(about.user()));
    }
    let about = Arc::clone(&facts.about);
    register_one(context, "session_user", none(), move |_, _| Some(about.session_user()));
    for name in ["current_database", "current_catalog"] {
        let about = Arc::clone(&facts.about);
        register_one(context, name, none(), move |_, _| Some(about.database.clone()));
    }
    register_one(context, "current_schema", none(), |_, _| Some(PUBLIC.to_owned()));
    let about = Arc::clone(&facts.about);
    let user = move |oid: Option<u32>, _| {
        let unknown = |oid: u32| format!("unknown (OID={oid})");
        Some(oid.and_then(|oid| about.role(oid)).unwrap_or_else(|| unknown(oid.unwrap_or_default())))
    };
    register_one(context, "pg_get_userbyid", any(), user);
    let of = facts.clone();
    register_one(context, "pg_get_indexdef", any(), move |oid, part| index(&of.now(), oid?, part));
    let of = facts.clone();
    register_one(context, "pg_get_constraintdef", any(), move |oid, _| constraint(&of.now(), oid?));
    let of = facts.clone();
    let query = move |oid: Option<u32>, _| {
        let moment = of.now();
        let found = moment.relations.iter().find(|relation| Some(relation.oid) == oid)?;
        found.query.as_ref().map(ToString::to_string)
    };
    register_one(context, "pg_get_viewdef", any(), query);
    let settings = SettingsShown(facts.about.settings.clone());
    context.register_udf(ScalarUDF::from(Setting { signature: any(), settings }));
    // A default is stored as its text.
    context.register_udf(ScalarUDF::from(Kept(any())));
}

/// `pg_get_expr`: returns its argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Kept(Signature);

impl ScalarUDFImpl for Kept {
    fn name(&self) -> &str {
        "pg_get_expr"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let text = args.args[0].to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(cast(&text, &DataType::Utf8)?))
    }
}

/// The statement that creates an index, or one of its columns.
pub(super) fn index(moment: &Moment, oid: u32, part: Option<usize>) -> Option<String> {
    let (relation, index) = moment.index_of(oid)?;
    if let Some(part) = part.filter(|part| *part > 0) {
        return relation.index_column(index, part);
    }
    let unique = if index.unique { "UNIQUE " } else { "" };
    let (name, schema, table) = (quoted(&index.name), quoted(&relation.namespace.name), quoted(&relation.name));
    let columns = relation.index_columns(index);
    Some(format!("CREATE {unique}INDEX {name} ON {schema}.{table} USING btree ({columns})"))
}

fn constraint(moment: &Moment, oid: u32) -> Option<String> {
    let mut keys = moment.indexes().filter(|(_, index)| index.constraint);
    if let Some((relation, index)) = keys.find(|(relation, index)| relation.constraint_oid(index) == oid) {
        let kind = if index.primary { "PRIMARY KEY" } else { "UNIQUE" };
        return Some(format!("{kind} ({})", relation.index_columns(index)));
    }
    let mut foreign =
        moment.relations.iter().flat_map(|relation| relation.foreign_keys.iter().map(move |key| (relation, key)));
    if let Some((_, key)) = foreign.find(|(relation, key)| relation.foreign_oid(key) == oid) {
        return Some(key.definition.clone());
    }
    let checks =
        moment.relations.iter().flat_map(|relation| relation.checks.iter().map(move |check| (relation, check)));
    let (_, check) = checks.into_iter().find(|(relation, check)| relation.check_oid(check) == oid)?;
    Some(format!("CHECK ({})", check.condition))
}

/// `current_setting`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Setting {
    signature: Signature,
    settings: SettingsShown,
}

/// The settings of the session when the running statement began.
#[derive(Debug)]
struct SettingsShown(Arc<Mutex<Settings>>);

impl PartialEq for SettingsShown {
    fn eq(&self, other: &SettingsShown) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SettingsShown {}

impl Hash for SettingsShown {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Settings that belong to a transaction.
const OF_TRANSACTION: [&str; 2] = ["transaction_isolation", "transaction_read_only"];

/// Settings that are the same in each session. SHOW returns those that a session can set.
const FIXED: [(&str, &str); 7] = [
    ("default_table_access_method", "heap"),
    ("integer_datetimes", "on"),
    ("max_index_keys", "32"),
    ("server_encoding", "UTF8"),
    ("server_version", SERVER_VERSION),
    ("server_version_num", "150000"),
    ("standard_conforming_strings", "on"),
];

/// Rows of `pg_settings`: JDBC reads `max_index_keys` when it is asked for foreign keys.
pub(super) fn settings(_: &SessionFacts) -> Vec<Row> {
    let row = |(name, setting): &(&str, &str)| {
        let kind = match *setting {
            "on" | "off" => "bool",
            number if number.bytes().all(|letter| letter.is_ascii_digit()) => "integer",
            _ => "string",
        };
        vec![
            ("name", text(name)),
            ("setting", text(setting)),
            ("category", text("Preset Options")),
            ("context", text("internal")),
            ("vartype", text(kind)),
            ("source", text("default")),
            ("boot_val", text(setting)),
            ("reset_val", text(setting)),
            ("sourceline", ScalarValue::Int32(None)),
        ]
    };
    FIXED.iter().map(row).collect()
}

impl ScalarUDFImpl for Setting {
    fn name(&self) -> &str {
        "current_setting"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(names) = args.args.first() else {
            return Err(SqlError::statement("42883", "function current_setting() does not exist").into());
        };
        let names = cast(&names.to_array(args.number_rows)?, &DataType::Utf8)?;
        let missing_ok = args.args.get(1).map(|is| is.to_array(args.number_rows)).transpose()?;
        let missing_ok = missing_ok.map(|is| cast(&is, &DataType::Boolean)).transpose()?;
        let settings = self.settings.0.lock();
        let values = names.as_string::<i32>().iter().enumerate().map(|(row, name)| {
            let Some(name) = name.map(str::to_ascii_lowercase) else { return Ok(None) };
            if let Some((_, value)) = FIXED.iter().find(|(known, _)| *known == name) {
                return Ok(Some((*value).to_owned()));
            }
            let is_missing_ok = |is: &ArrayRef| is.is_valid(row) && is.as_boolean().value(row);
            match settings.get(&name) {
                // The open transaction may have others.
                Ok(_) if OF_TRANSACTION.contains(&name.as_str()) => {
                    let error = SqlError::unsupported(format!("current_setting('{name}')"));
                    Err(error.with_hint(format!("Use SHOW {name}.")))
                }
                Ok(value) => Ok(Some(value)),
                Err(_) if missing_ok.as_ref().is_some_and(is_missing_ok) => Ok(None),
                Err(error) => Err(error),
            }
        });
        Ok(ColumnarValue::Array(Arc::new(values.collect::<Result<StringArray, SqlError>>()?)))
    }
}
