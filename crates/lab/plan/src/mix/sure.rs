//! How sure the figures of a plan are: what each rests on, and an error only where something backs it.

use super::mixes::rooms_tried;
use super::parts::JOURNAL_GB;
use super::planning::{PlannedMix, Planning};
use super::report::SureReport;
use super::supply::{Duty, Plug, Supply};
use crate::profile::Lack;

/// What is said where nothing backs an error.
const NOT_KNOWN: &str = "not known";

fn line(what: impl Into<String>, error: impl Into<String>, because: &str) -> SureReport {
    SureReport { what: what.into(), error: error.into(), because: because.into() }
}

/// All that is to be said about a plan with this choice.
pub(super) fn sure(planning: &Planning, chosen: Option<&PlannedMix>) -> Vec<SureReport> {
    let mut sure = planning.request.assumed.clone();
    sure.extend(sure_of_misses(planning));
    let workload = &planning.workload;
    sure.push(line(
        "times of commits, reads, queries",
        NOT_KNOWN,
        "models of published figures: as good as these; not measured on this server",
    ));
    if planning.request.query.is_some() {
        let because =
            "page reads are taken to be independent, and their sum to be normal; processor time is without a queue";
        sure.push(line("p95 of queries", NOT_KNOWN, because));
    }
    if workload.summaries.iter().any(|summary| summary.write_backs.is_none()) {
        let because = "a record without checkpoints: each changed page is taken to be written back once a minute";
        sure.push(line("write-backs", "assumed, not measured", because));
    }
    if workload.commits.is_some() {
        sure.push(line(
            "arrival of commits",
            "as accesses",
            "the journal is not recorded by the minute: commits come as changes do, processor times are exponential",
        ));
    }
    if !workload.has(Lack::Concurrency) {
        sure.push(line(
            "queues",
            "of arrivals at the recorded times",
            "the profile does not say how many requests were in progress: a late answer delays no other one",
        ));
    }
    sure.extend(planning.notes.iter().map(|note| line("times of DRAM", NOT_KNOWN, note)));
    let is_used = |old: &&String| {
        let medium = old.split(':').next().unwrap_or_default();
        medium == planning.request.server.dram || planning.supplies.iter().any(|supply| supply.medium.name == medium)
    };
    sure.extend(planning.request.prices.old().iter().filter(is_used).map(|old| line("prices", "old", old)));
    sure.extend(chosen.into_iter().flat_map(|one| sure_of_media(planning, one)));
    sure
}

/// Of miss ratios. The bounds are those of tests/main/page_cache.rs.
fn sure_of_misses(planning: &Planning) -> Vec<SureReport> {
    let workload = &planning.workload;
    let mut sure = Vec::new();
    let share = workload.stands_for * workload.stream_rate;
    let (error, because) = match (workload.stream_rate < 1.0, (0.8..1.25).contains(&share)) {
        (_, false) => (
            NOT_KNOWN,
            "the sample has far more or fewer accesses than its part: a few keys are most of the work, and count as hits",
        ),
        (true, true) => (
            "within 3 points in tests with a quarter of the keys; of a minute not tested",
            "the policy that runs, on a sample of the keys; two made-up streams beside the page cache",
        ),
        (false, true) => (
            "within 2 points in tests; of a minute not tested",
            "the policy that runs, on all keys; four made-up streams beside the page cache, at eight sizes",
        ),
    };
    sure.push(line("miss ratios", error, because));
    if workload.first_uses > 0.005 {
        let error = format!("up to {:.1} points too high", workload.first_uses * 100.0);
        let because = "so many accesses are first uses: a longer record might find them again";
        sure.push(line("miss ratios, beside", error, because));
    }
    if workload.minute_first_uses > 0.005 {
        let error = format!("up to {:.1} points too high", workload.minute_first_uses * 100.0);
        let because =
            "so many accesses of the worst minute are first uses: the cache is cold there, or the data is read once";
        sure.push(line("misses of the worst minute", error, because));
    }
    let (reuse_s, length_s) = workload.reuse_and_length_s;
    if reuse_s * 3.0 > length_s {
        sure.push(line(
            "miss ratios of large memory",
            "not known: the profile is too short",
            "--take-short: one use in a hundred comes later than a third of the record",
        ));
    }
    sure
}

/// What is not known about the media of the chosen mix, and not checked.
fn sure_of_media(planning: &Planning, one: &PlannedMix) -> Vec<SureReport> {
    let mut sure = Vec::new();
    let mut add = |what: String, error: &str, because: &str| sure.push(line(what, error, because));
    let data = &planning.supplies[one.mix.data.0];
    if data.read_tail_ns().is_none() {
        let because = "no percentile of this medium was published: its own tail is not known, and not in the figure";
        add(format!("p99 on {}", data.medium.name), "queues alone", because);
    }
    if planning.workload.commits.is_some() {
        let because = "processor, journal and their queues: reads of pages before a commit, and tails of the journal's medium, are not in it";
        add("p99 of commits".into(), "a lower bound", because);
    }
    if let Some(squeeze) = one.replayed.map(|replayed| replayed.squeeze).filter(|squeeze| *squeeze < 1.0) {
        let error = format!("up to {:.1} times longer, but on the data drives beyond a second", 1.0 / squeeze);
        let because = "the worst minute has more accesses than are replayed: its times are compressed, and what piles up from second to \
                       second is added for the data drives alone, not for processors, memory and a journal of its own";
        add("queues of bursts".into(), &error, because);
    }
    let (_, drives) = one.mix.data;
    if drives > 1 && data.plug == Plug::Bay {
        let because = "data is striped without a copy";
        add("loss of a drive".into(), "all data", because);
    }
    if one.mix.room > 0 {
        add("rented operations".into(), "three steps", &rooms_tried());
    } else if data.plug == Plug::Network {
        let because =
            "it is owned, or there is no price of its operations: none is paid for them, and none limits them";
        add(format!("operations of {}", data.medium.name), "all that it can do", because);
    }
    sure.extend(sure_of_purchase(planning, one));
    sure
}

/// What is not known about buying it.
fn sure_of_purchase(planning: &Planning, one: &PlannedMix) -> Vec<SureReport> {
    let mut sure = Vec::new();
    let mut add = |what: String, error: &str, because: &str| sure.push(line(what, error, because));
    if planning.request.data_bytes.is_none() {
        let because = "without --data-bytes only what the record used is stored";
        add("bytes that are stored".into(), "a lower bound", because);
    }
    for (medium, wear) in planning.wear(&one.mix) {
        let rated = wear.allowed_bytes_per_day.map_or("not known: no rating was published".to_owned(), |allowed| {
            format!("{:.2} times what it is rated for", wear.written_bytes_per_day / allowed)
        });
        let because =
            "bytes as the node writes them: what a drive writes beside these is in its own rating, or not known";
        add(format!("endurance of {medium}"), &rated, because);
    }
    for load in &planning.workload.beside {
        let because = "beside the page cache: taken to be on the data drives, with the memory that it had; its own times are not planned";
        let error = format!("{:.0} reads/s, {:.0} writes/s in the worst minute", load.reads_per_s, load.writes_per_s);
        add(load.name.clone(), &error, because);
    }
    if planning.request.prices.usd_per_gb(&planning.request.server.dram).is_some() {
        let because = "one price for a GB is taken for modules of all sizes";
        add(format!("price of {}", planning.request.server.dram), "by size not known", because);
    }
    if let Some(far) = one.mix.far.as_ref().filter(|far| planning.supplies[far.supply].duty == Duty::Modules) {
        let (dram, modules) = (one.mix.near.modules.iter().map(|(count, _)| count).sum::<u32>(), far.count);
        let because = format!(
            "{dram} modules of DRAM beside {modules} persistent ones, on {} sockets: slots, modes and ratios are checked; ask the server's \
             maker which populations are supported",
            planning.request.server.sockets
        );
        add("population of the slots".into(), "not checked", &because);
    }
    let has_price = |medium: &str| planning.request.prices.usd_per_gb(medium).is_some();
    let is_rented = |supply: &&Supply| supply.plug == Plug::Network && !supply.only_owned;
    if let Some(supply) = planning.supplies.iter().filter(is_rented).find(|supply| !has_price(&supply.medium.name)) {
        let months = planning.request.target.months;
        let because = format!(
            "of a GB of what is stored for {months} months; a journal of its own is taken to have {JOURNAL_GB} GB"
        );
        add(format!("price at which {} would be worth it", supply.medium.name), "of the whole time", &because);
    }
    let far = one.mix.far.iter().map(|far| &planning.supplies[far.supply].medium.name);
    for name in far.filter(|name| *name == "cxl-expander") {
        let because = "one card was measured (250 ns); cards differ (Melody, ASPLOS 2025)";
        add(format!("latency of {name}"), "140 to 410 ns", because);
    }
    sure
}
