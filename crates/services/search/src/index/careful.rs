//! [`Careful`]: how a feed finds the one document that the library cannot index, and passes over documents that are known to be so.
//!
//! ```text
//!   a batch fails --> half of it, each part committed --> .. --> one document, and the library panics on it: passed over
//!                                                           \--> one document, and the medium fails: tried again later
//! ```
//!
//! Pure: no lock, no I/O.

use std::collections::BTreeSet;

/// Documents that are passed over, at most: each is a fault of the program, and is named in the log.
const PASSED_MAX: usize = 10_000;

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(super) struct Careful {
    /// Documents of the next batch, and the number behind the last batch that failed.
    part: Option<(usize, u64)>,
    passed: BTreeSet<u64>,
}

impl Careful {
    /// Documents of the next batch.
    pub(super) fn batch(&self, usual: usize) -> usize {
        self.part.map_or(usual, |(batch, _)| batch)
    }

    /// Whether each batch is committed by itself.
    pub(super) fn is_on(&self) -> bool {
        self.part.is_some()
    }

    /// Something below `until` failed.
    pub(super) fn failed(&mut self, usual: usize, until: u64) {
        self.part = Some(match self.part {
            None => (usual / 2, until),
            Some((batch, before)) => ((batch / 2).max(1), before.max(until)),
        });
    }

    /// Everything below `next` is committed.
    pub(super) fn done(&mut self, usual: usize, next: u64) {
        self.part = self.part.filter(|(_, until)| next < *until).map(|(batch, until)| ((batch * 2).min(usual), until));
    }

    /// A document is passed over from now on. Returns whether it is named for the first time.
    pub(super) fn pass_over(&mut self, seq: u64) -> bool {
        while self.passed.len() >= PASSED_MAX {
            self.passed.pop_first();
        }
        self.passed.insert(seq)
    }

    /// Whether a document is passed over.
    pub(super) fn passes_over(&self, seq: u64) -> bool {
        self.passed.contains(&seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_document_among_many_is_found_in_few_steps() {
        for bad in [0_u64, 1, 499, 998, 999] {
            let (mut careful, mut at, mut steps) = (Careful::default(), 0, 0);
            let mut fails = |careful: &mut Careful, at: u64| {
                let end = (at + careful.batch(1_000) as u64).min(1_000);
                steps += 1;
                let is_bad = (at..end).contains(&bad) && !careful.passes_over(bad);
                if is_bad && end - at == 1 {
                    assert!(careful.pass_over(bad) && !careful.pass_over(bad));
                }
                if is_bad {
                    careful.failed(1_000, end);
                    return at;
                }
                careful.done(1_000, end);
                end
            };
            while at < 1_000 {
                at = fails(&mut careful, at);
            }
            assert!(careful.passes_over(bad) && !careful.is_on(), "{bad}");
            assert!(steps < 100, "{bad}: {steps} steps");
        }
    }
}
