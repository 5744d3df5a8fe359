//! Backups beside what they were not made of: the journal of a node that was restored since, the envelope of other keys, another backup's
//! files. Nothing is mixed, and nothing that only one file can open is lost.

use std::fs;

use crate::encrypted::encrypted;
use crate::maintenance::text;
use crate::node::{Bed, Node};

fn send(node: &Node<'_>, name: &str, count: usize) {
    (0..count).for_each(|number| node.send(&format!("{name}{number}")));
}

fn backup(bed: &Bed, name: &str) -> String {
    let folder = text(&bed.path(name));
    bed.run(&["backup", &folder, "--data"]).succeeds("earliest moment");
    folder
}

#[test]
fn a_backup_of_a_history_that_was_given_up_is_not_mixed_with_that_of_the_node() {
    let bed = Bed::new();
    bed.configure("");
    let node = bed.start();
    send(&node, "A", 10);
    let early = backup(&bed, "early");
    send(&node, "LOST", 30);
    let late = backup(&bed, "late");
    node.stop();
    // The node is restored to the early one, and goes on beyond the place where the late one ends.
    let (data, before) = (text(&bed.data()), bed.path("before"));
    fs::rename(bed.data(), &before).expect("it moves");
    bed.command_line(&["restore", &early, "--to", &data]).succeeds("restored to");
    let node = bed.start();
    send(&node, "NEW", 90);
    node.stop();
    let to = |name: &str| text(&bed.path(name));
    let mixed = bed.command_line(&["restore", &late, "--journal", &data, "--to", &to("mixed")]);
    mixed.finds("the kept journal does not go on behind this backup");
    assert!(!bed.path("mixed").exists(), "nothing is made of it");
    bed.run(&["repair", "--backup", &late]).succeeds("the journal does not go on where the backup ends");
    // What belongs together does.
    bed.run(&["repair", "--backup", &early]).succeeds("is the state of now");
    for (folder, journal, name) in [(&early, &data, "NEW"), (&late, &text(&before), "LOST")] {
        bed.command_line(&["restore", folder, "--journal", journal, "--to", &to(name)]).succeeds("restored to");
        let list = bed.command_line(&["message", "list", "--last", "0", "--json", "--data", &to(name)]).succeeds(name);
        let other = if name == "NEW" { "LOST" } else { "NEW" };
        assert!(!list.contains(other), "{list}");
    }
}

#[test]
fn an_envelope_of_other_keys_in_the_place_is_refused_and_stays_what_it_is() {
    let bed = encrypted();
    let node = bed.start();
    send(&node, "A", 3);
    let first = backup(&bed, "first");
    let envelope = bed.data().join("encryption.envelope");
    let place = bed.path("place");
    fs::create_dir(&place).expect("a folder");
    let copy = place.join("encryption.envelope");
    fs::copy(&envelope, &copy).expect("it is copied");
    bed.run(&["encryption", "rotate-data-key", "--data"]).succeeds("data key 2 from now on");
    let kept = fs::read(&copy).expect("it reads");
    bed.run(&["backup", &text(&place), "--data"]).fails("encryption.envelope is there already");
    assert!(fs::read(&copy).expect("it reads") == kept && !place.join("pages-0000").exists(), "nothing was changed");
    // That of now is no obstacle, and what is made beside it can be read.
    fs::copy(&envelope, &copy).expect("it is copied");
    bed.run(&["backup", &text(&place), "--data"]).succeeds("earliest moment");
    bed.command_line(&["verify", &text(&place)]).succeeds("every row reads");
    node.stop();

    let aside = bed.path("aside");
    fs::create_dir(&aside).expect("a folder");
    for entry in fs::read_dir(bed.data()).expect("it lists") {
        let path = entry.expect("it lists").path();
        let name = path.file_name().expect("a name").to_owned();
        if name != "encryption.envelope" {
            fs::rename(&path, aside.join(name)).expect("it moves");
        }
    }
    let kept = fs::read(&envelope).expect("it reads");
    let refused = bed.command_line(&["restore", &first, "--to", &text(&bed.data())]);
    refused.fails("encryption.envelope is there already");
    assert!(fs::read(&envelope).expect("it reads") == kept, "it alone has data key 2");
    fs::rename(&envelope, aside.join("encryption.envelope")).expect("it moves");
    bed.command_line(&["restore", &first, "--to", &text(&bed.data())]).succeeds("restored to");
    bed.command_line(&["verify", &text(&aside)]).succeeds("every row reads");
}

#[test]
fn two_backups_that_were_copied_over_each_other_are_found_by_verify_as_by_restore() {
    let bed = Bed::new();
    bed.configure("");
    let node = bed.start();
    send(&node, "A", 5);
    let one = backup(&bed, "one");
    send(&node, "B", 5);
    // It runs a checkpoint.
    bed.run(&["verify"]).succeeds("a running node");
    let two = backup(&bed, "two");
    node.stop();
    let file = |folder: &str, name: &str| std::path::Path::new(folder).join(name);
    // The newer one was copied over the older one, and that was interrupted: pages are of the old one.
    let mixed = text(&bed.path("mixed"));
    fs::create_dir(&mixed).expect("a folder");
    for entry in fs::read_dir(&two).expect("it lists") {
        let name = entry.expect("it lists").file_name().into_string().expect("a name");
        let from = if name.starts_with("pages-") { &one } else { &two };
        fs::copy(file(from, &name), file(&mixed, &name)).expect("it is copied");
    }
    let to = text(&bed.path("to"));
    bed.command_line(&["restore", &mixed, "--to", &to]).finds("do not match its manifest");
    bed.command_line(&["verify", &mixed]).finds("do not match its manifest");
    for whole in [&one, &two] {
        bed.command_line(&["verify", whole]).succeeds("every row reads");
    }
}
