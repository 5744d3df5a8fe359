//! Readings: the charset of a message, and that a message whose characters hide delimiters is split at real delimiters
//! only.

use hl7::charset::Charset;
use hl7::{Draft, Path, Reading, ReadingError, Run, Value};

/// The sets whose characters hide delimiters, by the names that senders write.
const SETS: [&str; 5] = ["SHIFT_JIS", "GBK", "GB 18030-2000", "BIG-5", "~ISO IR87"];

fn set(name: &str) -> Charset {
    Charset::named(name.trim_start_matches('~').as_bytes()).expect("known")
}

fn path(text: &str) -> Path {
    text.parse().expect("a path")
}

/// One ordinary character for each delimiter that the set can hide in one, first or second byte.
fn hiding(charset: Charset) -> String {
    let hides = |character: &char, delimiter: u8| {
        let text = character.to_string();
        charset.encode(&text).is_ok_and(|bytes| {
            let own = if bytes[0] == 0x1B { &bytes[3..bytes.len() - 3] } else { &bytes[..] };
            own.len() == 2 && own.contains(&delimiter)
        })
    };
    let all = || ('\u{3040}'..'\u{30FF}').chain('\u{4E00}'..'\u{9FA0}');
    b"|^~\\&".iter().filter_map(|delimiter| all().find(|character| hides(character, *delimiter))).collect()
}

/// A message in a set, its MSH-18 as given.
fn message(charset: Charset, declared: &str, facility: &str, name: &str) -> Vec<u8> {
    let text = format!(
        "MSH|^~\\&|APP|{facility}|||20260101||ADT^A01|C1|P|2.5||||||{declared}\r\
         PID|1||42^^^{facility}^MR||{name}^{name}&x~{name}||19700101|F\rNK1|1|{name}\r"
    );
    charset.encode(&text).expect("the set has all of it").into_owned()
}

fn written(reading: &Reading<'_>, draft: &Draft<'_>) -> Vec<u8> {
    let runs = reading.runs(draft).expect("the set has all of it");
    let bytes = runs.into_iter().flat_map(|run| match run {
        Run::Original(range) => reading.raw()[range].to_vec(),
        Run::New(bytes) => bytes,
    });
    bytes.collect()
}

#[test]
fn a_byte_of_a_character_is_no_delimiter_in_any_set_and_edits_change_what_they_name() {
    for declared in SETS {
        let charset = set(declared);
        let name = hiding(charset);
        assert!(name.chars().count() >= 3, "{declared} hides delimiters in {name}");
        for (declared, assumed) in [(declared, None), ("", Some(charset)), ("ASCII", Some(charset))] {
            let raw = message(charset, declared, &name, &name);
            let reading = Reading::of(&raw, assumed).unwrap_or_else(|error| panic!("{declared}: {error}"));
            let read = reading.message().expect("a message");
            for (place, wanted) in [
                ("MSH-10", "C1"),
                ("PID-3.4", &*name),
                ("PID-5.1", &*name),
                ("PID-5.2.1", &*name),
                ("PID-5[2]", &*name),
                ("PID-7", "19700101"),
                ("NK1-2", &*name),
            ] {
                assert_eq!(read.text(&path(place)), wanted, "{declared} {place}");
            }
            let untouched = Draft::new(&read);
            assert_eq!(written(&reading, &untouched), raw, "{declared}: nothing is edited");
            let mut draft = Draft::new(&read);
            draft.set(&path("PID-7"), b"19991231").expect("it is there");
            draft.set(&path("PID-9"), name.as_bytes()).expect("it can be made");
            let out = written(&reading, &draft);
            let again = Reading::of(&out, assumed).expect("the same set");
            let again = again.message().expect("a message");
            for (place, wanted) in [("PID-5.1", &*name), ("PID-7", "19991231"), ("PID-9", &*name), ("NK1-2", &*name)] {
                assert_eq!(again.text(&path(place)), wanted, "{declared} {place}");
            }
            let find = |raw: &[u8]| raw.split(|b| *b == b'\r').map(<[u8]>::to_vec).collect::<Vec<_>>();
            assert_eq!(
                (&find(&out)[0], &find(&out)[2]),
                (&find(&raw)[0], &find(&raw)[2]),
                "{declared}: lines not edited"
            );
        }
    }
}

#[test]
fn a_character_that_the_encoder_writes_elsewhere_or_not_at_all_stays_in_a_line_that_is_edited() {
    // NEC's and IBM's places of one character, a character of a vendor, and JIS that designates Roman between.
    let cases: [(&str, &[u8]); 4] = [
        ("SHIFT_JIS", b"\xED\x40\x83\x7C"),
        ("SHIFT_JIS", b"\xF0\x40\x95\x5C"),
        ("~ISO IR87", b"\x1B$@;3\x1B(J"),
        ("~ISO IR159", b"\x1B$(D\x30\x21\x1B(B"),
    ];
    for (declared, odd) in cases {
        let mut raw = format!("MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5||||||{declared}\rPID|1||").into_bytes();
        raw.extend_from_slice(odd);
        raw.extend_from_slice(b"||DOE|");
        raw.extend_from_slice(odd);
        raw.extend_from_slice(b"^x\r");
        let reading = Reading::of(&raw, None).unwrap_or_else(|error| panic!("{declared}: {error}"));
        let read = reading.message().expect("a message");
        let mut draft = Draft::new(&read);
        draft.set(&path("PID-5"), b"ROE").expect("it is there");
        let wanted = String::from_utf8_lossy(&raw).into_owned().replace("DOE", "ROE");
        let out = written(&reading, &draft);
        assert_eq!(String::from_utf8_lossy(&out), wanted, "{declared}");
        assert_eq!(out.len(), raw.len(), "{declared}");
    }
}

#[test]
fn what_cannot_be_written_in_the_set_is_an_error_and_a_yen_sign_becomes_no_backslash() {
    for (declared, text, character) in [("SHIFT_JIS", "a\u{a5}", '\u{a5}'), ("BIG-5", "\u{e9}", '\u{e9}')] {
        let name = hiding(set(declared));
        let raw = message(set(declared), declared, "N", &name);
        let reading = Reading::of(&raw, None).expect("as declared");
        let read = reading.message().expect("a message");
        let mut draft = Draft::new(&read);
        draft.set(&path("PID-9"), text.as_bytes()).expect("it can be made");
        assert_eq!(reading.runs(&draft).expect_err("not in the set").character, character);
        assert_eq!(set(declared).encode_or(text, "*").last(), Some(&b'*'));
    }
}

#[test]
fn utf_16_is_read_with_and_without_its_mark() {
    let text = "MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5||||||UNICODE UTF-16\rPID|1||4||\u{5c71}^\u{1F600}\r";
    let le = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let be = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    let marked = format!("\u{feff}{text}");
    for raw in [le(text), be(text), le(&marked), be(&marked)] {
        let reading = Reading::of(&raw, None).expect("UTF-16");
        assert!(reading.is_wide());
        let read = reading.message().expect("a message");
        assert_eq!(read.text(&path("PID-5.1")), "\u{5c71}");
        assert_eq!(read.text(&path("PID-5.2")), "\u{1F600}");
        assert_eq!(reading.text().as_deref(), Ok(text));
    }
    assert!(Reading::of(b"\xFF\xFEM\0S\0H\0\0\xD8", None).is_err(), "half a character");
}

#[test]
fn bytes_that_nobody_declares_are_utf_8_or_one_byte_a_character_or_refused_where_they_hide_delimiters() {
    let raw = |name: &[u8]| [b"MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5\rPID|1||4||", name, b"||19700101\r"].concat();
    let encoded = |name: &str, text: &str| set(name).encode(text).expect("the set has it").into_owned();
    // Read as one byte a character, whatever the language.
    for name in [
        &b"REN\xC9^MULLER"[..],
        b"caf\xE9|\xE9t\xE9^\xE0|",
        b"kg/m\xB2|37\xB0|\xB5g",
        b"\x93A\x94|x",
        &encoded("8859/5", "\u{418}\u{412}\u{410}\u{41d}\u{41e}\u{412}\u{410}^\u{418}\u{412}\u{410}\u{41d}|"),
        &encoded("8859/7", "\u{3a0}\u{3b1}\u{3c0}\u{3b1}\u{3b4}\u{3ac}^\u{393}"),
        &encoded("8859/8", "\u{5d0}\u{5d1}\u{5d2}^\u{5d3}"),
        &encoded("windows-1251", "\u{418}\u{432}\u{430}\u{43d}\u{43e}\u{432}\u{430}^\u{418}"),
    ] {
        let raw = raw(name);
        let reading = Reading::of(&raw, None).unwrap_or_else(|error| panic!("{name:?}: {error}"));
        assert!(!reading.is_transcript());
        let read = reading.message().expect("a message");
        assert_eq!(written(&reading, &Draft::new(&read)), raw);
        assert_eq!(reading.text(), Err(ReadingError::Unknown), "it is not converted by a guess");
    }
    // Katakana and names whose second bytes are delimiters.
    for (charset, name) in [
        ("SHIFT_JIS", "\u{30dd}\u{30fc}\u{30eb}"),
        ("SHIFT_JIS", "\u{8868}\u{7530}^\u{592a}\u{90ce}"),
        ("BIG-5", "\u{8a31}\u{738b}\u{6797}^\u{9673}"),
    ] {
        let raw = raw(&encoded(charset, name));
        let wanted = set(charset).name();
        assert_eq!(Reading::of(&raw, None).err(), Some(ReadingError::Undeclared { charset: wanted }), "{name}");
        assert!(Reading::of(&raw, Some(set(charset))).is_ok_and(|reading| reading.is_transcript()));
        assert!(Reading::of(&raw, Some(Charset::ISO_8859_1)).is_ok(), "who says that it is, is believed");
    }
    let utf8 = raw("\u{8868}\u{7530}".as_bytes());
    assert!(Reading::of(&utf8, None).is_ok_and(|reading| !reading.is_transcript()));
    let jis = raw(b"\x1B$B\x3B\x33\x1B(B");
    assert!(Reading::of(&jis, None).is_ok_and(|reading| reading.is_transcript()), "escape sequences say it");
}

#[test]
fn what_is_not_in_its_declared_set_or_in_one_that_cannot_be_read_is_refused_by_name() {
    let raw = |declared: &str, name: &[u8]| {
        let head = format!("MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5||||||{declared}\rPID|1||4||");
        [head.as_bytes(), name, b"\r"].concat()
    };
    let not_in = |charset| Some(ReadingError::NotInCharset { charset });
    assert_eq!(Reading::of(&raw("SHIFT_JIS", b"\xFF\x83"), None).err(), not_in("Shift_JIS"));
    assert_eq!(Reading::of(&raw("ISO IR87", b"\x1B$B\x80"), None).err(), not_in("ISO IR87"));
    let unsupported = Some(ReadingError::Unsupported { name: "JOHAB" });
    assert_eq!(Reading::of(&raw("Johab", b"\x88\x7C"), None).err(), unsupported);
    assert!(Reading::of(&raw("Johab", b"DOE"), None).is_ok(), "ASCII is the same in all of them");
    let utf8 = raw("SHIFT_JIS", "\u{4e9c}\u{e9}".as_bytes());
    assert!(Reading::of(&utf8, None).is_ok(), "a sender that declares one and sends UTF-8 can be split");
    let lie = raw("UNICODE UTF-8", b"\x83\x7C\x81\x5B\x83\x8B");
    assert_eq!(Reading::of(&lie, None).err(), Some(ReadingError::Undeclared { charset: "Shift_JIS" }));
}

#[test]
fn a_reading_of_the_header_finds_what_the_whole_message_has_in_it() {
    let shift_jis = message(Charset::SHIFT_JIS, "SHIFT_JIS", &hiding(Charset::SHIFT_JIS), "\u{30bd}");
    let wide: Vec<u8> = "\u{feff}MSH|^~\\&|A|B|||||ADT|W1\rPID|1\r".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let messages: [(&[u8], Option<Charset>, &[u8]); 9] = [
        (b"MSH|^~\\&|A|B|||||ADT|1\rPID|1\r", None, b"1"),
        (b"MSH|^~\\&|A|B|||||ADT|2\nPID|1\n", None, b"2"),
        (b"\r\n \xEF\xBB\xBFMSH|^~\\&|A|B|||||ADT|3\r\nPID|1\r\n", None, b"3"),
        (b"\r\n MSH|^~\\&|A|B|||||ADT|4\r\nPID|1\r\n", None, b"4"),
        (b"MSH|^~\\&|A\nB|B|||||ADT|5\rPID|1\r", None, b"5"),
        (b"MSH|^~\\&|A|B\nPID|1|||||ADT|6\rPID|1\r", None, b""),
        (b"MSH|^~\\&|A|B|||||ADT|7", None, b"7"),
        (&shift_jis, Some(Charset::GB_18030), b"C1"),
        (&wide, None, b"W1"),
    ];
    for (raw, assumed, wanted) in messages {
        let control = |reading: Reading<'_>| match reading.message() {
            Ok(message) => message.get(&path("MSH-10")).bytes().to_vec(),
            Err(_) => Vec::new(),
        };
        let shown = String::from_utf8_lossy(raw);
        let whole = control(Reading::lenient(raw, assumed));
        assert_eq!(whole.escape_ascii().to_string(), wanted.escape_ascii().to_string(), "{shown}");
        assert_eq!(control(Reading::of_header(raw, assumed)), whole, "{shown}");
    }
}

#[test]
fn the_text_at_a_path_is_the_one_that_the_whole_message_has_there() {
    let lines =
        ["PID|1||7^^^N~8||DOE^J\\T\\A", "OBX|1|NM|GLU||5\nOBX|9", "", "PID|2||\"\"", "OBX|2|NM|NA||", "no segment|x"];
    let paths =
        ["MSH", "MSH-1", "MSH-18", "PID-3[2].1", "PID-5.2", "PID[2]-3", "PID[3]-3", "OBX[2]-1", "OBX[9]", "ZZZ-1"];
    let others = ["OBX[last]-3", "OBX[*]-1", "OBX[3='NA']-1", "PID[last]", "PID[1]", "OBX[1]-6", "OBX[2]-5", "OBX-6"];
    let mut random = fastrand::Rng::with_seed(12);
    let mut found = 0;
    for end in ["\r", "\n", "\r\n"] {
        for charset in ["", "8859/1", "SHIFT_JIS", "UNICODE UTF-8"] {
            for _ in 0..30 {
                let lines: Vec<&str> = (0..random.usize(..9)).map(|_| lines[random.usize(..lines.len())]).collect();
                let text = format!("MSH|^~\\&|A||||||||1|P|2.5||||||{charset}{end}{}", lines.join(end));
                let mut raw = text.clone().into_bytes();
                raw.extend_from_slice(if random.bool() { b"\rPID|||\x83\x7C^X\r" } else { b"" });
                for reading in [Reading::of_text(&text), Reading::lenient(&raw, None)] {
                    let message = reading.message().expect("it has a header");
                    for path in paths.iter().chain(&others).map(|text| path(text)) {
                        let whole = (message.get(&path) != Value::Absent).then(|| message.text(&path));
                        found += usize::from(whole.is_some());
                        assert_eq!(reading.text_at(&path).expect("it has a header"), whole, "{path}: {text:?}");
                    }
                }
            }
        }
    }
    assert!(found > 3_000, "{found}");
    let (no_message, path) = (Reading::of_text("PID|1"), path("PID-1"));
    assert_eq!(no_message.text_at(&path).err(), no_message.message().err());
}

#[test]
fn an_escape_sequence_without_text_is_not_written_at_every_empty_value() {
    let raw = b"MSH|^||||||||||||||||ISO IR87^\x1B(I";
    let reading = Reading::of(raw, None).expect("its set is known");
    let message = reading.message().expect("it has a header");
    let mut draft = Draft::new(&message);
    draft.set(&path("MSH-10"), b"NEW").expect("it is a value");
    let mut out = Vec::new();
    for run in reading.runs(&draft).expect("the set has its characters") {
        match run {
            Run::Original(range) => out.extend_from_slice(&raw[range]),
            Run::New(bytes) => out.extend_from_slice(&bytes),
        }
    }
    assert_eq!(out.escape_ascii().to_string(), "MSH|^||||||||NEW||||||||ISO IR87^");
}
