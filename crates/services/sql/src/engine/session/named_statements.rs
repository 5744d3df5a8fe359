//! [`NamedStatements`]: the prepared statements of a session, those of the protocol and those of PREPARE, which share their names.
//!
//! They belong to the session and to no transaction: ROLLBACK leaves them. Their number and their texts are bounded; what is parsed and
//! planned of them counts as memory of the session. What a statement may do is asked when it runs, and a plan is used only with the catalog
//! and the rights that it was made for.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use crate::SqlError;
use crate::engine::plan::prepared::Prepared;

/// Most prepared statements of a session: drivers keep some hundreds.
const STATEMENTS_MAX: usize = 4096;

/// Bytes of the texts of those that PREPARE makes, and all before; a port has a bound of its own for what its clients send.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;

/// A prepared statement.
#[derive(Debug)]
pub(crate) struct NamedStatement {
    /// `None` for an empty text.
    pub(crate) prepared: Option<Prepared>,
    /// The text as the client sent it.
    pub(crate) sql: String,
    /// Whether PREPARE made it, and not the protocol.
    pub(crate) from_sql: bool,
    pub(crate) made: DateTime<Utc>,
    /// For a port: the number of the type in which the client sends each parameter.
    pub(crate) sent: OnceLock<Vec<u32>>,
}

/// The prepared statements of one session by name; the empty name is the protocol's unnamed one.
#[derive(Debug, Default)]
pub(crate) struct NamedStatements {
    all: Mutex<BTreeMap<String, Arc<NamedStatement>>>,
}

impl NamedStatements {
    /// The statement of a name. Errors: 26000.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<NamedStatement>, SqlError> {
        self.all.lock().get(name).cloned().ok_or_else(|| missing(name))
    }

    /// Checks that there is room for one more, or for another one of this name. `text_bytes_max` bounds all texts together.
    ///
    /// Errors: 42P05 for a name that is taken, 54000.
    pub(crate) fn check_new(&self, name: &str, sql: &str, text_bytes_max: usize) -> Result<(), SqlError> {
        let all = self.all.lock();
        if !name.is_empty() && all.contains_key(name) {
            return Err(SqlError::statement("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        let others = all.iter().filter(|(known, _)| *known != name);
        let (count, bytes) =
            others.fold((0, sql.len()), |(count, bytes), (_, stated)| (count + 1, bytes + stated.sql.len()));
        if count < STATEMENTS_MAX && bytes <= text_bytes_max {
            return Ok(());
        }
        let message = format!("this session has {count} prepared statements, and no room for one more");
        Err(SqlError::statement("54000", message).with_hint("Close those that are not needed any more."))
    }

    /// Adds a statement, after [`check_new`](NamedStatements::check_new).
    pub(crate) fn insert(&self, name: String, statement: NamedStatement) {
        self.all.lock().insert(name, Arc::new(statement));
    }

    /// Removes a statement. Returns whether there was one.
    pub(crate) fn remove(&self, name: &str) -> bool {
        self.all.lock().remove(name).is_some()
    }

    /// DEALLOCATE ALL: the unnamed one stays.
    pub(crate) fn remove_all(&self) {
        self.all.lock().retain(|name, _| name.is_empty());
    }

    /// Those with a name, for `pg_prepared_statements`.
    pub(crate) fn named(&self) -> Vec<(String, Arc<NamedStatement>)> {
        let all = self.all.lock();
        all.iter().filter(|(name, _)| !name.is_empty()).map(|(name, one)| (name.clone(), one.clone())).collect()
    }
}

/// The error for a name without a statement. SQLSTATE 26000.
pub(crate) fn missing(name: &str) -> SqlError {
    let shown = match name {
        "" => "unnamed prepared statement".to_owned(),
        name => format!("prepared statement \"{name}\""),
    };
    SqlError::statement("26000", format!("{shown} does not exist"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(sql: &str) -> NamedStatement {
        let (prepared, sql) = (None, sql.to_owned());
        NamedStatement { prepared, sql, from_sql: false, made: DateTime::default(), sent: OnceLock::new() }
    }

    #[test]
    fn the_number_of_statements_and_the_bytes_of_their_texts_are_bounded() {
        let all = NamedStatements::default();
        all.insert(String::new(), statement("12345"));
        all.insert("a".into(), statement("123"));
        all.check_new("b", "12", 10).expect("there is room");
        assert_eq!(all.check_new("b", "123", 10).expect_err("there is none").code(), "54000");
        all.check_new("", "1234567", 10).expect("it replaces the one before");
        assert_eq!(all.check_new("a", "", 10).expect_err("it is there").code(), "42P05");
        (1..STATEMENTS_MAX).for_each(|number| all.insert(number.to_string(), statement("")));
        assert_eq!(all.check_new("b", "", 10).expect_err("there are too many").code(), "54000");
        all.remove_all();
        assert!(all.get("").is_ok() && all.named().is_empty());
        assert_eq!(all.get("a").expect_err("it is gone").code(), "26000");
    }
}
