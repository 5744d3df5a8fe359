//! Rows, ratios and the table, from made-up runs.

use super::*;
use crate::matrix::rows::ROWS;
use workload::t4::{Config, published};

fn t4(rate: f64, real: bool) -> Outcome {
    let run = Run {
        name: "t4".to_owned(),
        durability: if real { "power-fail-safe" } else { "emulated" }.to_owned(),
        real,
        inbound: 100,
        outbound: 400,
        stored: 500,
        lost: 0,
        duplicated: 0,
        seconds: 1.0,
        inbound_per_s: rate,
        journal_writes_per_s: 2_000.0,
        journal_bytes_per_s: 1e6,
        ack_us: Quantiles { p50: 1_500.0, p99: 3_000.0, p999: 4_000.0 },
        server_cpu_us_per_inbound: 80.0,
        journal_tier: "tier".to_owned(),
        journal_device: "device".to_owned(),
        cache_mode: "dram".to_owned(),
        models: Vec::new(),
        published_inbound_per_s: published::BEST.inbound_per_s,
        complete: true,
        out_of_order: 0,
        wrong_content: 0,
        refused: 0,
        other_faults: 0,
        load_cpu_us_per_inbound: 20.0,
        storage_bytes_per_s: 0.0,
        examples: Vec::new(),
    };
    let file_system = FileSystem { kind: "tmpfs".to_owned(), source: "tmpfs".to_owned() };
    let config = Config {
        services: 2,
        messages_per_service: 50,
        interfaces: 4,
        seed: 1,
        mean_message_bytes: 2_400,
        bodies: "full",
        data: "/data".into(),
        data_kept: false,
        file_system,
        published: TESTS,
        differs: Vec::new(),
    };
    let report = Report { bench: "t4", version: "0", machine: machine(), config, runs: vec![run] };
    Outcome::Ran(Box::new(report), vec!["calibrated tier=tier".to_owned()])
}

fn machine() -> Machine {
    Machine { cpu: "a processor".to_owned(), cores: 2, memory_bytes: 0, kernel: "6".to_owned() }
}

fn matrix(refused: bool) -> MatrixReport {
    let mut measured: Vec<Measured> = ROWS.iter().map(|row| Measured::new(*row)).collect();
    for round in 0..2 {
        for (at, rate) in [(0, 500.0), (1, 800.0), (2, 900.0), (3, 1_000.0), (4, 1_200.0)] {
            // The machine is half as fast in the second round: ratios within a round do not move.
            let outcome = match at {
                3 if refused => Outcome::Refused("tier optane: cannot be modelled".to_owned()),
                _ => t4(rate / (round + 1) as f64, at == 0),
            };
            measured[at].add(round, outcome);
        }
    }
    let file_system = FileSystem { kind: "tmpfs".to_owned(), source: "tmpfs".to_owned() };
    let config = MatrixConfig {
        services: 2,
        messages_per_service: 50,
        quick: true,
        seed: 1,
        bodies: "full",
        rounds: 2,
        modelled_on: file_system.clone(),
        disk: file_system,
        load_average: Some(9.0),
        differs: Vec::new(),
    };
    MatrixReport::new(machine(), config, measured)
}

#[test]
fn ratios_are_taken_within_rounds_and_to_the_optane_ssd() {
    let report = matrix(false);
    let ratios: Vec<Option<f64>> = report.rows.iter().map(|row| row.ratio).collect();
    assert_eq!(ratios, [Some(0.5), Some(0.8), Some(0.9), Some(1.0), Some(1.2), None, None, None]);
    assert_eq!(report.rows[4].inbound_per_s, Some(900.0));
    assert_eq!(report.rows[4].inbound_per_s_range, Some((600.0, 1_200.0)));
    // (80 + 20) us for each of 1,200 and of 600 messages a second, on two processors.
    assert!((report.rows[4].busy.expect("it ran") - 0.045).abs() < 1e-9);
    let app_direct = &report.rows[4];
    let ratio = |value: Option<f64>| value.map(|value| (value * 100.0).round() / 100.0);
    assert_eq!(ratio(app_direct.published_ratio_to_test_1), Some(1.60));
    assert_eq!(ratio(app_direct.published_ratio_to_test_3), Some(1.11));
}

#[test]
fn a_row_that_did_not_run_has_no_figures_beside_the_published_ones() {
    let report = matrix(false);
    let text = report.to_text();
    let memory_mode = text.lines().find(|line| line.starts_with("Memory Mode")).expect("a row");
    let cells: Vec<&str> = memory_mode.split_whitespace().collect();
    assert_eq!(cells[2..9], ["-", "-", "-", "-", "4,684", "1.39", "0.97"]);
}

#[test]
fn a_refused_row_gives_its_reason_and_no_ratio_to_it_is_made_up() {
    let report = matrix(true);
    assert!(report.rows.iter().all(|row| row.ratio.is_none()), "there is nothing to compare with");
    let text = report.to_text();
    assert!(text.contains("journal on Optane SSD: refused: tier optane: cannot be modelled"), "{text}");
    assert!(text.contains("load average 9.0"), "{text}");
}

#[test]
fn each_run_keeps_the_keys_of_t4_and_names_its_row_and_round() {
    let json: serde_json::Value = serde_json::from_str(&matrix(false).to_json()).expect("our own JSON");
    let runs = json["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 10);
    assert_eq!(runs[9]["name"], "journal on App Direct, round 2");
    assert_eq!((&runs[9]["real"], &runs[9]["durability"]), (&false.into(), &"emulated".into()));
    // Row 3, round 1, is of published test 3; row 0 of none, so that the best stands there.
    assert_eq!(
        (&runs[6]["published_inbound_per_s"], &runs[0]["published_inbound_per_s"]),
        (&4_845.0.into(), &5_399.0.into())
    );
    assert_eq!((&json["bench"], &json["clean"]), (&"t4".into(), &true.into()));
    assert_eq!(json["rows"][3]["calibration"][0], "calibrated tier=tier");
}
