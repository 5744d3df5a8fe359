//! Reports of made-up figures: the keys of the contract, and what counts as wrong.

use super::*;
use crate::media::Base;

/// A report of two runs with made-up figures.
pub(crate) fn example() -> FleetReport {
    let load = Load::all(2, 16)[1];
    let mut tally = Tally::of_seconds(5);
    for at in 0..5_000u64 {
        tally.count(at % 10 > 0, 4096, 5_000 + at * 10, (at / 1_000) as usize);
    }
    tally.checked = 4_500;
    let tallies = [vec![tally.clone(), tally.clone()], vec![tally.clone(), tally]];
    let count = VolumeCounts { reads: vec![990, 10, 0], in_sync: 3, cache_hits: 900, cache_misses: 100 };
    let measured = |side, way| Measured {
        way,
        side,
        durability: "emulated".to_owned(),
        real: true,
        volumes: 2,
        copies: if side == Side::Volume { 3 } else { 1 },
        has_cache: side == Side::Volume,
        seconds: 5.0,
        tallies: &tallies,
        server_cpu_ns: 8e7,
        client_cpu_ns: (way == Way::Nbd).then_some(6e7),
        counts: vec![count.clone(), count.clone()],
        processors: vec![ProcessorUse { number: 0, user: 60.0, kernel: 20.0, idle: 20.0 }; 2],
        write_floor_ns: None,
    };
    let mut volume = FleetRun::new(&load, &measured(Side::Volume, Way::Nbd));
    let bare = FleetRun::new(&load, &measured(Side::Bare, Way::InProcess));
    volume.ratio_to_bare = Some(volume.iops / bare.iops);
    let layout = Layout {
        folder: "/dev/shm".into(),
        base: Base::Pmem,
        volumes: 2,
        copies: 3,
        bytes: 64 << 20,
        cache: None,
        capacity_model: None,
        cache_model: None,
        slow_copies: None,
        prefer: None,
    };
    let config = FleetConfig {
        media: layout.in_words(),
        file_system: None,
        layout,
        threads: 2,
        outstanding: 16,
        warm_seconds: 1.0,
        seconds: 5.0,
        cool_seconds: 0.5,
        seed: 1,
        last_cache_bytes: Some(32 << 20),
        working_set_bytes: 128 << 20,
        load_average: Some(0.5),
    };
    FleetReport::new(Machine::here(), config, vec![volume, bare])
}

#[test]
fn a_run_has_the_keys_of_the_contract_and_its_counts_agree() {
    let report: serde_json::Value = serde_json::from_str(&example().to_json()).expect("JSON");
    assert_eq!(report["bench"], "fleet");
    let run = &report["runs"][0];
    for key in [
        "name",
        "durability",
        "real",
        "volumes",
        "copies",
        "block_bytes",
        "read_percent",
        "queue_depth",
        "iops",
        "bytes_per_s",
        "server_cpu_us_per_io",
        "path",
        "cache_hit_ratio",
    ] {
        assert!(!run[key].is_null(), "{key}");
    }
    for key in ["p50", "p99", "p999"] {
        assert!(run["latency_us"][key].as_f64().is_some_and(|us| us > 0.0), "{key}");
    }
    assert_eq!((run["path"].as_str(), report["runs"][1]["path"].as_str()), (Some("nbd"), Some("in-process")));
    assert_eq!(run["requests"], 20_000);
    assert_eq!(run["reads"].as_u64().zip(run["writes"].as_u64()), Some((18_000, 2_000)));
    assert_eq!(run["iops"], 4_000.0);
    assert_eq!(run["bytes_per_s"], 4_000.0 * 4096.0);
    assert_eq!((run["server_cpu_us_per_io"].as_f64(), run["client_cpu_us_per_io"].as_f64()), (Some(4.0), Some(3.0)));
    assert_eq!(run["cache_hit_ratio"], 0.9);
    assert_eq!((run["local_read_share"].as_f64(), run["steady"].as_bool()), (Some(0.99), Some(true)));
    assert_eq!(run["reads_by_copy"], serde_json::json!([1980, 20, 0]));
    assert!(report["runs"][1]["cache_hit_ratio"].is_null() && report["runs"][1]["reads_by_copy"].is_null());
}

#[test]
fn errors_wrong_blocks_missing_copies_and_too_early_writes_are_wrong() {
    let good = example().runs.remove(0);
    assert_eq!(good.wrong(), None);
    let early = good.write_latency_us.expect("writes").min * 2.0;
    for (run, what) in [
        (FleetRun { errors: 1, ..good.clone() }, "1 errors"),
        (FleetRun { mismatches: 2, ..good.clone() }, "2 wrong blocks"),
        (FleetRun { copies_in_sync: Some(2), ..good.clone() }, "fewer than 3 copies"),
        (FleetRun { write_floor_us: Some(early), ..good.clone() }, "before the slowest copy"),
    ] {
        assert!(run.wrong().is_some_and(|wrong| wrong.contains(what)), "{what}");
    }
    assert_eq!(FleetRun { write_floor_us: Some(early / 4.0), ..good }.wrong(), None);
    let mut report = example();
    assert!(report.is_clean());
    report.config.layout.slow_copies = Some("sata-s4500".to_owned());
    report.runs[0].read_percent = 100;
    assert!(report.is_clean(), "99 % is enough");
    report.runs[0].local_read_share = Some(0.98);
    assert!(report.wrong()[0].contains("98.00 % of the reads"), "{:?}", report.wrong());
    report.config.layout.prefer = Some(1);
    assert!(report.is_clean(), "another copy was asked for");
    report.runs[1].errors = 1;
    assert!(!report.is_clean());
}
