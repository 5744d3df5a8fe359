//! Plans as a whole, on made-up workloads whose answer is known.

use catalogue::medium::{Confidence, Pattern};
use catalogue::price::{Basis, Price, PriceDate, PriceUnit};
use catalogue::{Budget, Medium, Model, media};

use super::replay::{ReplayLoad, ReplayMedia, ReplayMedium, replay};
use super::report::Answer;
use super::served::MinuteAccess;
use super::settings::check;
use super::sizing::{SizingInput, sizing};
use super::supply::Supply;
use super::{Commits, PlanReport, PlanRequest, Planning, PriceList, ProfileSource, Server, Shortness, Target};
use crate::PlanError;
use crate::generate::{Shape, generate};
use crate::hash::Salt;
use crate::profile::{Access, Lack, Origin, Recorder, RecorderOptions};

/// Bytes of an object.
const OBJECT: u32 = 18 << 20;
pub(super) const SERVER: &str = "sockets = 1\ncores = 8\ndimm_slots = 16\nchannels = 8\nlanes = 32\nbays = 8\nreserve = '1GiB'\n\
                      dimms = ['2GiB', '4GiB']\noffer = ['cxl-expander', 'nvme-p4510']\n";

fn profile_of(keys: impl Iterator<Item = u64>, accesses: u64, seconds: u64, lacks: &[Lack]) -> ProfileSource {
    profile_with("object", OBJECT, keys, accesses, seconds, lacks)
}

pub(super) fn profile_with(
    kind: &str,
    bytes: u32,
    keys: impl Iterator<Item = u64>,
    accesses: u64,
    seconds: u64,
    lacks: &[Lack],
) -> ProfileSource {
    let folder = tempfile::tempdir().expect("a folder");
    let mut recorder =
        Recorder::new(RecorderOptions::new(Salt::of_seed(3), &["object"], 8192, folder.path())).expect("options");
    for (number, key) in (0..).zip(keys) {
        let time_us = number * seconds * 1_000_000 / accesses;
        let access = Access { time_us, key, bytes, structure: 0, is_write: number % 4 == 0 };
        recorder.record(access).expect("records");
    }
    let origin = Origin {
        kind: "test".into(),
        made_by: "a test".into(),
        keys: kind.into(),
        bad_lines: 0,
        other_requests: 0,
        flushes: None,
        times_back: 0,
    };
    let mut file = Vec::new();
    recorder.finish(origin, lacks, &mut file).expect("writes");
    ProfileSource::Bytes("test".into(), file.into())
}

/// An hour of 1,500 objects of 18 MiB, 26.4 GiB together.
pub(super) fn hour(shape: Shape) -> ProfileSource {
    profile_of(generate(shape, 1500, 120_000, 7), 120_000, 3600, &[Lack::Flushes, Lack::Journal, Lack::Cpu])
}

/// An hour of 8,192 pages, 64 MiB together.
fn pages() -> ProfileSource {
    let keys = generate(Shape::Zipf { skew: 0.7 }, 8192, 200_000, 9);
    profile_with("page", 8192, keys, 200_000, 3600, &[Lack::Flushes, Lack::Journal, Lack::Cpu])
}

pub(super) fn price(medium: &str, value: f64) -> Price {
    Price {
        medium: medium.into(),
        of: "one".into(),
        value,
        low: None,
        high: None,
        unit: PriceUnit::PerGb,
        basis: Basis::Street,
        dated: "2026-11".into(),
        source: "a test".into(),
        confidence: Confidence::S,
    }
}

pub(super) fn request(source: ProfileSource, server: &str, prices: &[Price], target: Target) -> PlanRequest {
    let today = PriceDate::parse("2026-11").expect("a month");
    PlanRequest {
        sources: vec![source],
        short: Shortness::Refuse,
        server: Server::parse(server).expect("a server"),
        media: media().to_vec(),
        prices: PriceList::new(prices, 36.0, today, false).expect("prices"),
        target,
        without: Vec::new(),
        data_bytes: None,
        cpu_s: None,
        sessions: None,
        query: None,
        commits: None,
        scale: 1.0,
        assumed: Vec::new(),
    }
}

pub(super) fn report(request: PlanRequest, prices: &[Price]) -> PlanReport {
    Planning::of(request).expect("a plan").report(prices).expect("a report")
}

pub(super) fn refused(request: PlanRequest) -> String {
    match Planning::of(request) {
        Err(PlanError::Refused(why)) => why,
        other => panic!("it was to be refused: {other:?}"),
    }
}

pub(super) fn reads_within(seconds: f64) -> Target {
    Target { p99_read_s: Some(seconds), ..Target::default() }
}

/// DRAM reads 18 MiB in about 1.5 ms, the card in 3.4 ms, the drive in 6.4 ms: within 3 ms, less than one in a hundred may be elsewhere
/// than in DRAM, so that it holds nearly all of 26.4 GiB; the step below 32 is 16.
#[test]
fn the_cheapest_mix_within_the_target_has_the_memory_that_it_needs_and_its_settings_are_taken() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let made = || report(request(hour(Shape::Zipf { skew: 0.6 }), SERVER, &prices, reads_within(3e-3)), &prices);
    let plan = made();
    assert_eq!(plan.answer, Answer::Buy, "{}", plan.says);
    let chosen = &plan.mixes[plan.chosen.expect("one")];
    let gb = |medium: &str| chosen.parts.iter().filter(|part| part.medium == medium).map(|part| part.gb).sum::<f64>();
    assert!((27.0..=36.0).contains(&gb("ddr5")), "{}", chosen.name);
    assert_eq!((gb("cxl-expander"), gb("nvme-p4510")), (0.0, 4000.0), "{}", chosen.name);
    let usd = chosen.usd.expect("priced").expected;
    assert!((usd - (gb("ddr5") * 10.0 + 600.0)).abs() < 1e-6, "{usd}");
    assert!(chosen.p99_read_s.expect("replayed") <= 3e-3 && chosen.served.device < 0.02);
    assert!(plan.mixes.iter().any(|mix| !mix.meets_target && mix.usd.is_some_and(|other| other.expected < usd)));
    for mix in &plan.mixes {
        let supplies: Vec<Supply> = media().iter().map(Supply::of).collect();
        check(&mix.settings, &supplies).unwrap_or_else(|why| panic!("{why}\n{}", mix.settings));
        assert!(!mix.commands.is_empty() && !mix.wasted.is_empty());
        let sum = mix.served.near + mix.served.far + mix.served.device;
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
    let text = super::text::text(&plan);
    assert!(text.contains("p99 read") && text.contains(&chosen.name), "{text}");
    let json = |plan: &PlanReport| serde_json::to_string(plan).expect("plain data");
    assert_eq!(json(&plan), json(&made()), "the same input gives the same plan");
    let back: PlanReport = serde_json::from_str(&json(&plan)).expect("a plan");
    assert_eq!(super::text::text(&back), text);
}

/// Within 5 ms the card would do as far memory. It has no price: it is worth what the DRAM costs that it replaces.
#[test]
fn a_card_without_a_price_is_given_the_price_at_which_it_would_be_worth_it() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let plan = report(request(hour(Shape::Zipf { skew: 0.6 }), SERVER, &prices, reads_within(5e-3)), &prices);
    let best = plan.mixes[plan.chosen.expect("one")].usd.expect("priced").expected;
    let card = plan.break_even.iter().find(|one| one.medium == "cxl-expander").expect("the card");
    let mix = plan.mixes.iter().find(|mix| mix.name == card.mix).expect("shown");
    let others: f64 = mix.parts.iter().filter_map(|part| part.usd).map(|usd| usd.expected).sum();
    let cards: f64 = mix.parts.iter().filter(|part| part.medium == "cxl-expander").map(|part| part.gb).sum();
    assert!((card.usd_per_gb - (best - others) / cards).abs() < 1e-9 && card.usd_per_gb > 0.0, "{card:?}");
    assert!(mix.meets_target && mix.usd.is_none() && mix.served.far > 0.01, "{mix:?}");
    let without = PlanRequest {
        without: vec!["cxl".into()],
        ..request(hour(Shape::Zipf { skew: 0.6 }), SERVER, &prices, reads_within(5e-3))
    };
    let without = report(without, &prices);
    assert!(without.break_even.is_empty());
    assert!(without.considered.left_out.iter().any(|(why, _)| why.contains("cxl-expander: --no cxl")));
}

#[test]
fn what_there_is_is_kept_when_it_does_and_processors_are_named_when_no_medium_helps() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let has = format!("{SERVER}have = ['8x4GiB', 'nvme-p4510']\n");
    let zipf = || hour(Shape::Zipf { skew: 0.6 });
    let keep = report(request(zipf(), &has, &prices, reads_within(3e-3)), &prices);
    assert_eq!(keep.answer, Answer::Keep, "{}", keep.says);
    assert!(keep.mixes[0].is_today && keep.chosen == Some(0) && keep.mixes[0].usd.expect("owned").expected == 0.0);
    // 33 accesses each second, 0.5 s of a processor each, on 8 of them.
    let busy = PlanRequest { cpu_s: Some(0.5), ..request(zipf(), SERVER, &prices, reads_within(3e-3)) };
    let busy = report(busy, &prices);
    assert_eq!(busy.answer, Answer::NoMediumHelps, "{}", busy.says);
    assert!(busy.mixes.iter().all(|mix| mix.binds == "processors" && !mix.meets_target));
    let fast = report(request(zipf(), SERVER, &prices, reads_within(1e-9)), &prices);
    assert_eq!(fast.answer, Answer::NothingMeetsIt, "{}", fast.says);
    let poor = Target { budget_usd: Some(1.0), ..reads_within(3e-3) };
    assert_eq!(report(request(zipf(), SERVER, &prices, poor), &prices).answer, Answer::NothingMeetsIt);
}

#[test]
fn a_target_for_which_the_profile_lacks_something_is_refused_by_name() {
    let target = Target { p99_commit_s: Some(1e-3), rate: Some(10.0), p95_query_s: Some(1.0), ..Target::default() };
    let plan = report(request(hour(Shape::Zipf { skew: 0.6 }), SERVER, &[], target), &[]);
    assert_eq!(plan.refused.len(), 3, "{:?}", plan.refused);
    for (refused, says) in plan.refused.iter().zip(["flushes", "processor time", "--query-pages"]) {
        assert!(refused.contains(says), "{refused}");
    }
    assert!(plan.target.p99_commit_s.is_none() && plan.target.rate == Some(10.0), "the rate holds for media");
    assert_eq!(plan.answer, Answer::NotPriced, "{}", plan.says);
}

#[test]
fn profiles_from_which_nothing_can_be_planned_are_refused_with_what_to_do() {
    let of = |source: ProfileSource| refused(request(source, SERVER, &[], Target::default()));
    let keys = |many: u64| (0..many).map(|number| number % 7);
    assert!(of(profile_of(keys(900), 900, 3600, &[])).contains("idle"));
    assert!(of(profile_of(keys(5000), 5000, 30, &[])).contains("30 s long"));
    assert!(of(profile_of(keys(5000), 5000, 3600, &[Lack::Times])).contains("no times"));
    // Ten minutes of a loop that takes five: a use comes again after half of the record.
    let short = || profile_of((0..2000).map(|number| number % 1000), 2000, 600, &[]);
    assert!(of(short()).contains("too short"));
    let taken = PlanRequest { short: Shortness::Take, ..request(short(), SERVER, &[], Target::default()) };
    let taken = report(taken, &[]);
    assert!(taken.sure.iter().any(|sure| sure.error.contains("too short")));
    let none = format!("{SERVER}bays = 0").replace("bays = 8\n", "");
    let nowhere = refused(request(hour(Shape::Loop), &none, &[], Target::default()));
    assert!(nowhere.contains("no mix"), "{nowhere}");
}

/// An LRU cache that is smaller than a loop finds nothing; one hot object is found by every cache; a scan and another phase raise the misses.
#[test]
fn hostile_workloads_are_planned_with_what_they_need() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let gb = |plan: &PlanReport| {
        let chosen = &plan.mixes[plan.chosen.expect("one")];
        chosen.parts.iter().filter(|part| part.medium == "ddr5").map(|part| part.gb).sum::<f64>()
    };
    let looped = report(request(hour(Shape::Loop), SERVER, &prices, reads_within(3e-3)), &prices);
    assert!(gb(&looped) >= 27.0, "{}", looped.says);
    let hot = profile_of((0..20_000).map(|_| 5), 20_000, 3600, &[Lack::Journal, Lack::Flushes, Lack::Cpu]);
    let hot = report(request(hot, SERVER, &prices, reads_within(3e-3)), &prices);
    assert!(gb(&hot) <= 2.0 + 1e-9, "{}", hot.says);
    for shape in [Shape::Scans, Shape::PhaseShift] {
        let mut asked = request(hour(shape), SERVER, &prices, reads_within(3e-3));
        asked.short = Shortness::Take;
        let plan = report(asked, &prices);
        let chosen = &plan.mixes[plan.chosen.expect("one")];
        assert!(chosen.served.device < 0.02 && chosen.p99_read_s.expect("replayed") <= 3e-3, "{}", plan.says);
    }
}

#[test]
fn growth_needs_more_memory_and_two_profiles_need_that_of_both() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let gb = |plan: &PlanReport| {
        let chosen = &plan.mixes[plan.chosen.expect("one")];
        chosen.parts.iter().filter(|part| part.medium == "ddr5").map(|part| part.gb).sum::<f64>()
    };
    let zipf = || hour(Shape::Zipf { skew: 0.6 });
    let large = SERVER.replace("'4GiB'", "'4GiB', '8GiB'");
    let twice = Target { growth: 2.0, ..reads_within(3e-3) };
    let grown = report(request(zipf(), &large, &prices, twice), &prices);
    assert!(gb(&grown) >= 53.0, "{}", grown.says);
    let mut both = request(zipf(), &large, &prices, reads_within(3e-3));
    both.sources.push(hour(Shape::Loop));
    let both = report(both, &prices);
    assert!(gb(&both) >= 53.0 && both.workloads.len() == 2, "{}", both.says);
}

fn model(name: &str, modules: u32) -> Model {
    Model::of(&Medium::find(name).expect(name), modules).expect(name)
}

/// A minute with one access each 10 ms, all of them found at one place.
fn minute(many: u64, gap_ns: u64) -> Vec<MinuteAccess> {
    (0..many).map(|number| MinuteAccess { at_ns: number * gap_ns, bytes: 4096, is_write: false }).collect()
}

/// Nobody waits for another one: 4 KiB of a P4510 take 77 us; a commit of 4 KiB 18 us and its flush 18 us.
#[test]
fn a_replay_without_queues_takes_the_times_of_the_figures() {
    let (dram, drive) = (model("ddr4-2666", 6), model("nvme-p4510", 1));
    let data = ReplayMedium { model: &drive, budget: Budget::new(&drive) };
    let near = ReplayMedium { model: &dram, budget: Budget::new(&dram) };
    let journal = ReplayMedium { model: &drive, budget: Budget::new(&drive) };
    let media = ReplayMedia { near, far: None, data, journal };
    let accesses = minute(100, 10_000_000);
    let load = ReplayLoad {
        accesses: &accesses,
        found: &[2; 100],
        seconds: 1.0,
        stands_for: 1.0,
        faster: 1.0,
        write_back_bytes: 0.0,
        image_bytes: 0.0,
        beside: &[],
        write_back_unit: 8192,
        promote: 0.1,
        journal_pattern: Pattern::Sequential,
        commits: Some((5.0, 4096.0)),
        processors: None,
    };
    let got = replay(&media, &load);
    let near = |one: f64, two: f64| (one - two).abs() < 2e-9;
    assert!(near(got.mean_read_s, 77e-6) && near(got.p99_read_s, 77e-6), "{got:?}");
    // There are 5 commits, and others are added to count a percentile: few of them meet.
    let p99 = got.p99_commit_s.expect("commits");
    assert!(near(got.p50_commit_s.expect("commits"), 36e-6) && (35.9e-6..73e-6).contains(&p99), "{got:?}");
}

/// Most of what the modules can do goes through far memory, on the modules of the journal or beside them.
#[test]
fn far_memory_on_the_modules_of_the_journal_makes_commits_wait() {
    let (dram, drive, modules) = (model("ddr4-2666", 6), model("nvme-p4510", 1), model("dcpmm100-128g", 2));
    let commits = |is_dual: bool| {
        let far = Budget::new(&modules);
        let own = if is_dual { std::sync::Arc::clone(&far) } else { Budget::new(&modules) };
        let media = ReplayMedia {
            near: ReplayMedium { model: &dram, budget: Budget::new(&dram) },
            far: Some(ReplayMedium { model: &modules, budget: far }),
            data: ReplayMedium { model: &drive, budget: Budget::new(&drive) },
            journal: ReplayMedium { model: &modules, budget: own },
        };
        let accesses = minute(20_000, 500);
        let found = vec![1; accesses.len()];
        let load = ReplayLoad {
            accesses: &accesses,
            found: &found,
            seconds: 0.01,
            stands_for: 1.0,
            faster: 1.0,
            write_back_bytes: 0.0,
            image_bytes: 0.0,
            beside: &[],
            write_back_unit: 4096,
            promote: 0.1,
            journal_pattern: Pattern::Sequential,
            commits: Some((20_000.0, 512.0)),
            processors: None,
        };
        replay(&media, &load).p99_commit_s.expect("commits")
    };
    let (alone, dual) = (commits(false), commits(true));
    assert!(dual > 2.0 * alone, "{dual} with far memory, {alone} without");
}

/// The modules go where they fit, are divided by the rules of provisioning, and share what they can.
#[test]
fn persistent_modules_are_planned_by_goals_that_provisioning_allows() {
    let server = "sockets = 2\ncores = 32\ndimm_slots = 12\nchannels = 6\nbays = 8\ndram = 'ddr4-2666'\ndimms = ['4GiB']\nreserve = '1GiB'\n\
                  have = ['12x4GiB', 'nvme-p4510']\noffer = ['dcpmm100-128g', 'nvme-p4510']\n";
    let prices = [price("ddr4-2666", 6.0), price("nvme-p4510", 0.15), price("dcpmm100-128g", 6.0)];
    let mut asked = request(hour(Shape::Zipf { skew: 0.6 }), server, &prices, Target::default());
    asked.commits = Some(Commits { per_s: 2000.0, bytes: 700.0 });
    asked.target.p99_commit_s = Some(20e-6);
    let plan = report(asked, &prices);
    assert_eq!(plan.answer, Answer::Buy, "{}", plan.says);
    let chosen = &plan.mixes[plan.chosen.expect("one")];
    assert!(["app-direct", "dual"].contains(&chosen.mode.as_str()), "{}", chosen.name);
    assert!(chosen.settings.contains("journal = \"pmem\""), "{}", chosen.settings);
    assert!(chosen.commands.iter().any(|command| command.contains("ipmctl create")), "{:?}", chosen.commands);
    assert!(plan.considered.left_out.iter().any(|(why, _)| why.contains("memory=100")), "{:?}", plan.considered);
    let population = plan.sure.iter().find(|sure| sure.what == "population of the slots").expect("M18: told");
    assert!(
        population.error == "not checked" && population.because.contains("modules of DRAM beside"),
        "{population:?}"
    );
}

#[test]
fn a_sizing_is_a_plan_that_says_what_it_assumes() {
    let input = SizingInput {
        messages_per_day: 1e6,
        message_bytes: 2048.0,
        retention_days: 90.0,
        queries_per_day: 1000.0,
        query_pages: 50,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let sized = sizing(&input, folder.path()).expect("a sizing");
    // 1e6 x 90 x (2 x 2048 + 1024); a tenth of them in an hour, two commits each.
    assert_eq!(sized.data_bytes, 460_800_000_000);
    assert!((sized.commits.per_s - 1e5 / 3600.0 * 2.0).abs() < 1e-6 && (sized.commits.bytes - 2757.6).abs() < 1e-6);
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let target = Target { p99_commit_s: Some(1e-3), ..Target::default() };
    let mut asked = request(sized.source, SERVER, &prices, target);
    (asked.short, asked.commits, asked.data_bytes, asked.assumed) =
        (Shortness::Take, Some(sized.commits), Some(sized.data_bytes), sized.sure);
    asked.scale = sized.scale;
    let plan = report(asked, &prices);
    assert_eq!((plan.answer, plan.workloads[0].kind.as_str()), (Answer::Buy, "sizing"), "{}", plan.says);
    assert!(plan.sure[0].error.contains("not measured") && plan.refused.is_empty());
    for wrong in [
        SizingInput { messages_per_day: 0.0, ..input },
        SizingInput { message_bytes: f64::NAN, ..input },
        SizingInput { retention_days: 1e9, ..input },
        SizingInput { query_pages: 0, ..input },
        SizingInput { messages_per_day: 1e10, message_bytes: 6e7, retention_days: 3e4, ..input },
    ] {
        assert!(sizing(&wrong, folder.path()).is_err(), "{wrong:?}");
    }
}

/// 64 MiB of pages stand for 4 GiB: the page cache of 1.5 GiB is one of 24 MiB.
#[test]
fn the_real_page_cache_finds_what_the_plan_predicts() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let server = SERVER.replace("reserve = '1GiB'", "reserve = '512MiB'");
    let mut asked = request(pages(), &server, &prices, reads_within(1e-6));
    (asked.scale, asked.short) = (64.0, Shortness::Take);
    let planning = Planning::of(asked).expect("a plan");
    let plan = planning.report(&prices).expect("a report");
    let runs = planning.verify(&plan, None).expect("runs");
    assert!(runs.len() >= 8 && runs.iter().all(|run| run.refused.is_none()), "{runs:?}");
    for run in &runs {
        let (error, bound) = match run.unit.as_str() {
            "percent" => (run.error_points, 2.0),
            _ => (run.error_percent, 15.0),
        };
        assert!(error.expect("of its unit").abs() <= bound, "{run:?}");
        let (predicted, measured) = run.predicted.zip(run.measured).expect("figures");
        let percent = (measured > 1e-9).then(|| (predicted / measured - 1.0) * 100.0);
        let is_same = run.error_percent.zip(percent).is_none_or(|(one, two)| (one - two).abs() < 1e-6);
        assert!(is_same && run.error_percent.is_some() == percent.is_some(), "percent of what was measured: {run:?}");
    }
    assert!(runs.iter().any(|one| one.name == "read from the drives" && one.measured > Some(10.0)), "{runs:?}");
    let objects = Planning::of(request(hour(Shape::Loop), SERVER, &prices, Target::default())).expect("a plan");
    let error = objects.verify(&objects.report(&prices).expect("a report"), None).expect_err("objects").to_string();
    assert!(error.contains("this profile has objects"), "{error}");
}

/// H1: one commit each minute among many accesses has a percentile all the same, and none within a nanosecond.
#[test]
fn a_time_that_nothing_meets_is_not_met_by_a_load_with_few_commits() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15)];
    let target = Target { p99_commit_s: Some(1e-9), ..Target::default() };
    let mut asked = request(hour(Shape::Zipf { skew: 0.6 }), SERVER, &prices, target);
    asked.commits = Some(Commits { per_s: 1.0 / 60.0, bytes: 500.0 });
    let plan = report(asked, &prices);
    assert_eq!(plan.answer, Answer::NothingMeetsIt, "{}", plan.says);
    assert!(plan.mixes.iter().all(|mix| !mix.meets_target && mix.p99_commit_s.is_some()));
}

/// H2: the worst minute is one, whether its burst is at its begin or at its end: of 400,000 accesses each fourth is kept.
#[test]
fn a_long_minute_is_thinned_and_not_cut_off() {
    let burst = |is_first: bool| {
        let minute = |at: u64| {
            let (slow, fast) = (0..100_000u64, 0..300_000u64);
            let low = slow.map(move |number| number * 400);
            let high = fast.map(move |number| number * 66);
            let (first, second, half) = match is_first {
                true => (high.collect::<Vec<u64>>(), low.collect::<Vec<u64>>(), 20_000_000),
                false => (low.collect(), high.collect(), 40_000_000),
            };
            first.into_iter().chain(second.into_iter().map(move |time| time + half)).map(move |time| at + time)
        };
        let folder = tempfile::tempdir().expect("a folder");
        let mut recorder =
            Recorder::new(RecorderOptions::new(Salt::of_seed(3), &["object"], 8192, folder.path())).expect("options");
        for (number, time_us) in (0u64..).zip(minute(0).chain([60_000_001])) {
            let access = Access { time_us, key: number % 50, bytes: 8192, structure: 0, is_write: false };
            recorder.record(access).expect("records");
        }
        let origin = Origin {
            kind: "test".into(),
            made_by: "a test".into(),
            keys: "object".into(),
            bad_lines: 0,
            other_requests: 0,
            flushes: None,
            times_back: 0,
        };
        let mut file = Vec::new();
        recorder.finish(origin, &[Lack::Flushes, Lack::Journal, Lack::Cpu], &mut file).expect("writes");
        let source = ProfileSource::Bytes("test".into(), file.into());
        let planning = Planning::of(request(source, SERVER, &[], Target::default())).expect("a plan");
        let in_first_half = planning.served.minute.accesses.iter().filter(|one| one.at_ns < 20_000_000_000).count();
        (planning.served.minute.every, planning.served.minute.accesses.len(), in_first_half)
    };
    let (every, all, in_burst) = burst(true);
    assert_eq!((every, all), (4, 100_000));
    assert!((74_000..=76_000).contains(&in_burst), "{in_burst}");
    let (every, all, before_it) = burst(false);
    assert_eq!((every, all), (4, 100_000));
    assert!((12_000..=13_000).contains(&before_it), "{before_it}");
}

/// H3: 300,000 accesses a minute are compressed five times. 10 s with 12,000 reads a second, of which the drive does 7,640 of 400 KB, leave a
/// backlog of several seconds, which compressed times would divide by five.
#[test]
fn a_burst_that_is_compressed_keeps_the_backlog_that_it_leaves() {
    let (dram, drive) = (model("ddr4-2666", 6), model("nvme-p4510", 1));
    let media = ReplayMedia {
        near: ReplayMedium { model: &dram, budget: Budget::new(&dram) },
        far: None,
        data: ReplayMedium { model: &drive, budget: Budget::new(&drive) },
        journal: ReplayMedium { model: &drive, budget: Budget::new(&drive) },
    };
    let bytes = 400_000;
    let slow = (0..180_000u64).map(|number| number * 277_777);
    let fast = (0..120_000u64).map(|number| 50_000_000_000 + number * 83_333);
    let accesses: Vec<MinuteAccess> =
        slow.chain(fast).map(|at_ns| MinuteAccess { at_ns, bytes, is_write: false }).collect();
    let found = vec![2; accesses.len()];
    let load = ReplayLoad {
        accesses: &accesses,
        found: &found,
        seconds: 60.0,
        stands_for: 1.0,
        faster: 1.0,
        write_back_bytes: 0.0,
        image_bytes: 0.0,
        beside: &[],
        write_back_unit: 8192,
        promote: 0.1,
        journal_pattern: Pattern::Sequential,
        commits: None,
        processors: None,
    };
    let got = replay(&media, &load);
    // 3 GB/s do 7,500 a second: (12,000 - 7,500) x 10 / 7,500 = 6 s at the end.
    assert!(got.squeeze < 0.25 && (5.0..6.5).contains(&got.p99_read_s), "{got:?}");
}

/// H4: DDR4 is cheaper today. Modules in Memory Mode are the answer when it costs more, and that is found within half to three times its price.
#[test]
fn a_mix_that_is_dearer_today_is_found_when_the_price_changes() {
    let prices = [price("ddr5", 10.0), price("nvme-p4510", 0.15), price("cxl-expander", 2.5)];
    let plan = report(request(hour(Shape::Zipf { skew: 0.6 }), SERVER, &prices, reads_within(5e-3)), &prices);
    let chosen = &plan.mixes[plan.chosen.expect("one")];
    assert!(chosen.parts.iter().all(|part| part.medium != "cxl-expander"), "{}", chosen.name);
    // 32 GB of DRAM against 16 GB and a card of 96 GB: 16 x 10 x f = 240 at f = 1.5.
    let flip = plan.flips.iter().find(|flip| flip.medium == "ddr5" && flip.factor > 1.0).expect("a flip");
    assert!((flip.factor - 1.5).abs() < 1e-9 && flip.to_name.contains("cxl-expander"), "{flip:?}");
}

pub(super) const CLOUD: &str = "sockets = 1\ncores = 8\nvolumes = true\nreserve = '1GiB'\noffer = ['ebs-io2bx']\n";

pub(super) fn rented(medium: &str, value: f64, unit: PriceUnit) -> Price {
    Price { unit, ..price(medium, value) }
}

/// H5, H6: a volume is rented by what is on it and what it does, and does no more than that.
#[test]
fn volumes_are_rented_by_their_data_and_operations() {
    let prices =
        [rented("ebs-io2bx", 0.125, PriceUnit::PerGbMonth), rented("ebs-io2bx", 0.065, PriceUnit::PerIopsMonth)];
    let server = format!("{CLOUD}[[instance]]\nname = 'm'\ncores = 8\nmemory = '8GiB'\nusd_per_month = 100\n");
    let mut asked = request(hour(Shape::Zipf { skew: 0.6 }), &server, &prices, Target::default());
    asked.data_bytes = Some(100_000_000_000);
    let planning = Planning::of(asked).expect("a plan");
    let plan = planning.report(&prices).expect("a report");
    let mix = &plan.mixes[0];
    let volume = mix.parts.iter().find(|part| part.medium == "ebs-io2bx").expect("a volume");
    assert!((volume.gb - 100.0).abs() < 1e-6, "{volume:?}");
    let one = &planning.kept[0];
    let iops = planning.volumes(&one.mix, &one.cache).data_iops;
    let wanted = 36.0 * (100.0 * 0.125 + iops.ceil() * 0.065);
    assert!((volume.usd.expect("priced").expected - wanted).abs() < 1e-6, "{volume:?} instead of {wanted}");
    assert!((mix.usd.expect("priced").expected - wanted - 3600.0).abs() < 1e-6);
    let does = mix.wasted.iter().find(|waste| waste.unit == "IOPS").expect("operations").bought;
    assert!((does - iops.max(100.0)).abs() < 1.0, "{does} instead of {iops}");
}

/// H7: three modules do not go into two slots.
#[test]
fn a_module_for_the_journal_takes_a_slot() {
    let server = |slots: u32| {
        format!(
            "sockets = 1\ncores = 8\ndimm_slots = {slots}\nchannels = 2\nbays = 2\nreserve = '1GiB'\ndram = 'ddr4-2666'\n\
                 dimms = ['16GiB']\noffer = ['nvdimm-n', 'nvme-p4510']\n"
        )
    };
    let journals = |slots: u32| {
        let mut asked = request(hour(Shape::Zipf { skew: 0.6 }), &server(slots), &[], Target::default());
        asked.commits = Some(Commits { per_s: 100.0, bytes: 500.0 });
        let planning = Planning::of(asked).expect("a plan");
        let modules = |mix: &super::Mix| mix.near.modules.iter().map(|(count, _)| *count).sum::<u32>();
        let with = planning.placed.iter().filter(|(mix, _)| {
            matches!(mix.journal, super::JournalPart::Own(supply, _) if planning.supplies[supply].medium.name == "nvdimm-n")
        });
        with.map(|(mix, _)| modules(mix)).max()
    };
    assert_eq!((journals(2), journals(4)), (Some(1), Some(2)));
}

/// H9: a larger machine of a cloud has more processors, too.
#[test]
fn a_machine_of_a_cloud_is_chosen_for_its_processors() {
    let prices = [rented("ebs-io2bx", 0.125, PriceUnit::PerGbMonth), rented("ebs-io2bx", 0.0, PriceUnit::PerIopsMonth)];
    let server = format!(
        "{CLOUD}[[instance]]\nname = 'small'\ncores = 4\nmemory = '32GiB'\nusd_per_month = 100\n\
         [[instance]]\nname = 'many-cores'\ncores = 64\nmemory = '256GiB'\nusd_per_month = 900\n"
    );
    let mut asked = request(hour(Shape::Zipf { skew: 0.6 }), &server, &prices, reads_within(1.0));
    asked.cpu_s = Some(0.5);
    let plan = report(asked, &prices);
    assert_eq!(plan.answer, Answer::Buy, "{}", plan.says);
    assert!(plan.mixes[plan.chosen.expect("one")].name.starts_with("many-cores"), "{}", plan.says);
}
