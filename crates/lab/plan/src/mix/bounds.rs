//! What a plan holds mixes and machines against beside their times: wear of drives, and what a listing of a machine has left unnamed.

use catalogue::Medium;
use catalogue::provision::geometry::print_bytes;

use super::report::EnduranceReport;
use super::server::{OwnedKind, Server};
use super::supply::Supply;
use crate::PlanError;

/// The largest part of its endurance that one of these drives is worn by, where it is known.
pub(super) fn worn(wear: &[(String, EnduranceReport)]) -> f64 {
    let part = |(_, wear): &(String, EnduranceReport)| {
        wear.allowed_bytes_per_day.map_or(0.0, |allowed| wear.written_bytes_per_day / allowed)
    };
    wear.iter().map(part).fold(0.0, f64::max)
}

/// Drives that are worn out before their warranty ends, in words.
pub(super) fn worn_out(wear: &[(String, EnduranceReport)]) -> Vec<String> {
    let says = |(medium, wear): &(String, EnduranceReport)| {
        let allowed = wear.allowed_bytes_per_day.filter(|allowed| wear.written_bytes_per_day > *allowed)?;
        let (written, allowed) = (print_bytes(wear.written_bytes_per_day as u64), print_bytes(allowed as u64));
        Some(format!("endurance of {medium}: {written} are written each day, {allowed} may be"))
    };
    wear.iter().filter_map(says).collect()
}

/// What a listing of a machine has found and not named has to be named: else its slots and its worth would be passed over in silence.
///
/// # Errors
/// What it is, how many, and how to name it.
pub(super) fn check_listing(server: &Server, media: &[Medium], without: &[String]) -> Result<(), PlanError> {
    let owned = server.owned()?;
    let is_owned = |kind: &str| {
        let is_of =
            |name: &String| media.iter().any(|medium| medium.name == *name && Supply::of(medium).is_named(kind));
        owned.iter().any(|owned| matches!(&owned.what, OwnedKind::Medium(name) if is_of(name)))
    };
    let is_left_out = |kind: &str| without.iter().any(|word| word == kind || word == "far");
    for (kind, many, example) in server.found() {
        if many > 0 && !is_owned(kind) && !is_left_out(kind) {
            return Err(PlanError::Refused(format!(
                "the machine has {many} {kind} that the listing does not name: say which with --have, as {many}x{example}, or --no {kind}"
            )));
        }
    }
    Ok(())
}
