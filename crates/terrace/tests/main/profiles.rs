//! Profiles of a node that runs: recorded, fetched and shown; across a kill; by whom; what is in them.

use std::fs;

use serde_json::Value;

use crate::node::{Bed, until};
use crate::searching::send;
use crate::volumes::{client_of, read, volume, write};

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
    assert_eq!(profile["lacks"], serde_json::json!([]), "a node has everything");
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

/// The part of the accesses of a structure that a memory misses, by size.
fn missed(profile: &Value, structure: &str) -> Vec<f64> {
    let curves = profile["curves"].as_array().expect("curves");
    let curve = curves.iter().find(|curve| curve["structure"] == structure);
    let curve = curve.unwrap_or_else(|| panic!("{structure} has no curve: {profile}"));
    let points = curve["points"].as_array().expect("points").iter();
    points.map(|point| point["miss_ratio"].as_f64().expect("a number")).collect()
}

/// The volume: 256 blocks written three times, 64 of them read ten times, all of them read. Of 1,664 accesses 256 are first uses; a memory of
/// 512 KiB finds nine of the ten rounds and the first blocks of the last one: 640.
#[test]
fn a_node_with_a_volume_and_an_index_under_load_has_both_in_its_profile() {
    let bed = bed();
    bed.configure("production = \"production\"\n[search]\ntrust = true\nlisten = \"127.0.0.1:0\"\n");
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    volume(&bed, &["create", "v", "--size", "4MiB", "--copy", "home"]);
    let node = bed.start();
    volume(&bed, &["export", "v"]);
    let device = client_of(&bed, "v");
    assert!(write(&device, 0, 1), "before the recording");
    run(&["profile", "start", "--name", "both", "--for", "1h", "--limit", "16MiB"]).succeeds("recording both");
    assert!((1..=3).all(|round| (0..256).all(|block| write(&device, block, round))));
    assert!((0..10).all(|_| (0..64).all(|block| read(&device, block) == 3)));
    assert!((0..256).all(|block| read(&device, block) == 3));
    let search = node.search().to_string();
    for number in 0..20 {
        let body: String = (0..20)
            .map(|id| format!("{{\"index\": {{\"_id\": \"{number}-{id}\"}}}}\n{{\"text\": \"word{id} SECRET\"}}\n"))
            .collect();
        let answer = send(&search, "POST", "/both/_bulk?refresh=true", &body);
        assert!(matches!(answer, Some((200, _))), "{answer:?}");
        let found = send(&search, "GET", "/both/_search?q=text:word7", "").expect("it answers").1;
        assert!(found["hits"]["total"]["value"].as_u64() > Some(number), "{found}");
    }
    until("both are in the status", || {
        let status = json(&run(&["profile", "status", "--json"]).printed());
        let structures = status["recording"]["structures"].as_array().cloned().unwrap_or_default();
        let reads = |name: &str| {
            structures.iter().any(|one| one["name"] == name && one["beside"] == true && one["reads"].as_u64() > Some(0))
        };
        reads("volumes") && reads("search segments")
    });
    run(&["profile", "status"]).succeeds("volumes, beside the cache: 896 reads, 768 writes");
    let fetched = bed.path("both.tprof");
    let out = fetched.to_str().expect("a path");
    run(&["profile", "stop", "--out", out]).succeeds("it was stopped");
    let shown = bed.command_line(&["profile", "show", out]).succeeds("volumes, beside the page cache: 1");
    assert!(shown.contains("search segments, beside the page cache"), "{shown}");
    let shown = bed.command_line(&["profile", "show", out, "--json", "--at", "64KiB,512KiB,2MiB,64MiB"]).succeeds("");
    let profile = json(&shown);
    let near = |ratio: f64, wanted: f64| (ratio - wanted).abs() < 0.05;
    let of_volume = missed(&profile, "volumes");
    assert!(
        near(of_volume[0], 1.0) && near(of_volume[1], 1024.0 / 1664.0) && near(of_volume[2], 256.0 / 1664.0),
        "{of_volume:?}"
    );
    let of_search = missed(&profile, "search segments");
    assert!(of_search.windows(2).all(|two| two[0] >= two[1]) && of_search[3] < 0.5, "{of_search:?}");
    let structures = profile["structures"].as_array().expect("structures");
    let made = structures.iter().find(|one| one["name"] == "search segments").expect("there")["made"].as_u64();
    assert!(made > Some(20), "each segment has files: {made:?}");
    for secret in ["SECRET", "word7"] {
        let bytes = fs::read(&fetched).expect("fetched");
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret} is in the profile");
    }
    node.stop();
}
