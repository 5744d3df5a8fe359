//! [`Sequence`]: the definition of a sequence, as the catalog stores it, and the order of its values.
//!
//! The definition is part of transactions as tables are. Where the sequence stands is not: that is its *counter*, under
//! the number [`Sequence::counter`], which is kept by [`Sequences`](crate::engine::sequences::Sequences). A statement that
//! lets a sequence begin anew gives it another counter, so that a rollback brings the old one back.

use serde::{Deserialize, Serialize};

use super::types::SqlType;
use crate::SqlError;

/// A sequence. A value never changes: another definition is another value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// Its schema.
    #[serde(skip)]
    pub schema_name: String,
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// The permanent number of the sequence.
    pub id: u64,
    /// The number of its counter.
    pub counter: u64,
    /// Its type: smallint, integer or bigint.
    pub kind: SqlType,
    /// The value with which ALTER SEQUENCE .. RESTART begins.
    pub start: i64,
    /// From one value to the next; not 0.
    pub increment: i64,
    /// The least value.
    pub min: i64,
    /// The greatest value.
    pub max: i64,
    /// The option CACHE: so many values at least are made persistent at a time.
    pub cache: i64,
    /// Whether it begins anew behind its last value.
    pub cycle: bool,
    /// The first value of the counter.
    pub first: i64,
    /// The column with which it is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<SequenceOwner>,
}

/// The column that a sequence belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceOwner {
    /// The table's permanent number.
    pub table: u64,
    /// The column's name.
    pub column: String,
    /// Whether it is the sequence of an identity column, which cannot be dropped without it.
    #[serde(default)]
    pub identity: bool,
}

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The value that was given last, or the one that is given next.
    pub last: i64,
    /// Whether `last` was given.
    pub is_called: bool,
}

impl Counter {
    /// The stored form: the value, big-endian, and a byte that is 1 if it was given.
    pub(crate) fn encode(self) -> [u8; 9] {
        let mut bytes = [u8::from(self.is_called); 9];
        bytes[..8].copy_from_slice(&self.last.to_be_bytes());
        bytes
    }

    /// Reads the stored form; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Counter> {
        let (last, is_called) = bytes.split_first_chunk::<8>()?;
        let is_called = match is_called {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        Some(Counter { last: i64::from_be_bytes(*last), is_called })
    }
}

/// The options of CREATE SEQUENCE and ALTER SEQUENCE; `None`: not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SequenceOptions {
    /// AS.
    pub(crate) kind: Option<SqlType>,
    /// INCREMENT BY.
    pub(crate) increment: Option<i64>,
    /// MINVALUE; `Some(None)`: NO MINVALUE.
    pub(crate) min: Option<Option<i64>>,
    /// MAXVALUE; `Some(None)`: NO MAXVALUE.
    pub(crate) max: Option<Option<i64>>,
    /// START WITH.
    pub(crate) start: Option<i64>,
    /// RESTART; `Some(None)`: with the start value.
    pub(crate) restart: Option<Option<i64>>,
    /// CACHE.
    pub(crate) cache: Option<i64>,
    /// CYCLE; false: NO CYCLE.
    pub(crate) cycle: Option<bool>,
    /// OWNED BY; `Some(None)`: NONE.
    pub(crate) owned_by: Option<Option<Vec<String>>>,
}

fn wrong(message: String) -> SqlError {
    SqlError::value("22023", message)
}

/// The values of a type of sequences.
fn range(kind: SqlType) -> (i64, i64) {
    match kind {
        SqlType::SmallInt => (i16::MIN.into(), i16::MAX.into()),
        SqlType::Integer => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

impl SequenceOptions {
    /// The definition of a new sequence, or of an existing one with these changes. Errors: 22023, as PostgreSQL's.
    pub(crate) fn applied(&self, old: Option<&Sequence>) -> Result<Sequence, SqlError> {
        let kind = self.kind.or(old.map(|old| old.kind)).unwrap_or(SqlType::BigInt);
        if !matches!(kind, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) {
            return Err(wrong("sequence type must be smallint, integer, or bigint".into()));
        }
        let increment = self.increment.or(old.map(|old| old.increment)).unwrap_or(1);
        if increment == 0 {
            return Err(wrong("INCREMENT must not be zero".into()));
        }
        let (least, greatest) = range(kind);
        let (no_min, no_max) = if increment > 0 { (1, greatest) } else { (least, -1) };
        // A bound that was the type's own is the new type's own.
        let follows = |bound: i64, of: fn((i64, i64)) -> i64| match (self.kind, old) {
            (Some(_), Some(old)) if bound == of(range(old.kind)) => of((least, greatest)),
            _ => bound,
        };
        let min = match (self.min, old) {
            (Some(min), _) => min.unwrap_or(no_min),
            (None, Some(old)) => follows(old.min, |range| range.0),
            (None, None) => no_min,
        };
        let max = match (self.max, old) {
            (Some(max), _) => max.unwrap_or(no_max),
            (None, Some(old)) => follows(old.max, |range| range.1),
            (None, None) => no_max,
        };
        let shown = kind.name();
        if !(least..=greatest).contains(&max) {
            return Err(wrong(format!("MAXVALUE ({max}) is out of range for sequence data type {shown}")));
        }
        if !(least..=greatest).contains(&min) {
            return Err(wrong(format!("MINVALUE ({min}) is out of range for sequence data type {shown}")));
        }
        if min >= max {
            return Err(wrong(format!("MINVALUE ({min}) must be less than MAXVALUE ({max})")));
        }
        let start = self.start.or(old.map(|old| old.start)).unwrap_or(if increment > 0 { min } else { max });
        within("START", start, min, max)?;
        let first = match self.restart {
            Some(restart) => restart.unwrap_or(start),
            None => old.map_or(start, |old| old.first),
        };
        if self.restart.is_some() {
            within("RESTART", first, min, max)?;
        }
        let cache = self.cache.or(old.map(|old| old.cache)).unwrap_or(1);
        if cache < 1 {
            return Err(wrong(format!("CACHE ({cache}) must be greater than zero")));
        }
        Ok(Sequence {
            schema_name: old.map(|old| old.schema_name.clone()).unwrap_or_default(),
            name: old.map(|old| old.name.clone()).unwrap_or_default(),
            id: old.map_or(0, |old| old.id),
            counter: old.map_or(0, |old| old.counter),
            kind,
            start,
            increment,
            min,
            max,
            cache,
            cycle: self.cycle.or(old.map(|old| old.cycle)).unwrap_or(false),
            first,
            owner: old.and_then(|old| old.owner.clone()),
        })
    }
}

fn within(what: &str, value: i64, min: i64, max: i64) -> Result<(), SqlError> {
    if value < min {
        return Err(wrong(format!("{what} value ({value}) cannot be less than MINVALUE ({min})")));
    }
    if value > max {
        return Err(wrong(format!("{what} value ({value}) cannot be greater than MAXVALUE ({max})")));
    }
    Ok(())
}

impl Sequence {
    /// Where a new counter stands.
    pub fn beginning(&self) -> Counter {
        Counter { last: self.first, is_called: false }
    }

    /// The next value. Errors: 2200H at the end of a sequence without CYCLE.
    pub(crate) fn next(&self, counter: Counter) -> Result<i64, SqlError> {
        if !counter.is_called {
            return Ok(counter.last);
        }
        let next = counter.last.checked_add(self.increment);
        let (is_up, bound) = (self.increment > 0, if self.increment > 0 { self.max } else { self.min });
        match next.filter(|next| if is_up { *next <= self.max } else { *next >= self.min }) {
            // A value that an altered bound excludes is not given either.
            Some(next) if (self.min..=self.max).contains(&next) => Ok(next),
            Some(_) | None if self.cycle => Ok(if is_up { self.min } else { self.max }),
            _ => {
                let which = if is_up { "maximum" } else { "minimum" };
                let message = format!("nextval: reached {which} value of sequence \"{}\" ({bound})", self.name);
                Err(SqlError::value("2200H", message))
            }
        }
    }

    /// The value that is this number of steps behind `from`, or as many as there are, and their number.
    pub(crate) fn ahead(&self, from: i64, steps: i64) -> (i64, u64) {
        let room = if self.increment > 0 {
            (i128::from(self.max) - i128::from(from)) / i128::from(self.increment)
        } else {
            (i128::from(from) - i128::from(self.min)) / -i128::from(self.increment)
        };
        let steps = room.clamp(0, i128::from(steps));
        let ahead = i128::from(from) + steps * i128::from(self.increment);
        // It lies between `from` and a bound, or is `from`.
        (i64::try_from(ahead).unwrap_or(from), steps as u64)
    }

    /// Checks that a counter stands between the bounds. Errors: 22023, as PostgreSQL's.
    pub(crate) fn check_standing(&self, counter: Counter) -> Result<(), SqlError> {
        within("RESTART", counter.last, self.min, self.max)
    }

    /// Checks that a value may be set. Errors: 22003.
    pub(crate) fn check_set(&self, value: i64) -> Result<(), SqlError> {
        match (self.min..=self.max).contains(&value) {
            true => Ok(()),
            false => {
                let (name, min, max) = (&self.name, self.min, self.max);
                let message = format!("setval: value {value} is out of bounds for sequence \"{name}\" ({min}..{max})");
                Err(SqlError::value("22003", message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(options: SequenceOptions) -> Sequence {
        Sequence { name: "s".into(), ..options.applied(None).expect("it can be made") }
    }

    fn values(sequence: &Sequence, count: usize) -> Vec<Result<i64, &'static str>> {
        let mut counter = sequence.beginning();
        let mut next = || {
            let next = sequence.next(counter).map_err(|error| error.code());
            if let Ok(last) = next {
                counter = Counter { last, is_called: true };
            }
            next
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn values_follow_one_another_up_to_the_bound_and_begin_anew_only_with_cycle() {
        let options = |increment, min, max, cycle| SequenceOptions {
            increment: Some(increment),
            min: Some(min),
            max: Some(max),
            cycle: Some(cycle),
            ..SequenceOptions::default()
        };
        for (options, expected) in [
            (options(1, None, Some(2), false), vec![Ok(1), Ok(2), Err("2200H"), Err("2200H")]),
            (options(2, Some(1), Some(4), true), vec![Ok(1), Ok(3), Ok(1), Ok(3)]),
            (options(-1, Some(-2), None, true), vec![Ok(-1), Ok(-2), Ok(-1), Ok(-2)]),
            (
                options(i64::MAX, Some(i64::MIN), None, false),
                vec![Ok(i64::MIN), Ok(-1), Ok(i64::MAX - 1), Err("2200H")],
            ),
        ] {
            assert_eq!(values(&sequence(options.clone()), 4), expected, "{options:?}");
        }
    }

    #[test]
    fn what_is_reserved_ahead_ends_at_the_bound() {
        let up = sequence(SequenceOptions { max: Some(Some(10)), ..SequenceOptions::default() });
        assert_eq!((up.ahead(1, 3), up.ahead(8, 32), up.ahead(10, 32)), ((4, 3), (10, 2), (10, 0)));
        let down = sequence(SequenceOptions { increment: Some(-3), ..SequenceOptions::default() });
        assert_eq!((down.ahead(-1, 2), down.ahead(i64::MIN + 1, 5)), ((-7, 2), (i64::MIN + 1, 0)));
    }

    #[test]
    fn options_that_contradict_one_another_are_refused_in_postgresqls_words() {
        let none = SequenceOptions::default;
        for (options, text) in [
            (SequenceOptions { increment: Some(0), ..none() }, "INCREMENT must not be zero"),
            (SequenceOptions { max: Some(Some(0)), ..none() }, "MINVALUE (1) must be less than MAXVALUE (0)"),
            (SequenceOptions { start: Some(0), ..none() }, "START value (0) cannot be less than MINVALUE (1)"),
            (SequenceOptions { cache: Some(0), ..none() }, "CACHE (0) must be greater than zero"),
            (
                SequenceOptions { kind: Some(SqlType::SmallInt), max: Some(Some(40_000)), ..none() },
                "MAXVALUE (40000) is out of range for sequence data type smallint",
            ),
            (
                SequenceOptions { kind: Some(SqlType::Text), ..none() },
                "sequence type must be smallint, integer, or bigint",
            ),
        ] {
            let refused = options.applied(None).expect_err(text);
            assert_eq!((refused.code(), refused.to_string().as_str()), ("22023", text));
        }
    }

    #[test]
    fn a_bound_of_the_old_type_becomes_the_new_types() {
        let old = sequence(SequenceOptions { kind: Some(SqlType::SmallInt), ..SequenceOptions::default() });
        let to = SequenceOptions { kind: Some(SqlType::Integer), ..SequenceOptions::default() };
        assert_eq!(to.applied(Some(&old)).expect("it can be altered").max, i64::from(i32::MAX));
    }

    #[test]
    fn a_counter_is_read_as_it_was_written_and_other_bytes_are_none() {
        for counter in [Counter { last: -5, is_called: true }, Counter { last: i64::MAX, is_called: false }] {
            assert_eq!(Counter::decode(&counter.encode()), Some(counter));
        }
        // Golden: this is what the store contains.
        assert_eq!(Counter { last: 258, is_called: true }.encode(), [0, 0, 0, 0, 0, 0, 1, 2, 1]);
        for other in [&[][..], &[0; 8], &[2; 9], &[0; 10]] {
            assert_eq!(Counter::decode(other), None);
        }
    }
}
