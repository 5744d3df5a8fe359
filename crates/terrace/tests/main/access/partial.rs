//! Who may read the messages of one service searches them over HTTP and the control socket as if there were no others.

use std::fs;

use node::identity::Action;
use serde_json::Value;

use super::ports::{Control, Http, Outcome};
use super::rig::{Authority, SETTINGS, Standing, make_role, write_production};
use super::ways::Right;
use crate::node::{Bed, message, until};

/// Where a service listens.
fn address(bed: &Bed, service: &str) -> String {
    let text = fs::read_to_string(bed.data().join("node.json")).expect("the node is ready");
    let ready: Value = serde_json::from_str(&text).expect("JSON");
    let services = ready["services"].as_array().expect("a list");
    let found = services.iter().find(|one| one["name"] == service).expect("it runs");
    found["at"].as_str().expect("an address").to_owned()
}

fn send(bed: &Bed, service: &str, id: &str) {
    fs::write(bed.path("one.hl7"), message(id)).expect("written");
    let file = bed.path("one.hl7").display().to_string();
    bed.command_line(&["message", "send", &file, "--to", &address(bed, service)]).succeeds("MSA|AA");
}

fn text(outcome: &Outcome) -> String {
    assert!(matches!(outcome, Outcome::Answered(_)), "{outcome:?}");
    outcome.text().to_owned()
}

#[test]
fn a_partial_reader_of_a_node_finds_its_own_services_over_http_and_the_control_socket() {
    let bed = Bed::new();
    let authority = Authority::new(&bed);
    write_production(&bed);
    let lab = fs::read_to_string(bed.path("production/services/adt.toml")).expect("it was written");
    fs::write(bed.path("production/services/lab.toml"), lab).expect("written");
    bed.configure(SETTINGS);
    let node = bed.start();
    let mut control = Control::open(&bed.data());
    for (service, id) in [("adt", "A1"), ("adt", "A2"), ("lab", "L1")] {
        send(&bed, service, id);
    }
    let rights = |service: &'static str| -> Vec<Right> {
        vec![
            (Action::IndexRead, "index .messages"),
            (Action::MessageBody, service),
            (Action::Unmasked, service),
            (Action::MessageMetadata, service),
        ]
    };
    let whole = make_role(&mut control, &authority, ("whole", Standing::Plain), &rights("service *"));
    let part = make_role(&mut control, &authority, ("part", Standing::Plain), &rights("service lab"));
    let body_only = [(Action::IndexRead, "index .messages"), (Action::MessageBody, "service lab")];
    let body_only = make_role(&mut control, &authority, ("body-only", Standing::Plain), &body_only);
    let mut http = Http::open(node.search());
    let count = |http: &mut Http, token: &str| text(&http.send(token, ("GET", "/.messages/_count", "")));
    until("all are indexed", || count(&mut http, &whole.token).contains("\"count\":3"));
    assert!(count(&mut http, &part.token).contains("\"count\":1"));
    let hits = text(&http.send(&part.token, ("GET", "/.messages/_search?q=text:sample", "")));
    assert!(hits.contains("\"L1\"") && !hits.contains("\"A1\"") && !hits.contains("\"A2\""), "{hits}");
    let refused = http.send(&body_only.token, ("GET", "/.messages/_search", ""));
    assert!(matches!(&refused, Outcome::Refused(text) if text.contains("on their services")), "{refused:?}");
    let search = r#"message-search {"query":"sample","last":10,"by_score":true,"since_us":null,"until_us":null,"time_max_ms":30000}"#;
    let found = |control: &mut Control, token: &str| {
        let found: Value = serde_json::from_str(&text(&control.send(Some(token), search))).expect("JSON");
        let ids = found["messages"].as_array().expect("a list").iter();
        let mut ids: Vec<String> =
            ids.map(|message| message["control_id"].as_str().expect("a text").to_owned()).collect();
        ids.sort();
        (found["total"].as_u64(), ids)
    };
    assert_eq!(found(&mut control, &part.token), (Some(1), vec!["L1".to_owned()]));
    assert_eq!(found(&mut control, &whole.token).0, Some(3));
    assert!(matches!(control.send(Some(&body_only.token), search), Outcome::Refused(_)));
    // Each has its entry, with the messages that were read.
    let page = control.must(r#"audit {"verb":"read","query":{"filter":{"actor":"part","action":"message"}}}"#);
    let entries = page["entries"].as_array().expect("a list");
    assert!(entries.iter().any(|entry| entry["action"] == "message.body" && entry["reads"]["count"] == 1), "{page}");
    drop(http);
    drop(control);
    node.stop();
}
