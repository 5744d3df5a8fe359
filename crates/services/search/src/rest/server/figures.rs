//! [`SearchFigures`]: what clients have asked for since the server started, for the metrics of the node.
//!
//! Invariant: classes are those of requests ([`super::lanes`]) and one for those that were refused before they had a turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Distribution, Noted};

/// Requests that were refused before they had a turn.
pub(super) const REFUSED_CLASS: &str = "refused";

const CLASSES: [&str; 5] = ["read", "write", "light", "long", REFUSED_CLASS];

/// First digits of a status.
const STATUSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// See the module's text.
#[derive(Debug)]
pub struct SearchFigures {
    counts: [[AtomicU64; STATUSES.len()]; CLASSES.len()],
    times: [Distribution<2>; CLASSES.len()],
}

impl Default for SearchFigures {
    fn default() -> SearchFigures {
        SearchFigures {
            counts: [const { [const { AtomicU64::new(0) }; STATUSES.len()] }; CLASSES.len()],
            times: Default::default(),
        }
    }
}

impl SearchFigures {
    /// A request of a class was answered with a status, so long after its head had come.
    pub(super) fn answered(&self, class: &str, status: u16, after: Duration) {
        let class = CLASSES.iter().position(|known| *known == class).unwrap_or(CLASSES.len() - 1);
        let status = usize::from((status / 100).clamp(2, 5) - 2);
        self.counts[class][status].fetch_add(1, Ordering::Relaxed);
        self.times[class].note(1, 0, after);
    }

    /// Answered requests by class and first digit of their status, as `2xx`.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        CLASSES.into_iter().zip(&self.counts).flat_map(|(class, counts)| {
            STATUSES.into_iter().zip(counts).map(move |(status, count)| (class, status, count.load(Ordering::Relaxed)))
        })
    }

    /// Times from the head of a request to its response, by class.
    pub fn times(&self) -> impl Iterator<Item = (&'static str, Noted)> + '_ {
        CLASSES.into_iter().zip(&self.times).map(|(class, times)| (class, times.noted()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_counted_once_by_class_and_status() {
        let figures = SearchFigures::default();
        for (class, status) in [("read", 200), ("read", 404), ("write", 201), (REFUSED_CLASS, 401), ("read", 200)] {
            figures.answered(class, status, Duration::from_millis(1));
        }
        let counted: Vec<_> = figures.requests().filter(|(.., count)| *count > 0).collect();
        let expected = [("read", "2xx", 2), ("read", "4xx", 1), ("write", "2xx", 1), ("refused", "4xx", 1)];
        assert_eq!(counted, expected);
        assert_eq!(figures.times().map(|(_, times)| times.count()).sum::<u64>(), 5);
    }
}
