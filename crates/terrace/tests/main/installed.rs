//! A node as an administrator meets it first: made by `terrace init`, checked by `terrace doctor`, with a log for programs.

use std::fs;

use serde_json::Value;

use crate::node::Bed;

/// What doctor finds, and its exit code.
fn findings(bed: &Bed) -> (Vec<Value>, Option<i32>) {
    let ran = bed.command_line(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&ran.printed()).unwrap_or_else(|error| panic!("{error}: {}", ran.warned()));
    (found["findings"].as_array().expect("a list").clone(), ran.code())
}

/// The states of a check, in their order.
fn states<'a>(found: &'a [Value], check: &str) -> Vec<&'a str> {
    found.iter().filter(|finding| finding["check"] == check).filter_map(|finding| finding["state"].as_str()).collect()
}

#[test]
fn a_node_that_init_made_has_no_problem_serves_and_logs_objects() {
    let bed = Bed::new();
    bed.configure("log_format = \"json\"\n");
    bed.command_line(&["init"]).succeeds("next:");
    let service = bed.path("production/services/inbound.toml");
    let text = fs::read_to_string(&service).expect("init wrote it");
    fs::write(&service, text.replace("127.0.0.1:2575", "127.0.0.1:0")).expect("a file");
    let (found, code) = findings(&bed);
    // The folders of tests may lie in memory, and doctor says so.
    let is_problem = |finding: &&Value| finding["state"] == "problem" && finding["check"] != "medium";
    let problems: Vec<&Value> = found.iter().filter(is_problem).collect();
    assert!(problems.is_empty() && code.is_some(), "{code:?} {problems:?}");
    assert!(found.len() > 10, "{found:?}");
    assert_eq!(states(&found, "ports"), ["fine"]);

    let node = bed.start();
    // The first message that `init` says to send.
    node.send_bytes(&fs::read_to_string(bed.path("production/admission.hl7")).expect("init wrote it"));
    let (found, _) = findings(&bed);
    assert_eq!(states(&found, "node"), ["fine"], "{found:?}");
    assert_eq!(states(&found, "data-directory-mode"), ["fine"]);
    assert_eq!(states(&found, "users"), ["warning"], "nobody but who runs the node");
    assert_eq!(states(&found, "format"), ["fine"]);
    node.stop();
    let log = bed.log();
    let objects =
        log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    assert!(objects.into_iter().any(|object| object["fields"]["message"] == "ready"), "{log}");
}

#[test]
fn doctor_names_what_keeps_a_node_from_starting() {
    let bed = Bed::new();
    bed.configure("log = \"verbose\"\n");
    let (found, code) = findings(&bed);
    assert_eq!((states(&found, "settings"), code), (vec!["problem"], Some(2)));
    bed.configure("");
    fs::create_dir(bed.data()).expect("a folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bed.data(), mode).expect("ours");
    let (found, code) = findings(&bed);
    assert_eq!((states(&found, "data-directory-mode"), code), (vec!["problem"], Some(2)), "{found:?}");
}

#[test]
fn a_node_that_cannot_start_says_why_in_an_object_where_its_log_has_these() {
    let bed = Bed::new();
    bed.configure("log_format = \"json\"\nthreads = 0\n");
    let ran = bed.command_line(&["serve"]);
    assert_eq!(ran.code(), Some(2));
    let log = ran.warned();
    let last: Value =
        serde_json::from_str(log.lines().last().expect("a line")).unwrap_or_else(|error| panic!("{error}: {log}"));
    assert_eq!((&last["level"], &last["fields"]["error"]), (&"ERROR".into(), &"threads is 1 to 256".into()), "{log}");
}

#[test]
fn a_format_of_the_log_that_is_none_is_refused_by_its_name() {
    let bed = Bed::new();
    bed.configure("log_format = \"xml\"\n");
    bed.refuses("unknown variant `xml`");
}
