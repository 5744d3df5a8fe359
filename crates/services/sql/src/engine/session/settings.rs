//! [`Settings`]: the settings that SET changes and SHOW returns.
//!
//! Most of them exist because clients read them when they connect. Settings that would change results are fixed:
//! setting them to another value is refused. Those that may be ignored are in [`ignored_settings`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use node::identity::RoleId;

use super::ignored_settings;
use super::isolation::Isolation;
use crate::SqlError;

/// Settings that accept any value: they have no effect here, or other modules read them.
const FREE: &[(&str, &str)] = &[
    ("application_name", ""),
    ("client_min_messages", "notice"),
    (DEFAULT_ISOLATION, "read committed"),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    ("search_path", "public"),
];

/// Settings with their accepted values; the first is the present value.
const FIXED: &[(&str, &[&str])] = &[
    ("array_nulls", &["on", "true", "1"]),
    ("bytea_output", &["hex"]),
    ("client_encoding", &["UTF8", "utf-8", "unicode"]),
    ("datestyle", &["ISO, MDY", "iso", "iso, mdy", "iso, ymd", "iso, dmy"]),
    ("default_table_access_method", &["heap"]),
    ("default_tablespace", &[""]),
    ("in_hot_standby", &["off"]),
    ("integer_datetimes", &["on"]),
    ("intervalstyle", &["postgres"]),
    ("is_superuser", &["on"]),
    ("max_identifier_length", &["63"]),
    ("password_encryption", &["scram-sha-256"]),
    ("server_encoding", &["UTF8"]),
    ("server_version", &["15.0"]),
    ("server_version_num", &["150000"]),
    ("session_replication_role", &["origin"]),
    ("standard_conforming_strings", &["on", "true", "1"]),
    ("temp_tablespaces", &[""]),
    ("timezone", ZONES),
    ("transaction_isolation", &["read committed", "read uncommitted", "repeatable read"]),
    ("transaction_read_only", &["off"]),
    ("transform_null_equals", &["off", "false", "0"]),
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

/// The hint for another time zone.
pub(crate) const ZONE_HINT: &str = "Sessions are in UTC: set the client to UTC (PGTZ=UTC; JDBC: -Duser.timezone=UTC), and \
    use AT TIME ZONE 'Europe/Berlin' for another zone.";

/// Whether a time zone is that of all sessions.
pub(crate) fn is_utc(zone: &str) -> bool {
    ZONES.iter().any(|known| known.eq_ignore_ascii_case(zone.trim_matches('\'')))
}

/// Settings that are a time, in milliseconds if no unit is given; 0 means no limit.
const STATEMENT_TIMEOUT: &str = "statement_timeout";
const IDLE_TIMEOUT: &str = "idle_in_transaction_session_timeout";
const LOCK_TIMEOUT: &str = "lock_timeout";
const IDLE_SESSION_TIMEOUT: &str = "idle_session_timeout";
/// The isolation of transactions that do not say theirs.
const DEFAULT_ISOLATION: &str = "default_transaction_isolation";

/// The setting that SET ROLE changes.
const ROLE: &str = "role";

/// Units of a time in milliseconds, the largest first: a time is shown in the largest unit that fits, as in PostgreSQL.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

/// The settings of one session.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Those that are ignored are here only where they were set.
    values: Arc<BTreeMap<String, String>>,
    user: Arc<str>,
    /// The role of SET ROLE.
    role: Option<RoleId>,
    /// Whether the user is an administrator.
    superuser: bool,
    /// The values of the two times in a session that does not set them.
    times: [Duration; 2],
    statement: Duration,
    idle_in_transaction: Duration,
    lock: Duration,
    idle_session: Duration,
}

impl Settings {
    /// The settings at the begin of a session. `statement` is the longest time of a statement, `idle_in_transaction`
    /// the longest time that a transaction waits for its client.
    pub(crate) fn new(user: &str, statement: Duration, idle_in_transaction: Duration) -> Settings {
        let free = FREE.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let fixed = FIXED.iter().map(|(name, values)| (name.to_string(), values[0].to_string()));
        let mut values: BTreeMap<String, String> = free.chain(fixed).collect();
        values.insert("session_authorization".into(), user.into());
        values.insert(ROLE.into(), "none".into());
        values.insert(STATEMENT_TIMEOUT.into(), shown(statement));
        values.insert(IDLE_TIMEOUT.into(), shown(idle_in_transaction));
        values.insert(LOCK_TIMEOUT.into(), shown(Duration::ZERO));
        values.insert(IDLE_SESSION_TIMEOUT.into(), shown(Duration::ZERO));
        Settings {
            values: Arc::new(values),
            user: user.into(),
            role: None,
            superuser: true,
            times: [statement, idle_in_transaction],
            statement,
            idle_in_transaction,
            lock: Duration::ZERO,
            idle_session: Duration::ZERO,
        }
    }

    /// Says whether the user is an administrator.
    pub(crate) fn set_superuser(&mut self, is: bool) {
        self.superuser = is;
        self.put("is_superuser", if is { "on" } else { "off" });
    }

    fn put(&mut self, name: &str, value: &str) {
        Arc::make_mut(&mut self.values).insert(name.to_owned(), value.to_owned());
    }

    /// The longest time of a statement; zero means no limit.
    pub fn statement_timeout(&self) -> Duration {
        self.statement
    }

    /// The longest time that a transaction waits for its client; zero means no limit.
    pub fn idle_in_transaction_session_timeout(&self) -> Duration {
        self.idle_in_transaction
    }

    /// The longest time that a statement waits for a row of another transaction; zero means no limit.
    pub fn lock_timeout(&self) -> Duration {
        self.lock
    }

    /// The longest time that a session waits for its client outside of a transaction; zero means no limit.
    pub fn idle_session_timeout(&self) -> Duration {
        self.idle_session
    }

    /// The isolation of transactions that do not say theirs.
    pub(crate) fn default_isolation(&self) -> Isolation {
        match self.values.get(DEFAULT_ISOLATION).map(String::as_str) {
            Some("repeatable read") => Isolation::RepeatableRead,
            _ => Isolation::ReadCommitted,
        }
    }

    /// The value of a setting, by its name in any case. Errors: 42704.
    pub fn get(&self, name: &str) -> Result<String, SqlError> {
        let lower = name.to_lowercase();
        let set = self.values.get(&lower).cloned();
        set.or_else(|| ignored_settings::default_of(&lower).map(str::to_owned)).ok_or_else(|| unknown(name))
    }

    /// Sets a setting. Errors: 42704 if there is none of that name, 0A000 if it cannot have that value. Names with a
    /// point are the client's own.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        let name = name.to_lowercase();
        if name == ROLE {
            return Err(not_here());
        }
        if value.eq_ignore_ascii_case("default") {
            return self.reset(&format!("RESET {name}"));
        }
        if let Some((_, values)) = FIXED.iter().find(|(known, _)| *known == name) {
            if values.iter().any(|known| known.eq_ignore_ascii_case(value)) {
                return Ok(());
            }
            let hint = match name.as_str() {
                "timezone" => ZONE_HINT.into(),
                _ => format!("The value is always {}.", values[0]),
            };
            return Err(SqlError::unsupported(format!("{name} = '{value}'")).with_hint(hint));
        }
        if let Some(place) = self.time_of(&name) {
            let time = time(&name, value)?;
            *place = time;
            self.put(&name, &shown(time));
            return Ok(());
        }
        if let Some(value) = ignored_settings::read(&name, value)? {
            self.put(&name, &value);
            return Ok(());
        }
        if !name.contains('.') && !FREE.iter().any(|(known, _)| *known == name) {
            return Err(unknown(&name));
        }
        if name == "search_path"
            && !matches!(value.to_lowercase().as_str(), "public" | "\"$user\", public" | "$user, public")
        {
            return Err(SqlError::unsupported(format!("search_path = {value}"))
                .with_hint("Names without a schema are searched in public; write schema.name for others."));
        }
        let value = match (name.as_str(), value.to_lowercase().as_str()) {
            ("default_transaction_read_only", "on" | "true" | "yes" | "1") => "on",
            ("default_transaction_read_only", "off" | "false" | "no" | "0") => "off",
            (DEFAULT_ISOLATION, "read committed") => "read committed",
            (DEFAULT_ISOLATION, "read uncommitted") => "read uncommitted",
            (DEFAULT_ISOLATION, "repeatable read") => "repeatable read",
            (DEFAULT_ISOLATION, "serializable") => return Err(Isolation::serializable()),
            (DEFAULT_ISOLATION, _) => {
                let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
                let hint = "Available values: repeatable read, read committed, read uncommitted.";
                return Err(SqlError::value("22023", message).with_hint(hint));
            }
            ("default_transaction_read_only", _) => {
                let message = format!("parameter \"{name}\" requires a Boolean value");
                return Err(SqlError::statement("22023", message));
            }
            _ => value,
        };
        self.put(&name, value);
        Ok(())
    }

    /// The place of a setting that is a time.
    fn time_of(&mut self, name: &str) -> Option<&mut Duration> {
        match name {
            STATEMENT_TIMEOUT => Some(&mut self.statement),
            IDLE_TIMEOUT => Some(&mut self.idle_in_transaction),
            LOCK_TIMEOUT => Some(&mut self.lock),
            IDLE_SESSION_TIMEOUT => Some(&mut self.idle_session),
            _ => None,
        }
    }

    /// The role of SET ROLE; `None`: the session's own.
    pub(crate) fn role(&self) -> Option<RoleId> {
        self.role
    }

    /// SET ROLE: a role and its name, or `None`.
    pub(crate) fn set_role(&mut self, role: Option<(RoleId, &str)>) {
        self.role = role.map(|(id, _)| id);
        self.put(ROLE, role.map_or("none", |(_, name)| name));
    }

    /// Whether a setting is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| value == "on")
    }

    /// `RESET name` or `RESET ALL`.
    pub(crate) fn reset(&mut self, statement: &str) -> Result<(), SqlError> {
        let name = statement.trim_start_matches("RESET ").to_lowercase();
        let mut fresh = Settings::new(&self.user, self.times[0], self.times[1]);
        fresh.set_superuser(self.superuser);
        if name == "all" {
            // As in PostgreSQL, SET ROLE stays.
            let (role, shown) = (self.role, self.values.get(ROLE).cloned());
            *self = fresh;
            self.role = role;
            shown.iter().for_each(|shown| self.put(ROLE, shown));
            return Ok(());
        }
        if name == ROLE {
            return Err(not_here());
        }
        if let Some(time) = fresh.time_of(&name).copied()
            && let Some(place) = self.time_of(&name)
        {
            *place = time;
        }
        match fresh.values.get(&name) {
            Some(value) => self.put(&name, value),
            None if self.values.contains_key(&name) => _ = Arc::make_mut(&mut self.values).remove(&name),
            None if name.contains('.') || ignored_settings::default_of(&name).is_some() => {}
            None => return Err(unknown(&name)),
        }
        Ok(())
    }

    /// All settings, by name.
    pub fn all(&self) -> Vec<(String, String)> {
        let ignored = ignored_settings::defaults().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut all: BTreeMap<String, String> = ignored.collect();
        all.extend(self.values.iter().map(|(name, value)| (name.clone(), value.clone())));
        all.into_iter().collect()
    }
}

/// A time as PostgreSQL reads it: a number and a unit, or a number of milliseconds. Errors: 22023.
fn time(name: &str, value: &str) -> Result<Duration, SqlError> {
    let invalid = || {
        let error = SqlError::value("22023", format!("invalid value for parameter \"{name}\": \"{value}\""));
        error.with_hint(
            "A whole number of milliseconds, or with a unit: \"ms\", \"s\", \"min\", \"h\", \"d\"; 0 means no limit.",
        )
    };
    let text = value.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit.trim() {
        "" => 1,
        unit => UNITS.iter().find(|(known, _)| *known == unit).map(|(_, unit)| *unit).ok_or_else(invalid)?,
    };
    let milliseconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    // PostgreSQL's bound.
    let bounded = milliseconds.filter(|milliseconds| *milliseconds <= i32::MAX as u64);
    bounded.map(Duration::from_millis).ok_or_else(invalid)
}

/// A time in the largest unit that leaves a whole number.
fn shown(time: Duration) -> String {
    let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let fits = UNITS.iter().find(|(_, unit)| milliseconds > 0 && milliseconds % unit == 0);
    fits.map_or_else(|| "0".to_owned(), |(name, unit)| format!("{}{name}", milliseconds / unit))
}

/// The role is changed where rights are asked.
fn not_here() -> SqlError {
    SqlError::unsupported("set_config of role").with_hint("Use SET ROLE or RESET ROLE.")
}

fn unknown(name: &str) -> SqlError {
    SqlError::statement("42704", format!("unrecognized configuration parameter \"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_change_results_is_refused_and_what_agrees_is_taken() {
        let mut settings = Settings::new("u", Duration::ZERO, Duration::ZERO);
        settings.set("TimeZone", "UTC").unwrap();
        assert_eq!(settings.set("timezone", "Europe/Berlin").unwrap_err().code(), "0A000");
        assert_eq!(settings.set("no_such", "1").unwrap_err().code(), "42704");
        assert_eq!(settings.set("Role", "default").unwrap_err().code(), "0A000");
        assert_eq!(settings.reset("RESET role").unwrap_err().code(), "0A000");
        settings.set("application_name", "psql").unwrap();
        assert_eq!(settings.get("application_name").unwrap(), "psql");
        settings.reset("RESET ALL").unwrap();
        assert_eq!(settings.get("Application_Name").unwrap(), "");
    }

    #[test]
    fn times_are_read_and_shown_as_postgresql_does() {
        let mut settings = Settings::new("u", Duration::from_secs(90), Duration::ZERO);
        assert_eq!(settings.get("statement_timeout").unwrap(), "90s");
        for (value, milliseconds, shown) in [
            ("5000", 5000, "5s"),
            ("1500", 1500, "1500ms"),
            ("2 min", 120_000, "2min"),
            ("0", 0, "0"),
            ("1h", 3_600_000, "1h"),
        ] {
            settings.set("statement_timeout", value).unwrap();
            assert_eq!(settings.statement_timeout(), Duration::from_millis(milliseconds), "{value}");
            assert_eq!(settings.get("statement_timeout").unwrap(), shown);
        }
        for value in ["-1", "1 week", "x", "", "2147483648", "1.5"] {
            assert_eq!(settings.set("statement_timeout", value).unwrap_err().code(), "22023", "{value}");
        }
        settings.reset("RESET statement_timeout").unwrap();
        assert_eq!(settings.statement_timeout(), Duration::from_secs(90));
    }
}
