//! Tests of every mode and every refusal, as tables: settings as in the file, and their results.

use std::path::Path;
use std::sync::Arc;

use device::near::{NearCache, Policy};
use device::{Device, MemoryShelf, Shelf};

use super::*;

const GIB: u64 = 1 << 30;

/// A journal with a limit of 16 GiB and four segments of 64 MiB, which are the defaults.
fn needs() -> Needs {
    Needs { home: PathBuf::from("/data/node"), journal_bytes: 16 * GIB + (256 << 20) }
}

/// A catalogue with three media.
fn medium(name: &str) -> Result<MediumFacts, String> {
    match name {
        "pm-128g" => Ok(MediumFacts { acts_as: ActsAs::Pmem, capacity: Some(128 * GIB), modules: 1 }),
        "ssd" => Ok(MediumFacts { acts_as: ActsAs::Drive, capacity: Some(375 * GIB), modules: 1 }),
        "cxl" => Ok(MediumFacts { acts_as: ActsAs::Memory, capacity: None, modules: 1 }),
        _ => Err(format!("no medium is called {name}: there are pm-128g, ssd, cxl")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mode: Option<Mode>,
    #[serde(default)]
    tiers: BTreeMap<String, TierSettings>,
    #[serde(default)]
    placement: PlacementSettings,
}

fn place(text: &str) -> Result<Placement, PlacementError> {
    let File { mode, tiers, placement } = toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Placement::of(&Settings { mode, tiers, placement }, &needs(), &medium)
}

/// Structures and tiers, in the order of listings: `cache=dram journal=home`.
fn seats(text: &str) -> String {
    let placement = place(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    placement.seats().map(|s| format!("{}={}", s.structure.key(), s.tier)).collect::<Vec<_>>().join(" ")
}

const DRAM: &str = "[tiers.dram]\nkind = \"memory\"\nbytes = \"16 GiB\"\n";
const PMEM: &str = "[tiers.pm]\nkind = \"pmem\"\npath = \"/mnt/pmem0\"\nbytes = \"128 GiB\"\n";
const NVME: &str = "[tiers.nvme]\nkind = \"file\"\npath = \"/mnt/nvme\"\n";

fn with(mode: &str, tiers: &[&str], placement: &str) -> String {
    let mode = if mode.is_empty() { String::new() } else { format!("mode = \"{mode}\"\n") };
    format!("{mode}{}[placement]\n{placement}\n", tiers.concat())
}

#[test]
fn every_mode_expands_as_its_row_says_and_a_key_wins_over_it() {
    let all = &[DRAM, PMEM, NVME][..];
    let journals = "write_image_journal=nvme data=nvme";
    for (mode, tiers, placement, wanted) in [
        ("", &[][..], "", "journal=home".to_owned()),
        ("", all, "", "journal=home".to_owned()),
        ("", all, "journal = \"pm\"", "journal=pm".to_owned()),
        ("dram", &[], "", "cache=dram journal=home write_image_journal=home data=home".to_owned()),
        ("dram", all, "", format!("cache=dram journal=nvme {journals}")),
        ("memory", all, "", format!("cache=dram far=pm journal=nvme {journals}")),
        ("app-direct", all, "", format!("cache=dram journal=pm {journals}")),
        ("app-direct", &[PMEM], "", "cache=dram journal=pm write_image_journal=home data=home".to_owned()),
        (
            "app-direct",
            all,
            "write_image_journal = \"pm\"",
            "cache=dram journal=pm write_image_journal=pm data=nvme".to_owned(),
        ),
        ("dual", all, "", "cache=dram far=pm journal=pm write_image_journal=pm data=nvme".to_owned()),
        (
            "dual",
            all,
            "journal = \"home\"",
            "cache=dram far=pm journal=home write_image_journal=pm data=nvme".to_owned(),
        ),
        (
            "dram",
            all,
            "data = \"pm\"\nfiles = \"nvme\"",
            "cache=dram journal=nvme write_image_journal=nvme data=pm files=nvme".to_owned(),
        ),
    ] {
        assert_eq!(seats(&with(mode, tiers, placement)), wanted, "{mode} {placement}");
    }
}

#[test]
fn a_tier_counts_as_what_its_model_is_and_memory_of_another_node_can_be_far() {
    let ssd = "[tiers.optane]\nkind = \"pmem\"\npath = \"/p\"\nmodel = \"ssd\"\nabsent = \"emulate\"\n";
    assert_eq!(seats(&with("dram", &[ssd], "")), "cache=dram journal=optane write_image_journal=optane data=optane");
    let cxl = "[tiers.cxl]\nkind = \"memory\"\nnode = 1\nbytes = \"64 GiB\"\n";
    assert_eq!(
        seats(&with("memory", &[DRAM, cxl], "far = \"cxl\"")),
        "cache=dram far=cxl journal=home write_image_journal=home data=home"
    );
}

#[test]
fn far_memory_that_a_key_has_placed_may_be_smaller_than_near_memory() {
    let cxl = "[tiers.cxl]\nkind = \"memory\"\nnode = 1\nbytes = \"8 GiB\"\n";
    assert_eq!(seats(&with("", &[DRAM, cxl], "cache = \"dram\"\nfar = \"cxl\"")), "cache=dram far=cxl journal=home");
}

#[test]
fn seats_know_their_folders_sizes_reasons_and_what_waits_for_the_page_store() {
    let text = with("dual", &[DRAM, PMEM], "write_image_journal_bytes = \"4 GiB\"\n[placement.files_of]\nlab = \"pm\"");
    let placement = place(&text).expect("it fits");
    let seat = |structure| placement.seat(structure).expect("it is placed");
    assert_eq!(seat(Structure::Journal).folder.as_deref(), Some(Path::new("/mnt/pmem0/journal")));
    assert_eq!(seat(Structure::Data).folder.as_deref(), Some(Path::new("/data/node/pages")));
    assert_eq!(seat(Structure::Cache).folder, None);
    assert_eq!(seat(Structure::Cache).bytes, Some(16 * GIB));
    assert_eq!(seat(Structure::Journal).bytes, Some(needs().journal_bytes));
    assert_eq!(seat(Structure::Far).bytes, Some(128 * GIB - 4 * GIB - needs().journal_bytes), "the rest");
    assert_eq!(seat(Structure::Journal).because, Because::Mode);
    assert_eq!(placement.files_of()["lab"], Path::new("/mnt/pmem0/files"));
    let shared: Vec<Structure> = placement.on_tier("pm").collect();
    assert_eq!(shared, [Structure::Far, Structure::Journal, Structure::WriteImageJournal], "one budget");
    let home = place("").expect("nothing is asked for");
    assert_eq!(home.journal().folder.as_deref(), Some(Path::new("/data/node/journal")));
    assert_eq!(home.journal().because, Because::Default);
}

#[test]
fn index_files_lie_where_a_key_says_also_on_memory_and_no_mode_places_them() {
    for (mode, tier, folder) in [
        ("", "nvme", Some("/mnt/nvme/search")),
        ("", "pm", Some("/mnt/pmem0/search")),
        ("", "home", Some("/data/node/search")),
        ("app-direct", "pm", Some("/mnt/pmem0/search")),
        // They are made again from the documents.
        ("", "dram", None),
    ] {
        let text = with(mode, &[DRAM, PMEM, NVME], &format!("search = \"{tier}\""));
        let placement = place(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let seat = placement.seat(Structure::Search).expect("it is placed");
        assert_eq!((&*seat.tier, seat.because), (tier, Because::Setting));
        assert_eq!(seat.folder.as_deref(), folder.map(Path::new), "{tier}");
    }
    let two = place(&with("", &[DRAM, PMEM, NVME], "search = \"pm\"\nsearch_capacity = \"nvme\"")).expect("it fits");
    let seat = |structure| two.seat(structure).and_then(|seat| seat.folder.as_deref());
    assert_eq!(seat(Structure::Search), Some(Path::new("/mnt/pmem0/search")));
    assert_eq!(seat(Structure::SearchCapacity), Some(Path::new("/mnt/nvme/search-capacity")));
    for mode in ["", "dram", "memory", "app-direct"] {
        let placement = place(&with(mode, &[DRAM, PMEM, NVME], "")).expect("it fits");
        assert!(placement.seat(Structure::Search).is_none(), "{mode}: in the folder of [search]");
    }
}

#[test]
fn every_wrong_tier_is_refused_with_what_to_change() {
    for (text, says) in [
        ("[tiers.a]\nkind = \"nbd\"\n", "needs `uri`"),
        ("[tiers.a]\nkind = \"volume\"\n", "needs `volume`"),
        ("[tiers.a]\nkind = \"nbd\"\nuri = \"nbd://h/x\"\npath = \"/a\"\n", "`path` belongs to kind pmem or file"),
        ("[tiers.a]\nkind = \"file\"\npath = \"/a\"\nvolume = \"v\"\n", "`volume` belongs to kind volume"),
        (
            "[tiers.a]\nkind = \"volume\"\nvolume = \"v\"\n[tiers.b]\nkind = \"volume\"\nvolume = \"v\"\n",
            "a and b have the same path",
        ),
        ("[tiers.a]\nkind = \"file\"\n", "needs `path`"),
        ("[tiers.a]\nkind = \"pmem\"\n", "needs `path`"),
        ("[tiers.a]\nkind = \"memory\"\npath = \"/a\"\n", "a tier has one kind"),
        ("[tiers.a]\nkind = \"file\"\npath = \"/a\"\nnode = 1\n", "`node` belongs to kind memory"),
        ("[tiers.a]\nkind = \"file\"\npath = \"/a\"\nabsent = \"pages\"\n", "`absent` belongs to kind pmem"),
        ("[tiers.home]\nkind = \"file\"\npath = \"/a\"\n", "`home` stands for the node's data directory"),
        (
            "[tiers.a]\nkind = \"file\"\npath = \"/a\"\n[tiers.b]\nkind = \"pmem\"\npath = \"/a\"\n",
            "a and b have the same path",
        ),
        ("[tiers.a]\nkind = \"file\"\npath = \"/data/node\"\n", "a and home have the same path"),
        ("[tiers.a]\nkind = \"file\"\npath = \"/a\"\nmodel = \"x\"\n", "no medium is called x: there are pm-128g"),
        ("[tiers.a]\nkind = \"file\"\npath = \"/a\"\nmodules = 6\n", "needs `model`"),
        ("[tiers.a]\nkind = \"file\"\npath = \"/a\"\nmodel = \"ssd\"\nmodules = 0\n", "at least 1"),
        (
            "[tiers.a]\nkind = \"pmem\"\npath = \"/a\"\nmodel = \"pm-128g\"\nmodules = 2\nbytes = \"257 GiB\"\n",
            "2 x pm-128g hold 256 GiB: lower `bytes` or raise `modules`",
        ),
        ("[tiers.a]\nkind = \"memory\"\nbytes = \"0 B\"\n", "tiers.a.bytes is 0 bytes"),
    ] {
        let error = place(text).expect_err(text);
        assert!(error.to_string().contains(says), "{text}\n{error}");
    }
}

#[test]
fn every_wrong_placement_is_refused_with_what_to_change() {
    let all = &[DRAM, PMEM, NVME][..];
    let second = "[tiers.pm2]\nkind = \"pmem\"\npath = \"/mnt/pmem1\"\n";
    let small = "[tiers.pm]\nkind = \"pmem\"\npath = \"/p\"\nbytes = \"16 GiB\"\n";
    let open = "[tiers.pm]\nkind = \"pmem\"\npath = \"/p\"\n";
    let slowed = "[tiers.slow]\nkind = \"memory\"\nmodel = \"cxl\"\n";
    for (mode, tiers, placement, says) in [
        (
            "",
            all,
            "journal = \"pmm\"",
            "placement.journal names tier `pmm`, which is not declared; there are: dram, home, nvme, pm",
        ),
        ("", all, "[placement.files_of]\nlab = \"x\"", "placement.files_of.lab names tier `x`"),
        ("app-direct", &[DRAM], "", "mode app-direct places the journal on persistent memory, and no tier is"),
        ("app-direct", &[PMEM, second], "", "any of pm, pm2: say which with placement.journal"),
        ("", all, "journal = \"dram\"", "every acknowledgement would be false after a crash"),
        ("", all, "data = \"dram\"", "allow_volatile = true"),
        ("", all, "cache = \"nvme\"", "the cache cannot lie on tier nvme"),
        ("", &[slowed], "cache = \"slow\"", "near memory is never slowed down"),
        ("", all, "cache = \"dram\"\nfar = \"nvme\"", "needs byte-addressable memory"),
        ("", all, "files = \"dram\"", "the service files cannot lie on tier dram: it needs a folder"),
        ("", all, "[placement.files_of]\nlab = \"dram\"", "needs a folder"),
        ("", all, "far = \"pm\"", "far memory needs a cache in front of it"),
        ("", all, "cache = \"dram\"\nfar = \"dram\"", "on another tier"),
        ("memory", &[PMEM], "", "tier dram needs `bytes`: the near:far ratio"),
        ("memory", &[DRAM, open], "", "tier pm needs `bytes`: the near:far ratio"),
        ("dual", &[DRAM, open], "", "tier pm needs `bytes`: far memory shares it"),
        ("dual", &[DRAM, small], "", "tier pm has 16 GiB, and far memory (the rest) and journal 16.2 GiB do not fit"),
        ("dual", all, "far_bytes = \"120 GiB\"", "lower placement.far_bytes or journal.limit"),
        ("app-direct", &[small], "", "do not fit: give the tier more `bytes`, or lower journal.limit"),
        ("dram", all, "cache_bytes = \"17 GiB\"", "tier dram has 16 GiB, and cache 17 GiB do not fit"),
        ("memory", all, "cache_bytes = \"0 B\"", "placement.cache_bytes is 0 bytes"),
        ("memory", all, "ratio_limit = 0", "is 1 to 64; it is 0"),
        ("memory", all, "ratio_limit = 65", "is 1 to 64; it is 65"),
        ("memory", all, "far_bytes = \"8 GiB\"", "near memory of 16 GiB is larger than the far memory of 8 GiB"),
    ] {
        let text = with(mode, tiers, placement);
        let error = place(&text).expect_err(&text);
        assert!(error.to_string().contains(says), "{text}\n{error}");
    }
}

#[test]
fn the_size_of_a_structure_that_nothing_places_is_refused() {
    let all = &[DRAM, PMEM, NVME][..];
    for (mode, placement, says) in [
        ("", "cache_bytes = \"8 GiB\"", "placement.cache_bytes is the size of the cache, and nothing places the cache"),
        ("", "far_bytes = \"8 GiB\"", "add placement.far, or a mode that places it"),
        ("dram", "far_bytes = \"8 GiB\"", "nothing places the far memory"),
        ("", "write_image_journal_bytes = \"8 GiB\"", "nothing places the write image journal"),
    ] {
        let text = with(mode, all, placement);
        let error = place(&text).expect_err(&text).to_string();
        assert!(error.contains(says), "{text}\n{error}");
    }
}

#[test]
fn near_memory_below_an_eighth_is_refused_with_the_reason_and_the_ways_out() {
    let ratio = |near: &str, placement: &str| {
        let dram = format!("[tiers.dram]\nkind = \"memory\"\nbytes = \"{near}\"\n");
        place(&with("memory", &[&dram, PMEM], placement))
    };
    ratio("16 GiB", "").expect("1:8 is the limit, and inside it");
    ratio("8 GiB", "ratio_limit = 16").expect("the limit is a policy");
    ratio("8 GiB", "far_bytes = \"64 GiB\"").expect("a smaller far memory");
    let error = ratio("10 GiB", "").expect_err("1:12.8");
    assert!(matches!(error, PlacementError::Ratio { limit: 8, .. }), "{error}");
    let text = error.to_string();
    for says in [
        "1:12.8, beyond the limit 1:8",
        "contend for one slot",
        "Raise the cache's bytes to 16 GiB",
        "lower placement.far_bytes to 80 GiB",
        "raise placement.ratio_limit",
        "up to 1:16",
    ] {
        assert!(text.contains(says), "`{says}` is not in: {text}");
    }
}

#[test]
fn a_journal_in_memory_is_taken_where_it_is_asked_for_by_name() {
    let placement = place(&with("", &[DRAM], "journal = \"dram\"\nallow_volatile = true"));
    // 16 GiB and the segments do not fit into a tier of 16 GiB.
    assert!(matches!(placement, Err(PlacementError::DoesNotFit { .. })), "{placement:?}");
    let placement = place(&with("", &[], "journal = \"dram\"\nallow_volatile = true")).expect("asked for");
    assert_eq!(placement.journal().folder, None);
    assert!(placement.tiers.get("dram").expect("the machine's memory").is_volatile());
}

#[test]
fn unknown_keys_and_modes_are_errors() {
    for text in ["[tiers.a]\nkind = \"file\"\npaht = \"/a\"\n", "mode = \"appdirect\"\n", "[placement]\nwij = \"a\"\n"]
    {
        assert!(toml::from_str::<File>(text).is_err(), "{text}");
    }
}

/// The time in nanoseconds of 200 records of 4 KiB in a journal while far memory is read and written, on the modules of
/// the journal or on others.
fn journal_beside_far_memory(shared: bool) -> f64 {
    let model = crate::Model::of(&crate::Medium::find("dcpmm100-256g").expect("built in"), 1).expect("a model");
    let clock = crate::VirtualClock::new();
    let journals = crate::Budget::new(&model);
    let fars = if shared { Arc::clone(&journals) } else { crate::Budget::new(&model) };
    let on = |budget: &Arc<crate::Budget>, bytes: u64| {
        let timing = crate::Timing::Accounted(Arc::clone(&clock));
        let shelf = crate::ModelShelf::new(Arc::new(MemoryShelf::new()), model.clone(), Arc::clone(budget), timing);
        shelf.create("device", bytes).expect("memory")
    };
    let (journal, far) = (on(&journals, 1 << 20), on(&fars, 4 << 20));
    let near = MemoryShelf::new().create("near", 512 << 10).expect("memory");
    let memory = NearCache::new(near, far, Policy::DirectMapped);
    let page = vec![1; 4096];
    for step in 0..200u64 {
        clock.as_queue(1, || journal.write_flush(step % 256 * 4096, &page).expect("it writes"));
        // Each page evicts a dirty one, so each causes a read and a write of far memory, at full speed.
        while clock.now_of(2) < clock.now_of(1) {
            let page_number = memory.stats().writes % 1024;
            clock.as_queue(2, || memory.write(page_number * 4096, &page).expect("it writes"));
        }
    }
    clock.now_of(1)
}

#[test]
fn in_dual_mode_far_memory_takes_from_the_bandwidth_of_the_journal() {
    let (dual, apart) = (journal_beside_far_memory(true), journal_beside_far_memory(false));
    assert!(dual > apart * 1.3, "{dual:.0} ns on the same modules, {apart:.0} ns on others");
}
