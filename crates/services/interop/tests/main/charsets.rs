//! Character sets, from a sender's bytes to a receiver's.

use hl7::charset::Charset;
use hl7::{Path, Reading};

use crate::receiver::{Accepting, Receiver};
use crate::rig::{ALL_TO_OUT, Rig};

const USING: &str = "match first\nrule all { send to out using t }\n";

/// Writes a birth date and a note, which a wrong split would put in another place.
const EDITS: &str = "set PID-7 = \"19991231\"\nset PID-9 = \"\u{30dd}\"\n";

/// A name whose characters hide all of the usual delimiters in one set or the other.
const NAME: &str = "\u{30dd}\u{30fc}\u{8868}\u{30bd}";

fn set(name: &str) -> Charset {
    Charset::named(name.as_bytes()).expect("known")
}

fn message(charset: &str, declared: &str, id: &str) -> Vec<u8> {
    let text = format!(
        "MSH|^~\\&|APP|N|||20260101||ADT^A01|{id}|P|2.5||||||{declared}\rPID|1||42||{NAME}^{NAME}||19700101|F\r"
    );
    set(charset).encode(&text).expect("the set has it").into_owned()
}

fn text(body: &[u8], charset: Option<Charset>, place: &str) -> String {
    let place: Path = place.parse().expect("a path");
    let reading = Reading::of(body, charset).expect("it can be split");
    reading.message().expect("a message").text(&place).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_shift_jis_is_edited_where_the_rule_says_declared_or_set() {
    let out = Accepting::start().await;
    let rig = Rig::new();
    rig.service("in", "").service("set", "[intake]\ncharset = \"SHIFT_JIS\"\n").operation("out", out.address, "");
    rig.write("rules/main.rules", USING).write("transforms/t.hl7t", EDITS);
    let running = rig.start().await;
    let declared = message("SHIFT_JIS", "SHIFT_JIS", "1");
    let silent = message("SHIFT_JIS", "", "2");
    let answer = running.sender().await.exchange_bytes(&declared).await;
    assert_eq!(answer.short(), "AA 1");
    let mut sender = crate::sender::Sender::connect(running.address("set")).await;
    assert_eq!(sender.exchange_bytes(&silent).await.short(), "AA 2");
    out.received(2).await;
    for (sent, body) in [&declared, &silent].into_iter().zip(out.bodies()) {
        let set = Some(Charset::SHIFT_JIS);
        for (place, wanted) in [("PID-5.1", NAME), ("PID-5.2", NAME), ("PID-7", "19991231"), ("PID-9", "\u{30dd}")] {
            assert_eq!(text(&body, set, place), wanted, "{place}");
        }
        assert_eq!(body.split(|b| *b == b'\r').next(), sent.split(|b| *b == b'\r').next(), "MSH was not edited");
    }
    running.idle("out").await;
    let stored = running.stored();
    assert_eq!([&stored[0].1.raw[..], &stored[1].1.raw[..]], [&declared[..], &silent[..]], "stored as received");
    assert_eq!((stored[0].1.charset, stored[1].1.charset), (None, Some(Charset::SHIFT_JIS)));
    assert!(stored.iter().all(|(_, stored)| stored.outputs[0].new_bytes < stored.raw.len()), "what changed is stored");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_control_id_that_hides_delimiters_is_recognised() {
    for charset in ["SHIFT_JIS", "GBK", "BIG-5", "ISO IR87"] {
        let Some(set) = Charset::named(charset.as_bytes()) else { continue };
        let mut receiver = Receiver::start().await;
        let rig = Rig::to(receiver.address);
        let running = rig.start().await;
        let id = "\u{8868}\u{4e2d}7";
        running.sender().await.exchange_bytes(&message(charset, charset, id)).await;
        let arrival = receiver.next().await;
        let text = format!("MSH|^~\\&|R||||20260101||ACK|r|P|2.5\rMSA|AA|{id}\r");
        let mut answer = Vec::new();
        hl7::mllp::encode(&set.encode(&text).expect("the set has it"), &mut answer);
        arrival.write(&answer);
        let outcomes = running.until_outcomes(1).await;
        assert_eq!(outcomes[0].detail, "AA", "{charset}");
        running.stop().await;
        assert_eq!(receiver.rest().await, [""; 0], "{charset}: it is sent once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_in_the_set_of_its_message_whose_header_may_hide_delimiters() {
    let rig = Rig::new();
    rig.write("services/in.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for declared in ["SHIFT_JIS", "~ISO IR87"] {
        let header = format!("MSH|^~\\&|{NAME}|N|||2026||ADT^A01|7|P|2.5||||||{declared}\rPID|1||4\r");
        let raw = set(declared.trim_start_matches('~')).encode(&header).expect("the set has it").into_owned();
        let answer = sender.exchange_bytes(&raw).await.0;
        for (place, wanted) in [("MSA-1", "AA"), ("MSA-2", "7"), ("MSH-5", NAME), ("MSH-18", declared)] {
            assert_eq!(text(&answer, None, place), wanted, "{declared}");
        }
    }
    let wide: Vec<u8> = "MSH|^~\\&|A|B|||2026||ADT^A01|8|P|2.5||||||UNICODE UTF-16\rPID|1\r"
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    let answer = sender.exchange_bytes(&wide).await;
    assert_eq!((answer.short(), answer.at("MSH-18")), ("AA 8".to_owned(), "UNICODE UTF-8".to_owned()));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_looks_like_shift_jis_and_is_not_declared_is_refused_and_latin_1_goes_through_as_it_came() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let refused = sender.exchange_bytes(&message("SHIFT_JIS", "", "1")).await;
    let said = String::from_utf8_lossy(&refused.0).into_owned();
    assert!(said.contains("MSA|AR|") && said.contains("Shift_JIS") && said.contains("MSH-18"), "{said}");
    let latin = b"MSH|^~\\&|A|B|||2026||ADT^A01|2|P|2.5\rPID|1||4||REN\xC9^\xE9t\xE9|kg/m\xB2|19700101\r";
    assert_eq!(sender.exchange_bytes(latin).await.short(), "AA 2");
    out.received(1).await;
    assert_eq!(out.bodies(), [latin.to_vec()]);
    assert_eq!(running.stored().len(), 2, "what is refused is stored as well");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_with_a_charset_gets_it_and_msh_18_says_so() {
    let out = Accepting::start().await;
    let rig = Rig::new();
    rig.service("in", "[intake]\ncharset = \"8859/1\"\n").write("rules/main.rules", USING);
    rig.write("transforms/t.hl7t", "set PID-7 = \"19991231\"\n");
    rig.operation("out", out.address, "charset = \"8859/1\"\nreplacement = \"?\"\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let utf8 = |id: &str, name: &str, declared: &str| {
        format!("MSH|^~\\&|A|B|||2026||ADT^A01|{id}|P|2.5||||||{declared}\rPID|1||4||{name}||19700101\r")
    };
    sender.accepted(&utf8("1", "M\u{fc}ller", "UNICODE UTF-8")).await;
    assert_eq!(sender.exchange_bytes(&message("GBK", "GBK", "2")).await.short(), "AA 2");
    out.received(2).await;
    let bodies = out.bodies();
    assert!(bodies[0].windows(6).any(|w| w == b"M\xFCller"), "{:?}", String::from_utf8_lossy(&bodies[0]));
    assert_eq!(text(&bodies[1], None, "PID-5.1"), "????");
    for body in &bodies {
        assert_eq!(text(body, None, "MSH-18"), "8859/1");
        assert_eq!(text(body, None, "PID-7"), "19991231");
    }
    running.stop().await;
    // The other way, and without a replacement.
    for (charset, name, code) in
        [("SHIFT_JIS", NAME, "AA"), ("~ISO IR87", NAME, "AA"), ("UNICODE UTF-8", NAME, "AA"), ("8859/1", NAME, "AE")]
    {
        let out = Accepting::start().await;
        let rig = Rig::new();
        rig.service("in", "").write("rules/main.rules", ALL_TO_OUT);
        let named = charset.trim_start_matches('~');
        rig.operation("out", out.address, &format!("charset = \"{named}\"\n"));
        let running = rig.start().await;
        let answer = running.sender().await.exchange(&utf8("1", name, "UNICODE UTF-8")).await;
        assert_eq!(answer.at("MSA-1"), code, "{charset}");
        if code == "AA" {
            out.received(1).await;
            let body = &out.bodies()[0];
            assert_eq!(text(body, None, "PID-5"), name, "{charset}");
            assert_eq!(text(body, None, "MSH-18").to_uppercase(), charset, "{charset}");
            let stored = running.stored();
            assert_eq!(&stored[0].1.outputs[0].body[..], &body[..], "what was sent is what is stored");
        }
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_which_nobody_says_the_set_are_not_converted_by_a_guess() {
    let out = Accepting::start().await;
    let rig = Rig::new();
    rig.service("in", "").write("rules/main.rules", ALL_TO_OUT);
    rig.operation("out", out.address, "charset = \"UNICODE UTF-8\"\n");
    let running = rig.start().await;
    let latin = b"MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5\rPID|1||4||REN\xC9|\r";
    let answer = running.sender().await.exchange_bytes(latin).await;
    assert_eq!(answer.at("MSA-1"), "AE");
    assert!(String::from_utf8_lossy(&answer.0).contains("`charset` of the service"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_message_keeps_its_charset_over_a_restart() {
    let down = crate::receiver::Down::new();
    let rig = Rig::new();
    rig.service("in", "[intake]\ncharset = \"BIG-5\"\n").write("rules/main.rules", ALL_TO_OUT);
    rig.operation("out", down.address, "");
    let running = rig.start().await;
    // A sending application whose name hides a field separator: MSH-10 can only be found if the set is known.
    let app = "\u{8a31}\u{529f}\u{84cb}";
    let find = |wanted: u8| {
        let all = '\u{4E00}'..'\u{9FA0}';
        let hides = |c: &char| set("BIG-5").encode(&c.to_string()).is_ok_and(|b| b.len() == 2 && b[1] == wanted);
        all.into_iter().find(hides).expect("there is one")
    };
    let text = format!("MSH|^~\\&|{app}{}|N|||2026||ADT^A01|ID7|P|2.5\rPID|1||4\r", find(b'|'));
    let raw = set("BIG-5").encode(&text).expect("the set has it").into_owned();
    assert_eq!(running.sender().await.exchange_bytes(&raw).await.at("MSA-1"), "AA");
    running.stop().await;
    let running = rig.start().await;
    let mut out = down.up();
    let arrival = out.next().await;
    assert_eq!(arrival.body, raw);
    arrival.write(&crate::receiver::ack("AA", "ID7"));
    running.idle("out").await;
    assert_eq!(running.until_outcomes(1).await.len(), 1, "the answer was for this message");
    running.stop().await;
}
