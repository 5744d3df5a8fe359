//! What differs between two messages: segments, and in segments of one name the fields.
//!
//! ```text
//!   PID|1||7||DOE^J    PID-5  DOE^J -> DOE^JOHN        a pair of segments of one name, field by field
//!   ZPI|old            - ZPI|old                       only before
//!                      + NTE|1||new                    only now
//! ```
//!
//! Segments are paired by the longest common sequence; between two equal ones those that were replaced are paired in their order,
//! where the names are equal. Fields are compared as texts.
//!
//! A message may have 100,000 segments: the sequence is looked for during [`PATIENCE`] only, and a pair among [`AHEAD`] segments. Beyond that
//! differences are shown that are right, and not the fewest.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hl7::Reading;
use hl7::charset::Charset;
use serde::Serialize;
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

/// How long the longest common sequence is looked for.
const PATIENCE: Duration = Duration::from_millis(500);

/// Among how many replaced segments one of the same name is looked for.
const AHEAD: usize = 100;

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum SegmentDifference {
    /// A segment is not there any more.
    Removed {
        /// As text.
        segment: String,
    },
    /// A segment is new.
    Added {
        /// As text.
        segment: String,
    },
    /// A field has another value.
    Field {
        /// As `PID-5`, or `OBX[2]-5` for the second segment of its name.
        path: String,
        /// The former value; empty if there was none.
        before: String,
        /// The present one.
        now: String,
    },
}

/// The segments of a message as text, without empty lines.
pub(super) fn lines(body: &[u8], charset: Option<Charset>) -> Vec<String> {
    let text = Reading::lenient(body, charset).shown().into_owned();
    text.split(['\r', '\n']).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// What differs; texts that have `made_id` now, and had an id made by the engine, are equal there.
pub(super) fn differences(before: &[String], now: &[String], made_id: &str) -> Vec<SegmentDifference> {
    let mut found = Vec::new();
    let labels = labels(now);
    let deadline = Some(Instant::now() + PATIENCE);
    for operation in capture_diff_slices_deadline(Algorithm::Myers, before, now, deadline) {
        match operation {
            DiffOp::Equal { .. } => {}
            DiffOp::Delete { old_index, old_len, .. } => {
                found.extend(before[old_index..old_index + old_len].iter().map(|segment| removed(segment)));
            }
            DiffOp::Insert { new_index, new_len, .. } => {
                found.extend(now[new_index..new_index + new_len].iter().map(|segment| added(segment)));
            }
            DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                let (old, new) = (old_index..old_index + old_len, new_index..new_index + new_len);
                replaced((before, old), (now, new), (&labels, made_id), &mut found);
            }
        }
    }
    found
}

fn removed(segment: &str) -> SegmentDifference {
    SegmentDifference::Removed { segment: segment.to_owned() }
}

fn added(segment: &str) -> SegmentDifference {
    SegmentDifference::Added { segment: segment.to_owned() }
}

fn name(segment: &str) -> &str {
    segment.get(..3).unwrap_or(segment)
}

/// What each segment is called: `OBX`, and `OBX[2]` the second of its name.
fn labels(segments: &[String]) -> Vec<String> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    segments
        .iter()
        .map(|segment| {
            let (name, count) = (name(segment), seen.entry(name(segment)).or_default());
            *count += 1;
            if *count > 1 { format!("{name}[{count}]") } else { name.to_owned() }
        })
        .collect()
}

/// Pairs replaced segments by their names, in order.
fn replaced(
    (before, mut old): (&[String], std::ops::Range<usize>),
    (now, new): (&[String], std::ops::Range<usize>),
    (labels, made_id): (&[String], &str),
    found: &mut Vec<SegmentDifference>,
) {
    for at in new {
        match old.clone().take(AHEAD).find(|other| name(&before[*other]) == name(&now[at])) {
            Some(other) => {
                found.extend(before[old.start..other].iter().map(|segment| removed(segment)));
                old.start = other + 1;
                fields(&labels[at], &before[other], &now[at], made_id, found);
            }
            None => found.push(added(&now[at])),
        }
    }
    found.extend(before[old].iter().map(|segment| removed(segment)));
}

/// Compares two segments of one name field by field.
fn fields(label: &str, before: &str, now: &str, made_id: &str, found: &mut Vec<SegmentDifference>) {
    let separator = |segment: &str| segment.chars().nth(3).unwrap_or('|');
    if separator(before) != separator(now) {
        found.extend([removed(before), added(now)]);
        return;
    }
    // MSH-1 is the separator itself: MSH-2 is what stands behind the first one.
    let first = usize::from(label.starts_with("MSH"));
    let old: Vec<&str> = before.split(separator(before)).collect();
    let new: Vec<&str> = now.split(separator(now)).collect();
    for at in 1..old.len().max(new.len()) {
        let (old, new) = (old.get(at).copied().unwrap_or_default(), new.get(at).copied().unwrap_or_default());
        if !is_same(old, new, made_id) {
            found.push(SegmentDifference::Field {
                path: format!("{label}-{}", at + first),
                before: old.to_owned(),
                now: new.to_owned(),
            });
        }
    }
}

/// Whether a text is the same but for ids that were made: `made_id` now, `T` and hexadecimal digits then.
fn is_same(before: &str, now: &str, made_id: &str) -> bool {
    let Some((head, rest)) = now.split_once(made_id) else { return before == now };
    let Some(after) = before.strip_prefix(head).and_then(|after| after.strip_prefix('T')) else { return false };
    let digits = after.bytes().take_while(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F')).count();
    (1..=digits).any(|digits| is_same(&after[digits..], rest, made_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(before: &str, now: &str) -> Vec<String> {
        let split = |text: &str| -> Vec<String> { text.split('\n').map(str::to_owned).collect() };
        let shown = |difference: SegmentDifference| match difference {
            SegmentDifference::Removed { segment } => format!("- {segment}"),
            SegmentDifference::Added { segment } => format!("+ {segment}"),
            SegmentDifference::Field { path, before, now } => format!("{path} {before} > {now}"),
        };
        differences(&split(before), &split(now), "ID").into_iter().map(shown).collect()
    }

    #[test]
    fn segments_and_fields_that_differ_are_named_and_nothing_else() {
        let message = "MSH|^~\\&|A|B\nPID|1||7||DOE^J\nOBX|1|NM|a\nOBX|2|NM|b\nZZZ|x";
        for (now, expected) in [
            (message, vec![]),
            (
                "MSH|^~\\&|A|B\nPID|1||7||DOE^JOHN|x\nOBX|1|NM|a\nOBX|2|NM|b\nZZZ|x",
                vec!["PID-5 DOE^J > DOE^JOHN", "PID-6  > x"],
            ),
            ("MSH|^~\\&|C|B\nPID|1||7||DOE^J\nOBX|1|NM|a\nOBX|2|NM|c\nZZZ|x", vec!["MSH-3 A > C", "OBX[2]-3 b > c"]),
            ("MSH|^~\\&|A|B\nPID|1||7||DOE^J\nOBX|1|NM|a\nOBX|2|NM|b", vec!["- ZZZ|x"]),
            ("MSH|^~\\&|A|B\nPID|1||7||DOE^J\nOBX|1|NM|a\nOBX|2|NM|b\nNTE|new", vec!["+ NTE|new", "- ZZZ|x"]),
            ("MSH|^~\\&|A|B\nNTE|new\nPID|1||7||DOE^J\nOBX|1|NM|a\nOBX|2|NM|b\nZZZ|x", vec!["+ NTE|new"]),
            (
                "MSH|^~\\&|A|B\nPID#1##7##DOE^J\nOBX|1|NM|a\nOBX|2|NM|b\nZZZ|x",
                vec!["- PID|1||7||DOE^J", "+ PID#1##7##DOE^J"],
            ),
        ] {
            assert_eq!(of(message, now), expected, "{now}");
        }
    }

    #[test]
    fn long_messages_that_differ_everywhere_are_compared_to_the_end() {
        let of = |text: &str| -> Vec<String> {
            (0..100_000).map(|n| format!("{}|{n}|{text}", ["OBX", "NTE"][n % 2])).collect()
        };
        assert_eq!(differences(&of("a"), &of("b"), "ID").len(), 100_000);
        let other: Vec<String> = (0..100_000).map(|n| format!("Z{:02}|{n}", n % 50)).collect();
        assert_eq!(differences(&of("a"), &other, "ID").len(), 200_000);
    }

    #[test]
    fn an_id_that_the_engine_made_is_as_good_as_the_one_of_the_trial() {
        for (before, now, expected) in [
            ("T1A2B", "ID", true),
            ("xT1A2BA", "xIDA", true),
            ("T1^T2", "ID^ID", true),
            ("", "ID", false),
            ("T", "ID", false),
            ("T1", "IDx", false),
            ("U1", "ID", false),
            ("ID", "ID", false),
            ("T1", "T1", true),
        ] {
            assert_eq!(is_same(before, now, "ID"), expected, "{before} {now}");
        }
    }
}
