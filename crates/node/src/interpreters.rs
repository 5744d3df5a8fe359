//! One interpreter made of several: a store has one, and a node has records of more than one owner.
//!
//! ```text
//!   record of kind 1, 2, 3 --> the engine's interpreter, with the trees of the engine
//!   record of kind 4       --> the audit's interpreter, with the tree of the audit
//!                              each gets its own slice of the trees, in the order in which it named them
//! ```
//!
//! Invariants: a kind and a tree belong to one part. A record of a kind that no part knows is refused before it is appended,
//! and is damage when it is found.

use std::ops::Range;
use std::sync::Arc;

use store::{Changes, Foreign, Interpreter, StoreError, TreeId};

/// An interpreter, the kinds of its records, and where its trees are among all.
struct Part {
    kinds: &'static [u8],
    interpreter: Arc<dyn Interpreter>,
    trees: Range<usize>,
}

/// See the module's text.
pub struct Interpreters {
    parts: Vec<Part>,
}

impl std::fmt::Debug for Interpreters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.parts.iter().map(|part| (part.kinds, &part.trees))).finish()
    }
}

impl Interpreters {
    /// One of these interpreters, each with the kinds of its records. The trees of the first come first.
    ///
    /// # Panics
    /// A kind or a tree belongs to two of them: a programmer's error.
    pub fn of(interpreters: Vec<(&'static [u8], Arc<dyn Interpreter>)>) -> Interpreters {
        let (mut parts, mut names) = (Vec::<Part>::new(), Vec::<String>::new());
        for (kinds, interpreter) in interpreters {
            let is_taken = |kind: &u8| parts.iter().any(|part| part.kinds.contains(kind));
            assert!(!kinds.iter().any(is_taken), "a kind of records belongs to two interpreters");
            let own = interpreter.trees();
            assert!(!own.iter().any(|name| names.contains(name)), "a tree belongs to two interpreters");
            let trees = names.len()..names.len() + own.len();
            names.extend(own);
            parts.push(Part { kinds, interpreter, trees });
        }
        Interpreters { parts }
    }

    /// The part that knows a record, and its trees.
    fn part<'a>(&self, kind: u8, trees: &'a [TreeId]) -> Option<(&dyn Interpreter, &'a [TreeId])> {
        let part = self.parts.iter().find(|part| part.kinds.contains(&kind))?;
        Some((&*part.interpreter, trees.get(part.trees.clone())?))
    }
}

impl Interpreter for Interpreters {
    fn trees(&self) -> Vec<String> {
        self.parts.iter().flat_map(|part| part.interpreter.trees()).collect()
    }

    fn vital(&self) -> Vec<String> {
        self.parts.iter().flat_map(|part| part.interpreter.vital()).collect()
    }

    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError> {
        let (interpreter, trees) = self.part(record.kind, trees).ok_or_else(|| {
            let (kind, lsn) = (record.kind, record.lsn);
            let text = format!("the record of kind {kind} at {lsn} is not of a version this release reads");
            StoreError::Corrupt(text.into())
        })?;
        interpreter.apply(record, trees, changes)
    }

    fn check(&self, record: &Foreign<'_>, trees: &[TreeId], value_bytes_max: usize) -> Result<(), StoreError> {
        let (interpreter, trees) = self.part(record.kind, trees).ok_or_else(|| {
            let text = format!("a record of kind {} that this release would not read again", record.kind);
            StoreError::Refused(text.into())
        })?;
        interpreter.check(record, trees, value_bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use store::{Options, Store};

    use super::*;

    /// Puts the payload under the kind, in the last of its trees.
    struct Last(&'static [&'static str]);

    impl Interpreter for Last {
        fn trees(&self) -> Vec<String> {
            self.0.iter().map(ToString::to_string).collect()
        }

        fn vital(&self) -> Vec<String> {
            vec![self.0[0].to_owned()]
        }

        fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError> {
            assert_eq!(trees.len(), self.0.len(), "its own trees and no others");
            changes.put(trees[trees.len() - 1], vec![record.kind], record.payload.clone());
            Ok(())
        }
    }

    fn two() -> Interpreters {
        Interpreters::of(vec![(&[1, 2], Arc::new(Last(&["a", "b"]))), (&[4], Arc::new(Last(&["c"])))])
    }

    #[test]
    fn each_record_goes_to_the_interpreter_of_its_kind_with_the_trees_of_that_one() {
        assert_eq!((two().trees().join(" "), two().vital().join(" ")), ("a b c".to_owned(), "a c".to_owned()));
        let store =
            Store::in_memory(Options { interpreter: Some(Arc::new(two())), ..Options::default() }).expect("memory");
        for (kind, payload) in [(1, "one"), (2, "two"), (4, "four")] {
            let lsn = store.append(kind, payload).expect("it is known");
            store.wait_visible(lsn).expect("it works");
        }
        let snapshot = store.snapshot();
        let of = |tree: &str, kind: u8| {
            let tree = snapshot.tree(tree).expect("it reads").expect("it was made");
            snapshot.get(tree, &[kind]).expect("it reads")
        };
        let rows = [of("b", 1), of("b", 2), of("c", 4)].map(Option::unwrap_or_default);
        assert_eq!(rows, [Bytes::from("one"), Bytes::from("two"), Bytes::from("four")]);
        assert_eq!((of("a", 1), of("b", 4), of("c", 1)), (None, None, None));
    }

    #[test]
    fn a_kind_that_none_knows_is_refused_before_it_is_appended_and_is_damage_when_it_is_found() {
        let store =
            Store::in_memory(Options { interpreter: Some(Arc::new(two())), ..Options::default() }).expect("memory");
        assert!(matches!(store.append(3, "x"), Err(StoreError::Refused(_))));
        let payload = Bytes::from("x");
        let record = Foreign { lsn: store::Lsn(7), kind: 3, payload: &payload };
        let applied = two().apply(&record, &[TreeId(1), TreeId(2), TreeId(3)], &mut Changes::default());
        assert!(matches!(applied, Err(StoreError::Corrupt(_))));
    }

    #[test]
    #[should_panic(expected = "belongs to two interpreters")]
    fn two_interpreters_of_one_kind_are_a_programmers_error() {
        let _ = Interpreters::of(vec![(&[1], Arc::new(Last(&["a"]))), (&[1], Arc::new(Last(&["b"])))]);
    }
}
