//! What a plan holds mixes against beside their times: wear, images on modules, what is beside the page cache, words, and what a listing leaves
//! unnamed.

use std::path::Path;

use super::mixes::{JournalPart, card_steps};
use super::report::MixReport;
use super::tests::{SERVER, hour, price, reads_within, refused, report, request};
use super::{Commits, PlanReport, PlanRequest, Planning, ProfileSource, Server, Target};
use crate::generate::{Shape, generate};
use crate::hash::Salt;
use crate::profile::{Access, Lack, NodeFigures, NodeUse, Origin, Recorder, RecorderOptions, WriteBacks};

const OFFER: &str = "offer = ['cxl-expander', 'nvme-p4510']";
const MODULES: &str = "sockets = 2\ncores = 32\ndimm_slots = 12\nchannels = 6\nbays = 8\ndram = 'ddr4-2666'\ndimms = ['4GiB']\n\
                       reserve = '1GiB'\nhave = ['12x4GiB', 'nvme-p4510']\noffer = ['dcpmm100-128g', 'nvme-p4510']\n";
const MIB: u64 = 1 << 20;

/// H8: a word that names nothing is a mistake; the begin of a name is a name.
#[test]
fn words_that_name_no_medium_are_refused() {
    let with = |word: &str| PlanRequest {
        without: vec![word.into()],
        ..request(hour(Shape::Zipf { skew: 0.6 }), SERVER, &[], Target::default())
    };
    assert!(refused(with("cxl-expnader")).contains("names no medium"));
    for word in ["dcpmm", "pmem200", "cxl", "discontinued", "optane-p5800x"] {
        assert!(Planning::of(with(word)).is_ok(), "{word}");
    }
    let offer = SERVER.replace("'nvme-p4510'", "'nvme-p4510', 'nvme-p451O'");
    assert!(refused(request(hour(Shape::Loop), &offer, &[], Target::default())).contains("nvme-p451O"));
}

/// An hour of a node: objects of 18 MiB in the page cache; of its write-backs so many bytes are images; blocks of volumes beside it.
fn node(images: u64, blocks: u64) -> ProfileSource {
    let folder = tempfile::tempdir().expect("a folder");
    let options = RecorderOptions {
        beside: vec![1],
        part: Some(folder.path().join("part")),
        ..RecorderOptions::new(Salt::of_seed(3), &["object", "volumes"], 8192, folder.path())
    };
    let mut recorder = Recorder::new(options).expect("options");
    let accesses = 60_000u64;
    for (number, key) in (0..).zip(generate(Shape::Zipf { skew: 0.6 }, 1500, accesses, 7)) {
        let time_us = number * 3_600_000_000 / accesses;
        let access = Access { time_us, key, bytes: 18 << 20, structure: 0, is_write: number % 4 == 0 };
        recorder.record(access).expect("records");
        for block in 0..blocks {
            let access = Access {
                time_us,
                key: (1 << 40) | ((number * 7 + block) % 20_000),
                bytes: 4096,
                structure: 1,
                is_write: block % 2 == 0,
            };
            recorder.record(access).expect("records");
        }
    }
    let origin = Origin {
        kind: "node".into(),
        made_by: "a test".into(),
        keys: "object".into(),
        bad_lines: 0,
        other_requests: 0,
        flushes: None,
        times_back: 0,
    };
    let figures = NodeFigures {
        node: NodeUse { image_bytes: images, ..NodeUse::default() },
        write_backs: WriteBacks { checkpoints: 60, bytes: 40_000 * MIB },
        ..NodeFigures::default()
    };
    recorder.set_about(origin, &[Lack::Journal, Lack::Flushes, Lack::Cpu], figures);
    let path: &Path = &folder.path().join("whole");
    recorder.finish_as(path).expect("writes");
    ProfileSource::Bytes("node".into(), std::fs::read(path).expect("there").into())
}

fn station(mix: &MixReport, name: &str) -> f64 {
    mix.stations.iter().find(|station| station.name == name).map_or(0.0, |station| station.used)
}

/// M3: 1,000 commits of 1.2 MB each second are 104 TB a day; the drive is rated for 100 times its 800 GB.
#[test]
fn a_mix_whose_drives_wear_out_before_their_warranty_ends_does_not_meet_a_target() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15), price("optane-p5800x", 2.0)];
    let server = SERVER.replace(OFFER, "offer = ['optane-p5800x']");
    let plan = |bytes: f64| {
        let mut asked = request(hour(Shape::Zipf { skew: 0.6 }), &server, &prices, reads_within(1.0));
        asked.commits = Some(Commits { per_s: 1000.0, bytes });
        report(asked, &prices)
    };
    let wears = |mix: &MixReport| mix.misses.iter().any(|miss| miss.starts_with("endurance of optane-p5800x: "));
    let large = plan(1.2e6);
    assert!(
        large.mixes.iter().any(wears) && large.mixes.iter().all(|mix| !wears(mix) || !mix.meets_target),
        "{}",
        large.says
    );
    let small = plan(1000.0);
    assert!(!small.mixes.iter().any(wears) && small.chosen.is_some(), "{}", small.says);
    // On a drive of its own the journal wears that one, and not those of the data.
    let mut asked = request(hour(Shape::Zipf { skew: 0.6 }), &server, &prices, reads_within(1.0));
    asked.commits = Some(Commits { per_s: 1000.0, bytes: 1.2e6 });
    let planning = Planning::of(asked).expect("a plan");
    let own = planning.placed.iter().find(|(mix, _)| matches!(mix.journal, JournalPart::Own(..)));
    let wear = planning.wear(&own.expect("a mix with a drive for the journal").0);
    let written: Vec<f64> = wear.iter().map(|(_, wear)| wear.written_bytes_per_day).collect();
    let day = 1000.0 * 1.2e6 * 86_400.0;
    assert!(written[0] < day / 4.0 && (written[1] / day - 1.0).abs() < 0.1, "{wear:?}");
}

/// M4: the write image journal lies where the journal's modules are, and takes their time, not that of the drives.
#[test]
fn images_are_a_load_of_the_modules_where_the_journal_is() {
    let prices = [price("ddr4-2666", 6.0), price("nvme-p4510", 0.15), price("dcpmm100-128g", 6.0)];
    let plan = |images: u64| {
        let mut asked =
            request(node(images, 0), MODULES, &prices, Target { p99_commit_s: Some(20e-6), ..Target::default() });
        asked.commits = Some(Commits { per_s: 2000.0, bytes: 700.0 });
        let planning = Planning::of(asked).expect("a plan");
        let written =
            [JournalPart::Data, JournalPart::Modules].map(|journal| planning.workload.data_write_bytes(journal));
        (planning.report(&prices).expect("a report"), written)
    };
    let (none, [with_data, on_modules]) = plan(0);
    assert_eq!(with_data, on_modules);
    let (half, [with_data, on_modules]) = plan(20_000 * MIB);
    assert!((on_modules / with_data - 0.5).abs() < 1e-9, "{on_modules} of {with_data}");
    let of = |plan: &PlanReport| {
        let mix = plan.mixes.iter().find(|mix| mix.mode == "app-direct").expect("App Direct").clone();
        (station(&mix, "data"), station(&mix, "journal"))
    };
    let ((data, journal), (less_data, more_journal)) = (of(&none), of(&half));
    assert!(less_data < data && more_journal > 1.5 * journal, "{data} -> {less_data}, {journal} -> {more_journal}");
}

/// Blocks of volumes make the drives busier and the data larger; nothing of the page cache changes.
#[test]
fn what_is_beside_the_page_cache_is_a_load_of_the_drives_and_has_a_curve() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let plan = |blocks: u64| report(request(node(0, blocks), SERVER, &prices, reads_within(3e-3)), &prices);
    let (without, with) = (plan(0), plan(60));
    let both =
        without.mixes.iter().filter_map(|mix| Some((mix, with.mixes.iter().find(|other| other.name == mix.name)?)));
    let (one, two) = both.max_by_key(|(mix, _)| mix.near_bytes).expect("a mix that both have");
    assert_eq!(one.served, two.served, "the page cache finds what it found");
    assert!(station(two, "data") > 1.1 * station(one, "data"), "{} {}", station(one, "data"), station(two, "data"));
    let wear = |mix: &MixReport| mix.endurance.expect("of drives").written_bytes_per_day;
    assert!(wear(two) > wear(one));
    let curve = with.curves.iter().find(|curve| curve.structure == "volumes").expect("a curve");
    assert!(curve.points[0].1 > 0.5 && curve.points.windows(2).all(|two| two[0].1 >= two[1].1), "{curve:?}");
    assert!(with.sure.iter().any(|sure| sure.what == "volumes" && sure.error.contains("writes/s")), "{:?}", with.sure);
    assert!(!without.curves.iter().any(|curve| curve.structure == "volumes"));
}

/// M13: 3.9 TB are more than 85 % of a drive of 4 TB.
#[test]
fn a_drive_is_not_planned_full() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    for (bytes, drives) in [(3_300_000_000_000, 1), (3_900_000_000_000, 2)] {
        let asked = PlanRequest {
            data_bytes: Some(bytes),
            ..request(hour(Shape::Zipf { skew: 0.6 }), SERVER, &prices, reads_within(3e-3))
        };
        let plan = report(asked, &prices);
        let chosen = &plan.mixes[plan.chosen.expect("one")];
        let many: u32 = chosen.parts.iter().filter(|part| part.medium == "nvme-p4510").map(|part| part.count).sum();
        assert_eq!(many, drives, "{}", chosen.name);
    }
}

/// M16: persistent modules of a machine are neither free slots nor nothing.
#[test]
fn what_a_listing_has_found_and_not_named_is_to_be_named() {
    let text = r#"{"nodes": [{"id": 0, "cpus": "0-15", "bytes": 206158430208, "free_bytes": 0, "distances": []}],
                   "slots": {"all": 12, "dram": 6, "persistent": 6}, "waiting": null}"#;
    let plan = |have: &[&str], without: &[&str]| {
        let mut server = Server::of_listing(text).expect("a machine");
        (server.dram, server.bays) = ("ddr4-2666".into(), 2);
        server.have.extend(have.iter().map(|text| (*text).to_owned()));
        let mut asked = request(hour(Shape::Zipf { skew: 0.6 }), SERVER, &[], reads_within(1.0));
        asked.server = server;
        asked.without = without.iter().map(|word| (*word).to_owned()).collect();
        asked
    };
    let why = refused(plan(&["nvme-p4510"], &[]));
    assert!(
        why.contains("6 pmem that the listing does not name") && why.contains("--have, as 6xdcpmm100-128g"),
        "{why}"
    );
    for (have, without) in [(&["nvme-p4510", "6xdcpmm100-128g"][..], &[][..]), (&["nvme-p4510"], &["pmem"])] {
        Planning::of(plan(have, without)).expect("all of it has a name");
    }
}

/// M17: what is to be filled in stops a script that runs as it is.
#[test]
fn a_command_with_something_to_fill_in_does_not_run_without_it() {
    assert!(card_steps(2)[1].contains("${DAX:?"), "{:?}", card_steps(2));
    assert!(card_steps(1).iter().all(|step| !step.contains("DAX")));
}
