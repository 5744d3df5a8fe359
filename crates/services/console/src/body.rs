//! A body as a page shows it: its segments by name, each with its fields by name, decoded and unescaped.
//!
//! A body may have megabytes: a page has the first [`SEGMENTS_SHOWN`] segments, and of a value the first [`VALUE_CHARS`] characters, and
//! says what it left out. Everything is a text here; the markup escapes it.

use hl7::charset::Charset;
use hl7::{Reading, Segment, Value};
use maud::{Markup, html};

use crate::admin::Difference;
use crate::format::count;
use crate::hl7_names::name;

/// Segments that a page has.
const SEGMENTS_SHOWN: usize = 200;

/// Fields of a segment that a page has.
const FIELDS_SHOWN: usize = 100;

/// Characters of a value that a page has.
const VALUE_CHARS: usize = 2_000;

/// Segments that the beginning of a message has, and characters of each.
const BEGINNING: (usize, usize) = (12, 240);

/// Differences that a page has.
const DIFFERENCES_SHOWN: usize = 100;

/// What stands in the place of a masked value; see `hl7::mask`.
const MASKED: &str = "MASKED";

/// The beginning of a text, and whether there is more.
fn cut(text: &str) -> (&str, bool) {
    match text.char_indices().nth(VALUE_CHARS) {
        Some((at, _)) => (&text[..at], true),
        None => (text, false),
    }
}

/// A value, which may be long or masked.
fn value(text: &str) -> Markup {
    let (shown, is_cut) = cut(text);
    html! {
        @if text == MASKED { span.masked { (shown) } } @else { (shown) }
        @if is_cut { span.dim { " (" (count(text.len() as u64)) " bytes)" } }
    }
}

/// The fields of a segment that have something in them: their numbers, and their texts as they are written.
fn fields(segment: &Segment<'_>, charset: Option<Charset>) -> Vec<(usize, String)> {
    let text = |raw: &[u8]| charset.unwrap_or(Charset::UTF_8).decode(raw).into_owned();
    let all = segment.fields().enumerate();
    let with_content = all.filter(|(_, field)| !matches!(field, Value::Absent | Value::Empty));
    with_content.map(|(at, field)| (at + 1, text(field.bytes()))).take(FIELDS_SHOWN).collect()
}

/// A message as segments; as lines where it is none.
pub(crate) fn segments(raw: &[u8], assumed: Option<&str>) -> Markup {
    let assumed = assumed.and_then(|name| Charset::named(name.as_bytes()));
    let reading = Reading::lenient(raw, assumed);
    let Ok(message) = reading.message() else { return lines(&reading.shown()) };
    let charset = message.charset();
    let left_out = message.len().saturating_sub(SEGMENTS_SHOWN);
    html! {
        @for (at, segment) in message.segments().take(SEGMENTS_SHOWN).enumerate() {
            @let id = String::from_utf8_lossy(&segment.raw()[..segment.raw().len().min(3)]).into_owned();
            (segment_details(&id, &segment, charset, at == 0 || id == "PID"))
        }
        @if left_out > 0 { p.empty { (count(left_out as u64)) " more segments are not shown; the raw message has them." } }
    }
}

fn segment_details(id: &str, segment: &Segment<'_>, charset: Option<Charset>, is_open: bool) -> Markup {
    let whole = charset.unwrap_or(Charset::UTF_8).decode(segment.raw()).into_owned();
    html! {
        details.segment open[is_open] {
            summary {
                b { (id) }
                span { span.name { (name(id).unwrap_or("")) } code { (value(&whole)) } }
            }
            dl.fieldlist {
                @for (number, text) in fields(segment, charset) {
                    @let path = format!("{id}-{number}");
                    div.fieldrow {
                        dt { span.at { (path) } " " span.name { (name(&path).unwrap_or("")) } }
                        dd { (value(&text)) }
                    }
                }
            }
        }
    }
}

/// What is no message, line by line.
fn lines(text: &str) -> Markup {
    let all: Vec<&str> = text.split(['\r', '\n']).filter(|line| !line.is_empty()).collect();
    html! {
        p.sub { "These bytes are no HL7 message." }
        @for line in all.iter().take(SEGMENTS_SHOWN) { p { code { (value(line)) } } }
        @if all.len() > SEGMENTS_SHOWN { p.empty { (count((all.len() - SEGMENTS_SHOWN) as u64)) " more lines are not shown." } }
    }
}

/// The beginning of a message, a line for each segment; the rest is a number of bytes.
pub(crate) fn beginning(raw: &[u8]) -> Markup {
    let reading = Reading::lenient(raw, None);
    let text = reading.shown();
    let mut all = text.split(['\r', '\n']).filter(|line| !line.is_empty());
    let (mut lines, mut is_cut) = (Vec::new(), false);
    for line in all.by_ref().take(BEGINNING.0) {
        let end = line.char_indices().nth(BEGINNING.1).map(|(at, _)| at);
        is_cut |= end.is_some();
        lines.push(&line[..end.unwrap_or(line.len())]);
    }
    is_cut |= all.next().is_some();
    html! {
        pre.beginning { (lines.join("\n")) }
        @if is_cut { p.dim { "The beginning of " (count(raw.len() as u64)) " bytes." } }
    }
}

/// What differs.
pub(crate) fn differences(all: &[Difference]) -> Markup {
    if all.is_empty() {
        return html! { p.sub { "As received." } };
    }
    html! {
        div.diff {
            @for one in all.iter().take(DIFFERENCES_SHOWN) {
                div.change {
                    @if !one.path.is_empty() { span.at { (one.path) " " } span.sub { (name(&one.path).unwrap_or("")) } }
                    @if let Some(before) = &one.before { del { @if before.is_empty() { "(nothing)" } @else { (value(before)) } } }
                    @if let Some(now) = &one.now { ins { @if now.is_empty() { "(nothing)" } @else { (value(now)) } } }
                }
            }
            @if all.len() > DIFFERENCES_SHOWN { p.sub { (count((all.len() - DIFFERENCES_SHOWN) as u64)) " more differences are not shown." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a hostile sender may put into any field.
    const EVIL: [&str; 6] = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "'><svg/onload=alert(1)>",
        "</code></details><script src=//evil.example></script>",
        "javascript:alert(1)",
        "{{constructor.constructor('alert(1)')()}}",
    ];

    #[test]
    fn every_text_of_every_field_is_escaped_wherever_it_stands() {
        for evil in EVIL {
            let mut raw = format!("MSH|^~\\&|{evil}|{evil}|{evil}|{evil}|1||ADT^A01|{evil}|P|2.5|{evil}\r");
            for segment in ["PID", "PV1", "OBX", "ZZZ"] {
                raw += &format!("{segment}|{}\r", vec![evil; 30].join("|"));
            }
            raw += &format!("{evil}\r");
            for text in [segments(raw.as_bytes(), None).into_string(), segments(evil.as_bytes(), None).into_string()] {
                for tag in ["<script", "<img", "<svg", "onerror=alert(1)>"] {
                    assert!(!text.contains(tag), "{tag}: {text}");
                }
            }
            let one = Difference { path: evil.into(), before: Some(evil.into()), now: Some(evil.into()) };
            let text = differences(&[one]).into_string();
            assert!(!text.contains("<script") && !text.contains("<img") && !text.contains("<svg"), "{text}");
        }
    }

    #[test]
    fn fields_have_their_numbers_and_names_as_the_standard_counts_them() {
        let raw = "MSH|^~\\&|HIS|NORTH|||20260101||ADT^A01|M1|P|2.5\rPID|1||4711^^^A||DOE^J\rZX1|own\r";
        let text = segments(raw.as_bytes(), None).into_string();
        for part in [
            "MSH-3</span> <span class=\"name\">Sending application",
            "MSH-10</span> <span class=\"name\">Control id",
            "4711^^^A",
            "Patient name",
            "ZX1-1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("MSH-1</span>") && text.contains("MSH-2</span>"));
    }

    #[test]
    fn a_large_body_is_cut_and_the_page_says_so() {
        let mut raw = "MSH|^~\\&|A|B|||1||ORU^R01|1|P|2.5\r".to_owned();
        raw += &"OBX|1|TX|A||x\r".repeat(1_000);
        raw += &format!("OBX|2|ED|A||{}\r", "y".repeat(1_000_000));
        let text = segments(raw.as_bytes(), None).into_string();
        assert!(text.len() < 300_000 && text.contains("802 more segments are not shown"), "{}", text.len());
        let long = format!("MSH|^~\\&|A|B|||1||ORU^R01|1|P|2.5\rOBX|2|ED|A||{}\r", "y".repeat(1_000_000));
        let text = segments(long.as_bytes(), None).into_string();
        assert!(text.len() < 20_000 && text.contains("1,000,000 bytes"), "{}", text.len());
    }

    #[test]
    fn the_beginning_of_a_message_is_short_decoded_escaped_and_says_that_there_is_more() {
        let head = b"MSH|^~\\&|A|B|||1||ADT^A01|1|P|2.5||||||8859/1\rPID|1||7||M\xfcller <b>\r";
        let text = beginning(head).into_string();
        assert!(text.contains("M\u{fc}ller &lt;b&gt;") && !text.contains("The beginning of"), "{text}");
        let long = [head.as_slice(), b"OBX|", &vec![b'y'; 100_000]].concat();
        let many = [head.as_slice(), &b"OBX|1\r".repeat(100_000)].concat();
        for raw in [long, many] {
            let text = beginning(&raw).into_string();
            let said = format!("The beginning of {} bytes", count(raw.len() as u64));
            assert!(text.len() < 5_000 && text.contains(&said), "{}", text.len());
        }
        assert!(beginning(b"").into_string().len() < 50);
        for evil in EVIL {
            let text = beginning(evil.as_bytes()).into_string();
            assert!(!text.contains("<script") && !text.contains("<img") && !text.contains("<svg"), "{text}");
        }
    }

    #[test]
    fn masked_values_are_shown_as_such_and_other_charsets_are_decoded() {
        let text = segments(b"MSH|^~\\&|A|B|||1||ADT^A01|1|P|2.5\rPID|1||MASKED\r", None).into_string();
        assert!(text.contains("<span class=\"masked\">MASKED</span>"));
        let latin = b"MSH|^~\\&|A|B|||1||ADT^A01|1|P|2.5||||||8859/1\rPID|1||7||M\xfcller\r";
        assert!(segments(latin, None).into_string().contains("M\u{fc}ller"));
    }
}
