//! [`IntervalRule`]: what an `intervals` query looks for, and where it is found in a document.
//!
//! ```text
//!   cold rain makes it wet        ordered(cold, wet) = [0, 4]     any(cold, wet) = [0, 0] [4, 4]
//!    0    1     2   3   4
//! ```
//!
//! Invariant: the intervals of a rule are in ascending order of their beginnings and of their ends: none contains another
//! (minimal intervals, as Lucene has them).

/// Where a rule is found: positions of its first and its last term, and how many positions its parts take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) start: u32,
    pub(super) end: u32,
    width: u32,
}

impl Interval {
    /// One term.
    pub(super) fn at(position: u32) -> Interval {
        Interval { start: position, end: position, width: 1 }
    }

    /// Positions that none of its parts takes.
    fn gaps(self) -> u32 {
        (self.end - self.start + 1).saturating_sub(self.width)
    }
}

/// How the parts of a rule lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntervalOrder {
    /// One after the other.
    Ordered,
    /// In any order, and at the same place too.
    Unordered,
    /// In any order, at different places.
    Apart,
}

/// How an interval lies to one of another rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntervalFilter {
    Containing,
    ContainedBy,
    Overlapping,
    Before,
    After,
}

/// What is looked for.
#[derive(Clone, Debug)]
pub(super) enum IntervalRule {
    /// The terms with this number in the query.
    Leaf(usize),
    /// Nothing.
    None,
    All {
        parts: Vec<IntervalRule>,
        order: IntervalOrder,
        max_gaps: Option<u32>,
    },
    Any(Vec<IntervalRule>),
    Filtered {
        rule: Box<IntervalRule>,
        filter: IntervalFilter,
        negated: bool,
        by: Box<IntervalRule>,
    },
}

impl IntervalRule {
    /// Where it is found in a document whose terms are at these positions.
    pub(super) fn find(&self, positions: &[Vec<u32>]) -> Vec<Interval> {
        match self {
            IntervalRule::None => Vec::new(),
            IntervalRule::Leaf(number) => positions[*number].iter().copied().map(Interval::at).collect(),
            IntervalRule::Any(parts) => minimal(parts.iter().flat_map(|part| part.find(positions)).collect()),
            IntervalRule::All { parts, order, max_gaps } => {
                let found: Vec<Vec<Interval>> = parts.iter().map(|part| part.find(positions)).collect();
                if found.is_empty() || found.iter().any(Vec::is_empty) {
                    return Vec::new();
                }
                let mut all = match order {
                    IntervalOrder::Ordered => ordered(&found),
                    IntervalOrder::Unordered => unordered(&found),
                    IntervalOrder::Apart => apart(found),
                };
                if let Some(most) = max_gaps {
                    all.retain(|interval| interval.gaps() <= *most);
                }
                all
            }
            IntervalRule::Filtered { rule, filter, negated, by } => {
                let mut found = rule.find(positions);
                if found.is_empty() {
                    return found;
                }
                let by = by.find(positions);
                found.retain(|interval| fits(*interval, *filter, &by) != *negated);
                found
            }
        }
    }

    /// Whether a document can match that has only the leaves for which `has` says so.
    pub(super) fn can_match(&self, has: &dyn Fn(usize) -> bool) -> bool {
        match self {
            IntervalRule::None => false,
            IntervalRule::Leaf(number) => has(*number),
            IntervalRule::Any(parts) => parts.iter().any(|part| part.can_match(has)),
            IntervalRule::All { parts, .. } => !parts.is_empty() && parts.iter().all(|part| part.can_match(has)),
            IntervalRule::Filtered { rule, negated, by, .. } => rule.can_match(has) && (*negated || by.can_match(has)),
        }
    }
}

/// Only those that contain no other.
fn minimal(mut all: Vec<Interval>) -> Vec<Interval> {
    all.sort_by_key(|interval| (interval.start, std::cmp::Reverse(interval.end)));
    let mut kept: Vec<Interval> = Vec::with_capacity(all.len());
    for interval in all {
        while kept.last().is_some_and(|last| last.end >= interval.end) {
            kept.pop();
        }
        kept.push(interval);
    }
    kept
}

/// Parts one after the other.
fn ordered(parts: &[Vec<Interval>]) -> Vec<Interval> {
    let mut next = vec![0; parts.len()];
    let mut found = Vec::new();
    'firsts: for first in &parts[0] {
        let mut whole = *first;
        for (part, next) in parts.iter().zip(&mut next).skip(1) {
            while part.get(*next).is_some_and(|interval| interval.start <= whole.end) {
                *next += 1;
            }
            let Some(interval) = part.get(*next) else { break 'firsts };
            whole.end = interval.end;
            whole.width += interval.width;
        }
        found.push(whole);
    }
    minimal(found)
}

/// Parts in any order: from each beginning, the earliest end at which all were seen.
fn unordered(parts: &[Vec<Interval>]) -> Vec<Interval> {
    let mut starts: Vec<u32> = parts.iter().flatten().map(|interval| interval.start).collect();
    starts.sort_unstable();
    starts.dedup();
    let mut next = vec![0; parts.len()];
    let mut found = Vec::new();
    'starts: for start in starts {
        let mut whole: Option<Interval> = None;
        for (part, next) in parts.iter().zip(&mut next) {
            while part.get(*next).is_some_and(|interval| interval.start < start) {
                *next += 1;
            }
            let Some(interval) = part.get(*next) else { break 'starts };
            whole = Some(match whole {
                None => *interval,
                Some(whole) => Interval {
                    start: whole.start.min(interval.start),
                    end: whole.end.max(interval.end),
                    width: whole.width + interval.width,
                },
            });
        }
        found.extend(whole);
    }
    minimal(found)
}

/// Parts in any order, none at the place of another: two at a time.
fn apart(parts: Vec<Vec<Interval>>) -> Vec<Interval> {
    let pair = |a: Vec<Interval>, b: Vec<Interval>| {
        let two = [a, b];
        let mut both = ordered(&two);
        let [a, b] = two;
        both.extend(ordered(&[b, a]));
        minimal(both)
    };
    parts.into_iter().reduce(pair).unwrap_or_default()
}

fn fits(interval: Interval, filter: IntervalFilter, by: &[Interval]) -> bool {
    by.iter().any(|other| match filter {
        IntervalFilter::Containing => interval.start <= other.start && other.end <= interval.end,
        IntervalFilter::ContainedBy => other.start <= interval.start && interval.end <= other.end,
        IntervalFilter::Overlapping => interval.start <= other.end && other.start <= interval.end,
        IntervalFilter::Before => interval.end < other.start,
        IntervalFilter::After => interval.start > other.end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_found_where_their_parts_lie_as_they_say() {
        // "some like hot and dry some like it cold and wet": some, hot, cold, and
        let positions = vec![vec![0, 5], vec![2], vec![8], vec![3, 9]];
        let all = |parts: &[usize], order, max_gaps| IntervalRule::All {
            parts: parts.iter().copied().map(IntervalRule::Leaf).collect(),
            order,
            max_gaps,
        };
        use IntervalOrder::{Apart, Ordered, Unordered};
        for (rule, found) in [
            (all(&[0, 1], Ordered, None), vec![(0, 2)]),
            (all(&[1, 0], Ordered, None), vec![(2, 5)]),
            (all(&[1, 0], Unordered, None), vec![(0, 2), (2, 5)]),
            (all(&[0, 1], Ordered, Some(0)), vec![]),
            (all(&[0, 1], Ordered, Some(1)), vec![(0, 2)]),
            (all(&[2, 2], Unordered, None), vec![(8, 8)]),
            (all(&[2, 2], Apart, None), vec![]),
            (all(&[3, 2, 0], Apart, None), vec![(0, 8), (5, 9)]),
            (IntervalRule::Any(vec![IntervalRule::Leaf(1), IntervalRule::Leaf(2)]), vec![(2, 2), (8, 8)]),
        ] {
            let ends: Vec<(u32, u32)> =
                rule.find(&positions).into_iter().map(|interval| (interval.start, interval.end)).collect();
            assert_eq!(ends, found, "{rule:?}");
        }
        let filtered = |filter, negated| IntervalRule::Filtered {
            rule: Box::new(IntervalRule::Leaf(3)),
            filter,
            negated,
            by: Box::new(IntervalRule::Leaf(2)),
        };
        for (filter, negated, found) in [
            (IntervalFilter::Before, false, vec![3]),
            (IntervalFilter::After, false, vec![9]),
            (IntervalFilter::Overlapping, true, vec![3, 9]),
            (IntervalFilter::Containing, false, vec![]),
        ] {
            let starts: Vec<u32> =
                filtered(filter, negated).find(&positions).into_iter().map(|interval| interval.start).collect();
            assert_eq!(starts, found, "{filter:?} {negated}");
        }
    }
}
