//! Entries as lines for other programs: JSON, and syslog (RFC 5424).
//!
//! A line is one entry. In syslog the facility is 13 (log audit), the severity 6 for what was granted, 4 for what was refused
//! and 3 for what failed; the message id is the action, and everything else is in one element of structured data. The number
//! behind `terrace@` is the one that RFC 5612 sets aside for examples: the project has none of its own.

use std::fmt::Write;

use jiff::Timestamp;

use super::entry::AuditOutcome;
use super::reading::ShownEntry;

/// Name of the element of structured data.
const ELEMENT: &str = "terrace@32473";

/// The entry as one line of JSON, without its end.
pub fn json_line(shown: &ShownEntry) -> String {
    serde_json::to_string(shown).expect("plain data becomes JSON")
}

/// The entry as one line of syslog, without its end. `host` is the name of the machine, `-` for none.
pub fn syslog_line(shown: &ShownEntry, host: &str) -> String {
    let chained = &shown.chained;
    let entry = &chained.entry;
    let severity = match entry.outcome {
        AuditOutcome::Granted => 6,
        AuditOutcome::Refused => 4,
        AuditOutcome::Failed => 3,
    };
    let mut line = format!(
        "<{}>1 {} {} terrace - {} [{ELEMENT}",
        13 * 8 + severity,
        time(chained.time_us),
        plain(host, 255),
        plain(&entry.action, 32)
    );
    let kind = serde_json::to_value(entry.actor.kind).ok();
    let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default().to_owned();
    let id = entry.actor.id.map(|id| id.to_string()).unwrap_or_default();
    let ranges: Vec<String> = entry.reads.ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
    let reads = if entry.reads.is_empty() { String::new() } else { entry.reads.count.to_string() };
    for (name, value) in [
        ("number", chained.number.to_string().as_str()),
        ("hash", &shown.hash.to_string()),
        ("previous", &chained.previous.to_string()),
        ("actor", &entry.actor.name),
        ("actorKind", &kind),
        ("actorId", &id),
        ("protocol", &entry.origin.protocol),
        ("address", &entry.origin.address),
        ("session", &entry.origin.session),
        ("action", &entry.action),
        ("object", &entry.object),
        ("outcome", entry.outcome.name()),
        ("reason", &entry.reason),
        ("reads", &reads),
        ("messages", &ranges.join(",")),
        ("wide", if entry.reads.wide { "true" } else { "" }),
        ("cut", if chained.cut { "true" } else { "" }),
    ] {
        if !value.is_empty() {
            parameter(&mut line, name, value);
        }
    }
    for (name, value) in &entry.details {
        parameter(&mut line, &format!("x-{}", name_of(name)), value);
    }
    line.push(']');
    line
}

/// With microseconds, in UTC.
fn time(micros: u64) -> String {
    let time = i64::try_from(micros).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok());
    time.map_or_else(|| "-".to_owned(), |time| time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
}

/// Printable ASCII without blanks, `-` for nothing.
fn plain(text: &str, max: usize) -> String {
    let kept: String = text.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).take(max).collect();
    if kept.is_empty() { "-".to_owned() } else { kept }
}

/// As a name of a parameter.
fn name_of(name: &str) -> String {
    plain(name, 30).replace(['=', ']', '"'], "_")
}

/// Adds ` name="value"`; a control character becomes a blank, so that an entry stays one line.
fn parameter(line: &mut String, name: &str, value: &str) {
    let _ = write!(line, " {name}=\"");
    for letter in value.chars() {
        match letter {
            '"' | '\\' | ']' => line.extend(['\\', letter]),
            letter if letter.is_control() => line.push(' '),
            letter => line.push(letter),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::entry::{Actor, ActorKind, AuditEntry, AuditOrigin, Reads};
    use crate::audit::record::{ChainedEntry, EntryHash};

    fn shown() -> ShownEntry {
        let actor = Actor { kind: ActorKind::Local, id: Some(0), name: "ro\"ot".to_owned() };
        let origin = AuditOrigin { protocol: "control".into(), address: "unix".into(), session: "3".into() };
        let entry = AuditEntry { actor, origin, reads: Reads::one(9), ..AuditEntry::new("message.body", "message 9") };
        let entry = entry.ended(AuditOutcome::Refused, "no ] such\nright").with("a b", "\u{e9}");
        let chained = ChainedEntry { number: 2, time_us: 1_700_000_000_000_001, entry, ..ChainedEntry::default() };
        ShownEntry { hash: EntryHash([0xab; 32]), chained }
    }

    #[test]
    fn a_line_of_syslog_is_one_of_rfc_5424() {
        let zeros = "0".repeat(64);
        assert_eq!(
            syslog_line(&shown(), "node 1"),
            format!(
                "<108>1 2023-11-14T22:13:20.000001Z node_1 terrace - message.body [terrace@32473 number=\"2\" hash=\"{}\" previous=\"{zeros}\" actor=\"ro\\\"ot\" \
                 actorKind=\"local\" actorId=\"0\" protocol=\"control\" address=\"unix\" session=\"3\" action=\"message.body\" object=\"message 9\" \
                 outcome=\"refused\" reason=\"no \\] such right\" reads=\"1\" messages=\"9-9\" x-a_b=\"\u{e9}\"]",
                "ab".repeat(32)
            )
        );
    }

    #[test]
    fn a_line_of_json_reads_back_as_the_entry() {
        let line = json_line(&shown());
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<ShownEntry>(&line).expect("it is one"), shown());
    }
}
