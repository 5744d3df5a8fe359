//! Which messages match, and the shortest way to them.

use hl7::{Message, Path, Reading};
use store::{Direction, StoreError};

use super::{Counts, EVERY_SERVICE, Filter, Line, ListPlace, OutputState};
use crate::error::InteropError;
use crate::intake;
use crate::record::search::{SearchKeys, TEXT_BYTES_MAX, TextIndex};
use crate::record::{self, DeliveryOutcome, Derivation, MessageOrigin, Stored};
use crate::rows::IdRange;
use crate::rows::Reader;
use crate::rows::read::{ById, ByText, ByTime};

/// Messages that match, oldest first, of those services that `may_see` allows. Others are left out before anything of them is
/// compared, and all conditions are on a message as `seen` returns it. Of a damaged message the service is not known: it is listed where `may_see` allows [`EVERY_SERVICE`].
pub(super) fn list(
    reader: &Reader,
    filter: &Filter,
    may_see: &mut dyn FnMut(&str) -> bool,
    seen: &dyn Fn(Stored) -> Stored,
) -> Result<Vec<Line>, InteropError> {
    let wanted = filter.wanted_paths()?;
    // The newest so many: from behind, until there are enough.
    let direction = if filter.last > 0 { Direction::Backward } else { Direction::Forward };
    let mut candidates = Candidates::of(reader, filter, &Walk { direction, before: None, after: None });
    let mut lines = Vec::new();
    while filter.last == 0 || lines.len() < filter.last {
        let Some(ListPlace { id, .. }) = candidates.next()? else { break };
        // An entry without its message would be damage, which `check` reports; a list shows the existing messages.
        let line = reader.inbound(id).and_then(|found| match found {
            Some((stored, _)) if may_see(&stored.service) => filter.line(reader, id, &seen(stored), &wanted),
            Some(_) | None => Ok(None),
        });
        match line {
            Ok(line) => lines.extend(line),
            // It is not known whether it matches: it is listed as damaged, with the others.
            Err(InteropError::Store(StoreError::Corrupt(why))) => {
                if may_see(EVERY_SERVICE) {
                    lines.push(Line::damaged(id, why.to_string()));
                }
            }
            Err(error) => return Err(error),
        }
    }
    lines.sort_unstable_by_key(|line| line.id);
    Ok(lines)
}

/// Counts the stored messages, with the index by time, and the outputs by outcome.
pub(super) fn count(reader: &Reader) -> Result<Counts, InteropError> {
    let mut counts = Counts::default();
    let mut cursor = reader.by_time(None, None, Direction::Forward);
    while let Some((_, _, summary)) = cursor.next()? {
        let (_, _, resent) = summary.decided();
        counts.inbound += u64::from(!resent);
        counts.resent += u64::from(resent);
        counts.outputs += u64::from(summary.outputs);
    }
    let mut outcomes = reader.all(reader.trees().outcomes, Direction::Forward);
    while let Some((_, row)) = outcomes.next()? {
        match record::outcome_of(&row) {
            Some(DeliveryOutcome::Delivered) => counts.delivered += 1,
            Some(DeliveryOutcome::SetAside) => counts.set_aside += 1,
            Some(DeliveryOutcome::Failed) | None => counts.failed += 1,
        }
    }
    counts.objects = counts.inbound + counts.resent + counts.outputs;
    Ok(counts)
}

/// How messages are walked over.
pub(super) struct Walk {
    pub(super) direction: Direction,
    /// Only what is older than this; for walks backward.
    pub(super) before: Option<ListPlace>,
    /// Only what is newer than this; for walks forward.
    pub(super) after: Option<ListPlace>,
}

/// Messages in the order of the index that narrows most.
pub(super) enum Candidates {
    Text(ByText),
    State(ById),
    Time(ByTime),
}

impl Candidates {
    pub(super) fn of(reader: &Reader, filter: &Filter, walk: &Walk) -> Candidates {
        let (trees, direction) = (reader.trees(), walk.direction);
        let first = walk.after.map_or(0, |place| place.id.saturating_add(1));
        let ids = IdRange { first, below: walk.before.map(|place| place.id) };
        let kind = filter.kind.as_ref().filter(|kind| kind.contains('^'));
        let interface = filter.interface.as_ref().or(filter.service.as_ref());
        let text = [(trees.by_control, filter.control_id.as_ref()), (trees.by_mrn, filter.mrn.as_ref())];
        let by_text = |(tree, text): (_, Option<&String>)| {
            Some(Candidates::Text(reader.by_text_within(tree, text?, ids, direction)))
        };
        let by_output = |wanted| match wanted {
            OutputState::Failed => Some(reader.with_failed_output_within(ids, direction)),
            OutputState::Waiting => Some(reader.with_waiting_output_within(ids, direction)),
            OutputState::SetAside => Some(reader.with_set_aside_output_within(ids, direction)),
            OutputState::Delivered => None,
        };
        let by_state = || {
            let status = filter.status.and_then(|status| reader.by_status_within(status, ids, direction));
            status.or_else(|| filter.output.and_then(by_output)).map(Candidates::State)
        };
        let often = [(trees.by_interface, interface), (trees.by_type, kind)];
        let found =
            text.into_iter().find_map(by_text).or_else(by_state).or_else(|| often.into_iter().find_map(by_text));
        let [after, before] = [walk.after, walk.before].map(|place| place.map(|place| (place.received_us, place.id)));
        let by_time = || reader.by_time_within((filter.since_us, filter.until_us), (after, before), direction);
        found.unwrap_or_else(|| Candidates::Time(by_time()))
    }

    /// The next one.
    pub(super) fn next(&mut self) -> Result<Option<ListPlace>, InteropError> {
        let of_id = |id| ListPlace { received_us: 0, id };
        match self {
            Candidates::Text(cursor) => Ok(cursor.next()?.map(of_id)),
            Candidates::State(cursor) => Ok(cursor.next()?.map(of_id)),
            Candidates::Time(cursor) => Ok(cursor.next()?.map(|(received_us, id, _)| ListPlace { received_us, id })),
        }
    }
}

impl Filter {
    /// The conditions on values, with their paths.
    pub(super) fn wanted_paths(&self) -> Result<Vec<(Path, &str)>, InteropError> {
        let mut paths = Vec::new();
        for (path, text) in &self.wanted {
            let path = path.parse().map_err(|_| InteropError::Refused(format!("`{path}` is not a path")))?;
            paths.push((path, text.as_str()));
        }
        Ok(paths)
    }

    /// The line of a message that matches.
    pub(super) fn line(
        &self,
        reader: &Reader,
        id: u64,
        stored: &Stored,
        wanted: &[(Path, &str)],
    ) -> Result<Option<Line>, InteropError> {
        if self.service.as_ref().is_some_and(|service| *service != stored.service)
            || self.status.is_some_and(|status| status != stored.status)
            || self.since_us.is_some_and(|since| stored.received_us < since)
            || self.until_us.is_some_and(|until| stored.received_us >= until)
        {
            return Ok(None);
        }
        if !self.found_by(&stored.keys) {
            return Ok(None);
        }
        let reading = Reading::lenient(&stored.raw, stored.charset);
        let message = reading.message().ok();
        let holds = |(path, wanted): &(Path, &str)| message.as_ref().is_some_and(|m| intake::text(m, path) == **wanted);
        if !wanted.iter().all(holds) {
            return Ok(None);
        }
        let outputs = outputs(reader, id)?;
        let goes_to = |name: &String| *name == stored.service || outputs.iter().any(|(operation, _)| operation == name);
        if self.output.is_some_and(|wanted| outputs.iter().all(|(_, state)| *state != wanted))
            || !self.interface.as_ref().is_none_or(goes_to)
        {
            return Ok(None);
        }
        let text = |path| shown_text(message.as_ref(), path);
        Ok(Some(Line {
            id,
            received_us: stored.received_us,
            service: stored.service.clone(),
            kind: text("MSH-9"),
            control_id: text("MSH-10"),
            status: stored.status,
            duplicate: stored.duplicate,
            generation: stored.generation,
            resent_from: made(stored.origin.as_ref(), &[Derivation::Resent, Derivation::Edited]),
            reprocessed_from: made(stored.origin.as_ref(), &[Derivation::Reprocessed]),
            imported: made(stored.origin.as_ref(), &[Derivation::Imported]).is_some(),
            bytes: stored.raw.len(),
            outputs,
            damaged: None,
        }))
    }

    /// Whether the message's own search keys are the requested ones: an index may contain them cut.
    pub(crate) fn found_by(&self, keys: &SearchKeys) -> bool {
        if self.control_id.is_none() && self.mrn.is_none() && self.kind.is_none() {
            return true;
        }
        let (mut control, mut mrn, mut kind) = (self.control_id.is_none(), self.mrn.is_none(), self.kind.is_none());
        keys.texts(|index, text| match index {
            TextIndex::Control => control |= is_cut(self.control_id.as_deref(), text),
            TextIndex::Mrn => mrn |= is_cut(self.mrn.as_deref(), text),
            TextIndex::Type => kind |= self.kind.as_deref().is_some_and(|wanted| is_kind(wanted, text)),
        });
        control && mrn && kind
    }
}

/// What a line has of a text of a message at most, bytes: a sender chooses how long it is, and a list has a thousand lines.
const SHOWN_BYTES: usize = TEXT_BYTES_MAX;

/// The text at a constant path, its beginning and an ellipsis where it is longer than any name or number of HL7.
pub(super) fn shown_text(message: Option<&Message<'_>>, path: &str) -> String {
    let path: Path = path.parse().expect("a constant path");
    let mut text = message.map(|message| intake::text(message, &path)).unwrap_or_default();
    if text.len() > SHOWN_BYTES {
        text.truncate(text.floor_char_boundary(SHOWN_BYTES));
        text.push('\u{2026}');
    }
    text
}

/// The message that one was made from in one of these ways.
fn made(origin: Option<&MessageOrigin>, ways: &[Derivation]) -> Option<u64> {
    origin.filter(|origin| ways.contains(&origin.derivation)).map(|origin| origin.id)
}

/// Search keys are cut; so are the texts that they are compared with.
fn is_cut(wanted: Option<&str>, text: &str) -> bool {
    wanted.is_some_and(|wanted| wanted == text || (text.len() + 4 > TEXT_BYTES_MAX && wanted.starts_with(text)))
}

/// `ADT` is any event, `ADT^A01` that one.
fn is_kind(wanted: &str, text: &str) -> bool {
    wanted == text || (!wanted.contains('^') && text.split('^').next() == Some(wanted))
}

/// Operation and state of each output.
pub(super) fn outputs(reader: &Reader, id: u64) -> Result<Vec<(String, OutputState)>, InteropError> {
    let names = reader.operations_of(id)?;
    let mut outputs: Vec<_> = names.into_iter().map(|name| (name, OutputState::Waiting)).collect();
    for delivery in reader.outcomes(id)? {
        if let Some((_, state)) = outputs.get_mut(usize::from(delivery.output)) {
            *state = match delivery.outcome {
                DeliveryOutcome::Delivered => OutputState::Delivered,
                DeliveryOutcome::Failed => OutputState::Failed,
                DeliveryOutcome::SetAside => OutputState::SetAside,
            };
        }
    }
    Ok(outputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_beginning_of_a_text_that_a_sender_has_made_long() {
        for (id, shown) in [
            ("M1".to_owned(), "M1".to_owned()),
            ("x".repeat(200), "x".repeat(200)),
            ("x".repeat(201), format!("{}\u{2026}", "x".repeat(200))),
            (format!("x{}", "\u{fc}".repeat(1 << 20)), format!("x{}\u{2026}", "\u{fc}".repeat(99))),
        ] {
            let raw = format!("MSH|^~\\&|A||||||ADT^A01|{id}|P|2.5\r");
            let message = Message::parse(raw.as_bytes()).expect("a message");
            assert_eq!(shown_text(Some(&message), "MSH-10"), shown);
        }
        assert_eq!(shown_text(None, "MSH-10"), "");
    }
}
