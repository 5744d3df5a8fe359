//! What rights are about: [`Object`] is what a caller asks for, [`ObjectPattern`] what a right was granted on.
//!
//! ```text
//!   node   service NAME   operation NAME   schema NAME   table SCHEMA.NAME   index NAME   volume NAME
//! ```
//!
//! In a pattern `*` stands for any number of characters. A name that contains none is compared as a whole, so most
//! rights are found by one look into a table.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::IdentityError;

/// Most bytes of a part of a name: PostgreSQL allows 63, Elasticsearch 255.
pub const PART_BYTES_MAX: usize = 255;

/// Kinds of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectKind {
    /// The node as a whole.
    Node,
    /// The messages that came in by a service of the production.
    Service,
    /// An operation of the production.
    Operation,
    /// A schema of SQL.
    Schema,
    /// A table or view, `SCHEMA.NAME`.
    Table,
    /// An index or alias of search.
    Index,
    /// A volume, also as an export.
    Volume,
}

impl ObjectKind {
    /// All kinds.
    pub const ALL: &[ObjectKind] = &[
        ObjectKind::Node,
        ObjectKind::Service,
        ObjectKind::Operation,
        ObjectKind::Schema,
        ObjectKind::Table,
        ObjectKind::Index,
        ObjectKind::Volume,
    ];

    /// Its name in commands.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Node => "node",
            ObjectKind::Service => "service",
            ObjectKind::Operation => "operation",
            ObjectKind::Schema => "schema",
            ObjectKind::Table => "table",
            ObjectKind::Index => "index",
            ObjectKind::Volume => "volume",
        }
    }
}

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object<'a> {
    /// The node.
    Node,
    /// The messages of a service.
    Service(&'a str),
    /// An operation.
    Operation(&'a str),
    /// A schema.
    Schema(&'a str),
    /// A table or view: as a whole if no columns are named, otherwise each of these columns. A statement that reads
    /// whole rows names all columns.
    Table {
        /// Its schema.
        schema: &'a str,
        /// Its name.
        name: &'a str,
        /// The columns that are asked for.
        columns: &'a [&'a str],
    },
    /// Any column of a table: for statements that name none, as `SELECT count(*)`.
    SomeColumn {
        /// Its schema.
        schema: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// An index or alias, by its own name: patterns of a request are resolved first.
    Index(&'a str),
    /// A volume or export.
    Volume(&'a str),
}

impl<'a> Object<'a> {
    /// Its kind.
    pub fn kind(&self) -> ObjectKind {
        match self {
            Object::Node => ObjectKind::Node,
            Object::Service(_) => ObjectKind::Service,
            Object::Operation(_) => ObjectKind::Operation,
            Object::Schema(_) => ObjectKind::Schema,
            Object::Table { .. } | Object::SomeColumn { .. } => ObjectKind::Table,
            Object::Index(_) => ObjectKind::Index,
            Object::Volume(_) => ObjectKind::Volume,
        }
    }

    /// The two parts of its name; only tables have a first part.
    pub fn parts(&self) -> (&'a str, &'a str) {
        match self {
            Object::Node => ("", ""),
            Object::Service(name)
            | Object::Operation(name)
            | Object::Schema(name)
            | Object::Index(name)
            | Object::Volume(name) => ("", name),
            Object::Table { schema, name, .. } | Object::SomeColumn { schema, name } => (schema, name),
        }
    }

    /// What matches this object alone, also if its name contains a `*`: a table may be called so, and a right on it must
    /// not become one on others.
    ///
    /// Errors: [`IdentityError::Name`].
    pub fn exactly(&self) -> Result<ObjectPattern, IdentityError> {
        let (schema, name) = self.parts();
        ObjectPattern::of(self.kind(), schema, name, false)
    }
}

/// The objects on which a right was granted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "UncheckedPattern")]
pub struct ObjectPattern {
    kind: ObjectKind,
    /// Whether a `*` stands for any characters, and not for itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stars: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    schema: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
}

/// A pattern as it is stored or requested.
#[derive(Deserialize)]
struct UncheckedPattern {
    kind: ObjectKind,
    #[serde(default)]
    stars: bool,
    #[serde(default)]
    schema: String,
    #[serde(default)]
    name: String,
}

impl TryFrom<UncheckedPattern> for ObjectPattern {
    type Error = IdentityError;

    fn try_from(given: UncheckedPattern) -> Result<ObjectPattern, IdentityError> {
        ObjectPattern::of(given.kind, &given.schema, &given.name, given.stars)
    }
}

impl ObjectPattern {
    /// The node.
    pub fn node() -> ObjectPattern {
        ObjectPattern { kind: ObjectKind::Node, stars: false, schema: String::new(), name: String::new() }
    }

    /// Errors: [`IdentityError::Name`].
    fn of(kind: ObjectKind, schema: &str, name: &str, stars: bool) -> Result<ObjectPattern, IdentityError> {
        let wrong = |why: &'static str| IdentityError::Name { name: format!("{schema}.{name}"), why };
        for part in [schema, name] {
            if part.len() > PART_BYTES_MAX {
                return Err(wrong("a part of it is longer than 255 bytes"));
            }
            if part.contains('\0') {
                return Err(wrong("it contains a byte 0"));
            }
        }
        if (kind == ObjectKind::Table) == schema.is_empty() {
            return Err(wrong("tables, and nothing else, have a schema"));
        }
        if (kind == ObjectKind::Node) != name.is_empty() {
            return Err(wrong("everything but the node has a name"));
        }
        Ok(ObjectPattern { kind, stars, schema: schema.into(), name: name.into() })
    }

    /// Reads `node`, `service NAME`, `table SCHEMA.NAME` and so on, as commands have it.
    ///
    /// Errors: [`IdentityError::Name`].
    pub fn parse(text: &str) -> Result<ObjectPattern, IdentityError> {
        let (kind, name) = text.split_once(' ').unwrap_or((text, ""));
        let found = ObjectKind::ALL.iter().copied().find(|known| known.name() == kind);
        let why = "it must begin with node, service, operation, schema, table, index or volume";
        let kind = found.ok_or_else(|| IdentityError::Name { name: text.into(), why })?;
        let (schema, name) = match (kind, name.split_once('.')) {
            (ObjectKind::Table, Some(parts)) => parts,
            _ => ("", name),
        };
        ObjectPattern::of(kind, schema, name, name.contains('*') || schema.contains('*'))
    }

    /// The kind of its objects.
    pub fn kind(&self) -> ObjectKind {
        self.kind
    }

    /// The object that has the pattern as its name.
    pub fn as_object(&self) -> Object<'_> {
        match self.kind {
            ObjectKind::Node => Object::Node,
            ObjectKind::Service => Object::Service(&self.name),
            ObjectKind::Operation => Object::Operation(&self.name),
            ObjectKind::Schema => Object::Schema(&self.name),
            ObjectKind::Table => Object::Table { schema: &self.schema, name: &self.name, columns: &[] },
            ObjectKind::Index => Object::Index(&self.name),
            ObjectKind::Volume => Object::Volume(&self.name),
        }
    }

    /// The parts of the name, as patterns.
    pub fn parts(&self) -> (&str, &str) {
        (&self.schema, &self.name)
    }

    /// Whether it names one object.
    pub fn is_exact(&self) -> bool {
        !self.stars
    }

    /// Whether two parts match.
    fn part_matches(&self, pattern: &str, text: &str) -> bool {
        if self.stars { matches(pattern, text) } else { pattern == text }
    }

    /// Whether it matches an object.
    pub fn matches(&self, object: &Object<'_>) -> bool {
        let (schema, name) = object.parts();
        self.kind == object.kind() && self.part_matches(&self.schema, schema) && self.part_matches(&self.name, name)
    }

    /// Whether it matches every object that the other matches. It errs to `false`.
    pub fn covers(&self, other: &ObjectPattern) -> bool {
        if !self.stars {
            return self == other;
        }
        // The other as text: its `*` is matched by a `*` here, and by no other character of ours.
        self.kind == other.kind && matches(&self.schema, &other.schema) && matches(&self.name, &other.name)
    }
}

impl fmt::Display for ObjectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.name();
        match (self.schema.as_str(), self.name.as_str()) {
            ("", "") => f.write_str(kind),
            ("", name) => write!(f, "{kind} {name}"),
            (schema, name) => write!(f, "{kind} {schema}.{name}"),
        }
    }
}

/// Whether a text matches a pattern, in time of the product of their lengths at most.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut seen) = (0, 0);
    // After a `*`: where the pattern goes on, and up to where the `*` reaches.
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, seen));
            at += 1;
        } else if pattern.get(at) == Some(&text[seen]) {
            at += 1;
            seen += 1;
        } else if let Some((after, reach)) = star {
            star = Some((after, reach + 1));
            at = after;
            seen = reach + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters_and_nothing_else_is_special() {
        let cases = [
            ("logs-*", "logs-", true),
            ("logs-*", "logs-2026", true),
            ("logs-*", "log", false),
            ("*", "", true),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbx", false),
            ("a?c", "abc", false),
            ("a.c", "abc", false),
            ("abc", "abc", true),
            ("abc", "ab", false),
            ("ab", "abc", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_are_read_as_they_are_written_and_wrong_ones_are_refused() {
        for text in ["node", "service adt-in", "table public.orders", "table hl7.*", "index logs-*", "volume *"] {
            let pattern = ObjectPattern::parse(text).expect("it is one");
            assert_eq!(pattern.to_string(), text);
            let stored = serde_json::to_string(&pattern).expect("it is JSON");
            assert_eq!(serde_json::from_str::<ObjectPattern>(&stored).expect("it is one"), pattern);
        }
        for text in
            ["", "tables", "table orders", "node x", "service", "index a\0b", &format!("index {}", "x".repeat(256))]
        {
            assert!(ObjectPattern::parse(text).is_err(), "{text:?}");
        }
        for stored in [r#"{"kind":"index","name":"a\u0000b"}"#, r#"{"kind":"table","name":"a"}"#, r#"{"kind":"index"}"#]
        {
            assert!(serde_json::from_str::<ObjectPattern>(stored).is_err(), "{stored}");
        }
    }

    #[test]
    fn a_star_in_the_name_of_an_object_is_no_pattern() {
        let table = |name| Object::Table { schema: "public", name, columns: &[] };
        let own = table("*").exactly().expect("it is a name");
        assert!(own.is_exact() && own.matches(&table("*")) && !own.matches(&table("orders")));
        let pattern = ObjectPattern::parse("table public.*").expect("it is one");
        assert!(pattern != own && pattern.covers(&own) && !own.covers(&pattern) && pattern.matches(&table("orders")));
    }

    #[test]
    fn a_pattern_covers_only_what_is_within_it() {
        let cases = [("index *", "index a*", true), ("index a*", "index *", false), ("index ab", "index a*", false)];
        for (outer, inner, expected) in cases {
            let read = |text| ObjectPattern::parse(text).expect("it is one");
            assert_eq!(read(outer).covers(&read(inner)), expected, "{outer} {inner}");
        }
    }
}
