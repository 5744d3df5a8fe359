//! Reading messages: delimiters, line ends, the three kinds of nothing.

use hl7::{Delimiters, Message, ParseError, Path, Segment, SegmentName, Value};

fn segments(raw: &[u8]) -> Vec<String> {
    let message = Message::parse(raw).expect("a message");
    message.segments().map(|segment| segment.raw().escape_ascii().to_string()).collect()
}

fn get<'a>(raw: &'a [u8], path: &str) -> Value<'a> {
    Message::parse(raw).expect("a message").get(&path.parse().expect("a path"))
}

#[test]
fn lines_end_at_cr_lf_or_both_and_lf_inside_a_field_stays_where_cr_is_used() {
    let cases: &[(&[u8], &[&str])] = &[
        (b"MSH|^~\\&", &["MSH|^~\\\\&"]),
        (b"MSH|^\rPID|1\r", &["MSH|^", "PID|1"]),
        (b"MSH|^\nPID|1\n", &["MSH|^", "PID|1"]),
        (b"MSH|^\r\nPID|1\r\n", &["MSH|^", "PID|1"]),
        (b"MSH|^\rPID|1", &["MSH|^", "PID|1"]),
        // blank lines are none
        (b"MSH|^\r\r\r\nPID|1\r\n\r\n", &["MSH|^", "PID|1"]),
        (b"MSH|^\n\nPID|1\n\n", &["MSH|^", "PID|1"]),
        (b"MSH|^\r\n\nPID\r", &["MSH|^", "PID"]),
        // mixed: LF before a name and a separator ends a line, other LFs are text
        (b"MSH|^\rOBX|a\nb\nPID|1\r", &["MSH|^", "OBX|a\\nb", "PID|1"]),
        (b"MSH|^\nPID|1\rOBX|2\n", &["MSH|^", "PID|1", "OBX|2"]),
        (b"MSH|^\rOBX|a\nPIDX|\nPi1|\nP1\r", &["MSH|^", "OBX|a\\nPIDX|\\nPi1|\\nP1"]),
        (b"MSH|^\rOBX|a\n\n\nPID|1", &["MSH|^", "OBX|a", "PID|1"]),
        (b"MSH|^\rOBX|a\n\n\n", &["MSH|^", "OBX|a"]),
        (b"MSH|^\rOBX|a\n\n\rPID|1", &["MSH|^", "OBX|a", "PID|1"]),
        (b"MSH|^\rOBX|a\n\nb\r", &["MSH|^", "OBX|a\\n\\nb"]),
        // without any CR, every LF ends a line, whatever follows
        (b"MSH|^\nOBX|a\nb", &["MSH|^", "OBX|a", "b"]),
        // the separator is the message's own
        (b"MSH!^\rOBX!a\nPID|1\nNTE!1\r", &["MSH!^", "OBX!a\\nPID|1", "NTE!1"]),
    ];
    for (raw, expected) in cases {
        assert_eq!(segments(raw), *expected, "{}", raw.escape_ascii());
    }
}

#[test]
fn a_byte_order_mark_and_blanks_before_msh_are_skipped_and_kept() {
    for before in ["", "\u{FEFF}", "\r\n", "\0\0 \t", "\r\n\u{FEFF}\n "] {
        let raw = format!("{before}MSH|^~\\&|A\rPID|1\r");
        let message = Message::parse(raw.as_bytes()).expect("a message");
        assert_eq!((message.len(), message.raw()), (2, raw.as_bytes()));
        assert_eq!(message.header().field(3), Value::Present(b"A"));
    }
}

#[test]
fn delimiters_are_read_by_position_and_only_as_many_as_declared() {
    let all = Delimiters::default();
    let cases: &[(&str, Delimiters)] = &[
        ("MSH|^~\\&|", all),
        ("MSH|^~\\&", all),
        ("MSH|^~\\&#|", Delimiters { truncation: Some(b'#'), ..all }),
        ("MSH|^~\\|", Delimiters { subcomponent: None, ..all }),
        ("MSH|^~|", Delimiters { subcomponent: None, escape: None, ..all }),
        ("MSH|^|x", Delimiters { subcomponent: None, escape: None, repetition: None, ..all }),
        ("MSH|^~\\}|", Delimiters { subcomponent: Some(b'}'), ..all }),
        ("MSH|^~\\\"|", Delimiters { subcomponent: Some(b'"'), ..all }),
        ("MSH$%&'()$x", {
            let [component, repetition, escape, subcomponent] = [b'%', b'&', b'\'', b'('].map(Some);
            Delimiters { field: b'$', component, repetition, escape, subcomponent, truncation: Some(b')') }
        }),
    ];
    for (raw, expected) in cases {
        let message = Message::parse(raw.as_bytes()).expect("a message");
        assert_eq!(message.delimiters(), *expected, "{raw}");
        let written: Vec<u8> = expected.encoding_characters().collect();
        assert_eq!(message.header().field(2).bytes(), written);
        assert_eq!(message.header().field(1).bytes(), [expected.field]);
    }
}

#[test]
fn what_is_no_header_is_refused_with_the_reason() {
    let cases: &[(&[u8], ParseError)] = &[
        (b"", ParseError::NoHeader),
        (b"\r\n", ParseError::NoHeader),
        (b"MSH", ParseError::NoHeader),
        (b"MSH\rPID|1", ParseError::NoHeader),
        (b"MSHELL", ParseError::NoHeader),
        (b"PID|1\rMSH|^~\\&|", ParseError::NoHeader),
        (b"msh|^~\\&|", ParseError::NoHeader),
        (b"FHS|^~\\&|\rMSH|^~\\&|", ParseError::NoHeader),
        (b"\x0bMSH|^~\\&|\x1c\r", ParseError::NoHeader),
        (b"MSH|", ParseError::EncodingCharacters { found: 0 }),
        (b"MSH||A", ParseError::EncodingCharacters { found: 0 }),
        (b"MSH|^~\\&#$|A", ParseError::EncodingCharacters { found: 6 }),
        (b"MSH|\rPID|1", ParseError::EncodingCharacters { found: 0 }),
        (b"MSH|^~A&|", ParseError::NotPunctuation { byte: b'A' }),
        (b"MSH|^~\\ |", ParseError::NotPunctuation { byte: b' ' }),
        (b"MSH|^\xE4|", ParseError::NotPunctuation { byte: 0xE4 }),
        (b"MSH|^~^&|", ParseError::Repeated { byte: b'^' }),
    ];
    for (raw, expected) in cases {
        assert_eq!(Message::parse(raw).err(), Some(*expected), "{}", raw.escape_ascii());
    }
}

#[test]
fn absent_empty_and_null_stay_apart_at_every_level() {
    const RAW: &[u8] = b"MSH|^~\\&|A\rPID|1||\"\"|x^^\"\"^a&&\"\"|r1~~\"\"~r4|~|\"\"^|\r";
    let present = |text: &'static str| Value::Present(text.as_bytes());
    let cases = [
        ("PID-1", present("1")),
        ("PID-2", Value::Empty),
        ("PID-2[1]", Value::Empty),
        ("PID-2.1.1", Value::Empty),
        ("PID-2.2", Value::Absent),
        ("PID-2[2]", Value::Absent),
        ("PID-3", Value::Null),
        ("PID-3.1.1", Value::Null),
        ("PID-3.2", Value::Absent),
        ("PID-4.1", present("x")),
        ("PID-4.2", Value::Empty),
        ("PID-4.3", Value::Null),
        ("PID-4.4", present("a&&\"\"")),
        ("PID-4.4.1", present("a")),
        ("PID-4.4.2", Value::Empty),
        ("PID-4.4.3", Value::Null),
        ("PID-4.4.4", Value::Absent),
        ("PID-4.5", Value::Absent),
        ("PID-5", present("r1~~\"\"~r4")),
        ("PID-5.1", present("r1")),
        ("PID-5[2]", Value::Empty),
        ("PID-5[3]", Value::Null),
        ("PID-5[last]", present("r4")),
        ("PID-5[5]", Value::Absent),
        ("PID-6", present("~")),
        ("PID-6[2]", Value::Empty),
        ("PID-7", present("\"\"^")),
        ("PID-8", Value::Empty),
        ("PID-9", Value::Absent),
        ("PID[2]-1", Value::Absent),
        ("ZZZ-1", Value::Absent),
    ];
    for (path, expected) in cases {
        assert_eq!(get(RAW, path), expected, "{path}");
    }
}

#[test]
fn header_fields_are_counted_from_the_separator_and_never_split() {
    const RAW: &[u8] = b"MSH|^~\\&|A^B|\rFHS|^~\\&|F\rBHS|^~\\&|B\r";
    let present = |text: &'static str| Value::Present(text.as_bytes());
    let cases = [
        ("MSH-1", present("|")),
        ("MSH-2", present("^~\\&")),
        ("MSH-2.1", present("^~\\&")),
        ("MSH-2[1].1.1", present("^~\\&")),
        ("MSH-2[last]", present("^~\\&")),
        ("MSH-2.2", Value::Absent),
        ("MSH-2[2]", Value::Absent),
        ("MSH-3", present("A^B")),
        ("MSH-3.2", present("B")),
        ("MSH-4", Value::Empty),
        ("MSH-5", Value::Absent),
        ("FHS-2", present("^~\\&")),
        ("FHS-3", present("F")),
        ("BHS-3", present("B")),
    ];
    for (path, expected) in cases {
        assert_eq!(get(RAW, path), expected, "{path}");
        let message = Message::parse(RAW).expect("a message");
        let path: Path = path.parse().expect("a path");
        let all: Vec<_> = message.all(&path).collect();
        assert_eq!(all, [expected]);
    }
}

#[test]
fn a_level_without_a_delimiter_has_one_part() {
    const RAW: &[u8] = b"MSH|^|\rPID|a^b~c&d\\\r";
    assert_eq!(get(RAW, "PID-1.2"), Value::Present(b"b~c&d\\"));
    assert_eq!(get(RAW, "PID-1[1].2.1"), Value::Present(b"b~c&d\\"));
    assert_eq!(get(RAW, "PID-1[2]"), Value::Absent);
    assert_eq!(get(RAW, "PID-1.2.2"), Value::Absent);
    assert_eq!(get(RAW, "PID-1[last].1"), Value::Present(b"a"));
}

#[test]
fn unknown_segments_and_lines_without_a_name_are_kept() {
    const RAW: &[u8] = b"MSH|^~\\&|A\rZPD|1|x\rpid|2\rPIDX|3\rhello\rQ\r1AB|4\r";
    let message = Message::parse(RAW).expect("a message");
    let names: Vec<_> = message.segments().map(|segment| segment.name().to_string()).collect();
    assert_eq!(names, ["MSH", "ZPD", "pid", "???", "???", "???", "1AB"]);
    assert_eq!(get(RAW, "ZPD-2"), Value::Present(b"x"));
    assert_eq!(get(RAW, "PID-1"), Value::Absent);
    let nameless = message.segment_at(3).expect("it is there");
    assert_eq!((nameless.name(), nameless.field(1)), (SegmentName::UNREADABLE, Value::Present(b"3")));
}

#[test]
fn more_segments_than_fit_in_place_are_all_found() {
    for count in [1, 23, 24, 25, 96, 97, 5000] {
        let mut raw = b"MSH|^~\\&|A\r".to_vec();
        (1..count).for_each(|n| raw.extend(format!("OBX|{n}\r").bytes()));
        let message = Message::parse(&raw).expect("a message");
        assert_eq!(message.len(), count);
        for n in 1..count {
            let field = message.segment(SegmentName::new(*b"OBX"), n).map(|segment| segment.field(1).bytes());
            assert_eq!(field, Some(n.to_string().as_bytes()));
        }
    }
}

#[test]
fn all_answers_one_value_for_each_selected_segment_or_repetition() {
    const RAW: &[u8] = b"MSH|^~\\&|A\rOBX|1||GLU^x||5\rOBX|2||NA~K||\rOBX|3||GLU\rNTE|1\r";
    let present = |text: &'static str| Value::Present(text.as_bytes());
    let cases: &[(&str, &[Value<'_>])] = &[
        ("OBX[*]-5", &[Value::Present(b"5"), Value::Empty, Value::Absent]),
        ("OBX-5", &[Value::Present(b"5")]),
        ("OBX[3]-5", &[Value::Absent]),
        ("OBX[4]-5", &[]),
        ("OBX[last]-1", &[Value::Present(b"3")]),
        ("OBX[*]-3[*]", &["GLU^x", "NA", "K", "GLU"].map(present)),
        ("OBX[*]-3[2]", &[Value::Absent, Value::Present(b"K"), Value::Absent]),
        ("OBX[*]-3[1='K']", &[Value::Present(b"K")]),
        ("OBX[*]-3[last].1", &["GLU", "K", "GLU"].map(present)),
        ("OBX[*]-5[*]", &[Value::Present(b"5"), Value::Empty]),
        ("OBX[3.1='GLU']-1", &["1", "3"].map(present)),
        ("OBX[3='GLU']-1", &[Value::Present(b"3")]),
        ("OBX[3[*]='K']-1", &[Value::Present(b"2")]),
        ("OBX[3[last]='K']-1", &[Value::Present(b"2")]),
        ("OBX[5='']-1", &["2", "3"].map(present)),
        ("OBX[3.1='X']-1", &[]),
        ("NTE", &[Value::Present(b"NTE|1")]),
        ("OBX[1='2']", &[Value::Present(b"OBX|2||NA~K||")]),
    ];
    let message = Message::parse(RAW).expect("a message");
    for (text, expected) in cases {
        let path: Path = text.parse().expect("a path");
        assert_eq!(message.all(&path).collect::<Vec<_>>(), *expected, "{text}");
        let first = expected.first().copied().unwrap_or(Value::Absent);
        assert_eq!(message.get(&path), first, "{text}");
    }
}

#[test]
fn a_segment_can_be_read_on_its_own() {
    let segment = Segment::new(b"PID|1||A~B", Delimiters::default());
    assert_eq!((segment.name(), segment.field(3)), (SegmentName::new(*b"PID"), Value::Present(b"A~B")));
    assert_eq!(segment.field(0), Value::Absent);
    assert_eq!(Segment::new(b"", Delimiters::default()).field(1), Value::Absent);
}

#[test]
fn text_is_unescaped_and_decoded() {
    let latin = b"MSH|^~\\&|A|||||||||||||||8859/1\rPID|M\xFCller \\T\\ S\\XF6\\hne\\.br\\x|\"\"\r";
    let message = Message::parse(latin).expect("a message");
    let text = |path: &str| message.text(&path.parse().expect("a path")).into_owned();
    assert_eq!(text("PID-1"), "M\u{fc}ller & S\u{f6}hne\nx");
    assert_eq!(text("PID-2"), "\"\"");
    assert_eq!(text("PID-3"), "");
}

#[test]
fn what_is_printed_for_debugging_names_no_patient() {
    let message = Message::parse(b"MSH|^~\\&|||||||ADT^A01|77\rPID|SECRET\r").expect("a message");
    let shown = format!("{message:?}");
    assert!(shown.contains("ADT^A01") && shown.contains("77") && !shown.contains("SECRET"), "{shown}");
}
