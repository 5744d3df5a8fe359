//! Plans with what is rented, what is owned, and what may not be; and sizings by their rates.

use catalogue::price::{Price, PriceUnit};

use super::report::Answer;
use super::sizing::{SizingInput, sizing};
use super::tests::{CLOUD, SERVER, hour, price, profile_with, reads_within, refused, rented, report, request};
use super::{Commits, JournalPart, PlanReport, PlanRequest, Planning, Shortness, Target};
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
    // 20 commits on the 100 operations each second that are the least which is rented.
    let (rents, owns) = (p99("", &by_operations, 20.0), p99("'1 x fc-san-16g'", &by_operations, 20.0));
    assert!(rents > 2.0 * owns, "{rents} s rented, {owns} s owned");
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
    assert_eq!(most(&server, &["nvme-p4510"], 1_300_000_000_000).0, 0, "it is too small, and no second one is bought");
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
    let runs = planning.verify(&plan, None).expect("runs");
    let named = |is_refused: bool| {
        let of = runs.iter().filter(|run| run.refused.is_some() == is_refused).map(|run| run.mix.as_str());
        of.collect::<std::collections::BTreeSet<_>>()
    };
    let (run, refused) = (named(false), named(true));
    assert!(!run.is_empty() && !refused.is_empty() && run.is_disjoint(&refused), "{run:?} and {refused:?}");
    assert!(plan.mixes.iter().all(|mix| run.contains(mix.name.as_str()) || refused.contains(mix.name.as_str())));
    for run in &runs {
        assert_eq!(run.refused.is_some(), run.predicted.is_none() && run.measured.is_none(), "{run:?}");
    }
}

/// M7: the cheapest mix that meets the target is the answer, however few are replayed at first.
#[test]
fn the_cheapest_mix_that_meets_the_target_is_found_between_those_that_are_replayed_at_first() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15), price("cxl-expander", 2.5)];
    for seconds in [3e-3, 5e-3, 1e-9] {
        let of = |first: usize| {
            let asked = zipf(SERVER, &prices, reads_within(seconds));
            let planning = Planning::with(asked, first).expect("a plan");
            (planning.report(&prices).expect("a report"), planning.left_out)
        };
        let (all, _) = of(usize::MAX);
        let (few, left_out) = of(2);
        assert!(all.considered.predicted > 4, "{:?}", all.considered);
        assert_eq!(few.answer, all.answer, "{seconds}: {} and {}", few.says, all.says);
        let usd = |plan: &PlanReport| plan.chosen.and_then(|number| plan.mixes[number].usd);
        assert_eq!(usd(&few), usd(&all), "{seconds}");
        let told: usize = left_out.iter().filter(|(why, _)| why.contains("between others")).map(|(_, many)| many).sum();
        assert_eq!(few.considered.predicted + told, all.considered.predicted, "{left_out:?}");
        assert!(told > 0 || few.answer == Answer::NothingMeetsIt, "{left_out:?}");
    }
}

/// M1: in a worst minute of first uses nothing is found in memory of any size.
#[test]
fn a_record_whose_worst_minute_is_one_of_a_cold_cache_is_refused_or_says_so() {
    // Ten minutes of 1,000 accesses to 40 objects each; of the last whole one three in eight go to others, once.
    let keys = (0..10_000u64).map(|number| match (number / 1000, number % 8) {
        (8, 1..=3) => 100 + number,
        _ => number % 40,
    });
    let lacks = [Lack::Flushes, Lack::Journal, Lack::Cpu];
    let cold = || profile_with("object", 18 << 20, keys.clone(), 10_000, 600, &lacks);
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let asked = |short: Shortness| PlanRequest { short, ..request(cold(), SERVER, &prices, reads_within(5e-3)) };
    let why = refused(asked(Shortness::Refuse));
    assert!(why.contains("first uses") && why.contains("--take-short"), "{why}");
    let taken = report(asked(Shortness::Take), &prices);
    let told = taken.sure.iter().find(|sure| sure.what == "misses of the worst minute").expect("told");
    assert_eq!(told.error, "up to 37.5 points too high");
    let warm = report(zipf(SERVER, &prices, reads_within(3e-3)), &prices);
    assert!(warm.sure.iter().all(|sure| sure.what != "misses of the worst minute"), "{:?}", warm.sure);
}

/// M11: of a loop, the next size of DRAM finds no more, and the one that holds it finds all.
#[test]
fn more_dram_is_not_said_to_be_of_no_help_where_a_larger_size_is() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    // 26.4 GiB: 4, 8 and 16 GiB find nothing of it, 32 GiB find all.
    let slow = report(request(hour(Shape::Loop), SERVER, &prices, reads_within(1.0)), &prices);
    let chosen = &slow.mixes[slow.chosen.expect("one")];
    // A quarter are writes of whole objects, which need no read.
    assert!(chosen.served.device > 0.7, "{}", chosen.name);
    assert!(slow.no_help.iter().all(|says| !says.contains("more DRAM")), "{:?}", slow.no_help);
    // With all of it in memory, no more of anything makes it faster.
    let fast = report(request(hour(Shape::Loop), SERVER, &prices, reads_within(3e-3)), &prices);
    assert!(fast.no_help.iter().any(|says| says.contains("more data drives")), "{:?}", fast.no_help);
}

/// M15: a price is said in its unit, and a machine of a cloud has one too.
#[test]
fn prices_that_change_the_answer_have_their_units() {
    let prices = [rented("ebs-io2bx", 0.125, PriceUnit::PerGbMonth), rented("ebs-io2bx", 0.0, PriceUnit::PerIopsMonth)];
    let server = format!(
        "{CLOUD}[[instance]]\nname = 'small'\ncores = 8\nmemory = '8GiB'\nusd_per_month = 100\n\
         [[instance]]\nname = 'large'\ncores = 8\nmemory = '40GiB'\nusd_per_month = 150\n"
    );
    let plan = report(zipf(&server, &prices, reads_within(1.0)), &prices);
    let flip = plan.flips.iter().find(|flip| flip.medium == "small").expect("a price of the machine");
    // The same volume: 100 x 1.5 a month.
    assert_eq!((flip.unit.as_str(), flip.usd_per_gb), ("USD/month", None), "{flip:?}");
    assert!((flip.usd - 150.0).abs() < 1e-6 && flip.to_name.contains("large"), "{flip:?}");
    assert!(super::text::text(&plan).contains("small above 150.00 USD/month (1.50 times the price)"));
}

/// M12: of a drive that is bought for the journal alone, a GiB is used.
#[test]
fn a_drive_for_the_journal_alone_is_among_what_is_not_used() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15), price("optane-p5800x", 2.0)];
    let server = SERVER.replace(OFFER, "offer = ['nvme-p4510', 'optane-p5800x']");
    let mut asked = zipf(&server, &prices, Target { p99_commit_s: Some(25e-6), ..Target::default() });
    asked.commits = Some(Commits { per_s: 10.0, bytes: 500.0 });
    asked.data_bytes = Some(3_000_000_000_000);
    let plan = report(asked, &prices);
    let chosen = &plan.mixes[plan.chosen.unwrap_or_else(|| panic!("{}", plan.says))];
    assert!(chosen.name.ends_with("1 x nvme-p4510, journal on 1 x optane-p5800x"), "{}", chosen.name);
    let drive = chosen.parts.iter().find(|part| part.medium == "optane-p5800x").expect("the drive");
    let waste = chosen.wasted.iter().find(|one| one.medium == drive.medium && one.unit == "GiB").expect("a row");
    assert!((waste.bought - drive.gb * 1e9 / f64::from(1 << 30)).abs() < 1e-6 && waste.used == 1.0, "{waste:?}");
    // A drive for all of it, whose wear is rated.
    let little = {
        let server = SERVER.replace(OFFER, "offer = ['optane-p5800x']");
        let mut asked = zipf(&server, &prices, Target::default());
        asked.commits = Some(Commits { per_s: 10.0, bytes: 500.0 });
        report(asked, &prices)
    };
    let wear = little.mixes[little.chosen.expect("one")].endurance.expect("a drive");
    let times = wear.written_bytes_per_day / wear.allowed_bytes_per_day.unwrap_or_else(|| panic!("{}", little.says));
    let told = little.sure.iter().find(|sure| sure.what == "endurance of optane-p5800x").expect("told");
    assert!(told.error.ends_with(&format!("{times:.2} times what it is rated for")), "{told:?}");
}

/// M9: what may cost anything is not within a budget.
#[test]
fn a_mix_without_a_price_is_not_said_to_be_within_a_budget() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let target = Target { budget_usd: Some(5000.0), ..reads_within(5e-3) };
    let plan = report(zipf(SERVER, &prices, target), &prices);
    let without: Vec<_> = plan.mixes.iter().filter(|mix| mix.usd.is_none()).collect();
    assert!(!without.is_empty() && without.iter().all(|mix| !mix.meets_target), "{}", plan.says);
    assert!(without.iter().all(|mix| mix.misses.iter().any(|miss| miss.contains("budget is not known"))));
    assert!(!plan.break_even.is_empty(), "its price at which it would be worth it is told all the same");
}

/// Section 3 of the review: a number stands as an error only where a test or a measurement has it.
#[test]
fn no_error_is_said_that_nothing_backs() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let mut asked = zipf(SERVER, &prices, reads_within(3e-3));
    asked.query = Some(super::Query { pages: 10.0, cpu_s: 0.0 });
    let plan = report(asked, &prices);
    let error = |what: &str| {
        let found = plan.sure.iter().find(|sure| sure.what == what);
        found.map(|sure| sure.error.clone()).unwrap_or_else(|| panic!("{what}: {:?}", plan.sure))
    };
    assert!(error("miss ratios").starts_with("within 2 points in tests"), "{:?}", plan.sure);
    assert_eq!(error("times of commits, reads, queries"), "not known");
    assert_eq!(error("times of DRAM"), "not known");
    assert_eq!((error("p95 of queries"), error("write-backs")), ("not known".into(), "assumed, not measured".into()));
    assert_eq!(error("endurance of nvme-p4510"), "not known: no rating was published");
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
