//! Tests of the model of every medium with every figure of its file, and of the refusals of a calibration.

use std::sync::Arc;

use catalogue::calibrate::Options;
use catalogue::{CatalogueError, Medium, Model, Timing, VirtualClock, calibrate, media};
use device::{MemoryShelf, Shelf};

/// Media whose files lack a value that a model needs, and this value.
const WITHOUT: &[(&str, &str)] = &[
    ("azure-premium-v2", "read_latency"),
    ("azure-ultra", "read_latency"),
    ("cxl-cmm-b", "curve of sequential reads"),
    ("cxl-cz120", "curve of sequential reads"),
    ("ddr5", "curve of sequential reads"),
    ("ddr5-graviton3", "curve of sequential reads"),
    ("ebs-gp3", "read_latency"),
    ("gcp-hyperdisk-balanced", "read_latency"),
    ("gcp-hyperdisk-extreme", "read_latency"),
    ("hbm2-a64fx", "curve of sequential reads"),
    ("hbm2e-xeon-max", "curve of sequential reads"),
    ("mrdimm-8800", "curve of sequential reads"),
    ("nv-cmm-e3s", "curve of sequential reads"),
    ("nvme-cm7r", "read_latency"),
    ("nvme-micron9550", "read_latency"),
    ("nvme-micron9650", "read_latency"),
    ("nvme-pm1743", "read_latency"),
    ("nvme-pm9a3", "read_latency"),
    ("scm-p5810", "read_latency"),
];

fn memory() -> Arc<dyn Shelf> {
    Arc::new(MemoryShelf::new())
}

fn accounted() -> Timing {
    Timing::Accounted(VirtualClock::new())
}

#[test]
fn every_figure_of_every_medium_that_can_be_modelled_is_reproduced_within_10_percent() {
    let mut rows = 0;
    for medium in media() {
        if WITHOUT.iter().any(|(name, _)| *name == medium.name) {
            continue;
        }
        let mut modules: Vec<u32> = medium.curves.iter().map(|curve| curve.modules).chain([medium.modules]).collect();
        modules.sort_unstable();
        modules.dedup();
        for modules in modules {
            let model = Model::of(medium, modules).expect(&medium.name);
            let calibration =
                calibrate(&memory(), medium, &model, &accounted(), Options::default()).expect(&medium.name);
            assert!(!calibration.rows.is_empty(), "{} x {modules} shows nothing", medium.name);
            assert_eq!(calibration.good(), calibration.rows.len(), "{calibration}");
            rows += calibration.rows.len();
        }
    }
    assert!(rows > 800, "only {rows} figures were checked");
}

#[test]
fn a_medium_without_a_needed_figure_is_refused_by_its_name_and_the_figures() {
    for (name, missing) in WITHOUT {
        let medium = Medium::find(name).expect("built in");
        let error = Model::of(&medium, 0).map(|_| ()).expect_err(name);
        assert!(matches!(error, CatalogueError::Incomplete { .. }), "{error}");
        assert!(error.to_string().contains(name) && error.to_string().contains(missing), "{error}");
    }
}

#[test]
fn a_target_faster_than_the_host_is_refused_with_both_times() {
    let text = r#"
        name = "impossible"
        title = "A medium faster than any host"
        kind = "drive"
        capacity_gb = 1
        modules = 1
        figure = [
            { key = "read_latency", value = 1, unit = "ns", source = "test", confidence = "k" },
            { key = "write_latency", value = 1, unit = "ns", source = "test", confidence = "k" },
            { key = "flush_latency", value = 1, unit = "ns", source = "test", confidence = "k" },
            { key = "read_iops", value = 1e12, unit = "IOPS", source = "test", confidence = "k" },
            { key = "write_iops", value = 1e12, unit = "IOPS", source = "test", confidence = "k" },
            { key = "read_bandwidth", value = 1e6, unit = "GB/s", source = "test", confidence = "k" },
            { key = "write_bandwidth", value = 1e6, unit = "GB/s", source = "test", confidence = "k" },
        ]
        [source]
        test = "made up for this test"
    "#;
    let medium = Medium::parse("impossible.toml", text).expect("parses");
    let model = Model::of(&medium, 1).expect("complete");
    let shelf = memory();
    let options = Options { operations: 50, bytes: 1 << 20, threads: 1, seed: 1 };
    let error = calibrate(&shelf, &medium, &model, &Timing::Timed, options).expect_err("refused");
    let CatalogueError::HostTooSlow { target_ns, native_ns, .. } = &error else { panic!("{error}") };
    assert!(native_ns > target_ns, "{error}");
    assert!(error.to_string().contains("should take 1 ns"), "{error}");
    assert!(shelf.list().expect("list").is_empty(), "the device made for it is gone");
}

#[test]
fn in_real_time_no_operation_is_ever_faster_than_its_target() {
    let medium = Medium::find("sata-s4500").expect("built in");
    let model = Model::of(&medium, 1).expect("complete");
    let options = Options { operations: 40, bytes: 1 << 20, threads: 2, seed: 1 };
    let calibration = calibrate(&memory(), &medium, &model, &Timing::Timed, options).expect("slow enough");
    let timed: Vec<_> = calibration.rows.iter().filter(|row| row.timed).collect();
    assert!(timed.len() >= 4, "{calibration}");
    assert!(timed.iter().filter(|row| row.threads == 1).all(|row| row.achieved >= row.target * 0.999), "{calibration}");
    assert!(calibration.left_out.iter().any(|what| what.contains("block is 4096")), "{calibration}");
}
