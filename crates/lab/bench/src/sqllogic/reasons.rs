//! Why a record fails: the known reasons, by name, and for other failures the server's error.
//!
//! A reason is known if its records were examined and classified: a feature that Terrace does not have, a choice of its
//! own, or a fault below it with a number in its tracker. Every other failure is new, and fails the run.

use super::script::Record;
use super::session::Outcome;

/// The cause of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It was not examined yet.
    New,
    /// A feature that is not there.
    Unsupported,
    /// The script and PostgreSQL differ, and Terrace does as PostgreSQL.
    Intended,
    /// A fault of a library, reported there.
    Below,
}

impl Kind {
    /// How tables show it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::New => "new",
            Kind::Unsupported => "unsupported",
            Kind::Intended => "intended",
            Kind::Below => "library",
        }
    }
}

/// A reason that is known.
struct Known {
    kind: Kind,
    name: &'static str,
    /// Whether it is the reason of this failure; the statement comes in capitals.
    applies: fn(&str, &Failure<'_>) -> bool,
}

/// A record that failed.
pub(super) struct Failure<'a> {
    pub(super) script: &'a str,
    pub(super) record: &'a Record,
    pub(super) outcome: &'a Outcome,
    /// Tables that earlier records of the script were to make, and that were refused.
    pub(super) missing: &'a [String],
}

impl Failure<'_> {
    /// Whether the server refused with this SQLSTATE and a message that holds `part`.
    fn contains(&self, wanted: &str, part: &str) -> bool {
        matches!(self.outcome, Outcome::Refused { code, message } if code == wanted && message.contains(part))
    }

    fn is_refused(&self) -> bool {
        matches!(self.outcome, Outcome::Refused { .. })
    }

    /// Whether it needs a table that could not be made.
    fn misses_a_table(&self) -> bool {
        self.missing.iter().any(|table| self.contains("42P01", &format!("\"{table}\"")))
    }
}

/// The numbers are issues and pull requests of DataFusion's tracker, read on 2026-11-22; its version is 55.2.
const KNOWN: &[Known] = &[
    Known {
        kind: Kind::Unsupported,
        name: "CREATE INDEX, DROP INDEX, REINDEX: there are no secondary indexes",
        applies: |sql, failure| {
            let index = ["CREATE INDEX", "CREATE UNIQUE INDEX", "DROP INDEX", "REINDEX"];
            failure.is_refused() && index.iter().any(|start| sql.starts_with(start))
        },
    },
    Known {
        kind: Kind::Unsupported,
        name: "triggers (in SQLite's syntax, which PostgreSQL refuses too)",
        applies: |sql, failure| {
            failure.is_refused() && (sql.starts_with("CREATE TRIGGER") || sql.starts_with("DROP TRIGGER"))
        },
    },
    Known {
        kind: Kind::Unsupported,
        name: "UNIQUE beside the primary key",
        applies: |sql, failure| sql.starts_with("CREATE TABLE") && failure.contains("0A000", "UNIQUE"),
    },
    Known {
        kind: Kind::Unsupported,
        name: "a table that could not be made for one of the reasons here, and what was to be filled from it",
        applies: |_, failure| {
            let after = failure.script.ends_with("evidence/in1.test") && matches!(failure.outcome, Outcome::Differs(_));
            failure.misses_a_table() || after && failure.missing.iter().any(|table| table == "t4")
        },
    },
    Known {
        kind: Kind::Below,
        name: "a scalar subquery correlated by another comparison than = (DataFusion, 14554)",
        applies: |_, failure| failure.contains("0A000", "logical expression ScalarSubquery"),
    },
    Known {
        kind: Kind::Unsupported,
        name: "IN (SELECT ..) as a value that may be NULL: refused, since DataFusion would answer false",
        applies: |_, failure| failure.contains("0A000", "IN (SELECT ..) or = ANY (SELECT ..) where it may be NULL"),
    },
    Known {
        kind: Kind::Below,
        name: "IN (SELECT ..) or EXISTS as a value instead of in WHERE (DataFusion, as in its 23022)",
        applies: |_, failure| {
            failure.contains("0A000", "logical expression InSubquery")
                || failure.contains("0A000", "logical expression Exists")
        },
    },
    Known {
        kind: Kind::Below,
        name: "two columns given the same name by AS, in a subquery or with ORDER BY (DataFusion; 21126 mended names not given)",
        applies: |_, failure| failure.contains("42601", "Projections require unique expression names"),
    },
    Known {
        kind: Kind::Below,
        name: "joins of many tables are not ordered by size, and exceed the memory of queries (DataFusion)",
        applies: |_, failure| failure.contains("53200", "JoinExec"),
    },
    Known {
        kind: Kind::Intended,
        name: "IN () without a value: PostgreSQL refuses it too",
        applies: |_, failure| failure.contains("42601", "Expected: an expression, found: )"),
    },
    Known {
        kind: Kind::Intended,
        name: "DROP of a table or view that a view needs: PostgreSQL refuses it too",
        applies: |sql, failure| sql.starts_with("DROP ") && failure.contains("2BP01", ""),
    },
    Known {
        kind: Kind::Intended,
        name: "unary plus on text: PostgreSQL refuses it too",
        applies: |_, failure| failure.contains("42601", "Unary operator '+'"),
    },
    Known {
        kind: Kind::Intended,
        name: "REPLACE and INSERT OR REPLACE are SQLite's, and what they were to change: PostgreSQL fails too",
        applies: |sql, failure| {
            let replace = sql.starts_with("REPLACE") || sql.starts_with("INSERT OR REPLACE");
            let after =
                failure.script.ends_with("slt_lang_replace.test") && matches!(failure.outcome, Outcome::Differs(_));
            after || replace && failure.is_refused()
        },
    },
    Known {
        kind: Kind::Intended,
        name: "UPDATE that assigns a column twice, and what it was to change: PostgreSQL refuses it too",
        applies: |_, failure| {
            let after =
                failure.script.ends_with("slt_lang_update.test") && matches!(failure.outcome, Outcome::Differs(_));
            after || failure.contains("42601", "multiple assignments to same column")
        },
    },
    Known {
        kind: Kind::Intended,
        name: "a text or bytes compared with numbers that they are none of: PostgreSQL refuses it too",
        applies: |sql, failure| {
            sql.contains(" IN (SELECT")
                && (failure.contains("22P02", "Cannot cast string")
                    || failure.contains("42601", "expr type Binary")
                    || failure.contains("42804", "integer = bytea"))
        },
    },
];

/// The reason of a failure.
pub(super) fn reason(failure: &Failure<'_>) -> (Kind, String) {
    let sql = failure.record.sql.to_uppercase();
    if let Some(known) = KNOWN.iter().find(|known| (known.applies)(&sql, failure)) {
        return (known.kind, known.name.to_owned());
    }
    let text = match failure.outcome {
        Outcome::Refused { code, message } => format!("{code} {}", general(message)),
        Outcome::Taken => "a statement is taken that should be refused".into(),
        Outcome::Differs(_) => "other values".into(),
        Outcome::Late => "takes too long".into(),
        Outcome::Broken(_) => "the connection broke".into(),
        Outcome::Passed => "passed".into(),
    };
    (Kind::New, text)
}

/// The table that a statement makes, as messages name it.
pub(super) fn made_table(sql: &str) -> Option<String> {
    let words = sql.strip_prefix("CREATE TABLE ")?.trim_start();
    let name: String = words.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then(|| name.to_lowercase())
}

/// A message without what only one record has: quoted names, numbers, and all but its first words.
fn general(message: &str) -> String {
    let mut out = String::new();
    let mut quote = None;
    for c in message.lines().next().unwrap_or_default().chars() {
        match (quote, c) {
            (Some(open), _) if c == open => {
                quote = None;
                out.push(c);
            }
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => {
                quote = Some(c);
                out.push(c);
            }
            (None, '0'..='9') if out.ends_with('0') => {}
            (None, '0'..='9') => out.push('0'),
            (None, _) => out.push(c),
        }
    }
    out.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_a_known_reason_only_where_one_applies() {
        let of = |sql: &str, code: &str, message: &str, missing: &[String]| {
            let expected = super::super::script::Expected::Done;
            let record = Record { line: 1, sql: sql.into(), expected, skipped: false };
            let outcome = Outcome::Refused { code: code.into(), message: message.into() };
            reason(&Failure { script: "x.test", record: &record, outcome: &outcome, missing }).0
        };
        assert_eq!(of("create index i on t(a)", "0A000", "CREATE INDEX i is not supported", &[]), Kind::Unsupported);
        assert_eq!(of("select 1 from t", "42P01", "relation \"t\" does not exist", &[]), Kind::New);
        assert_eq!(of("select 1 from t", "42P01", "relation \"t\" does not exist", &["t".into()]), Kind::Unsupported);
        assert_eq!(of("select 1", "XX000", "internal error", &[]), Kind::New);
        assert_eq!(made_table("CREATE TABLE T3(z INTEGER UNIQUE)"), Some("t3".into()));
    }

    #[test]
    fn messages_that_differ_in_names_and_numbers_only_are_one_reason() {
        assert_eq!(general("column \"a\" of t123: 'x' at 45"), general("column \"bc\" of t9: 'yz' at 6"));
        assert_ne!(general("column \"a\""), general("table \"a\""));
    }
}
