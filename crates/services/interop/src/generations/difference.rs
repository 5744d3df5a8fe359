//! What differs between two texts of a production, file by file, as unified differences.
//!
//! Lookup tables are compared as sets of lines: their order does not matter much, they may be long, and what changed is entries.
//! Other files are compared line by line; where one of them has more than [`LINES_MAX`] lines, as sets too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

/// Lines of a file beyond which its lines are compared as a set: the longest common sequence takes their square.
const LINES_MAX: usize = 4_000;

/// Lines that do not differ around those that do.
const CONTEXT: usize = 3;

/// Most bytes of the differences of one file, and of all together.
const FILE_BYTES_MAX: usize = 256 << 10;
const BYTES_MAX: usize = 2 << 20;

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileChange {
    /// It is new.
    Came,
    /// It is not there any more.
    Went,
    /// Its text is another one.
    Changed,
}

/// A file that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDifference {
    /// Its path.
    pub path: String,
    /// What happened to it.
    pub change: FileChange,
    /// Lines that came, and that went.
    pub added: usize,
    /// See `added`.
    pub removed: usize,
    /// The differences, as `diff -u` writes them without its first two lines; empty where they are not shown.
    pub lines: String,
    /// Why they are not shown, or not all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The files of a text; without a text those that are not kept.
pub type Texts = BTreeMap<String, Option<Arc<str>>>;

/// The files that differ. Whether entries of lookup tables are shown is `shows_tables`.
pub fn differences(before: &Texts, now: &Texts, shows_tables: bool) -> Vec<FileDifference> {
    let paths: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let (mut found, mut left) = (Vec::new(), BYTES_MAX);
    for path in paths {
        let (old, new) = (before.get(path), now.get(path));
        let change = match (old, new) {
            (None, _) => FileChange::Came,
            (_, None) => FileChange::Went,
            (Some(Some(old)), Some(Some(new))) if old == new => continue,
            _ => FileChange::Changed,
        };
        let mut file =
            FileDifference { path: path.clone(), change, added: 0, removed: 0, lines: String::new(), note: None };
        match (old.map_or(Some(""), |text| text.as_deref()), new.map_or(Some(""), |text| text.as_deref())) {
            (Some(old), Some(new)) => {
                let is_table = path.starts_with("tables/");
                compare((old, new), is_table, &mut file);
                if is_table && !shows_tables {
                    file.lines.clear();
                    let why =
                        "entries of tables may be about patients: they are shown to who has `unmasked` on `service *`";
                    file.note = Some(why.to_owned());
                }
            }
            _ => file.note = Some("its text is not kept any more, or was too large to be kept".to_owned()),
        }
        cut(&mut file, left.min(FILE_BYTES_MAX));
        left -= file.lines.len();
        found.push(file);
    }
    found
}

/// Ends the lines where they become too many.
fn cut(file: &mut FileDifference, most: usize) {
    if file.lines.len() > most {
        let end = file.lines[..file.lines.floor_char_boundary(most)].rfind('\n').map_or(0, |at| at + 1);
        file.lines.truncate(end);
        file.note = Some("there are more differences than are shown".to_owned());
    }
}

fn compare((old, new): (&str, &str), as_set: bool, file: &mut FileDifference) {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    if as_set || old.len().max(new.len()) > LINES_MAX {
        sets(&old, &new, file);
    } else {
        sequences(&old, &new, file);
    }
    if file.added + file.removed == 0 {
        file.note = Some("its lines are the same; their order, or the end of the file, differs".to_owned());
    }
}

/// Lines that are in one only, each as often as it is more often there.
fn sets(old: &[&str], new: &[&str], file: &mut FileDifference) {
    file.removed = only_in(old, new, '-', &mut file.lines);
    file.added = only_in(new, old, '+', &mut file.lines);
}

/// Writes the lines that one has more often than another, in their order; returns how many.
fn only_in(one: &[&str], other: &[&str], sign: char, out: &mut String) -> usize {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    other.iter().for_each(|line| *counts.entry(line).or_default() += 1);
    let mut found = 0;
    for line in one {
        match counts.get_mut(line).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => {
                found += 1;
                if out.len() <= FILE_BYTES_MAX {
                    writeln!(out, "{sign}{line}").expect("a text grows");
                }
            }
        }
    }
    found
}

fn sequences(old: &[&str], new: &[&str], file: &mut FileDifference) {
    let out = &mut file.lines;
    for hunk in group_diff_ops(capture_diff_slices(Algorithm::Myers, old, new), CONTEXT) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let (old_range, new_range) =
            (first.old_range().start..last.old_range().end, first.new_range().start..last.new_range().end);
        // As diff -u counts: from 1, and from 0 where there is nothing.
        let place = |range: &std::ops::Range<usize>| match range.len() {
            0 => format!("{},0", range.start),
            length => format!("{},{length}", range.start + 1),
        };
        writeln!(out, "@@ -{} +{} @@", place(&old_range), place(&new_range)).expect("a text grows");
        for operation in hunk {
            let (from, to) = (operation.old_range(), operation.new_range());
            if let DiffOp::Equal { .. } = operation {
                old[from].iter().for_each(|line| writeln!(out, " {line}").expect("a text grows"));
                continue;
            }
            (file.removed, file.added) = (file.removed + from.len(), file.added + to.len());
            old[from].iter().for_each(|line| writeln!(out, "-{line}").expect("a text grows"));
            new[to].iter().for_each(|line| writeln!(out, "+{line}").expect("a text grows"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(files: &[(&str, Option<&str>)]) -> Texts {
        files.iter().map(|(path, text)| ((*path).to_owned(), text.map(Arc::from))).collect()
    }

    #[test]
    fn files_that_differ_are_shown_as_diff_u_does() {
        let before = texts(&[("rules/a.rules", Some("1\n2\n3\n4\n5\n6\n7\n8\n9\n")), ("rules/b.rules", Some("x\n"))]);
        let now =
            texts(&[("rules/a.rules", Some("1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n")), ("rules/c.rules", Some("y\n"))]);
        let found = differences(&before, &now, true);
        let shown: Vec<_> = found.iter().map(|file| (&*file.path, file.change, file.added, file.removed)).collect();
        let expected = [
            ("rules/a.rules", FileChange::Changed, 2, 1),
            ("rules/b.rules", FileChange::Went, 0, 1),
            ("rules/c.rules", FileChange::Came, 1, 0),
        ];
        assert_eq!(shown, expected);
        assert_eq!(found[0].lines, "@@ -2,8 +2,9 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n 9\n+10\n");
        assert_eq!(found[1].lines, "@@ -1,1 +0,0 @@\n-x\n");
        assert_eq!(differences(&before, &before, true), []);
    }

    #[test]
    fn tables_show_the_entries_that_changed_to_who_may_see_them() {
        let before = texts(&[("tables/t.csv", Some("a,1\nb,2\nb,2\nc,3\n"))]);
        let now = texts(&[("tables/t.csv", Some("c,3\na,1\nb,2\nd,4\n"))]);
        let found = differences(&before, &now, true);
        assert_eq!((&*found[0].lines, found[0].added, found[0].removed), ("-b,2\n+d,4\n", 1, 1));
        let hidden = differences(&before, &now, false);
        assert_eq!((&*hidden[0].lines, hidden[0].added, hidden[0].note.is_some()), ("", 1, true));
    }

    #[test]
    fn what_is_not_kept_is_named_and_much_is_cut() {
        let gone = texts(&[("rules/a.rules", None)]);
        let there = texts(&[("rules/a.rules", Some("x"))]);
        let found = differences(&gone, &there, true);
        assert!(found[0].lines.is_empty() && found[0].note.as_deref().is_some_and(|note| note.contains("not kept")));
        let long = |mark: &str| (0..200_000).map(|at| format!("{mark}{at}\n")).collect::<String>();
        let (one, two) = (long("a"), long("b"));
        let (before, now) = (texts(&[("rules/a.rules", Some(&one))]), texts(&[("rules/a.rules", Some(&two))]));
        let found = differences(&before, &now, true);
        assert!(found[0].lines.len() <= FILE_BYTES_MAX && found[0].lines.ends_with('\n'));
        assert_eq!((found[0].added, found[0].removed), (200_000, 200_000));
    }
}
