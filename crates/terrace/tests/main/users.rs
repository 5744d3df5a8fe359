//! `terrace user` against a running node: proofs of a role, and rights that are taken for a time.

use std::fs;

use crate::node::Bed;
use crate::volumes::volume;

#[test]
fn names_of_certificates_and_users_of_the_machine_are_given_shown_and_taken_away() {
    let bed = Bed::new();
    let node = bed.start();
    let password = bed.path("password").display().to_string();
    fs::write(&password, "a long password\n").expect("a file");
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    run(&["user", "add", "ann", "--password-file", &password]).succeeds("user ann is made");
    run(&["user", "add", "ben", "--no-password"]).succeeds("");
    run(&["user", "certificate", "add", "ann", "ann.example"]).succeeds("");
    run(&["user", "certificate", "add", "ben", "ann.example"]).fails("another role has the certificate's name");
    run(&["user", "uid", "add", "ann", "12345"]).succeeds("");
    assert_eq!(run(&["user", "certificate", "list", "ann"]).printed(), "ann.example\n");
    assert_eq!(run(&["user", "uid", "list", "ann"]).printed(), "12345\n");
    let shown = run(&["user", "show", "ann"]).succeeds("password");
    assert!(shown.contains("certificate ann.example") && shown.contains("uid 12345"), "{shown}");
    run(&["user", "certificate", "remove", "ann", "ann.example"]).succeeds("");
    run(&["user", "certificate", "remove", "ann", "ann.example"]).fails("does not have the certificate's name");
    run(&["user", "uid", "remove", "ann", "12345"]).succeeds("");
    assert_eq!(run(&["user", "uid", "list", "ann"]).printed(), "");
    node.stop();
}

#[test]
fn broken_glass_is_shown_with_its_reason_in_the_status_and_in_the_log() {
    let bed = Bed::new();
    let node = bed.start();
    node.send("M1");
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    let glass = |time: &str| {
        let what = ["--reason", "ticket 4711", "--for", time, "--on", "service *", "message-body", "unmasked"];
        run(&[&["user", "break-glass"], &what[..]].concat())
    };
    glass("30m").fails("needs break-glass");
    run(&["role", "grant", "break-glass", "--on", "node", "--to", "terrace_local"]).succeeds("");
    glass("13h").fails("12 hours at most");
    run(&["status"]).succeeds("");
    glass("30m").succeeds("message-body, unmasked on service *, until");
    run(&["status"]).finds("because: ticket 4711");
    run(&["role", "show", "terrace_local"]).succeeds("because: ticket 4711");
    assert!(bed.log().contains("a role has broken the glass"), "{}", bed.log());
    run(&["audit", "list", "--json"]).succeeds("\"break_glass\":\"yes\"");
    run(&["role", "revoke", "message-body", "unmasked", "--on", "service *", "--from", "terrace_local"]).succeeds("");
    run(&["status"]).succeeds("");
    node.stop();
}

#[test]
fn a_copy_on_an_export_of_the_node_itself_is_refused_before_anything_is_made() {
    let bed = Bed::new();
    let node = bed.start();
    volume(&bed, &["create", "place", "--size", "4MiB", "--place"]);
    volume(&bed, &["export", "place"]);
    let own = format!("nbd+unix:///place?socket={}", bed.data().join("nbd.sock").display());
    let create = ["volume", "create", "v", "--size", "4MiB", "--copy", &own, "--data"];
    bed.run(&create).fails("would wait for itself");
    assert!(!bed.data().join("volumes/v.json").exists());
    node.stop();
    bed.run(&create).fails("would wait for itself");
}
