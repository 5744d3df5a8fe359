//! Stored messages as a reader sees them who may not see all of them: without bodies, or without patient data.
//!
//! A masked message is the stored one with masked bodies, and everything else made of these: its search keys, its sizes. All
//! conditions of a list are then checked in it, so that none can tell more than it shows. An index would: it holds numbers as
//! they came in, so a condition on what is masked is refused before anything is looked up ([`refuse_conditions`]).
//!
//! A reason and the detail of an outcome stay: they are made of texts of the production, of names and of numbers of
//! ours, and quote nothing of a message (a test of this module holds that).
//!
//! Not here: who may see what. These are the rights `message-metadata`, `message-body` and `unmasked` on the message's
//! service.

use bytes::Bytes;
use hl7::Path;
use hl7::mask::Masker;

use super::Filter;
use crate::error::InteropError;
use crate::record::search::SearchKeys;
use crate::record::{MessageOrigin, Output, Stored};

/// What a reader sees of the messages of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sees {
    /// That they are there, their times, types, keys and outcomes.
    pub metadata: bool,
    /// What is in them.
    pub body: bool,
    /// Patient data without the mask.
    pub unmasked: bool,
}

impl Sees {
    /// Everything: for the node itself, and who holds its files.
    pub const ALL: Sees = Sees { metadata: true, body: true, unmasked: true };

    /// A message as the reader sees it; none where it is as one that is not there. Bodies that are not seen are empty, and
    /// what the message is found by is then masked too.
    pub fn of(self, masker: &Masker, stored: Stored) -> Option<Stored> {
        if !self.metadata {
            return None;
        }
        let mut seen = if self.body && self.unmasked { stored } else { masked(masker, stored, true) };
        if !self.body {
            seen.raw = Bytes::new();
            seen.origin = seen.origin.map(MessageOrigin::shown);
            seen.outputs.iter_mut().for_each(|output| output.body = Bytes::new());
        }
        Some(seen)
    }
}

/// The message, masked. Where its keys are not wanted it has none: reading them takes as long as masking.
pub fn masked(masker: &Masker, stored: Stored, wants_keys: bool) -> Stored {
    if masker.is_empty() {
        return stored;
    }
    let raw = Bytes::from(masker.mask(&stored.raw, stored.charset));
    let output = |output: Output| {
        let body = masker.mask(&output.body, stored.charset).into();
        // How much of it a transform wrote is the length of values.
        Output { body, new_bytes: 0, ..output }
    };
    let keys = match wants_keys {
        true => SearchKeys::read(&stored.service, &raw, stored.charset),
        false => SearchKeys::of(&stored.service, None, &[]),
    };
    let origin = stored.origin.map(MessageOrigin::shown);
    Stored { keys, raw, origin, outputs: stored.outputs.into_iter().map(output).collect(), ..stored }
}

/// The path of the first condition of a list that is on something masked.
pub fn masked_condition<'f>(masker: &Masker, filter: &'f Filter) -> Option<&'f str> {
    let of_key = |is_given: bool, path| is_given.then_some(path);
    let keys = [
        of_key(filter.mrn.is_some(), "PID-3.1"),
        of_key(filter.control_id.is_some(), "MSH-10"),
        of_key(filter.kind.is_some(), "MSH-9"),
    ];
    let mut paths = keys.into_iter().flatten().chain(filter.wanted.iter().map(|(path, _)| path.as_str()));
    // What is no path is refused where it is used.
    paths.find(|path| path.parse::<Path>().is_ok_and(|path| masker.covers(&path)))
}

/// Refuses a list with a condition on what is masked, for a reader who is masked on all services that it is about.
///
/// # Errors
/// `Refused`, with the condition's path.
pub fn refuse_conditions(masker: &Masker, filter: &Filter) -> Result<(), InteropError> {
    match masked_condition(masker, filter) {
        None => Ok(()),
        Some(path) => Err(InteropError::Refused(format!(
            "permission denied: {path} is masked, so messages are not selected by it; who has the right `unmasked` on a service \
             can do so"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Status;
    use crate::record::search::TextIndex;

    fn stored(raw: &str, outputs: &[&str]) -> Stored {
        let raw = Bytes::copy_from_slice(raw.as_bytes());
        let output = |body: &&str| Output {
            operation: "out".to_owned(),
            transform: "t".to_owned(),
            body: Bytes::copy_from_slice(body.as_bytes()),
            new_bytes: body.len(),
        };
        Stored {
            status: Status::Routed,
            duplicate: false,
            origin: None,
            received_us: 1,
            generation: 1,
            service: "in".to_owned(),
            charset: None,
            reason: "main: all".to_owned(),
            keys: SearchKeys::read("in", &raw, None),
            raw,
            outputs: outputs.iter().map(output).collect(),
        }
    }

    #[test]
    fn two_messages_that_differ_in_masked_values_only_are_the_same_masked() {
        let of = |number: &str, name: &str| {
            let raw = format!("MSH|^~\\&|A|B|||1||ADT^A01|C1|P|2.5\rPID|1||{number}^^^H||{name}||19700101|F\r");
            masked(&Masker::default(), stored(&raw, &[&raw, &raw.replace("|F", "|X"), name]), true)
        };
        let (one, other) = (of("1", "DOE^JANE"), of("2345~6", "\"\""));
        assert_eq!(one, other);
        let mut texts = Vec::new();
        one.keys.texts(|index, text| texts.push((index, text.to_owned())));
        let expected = [(TextIndex::Control, "C1"), (TextIndex::Type, "ADT^A01"), (TextIndex::Mrn, "MASKED")];
        assert_eq!(texts, expected.map(|(index, text)| (index, text.to_owned())));
        assert_eq!(&one.outputs[2].body[..], b"MASKED", "an output that is no message");
    }

    #[test]
    fn a_reader_sees_nothing_keys_masked_bodies_or_all_of_a_message() {
        let raw = "MSH|^~\\&|A|B|||1||ADT^A01|C1|P|2.5\rPID|1||123||DOE\r";
        let of = |metadata, body, unmasked| {
            let seen = Sees { metadata, body, unmasked }.of(&Masker::default(), stored(raw, &[raw]))?;
            let mut number = String::new();
            seen.keys.texts(|index, text| {
                if index == TextIndex::Mrn {
                    number = text.to_owned();
                }
            });
            let names = [&seen.raw, &seen.outputs[0].body].map(|body| body.windows(3).any(|bytes| bytes == b"DOE"));
            assert_eq!(names[0], names[1], "outputs are shown as the message is");
            Some((number, !seen.raw.is_empty(), names[0]))
        };
        assert_eq!(of(false, true, true), None);
        for unmasked in [false, true] {
            assert_eq!(of(true, false, unmasked), Some(("MASKED".to_owned(), false, false)));
        }
        assert_eq!(of(true, true, false), Some(("MASKED".to_owned(), true, false)));
        assert_eq!(of(true, true, true), Some(("123".to_owned(), true, true)));
    }

    #[test]
    fn a_list_is_not_selected_by_what_is_masked() {
        let filter = Filter::default;
        let of = |path: &str| Filter { wanted: vec![(path.to_owned(), "x".to_owned())], ..filter() };
        for (wanted, allowed) in [
            (filter(), true),
            (Filter { mrn: Some("1".to_owned()), ..filter() }, false),
            (Filter { control_id: Some("C1".to_owned()), ..filter() }, true),
            (Filter { kind: Some("ADT".to_owned()), ..filter() }, true),
            (of("PID-5.1"), false),
            (of("PID-3[4='H'].5"), false),
            (of("PID-8"), true),
            (of("OBX[5='x']-3"), false),
            (of("no path"), true),
        ] {
            let refused = refuse_conditions(&Masker::default(), &wanted);
            assert_eq!(refused.is_ok(), allowed, "{wanted:?}");
            assert!(refuse_conditions(&Masker::new([""; 0]).expect("no path"), &wanted).is_ok());
        }
        let by_header = Masker::new(["MSH-10", "MSH-9.2"]).expect("paths");
        assert!(refuse_conditions(&by_header, &Filter { kind: Some("ADT".to_owned()), ..filter() }).is_err());
        assert!(refuse_conditions(&by_header, &Filter { control_id: Some("C".to_owned()), ..filter() }).is_err());
    }
}
