//! A whole small measurement with the real server process: the shape of the report, and whether its counts agree. No figure is judged.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn measured(folder: &Path, arguments: &[&str]) -> (Value, String) {
    let (json, xml) = (folder.join("fleet.json"), folder.join("fleet.xml"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-fleet"));
    command.args([
        "--size",
        "4MiB",
        "--warm",
        "0.1",
        "--seconds",
        "0.3",
        "--cool",
        "0.1",
        "--threads",
        "2",
        "--outstanding",
        "4",
    ]);
    command.args(arguments).arg("--path").arg(folder).arg("--json").arg(&json).arg("--diskspd").arg(&xml);
    let output = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report = std::fs::read_to_string(json).expect("a report");
    assert!(std::fs::read_to_string(xml).expect("XML").ends_with("</Results>\n"));
    let left: Vec<_> = std::fs::read_dir(folder)
        .expect("there")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    assert!(left.iter().all(|name| name.starts_with("fleet.")), "{left:?} is left behind");
    (serde_json::from_str(&report).expect("JSON"), said)
}

fn count(run: &Value, key: &str) -> u64 {
    run[key].as_u64().unwrap_or_else(|| panic!("{key} of {run}"))
}

#[test]
fn a_small_run_in_process_and_over_nbd_has_all_loads_and_its_counts_agree() {
    let folder = tempfile::tempdir().expect("a folder");
    let (report, text) = measured(folder.path(), &["--seed", "7"]);
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2 * 2 * 5, "{text}");
    // On a busy machine a run of one load may be without a request that ended in its time; not all of them are.
    assert!(
        runs.iter().any(|run| count(run, "reads") > 0) && runs.iter().any(|run| count(run, "writes") > 0),
        "{text}"
    );
    for run in runs {
        let name = run["name"].as_str().expect("a name");
        let (reads, writes) = (count(run, "reads"), count(run, "writes"));
        assert_eq!(count(run, "requests"), reads + writes, "{name}");
        let by_second: u64 = run["per_second"].as_array().expect("seconds").iter().filter_map(Value::as_u64).sum();
        assert_eq!(by_second, reads + writes, "{name}");
        match count(run, "read_percent") {
            100 => assert_eq!(writes, 0, "{name}"),
            0 => assert_eq!(reads, 0, "{name}"),
            _ => {}
        }
        assert_eq!((count(run, "errors"), count(run, "mismatches")), (0, 0), "{name}");
        assert!(reads == 0 || count(run, "checked_blocks") > 0, "{name}");
        let latency = |key: &str| run["latency_us"][key].as_f64().expect("a latency");
        assert!(latency("min") <= latency("p50") && latency("p50") <= latency("p99"), "{name}");
        assert!(latency("p99") <= latency("p999") && latency("p999") <= latency("max"), "{name}");
        let is_asked_from_outside = run["client_cpu_us_per_io"].is_number();
        assert!(run["requests"] == 0 || is_asked_from_outside == (run["path"] == "nbd"), "{name}");
        let is_volume = run["device"] == "volume";
        assert_eq!((is_volume, count(run, "copies")), (run["reads_by_copy"].is_array(), if is_volume { 3 } else { 1 }));
        assert!(run["cache_hit_ratio"].is_null() && run["real"] == true, "{name}");
        assert!(text.contains(run["load"].as_str().expect("a load")), "{name}");
    }
}

#[test]
fn memory_with_caches_and_slowed_copies_says_so_and_reads_the_fast_copy() {
    let folder = tempfile::tempdir().expect("a folder");
    let cached = ["--media", "memory", "--volumes", "1", "--cache", "2MiB", "--cache-reads", "--only", "90/10"];
    let (report, text) = measured(folder.path(), &cached);
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 4, "{text}");
    for run in runs.iter().filter(|run| run["device"] == "volume") {
        // Nothing, if no read got as far as a cache.
        assert!(run["cache_hit_ratio"].as_f64().is_none_or(|hits| (0.0..=1.0).contains(&hits)), "{run}");
        assert_eq!((run["durability"].as_str(), run["real"].as_bool()), (Some("none"), Some(true)));
    }
    let slowed =
        ["--volumes", "1", "--slow-copies", "sata-s4500", "--path-kind", "in-process", "--only", "random write"];
    let (report, text) = measured(folder.path(), &slowed);
    let run = &report["runs"][0];
    assert_eq!((run["real"].as_bool(), report["runs"].as_array().map(Vec::len)), (Some(false), Some(2)));
    let floor = run["write_floor_us"].as_f64().expect("copies are slowed");
    assert!(run["write_latency_us"]["min"].as_f64().is_none_or(|fastest| fastest * 1.001 >= floor), "{run}");
    assert!(run["writes"] == 0 || text.contains("the slow copies need"), "{text}");
}
