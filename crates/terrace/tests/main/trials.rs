//! `terrace transform try` and `terrace rules try` beside a node, without one, and by who may not read what is tried.

use std::fs;

use crate::node::Bed;

const SERVICE: &str = "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n";
const OPERATION: &str = "kind = \"file\"\nfolder = \"out\"\n";
const RULES: &str = "match first\nrule admissions when MSH-9.1 = 'ADT' { send to lab using to-lab }\n";
const TRANSFORM: &str = "set MSH-10 = control_id()\nset MSH-7 = now('yyyyMMddHHmmss')\nset MSH-5 = 'LAB'\n";

fn write(bed: &Bed, path: &str, text: &str) {
    let path = bed.path("production").join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
    fs::write(path, text).expect("it is written");
}

/// A bed with a production whose one rule sends admissions through a transform.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.configure("production = \"production\"\n");
    for (path, text) in [
        ("services/in.toml", SERVICE),
        ("operations/lab.toml", OPERATION),
        ("rules/main.rules", RULES),
        ("transforms/to-lab.hl7t", TRANSFORM),
    ] {
        write(&bed, path, text);
    }
    bed
}

#[test]
fn a_changed_production_is_tried_on_stored_messages_and_nothing_is_sent_or_stored() {
    let bed = bed();
    let node = bed.start();
    ["A1", "A2", "A3"].iter().for_each(|id| node.send(id));
    let transform =
        |production: &str| bed.run(&["transform", "try", "to-lab", "--production", production, "-n", "0", "--data"]);
    transform("production").fails("message-body is not allowed");
    bed.run(&["role", "grant", "message-body", "--on", "service *", "--to", "terrace_local", "--data"]).succeeds("");
    transform("production").fails("masked");
    bed.grant_bodies();
    transform("production").succeeds("3 same, 0 changed, 0 errored");
    write(&bed, "transforms/to-lab.hl7t", &format!("{TRANSFORM}set PID-5.1 = upper(PID-5.2)\n"));
    let told = transform("production").succeeds("0 same, 3 changed, 0 errored; nothing was sent or stored");
    assert!(told.contains("      - SAMPLE^ANN\n      + ANN^ANN\n"), "{told}");
    write(&bed, "transforms/to-lab.hl7t", &format!("{TRANSFORM}fail 'not this one'\n"));
    let told = transform("production").finds("0 same, 0 changed, 3 errored");
    assert!(told.contains("to-lab.hl7t:4"), "{told}");
    write(&bed, "rules/main.rules", "match first\nrule none when MSH-9.1 = 'ADT' { drop 'no' }\n");
    let rules = || bed.run(&["rules", "try", "main", "--json", "-n", "2", "--data"]);
    let told = rules().succeeds("\"dropped\"");
    assert_eq!(told.lines().filter(|line| line.contains("\"result\":\"changed\"")).count(), 2, "{told}");
    assert_eq!(bed.stored(), ["A1", "A2", "A3"]);
    node.stop();
    assert_eq!(rules().succeeds("changed").lines().count(), 2, "the same without a node");
    assert_eq!(fs::read_dir(bed.path("production/out")).map_or(0, Iterator::count), 3, "each was sent once");
}

#[test]
fn messages_of_a_file_are_tried_without_a_node() {
    let bed = bed();
    fs::write(bed.path("m.hl7"), crate::node::message("F1")).expect("a file");
    let transform =
        |more: &[&str]| bed.command_line(&[&["transform", "try", "to-lab", "--file", "m.hl7"], more].concat());
    let told = transform(&[]).succeeds("1 tried");
    assert!(told.contains("    MSH-5\n      - HUB\n      + LAB\n"), "{told}");
    transform(&["--service", "in"]).succeeds("output to lab, transform to-lab");
    transform(&["--service", "out"]).fails("there are: in");
    bed.command_line(&["rules", "try", "main", "--file", "m.hl7"]).succeeds("routed: main: admissions");
    bed.command_line(&["rules", "try", "other", "--file", "m.hl7"]).fails("there are: main");
    bed.command_line(&["transform", "try", "to-lap", "--file", "m.hl7"]).fails("there are: to-lab");
    write(&bed, "transforms/to-lab.hl7t", "set MSH-5 = uper('x')\n");
    transform(&[]).fails("to-lab.hl7t:1");
}
