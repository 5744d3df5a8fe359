//! Masking: what is masked, what stays, and what a path touches.

use std::time::{Duration, Instant};

use hl7::charset::Charset;
use hl7::mask::{DEFAULT_PATHS, MASK, Masker};
use hl7::{Message, Path, Reading};

const HEADER: &str = "MSH|^~\\&|A|B|||20260101||ADT^A01|C1|P|2.5\r";

fn masker(paths: &[&str]) -> Masker {
    Masker::new(paths).unwrap_or_else(|error| panic!("{error}"))
}

fn masked(paths: &[&str], raw: &str) -> String {
    String::from_utf8(masker(paths).mask(raw.as_bytes(), None)).expect("it was UTF-8")
}

#[test]
fn a_masked_place_is_the_same_text_whatever_is_in_it() {
    let cases: [(&[&str], &str, &str); 14] = [
        (&["PID-5"], "PID|1||3||DOE^JANE~ROE^J|x", "PID|1||3||MASKED|x"),
        (&["PID-5"], "PID|1||3||\"\"|x", "PID|1||3||MASKED|x"),
        (&["PID-5"], "PID|1||3|||x", "PID|1||3||MASKED|x"),
        (&["PID-5"], "PID|1", "PID|1||||MASKED"),
        (&["PID-5"], "PID", "PID|||||MASKED"),
        (&["PID-3.1"], "PID|1||7^^^A~8^^^B|x", "PID|1||MASKED^^^A~MASKED^^^B|x"),
        (&["PID-3.1", "PID-3.4.2"], "PID|1||7|x", "PID|1||MASKED^^^&MASKED|x"),
        (&["PID-3.4.2"], "PID|||7^^^A&1.2&ISO^MR~8", "PID|||7^^^A&MASKED&ISO^MR~8^^^&MASKED"),
        (&["PID-3.1.1"], "PID|||a&b^c", "PID|||MASKED&b^c"),
        (&["PID-3", "PID-3.1"], "PID|||7^^^A", "PID|||MASKED"),
        (&["PID-3.1", "PID"], "PID|||7^^^A", "PID|MASKED"),
        (&["PID", "PID-3.1"], "PID", "PID|MASKED"),
        (&["PID[*]-5[*]"], "PID|||||a~b\\F\\c\rPID|1||||d", "PID|||||MASKED\rPID|1||||MASKED"),
        (&["PID-5"], "PID|||||DOE\nJANE|x\nZPD|DOE", "PID|||||MASKED|x\nZPD|DOE"),
    ];
    for (paths, raw, expected) in cases {
        assert_eq!(masked(paths, &format!("{HEADER}{raw}\r")), format!("{HEADER}{expected}\r"), "{paths:?} {raw:?}");
    }
}

#[test]
fn fields_of_a_header_are_counted_from_its_separator() {
    let raw = "MSH|^~\\&|A|B|||20260101||ADT^A01|C1\rPID|1\r";
    let expected = "MSH|^~\\&|MASKED|B|||20260101||ADT^A01|MASKED|||MASKED\rPID|1\r";
    assert_eq!(masked(&["MSH-3", "MSH-10", "MSH-13"], raw), expected);
}

#[test]
fn each_message_of_a_batch_is_read_by_its_own_header() {
    let raw = "FHS|^~\\&|A\rBHS|^~\\&|A\r\
               MSH|^~\\&|A\rPID|1||7^^^X||DOE\rNK1|1|DOE\r\
               MSH!*%?$!A\rPID!1!!7***X%8***Y!!DOE\rNK1!1!DOE\r\
               MSH|^|A\rPID|1||7||DOE\rMSH|abc|A\rPID|1||7||DOE\rZPD|DOE\r \tMSH*^~\\&*A\rPID*1**7**DOE\rBTS|3\r";
    let expected = "FHS|^~\\&|A\rBHS|^~\\&|A\r\
               MSH|^~\\&|A\rPID|1||MASKED^^^X||MASKED\rNK1|MASKED\r\
               MSH!*%?$!A\rPID!1!!MASKED***X%MASKED***Y!!MASKED\rNK1!MASKED\r\
               MSH|^|A\rPID|1||MASKED||MASKED\rMASKED\rMASKED\rMASKED\r \tMSH*^~\\&*A\rPID*1**MASKED**MASKED\rMASKED\r";
    assert_eq!(masked(&["PID-3.1", "PID-5", "NK1"], raw), expected);
}

#[test]
fn a_header_with_a_line_feed_that_masking_would_cut_is_masked_with_its_message() {
    assert_eq!(masked(&["MSH-10"], "MSH!$!\nPID\r"), MASK);
    assert_eq!(masked(&["MSH-10"], "MSH!$!!!!!!!!C1!!\nPID\r"), "MSH!$!!!!!!!!MASKED!!\nPID\r");
}

#[test]
fn what_is_masked_once_stays_as_it_is() {
    for raw in ["MSH|~\n\0MSH|", "MSH|~\r \tMSH|", "MSH|~\r\0 MSHx\r \0PID|1"] {
        let once = masker(DEFAULT_PATHS).mask(raw.as_bytes(), None);
        let twice = masker(DEFAULT_PATHS).mask(&once, None);
        assert_eq!(twice.escape_ascii().to_string(), once.escape_ascii().to_string(), "{raw:?}");
    }
}

#[test]
fn what_cannot_be_attributed_is_masked() {
    let paths = ["PID-5", "OBX-5.2", "OBX-3.1.2"];
    for (raw, expected) in [
        // Not a message, or one that cannot be read.
        ("", MASK),
        ("PID|1||7||DOE\r", MASK),
        ("MSH", MASK),
        ("MSH|^~\\&~|A\rPID|1||7||DOE\r", MASK),
        ("MSHELL|DOE\r", MASK),
        // Lines without a name, or with another separator than the header's.
        ("MSH|^~\\&|A\rpid|1||7||DOE\r", "MSH|^~\\&|A\rMASKED\r"),
        ("MSH|^~\\&|A\r PID|1||7||DOE\r", "MSH|^~\\&|A\rMASKED\r"),
        ("MSH|^~\\&|A\nPID|1||7||D\nOE|x\n", "MSH|^~\\&|A\nPID|1||7||MASKED\nMASKED\n"),
        ("MSH|^~\\&|A\rPID^1^^7^^DOE\r", "MSH|^~\\&|A\rMASKED\r"),
        ("MSH|^~\\&|A\rMSH\rPID|1||7||DOE\r", "MSH|^~\\&|A\rMASKED\rPID|1||7||MASKED\r"),
        ("MSH|^~\\&|A\rDOE\r|JANE\r", "MSH|^~\\&|A\rDOE\rMASKED\r"),
        // A level without a delimiter: it is not known where its parts are.
        ("MSH|^|A\rOBX|1||a&b^x||p^q^r\r", "MSH|^|A\rOBX|1||MASKED^x||p^MASKED^r\r"),
        ("MSH|~|A\rOBX|1||a&b||p^q^r\r", "MSH|~|A\rOBX|1||MASKED||p^q^r~MASKED\r"),
        // Made longer, the text would end in a segment of its own.
        ("MSH|^~\\&|A\rPID|1|DOE\nNTE\r", "MSH|^~\\&|A\rPID|||||MASKED\r"),
    ] {
        assert_eq!(masked(&paths, raw), expected, "{raw:?}");
    }
}

#[test]
fn characters_that_hide_delimiters_do_not_shift_what_is_masked() {
    for (charset, declared, name) in [
        (Charset::SHIFT_JIS, "SHIFT_JIS", "\u{30dd}\u{30fc}\u{8868}"),
        (Charset::GB_18030, "GB 18030-2000", "\u{6731}\u{9563}"),
        (Charset::BIG_5, "BIG-5", "\u{8a31}\u{529f}"),
        (Charset::ISO_2022_JP, "~ISO IR87", "\u{5c71}\u{7530}\u{9b54}"),
    ] {
        let text = |name: &str, born: &str| {
            format!("MSH|^~\\&|A|{}|||1||ADT|C|P|2.5||||||{declared}\rPID|1||4||{name}||{born}|F|{name}\r", "\u{5c71}")
        };
        let encode = |text: String| charset.encode(&text).expect("the set has all of it").into_owned();
        let raw = encode(text(name, "19700101"));
        let masked = masker(&["PID-5", "PID-7", "PID-9"]).mask(&raw, None);
        assert_eq!(masked, encode(text(MASK, MASK)), "{declared}");
        let reading = Reading::of(&masked, None).expect("it is still in its set");
        assert_eq!(reading.message().expect("a message").text(&"PID-8".parse::<Path>().expect("a path")), "F");
    }
}

#[test]
fn a_message_of_an_unknown_charset_is_masked_whole() {
    // Shift_JIS, not declared: `|` may be half of a character.
    let mut raw = b"MSH|^~\\&|A|B|||1||ADT|C|P|2.5\rPID|1||4||\x83\x7C\x81\x5B\x83\x8B\x95\x5C||19700101\r".to_vec();
    assert_eq!(masker(&["PID-5"]).mask(&raw, None), MASK.as_bytes());
    let known = masker(&["PID-5"]).mask(&raw, Some(Charset::SHIFT_JIS));
    assert!(known.ends_with(b"PID|1||4||MASKED||19700101\r"), "{}", known.escape_ascii());
    // Declared as one thing, and not that.
    raw = b"MSH|^~\\&|A|B|||1||ADT|C|P|2.5||||||SHIFT_JIS\rPID|1||4||\xFF\xFE||19700101\r".to_vec();
    assert_eq!(masker(&["PID-5"]).mask(&raw, None), MASK.as_bytes());
    // The second message is in a set that must not be split as the first one is.
    let of = |name: &[u8]| {
        let second = [b"MSH|^~\\&|A|B|||1||ADT|C|P|2.5||||||SHIFT_JIS\rPID|1||4||", name, b"||19700101\r"].concat();
        [b"MSH|^~\\&|A|B|||1||ADT|C|P|2.5\rPID|1||4||DOE\r", &second[..]].concat()
    };
    assert_eq!(masker(&["PID-5"]).mask(&of(b"\x83\x7C\x95\x5C"), None), MASK.as_bytes());
    assert!(masker(&["PID-5"]).mask(&of(b"DOE"), None).ends_with(b"PID|1||4||MASKED||19700101\r"));
    let wide: Vec<u8> = "\u{feff}MSH|^~\\&|A\rPID|1||4||DOE|x\r".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(masker(&["PID-5"]).mask(&wide, None).ends_with(b"PID|1||4||MASKED|x\r"));
}

#[test]
fn a_message_that_masking_would_make_many_times_as_long_is_masked_whole() {
    let few = format!("{HEADER}{}", "PID\r".repeat(100));
    assert!(masked(&["PID-255"], &few).len() > 100 * 255);
    for raw in ["PID\r".repeat(10_000), format!("PID|||{}", "~".repeat(100_000))] {
        assert_eq!(masked(&["PID-255", "PID-3.255.255"], &format!("{HEADER}{raw}")), MASK);
    }
}

#[test]
fn a_path_is_covered_where_it_reads_or_selects_by_something_masked() {
    let masker = masker(&["PID-5", "PID-3.1", "PID-11.1.2", "NK1", "OBX-5"]);
    for (path, expected) in [
        ("PID-5", true),
        ("PID-5.1", true),
        ("PID-5[2].7.1", true),
        ("PID[2]-5", true),
        ("PID", true),
        ("PID-3", true),
        ("PID-3.1.4", true),
        ("PID-3.4", false),
        ("PID-3[1='7'].4", true),
        ("PID-3[5='MR'].4", false),
        ("PID-3[5='MR']", true),
        ("PID-11.1", true),
        ("PID-11.1.2", true),
        ("PID-11.1.1", false),
        ("PID-11.3", false),
        ("PID-8", false),
        ("NK1-2", true),
        ("NK1", true),
        ("OBX-3", false),
        ("OBX[5='x']-3", true),
        ("OBX[3='x']-4", false),
        ("OBX[last]-5", true),
        ("ZPD", false),
        ("MSH-10", false),
    ] {
        let path: Path = path.parse().expect("a path");
        assert_eq!(masker.covers(&path), expected, "{path}");
    }
}

#[test]
fn paths_that_cannot_be_masked_are_refused() {
    for (path, error) in [
        ("PID-", "expected a number"),
        ("PID[2]-5", "every segment and every repetition"),
        ("PID-3[1]", "every segment and every repetition"),
        ("PID-3[5='MR'].1", "every segment and every repetition"),
        ("OBX[2='TX']-5", "every segment and every repetition"),
        ("MSH", "say how a message is read"),
        ("MSH-2", "say how a message is read"),
        ("MSH-18.1", "say how a message is read"),
        ("PID-256", "largest number in a masked path is 255"),
        ("PID-3.256", "largest number in a masked path is 255"),
    ] {
        let told = Masker::new([path]).expect_err(path).to_string();
        assert!(told.contains(error) && told.contains(path), "{path}: {told}");
    }
}

#[test]
fn without_paths_nothing_is_masked() {
    let nothing = Masker::new([""; 0]).expect("no path is wrong");
    assert!(nothing.is_empty() && !nothing.covers(&"PID-5".parse().expect("a path")));
    for raw in [&b"PID|no message"[..], b"", b"MSH|^~\\&|A\rpid\r"] {
        assert_eq!(nothing.mask(raw, None), raw);
    }
}

#[test]
fn the_default_paths_hide_every_name_and_number_of_a_typical_admission() {
    let raw = "MSH|^~\\&|A|B|||20260101||ADT^A01|C1|P|2.5\rEVN|A01|20260101\r\
               PID|1|SECRET|SECRET^^^H^MR~SECRET^^^US^SS|SECRET|SECRET^SECRET|SECRET|SECRET|F|SECRET|2106-3|SECRET^^SECRET|\
               SECRET|SECRET|SECRET|en|M||SECRET|SECRET|SECRET|SECRET||SECRET||||||SECRET\r\
               NK1|1|SECRET|SPO|SECRET|SECRET\rPV1|1|I|W^1^2||SECRET||||||||||||||SECRET|SELF\r\
               GT1|1|SECRET|SECRET\rIN1|1|PLAN|CO|NAME||||||||||||SECRET\rIN2|SECRET|SECRET\rMRG|SECRET^^^H|||SECRET\r\
               OBX|1|TX|NOTE||Mr. SECRET was seen||||||F\rNTE|1||SECRET\rADD|SECRET\rDSP|1||SECRET\r\
               QRD|1|R|I|Q1|||1|SECRET|DEM\rQPD|Q22|1|@PID.5.1^SECRET\rERR||PID^1^5|207|E|||SECRET|SECRET\rMSA|AE|C1|SECRET\r";
    let masked = String::from_utf8(Masker::default().mask(raw.as_bytes(), None)).expect("it was UTF-8");
    assert!(!masked.contains("SECRET"), "{masked}");
    for kept in
        ["EVN|A01|20260101\r", "|MASKED|F|", "|2106-3|", "|en|M|", "PV1|1|I|W^1^2|", "|SELF", "OBX|1|TX|NOTE||MASKED|"]
    {
        assert!(masked.contains(kept), "{kept}: {masked}");
    }
    let message = Message::parse(masked.as_bytes()).expect("it is one");
    assert_eq!(message.len(), Message::parse(raw.as_bytes()).expect("it is one").len());
    assert!(DEFAULT_PATHS.iter().all(|path| Masker::default().covers(&path.parse().expect("a path"))));
}

#[test]
fn masking_takes_time_in_proportion_to_the_length_of_a_message_whatever_its_lines_are() {
    // Where each line looks at all that follow it, each of these takes minutes.
    let cases = [
        ("\r", 256 << 10),
        ("\n", 256 << 10),
        (" \r", 512 << 10),
        ("\u{feff}\r", 1 << 20),
        ("\0\t\r\n", 1 << 20),
        ("MSH|\r", 4 << 20),
        ("BHS|^~\\&\r", 4 << 20),
    ];
    for (line, bytes) in cases {
        let raw = format!("{HEADER}{}PID|1||7||DOE\r", line.repeat(bytes / line.len()));
        let began = Instant::now();
        let masked = masked(&["PID-5"], &raw);
        assert!(began.elapsed() < Duration::from_secs(60), "{line:?}: {:?}", began.elapsed());
        assert!(!masked.contains("DOE"), "{line:?}");
    }
}
