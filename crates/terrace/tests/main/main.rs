//! The real binary with its structures on tiers: started, commanded, killed, moved, refused.
//!
//! Each test has a folder of its own, a node on a port that the system chose, and reads what the command line prints, as a
//! person would.

#[cfg(all(feature = "search", feature = "sql"))]
mod access;
mod address_rules;
mod alerts;
mod console;
mod crowd;
mod encrypted;
mod generations;
mod ground;
mod installed;
mod long_files;
mod maintenance;
mod node;
#[cfg(debug_assertions)]
mod panics;
mod profiles;
mod recovered;
#[cfg(feature = "search")]
mod searching;
mod secrets;
mod sizes;
mod stopping;
mod tails;
mod transfer;
mod trials;
mod users;
mod verbs;
mod volumes;
mod volumes_limits;
mod volumes_media;
mod volumes_rights;
mod volumes_thin;
mod volumes_tls;

use std::fs;
use std::path::Path;

use crate::node::{Bed, until};

/// An invented medium, so much slower than any host that a busy one can still pretend to be it: 20 us to read, 10 MB/s.
const SLOW: &str = r#"name = "slow-pmem"
title = "Invented persistent memory of a test"
kind = "pmem"
capacity_gb = 16
modules = 1
figure = [
  { key = "read_latency_random", value = 20000, unit = "ns", source = "test", confidence = "k" },
  { key = "read_latency_sequential", value = 20000, unit = "ns", source = "test", confidence = "k" },
]
curve = [
CURVES]

[source]
test = "invented"
"#;

/// Persistent memory emulated on an ordinary mapping, slowed to the figures of a medium of one's own.
fn modelled_pmem(bed: &Bed) -> String {
    let ways = ["", "store = \"none\", ", "store = \"nt\", ", "store = \"clwb\", "];
    let curve = |(way, pattern): (&str, &str)| {
        let operation = if way.is_empty() { "read" } else { "write" };
        format!(
            "  {{ operation = \"{operation}\", pattern = \"{pattern}\", {way}bytes = 256, modules = 1, threads = [1], \
             gb_per_s = [0.01], source = \"test\", confidence = \"k\" }},\n"
        )
    };
    let all = ways.iter().flat_map(|way| [(*way, "sequential"), (*way, "random")]);
    let curves: String = all.map(curve).collect();
    fs::create_dir_all(bed.path("media")).expect("a folder");
    fs::write(bed.path("media/slow-pmem.toml"), SLOW.replace("CURVES", &curves)).expect("a file");
    format!(
        "mode = \"app-direct\"\nmedia = \"media\"\n[tiers.pm]\nkind = \"pmem\"\npath = \"{}\"\nbytes = \"8 GiB\"\n\
         model = \"slow-pmem\"\nabsent = \"emulate\"\n",
        bed.path("pm").display()
    )
}

fn file_tier(name: &str, folder: &Path) -> String {
    format!("[tiers.{name}]\nkind = \"file\"\npath = \"{}\"\n[placement]\njournal = \"{name}\"\n", folder.display())
}

#[test]
fn a_journal_on_modelled_persistent_memory_is_told_as_such_and_survives_a_kill() {
    let bed = Bed::new();
    bed.configure(&modelled_pmem(&bed));
    let node = bed.start();
    node.send("M1");
    let status = node.status();
    let journal = &status["journal"];
    assert_eq!(journal["tier"], "pm");
    assert_eq!(journal["durability"], "emulated");
    assert_eq!(journal["real"], false);
    assert!(journal["device"].as_str().expect("a text").starts_with("modelled 1 x slow-pmem on "), "{journal}");
    let log = bed.log();
    for said in [
        "structure=journal tier=\"pm\"",
        "structure=cache tier=\"dram\"",
        "medium=\"modelled\"",
        "calibrated tier=\"pm\"",
    ] {
        assert!(log.contains(said), "`{said}` is not in the log:\n{log}");
    }
    node.stop();
    assert!(bed.log().contains("modelled traffic tier=\"pm\""), "{}", bed.log());
    assert_eq!(bed.stored(), ["M1"]);
    assert!(bed.path("pm/journal").is_dir() && !bed.data().join("journal").exists());

    let node = bed.start();
    node.send("M2");
    node.kill();
    assert_eq!(bed.stored(), ["M1", "M2"], "what was acknowledged is there after a kill");
    bed.run(&["verify", "--data"]).succeeds("every row reads");
    bed.run(&["inspect", "journal"]).succeeds("records");

    let node = bed.start();
    node.send("M3");
    node.stop();
    assert_eq!(bed.stored(), ["M1", "M2", "M3"]);
}

#[test]
fn modelled_far_memory_is_told_as_such_by_the_log_the_status_and_its_json() {
    let near = "[tiers.dram]\nkind = \"memory\"\nbytes = \"32 MiB\"\n";
    let sizes = "[placement]\nfar_bytes = \"128 MiB\"\n";
    for (mode, journal) in [("memory", "home"), ("dual", "pm")] {
        let bed = Bed::new();
        let tiers = modelled_pmem(&bed).replace("mode = \"app-direct\"", &format!("mode = \"{mode}\""));
        bed.configure(&format!("{tiers}{near}{sizes}"));
        let node = bed.start();
        node.send(mode);
        let status = node.status();
        let far = &status["store"]["far"];
        assert_eq!((&far["tier"], &far["real"], &far["durability"]), (&"pm".into(), &false.into(), &"none".into()));
        assert_eq!(far["device"], "modelled 1 x slow-pmem on memory");
        let cache_mode = if mode == "dual" { "dual" } else { "memory-mode" };
        assert_eq!(
            (&status["store"]["cache_mode"], &status["store"]["cache_policy"]),
            (&cache_mode.into(), &"direct-mapped".into())
        );
        let model = &status["models"][0];
        assert_eq!(
            (&model["tier"], &model["medium"], &model["modules"]),
            (&"pm".into(), &"slow-pmem".into(), &1.into())
        );
        assert!(model["late"].is_u64() && model["accesses"].is_u64(), "{model}");
        let text = bed.run(&["status", "--data"]).succeeds("pm: modelled 1 x slow-pmem on memory, modelled");
        assert!(text.contains("late on tier pm") && text.contains("(modelled 1 x slow-pmem)"), "{text}");
        let placed =
            "structure=far memory tier=\"pm\" at=\"memory\" because=\"mode\" durability=none medium=\"modelled\"";
        until(placed, || bed.log().contains(placed));
        assert_eq!(status["journal"]["tier"], journal);
        node.stop();
    }
}

#[test]
fn memory_that_cannot_be_had_is_refused_with_its_tier_and_its_size() {
    let bed = Bed::new();
    bed.configure("[tiers.dram]\nkind = \"memory\"\nnode = 0\nbytes = \"2 TiB\"\n[placement]\ncache = \"dram\"\n");
    bed.refuses("near memory of the page cache on tier dram");
    bed.refuses("of NUMA node 0 takes ");
    bed.configure("cache = \"1000000GiB\"\n");
    bed.refuses("the page cache (`cache`) has at most");
}

#[test]
fn control_characters_of_a_message_never_reach_the_terminal() {
    let bed = Bed::new();
    let node = bed.start();
    // Sets the title, clears the screen, turns the text around, hides: in MSH-10, and so in all that shows it.
    let id = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}x\u{200b}\u{7f}";
    node.send(id);
    let is_clean =
        |text: &str| !text.chars().any(|c| (c.is_control() && c != '\n') || matches!(c, '\u{202e}' | '\u{200b}'));
    let list = bed.run(&["message", "list", "--data"]).succeeds("\\u001b]0;owned\\u0007");
    let json = bed.run(&["message", "list", "--json", "--data"]).succeeds("");
    let number = serde_json::from_str::<serde_json::Value>(json.trim()).expect("JSON")["id"].to_string();
    bed.grant_bodies();
    let shown = bed.run(&["message", "show", &number, "--data"]).succeeds("\\u202ex");
    let trace = bed.run(&["message", "trace", &number, "--data"]).succeeds("");
    let inspected = bed.run(&["inspect", "journal", "--payload", "4096"]).succeeds("");
    for text in [&list, &json, &shown, &trace, &inspected] {
        assert!(is_clean(text), "{text:?}");
    }
    assert_eq!(bed.stored(), [id], "JSON means what was sent");
    let raw = bed.run(&["message", "show", &number, "--raw", "--data"]).succeeds("");
    assert!(raw.contains(id), "to a file or a program the bytes go as they are");
    node.stop();
    assert!(is_clean(&bed.log()), "{:?}", bed.log());
}

#[test]
fn a_journal_cannot_be_left_behind_by_a_changed_setting_and_can_be_moved() {
    let bed = Bed::new();
    let node = bed.start();
    node.send("M1");
    node.stop();
    assert!(!bed.data().join("placement.json").exists(), "without tiers nothing is new in the data directory");

    bed.configure(&file_tier("nvme", &bed.path("nvme")));
    bed.refuses("move all files of the old place to the new one");
    assert_eq!(bed.stored(), ["M1"], "and nothing was changed");

    fs::create_dir_all(bed.path("nvme")).expect("a folder");
    fs::rename(bed.data().join("journal"), bed.path("nvme/journal")).expect("it moves");
    let node = bed.start();
    node.send("M2");
    node.stop();
    assert_eq!(bed.stored(), ["M1", "M2"]);

    fs::rename(bed.path("nvme"), bed.path("away")).expect("as if it were not mounted");
    bed.refuses("Is its medium mounted?");
    bed.run(&["message", "list", "--data"]).fails("Is its medium mounted?");
    assert!(!bed.path("nvme/journal").exists(), "no empty journal takes its place");
}

#[test]
fn a_journal_moves_from_a_drive_to_persistent_memory_and_not_back() {
    let bed = Bed::new();
    let (pmem, home) = (bed.path("pm/journal"), bed.data().join("journal"));
    let emulated = "[tiers.pm]\nkind = \"pmem\"\npath = \"pm\"\nabsent = \"emulate\"\n[placement]\njournal = \"pm\"\n";
    let node = bed.start();
    node.send("M1");
    node.kill();
    fs::create_dir_all(bed.path("pm")).expect("a folder");
    fs::rename(&home, &pmem).expect("it moves");
    bed.configure(emulated);
    let node = bed.start();
    node.send("M2");
    node.stop();
    assert_eq!(bed.stored(), ["M1", "M2"]);

    // A journal that was begun on persistent memory is written in units that a drive does not accept.
    for folder in [&pmem, &bed.data().join("pages"), &bed.data().join("images")] {
        fs::remove_dir_all(folder).expect("it goes");
    }
    fs::remove_file(bed.data().join("placement.json")).expect("it goes");
    let node = bed.start();
    node.send("M3");
    node.stop();
    fs::rename(&pmem, &home).expect("it moves");
    bed.configure("");
    bed.refuses("move the journal back to persistent memory");
    assert_eq!(bed.stored(), ["M3"], "and it is read where it lies");
    fs::rename(&home, &pmem).expect("it moves");
    bed.configure(emulated);
    let node = bed.start();
    node.send("M4");
    node.stop();
    assert_eq!(bed.stored(), ["M3", "M4"]);
}

#[test]
fn a_journal_in_memory_must_be_asked_for_and_says_what_it_is_worth() {
    let bed = Bed::new();
    bed.configure("[placement]\njournal = \"dram\"\n");
    bed.refuses("allow_volatile = true");
    bed.configure("[placement]\njournal = \"dram\"\nallow_volatile = true\n");
    let node = bed.start();
    node.send("M1");
    let status = node.status();
    assert_eq!((&status["journal"]["durability"], &status["journal"]["real"]), (&"none".into(), &true.into()));
    bed.run(&["message", "list", "--data"]).succeeds("M1");
    node.stop();
    bed.run(&["message", "list", "--data"]).fails("lies in memory (tier dram)");
    bed.configure("");
    let node = bed.start();
    node.stop();
    assert_eq!(bed.stored(), [""; 0], "what lay in memory is gone, and hinders nothing");
}

#[test]
fn a_wrong_mode_ends_the_start_with_the_reason_before_anything_is_made() {
    let bed = Bed::new();
    let tiers = "[tiers.near]\nkind = \"memory\"\nbytes = \"4 GiB\"\n[tiers.far]\nkind = \"pmem\"\npath = \"far\"\nbytes = \"64 GiB\"\n";
    bed.configure(&format!("mode = \"memory\"\n{tiers}"));
    bed.refuses("is 1:16.0, beyond the limit 1:8");
    bed.configure("mode = \"dual\"\n");
    bed.refuses("mode dual places the far memory on persistent memory, and no tier is");
    bed.configure("[tiers.far]\nkind = \"nbd\"\n");
    bed.refuses("needs `uri`");
    // An ordinary file system is not persistent memory, and the node does not treat it as such unless it is set so.
    bed.configure(&modelled_pmem(&bed).replace("absent = \"emulate\"\n", ""));
    bed.refuses("MAP_SYNC");
    assert!(!bed.path("far").exists());
}

#[test]
fn files_of_services_lie_on_their_tier() {
    let bed = Bed::new();
    fs::create_dir_all(bed.path("production/services")).expect("a folder");
    let service = "kind = \"file\"\nfolder = \"inbox\"\nevery = \"10ms\"\nsettle = \"0ms\"\n";
    fs::write(bed.path("production/services/files.toml"), service).expect("a file");
    let tier = format!("[tiers.nvme]\nkind = \"file\"\npath = \"{}\"\n", bed.path("nvme").display());
    bed.configure(&format!("production = \"production\"\n{tier}[placement]\nfiles = \"nvme\"\n"));
    let inbox = bed.path("nvme/files/inbox");
    fs::create_dir_all(&inbox).expect("a folder");
    fs::write(inbox.join("a.hl7"), node::message("M1")).expect("a file");
    let node = bed.start();
    node::until("the file is taken", || inbox.join("done/a.hl7").exists());
    node.stop();
    assert_eq!(bed.stored(), ["M1"]);
    let wrong = format!("production = \"production\"\n{tier}[placement.files_of]\nfiels = \"nvme\"\n");
    bed.configure(&wrong);
    bed.refuses("`fiels`");
}

#[test]
fn a_command_whose_reader_has_gone_ends_in_silence() {
    for args in [&["tier", "list"][..], &["production", "check", "production"]] {
        let bed = Bed::new();
        bed.command_line(&["production", "new", "production"]).succeeds("");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_terrace"));
        let child = command.args(args).current_dir(bed.path("")).stdout(writer).stderr(std::process::Stdio::piped());
        let output = child.spawn().and_then(std::process::Child::wait_with_output).expect("it runs");
        assert!(output.status.success(), "{args:?}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}

#[test]
fn a_command_whose_output_cannot_be_written_fails_and_says_so_whatever_it_had_to_say() {
    let bed = Bed::new();
    bed.command_line(&["production", "new", "made"]).succeeds("");
    bed.configure("");
    let node = bed.start();
    bed.grant_bodies();
    node.send("M1");
    let data = bed.data().display().to_string();
    let data = data.as_str();
    let run = |args: &[&str], (out, error): (&str, &str)| {
        let open = |path: &str| fs::File::options().write(true).open(path).expect("a device");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_terrace"));
        command.args(args).current_dir(bed.path("")).stdout(open(out));
        match error {
            "" => command.stderr(std::process::Stdio::piped()),
            path => command.stderr(open(path)),
        };
        command.spawn().and_then(std::process::Child::wait_with_output).expect("it runs")
    };
    let line = bed.run(&["message", "list", "--json", "--data"]).succeeds("M1");
    let id = serde_json::from_str::<serde_json::Value>(line.trim()).expect("JSON")["id"].to_string();
    let id = id.as_str();
    // By lines, as one text, as a stream, and a body without an end of a line.
    for args in [
        &["completions", "bash"][..],
        &["production", "check", "made"],
        &["message", "count", "--data", data],
        &["message", "list", "--data", data],
        &["audit", "export", "--data", data],
        &["message", "show", id, "--data", data],
        &["message", "show", id, "--raw", "--data", data],
    ] {
        let output = run(args, ("/dev/full", ""));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("standard output cannot be written: No space left"), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
        assert!(run(args, ("/dev/null", "/dev/full")).status.success(), "{args:?}");
    }
    let absent = ["message", "show", "1", "--data", data];
    assert_eq!(run(&absent, ("/dev/null", "/dev/full")).status.code(), Some(2), "an error that nobody can read");
    node.stop();
}
