//! [`Settings`]: what SET sets and SHOW shows.
//!
//! Most of them are there because clients ask for them when they connect. Those that would change what statements do are
//! fixed: setting them to anything else is refused.

use std::collections::BTreeMap;

use crate::SqlError;

/// Settings that can be set to anything: they change nothing here, or are read by others.
const FREE: &[(&str, &str)] = &[
    ("application_name", ""),
    ("client_min_messages", "notice"),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    ("search_path", "public"),
];

/// Settings with the values they can have; the first is the one they have.
const FIXED: &[(&str, &[&str])] = &[
    ("bytea_output", &["hex"]),
    ("client_encoding", &["UTF8", "utf-8", "unicode"]),
    ("datestyle", &["ISO, MDY", "iso", "iso, mdy", "iso, ymd", "iso, dmy"]),
    ("default_transaction_isolation", &["repeatable read", "read committed"]),
    ("idle_in_transaction_session_timeout", &["0"]),
    ("in_hot_standby", &["off"]),
    ("integer_datetimes", &["on"]),
    ("intervalstyle", &["postgres"]),
    ("is_superuser", &["on"]),
    ("lock_timeout", &["0"]),
    ("max_identifier_length", &["63"]),
    ("server_encoding", &["UTF8"]),
    ("server_version", &["15.0"]),
    ("server_version_num", &["150000"]),
    ("standard_conforming_strings", &["on", "true"]),
    ("statement_timeout", &["0"]),
    ("timezone", ZONES),
    ("transaction_isolation", &["repeatable read", "read committed"]),
    ("transaction_read_only", &["off"]),
];

/// Names of the one time zone of sessions.
const ZONES: &[&str] = &[
    "UTC",
    "gmt",
    "etc/utc",
    "etc/gmt",
    "etc/uct",
    "etc/universal",
    "etc/zulu",
    "etc/greenwich",
    "uct",
    "universal",
    "zulu",
    "greenwich",
    "gmt0",
    "gmt+0",
    "gmt-0",
    "etc/gmt0",
    "etc/gmt+0",
    "etc/gmt-0",
    "z",
    "0",
    "+00:00",
    "00:00",
];

/// What to do about another.
pub(crate) const ZONE_HINT: &str = "Sessions are in UTC: tell the client so (PGTZ=UTC; JDBC: -Duser.timezone=UTC), and use \
    AT TIME ZONE 'Europe/Berlin' where another zone is wanted.";

/// Whether a time zone is that of all sessions.
pub(crate) fn is_utc(zone: &str) -> bool {
    ZONES.iter().any(|known| known.eq_ignore_ascii_case(zone.trim_matches('\'')))
}

/// The settings of one session.
#[derive(Clone, Debug)]
pub struct Settings {
    values: BTreeMap<String, String>,
    user: String,
}

impl Settings {
    pub(crate) fn new(user: &str) -> Settings {
        let free = FREE.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let fixed = FIXED.iter().map(|(name, values)| (name.to_string(), values[0].to_string()));
        let mut values: BTreeMap<String, String> = free.chain(fixed).collect();
        values.insert("session_authorization".into(), user.into());
        Settings { values, user: user.into() }
    }

    /// The value of a setting, by its name in any case. Errors: 42704.
    pub fn get(&self, name: &str) -> Result<String, SqlError> {
        self.values.get(&name.to_lowercase()).cloned().ok_or_else(|| unknown(name))
    }

    /// Sets one. Errors: 42704 if there is none of that name, 0A000 if it cannot have that value. Names with a point
    /// in them are the client's own.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        let name = name.to_lowercase();
        if value.eq_ignore_ascii_case("default") {
            return self.reset(&format!("RESET {name}"));
        }
        if let Some((_, values)) = FIXED.iter().find(|(known, _)| *known == name) {
            if values.iter().any(|known| known.eq_ignore_ascii_case(value)) {
                return Ok(());
            }
            let hint = match name.as_str() {
                "timezone" => ZONE_HINT.into(),
                _ => format!("It is {} here.", values[0]),
            };
            return Err(SqlError::unsupported(format!("{name} = '{value}'")).with_hint(hint));
        }
        if !name.contains('.') && !FREE.iter().any(|(known, _)| *known == name) {
            return Err(unknown(&name));
        }
        if name == "search_path"
            && !matches!(value.to_lowercase().as_str(), "public" | "\"$user\", public" | "$user, public")
        {
            return Err(SqlError::unsupported(format!("search_path = {value}"))
                .with_hint("Names without a schema are looked for in public; write schema.name for others."));
        }
        let value = match (name.as_str(), value.to_lowercase().as_str()) {
            ("default_transaction_read_only", "on" | "true" | "yes" | "1") => "on",
            ("default_transaction_read_only", "off" | "false" | "no" | "0") => "off",
            ("default_transaction_read_only", _) => {
                let message = format!("parameter \"{name}\" requires a Boolean value");
                return Err(SqlError::statement("22023", message));
            }
            _ => value,
        };
        self.values.insert(name, value.into());
        Ok(())
    }

    /// Whether a setting is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| value == "on")
    }

    /// `RESET name` or `RESET ALL`.
    pub(crate) fn reset(&mut self, statement: &str) -> Result<(), SqlError> {
        let name = statement.trim_start_matches("RESET ").to_lowercase();
        let fresh = Settings::new(&self.user);
        if name == "all" {
            *self = fresh;
            return Ok(());
        }
        match fresh.values.get(&name) {
            Some(value) => _ = self.values.insert(name, value.clone()),
            None => _ = self.values.remove(&name),
        }
        Ok(())
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

fn unknown(name: &str) -> SqlError {
    SqlError::statement("42704", format!("unrecognized configuration parameter \"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_change_results_is_refused_and_what_agrees_is_taken() {
        let mut settings = Settings::new("u");
        settings.set("TimeZone", "UTC").unwrap();
        assert_eq!(settings.set("timezone", "Europe/Berlin").unwrap_err().code(), "0A000");
        assert_eq!(settings.set("no_such", "1").unwrap_err().code(), "42704");
        settings.set("application_name", "psql").unwrap();
        assert_eq!(settings.get("application_name").unwrap(), "psql");
        settings.reset("RESET ALL").unwrap();
        assert_eq!(settings.get("Application_Name").unwrap(), "");
    }
}
