//! Names of segments and fields of HL7 v2, for people: a list of those that most messages have. What is not in it has no name here.

use std::collections::HashMap;
use std::sync::LazyLock;

static NAMES: LazyLock<HashMap<&'static str, &'static str>> =
    LazyLock::new(|| include_str!("hl7_names.txt").lines().filter_map(|line| line.split_once(' ')).collect());

/// The name of a segment (`PID`) or a field (`PID-3`).
pub(crate) fn name(path: &str) -> Option<&'static str> {
    NAMES.get(path).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_path_with_a_name_and_each_is_there_once() {
        let lines = include_str!("hl7_names.txt").lines();
        let mut count = 0;
        for line in lines {
            let (path, name) = line.split_once(' ').expect("a path and a name");
            assert!(path.len() == 3 || path.parse::<hl7::Path>().is_ok(), "{line}");
            assert!(!name.is_empty() && path.is_char_boundary(3), "{line}");
            count += 1;
        }
        assert_eq!(count, NAMES.len());
        assert_eq!(
            (name("PID"), name("PID-3"), name("ZZZ")),
            (Some("Patient identification"), Some("Patient identifiers"), None)
        );
    }
}
