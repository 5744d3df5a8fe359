//! What a masked user can learn over the control socket and over HTTP: nothing. Two nodes, whose only message differs in masked
//! values, answer every way of `masked.txt` with the same bytes, but for times.
//!
//! The user has all rights to messages and indices that there are, without `unmasked`. The ways of SQL are a test of its own.

use node::identity::Action;
use serde_json::Value;

use super::ports::{Control, Http};
use super::rig::{Standing, TestRole};
use super::ways::Right;
use crate::node::{Bed, Node, until};

/// See the file.
const WAYS: &str = include_str!("masked.txt");

/// What differs: number, name, given name, date of birth, street. The second has other lengths.
const VALUES: [[&str; 5]; 2] = [
    ["4711", "Zwiebelfisch", "Ottokar", "19521103", "Hauptstrasse"],
    ["99887766", "Quastenflosser", "Eva", "1987", "Am Langen Graben 44"],
];

/// The words of `masked.txt` for the values of the first node.
const GUESSES: [&str; 5] = ["G-MRN", "G-NAME", "G-GIVEN", "G-BIRTH", "G-STREET"];

/// Rights of the user.
const RIGHTS: &[Right] = &[
    (Action::MessageMetadata, "service *"),
    (Action::MessageBody, "service *"),
    (Action::IndexRead, "index *"),
    (Action::IndexMonitor, "index *"),
    (Action::IndexWrite, "index *"),
    (Action::IndexMake, "index *"),
    (Action::IndexManage, "index *"),
    (Action::SearchMonitor, "node"),
    (Action::SearchManage, "node"),
    (Action::NodeStatus, "node"),
];

const SETTINGS: &str = "production = \"production\"\n[search]\nlisten = \"127.0.0.1:0\"\n";

/// The message, with these values in many places that are masked.
fn message(values: &[&str; 5]) -> String {
    let [number, name, given, birth, street] = values;
    format!(
        "MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ADT^A01|M1|P|2.5\rPID|1|{number}|{number}^^^A^MR~{number}9^^^B||\
         {name}^{given}|{name}|{birth}|F|{name}||{street}||0{number}||||||{number}\rNK1|1|{name}^MARTHA\r\
         PV1|1|I|ICU||{number}^{name}||||||||||||||{number}\rOBX|1|TX|GLU||{name} of {street}\r"
    )
}

/// A node with one message, and its masked user.
struct Side<'n> {
    control: Control,
    http: Http,
    role: TestRole,
    id: u64,
    _node: Node<'n>,
}

impl<'n> Side<'n> {
    fn start(bed: &'n Bed, values: &[&str; 5]) -> Side<'n> {
        let authority = super::rig::Authority::new(bed);
        super::rig::write_production(bed);
        bed.configure(SETTINGS);
        let node = bed.start();
        node.send_bytes(&message(values));
        let mut control = Control::open(&bed.data());
        let role = super::rig::make_role(&mut control, &authority, ("masked", Standing::Plain), RIGHTS);
        let unmasked: Vec<Right> = RIGHTS.iter().copied().chain([(Action::Unmasked, "service *")]).collect();
        let reader = super::rig::make_role(&mut control, &authority, ("reader", Standing::Plain), &unmasked);
        let mut http = Http::open(node.search());
        http.send(&reader.token, ("PUT", "/mine/_doc/1?refresh=true", r#"{"x":"a"}"#));
        until("the message is indexed", || {
            http.send(&reader.token, ("GET", &format!("/.messages/_search?q=mrn:{}", values[0]), ""))
                .text()
                .contains("_id")
        });
        // The delivery is over, and shown on both.
        until("it is delivered", || {
            control.send(Some(&reader.token), r#"messages {"output":"delivered"}"#).text().contains("M1")
        });
        let id = control.must("messages {}")[0]["id"].as_u64().expect("a number");
        Side { control, http, role, id, _node: node }
    }

    /// The answer to a line of the file.
    fn answer(&mut self, line: &str) -> String {
        let line = GUESSES.iter().zip(VALUES[0]).fold(line.to_owned(), |line, (word, value)| line.replace(word, value));
        let line = line.replace("{id}", &self.id.to_string());
        if let Some(request) = line.strip_prefix("control ") {
            return self.control.send(Some(&self.role.token), request).text().to_owned();
        }
        let (method, rest) = line.split_once(' ').expect("a method");
        let (target, body) = rest.split_once(' ').unwrap_or((rest, ""));
        let body = body.replace("\\n", "\n");
        self.http.send(&self.role.token, (method, target, &body)).text().to_owned()
    }
}

/// Keys of an answer whose values are of the moment, of the process or of the medium, and not of what is stored.
///
/// Sizes on the medium are those of messages as they came in (docs/security.md, known gaps).
const OF_THE_MOMENT: &[&str] = &[
    "took",
    "received_us",
    "at_us",
    "uuid",
    "cluster_uuid",
    "state_uuid",
    "id",
    "_scroll_id",
    "pit_id",
    "node",
    "master_node",
    "name",
    "start_time_in_millis",
    "running_time_in_nanos",
    "creation_date",
    "creation_time",
    "timestamp",
    "transport_address",
    "jvm",
    "os",
    "process",
    "fs",
    "nodes",
    "_nodes",
    "pid",
    "http",
    "ip",
    "host",
    "history_uuid",
    "translog_uuid",
    "primary_term",
    "size_in_bytes",
    "total_data_set_size_in_bytes",
    "uncommitted_size_in_bytes",
    "source",
    "upto",
    "query_total",
    "fetch_total",
];

/// An answer without what is of the moment.
fn normalised(text: &str) -> String {
    let (status, body) = match text.split_once(' ') {
        Some((status, body)) if status.len() == 3 && status.parse::<u16>().is_ok() => (status, body),
        _ => ("", text),
    };
    let shown = match serde_json::from_str::<Value>(body) {
        Ok(mut json) => {
            strip(&mut json);
            json.to_string()
        }
        Err(_) => without_long_numbers(body),
    };
    format!("{status} {shown}")
}

fn strip(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                let is_plain = !value.is_object() && !value.is_array();
                let is_whole = matches!(key.as_str(), "nodes" | "jvm" | "os" | "process" | "fs" | "http");
                let is_time = key.ends_with("_in_millis");
                if is_time || (OF_THE_MOMENT.contains(&key.as_str()) && (is_plain || is_whole)) {
                    *value = Value::Null;
                } else {
                    strip(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Tables for people have times as long numbers, identifiers as words of 22 characters or of 8 digits, and sizes with their units.
fn without_long_numbers(text: &str) -> String {
    let word = |word: &str| {
        let is_moment = word.len() >= 10 && word.chars().all(|c| c.is_ascii_digit());
        let is_time = word.len() == 8 && word.matches(':').count() == 2;
        let is_identifier = word.len() == 22 || (word.len() == 8 && word.chars().all(|c| c.is_ascii_hexdigit()));
        let is_size = word.ends_with("kb") && word.starts_with(|c: char| c.is_ascii_digit());
        if is_moment || is_time || is_identifier || is_size { "#".to_owned() } else { word.to_owned() }
    };
    text.lines().map(|line| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[test]
fn two_nodes_that_differ_in_masked_values_answer_a_masked_user_the_same() {
    let beds = [Bed::new(), Bed::new()];
    let mut sides = [Side::start(&beds[0], &VALUES[0]), Side::start(&beds[1], &VALUES[1])];
    let mut wrong = Vec::new();
    let ways: Vec<&str> = WAYS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    for way in &ways {
        let answers = [0, 1].map(|side| sides[side].answer(way));
        // What was guessed may be in a refusal; what was not must not be anywhere.
        let told = VALUES[1].iter().find(|value| answers[1].contains(*value));
        let ids = [sides[0].id, sides[1].id];
        let answers = [0, 1].map(|side| normalised(&answers[side].replace(&ids[side].to_string(), "0")));
        if answers[0] != answers[1] || told.is_some() {
            let shown = answers.map(|answer| answer.chars().take(600).collect::<String>());
            wrong.push(format!("{way}\n  {}\n  {}", shown[0], shown[1]));
        }
    }
    assert!(wrong.is_empty(), "{} of {} ways tell something:\n{}", wrong.len(), ways.len(), wrong.join("\n"));
}
