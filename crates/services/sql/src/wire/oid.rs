//! PostgreSQL's types: their OIDs, their sizes, and which of them represents an Arrow type.
//!
//! The OIDs are pgwire's, from PostgreSQL's `pg_type.dat`; drivers have them built in. pgwire's table contains all of
//! PostgreSQL's types. This one lists the supported types, with their lengths and SQL names, which pgwire's table
//! lacks. In columns of the system catalogs, metadata of the Arrow field marks an integer as an `oid` or one of its
//! aliases, and a text as a `"char"`.

use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};

use pgwire::api::Type;
use pgwire::messages::data::FieldDescription;

use super::Format;
use super::error_response::ErrorResponse;
use super::reply_text::sent;
use crate::table::SqlType;
use crate::table::types::JSONB;
pub(super) use crate::table::types::{CHAR, OID_ALIAS};
use crate::table::uuid::UUID;

/// Key of the metadata that holds the SQL name of a text's type, see [`crate::table`].
const SQL_NAME: &str = "sql";

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $one:ident, array $array:ident, length $length:literal, $text:literal;)+) => {
        /// A PostgreSQL type that is not an array.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Scalar {
            $($(#[$doc])* $name,)+
        }

        impl Scalar {
            /// All types.
            pub(crate) const ALL: &[Scalar] = &[$(Scalar::$name),+];

            /// The type's OID.
            pub(crate) fn oid(self) -> u32 {
                match self { $(Scalar::$name => Type::$one,)+ }.oid()
            }

            /// The OID of the type's array.
            pub(crate) fn array_oid(self) -> u32 {
                match self { $(Scalar::$name => Type::$array,)+ }.oid()
            }

            /// Bytes of a value; -1 if the length varies, -2 for text ended by a zero byte.
            pub(crate) fn length(self) -> i16 {
                match self { $(Scalar::$name => $length,)+ }
            }

            /// The type's name in messages.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Scalar::$name => $text,)+ }
            }
        }
    };
}

kinds! {
    /// True or false.
    Bool = BOOL, array BOOL_ARRAY, length 1, "boolean";
    /// Bytes.
    Bytea = BYTEA, array BYTEA_ARRAY, length -1, "bytea";
    /// One byte of text, in catalogs.
    Char = CHAR, array CHAR_ARRAY, length 1, "\"char\"";
    /// A name, in catalogs.
    Name = NAME, array NAME_ARRAY, length 64, "name";
    /// 64 bits.
    Int8 = INT8, array INT8_ARRAY, length 8, "bigint";
    /// 16 bits.
    Int2 = INT2, array INT2_ARRAY, length 2, "smallint";
    /// 32 bits.
    Int4 = INT4, array INT4_ARRAY, length 4, "integer";
    /// The OID of a function.
    Regproc = REGPROC, array REGPROC_ARRAY, length 4, "regproc";
    /// Text.
    Text = TEXT, array TEXT_ARRAY, length -1, "text";
    /// The OID of an object in a catalog.
    Oid = OID, array OID_ARRAY, length 4, "oid";
    /// JSON as text.
    Json = JSON, array JSON_ARRAY, length -1, "json";
    /// JSON as its parts.
    Jsonb = JSONB, array JSONB_ARRAY, length -1, "jsonb";
    /// 32 bits.
    Float4 = FLOAT4, array FLOAT4_ARRAY, length 4, "real";
    /// 64 bits.
    Float8 = FLOAT8, array FLOAT8_ARRAY, length 8, "double precision";
    /// A text whose type is not known yet.
    Unknown = UNKNOWN, array TEXT_ARRAY, length -2, "unknown";
    /// Text padded with blanks.
    Bpchar = BPCHAR, array BPCHAR_ARRAY, length -1, "character";
    /// Text.
    Varchar = VARCHAR, array VARCHAR_ARRAY, length -1, "character varying";
    /// A day.
    Date = DATE, array DATE_ARRAY, length 4, "date";
    /// A time of day.
    Time = TIME, array TIME_ARRAY, length 8, "time";
    /// A moment without a zone.
    Timestamp = TIMESTAMP, array TIMESTAMP_ARRAY, length 8, "timestamp";
    /// A moment.
    Timestamptz = TIMESTAMPTZ, array TIMESTAMPTZ_ARRAY, length 8, "timestamp with time zone";
    /// A span of time.
    Interval = INTERVAL, array INTERVAL_ARRAY, length 16, "interval";
    /// A decimal number.
    Numeric = NUMERIC, array NUMERIC_ARRAY, length -1, "numeric";
    /// The OID of a relation.
    Regclass = REGCLASS, array REGCLASS_ARRAY, length 4, "regclass";
    /// The OID of a type.
    Regtype = REGTYPE, array REGTYPE_ARRAY, length 4, "regtype";
    /// The OID of a schema.
    Regnamespace = REGNAMESPACE, array REGNAMESPACE_ARRAY, length 4, "regnamespace";
    /// The OID of a role.
    Regrole = REGROLE, array REGROLE_ARRAY, length 4, "regrole";
    /// 128 bits.
    Uuid = UUID, array UUID_ARRAY, length 16, "uuid";
}

impl Scalar {
    /// Whether values are OIDs of catalog objects, which are unsigned.
    pub(crate) fn is_oid(self) -> bool {
        matches!(
            self,
            Scalar::Oid | Scalar::Regproc | Scalar::Regclass | Scalar::Regtype | Scalar::Regnamespace | Scalar::Regrole
        )
    }
}

/// A type of PostgreSQL, also an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// One value.
    One(Scalar),
    /// An array of such values.
    Array(Scalar),
}

impl Kind {
    /// The type with this OID, if it is supported.
    pub(crate) fn from_oid(oid: u32) -> Option<Kind> {
        let all = || Scalar::ALL.iter().copied();
        let one = all().find(|scalar| scalar.oid() == oid).map(Kind::One);
        one.or_else(|| all().find(|scalar| scalar.array_oid() == oid).map(Kind::Array))
    }

    /// The type's OID.
    pub(crate) fn oid(self) -> u32 {
        match self {
            Kind::One(scalar) => scalar.oid(),
            Kind::Array(scalar) => scalar.array_oid(),
        }
    }

    /// Bytes of a value, or a negative number if the length varies.
    pub(crate) fn length(self) -> i16 {
        match self {
            Kind::One(scalar) => scalar.length(),
            Kind::Array(_) => -1,
        }
    }

    /// The Arrow type that a parameter of this type becomes; `None` for text of an unknown type.
    pub(crate) fn arrow(self) -> Option<DataType> {
        let scalar = match self {
            Kind::One(Scalar::Unknown) => return None,
            Kind::One(scalar) => scalar,
            Kind::Array(scalar) => {
                let item = Kind::One(scalar).arrow().unwrap_or(DataType::Utf8);
                return Some(DataType::List(Field::new_list_field(item, true).into()));
            }
        };
        Some(match scalar {
            Scalar::Bool => DataType::Boolean,
            Scalar::Bytea => DataType::Binary,
            Scalar::Int8 => DataType::Int64,
            Scalar::Int2 => DataType::Int16,
            Scalar::Int4
            | Scalar::Oid
            | Scalar::Regproc
            | Scalar::Regclass
            | Scalar::Regtype
            | Scalar::Regnamespace
            | Scalar::Regrole => DataType::Int32,
            Scalar::Float4 => DataType::Float32,
            Scalar::Float8 => DataType::Float64,
            Scalar::Date => DataType::Date32,
            Scalar::Time => DataType::Time64(TimeUnit::Microsecond),
            Scalar::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Scalar::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
            Scalar::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            // Each parameter has its own number of digits: see `parameter`.
            Scalar::Numeric => return None,
            Scalar::Char
            | Scalar::Name
            | Scalar::Text
            | Scalar::Json
            | Scalar::Unknown
            | Scalar::Bpchar
            | Scalar::Varchar => DataType::Utf8,
            Scalar::Uuid => UUID,
            Scalar::Jsonb => JSONB,
        })
    }

    /// The PostgreSQL type that represents an Arrow type.
    pub(crate) fn of(data_type: &DataType) -> Result<Kind, ErrorResponse> {
        let one = |scalar| Ok(Kind::One(scalar));
        match data_type {
            DataType::Null => one(Scalar::Text),
            DataType::Boolean => one(Scalar::Bool),
            DataType::Int8 | DataType::Int16 | DataType::UInt8 => one(Scalar::Int2),
            DataType::Int32 | DataType::UInt16 => one(Scalar::Int4),
            DataType::Int64 | DataType::UInt32 => one(Scalar::Int8),
            DataType::UInt64 | DataType::Decimal32(..) | DataType::Decimal64(..) => one(Scalar::Numeric),
            DataType::Decimal128(..) | DataType::Decimal256(..) => one(Scalar::Numeric),
            DataType::Float16 | DataType::Float32 => one(Scalar::Float4),
            DataType::Float64 => one(Scalar::Float8),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => one(Scalar::Text),
            kind if *kind == UUID => one(Scalar::Uuid),
            kind if *kind == JSONB => one(Scalar::Jsonb),
            DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => one(Scalar::Bytea),
            DataType::Date32 | DataType::Date64 => one(Scalar::Date),
            DataType::Time32(_) | DataType::Time64(_) => one(Scalar::Time),
            DataType::Timestamp(_, None) => one(Scalar::Timestamp),
            DataType::Timestamp(_, Some(_)) => one(Scalar::Timestamptz),
            DataType::Interval(_) | DataType::Duration(_) => one(Scalar::Interval),
            DataType::Dictionary(_, values) => Kind::of(values),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                match Kind::of_field(item)? {
                    Kind::One(scalar) => Ok(Kind::Array(scalar)),
                    Kind::Array(_) => Err(unsupported(data_type)),
                }
            }
            _ => Err(unsupported(data_type)),
        }
    }

    /// The type of a column: the one in its metadata, or else the one that represents its Arrow type.
    pub(crate) fn of_field(field: &Field) -> Result<Kind, ErrorResponse> {
        if field.metadata().contains_key(CHAR) {
            return Ok(Kind::One(Scalar::Char));
        }
        let alias = field.metadata().get(OID_ALIAS);
        let alias = alias.and_then(|alias| Scalar::ALL.iter().find(|scalar| scalar.name() == alias));
        if let Some(scalar) = alias {
            return Ok(Kind::One(*scalar));
        }
        match declared(field) {
            Some((scalar, _)) => Ok(Kind::One(scalar)),
            None => Kind::of(field.data_type()),
        }
    }
}

/// The type that a column's metadata names, and its modifier, if it is one of the column's Arrow type.
fn declared(field: &Field) -> Option<(Scalar, i32)> {
    let name = field.metadata().get(SQL_NAME)?;
    // PostgreSQL adds four bytes to the length of a text, for the length word.
    let of_text = |length: u32| length as i32 + 4;
    match SqlType::from_arrow(field).ok()? {
        SqlType::Varchar(length) => Some((Scalar::Varchar, of_text(length))),
        SqlType::Char(length) => Some((Scalar::Bpchar, of_text(length))),
        SqlType::Json => Some((Scalar::Json, -1)),
        SqlType::TimeDigits(digits) => Some((Scalar::Time, digits.into())),
        SqlType::TimestampDigits(digits) => Some((Scalar::Timestamp, digits.into())),
        SqlType::TimestampTzDigits(digits) => Some((Scalar::Timestamptz, digits.into())),
        _ if name == "character varying" => Some((Scalar::Varchar, -1)),
        _ if name == "character" => Some((Scalar::Bpchar, -1)),
        _ => None,
    }
}

fn unsupported(data_type: &DataType) -> ErrorResponse {
    ErrorResponse::new("0A000", format!("values of type {data_type} cannot be sent"))
        .with_hint("Cast the column to text, or select its parts in the query.")
}

/// A column of a result, as it is described to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Described {
    /// The column's name.
    pub(crate) name: String,
    /// The column's type.
    pub(crate) kind: Kind,
    /// The type's modifier: precision and scale of a numeric, digits of a time, a length; -1 for none.
    pub(crate) modifier: i32,
}

impl Described {
    /// Describes a column.
    pub(crate) fn of(field: &Field) -> Result<Described, ErrorResponse> {
        let modifier = match (field.data_type(), declared(field)) {
            (DataType::Decimal128(precision, scale), _) => {
                (i32::from(*precision) << 16 | (i32::from(*scale) & 0xffff)) + 4
            }
            (_, Some((_, modifier))) => modifier,
            _ => -1,
        };
        Ok(Described { name: field.name().clone(), kind: Kind::of_field(field)?, modifier })
    }

    /// The column as pgwire sends it. The table that it belongs to is not reported.
    pub(crate) fn field(&self, format: Format) -> FieldDescription {
        let (oid, length) = (self.kind.oid(), self.kind.length());
        FieldDescription::new(sent(&self.name), 0, 0, oid, length, self.modifier, format.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_types() {
        for scalar in Scalar::ALL {
            assert_eq!(Kind::from_oid(scalar.oid()), Some(Kind::One(*scalar)));
            if *scalar != Scalar::Unknown {
                assert_eq!(Kind::from_oid(scalar.array_oid()), Some(Kind::Array(*scalar)));
            }
        }
        assert_eq!(Kind::from_oid(600), None, "a point");
    }

    #[test]
    fn a_numerics_digits_are_in_its_modifier() {
        let described = Described::of(&Field::new("price", DataType::Decimal128(15, 2), true)).expect("it is sent");
        // numeric(15,2) has the modifier ((15 << 16) | 2) + 4 in PostgreSQL's catalogs.
        assert_eq!(described.modifier, 983_046);
        let metadata = [("sql".to_owned(), "character varying(20)".to_owned())].into();
        let described = Described::of(&Field::new("name", DataType::Utf8View, true).with_metadata(metadata));
        let described = described.expect("it is sent");
        assert_eq!((described.kind, described.modifier), (Kind::One(Scalar::Varchar), 24));
        let at = Described::of(&SqlType::TimestampTzDigits(0).field("at", true)).expect("it is sent");
        assert_eq!((at.kind, at.modifier), (Kind::One(Scalar::Timestamptz), 0));
    }
}
