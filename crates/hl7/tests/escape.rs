//! Escape sequences and charsets, case by case.

use hl7::charset::Charset;
use hl7::escape::{convert, escape, unescape};
use hl7::{Delimiters, Message};

fn delimiters(header: &str) -> Delimiters {
    Delimiters::of_header(header.as_bytes()).expect("a header")
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[test]
fn every_known_sequence_is_decoded_and_every_other_is_kept() {
    let cases: &[(&str, &[u8])] = &[
        ("plain", b"plain"),
        (r"a\F\b\S\c\T\d\R\e\E\f", br"a|b^c&d~e\f"),
        (r"\F\\F\", b"||"),
        (r"\X41\\X0d0A\", b"A\r\n"),
        (r"\XE4\", b"\xE4"),
        (r"a\.br\b", b"a\nb"),
        (r"a\.sp\b\.sp3\c\.sp+2\d", b"a\nb\n\n\nc\n\nd"),
        (r"a\.ce\b\.sk3\c", b"a\nb   c"),
        (r"\.in+4\\.in\\.ti-2\\.fi\\.nf\\H\bold\N\", b"bold"),
        // kept: other charsets, by agreement, unknown, malformed
        (r"\C2842\\M208B3E\\M208B\\Zabc\\Z\", br"\C2842\\M208B3E\\M208B\\Zabc\\Z\"),
        (r"\P\", br"\P\"),
        (r"\f\\x41\\.BR\\h\", br"\f\\x41\\.BR\\h\"),
        (r"\X4\\X4G\\X\", br"\X4\\X4G\\X\"),
        (r"\.sp-1\\.sp999\\.sp+\\.br2\\.sk\\.xx\", br"\.sp-1\\.sp999\\.sp+\\.br2\ \.xx\"),
        (r"\C28\\M2\", br"\C28\\M2\"),
        (r"\", br"\"),
        (r"C:\dir\file", br"C:\dir\file"),
        (r"\\", br"\\"),
        (r"a\b\T\c", br"a\b&c"),
        (r"\\T\", br"\&"),
        (r"\F", br"\F"),
    ];
    for (raw, expected) in cases {
        assert_eq!(show(&unescape(raw.as_bytes(), Delimiters::default())), show(expected), "{raw}");
    }
    let truncation = delimiters(r"MSH|^~\&#|");
    assert_eq!(unescape(br"\P\", truncation).as_ref(), b"#");
    assert_eq!(unescape(br"!F!\F\", delimiters("MSH|^~!&|")).as_ref(), br"|\F\");
    assert_eq!(
        unescape(br"\T\\F\", delimiters(r"MSH|^~\|")).as_ref(),
        br"\T\|",
        "no subcomponent, so no letter for it"
    );
    assert_eq!(unescape(br"\F\", delimiters("MSH|^~|")).as_ref(), br"\F\", "no escape character, so no sequence");
}

#[test]
fn literal_text_is_escaped_once_and_wholly() {
    let cases: &[(&[u8], &str)] = &[
        (b"plain \xE4", "plain \\xe4"),
        (br"|^&~\", r"\\F\\\\S\\\\T\\\\R\\\\E\\"),
        (b"a\r\nb\tc\x0b", r"a\\X0D\\\\.br\\b\tc\\X0B\\"),
        (br"already \F\", r"already \\E\\F\\E\\"),
        (b"#", "#"),
    ];
    for (text, expected) in cases {
        assert_eq!(show(&escape(text, Delimiters::default())), *expected);
    }
    assert_eq!(escape(b"#", delimiters(r"MSH|^~\&#|")).as_ref(), br"\P\");
    assert_eq!(escape(b"a.b\n", delimiters(r"MSH|.~\&|")).as_ref(), br"a\S\b\X0A\");
    assert_eq!(escape(b"a|b", delimiters("MSH|^~|")).as_ref(), b"a|b", "no escape character: see the draft's check");
}

#[test]
fn values_move_between_messages_of_different_delimiters() {
    let from = Delimiters::default();
    let to = delimiters("MSH!@*/%!");
    let cases: &[(&str, &str)] = &[
        ("a^b&c~d", "a@b%c*d"),
        (r"a\F\b", "a|b"),
        (r"\S\\E\", r"^\"),
        (r"5!6@7", "5/F/6/S/7"),
        ("a/b", "a/E/b"),
        (r"a\.br\b\X0D\", "a/.br/b/X0D/"),
        (r"\Zq\ \lone", r"/Zq/ \lone"),
        ("\"\"", "\"\""),
        ("", ""),
    ];
    for (raw, expected) in cases {
        let there = convert(raw.as_bytes(), from, to);
        assert_eq!(show(&there), show(expected.as_bytes()), "{raw}");
    }
    assert_eq!(convert(b"a@b%c*d|e", to, from).as_ref(), br"a^b&c~d\F\e");
    let few = delimiters("MSH|^|");
    assert_eq!(convert(br"a^b&c\T\d\.br\e", from, few).as_ref(), b"a^b&c&d\ne", "what cannot be kept apart is text");
    assert_eq!(convert(br"a^b&c\", few, from).as_ref(), br"a^b\T\c\E\", "what was text stays text");
    let dot = delimiters(r"MSH|.~\&|");
    assert_eq!(convert(br"a\.br\b", from, dot).as_ref(), br"a\X0A\b", "a sequence never holds a delimiter");
}

#[test]
fn charsets_are_known_by_many_names() {
    let cases = [
        ("UNICODE UTF-8", "UNICODE UTF-8"),
        ("UTF-8", "UNICODE UTF-8"),
        ("utf8", "UNICODE UTF-8"),
        ("UNICODE", "UNICODE UTF-8"),
        ("ASCII", "ASCII"),
        ("ISO IR6", "ASCII"),
        ("us-ascii", "ASCII"),
        ("8859/1", "8859/1"),
        ("ISO-8859-1", "8859/1"),
        ("ISO8859/1", "8859/1"),
        ("8859/2", "8859/2"),
        ("8859/9", "8859/9"),
        ("8859/15", "8859/15"),
        ("windows-1252", "windows-1252"),
        ("ISO IR87", "ISO IR87"),
        ("ISO IR14", "ISO IR87"),
        ("GB 18030-2000", "GB 18030-2000"),
        ("KS X 1001", "KS X 1001"),
        ("BIG-5", "BIG-5"),
        ("Shift_JIS", "Shift_JIS"),
    ];
    for (name, expected) in cases {
        assert_eq!(Charset::named(name.as_bytes()).map(Charset::name), Some(expected), "{name}");
    }
    for part in (1..=15).filter(|part| *part != 12) {
        let name = format!("8859/{part}");
        assert!(Charset::named(name.as_bytes()).is_some(), "{name}");
    }
    for name in ["", "8859/12", "8859/99", "UNICODE UTF-16", "UNICODE UTF-32", "CNS 11643-1992", "nonsense"] {
        assert_eq!(Charset::named(name.as_bytes()), None, "{name}");
    }
}

#[test]
fn msh_18_declares_the_charset_and_later_repetitions_may_switch_to_jis() {
    let cases = [
        ("", None),
        ("8859/1", Some("8859/1")),
        ("UTF-8~UNICODE", Some("UNICODE UTF-8")),
        ("nonsense~8859/2", Some("8859/2")),
        ("nonsense", None),
        ("~ISO IR87", Some("ISO IR87")),
        ("ASCII~ISO IR87", Some("ISO IR87")),
    ];
    for (declared, expected) in cases {
        let raw = format!("MSH|^~\\&|A|||||||||||||||{declared}\r");
        let message = Message::parse(raw.as_bytes()).expect("a message");
        assert_eq!(Charset::declared(&message).map(Charset::name), expected, "{declared}");
    }
}

#[test]
fn decoding_falls_back_to_utf_8_and_then_to_iso_8859_1() {
    let jis = Charset::named(b"ISO IR87").expect("known");
    let cases: &[(Charset, &[u8], &str)] = &[
        (Charset::UTF_8, b"abc", "abc"),
        (Charset::UTF_8, "M\u{fc}ller".as_bytes(), "M\u{fc}ller"),
        (Charset::UTF_8, b"M\xFCller", "M\u{fc}ller"),
        (Charset::ASCII, "M\u{fc}ller".as_bytes(), "M\u{fc}ller"),
        (Charset::ASCII, b"M\xFCller", "M\u{fc}ller"),
        (Charset::ISO_8859_1, b"M\xFCller \x80", "M\u{fc}ller \u{20ac}"),
        (Charset::ISO_8859_1, "\u{fc}".as_bytes(), "\u{c3}\u{bc}"),
        (jis, b"\x1B$B;3\x1B(B^x", "\u{5c71}^x"),
        (jis, b"ascii", "ascii"),
    ];
    for (charset, bytes, expected) in cases {
        assert_eq!(charset.decode(bytes), *expected, "{} {}", charset.name(), show(bytes));
    }
}

#[test]
fn encoding_refuses_what_the_charset_does_not_have() {
    let latin2 = Charset::named(b"8859/2").expect("known");
    assert_eq!(Charset::ISO_8859_1.encode("M\u{fc}").as_deref(), Ok(&b"M\xFC"[..]));
    assert_eq!(latin2.encode("\u{15b}").as_deref(), Ok(&b"\xB6"[..]));
    assert_eq!(Charset::UTF_8.encode("\u{15b}").as_deref(), Ok("\u{15b}".as_bytes()));
    for (charset, text, character) in [
        (Charset::ASCII, "a\u{fc}", '\u{fc}'),
        (Charset::ISO_8859_1, "a\u{20ac}b", '\u{20ac}'), // windows-1252 has it, ISO 8859-1 does not
        (Charset::ISO_8859_1, "\u{fc}\u{15b}", '\u{15b}'),
        (latin2, "\u{5c71}", '\u{5c71}'),
    ] {
        let error = charset.encode(text).expect_err(text);
        assert_eq!((error.character, error.charset), (character, charset.name()));
    }
}
