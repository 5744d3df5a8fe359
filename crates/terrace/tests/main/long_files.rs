//! A node that is killed again and again while it takes a long file.

use std::collections::BTreeSet;
use std::fs;

use crate::node::{Bed, message, until};

/// Messages of the file, about 32 MB together.
const MESSAGES: usize = 8_000;

/// Messages of a window, which a kill may have taken twice: see the file service.
const WINDOW: usize = 256;

/// How often it is killed.
const KILLS: usize = 4;

fn id(number: usize) -> String {
    format!("M{number:05}")
}

/// A bed whose one service takes files, and treats duplicates so.
fn bed(duplicates: &str) -> Bed {
    let bed = Bed::new();
    fs::create_dir_all(bed.path("production/services")).expect("a folder");
    let service = "kind = \"file\"\nfolder = \"inbox\"\nevery = \"5ms\"\nsettle = \"0ms\"\n[intake]\n";
    let service = format!("{service}duplicates = \"{duplicates}\"\n");
    fs::write(bed.path("production/services/files.toml"), service).expect("a file");
    let settings = "data = \"data\"\nproduction = \"production\"\n[journal]\nsegment = \"4MiB\"\n[messages]\nretention = \"1GiB\"\n\
                    [pages]\ndevice = \"16MiB\"\nimages = \"4MiB\"\n";
    fs::write(bed.path("terrace.toml"), settings).expect("a file");
    let text: String = (0..MESSAGES).map(|n| format!("{}NTE|1||{}\r", message(&id(n)), "x".repeat(4_000))).collect();
    fs::create_dir_all(bed.path("production/inbox")).expect("a folder");
    fs::write(bed.path("production/part"), text).expect("a file");
    fs::rename(bed.path("production/part"), bed.path("production/inbox/long.hl7")).expect("it moves");
    bed
}

/// Control ids stored in the end, in their order. Nothing is left of the file but itself, where it belongs.
fn taken(bed: &Bed) -> Vec<String> {
    let (inbox, done) = (bed.path("production/inbox"), bed.path("production/inbox/done"));
    let noted = || {
        let note = fs::read_to_string(done.join(".long.hl7.taken")).unwrap_or_default();
        note.split(' ').next().and_then(|count| count.parse::<usize>().ok()).unwrap_or(0)
    };
    for kill in 1..=KILLS {
        let node = bed.start();
        until("so much of the file is taken", || noted() >= kill * MESSAGES / (KILLS + 2));
        node.kill();
        assert!(inbox.join("long.hl7").exists(), "it was killed in the midst of the file, at {}", noted());
    }
    let node = bed.start();
    until("the file is taken", || done.join("long.hl7").exists());
    node.stop();
    let names = |folder| -> BTreeSet<_> {
        let entries = fs::read_dir(folder).expect("it lists").map(|entry| entry.expect("it lists"));
        entries.filter(|entry| entry.path().is_file()).map(|entry| entry.file_name()).collect()
    };
    assert_eq!(names(inbox.clone()), BTreeSet::new());
    assert_eq!(names(inbox.join("error")), BTreeSet::new());
    assert_eq!(names(done), BTreeSet::from(["long.hl7".into()]), "the progress file is gone");
    bed.run(&["verify", "--data"]).succeeds("every row reads");
    bed.stored()
}

#[test]
fn each_message_of_a_long_file_is_taken_once_however_often_the_node_is_killed_where_duplicates_are_dropped() {
    let wanted: Vec<String> = (0..MESSAGES).map(id).collect();
    assert!(taken(&bed("drop")) == wanted, "each once, and in order");
}

#[test]
fn each_message_of_a_long_file_is_taken_and_a_window_of_them_at_most_twice_for_each_kill() {
    let stored = taken(&bed("allow"));
    let distinct: BTreeSet<&String> = stored.iter().collect();
    assert!(distinct.into_iter().cloned().eq((0..MESSAGES).map(id)), "none is missing, and none is invented");
    let again = stored.len() - MESSAGES;
    assert!(again <= KILLS * WINDOW, "{again} were taken again");
}
