//! Generations of the production with the real binary: kept over kills, in backups, listed with and without a node, gone back to, and
//! written out.

use std::fs;

use serde_json::Value;

use crate::node::Bed;

const SERVICE: &str = "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n";

fn put(bed: &Bed, path: &str, text: &str) {
    let path = bed.path("production").join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// A production whose one rule has this name.
fn rules(bed: &Bed, name: &str) {
    put(bed, "rules/main.rules", &format!("match first\n\nrule {name} {{\n  send to out\n}}\n"));
}

fn bed() -> Bed {
    let bed = Bed::new();
    put(&bed, "services/in.toml", SERVICE);
    put(&bed, "operations/out.toml", "kind = \"file\"\nfolder = \"out\"\n");
    put(&bed, "tables/wards.csv", "ICU,Intensive care\n");
    rules(&bed, "first");
    bed.configure("production = \"production\"\n");
    bed
}

/// Number and whether it is in force, the newest first.
fn generations(bed: &Bed) -> Vec<(u64, bool)> {
    let lines = bed.run(&["production", "generations", "--json", "--data"]).succeeds("");
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        (line["number"].as_u64().expect("a number"), line["in_force"] == true)
    };
    lines.lines().map(read).collect()
}

/// The generation that decided about each stored message.
fn deciders(bed: &Bed) -> Vec<u64> {
    let lines = bed.run(&["message", "list", "--last", "0", "--json", "--data"]).succeeds("");
    let of = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["generation"].as_u64().expect("a number");
    lines.lines().map(of).collect()
}

#[test]
fn generations_and_what_messages_say_of_them_survive_kills_and_are_in_a_backup() {
    let bed = bed();
    for round in 0..4_u64 {
        let node = bed.start();
        node.send(&format!("A{round}"));
        rules(&bed, &format!("round{round}"));
        bed.run(&["production", "reload", "--data"]).succeeds("rules/main.rules changed");
        node.send(&format!("B{round}"));
        node.kill();
        // What was put in force is kept, and nothing else.
        let expected: Vec<(u64, bool)> = (1..=round + 2).rev().map(|number| (number, false)).collect();
        assert_eq!(generations(&bed), expected);
    }
    assert_eq!(deciders(&bed), [1, 2, 2, 3, 3, 4, 4, 5]);
    let id = |of: usize| {
        let lines = bed.run(&["message", "list", "--last", "0", "--json", "--data"]).succeeds("");
        let line: Value = serde_json::from_str(lines.lines().nth(of).expect("a line")).expect("JSON");
        line["id"].to_string()
    };
    let shown = bed.run(&["message", "trace", &id(1), "--data"]).succeeds("by        generation 2 of the production");
    assert!(shown.contains("rules/main.rules:3") && shown.contains("rule round0 {"), "{shown}");
    let node = bed.start();
    let backup = bed.path("backup").display().to_string();
    bed.run(&["backup", &backup, "--data"]).succeeds("");
    node.stop();
    bed.run(&["verify"]).succeeds("every row reads");
    bed.command_line(&["verify", &backup]).succeeds("every row reads");
    let restored = bed.path("restored").display().to_string();
    bed.command_line(&["restore", &backup, "--to", &restored]).succeeds("restored to");
    let diff = bed.command_line(&["production", "diff", "1", "5", "--data", &restored]);
    assert!(diff.finds("-rule first {").contains("+rule round3 {"));
}

#[test]
fn one_steps_back_to_an_earlier_generation_the_folder_stays_and_its_files_can_be_written_out() {
    let bed = bed();
    let node = bed.start();
    rules(&bed, "second");
    put(&bed, "tables/wards.csv", "ER,Emergency\n");
    let changes = bed.run(&["reload", "--data"]).succeeds("tables/wards.csv changed");
    assert!(changes.contains("this is generation 2"), "{changes}");
    bed.run(&["production", "diff", "1", "2", "--data"]).finds("+rule second {");
    bed.run(&["production", "diff", "2", "--data"]).succeeds("are the same");
    let written = bed.path("written").display().to_string();
    bed.run(&["production", "back", "1", "--write", &written, "--data"]).fails("needs the right unmasked");
    assert_eq!(generations(&bed)[0], (2, true), "what cannot be written out is not loaded");
    bed.grant_bodies();
    let back = bed.run(&["production", "back", "1", "--write", &written, "--data"]).succeeds("as generation 3");
    assert!(back.contains("rules/main.rules has another text there"), "{back}");
    assert_eq!(fs::read_to_string(bed.path("written/tables/wards.csv")).expect("written"), "ICU,Intensive care\n");
    assert_eq!(fs::read_to_string(bed.path("production/tables/wards.csv")).expect("it stays"), "ER,Emergency\n");
    bed.run(&["production", "back", "1", "--write", &written, "--data"]).fails("exists already");
    bed.run(&["production", "back", "9", "--data"]).fails("there is no generation 9");
    node.send("M1");
    assert_eq!(deciders(&bed), [3]);
    bed.run(&["audit", "list", "--json", "--data"]).succeeds("\"production.back\"");
    node.stop();
    // The folder is what a start loads, and the log says so.
    let node = bed.start();
    assert_eq!(generations(&bed)[0], (4, true));
    assert!(bed.log().contains("which went back to 1, is not in force any more"), "{}", bed.log());
    node.stop();
    bed.run(&["production", "back", "1", "--data"]).fails("no node runs");
    bed.run(&["production", "diff", "1", "disk", "--data"]).fails("known to a running node only");
}

#[test]
fn one_folder_serves_two_environments_and_a_missing_value_is_a_fault_with_its_line() {
    let bed = bed();
    put(&bed, "services/in.toml", &SERVICE.replace("127.0.0.1:0", "${address}:${port}"));
    put(&bed, "values.toml", "[default]\nport = 0\n[live]\naddress = \"127.0.0.1\"\n");
    bed.refuses("services/in.toml:2:11: there is no value `address`");
    let folder = bed.path("production").display().to_string();
    bed.command_line(&["production", "check", &folder]).fails("there is no value `address`");
    bed.command_line(&["production", "check", &folder, "--environment", "live"]).succeeds("is in order");
    bed.configure("production = \"production\"\nenvironment = \"live\"\n");
    bed.start().stop();
    bed.configure("production = \"production\"\n[values]\naddress = \"127.0.0.2\"\n");
    let node = bed.start();
    assert!(node.mllp().to_string().starts_with("127.0.0.2:"), "{}", node.mllp());
    bed.run(&["production", "diff", "1", "2", "--data"]).finds("+address = \"127.0.0.2\"");
    node.stop();
}
