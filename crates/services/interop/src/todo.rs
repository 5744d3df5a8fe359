//! [`TodoNote`]: what people have noted about a message that needs one of them: who takes care of it, comments, and whether it is done.
//!
//! ```text
//!   tree hl7.todo      id of the message, big endian      the note as JSON, with its version
//! ```
//!
//! Which messages are on the list is not stored: it follows from their status and outcomes, and from what was made from them since
//! ([`TodoReason`]). So a message that nobody has touched has no note.
//!
//! Invariants: a note is changed by one transaction, and of two at the same time both count; it is bounded; retention removes it with
//! its message.

use serde::{Deserialize, Serialize};
use store::{Snapshot, Store, StoreError};

use crate::error::InteropError;
use crate::record::{DeliveryOutcome, Status, Stored};
use crate::rows::{Reader, TODO_TREE};

const VERSION: u8 = 1;

/// Comments of a note at most; the oldest go.
const COMMENTS_MAX: usize = 50;

/// Longest comment, in bytes.
const COMMENT_BYTES_MAX: usize = 500;

/// Why a message needs a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TodoReason {
    /// A rule or transform failed on it.
    Errored,
    /// No rule matched.
    Unmatched,
    /// An output was given up.
    Failed,
    /// An output was set aside.
    SetAside,
}

impl TodoReason {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            TodoReason::Errored => "errored",
            TodoReason::Unmatched => "unmatched",
            TodoReason::Failed => "failed",
            TodoReason::SetAside => "set-aside",
        }
    }

    /// Why a message needs a person, with the words of the decision or the outcome; none where it needs nobody, also because it was
    /// sent again or reprocessed.
    ///
    /// # Errors
    /// As [`Reader::inbound`].
    pub fn of(reader: &Reader, id: u64, stored: &Stored) -> Result<Option<(TodoReason, String)>, InteropError> {
        let by_status = match stored.status {
            Status::Errored => Some(TodoReason::Errored),
            Status::Unmatched => Some(TodoReason::Unmatched),
            _ => None,
        };
        let found = match by_status {
            Some(reason) => Some((reason, stored.reason.clone())),
            None => reader.outcomes(id)?.into_iter().find_map(|delivery| match delivery.outcome {
                DeliveryOutcome::Failed => Some((TodoReason::Failed, delivery.detail)),
                DeliveryOutcome::SetAside => {
                    Some((TodoReason::SetAside, format!("by {}: {}", delivery.by, delivery.detail)))
                }
                DeliveryOutcome::Delivered => None,
            }),
        };
        match found {
            Some(_) if !reader.derived_from(id, 1)?.is_empty() => Ok(None),
            found => Ok(found),
        }
    }
}

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoComment {
    /// By whom.
    pub by: String,
    /// When, microseconds since 1970.
    pub at_us: i64,
    /// What.
    pub text: String,
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoNote {
    version: u8,
    /// Who takes care of it.
    pub owner: Option<String>,
    /// Whether it is done.
    pub done: bool,
    /// What was said, the newest last.
    pub comments: Vec<TodoComment>,
}

impl Default for TodoNote {
    fn default() -> TodoNote {
        TodoNote { version: VERSION, owner: None, done: false, comments: Vec::new() }
    }
}

/// A change of a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TodoChange {
    /// Who asks takes care of it from now on, also in the place of another.
    Take,
    /// This role takes care of it from now on, also in the place of another.
    Assign(String),
    /// Something is said about it.
    Comment(String),
    /// It is done.
    Done,
}

impl TodoChange {
    /// Refuses a comment that is none.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        let TodoChange::Comment(text) = self else { return Ok(()) };
        let is_plain = !text.chars().any(char::is_control) && !text.trim().is_empty();
        if is_plain && text.len() <= COMMENT_BYTES_MAX {
            return Ok(());
        }
        Err(format!("a comment has 1 to {COMMENT_BYTES_MAX} bytes, on one line"))
    }
}

impl TodoNote {
    /// The note after a change.
    #[must_use]
    pub fn apply(mut self, change: &TodoChange, by: &str, at_us: i64) -> TodoNote {
        match change {
            TodoChange::Take => {
                let before = self.owner.replace(by.to_owned()).filter(|before| before != by);
                self.done = false;
                match before {
                    Some(before) => self.comment(by, at_us, &format!("taken over from {before}")),
                    None => self,
                }
            }
            TodoChange::Assign(owner) => {
                let before = self.owner.replace(owner.clone()).filter(|before| before != owner);
                self.done = false;
                let before = before.map(|before| format!(", before {before}")).unwrap_or_default();
                self.comment(by, at_us, &format!("assigned to {owner}{before}"))
            }
            TodoChange::Comment(text) => self.comment(by, at_us, text),
            TodoChange::Done => {
                self.done = true;
                self.owner.get_or_insert_with(|| by.to_owned());
                self.comment(by, at_us, "done")
            }
        }
    }

    fn comment(mut self, by: &str, at_us: i64, text: &str) -> TodoNote {
        let text = text[..text.floor_char_boundary(COMMENT_BYTES_MAX)].to_owned();
        self.comments.push(TodoComment { by: by.to_owned(), at_us, text });
        let beyond = self.comments.len().saturating_sub(COMMENTS_MAX);
        self.comments.drain(..beyond);
        self
    }

    fn decode(row: &[u8]) -> Result<TodoNote, StoreError> {
        let note = serde_json::from_slice::<TodoNote>(row).ok().filter(|note| note.version == VERSION);
        note.ok_or_else(|| StoreError::Corrupt("a note of hl7.todo is not of a version this release reads".into()))
    }

    /// The note of a message; an empty one where nobody has touched it.
    ///
    /// # Errors
    /// The store's.
    pub fn read(snapshot: &Snapshot, id: u64) -> Result<TodoNote, StoreError> {
        let Some(tree) = snapshot.tree(TODO_TREE)? else { return Ok(TodoNote::default()) };
        snapshot.get(tree, &id.to_be_bytes())?.map_or_else(|| Ok(TodoNote::default()), |row| TodoNote::decode(&row))
    }

    /// Changes the note of a message, durably.
    ///
    /// # Errors
    /// The store's.
    pub fn change(store: &Store, id: u64, change: &TodoChange, by: &str, at_us: i64) -> Result<TodoNote, StoreError> {
        store.transact(|transaction| {
            let tree = match transaction.tree(TODO_TREE)? {
                Some(tree) => tree,
                None => transaction.create_tree(TODO_TREE)?,
            };
            let key = id.to_be_bytes();
            let before = match transaction.get(tree, &key)? {
                Some(row) => TodoNote::decode(&row)?,
                None => TodoNote::default(),
            };
            let note = before.apply(change, by, at_us);
            transaction.put(tree, &key, &serde_json::to_vec(&note).expect("plain data becomes JSON"))?;
            Ok(note)
        })
    }
}

#[cfg(test)]
mod tests {
    use store::Options;

    use super::*;

    #[test]
    fn a_note_has_an_owner_the_newest_comments_and_whether_it_is_done() {
        let note = TodoNote::default().apply(&TodoChange::Take, "ann", 1);
        assert_eq!((note.owner.as_deref(), note.done, note.comments.len()), (Some("ann"), false, 0));
        let note = note.apply(&TodoChange::Take, "ann", 2).apply(&TodoChange::Take, "ben", 3);
        assert_eq!((note.owner.as_deref(), note.comments[0].text.as_str()), (Some("ben"), "taken over from ann"));
        let note = note.apply(&TodoChange::Done, "ann", 4);
        assert_eq!((note.owner.as_deref(), note.done), (Some("ben"), true));
        let given = note.clone().apply(&TodoChange::Assign("eve".to_owned()), "ann", 5);
        let said = given.comments.last().map(|last| (last.by.as_str(), last.text.as_str()));
        assert_eq!((given.owner.as_deref(), given.done), (Some("eve"), false));
        assert_eq!(said, Some(("ann", "assigned to eve, before ben")));
        let many = (0..100).fold(note, |note, n| note.apply(&TodoChange::Comment(format!("c{n}")), "ann", n));
        assert_eq!((many.comments.len(), many.comments[COMMENTS_MAX - 1].text.as_str()), (COMMENTS_MAX, "c99"));
        for (text, is_one) in [("why", true), (" ", false), ("a\nb", false), (&"x".repeat(501), false)] {
            assert_eq!(TodoChange::Comment(text.to_owned()).check().is_ok(), is_one, "{text:?}");
        }
    }

    #[test]
    fn changes_at_the_same_time_all_count() {
        let store = Store::in_memory(Options::default()).expect("memory");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = store.clone();
                scope.spawn(move || {
                    for n in 0..5 {
                        let comment = TodoChange::Comment(format!("{thread}-{n}"));
                        TodoNote::change(&store, 7, &comment, "ann", n).expect("it works");
                    }
                });
            }
        });
        let snapshot = store.snapshot();
        assert_eq!(TodoNote::read(&snapshot, 7).expect("it reads").comments.len(), 20);
        assert_eq!(TodoNote::read(&snapshot, 8).expect("it reads"), TodoNote::default());
    }
}
