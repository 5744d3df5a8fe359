//! [`Hindrance`]: why an operation delivers nothing at a moment, whatever waits in front of it. Pure.
//!
//! ```text
//!   suspended?                         until somebody resumes it, or starts it
//!   outside its schedule?              until it opens, unless somebody has started it until a later time
//!   requires one that is not connected?  until that one's last try to connect succeeded; not one that has left the production
//! ```
//!
//! The lane asks before each delivery, and the status with the same words. Nothing of it is kept but what people ordered: schedules follow
//! from the time, connections from tries since the start.

use super::progress::span;
use super::{Orders, Suspension};

/// What is known of the connection of an operation that another one requires.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reached {
    /// Nothing since the start: it has not tried to connect.
    #[default]
    Unknown,
    /// Its last try to connect succeeded.
    Connected,
    /// Its last try failed, or the connection broke while it was sent on: why.
    Down(String),
}

/// Whether a required operation can be reached, at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequiredOperation {
    /// It tries to connect where it has to.
    Tries(Reached),
    /// It does not try, for a reason.
    Rests(&'static str),
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hindrance {
    /// It is suspended.
    Suspended(Suspension),
    /// It is outside its schedule, in words.
    Closed(String),
    /// It requires another operation that is not connected.
    Requires {
        /// The other one.
        operation: String,
        /// What is the matter with it.
        other: RequiredOperation,
    },
}

impl Orders {
    /// Whether it is outside its schedule, in words; not while somebody has started it.
    pub fn closed(&self, now_us: i64) -> Option<String> {
        if self.started_until_us.is_some_and(|until_us| now_us < until_us) {
            return None;
        }
        self.operation.settings.schedule()?.words(now_us)
    }

    /// Why nothing is delivered at a moment. `required`: what is the matter with an operation that it requires; none where the production
    /// does not have it.
    pub fn hindrance(
        &self,
        now_us: i64,
        required: impl FnOnce(&str) -> Option<RequiredOperation>,
    ) -> Option<Hindrance> {
        if let Some(suspension) = &self.suspended {
            return Some(Hindrance::Suspended(suspension.clone()));
        }
        if let Some(words) = self.closed(now_us) {
            return Some(Hindrance::Closed(words));
        }
        if self.retired {
            // What waits goes out: what it required may have left as well, and nobody can change that any more.
            return None;
        }
        let operation = self.operation.settings.requires()?;
        match required(operation).unwrap_or(RequiredOperation::Rests("the production does not have")) {
            RequiredOperation::Tries(Reached::Connected) => None,
            other => Some(Hindrance::Requires { operation: operation.to_owned(), other }),
        }
    }

    /// The same about this one, for one that requires it.
    pub fn required(&self, now_us: i64, reached: Reached) -> RequiredOperation {
        match (&self.suspended, self.retired) {
            (Some(_), _) => RequiredOperation::Rests("is suspended"),
            (None, true) => RequiredOperation::Rests("is not in the production any more"),
            (None, false) if self.closed(now_us).is_some() => RequiredOperation::Rests("is outside its schedule"),
            (None, false) => RequiredOperation::Tries(reached),
        }
    }
}

impl Hindrance {
    /// In words, for the status.
    pub fn words(&self, now_us: i64) -> String {
        match self {
            Hindrance::Suspended(Suspension { since_us, reason }) => {
                format!("suspended for {}: {reason}", span(now_us.saturating_sub(*since_us)))
            }
            Hindrance::Closed(words) => words.clone(),
            Hindrance::Requires { operation, other } => match other {
                RequiredOperation::Rests(why) => format!("waits for operation {operation}, which {why}"),
                RequiredOperation::Tries(Reached::Down(why)) => {
                    format!("waits for operation {operation}, which is not connected: {why}")
                }
                RequiredOperation::Tries(_) => format!("waits for operation {operation}, which has not connected yet"),
            },
        }
    }

    /// Whether its connection is of no use meanwhile.
    pub fn closes(&self) -> bool {
        matches!(self, Hindrance::Closed(_))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::production::{Operation, settings::OperationSettings};

    const MINUTE: i64 = 60_000_000;

    /// Of an operation that is open on Mondays from 08:00 to 09:00, and requires `other`. 1970-01-05 was a Monday.
    fn orders() -> Orders {
        let text = "kind = \"mllp\"\naddress = \"h:1\"\nrequires = \"other\"\n\
                    [schedule]\nopen = [\"Mon 08:00-09:00\"]\nzone = \"UTC\"\n";
        let settings = OperationSettings::Mllp(toml::from_str(text).expect("they are right"));
        let operation = Arc::new(Operation { name: "out".to_owned(), settings, key: None, tls: None });
        Orders { operation, suspended: None, started_until_us: None, retired: false }
    }

    const MONDAY: i64 = 4 * 24 * 60 * MINUTE;
    const OPEN: i64 = MONDAY + 8 * 60 * MINUTE;

    #[test]
    fn of_several_causes_the_one_that_a_person_ordered_is_told_first_then_the_schedule_then_the_other_operation() {
        let down = || Some(RequiredOperation::Tries(Reached::Down("no connection to h:2".to_owned())));
        let mut orders = orders();
        let words = |orders: &Orders, now_us: i64, required: Option<RequiredOperation>| {
            orders.hindrance(now_us, |_| required).map(|hindrance| hindrance.words(now_us))
        };
        let closed = "outside its schedule until Mon 08:00";
        assert_eq!(words(&orders, OPEN - MINUTE, down()).as_deref(), Some(closed));
        let waits = "waits for operation other, which is not connected: no connection to h:2";
        assert_eq!(words(&orders, OPEN, down()).as_deref(), Some(waits));
        for (required, expected) in [
            (None, Some("waits for operation other, which the production does not have")),
            (Some(RequiredOperation::Rests("is suspended")), Some("waits for operation other, which is suspended")),
            (
                Some(RequiredOperation::Tries(Reached::Unknown)),
                Some("waits for operation other, which has not connected yet"),
            ),
            (Some(RequiredOperation::Tries(Reached::Connected)), None),
        ] {
            assert_eq!(words(&orders, OPEN, required).as_deref(), expected);
        }
        orders.suspended = Some(Suspension { since_us: OPEN - 4 * MINUTE, reason: "by ann".into() });
        assert_eq!(words(&orders, OPEN, down()).as_deref(), Some("suspended for 4 min: by ann"));
    }

    #[test]
    fn one_that_has_left_the_production_waits_for_no_other_one_but_for_orders_and_its_schedule() {
        let mut orders = orders();
        assert!(orders.hindrance(OPEN, |_| None).is_some());
        orders.retired = true;
        assert_eq!(orders.hindrance(OPEN, |_| None), None);
        assert!(orders.hindrance(MONDAY, |_| None).is_some_and(|hindrance| hindrance.closes()));
        orders.suspended = Some(Suspension { since_us: OPEN, reason: "by ann".into() });
        assert!(matches!(orders.hindrance(OPEN, |_| None), Some(Hindrance::Suspended(_))));
    }

    #[test]
    fn one_that_was_started_works_outside_its_schedule_until_then_and_follows_it_again() {
        let mut orders = orders();
        let connected = |_: &str| Some(RequiredOperation::Tries(Reached::Connected));
        orders.started_until_us = Some(MONDAY + MINUTE);
        assert_eq!(orders.hindrance(MONDAY, connected), None);
        assert!(orders.hindrance(MONDAY + MINUTE, connected).is_some_and(|hindrance| hindrance.closes()));
        assert_eq!(orders.hindrance(OPEN, connected), None, "its schedule opens it");
    }

    #[test]
    fn one_that_rests_is_not_connected_whatever_its_last_try_was() {
        let mut orders = orders();
        assert_eq!(orders.required(OPEN, Reached::Connected), RequiredOperation::Tries(Reached::Connected));
        assert_eq!(orders.required(MONDAY, Reached::Connected), RequiredOperation::Rests("is outside its schedule"));
        orders.suspended = Some(Suspension { since_us: 0, reason: "by ann".into() });
        assert_eq!(orders.required(OPEN, Reached::Connected), RequiredOperation::Rests("is suspended"));
    }
}
