//! Every message of the public corpora: written back byte for byte, and read as `hl7-parser` reads it.

use hl7::{Draft, Message, Path, Piece, Place, Segment, Value, Which};

use crate::corpus;

/// The messages of a file: cut before each line that starts with MSH.
fn messages(file: &[u8]) -> Vec<&[u8]> {
    let starts: Vec<usize> = (0..file.len())
        .filter(|&at| file[at..].starts_with(b"MSH"))
        .filter(|&at| at == 0 || matches!(file[at - 1], b'\r' | b'\n' | 0xBF))
        .collect();
    let ends = starts.iter().skip(1).copied().chain([file.len()]);
    starts.iter().zip(ends).map(|(&start, end)| &file[start..end]).collect()
}

#[test]
fn every_corpus_file_is_written_back_byte_for_byte() {
    let mut count = 0;
    for (path, file) in corpus::files() {
        for raw in messages(&file) {
            let message = Message::parse(raw).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let draft = Draft::new(&message);
            let mut written = Vec::new();
            draft.write_to(&mut written);
            assert!(written == raw, "{} is not written back as it was", path.display());
            assert_eq!(draft.pieces().count(), 1, "{}", path.display());
            assert_eq!(draft.touched(), 0);
            count += 1;
        }
    }
    println!("{count} messages");
}

#[test]
fn editing_one_segment_leaves_every_other_byte_of_a_corpus_file() {
    let path: Path = "MSH-10".parse().expect("a path");
    for (file_path, file) in corpus::files() {
        for raw in messages(&file) {
            let message = Message::parse(raw).expect("the corpus parses");
            let mut draft = Draft::new(&message);
            draft.set(&path, b"another id").expect("every message has MSH");
            let header = message.header().raw();
            let pieces: Vec<_> = draft.pieces().collect();
            let [Piece::New(new), rest @ ..] = &pieces[..] else {
                panic!("{}: the new header comes first: {pieces:?}", file_path.display());
            };
            assert!(
                rest.iter().eq(Some(&Piece::Original(header.len()..raw.len())).filter(|_| raw.len() > header.len()))
            );
            let again = Message::parse(new).expect("the new header parses");
            assert_eq!(again.get(&path).bytes(), b"another id");
            let fields = message.header().fields().count();
            assert!(
                (1..=fields as u16).filter(|n| *n != 10).all(|n| again.header().field(n) == message.header().field(n))
            );
        }
    }
}

/// Every repetition, component and subcomponent of a field.
fn compare_field(ours: &Segment<'_>, number: u16, theirs: &hl7_parser::message::Field<'_>) {
    assert_eq!(ours.field(number).bytes(), theirs.raw_value().as_bytes());
    if ours.name().is_header() && number <= 2 {
        return;
    }
    let mut place = Place::field(number);
    for (repetition, theirs) in theirs.repeats().zip(1..).map(|(theirs, number)| (number, theirs)) {
        place = Place { repetition: Some(Which::Nth(repetition)), ..Place::field(number) };
        assert_eq!(ours.get(&place).bytes(), theirs.raw_value().as_bytes());
        for (component, theirs) in theirs.components().zip(1..).map(|(theirs, number)| (number, theirs)) {
            place = Place { component: Some(component), subcomponent: None, ..place };
            assert_eq!(ours.get(&place).bytes(), theirs.raw_value().as_bytes());
            for (subcomponent, theirs) in theirs.subcomponents().zip(1..).map(|(theirs, number)| (number, theirs)) {
                place.subcomponent = Some(subcomponent);
                assert_eq!(ours.get(&place).bytes(), theirs.raw_value().as_bytes());
            }
            place.subcomponent = Some(theirs.subcomponents().count() as u16 + 1);
            assert_eq!(ours.get(&place), Value::Absent);
        }
    }
    place.repetition = Some(Which::Nth(theirs.repeats().count() as u32 + 1));
    assert_eq!(ours.get(&place), Value::Absent);
}

/// `hl7-parser` 0.3.0 reads a fifth encoding character as field 3 and so shifts MSH; it stops at an empty line and at
/// a segment whose name is not followed by a separator. Everything else must agree.
#[test]
fn corpus_messages_read_as_hl7_parser_reads_them() {
    let (mut compared, mut stopped) = (0, 0);
    for (path, file) in corpus::files() {
        for raw in messages(&file) {
            let Ok(text) = std::str::from_utf8(raw) else { continue };
            let message = Message::parse(raw).expect("the corpus parses");
            let Ok(peer) = hl7_parser::parse_message_with_lenient_newlines(text) else { continue };
            if peer.raw_value().trim_end() != text.trim_end() {
                stopped += 1;
                continue;
            }
            compared += 1;
            assert_eq!(message.len(), peer.segments.len(), "{}", path.display());
            for (ours, theirs) in message.segments().zip(&peer.segments) {
                assert_eq!(ours.name().to_string(), theirs.name);
                if ours.name().is_header() && message.delimiters().truncation.is_some() {
                    continue;
                }
                assert_eq!(ours.fields().count(), theirs.fields.len(), "{}", path.display());
                for (field, number) in theirs.fields().zip(1..) {
                    compare_field(&ours, number, field);
                }
            }
        }
    }
    println!("{compared} messages compared, {stopped} left out where the peer stopped early");
}
