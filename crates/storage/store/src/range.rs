//! Ranges of keys: [`Span`], which a walk over leaves divides, and [`Direction`]. Pure.

use std::ops::Bound;

use bytes::Bytes;

/// The direction of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Smallest key first.
    Forward,
    /// Largest key first.
    Backward,
}

/// A range of keys: from the first inclusive to the second exclusive; an empty second key means no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Bytes,
    pub(crate) to: Bytes,
}

impl Span {
    /// Converts bounds; `None` if no key can lie between them.
    pub(crate) fn of(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Option<Span> {
        let behind = |key: &[u8]| Bytes::from([key, &[0]].concat());
        let from = match from {
            Bound::Included(key) => Bytes::copy_from_slice(key),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Bytes::new(),
        };
        let to = match to {
            Bound::Included(key) => behind(key),
            Bound::Excluded([]) => return None,
            Bound::Excluded(key) => Bytes::copy_from_slice(key),
            Bound::Unbounded => Bytes::new(),
        };
        (to.is_empty() || from < to).then_some(Span { from, to })
    }

    /// All keys.
    pub(crate) fn all() -> Span {
        Span { from: Bytes::new(), to: Bytes::new() }
    }

    /// Converts to bounds.
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let to = if self.to.is_empty() { Bound::Unbounded } else { Bound::Excluded(self.to.as_ref()) };
        (Bound::Included(self.from.as_ref()), to)
    }

    /// Splits off the part that a leaf with these fences covers, in that direction: returns that part, and the rest.
    pub(crate) fn split(self, low: &Bytes, high: &Bytes, direction: Direction) -> (Span, Option<Span>) {
        let Span { from, to } = self;
        match direction {
            Direction::Forward if !high.is_empty() && (to.is_empty() || *high < to) => {
                (Span { from, to: high.clone() }, Some(Span { from: high.clone(), to }))
            }
            Direction::Backward if *low > from => {
                (Span { from: low.clone(), to }, Some(Span { from, to: low.clone() }))
            }
            _ => (Span { from, to }, None),
        }
    }
}

/// Whether a range contains no key: `BTreeMap::range` panics for some of these.
pub(crate) fn is_empty(range: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match range {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_become_spans_and_spans_are_cut_at_fences() {
        let span = |from: &'static [u8], to: &'static [u8]| Span { from: from.into(), to: to.into() };
        let of = |from, to| Span::of(from, to);
        assert_eq!(of(Bound::Unbounded, Bound::Unbounded), Some(Span::all()));
        assert_eq!(of(Bound::Excluded(b"a"), Bound::Included(b"b")), Some(span(b"a\0", b"b\0")));
        assert_eq!(of(Bound::Included(b"b"), Bound::Excluded(b"b")), None);
        assert_eq!(of(Bound::Unbounded, Bound::Excluded(b"")), None);
        assert_eq!(of(Bound::Excluded(b"a"), Bound::Excluded(b"a\0")), None);
        let (low, high) = (Bytes::from_static(b"f"), Bytes::from_static(b"m"));
        let cut = span(b"g", b"z").split(&low, &high, Direction::Forward);
        assert_eq!(cut, (span(b"g", b"m"), Some(span(b"m", b"z"))));
        let cut = span(b"a", b"h").split(&low, &high, Direction::Backward);
        assert_eq!(cut, (span(b"f", b"h"), Some(span(b"a", b"f"))));
        assert_eq!(span(b"g", b"m").split(&low, &high, Direction::Forward).1, None);
        assert_eq!(span(b"f", b"").split(&low, &Bytes::new(), Direction::Backward).1, None);
    }
}
