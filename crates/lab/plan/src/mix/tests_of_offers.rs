//! Plans with what is rented, what is owned, and what may not be; and sizings by their rates.

use catalogue::price::{Price, PriceUnit};

use super::report::Answer;
use super::sizing::{SizingInput, sizing};
use super::tests::{CLOUD, SERVER, hour, price, profile_with, reads_within, refused, rented, report, request};
use super::{Commits, JournalPart, PlanRequest, Planning, Shortness, Target};
use crate::generate::{Shape, generate};
use crate::profile::Lack;

const OFFER: &str = "offer = ['cxl-expander', 'nvme-p4510']";

fn zipf(server: &str, prices: &[Price], target: Target) -> PlanRequest {
    request(hour(Shape::Zipf { skew: 0.6 }), server, prices, target)
}

fn sized(messages_per_day: f64, queries_per_day: f64) -> (f64, f64) {
    let input = SizingInput {
        messages_per_day,
        message_bytes: 2048.0,
        retention_days: 90.0,
        queries_per_day,
        query_pages: 1000,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let sized = sizing(&input, folder.path()).expect("a sizing");
    let data_bytes = sized.data_bytes as f64;
    let mut asked = request(sized.source, SERVER, &[], Target::default());
    (asked.short, asked.commits, asked.scale) = (Shortness::Take, Some(sized.commits), sized.scale);
    let planning = Planning::of(asked).expect("a plan");
    let touched = planning.workload.touched_bytes as f64;
    (planning.workload.reports[0].worst_accesses_per_s, touched / data_bytes)
}

/// N1: a tenth of a day's queries in its busiest hour, 1,000 pages each, and four accesses of a message.
#[test]
fn queries_of_a_sizing_come_at_times_of_their_own_however_few_messages_there_are() {
    for (messages, queries) in [(1e4, 1e5), (1e3, 2e6), (1.0, 1e5), (1e6, 1e3)] {
        let (got, used) = sized(messages, queries);
        let wanted = (queries * 1000.0 + messages * 4.0) * 0.1 / 3600.0;
        assert!((wanted / 1.3..wanted * 1.3).contains(&got), "{messages} and {queries}: {got} instead of {wanted}");
        if messages >= 1e6 {
            assert!(used < 1.3, "{used} times what is stored");
        }
    }
}

/// N2: the IOPS of an array of one's own are those of its port, whatever the load; and so are those of one that is bought.
#[test]
fn only_what_is_rented_by_its_operations_is_limited_to_them() {
    let server = |have: &str| {
        let server = SERVER.replace("bays = 8\n", "bays = 8\nvolumes = true\n");
        format!("{}have = [{have}]\n", server.replace(OFFER, "offer = ['fc-san-16g']"))
    };
    let p99 =
        |have: &str, prices: &[Price], per_s: f64| {
            let mut asked = zipf(&server(have), prices, Target::default());
            asked.commits = Some(Commits { per_s, bytes: 700.0 });
            let planning = Planning::of(asked).expect("a plan");
            assert!(planning.kept.iter().all(|one| (one.mix.room > 0)
                == prices.iter().any(|one| one.unit == PriceUnit::PerIopsMonth && have.is_empty())));
            let least = planning.kept.iter().filter(|one| one.mix.room <= 3);
            least.filter_map(|one| one.replayed?.p99_commit_s).fold(f64::INFINITY, f64::min)
        };
    let bought = [price("fc-san-16g", 0.5)];
    let by_operations =
        [rented("fc-san-16g", 0.1, PriceUnit::PerGbMonth), rented("fc-san-16g", 0.1, PriceUnit::PerIopsMonth)];
    for (have, prices) in [("'1 x fc-san-16g'", &by_operations[..]), ("", &bought[..]), ("", &[][..])] {
        let (few, many) = (p99(have, prices, 2.0), p99(have, prices, 200.0));
        assert!(few <= many * 1.05 && few < 1e-3, "{have}: {few} s of few commits, {many} s of many");
    }
    assert!(p99("", &by_operations, 2.0) > 1e-3, "100 operations each second are the least that is rented");
}

/// N3: a volume with three times the operations of the worst minute is too slow for what one with more of them can do.
#[test]
fn more_operations_are_rented_where_the_target_needs_them() {
    let prices =
        [rented("ebs-io2bx", 0.125, PriceUnit::PerGbMonth), rented("ebs-io2bx", 0.065, PriceUnit::PerIopsMonth)];
    let server = format!("{CLOUD}[[instance]]\nname = 'm'\ncores = 8\nmemory = '32GiB'\nusd_per_month = 100\n");
    let of = |seconds: f64| {
        let mut asked = zipf(&server, &prices, Target { p99_commit_s: Some(seconds), ..Target::default() });
        asked.commits = Some(Commits { per_s: 20.0, bytes: 700.0 });
        report(asked, &prices)
    };
    let plan = of(3e-3);
    assert_eq!(plan.answer, Answer::Buy, "{}", plan.says);
    let chosen = &plan.mixes[plan.chosen.expect("one")];
    assert!(chosen.name.contains(" IOPS"), "{}", chosen.name);
    let least = plan.mixes.iter().filter(|mix| mix.p99_commit_s > chosen.p99_commit_s && mix.usd.is_some());
    assert!(least.count() > 0, "one with fewer operations is cheaper and slower: {:?}", plan.says);
    assert!(plan.sure.iter().any(|sure| sure.because.contains("3, 12, 48 times")), "{:?}", plan.sure);
    let none = of(1e-6);
    assert_eq!(none.answer, Answer::NothingMeetsIt);
    assert!(none.says.contains("and not with more"), "{}", none.says);
}

/// N5: of machines that cannot do the rate, the one that lacks least of it is the nearest.
#[test]
fn the_nearest_of_those_that_cannot_do_the_rate_lacks_least_of_it() {
    let prices =
        [rented("ebs-io2bx", 0.125, PriceUnit::PerGbMonth), rented("ebs-io2bx", 0.065, PriceUnit::PerIopsMonth)];
    let server = format!(
        "{CLOUD}[[instance]]\nname = 'small'\ncores = 4\nmemory = '4GiB'\nusd_per_month = 100\n\
         [[instance]]\nname = 'many-cores'\ncores = 64\nmemory = '5GiB'\nusd_per_month = 900\n"
    );
    let mut asked = zipf(&server, &prices, Target { rate: Some(40_000.0), ..reads_within(1.0) });
    asked.cpu_s = Some(1e-4);
    let plan = report(asked, &prices);
    assert_eq!(plan.answer, Answer::NothingMeetsIt, "{}", plan.says);
    assert!(plan.says.contains("the nearest is many-cores"), "{}", plan.says);
    assert!(plan.says.contains(" accesses each second") && !plan.says.contains("accesss"), "{}", plan.says);
}

/// N6: what may not be is not bought, also where some of it is there already; DRAM is in each mix.
#[test]
fn what_may_not_be_is_used_as_far_as_it_is_owned_and_no_more_of_it_is_bought() {
    let server =
        SERVER.replace("have", "had").replace(OFFER, "offer = ['nvme-p4510', 'cxl-expander', 'optane-p5800x']");
    let server = format!("{server}have = ['1 x nvme-p4510', '1 x cxl-expander']\n");
    let most = |server: &str, without: &[&str], data_bytes: u64| {
        let mut asked = zipf(server, &[], Target::default());
        asked.commits = Some(Commits { per_s: 100.0, bytes: 500.0 });
        asked.without = without.iter().map(|word| (*word).to_owned()).collect();
        asked.data_bytes = Some(data_bytes);
        // Behind more near memory more far memory may be.
        asked.target.growth = 4.0;
        let planning = Planning::of(asked).expect("a plan");
        let count = |name: &str| {
            let of = |(mix, _): &(super::Mix, super::CacheBytes)| {
                let used = mix.supplies();
                used.iter().filter(|(supply, ..)| planning.supplies[*supply].medium.name == name).map(|one| one.1).sum()
            };
            planning.placed.iter().map(of).max().unwrap_or(0u32)
        };
        let has_own = |(mix, _): &(super::Mix, super::CacheBytes)| matches!(mix.journal, JournalPart::Own(supply, _) if planning.supplies[supply].medium.name == "nvme-p4510");
        let beside_data = planning.placed.iter().filter(|one| has_own(one) && one.0.data.0 != 0).count();
        (count("nvme-p4510"), count("cxl-expander"), beside_data > 0)
    };
    let few = 1 << 30;
    let (drives, cards, _) = most(&server, &[], few);
    assert!(drives > 1 && cards > 1, "{drives} drives, {cards} cards");
    assert_eq!(most(&server, &["nvme-p4510", "cxl"], few), (1, 1, true));
    assert_eq!(most(&server, &["nvme-p4510"], 1_500_000_000_000).0, 0, "it is too small, and no second one is bought");
    let not_offered = server.replace("'nvme-p4510', 'cxl-expander', ", "");
    assert_eq!(most(&not_offered, &[], few), (1, 1, true));
    let dram = |word: &str| PlanRequest { without: vec![word.into()], ..zipf(SERVER, &[], Target::default()) };
    for word in ["ddr", "ddr4-2666", "ddr5"] {
        assert!(refused(dram(word)).contains("names DRAM"), "{word}");
    }
}

/// N9: a server has room for what is in it.
#[test]
fn what_is_owned_fits_into_the_server() {
    let server = SERVER.replace(OFFER, "offer = ['nvme-p4510', 'cxl-expander', 'dcpmm100-128g']");
    let with = |have: &str| zipf(&format!("{server}have = [{have}]\n"), &[], Target::default());
    for (have, says) in [
        ("'17x4GiB'", "17 modules, but dimm_slots are 16"),
        ("'9 x nvme-p4510'", "9 drives, but bays are 8"),
        ("'5 x cxl-expander'", "40 lanes of cards, but lanes are 32"),
        ("'16x4GiB', '1 x dcpmm100-128g'", "17 modules"),
    ] {
        let why = refused(with(have));
        assert!(why.contains(says), "{have}: {why}");
    }
    assert!(Planning::of(with("'16x4GiB', '8 x nvme-p4510', '4 x cxl-expander'")).is_ok());
    let undescribed = server.replace("bays = 8\n", "");
    let drives = format!("{undescribed}have = ['9 x nvme-p4510']\n");
    assert!(Planning::of(zipf(&drives, &[], Target::default())).is_ok(), "bays that are not described are not checked");
}

/// N7: one mix whose memory is too small for the sample does not end the run.
#[test]
fn a_mix_that_cannot_be_run_is_a_row_with_its_reason() {
    let keys = generate(Shape::Zipf { skew: 0.7 }, 8192, 200_000, 9);
    let pages = profile_with("page", 8192, keys, 200_000, 3600, &[Lack::Flushes, Lack::Journal, Lack::Cpu]);
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    // 3 GiB of near memory are 3 MiB, less than a page cache has, and 63 GiB are 63 MiB.
    let mut asked = request(pages, SERVER, &prices, reads_within(1e-6));
    (asked.scale, asked.short) = (1024.0, Shortness::Take);
    let planning = Planning::of(asked).expect("a plan");
    let mut plan = planning.report(&prices).expect("a report");
    // All that were rated, also those that are not worth a choice.
    let row = plan.mixes[0].clone();
    plan.mixes = planning
        .kept
        .iter()
        .map(|one| super::report::MixReport { name: planning.name_of(one), ..row.clone() })
        .collect();
    let verified = planning.verify(&plan).expect("runs");
    assert_eq!(verified.mixes.len(), plan.mixes.len());
    let refused = verified.mixes.iter().filter(|mix| mix.refused.is_some()).count();
    assert!(refused > 0 && refused < verified.mixes.len(), "{refused} of {}", verified.mixes.len());
    for mix in &verified.mixes {
        assert_eq!(mix.refused.is_some(), mix.figures.is_empty(), "{mix:?}");
    }
    let json = serde_json::to_value(&verified).expect("plain data");
    assert!(
        json["version"].is_string() && json["mixes"][0]["mix"].is_string() && !json["mixes"][0]["figures"].is_null()
    );
}

/// Section 3 of the review: a number stands as an error only where a test or a measurement has it.
#[test]
fn no_error_is_said_that_nothing_backs() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let plan = report(zipf(SERVER, &prices, reads_within(3e-3)), &prices);
    let error = |what: &str| {
        let found = plan.sure.iter().find(|sure| sure.what == what);
        found.map(|sure| sure.error.clone()).unwrap_or_else(|| panic!("{what}: {:?}", plan.sure))
    };
    assert!(error("miss ratios").starts_with("within 2 points in tests"), "{:?}", plan.sure);
    assert_eq!(error("times of commits, reads, queries"), "not known");
    assert_eq!(error("times of DRAM"), "not known");
    assert!(plan.sure.iter().all(|sure| !sure.error.contains("+-")), "{:?}", plan.sure);
    let input = SizingInput {
        messages_per_day: 1e6,
        message_bytes: 2048.0,
        retention_days: 90.0,
        queries_per_day: 1000.0,
        query_pages: 50,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let sized = sizing(&input, folder.path()).expect("a sizing");
    assert!(sized.sure.iter().all(|sure| sure.error.contains("not measured")), "{:?}", sized.sure);
}
