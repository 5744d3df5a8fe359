//! Acknowledgements: built for every version and mode, read from every kind of peer.

use hl7::ack::{self, Code, Mode, Problem, Reply, When};
use hl7::{Message, Path, Value};

/// A message with these MSH fields from MSH-3 on.
fn message(header: &str) -> Vec<u8> {
    format!("MSH|^~\\&|{header}\rPID|1||55\rPV1|1\rOBX|1|NM|NA\rOBX|2|NM|GLU\r").into_bytes()
}

const ORU: &str = "LAB|NORTH|HIS|SOUTH|20261121||ORU^R01^ORU_R01|77|P|2.5.1";

fn reply(code: Code) -> Reply<'static> {
    Reply { code, control_id: "9001", timestamp: "20261122", text: None, problem: None }
}

/// The answer to raw bytes, one line per segment.
#[track_caller]
fn answer(raw: &[u8], reply: &Reply<'_>) -> String {
    let message = Message::parse(raw).expect("the test's message parses");
    let answer = ack::build(&message, reply);
    let parsed = Message::parse(&answer).expect("an answer is a message");
    assert!(ack::is_acknowledgement(&parsed));
    assert_eq!(ack::read(&parsed).map(|received| received.code), Some(reply.code));
    assert!(answer.ends_with(b"\r") && !answer.contains(&b'\n'));
    String::from_utf8_lossy(&answer).trim_end_matches('\r').replace('\r', "\n")
}

#[test]
fn the_answer_swaps_sender_and_receiver_and_names_the_message() {
    assert_eq!(
        answer(&message(ORU), &reply(Code::AA)),
        "MSH|^~\\&|HIS|SOUTH|LAB|NORTH|20261122||ACK^R01^ACK|9001|P|2.5.1\nMSA|AA|77"
    );
}

#[test]
fn headers_are_answered_field_by_field() {
    for (claim, header, expected) in [
        ("empty names are swapped too", "A||||||ADT^A01|1|P|2.4", "MSH|^~\\&|||A||20261122||ACK^A01^ACK|9001|P|2.4"),
        ("", "||B|C|||ADT^A01|1|P|2.4", "MSH|^~\\&|B|C|||20261122||ACK^A01^ACK|9001|P|2.4"),
        (
            "names keep their components",
            "A^1.2^ISO|||C&D|||ADT^A01^ADT_A01|1|P^T|2.5^USA",
            "MSH|^~\\&||C&D|A^1.2^ISO||20261122||ACK^A01^ACK|9001|P^T|2.5^USA",
        ),
        ("no event, no structure", "A|B|C|D|||ADT|1|P|2.5", "MSH|^~\\&|C|D|A|B|20261122||ACK|9001|P|2.5"),
        ("plain ACK in 2.3", "A|B|C|D|||ADT^A01|1|P|2.3", "MSH|^~\\&|C|D|A|B|20261122||ACK|9001|P|2.3"),
        ("plain ACK in 2.1", "A|B|C|D|||ADT^A01|1|P|2.1", "MSH|^~\\&|C|D|A|B|20261122||ACK|9001|P|2.1"),
        ("three parts in 2.3.1", "A|B|C|D|||ADT^A01|1|P|2.3.1", "MSH|^~\\&|C|D|A|B|20261122||ACK^A01^ACK|9001|P|2.3.1"),
        ("no version", "A|B|C|D|||ADT^A01|1", "MSH|^~\\&|C|D|A|B|20261122||ACK^A01^ACK|9001"),
        ("a short header", "A", "MSH|^~\\&|||A||20261122||ACK|9001"),
        (
            "the charset is echoed",
            "A|B|C|D|||ADT^A01|1|P|2.5||||||8859/1~UNICODE UTF-8",
            "MSH|^~\\&|C|D|A|B|20261122||ACK^A01^ACK|9001|P|2.5||||||8859/1~UNICODE UTF-8",
        ),
    ] {
        let answer = answer(&message(header), &reply(Code::AA));
        assert_eq!(answer.lines().next(), Some(expected), "{claim}: {header}");
    }
}

#[test]
fn the_answer_is_written_in_the_delimiters_of_the_message() {
    let problem = Problem { code: 101, location: None, text: "a|b*c" };
    let reply = Reply { problem: Some(problem), text: Some("a|b*c^d"), ..reply(Code::AE) };
    assert_eq!(
        answer(b"MSH*!%?:*A*B*C*D***ADT!A01!ADT_A01*1*P*2.5\r", &reply),
        "MSH*!%?:*C*D*A*B*20261122**ACK!A01!ACK*9001*P*2.5\nMSA*AE*1*a|b?F?c^d\n\
         ERR***101!Required field missing!HL70357*E****a|b?F?c"
    );
    assert_eq!(
        answer(b"MSH|^|A|B|C|D|||ADT^A01|1|P|2.4\r", &reply),
        "MSH|^|C|D|A|B|20261122||ACK^A01^ACK|9001|P|2.4\nMSA|AE|1|a b*c d\nERR|^^^101",
        "without an escape character delimiters in text become blanks, without subcomponents the code stands alone"
    );
    assert_eq!(
        answer(b"MSH|^~\\&#|A|B|C|D|||ADT^A01^ADT_A01|1|P|2.7\n", &Reply { text: None, ..reply }),
        "MSH|^~\\&#|C|D|A|B|20261122||ACK^A01^ACK|9001|P|2.7\nMSA|AE|1\n\
         ERR|||101^Required field missing^HL70357|E||||a\\F\\b*c",
        "the truncation character is declared again; lines end in CR whatever the message used"
    );
}

#[test]
fn the_error_is_written_as_the_version_has_it() {
    let path: Path = "PID-5.1".parse().expect("a path");
    let problem = Problem { code: 101, location: Some(&path), text: "no name" };
    let reply = Reply { text: Some("no name"), problem: Some(problem), ..reply(Code::AE) };
    let old = "MSA|AE|77|no name\nERR|PID^1^5^101&Required field missing&HL70357";
    let both = "MSA|AE|77|no name\nERR||PID^1^5^1^1|101^Required field missing^HL70357|E||||no name";
    let new = "MSA|AE|77\nERR||PID^1^5^1^1|101^Required field missing^HL70357|E||||no name";
    for (version, expected) in [
        ("2.1", old),
        ("2.3", old),
        ("2.3.1", old),
        ("2.4", old),
        ("2.4^USA", old),
        (" 2.4 ", old),
        ("2.5", both),
        ("2.5.1", both),
        ("2.5.1^USA", both),
        ("2.6", both),
        ("2.7", new),
        ("2.7.1", new),
        ("2.8.2", new),
        ("2.9", new),
        ("", both),
        ("\"\"", both),
        ("3.0", both),
        ("2", both),
        ("2.51", both),
        ("2.x", both),
        ("v2.3", both),
        ("\u{ff12}.\u{ff13}", both),
    ] {
        let raw = message(&ORU.replace("2.5.1", version));
        let answer = answer(&raw, &reply);
        assert_eq!(answer.split_once('\n').map(|(_, rest)| rest), Some(expected), "version {version:?}");
    }
}

#[test]
fn a_location_names_the_place_the_path_selects() {
    for (path, new, old) in [
        ("PID", "PID^1", "PID^1^"),
        ("PID-3", "PID^1^3", "PID^1^3"),
        ("PID-3[2]", "PID^1^3^2", "PID^1^3"),
        ("PID-3[2].4.1", "PID^1^3^2^4^1", "PID^1^3"),
        ("PID-3[last].4", "PID^1^3^^4", "PID^1^3"),
        ("OBX[2]-5", "OBX^2^5", "OBX^2^5"),
        ("OBX[last]-5", "OBX^2^5", "OBX^2^5"),
        ("OBX[3='GLU']-5", "OBX^2^5", "OBX^2^5"),
        ("OBX[3='K']-5", "OBX^^5", "OBX^^5"),
        ("OBX[*]-5", "OBX^1^5", "OBX^1^5"),
        ("ZZZ-1", "ZZZ^1^1", "ZZZ^1^1"),
    ] {
        let parsed: Path = path.parse().expect("a path");
        let problem = Problem { code: 102, location: Some(&parsed), text: "" };
        let reply = Reply { problem: Some(problem), ..reply(Code::AE) };
        let newer = answer(&message(ORU), &reply);
        assert!(newer.ends_with(&format!("\nERR||{new}|102^Data type error^HL70357|E")), "{path}: {newer}");
        let older = answer(&message(&ORU.replace("2.5.1", "2.3")), &reply);
        let expected = format!("\nERR|{old}^102&Data type error&HL70357");
        assert!(older.ends_with(&expected), "{path}: {older}");
    }
}

#[test]
fn text_without_a_problem_is_said_in_every_version() {
    let said = |code, version: &str| {
        let raw = message(&ORU.replace("2.5.1", version));
        answer(&raw, &Reply { text: Some("stored"), ..reply(code) })
    };
    assert!(said(Code::AA, "2.6").ends_with("\nMSA|AA|77|stored"));
    assert!(said(Code::AA, "2.7").ends_with("\nMSA|AA|77\nERR|||0^Message accepted^HL70357|I||||stored"));
    assert!(said(Code::CR, "2.8").ends_with("\nMSA|CR|77\nERR|||207^Application internal error^HL70357|E||||stored"));
}

#[test]
fn text_is_escaped_written_in_the_senders_charset_and_cut() {
    for (charset, text, expected) in [
        ("", "a|b^c&d~e\\f", "a\\F\\b\\S\\c\\T\\d\\R\\e\\E\\f"),
        ("", "two\nlines", "two\\.br\\lines"),
        ("", "\u{b}x\u{1c}\r", "\\X0B\\x\\X1C\\\\X0D\\"),
        ("", "M\u{fc}ller", "M?ller"),
        ("ASCII", "M\u{fc}ller", "M?ller"),
        ("UNICODE UTF-8", "M\u{fc}ller", "M\u{fc}ller"),
        ("8859/1", "\u{3042}", "?"),
        ("ISO IR87", "\u{3042}", "?"), // its bytes look like delimiters
        ("NO SUCH CHARSET", "\u{fc}", "?"),
    ] {
        let raw = message(&format!("{ORU}||||||{charset}"));
        let answer = answer(&raw, &Reply { text: Some(text), ..reply(Code::AE) });
        assert_eq!(answer.lines().nth(1), Some(&*format!("MSA|AE|77|{expected}")), "{charset:?} {text:?}");
    }
    let raw = message(&format!("{ORU}||||||8859/1"));
    let parsed = Message::parse(&raw).expect("a message");
    let latin = ack::build(&parsed, &Reply { text: Some("M\u{fc}ller"), ..reply(Code::AE) });
    assert!(latin.ends_with(b"MSA|AE|77|M\xfcller\r"), "{}", latin.escape_ascii());

    let cut = |text: &str| {
        let answer = answer(&message(ORU), &Reply { text: Some(text), ..reply(Code::AE) });
        answer.rsplit('|').next().expect("a field").to_owned()
    };
    assert_eq!(cut(&"x".repeat(80)), "x".repeat(80));
    assert_eq!(cut(&"x".repeat(81)), "x".repeat(80));
    assert_eq!(cut(&format!("{}|", "x".repeat(77))), format!("{}\\F\\", "x".repeat(77)));
    assert_eq!(cut(&format!("{}|", "x".repeat(78))), "x".repeat(78), "an escape sequence is never cut in two");
}

#[test]
fn control_ids_come_back_verbatim() {
    let long = "0123456789".repeat(20);
    for id in ["77", "", "a^b~c&d", "\\T\\x", "\"\"", " 7 ", &long, "M\u{fc}"] {
        let answer = answer(&message(&ORU.replace("|77|", &format!("|{id}|"))), &reply(Code::AA));
        let expected = format!("MSA|AA|{id}");
        assert_eq!(answer.lines().nth(1), Some(expected.trim_end_matches('|')), "{id:?}");
    }
    let raw = b"MSH|^~\\&|A|B|C|D|||ADT^A01|7\xff\xfe|P|2.3\r";
    let answer = ack::build(&Message::parse(raw).expect("a message"), &reply(Code::AA));
    assert!(answer.ends_with(b"\rMSA|AA|7\xff\xfe\r"), "bytes of no known charset are echoed as they are");
}

#[test]
fn what_is_echoed_cannot_end_a_segment_or_a_frame() {
    let raw = b"MSH|^~\\&|A|B|C\x1cC|D|||ADT^A01|x\nPID\r\rPID|1\r";
    assert_eq!(answer(raw, &reply(Code::AA)), "MSH|^~\\&|C C|D|A|B|20261122||ACK^A01^ACK|9001\nMSA|AA|x PID");
}

#[test]
fn msh_15_and_16_choose_the_mode() {
    use When::{Always, ErrorOnly, Never, SuccessOnly};
    let enhanced = |accept, application| Mode::Enhanced { accept, application };
    for (fields, expected) in [
        ("", Mode::Original),
        ("|", Mode::Original),
        ("\"\"|\"\"", Mode::Original),
        (" ", Mode::Original),
        ("  | ", Mode::Original),
        ("| ", Mode::Original),
        ("AL| ", enhanced(Always, Never)),
        (" |AL", enhanced(Never, Always)),
        ("AL|AL", enhanced(Always, Always)),
        ("AL|NE", enhanced(Always, Never)),
        ("NE|NE", enhanced(Never, Never)),
        ("ER|SU", enhanced(ErrorOnly, SuccessOnly)),
        ("AL", enhanced(Always, Never)),
        ("|AL", enhanced(Never, Always)),
        ("AL|\"\"", enhanced(Always, Never)),
        ("al|AL ", enhanced(Always, Always)),
    ] {
        let raw = message(&format!("{ORU}|||{fields}"));
        assert_eq!(ack::mode(&Message::parse(&raw).expect("a message")), expected, "{fields}");
    }
    let wants = |when: When| [Code::AA, Code::AE, Code::AR, Code::CA, Code::CE, Code::CR].map(|code| when.wants(code));
    assert_eq!(wants(Always), [true; 6]);
    assert_eq!(wants(Never), [false; 6]);
    assert_eq!(wants(ErrorOnly), [false, true, true, false, true, true]);
    assert_eq!(wants(SuccessOnly), [true, false, false, true, false, false]);
}

#[test]
fn an_application_answer_in_enhanced_mode_asks_for_no_answer() {
    let raw = message(&format!("{ORU}|||AL|AL||ASCII"));
    let header = |code| answer(&raw, &reply(code)).lines().next().expect("MSH").to_owned();
    assert_eq!(header(Code::AA), "MSH|^~\\&|HIS|SOUTH|LAB|NORTH|20261122||ACK^R01^ACK|9001|P|2.5.1|||NE|NE||ASCII");
    assert_eq!(header(Code::CA), "MSH|^~\\&|HIS|SOUTH|LAB|NORTH|20261122||ACK^R01^ACK|9001|P|2.5.1||||||ASCII");
    let application = answer(&raw, &reply(Code::AE));
    let application = Message::parse(application.as_bytes()).expect("a message");
    let never = Mode::Enhanced { accept: When::Never, application: When::Never };
    assert_eq!(ack::mode(&application), never);
}

#[test]
fn acknowledgements_are_told_from_messages() {
    for (raw, expected) in [
        ("MSH|^~\\&|||||||ACK\rMSA|AA|1\r", true),
        ("MSH|^~\\&|||||||ACK^A01^ACK\r", true),
        ("MSH|^~\\&|||||||ADR^A19\rMSA|AA|1\rQRD|1\r", true),
        ("MSH|^~\\&|||||||MCF\rMSA|AA|1\r", true),
        ("MSH|^~\\&|||||||ADT^A01\rPID|1\r", false),
        ("MSH|^~\\&|||||||ADT^ACK\r", false),
        ("MSH|^~\\&|||||||ACKNOWLEDGE\r", false),
        ("MSH|^~\\&\r", false),
    ] {
        assert_eq!(ack::is_acknowledgement(&Message::parse(raw.as_bytes()).expect("a message")), expected, "{raw}");
    }
}

#[test]
fn bytes_without_a_header_get_an_answer_all_the_same() {
    let path: Path = "MSH".parse().expect("a path");
    let problem = Problem { code: 100, location: Some(&path), text: "no MSH" };
    let reply = Reply { text: Some("no MSH"), problem: Some(problem), ..reply(Code::AR) };
    let answer = ack::build_without_header(&reply);
    assert_eq!(
        String::from_utf8_lossy(&answer),
        "MSH|^~\\&|||||20261122||ACK|9001|P|2.5\rMSA|AR||no MSH\r\
         ERR||MSH^1|100^Segment sequence error^HL70357|E||||no MSH\r"
    );
    let message = Message::parse(&answer).expect("a message");
    let received = ack::read(&message).expect("an answer");
    assert!(!ack::matches(&received, b""), "it names no message, so it answers none");
}

#[test]
fn answers_of_every_kind_of_peer_are_read() {
    let header = "MSH|^~\\&|A|B|C|D|||";
    for (claim, rest, expected) in [
        ("plain", "ACK|1\rMSA|AA|77", Some((Code::AA, "77", ""))),
        ("text in MSA-3", "ACK|1\rMSA|AE|77|bad", Some((Code::AE, "77", "bad"))),
        ("a response with an MSA", "ADR^A19|1\rMSA|AA|77\rQRD|1\rPID|1", Some((Code::AA, "77", ""))),
        ("MSA not second", "ACK|1\rSFT|x\rMSA|CA|77", Some((Code::CA, "77", ""))),
        ("text in ERR-8", "ACK|1\rMSA|AR|77\rERR|||207^x|E||||why", Some((Code::AR, "77", "why"))),
        ("text in ERR-3", "ACK|1\rMSA|AR|77\rERR|||207^Application internal error|E", {
            Some((Code::AR, "77", "Application internal error"))
        }),
        ("text in ERR-1", "ACK|1\rMSA|AE|77\rERR|PID^1^5^101&Missing", Some((Code::AE, "77", "101&Missing"))),
        ("MSA-3 first", "ACK|1\rMSA|AE|77|bad\rERR|||207^x|E||||why", Some((Code::AE, "77", "bad"))),
        ("padded code", "ACK|1\rMSA| CE |77", Some((Code::CE, "77", ""))),
        ("no id", "ACK|1\rMSA|AA", Some((Code::AA, "", ""))),
        ("no MSA", "ACK|1", None),
        ("no code", "ACK|1\rMSA||77", None),
        ("an unknown code", "ACK|1\rMSA|OK|77", None),
        ("codes are upper case", "ACK|1\rMSA|aa|77", None),
    ] {
        let raw = format!("{header}{rest}\r");
        let message = Message::parse(raw.as_bytes()).expect("a message");
        let received = ack::read(&message);
        let read = received.map(|r| (r.code, r.control_id, r.text.bytes()));
        assert_eq!(read, expected.map(|(code, id, text)| (code, id.as_bytes(), text.as_bytes())), "{claim}");
    }
}

#[test]
fn an_answer_matches_only_the_message_it_names() {
    for (received, sent, expected) in [
        ("77", "77", true),
        ("77 ", "77", true),
        ("77", "77  ", true),
        ("78", "77", false),
        ("7", "77", false),
        ("077", "77", false),
        (" 77", "77", false),
        ("", "77", false),
        ("77", "", false),
        ("", "", false),
        ("a\\T\\b", "a\\T\\b", true),
        ("a&b", "a\\T\\b", false),
    ] {
        let received = ack::Received { code: Code::AA, control_id: received.as_bytes(), text: Value::Empty };
        assert_eq!(ack::matches(&received, sent.as_bytes()), expected, "{received:?} {sent:?}");
    }
}

#[test]
fn table_0357_says_which_code_each_condition_asks_for() {
    let numbers: Vec<u16> = ack::CONDITIONS.iter().map(|condition| condition.number).collect();
    assert_eq!(numbers, [0, 100, 101, 102, 103, 104, 200, 201, 202, 203, 204, 205, 206, 207]);
    for condition in &ack::CONDITIONS {
        let expected = [Code::AA, Code::AE, Code::AR][usize::from(condition.number / 100)];
        assert_eq!(condition.code, expected, "{}", condition.number);
        assert_eq!(ack::condition(condition.number), Some(condition));
    }
    assert_eq!(ack::condition(105), None);
    let unknown = Problem { code: 999, location: None, text: "" };
    let answer = answer(&message(ORU), &Reply { problem: Some(unknown), ..reply(Code::AE) });
    assert!(answer.ends_with("\nERR|||999^^HL70357|E"), "{answer}");
}

#[test]
fn every_code_reads_back_and_has_a_commit_code_of_the_same_kind() {
    for code in [Code::AA, Code::AE, Code::AR, Code::CA, Code::CE, Code::CR] {
        assert_eq!(Code::from_bytes(code.as_ref().as_bytes()), Some(code));
        assert_eq!(code.commit().as_ref()[1..2], code.as_ref()[1..2]);
        assert!(code.commit().is_commit());
        assert_eq!(code.commit().is_accept(), code.is_accept());
    }
    assert_eq!(Code::from_bytes(b"AAA"), None);
}

#[test]
fn every_corpus_message_is_answered_by_its_rules() {
    let mut answered = 0;
    for (path, file) in super::corpus::files() {
        let Ok(message) = Message::parse(&file) else { continue };
        let header = message.header();
        let reply = Reply { text: Some("checked"), ..reply(Code::AE) };
        let answer = ack::build(&message, &reply);
        let parsed = Message::parse(&answer).expect("an answer is a message");
        let answered_by = parsed.header();
        for (field, echoed) in [(3, 5), (4, 6), (5, 3), (6, 4), (11, 11), (12, 12), (18, 18)] {
            let (ours, theirs) = (answered_by.field(field).bytes(), header.field(echoed).bytes());
            assert_eq!(ours, theirs, "{path:?}: MSH-{field}");
        }
        let received = ack::read(&parsed).expect("an MSA");
        assert_eq!(received.control_id, header.field(10).bytes(), "{path:?}");
        assert_eq!(received.text.bytes(), b"checked", "{path:?}");
        answered += 1;
    }
    println!("{answered} messages answered");
}
