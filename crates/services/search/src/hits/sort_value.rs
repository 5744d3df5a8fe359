//! [`SortValue`]: a value that hits of different segments and indices are compared by.
//!
//! Invariant: the order is total, also among whole numbers and numbers with a fraction, which are compared as what they are: rounded
//! to one type, two that differ could both equal a third, and neither a sort nor a next page would be right.

use std::cmp::Ordering;
use std::net::Ipv6Addr;

/// A value that hits are compared by.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SortValue {
    /// Before all others, in the order of the key.
    First,
    Whole(i64),
    Unsigned(u64),
    Real(f64),
    Text(String),
    Address(Ipv6Addr),
    /// After all others.
    Last,
}

impl SortValue {
    /// Compares in the order of a key.
    pub(super) fn compare(&self, other: &SortValue, descending: bool) -> Ordering {
        use SortValue::{Address, First, Last, Real, Text};
        let order = match (self, other) {
            (First, First) | (Last, Last) => return Ordering::Equal,
            (First, _) | (_, Last) => return Ordering::Less,
            (_, First) | (Last, _) => return Ordering::Greater,
            (Text(a), Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Address(a), Address(b)) => a.cmp(b),
            (Real(a), Real(b)) => a.total_cmp(b),
            (a, b) => match (a.whole(), b.whole(), a, b) {
                (Some(a), Some(b), ..) => a.cmp(&b),
                (Some(a), _, _, Real(b)) => whole_and_real(a, *b),
                (_, Some(b), Real(a), _) => whole_and_real(b, *a).reverse(),
                // A text and a number: a search refuses such indices together.
                _ => a.class().cmp(&b.class()),
            },
        };
        if descending { order.reverse() } else { order }
    }

    fn whole(&self) -> Option<i128> {
        match self {
            SortValue::Whole(whole) => Some(i128::from(*whole)),
            SortValue::Unsigned(whole) => Some(i128::from(*whole)),
            _ => None,
        }
    }

    fn class(&self) -> u8 {
        match self {
            SortValue::Text(_) => 1,
            SortValue::Address(_) => 2,
            _ => 0,
        }
    }
}

/// Compares without rounding; the negative zero comes before the whole number 0.
pub(super) fn whole_and_real(whole: i128, real: f64) -> Ordering {
    // Every whole number of 65 bits and every real one that is as small fits; what is greater stays greater.
    let floor = real.floor() as i128;
    whole.cmp(&floor).then_with(|| match real.floor() == real {
        true if real == 0.0 => 0.0_f64.total_cmp(&real),
        true => Ordering::Equal,
        false => Ordering::Less,
    })
}
