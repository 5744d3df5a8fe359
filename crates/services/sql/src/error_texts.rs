//! Errors of the planner in the words of PostgreSQL: names of types as SQL has them, and nothing about the library's inside.

/// What a text of the library begins with, and what it says about itself.
const NOISE: [&str; 8] = [
    "Internal error: ",
    "Error during planning: ",
    "Execution error: ",
    "External error: ",
    "Optimizer error: ",
    "This feature is not implemented: ",
    "Arrow error: ",
    "Schema error: ",
];

/// Where the library asks for a report of a fault.
const REPORTS: [&str; 3] = [
    "This issue was likely caused by a bug",
    "Please help us to resolve this by filing",
    "No function matches the given name",
];

/// The library's types by their beginnings, longer ones first, and SQL's names of them.
const TYPES: [(&str, &str); 25] = [
    ("Timestamp(\u{b5}s, \"+00:00\")", "timestamp with time zone"),
    ("Timestamp(\u{b5}s)", "timestamp without time zone"),
    ("Timestamp(ns)", "timestamp without time zone"),
    ("Interval(MonthDayNano)", "interval"),
    ("Duration(\u{b5}s)", "interval"),
    ("Time64(\u{b5}s)", "time without time zone"),
    ("Decimal128", "numeric"),
    ("Decimal256", "numeric"),
    ("LargeBinary", "bytea"),
    ("BinaryView", "bytea"),
    ("Binary", "bytea"),
    ("LargeUtf8", "text"),
    ("Utf8View", "text"),
    ("Float64", "double precision"),
    ("Float32", "real"),
    ("Boolean", "boolean"),
    ("Date32", "date"),
    ("UInt64", "numeric"),
    ("UInt32", "bigint"),
    ("Int64", "bigint"),
    ("Int32", "integer"),
    ("Int16", "smallint"),
    ("Utf8", "text"),
    ("DataFusion", "the planner"),
    ("Arrow", "the planner"),
];

/// The text for a user.
pub(crate) fn shown(text: &str) -> String {
    let mut text = text.to_owned();
    for report in REPORTS {
        if let Some(at) = text.find(report) {
            text.truncate(at);
        }
    }
    for noise in NOISE {
        text = text.replace(noise, "");
    }
    for (theirs, ours) in TYPES {
        text = text.replace(theirs, ours);
    }
    text.trim_end_matches(|letter: char| letter.is_whitespace() || letter == '.').to_owned()
}

/// The name of the function that a text says is not there, or not for these arguments.
pub(crate) fn missing_function(text: &str) -> Option<&str> {
    let after = ["Invalid function '", "Internal error: Function '", "Function '", "a call to '"];
    let known =
        text.contains("Invalid function") || text.contains("failed to match") || text.contains("No function matches");
    if !known && !text.contains("failed with") && !text.contains("to satisfy a call to") {
        return None;
    }
    let (_, rest) = after.iter().find_map(|before| text.split_once(before))?;
    rest.split_once('\'').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_the_library_is_left() {
        let text = "Internal error: Function 'date_trunc' failed to match any signature, errors: Error during planning: Function \
                    'date_trunc' requires Timestamp, but received Interval(MonthDayNano).\nThis issue was likely caused by a bug in \
                    DataFusion's code. Please help us to resolve this by filing a bug report";
        assert_eq!(missing_function(text), Some("date_trunc"));
        assert_eq!(
            shown("Cannot coerce arithmetic expression Interval(MonthDayNano) * Decimal128(2, 1) to valid types"),
            "Cannot coerce arithmetic expression interval * numeric(2, 1) to valid types"
        );
        for word in ["Internal", "bug", "DataFusion", "Interval("] {
            assert!(!shown(text).contains(word), "{word}: {}", shown(text));
        }
    }
}
