//! Profiles of a node that runs: recorded, fetched and shown; across a kill; by whom; what is in them.

use std::fs;

use serde_json::Value;

use crate::node::{Bed, until};

fn bed() -> Bed {
    let bed = Bed::new();
    bed.configure("production = \"production\"\n");
    for (path, text) in [
        ("services/in.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n"),
        ("rules/main.rules", "match first\nrule all { drop \"a test\" }\n"),
    ] {
        let path = bed.path("production").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
        fs::write(path, text).expect("it is written");
    }
    bed
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_profile_is_recorded_on_a_live_node_fetched_and_shown_and_has_nothing_of_a_message() {
    let bed = bed();
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    let node = bed.start();
    run(&["profile", "stop"]).fails("nothing is being recorded");
    run(&["profile", "start", "--for", "0s", "--limit", "16MiB"]).fails("1 s to 31 days");
    run(&["profile", "start", "--name", "../x", "--limit", "16MiB"]).fails("a name of 1 to 64 characters");
    run(&["profile", "start", "--name", "day", "--for", "1h", "--limit", "16MiB"]).succeeds("recording day");
    run(&["profile", "start"]).fails("one is being recorded already");
    for number in 0..40 {
        node.send(&format!("SECRET{number:03}"));
    }
    run(&["message", "list"]).succeeds("");
    until("accesses are counted", || {
        let status = json(&run(&["profile", "status", "--json"]).printed());
        status["recording"]["accesses"].as_u64().is_some_and(|accesses| accesses > 40)
    });
    run(&["status"]).succeeds("profile day is being recorded");
    until("the curve is made", || run(&["status"]).printed().contains("by LRU; measured"));
    let status = json(&run(&["status", "--json"]).succeeds(""));
    assert_eq!(status["profile"]["name"], "day");

    let fetched = bed.path("day.tprof");
    let out = fetched.to_str().expect("a path");
    run(&["profile", "stop", "--out", out]).succeeds("it was stopped");
    run(&["profile", "fetch", "day", "--out", out]).fails("exists");
    run(&["profile", "fetch", "../day", "--out", "x"]).fails("a name of 1 to 64 characters");
    let kept = bed.data().join("profiles/day.tprof");
    assert_eq!(fs::read(&fetched).expect("fetched"), fs::read(&kept).expect("kept"));
    let shown = bed.command_line(&["profile", "show", out]).succeeds("of node");
    for part in ["messages", "journal: ", "records share a flush", "page cache, as it was", "threads that ran"] {
        assert!(shown.contains(part), "{part} is missing:\n{shown}");
    }
    let shown = bed.command_line(&["profile", "show", out, "--json"]).succeeds("");
    let profile = json(&shown);
    assert!(profile["journal"]["records"].as_u64().is_some_and(|records| records >= 40), "{profile}");
    assert_eq!(profile["lacks"], serde_json::json!(["beside_cache"]), "a node has all else");
    let bytes = fs::read(&fetched).expect("fetched");
    for secret in ["SECRET", "MSH", "hl7."] {
        let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!is_there && !shown.contains(secret), "{secret} is in the profile");
    }
    run(&["profile", "remove", "day"]).succeeds("removed");
    run(&["profile", "remove", "day"]).fails("no profile day");
    let audit = run(&["audit", "list"]).succeeds("profile.start");
    for verb in ["profile.stop", "profile.fetch", "profile.remove"] {
        assert!(audit.contains(verb), "{audit}");
    }

    // With --out it waits for the end.
    let short = bed.path("short.tprof");
    let short = short.to_str().expect("a path");
    run(&["profile", "start", "--name", "short", "--for", "1s", "--limit", "16MiB", "--out", short])
        .succeeds("short.tprof");
    bed.command_line(&["profile", "show", short]).succeeds("of node");
    node.stop();
}

#[test]
fn a_kill_leaves_what_was_saved_and_the_next_start_says_so_and_a_stop_of_the_node_ends_a_recording() {
    let bed = bed();
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    let node = bed.start();
    run(&["profile", "start", "--name", "cut", "--limit", "16MiB"]).succeeds("recording cut");
    node.send("A");
    // The first save is after ten seconds.
    let part = bed.data().join("profiles/cut.tprof.part");
    until("something was saved", || fs::metadata(&part).is_ok_and(|found| found.len() > 200));
    node.kill();
    let node = bed.start();
    until("it is recovered", || run(&["profile", "status"]).printed().contains("was interrupted"));
    let status = run(&["profile", "status"]).finds("cut was interrupted");
    assert!(status.contains("cut"), "{status}");
    let kept = bed.data().join("profiles/cut.tprof");
    bed.command_line(&["profile", "show", kept.to_str().expect("a path")])
        .succeeds("the node ended before the recording did");
    assert!(!part.exists());

    run(&["profile", "start", "--name", "stopped", "--limit", "16MiB"]).succeeds("recording stopped");
    node.send("B");
    node.stop();
    let kept = bed.data().join("profiles/stopped.tprof");
    let shown = bed.command_line(&["profile", "show", kept.to_str().expect("a path")]).succeeds("of node");
    assert!(!shown.contains("ended before the recording"), "{shown}");
}
