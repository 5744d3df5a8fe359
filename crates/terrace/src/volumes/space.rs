//! The space of thin volumes in words, for reports, the log and `terrace status`.

use volume::{CopySpace, CopyStatus, Status};

use super::requests::SpaceReport;

/// That of a copy, as it is reported.
pub fn report(found: CopySpace) -> SpaceReport {
    SpaceReport { allocated_bytes: found.allocated, free_bytes: found.free, is_short: found.is_short }
}

/// Why a thin volume refuses new data.
pub fn no_space(status: &Status) -> String {
    let is_short = |copy: &&CopyStatus| copy.space.is_some_and(|space| space.is_short);
    let short: Vec<String> = status.copies.iter().filter(is_short).map(|copy| copy.number.to_string()).collect();
    format!(
        "no space is left for new data on the medium of copy {}: reads, discards and changes of data that is there go on",
        short.join(" and ")
    )
}
