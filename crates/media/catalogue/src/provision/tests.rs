//! Tests of provisioning: machines as trees of attributes, wishes, and the resulting plans and refusals.
//!
//! The attributes and values of the tree are those of a QEMU guest with one emulated module of 1 GiB, Linux 6.1,
//! 2026-11-21.

use std::fs;
use std::path::Path;

use super::geometry::{GIB, MIB};
use super::goal::Goal;
use super::machine::{Labels, Machine, Mount, Namespace, NamespaceMode, Region, Series, Synchronous};
use super::plan::{Plan, plan, plan_modelled};
use super::progress::{Next, Progress};
use super::steps::Step;
use super::wish::{Hypothesis, NamespaceWish, Wish};
use super::{ProvisionError, geometry};

/// Writes attributes below a root, one `path = value` on each line.
pub(super) fn tree(lines: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("temporary directory");
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (path, value) = line.split_once(" =").expect("path = value");
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("directories");
        fs::write(path, format!("{}\n", value.trim())).expect("attribute");
    }
    root
}

/// One node, one module whose labels were never written, one disk.
const BLANK: &str = "
    sys/devices/system/node/node0/cpulist = 0
    sys/devices/system/node/node0/meminfo = Node 0 MemTotal:        1946060 kB  Node 0 MemFree:         1869464 kB
    sys/devices/system/node/node0/distance = 10 20
    sys/devices/system/node/node1/cpulist =
    sys/devices/system/node/node1/meminfo = Node 1 MemTotal:         524288 kB  Node 1 MemFree:          520000 kB
    sys/devices/system/node/node1/distance = 20 10
    sys/devices/system/node/possible = 0-1
    sys/bus/nd/devices/ndbus0/provider = ACPI.NFIT
    sys/bus/nd/devices/nmem0/commands = get_size get_data set_data cmd_call
    sys/bus/nd/devices/nmem0/flags =
    sys/bus/nd/devices/nmem0/nfit/handle = 0x1001
    sys/bus/nd/devices/nmem0/nfit/phys_id = 0x0
    sys/bus/nd/devices/region0/devtype = nd_pmem
    sys/bus/nd/devices/region0/nstype = 4
    sys/bus/nd/devices/region0/align = 0x1000000
    sys/bus/nd/devices/region0/size = 1073479680
    sys/bus/nd/devices/region0/available_size = 1056964608
    sys/bus/nd/devices/region0/mappings = 1
    sys/bus/nd/devices/region0/mapping0 = nmem0,0,1073479680,0
    sys/bus/nd/devices/region0/numa_node = 0
    sys/bus/nd/devices/region0/persistence_domain = memory_controller
    sys/bus/nd/devices/namespace0.0/mode = raw
    sys/bus/nd/devices/namespace0.0/size = 1073479680
    sys/bus/nd/devices/namespace0.0/holder =
    sys/bus/nd/devices/namespace0.0/block/pmem0/size = 2096640
    sys/bus/nd/devices/pfn0.0/namespace =
    sys/block/pmem0/size = 2096640
    sys/block/pmem0/queue/dax = 0
    sys/block/vda/size = 1048576
    sys/block/vda/queue/rotational = 1
    sys/block/vda/queue/write_cache = write back
    sys/block/vda/queue/scheduler = [mq-deadline] none
    sys/block/vda/device/model = Some Disk
    sys/block/loop0/size = 2048
    sys/block/nvme10n1/size = 8
    sys/block/nvme2n1/size = 8
    usr/bin/ndctl = a program
    usr/sbin/mkfs.xfs = a program
    usr/sbin/mkfs.ext4 = a program
";

/// The same machine with namespaces; the first one is mounted.
const DIVIDED: &str = "
    sys/bus/nd/devices/nmem0/flags = label
    sys/bus/nd/devices/region0/nstype = 5
    sys/bus/nd/devices/region0/available_size = 251658240
    sys/bus/nd/devices/region0/persistence_domain = cpu_cache
    sys/bus/nd/devices/namespace0.0/mode = memory
    sys/bus/nd/devices/namespace0.0/size = 402653184
    sys/bus/nd/devices/namespace0.0/holder = pfn0.0
    sys/bus/nd/devices/pfn0.0/size = 394264576
    sys/bus/nd/devices/pfn0.0/block/pmem0/size = 770048
    sys/bus/nd/devices/namespace0.1/mode = dax
    sys/bus/nd/devices/namespace0.1/size = 268435456
    sys/bus/nd/devices/namespace0.1/holder = dax0.0
    sys/bus/nd/devices/dax0.0/size = 266338304
    sys/bus/nd/devices/dax0.0/dax0.1/size = 266338304
    sys/bus/nd/devices/namespace0.2/mode = safe
    sys/bus/nd/devices/namespace0.2/size = 134217728
    sys/bus/nd/devices/namespace0.2/holder = btt0.0
    sys/bus/nd/devices/btt0.0/size = 133005312
    sys/bus/nd/devices/btt0.0/block/pmem0.2s/size = 259776
    sys/bus/nd/devices/namespace0.3/size = 0
    sys/bus/dax/devices/dax0.1/size = 266338304
    sys/bus/dax/devices/dax0.1/target_node = 1
    sys/block/pmem0/size = 770048
    sys/block/pmem0/queue/dax = 1
    sys/block/pmem0.2s/size = 259776
    proc/mounts = /dev/pmem0 /mnt/pm\\040em0 xfs rw,dax=always,noquota 0 0
";

fn read(lines: &str) -> Machine {
    let root = tree(lines);
    Machine::read(root.path()).expect("a machine")
}

fn divided() -> Machine {
    // Later lines override earlier ones of the same attribute.
    read(&format!("{BLANK}{DIVIDED}"))
}

#[test]
fn a_machine_is_read_with_its_nodes_modules_regions_disks_and_tools() {
    let machine = read(BLANK);
    assert_eq!(machine.nodes.len(), 2);
    assert_eq!(machine.nodes[0].bytes, 1_946_060 << 10);
    assert_eq!(machine.nodes[0].distances, [10, 20]);
    assert!(!machine.nodes[0].is_far_memory() && machine.nodes[1].is_far_memory());
    assert_eq!((machine.modules[0].socket, machine.modules[0].labels), (Some(1), Labels::Blank));
    let region = &machine.regions[0];
    assert_eq!((region.bytes, region.free_bytes, region.align), (1_073_479_680, 0, 16 * MIB));
    assert_eq!((region.domain(), region.labels, region.modules.as_slice()), ("ADR", true, &["nmem0".to_owned()][..]));
    assert_eq!(machine.namespaces[0].device.as_deref(), Some("pmem0"));
    let disks: Vec<&str> = machine.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(disks, ["nvme2n1", "nvme10n1", "pmem0", "vda"], "numbers by value, no loop devices");
    let vda = &machine.disks[3];
    assert_eq!((vda.bytes, vda.scheduler.as_deref(), vda.rotational), (512 * MIB, Some("mq-deadline"), true));
    assert_eq!(machine.tools, ["ndctl", "mkfs.xfs", "mkfs.ext4"]);
}

#[test]
fn namespaces_are_read_with_their_mode_device_and_what_is_left_of_them() {
    let machine = divided();
    let seen: Vec<(&str, NamespaceMode, Option<&str>, Option<u64>)> = machine
        .namespaces
        .iter()
        .map(|one| (one.name.as_str(), one.mode, one.device.as_deref(), one.usable_bytes))
        .collect();
    assert_eq!(
        seen,
        [
            ("namespace0.0", NamespaceMode::Fsdax, Some("pmem0"), Some(394_264_576)),
            ("namespace0.1", NamespaceMode::Devdax, Some("dax0.1"), Some(266_338_304)),
            ("namespace0.2", NamespaceMode::Sector, Some("pmem0.2s"), Some(133_005_312)),
        ]
    );
    assert_eq!(machine.regions[0].domain(), "eADR");
    assert_eq!(machine.regions[0].free_bytes, 251_658_240);
    assert_eq!(machine.dax[0].target_node, Some(1));
    for namespace in &machine.namespaces {
        let rule = geometry::usable(
            namespace.mode,
            if namespace.mode == NamespaceMode::Devdax { geometry::Map::Mem } else { geometry::Map::Dev },
            namespace.bytes,
        );
        assert_eq!(Some(rule), namespace.usable_bytes, "the rule agrees with the kernel: {namespace:?}");
    }
}

#[test]
fn only_a_mount_with_dax_on_a_device_that_has_it_maps_all_files_synchronously() {
    let with = |line: &str| read(&format!("{BLANK}{DIVIDED}proc/mounts = {line}\n")).mounts;
    let verdict = |line: &str| with(line).first().map(|mount| mount.synchronous);
    assert_eq!(divided().mounts[0].path, "/mnt/pm em0");
    assert_eq!(verdict("/dev/pmem0 /m xfs rw,dax=always 0 0"), Some(Synchronous::Yes));
    assert_eq!(verdict("/dev/pmem0p1 /m ext4 rw,dax 0 0"), Some(Synchronous::Yes));
    assert_eq!(verdict("/dev/pmem0 /m xfs rw,relatime 0 0"), Some(Synchronous::PerFile));
    assert_eq!(verdict("/dev/pmem0 /m xfs rw,dax=never 0 0"), Some(Synchronous::No));
    assert_eq!(verdict("/dev/pmem0.2s /m xfs rw,dax=always 0 0"), Some(Synchronous::No), "BTT is not mapped");
    assert_eq!(verdict("/dev/vda /m ext4 rw,dax=always 0 0"), Some(Synchronous::No));
    assert_eq!(verdict("tmpfs /tmp tmpfs rw 0 0"), None, "no block device");
}

#[test]
fn a_root_without_sys_is_an_error_and_an_empty_sys_a_machine_with_nothing() {
    let root = tempfile::tempdir().expect("temporary directory");
    assert!(matches!(Machine::read(root.path()), Err(ProvisionError::Unreadable { .. })));
    fs::create_dir(root.path().join("sys")).expect("directory");
    assert_eq!(Machine::read(root.path()).expect("nothing"), Machine::default());
    assert!(Machine::read(Path::new("/")).is_ok(), "this machine");
}

pub(super) fn commands(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|step| step.to_text(&plan.names)).collect()
}

fn wish(goal: Option<&str>, namespaces: &str) -> Wish {
    Wish {
        goal: goal.map(|text| Goal::parse(text).expect("a goal")),
        namespaces: NamespaceWish::parse_list(namespaces).expect("namespaces"),
        ..Wish::default()
    }
}

#[test]
fn a_blank_region_is_labelled_looked_at_divided_and_mounted_in_this_order() {
    let planned = plan(&read(BLANK), &wish(None, "fsdax=384MiB,devdax=256MiB,sector=128MiB")).expect("a plan");
    assert_eq!(
        commands(&planned),
        [
            "# (checks that /dev/pmem0 holds nothing but zeros)",
            "ndctl disable-region region0",
            "ndctl init-labels -f nmem0",
            "ndctl enable-region region0",
            "ndctl create-namespace --region=region0 --size=402653184 --mode=fsdax --map=dev",
            "mkfs.xfs -q -f -m reflink=0 /dev/pmem0",
            "mkdir -p /mnt/pmem0",
            "mount -t xfs -o dax=always /dev/pmem0 /mnt/pmem0",
            "ndctl create-namespace --region=region0 --size=268435456 --mode=devdax --map=dev",
            "ndctl create-namespace --region=region0 --size=134217728 --mode=sector",
        ]
    );
    let usable: Vec<u64> = planned.capacities.iter().map(|one| one.usable).collect();
    assert_eq!(usable, [394_264_576, 262_144_000, 133_005_312]);
    assert!(planned.settings.contains("[tiers.pmem0]\nkind = \"pmem\"\npath = \"/mnt/pmem0\"\nabsent = \"refuse\""));
}

#[test]
fn the_rest_of_a_region_is_a_multiple_of_its_alignment_and_leaves_nothing_over() {
    let planned = plan(&read(BLANK), &wish(None, "devdax=100MiB,sector")).expect("a plan");
    let made: Vec<String> = commands(&planned).into_iter().filter(|line| line.contains("create-namespace")).collect();
    assert!(made[0].contains(&format!("--size={}", 96 * MIB)), "{made:?}");
    assert!(made[1].contains(&format!("--size={}", (1008 - 96) * MIB)), "{made:?}");
    assert!(planned.capacities[0].why.contains("rounded down to 16 MiB"));
    assert_eq!(planned.capacities[0].asked, 100 * MIB, "what was asked for stands beside what is left");
}

#[test]
fn modules_without_a_label_area_give_one_namespace_as_a_whole() {
    let machine = read(&BLANK.replace("get_size get_data set_data cmd_call", "cmd_call"));
    let planned = plan(&machine, &wish(None, "fsdax")).expect("a plan");
    assert_eq!(commands(&planned)[1], "ndctl create-namespace -f -e namespace0.0 --mode=fsdax --map=dev");
    let refusal = plan(&machine, &wish(None, "fsdax=384MiB,devdax")).expect_err("cannot be divided").to_string();
    assert!(refusal.contains("keep no labels") && refusal.contains("--namespaces fsdax"), "{refusal}");
}

#[test]
fn what_is_mounted_in_use_or_not_enough_is_never_touched() {
    let mut machine = divided();
    let refusal = |machine: &Machine, wish: &Wish| plan(machine, wish).expect_err("occupied").to_string();
    // 240 MiB are free: a namespace of this size fits beside the existing ones.
    let fits = plan(&machine, &wish(None, "devdax=240MiB")).expect("fits");
    assert!(commands(&fits).iter().all(|line| !line.contains("destroy") && !line.contains("init-labels")));
    assert!(refusal(&machine, &wish(None, "fsdax=256MiB")).contains("full: 240 MiB are free, 256 MiB are needed"));
    let overwrite = Wish { overwrite: vec!["namespace0.0".into()], ..wish(None, "fsdax=512MiB") };
    assert!(refusal(&machine, &overwrite).contains("mounted at /mnt/pm em0"), "told to, but mounted");
    machine.mounts.clear();
    let planned = plan(&machine, &overwrite).expect("a plan");
    assert_eq!(commands(&planned)[0], "ndctl destroy-namespace -f namespace0.0");
    machine.namespaces.retain(|one| one.name == "namespace0.0");
    machine.regions[0].free_bytes = 0;
    let refused = refusal(&machine, &wish(None, "fsdax=128MiB"));
    assert!(refused.contains("--overwrite namespace0.0"), "{refused}");
}

#[test]
fn every_bad_wish_for_a_machine_that_is_there_says_why_and_what_to_change() {
    let cases = [
        (wish(Some("app-direct=100"), "fsdax"), "module nmem0 takes no goal", "leave --goal away"),
        (wish(None, "fsdax=2GiB"), "full: 1008 MiB are free, 2 GiB are needed", "ask for less"),
        (wish(None, "fsdax=4MiB"), "4 MiB is less than 16 MiB", "a multiple of 16 MiB"),
        (wish(None, "fsdax=1008MiB,devdax"), "needed", "ask for less"),
        (
            wish(None, "fsdax=256MiB"),
            "xfs is not made on less than 300 MiB, and 250 MiB are left",
            "--file-system ext4",
        ),
        (Wish { regions: vec!["region7".into()], ..wish(None, "fsdax") }, "there is no region7", "there are: region0"),
    ];
    let mut machine = read(BLANK);
    machine.modules[0].bytes = Some(GIB);
    for (wish, reason, advice) in cases {
        let text = plan(&machine, &wish).expect_err(reason).to_string();
        assert!(text.contains(reason) && text.contains(advice), "{text}");
    }
    machine.tools.clear();
    assert!(plan(&machine, &wish(None, "fsdax")).expect_err("no ndctl").to_string().contains("install ndctl"));
    assert!(plan(&Machine::default(), &wish(None, "fsdax")).expect_err("nothing").to_string().contains("--model DIR"));
}

fn invented(modules: &str, dram: u64, sockets: u32, series: Series) -> Machine {
    let dram_bytes = Some(dram * GIB);
    let machine =
        Hypothesis { modules: modules.into(), dram_bytes, sockets, series: Some(series), socket_limit_bytes: None };
    machine.machine().expect("a description")
}

#[test]
fn a_goal_is_set_waits_for_a_restart_and_its_regions_are_divided_after_it() {
    let machine = invented("6x128GiB", 192, 2, Series::S100);
    let planned = plan(&machine, &wish(Some("memory=50,app-direct=50"), "fsdax")).expect("a plan");
    let lines = commands(&planned);
    assert_eq!(lines[0], "ipmctl create -f -goal MemoryMode=50 PersistentMemoryType=AppDirect");
    assert_eq!(planned.steps[1], Step::Restart);
    assert!(lines[2].starts_with("ndctl create-namespace --region=region0 --size="), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with("/dev/pmem1 /mnt/pmem1")), "one region a socket: {lines:?}");
    let of = |what: &str| planned.capacities.iter().find(|one| one.what == what).expect("a line").usable;
    assert_eq!((of("system memory"), of("App Direct")), (12 * 63 * GIB, 12 * 63 * GIB), "whole GiB of 63.2 a module");
    assert!(of("region0 fsdax") < 6 * 63 * GIB / 64 * 63 && of("region0 fsdax").is_multiple_of(2 * MIB));
    assert!(planned.notes.iter().any(|note| note.contains("1:3.9")), "{:?}", planned.notes);
    assert!(planned.notes.iter().any(|note| note.contains("share the modules' bandwidth")));
}

#[test]
fn a_size_of_six_modules_is_aligned_to_what_six_divide() {
    let planned =
        plan(&invented("6x128GiB", 192, 1, Series::S100), &wish(Some("app-direct=100"), "fsdax")).expect("a plan");
    let size =
        commands(&planned).iter().find_map(|line| line.split("--size=").nth(1)?.split(' ').next()?.parse::<u64>().ok());
    let size = size.expect("a size");
    assert_eq!(size, 6 * 126 * GIB / (96 * MIB) * (96 * MIB));
    assert!(size.is_multiple_of(6 * 2 * MIB));
}

#[test]
fn modules_that_are_not_interleaved_are_a_region_each() {
    let mut asked = wish(Some("app-direct=100"), "fsdax");
    asked.goal.as_mut().expect("a goal").interleaved = false;
    let planned = plan(&invented("4x256GiB", 64, 1, Series::S200), &asked).expect("a plan");
    assert!(commands(&planned)[0].contains("AppDirectNotInterleaved"));
    assert_eq!(planned.names.len(), 4);
}

#[test]
fn every_bad_goal_is_refused_with_the_reason_and_what_to_change() {
    let s100 = |modules: &str, dram: u64| invented(modules, dram, 2, Series::S100);
    let mut no_tool = s100("6x128GiB", 192);
    no_tool.tools.clear();
    let mut no_dram = s100("6x128GiB", 192);
    no_dram.dram_bytes = None;
    let mut limited = s100("6x512GiB", 384);
    limited.socket_limit_bytes = Some(1 << 40);
    let mut unknown = s100("6x128GiB", 192);
    unknown.modules[3].bytes = None;
    let cases = [
        (s100("6x128GiB", 96), "memory=100", "1:15.7, over the limit of 1:8", "memory=50 at most"),
        (
            s100("1x128GiB", 768),
            "memory=100",
            "leave 252 GiB of memory where there are 768 GiB",
            "ask for more memory=",
        ),
        (s100("6x128GiB,5x128GiB", 192), "app-direct=100", "socket 1 has 5 modules", "fit the same number"),
        (s100("5x128GiB", 192), "app-direct=100", "5 modules at a socket", "fit 1, 2, 3, 4 or 6"),
        (
            s100("8x128GiB", 192),
            "app-direct=100",
            "one of the 100 series has 12 slots",
            "--modules 6x128GiB --sockets 3",
        ),
        (
            invented("24x128GiB", 768, 1, Series::S100),
            "app-direct=100",
            "24 modules at a socket have no slots",
            "--modules 6x128GiB --sockets 4",
        ),
        (
            invented("24x128GiB", 768, 1, Series::S200),
            "app-direct=100",
            "one of the 200 series has 16 slots",
            "--modules 8x128GiB --sockets 3",
        ),
        (s100("4x128GiB+2x256GiB", 192), "app-direct=100", "different sizes, 128 GiB and 256 GiB", "use equal modules"),
        (
            limited,
            "memory=50",
            "app-direct=50 comes to nothing: the processors map at most 1 TiB a socket",
            "ask for more",
        ),
        (
            invented("8x128GiB", 512, 2, Series::S300),
            "memory=50",
            "300 series modules are App Direct only",
            "app-direct=100",
        ),
        (no_tool, "app-direct=100", "ipmctl is not installed", "install ipmctl"),
        (no_dram, "memory=100", "how much DRAM", "--dram 192GiB"),
        (unknown, "app-direct=100", "size of module nmem3", "run as root"),
        (
            Machine { regions: vec![Region::default()], ..Machine::default() },
            "app-direct=100",
            "no persistent-memory module",
            "--modules",
        ),
    ];
    for (machine, goal, reason, advice) in cases {
        let text = plan(&machine, &wish(Some(goal), "fsdax")).expect_err(goal).to_string();
        assert!(text.contains(reason) && text.contains(advice), "{goal}: {text}");
    }
}

#[test]
fn a_ratio_that_ipmctl_warns_of_is_a_note_by_generation() {
    let note = |dram: u64, series: Series| {
        let raised = Wish { ratio_limit: 64, ..wish(Some("memory=100"), "fsdax") };
        let planned = plan(&invented("6x128GiB", dram, 1, series), &raised).expect("allowed");
        planned.notes.into_iter().find(|note| note.contains("ipmctl recommends"))
    };
    // Far memory is 6 x 126 GiB = 756 GiB.
    let says = |dram: u64, series: Series, side: &str, range: &str| {
        let note = note(dram, series).unwrap_or_default();
        assert!(note.contains(side) && note.contains(range), "{dram} GiB: {note}");
    };
    says(47, Series::S100, "1:16.0 of near to far memory is above", "1:3.6 to 1:16");
    says(211, Series::S100, "1:3.5 of near to far memory is below", "for the 100 series");
    says(94, Series::S200, "1:8.0 of near to far memory is above", "1:2 to 1:8");
    says(379, Series::S200, "1:1.9 of near to far memory is below", "for the 200 series");
    for (dram, series) in [(48, Series::S100), (210, Series::S100), (95, Series::S200), (378, Series::S200)] {
        assert_eq!(note(dram, series), None, "{dram} GiB, {series:?}");
    }
}

#[test]
fn what_a_processor_can_map_bounds_a_plan_and_is_asked_for_where_it_is_not_known() {
    let mut machine = invented("6x256GiB", 192, 2, Series::S100);
    let note = |machine: &Machine, says: &str| {
        let planned = plan(machine, &wish(Some("app-direct=100"), "fsdax")).expect("a plan");
        let of = planned.capacities.iter().find(|one| one.what == "App Direct").expect("a line").usable;
        (of / GIB, planned.notes.iter().any(|note| note.contains(says)))
    };
    assert_eq!(
        note(&machine, "a socket would map 1.57 TiB, and what its processor can map is not known"),
        (12 * 252, true)
    );
    machine.socket_limit_bytes = Some(1 << 40);
    // 1024 GiB less 96 GiB of DRAM, over six modules, in whole GiB of each.
    assert_eq!(
        note(&machine, "the processors map at most 1 TiB a socket: 1.14 TiB of the modules stay unused"),
        (12 * 154, true)
    );
    let small = invented("6x128GiB", 192, 2, Series::S100);
    assert_eq!(note(&small, "processor"), (12 * 126, false), "every processor maps that");
}

#[test]
fn modules_that_make_no_interleave_set_can_be_regions_of_their_own() {
    let mut asked = wish(Some("app-direct=100"), "fsdax");
    asked.goal.as_mut().expect("a goal").interleaved = false;
    assert_eq!(plan(&invented("5x128GiB", 96, 1, Series::S100), &asked).expect("a plan").names.len(), 5);
}

#[test]
fn the_ratio_limit_is_a_policy_that_can_be_raised() {
    let machine = invented("6x128GiB", 96, 2, Series::S100);
    let raised = Wish { ratio_limit: 16, ..wish(Some("memory=100"), "fsdax") };
    let planned = plan(&machine, &raised).expect("allowed");
    assert!(planned.notes.iter().any(|note| note.contains("1:15.7")));
    assert!(commands(&planned).iter().all(|line| !line.contains("create-namespace")), "nothing is persistent then");
}

#[test]
fn a_goal_gives_what_is_not_named_to_app_direct_or_leaves_it_reserved() {
    let parts = |text: &str| Goal::parse(text).map(|goal| (goal.memory, goal.app_direct, goal.reserved)).ok();
    assert_eq!(parts("memory=50,app-direct=50"), Some((50, 50, 0)));
    assert_eq!(parts("memory=25%"), Some((25, 75, 0)));
    assert_eq!(parts("app-direct=80"), Some((0, 80, 20)));
    assert_eq!(parts("memory=25, reserved=25"), Some((25, 50, 25)));
    for bad in [
        "",
        "memory",
        "memory=101",
        "memory=-1",
        "memory=60,app-direct=50",
        "ram=50",
        "memory=1,memory=2",
        "memory=half",
    ] {
        let text = Goal::parse(bad).expect_err(bad).to_string();
        assert!(text.contains("memory=50,app-direct=50"), "says how to write one: {text}");
    }
    for bad in ["", "fsdax=1,raw=2", "fsdax,devdax", "fsdax=much", "disk=1GiB"] {
        let text = NamespaceWish::parse_list(bad).expect_err(bad).to_string();
        assert!(text.contains("fsdax=384MiB"), "says how to write one: {text}");
    }
}

#[test]
fn a_goal_that_the_modules_have_already_is_not_set_again() {
    let mut machine = invented("2x128GiB", 64, 1, Series::S100);
    let region = Region {
        name: "region0".into(),
        bytes: 252 * GIB,
        free_bytes: 252 * GIB,
        modules: vec!["nmem0".into(), "nmem1".into()],
        align: 16 * MIB,
        labels: true,
        ..Region::default()
    };
    machine.regions.push(region);
    let planned = plan(&machine, &wish(Some("app-direct=100"), "fsdax")).expect("a plan");
    assert!(!planned.needs_restart());
    machine.namespaces.push(Namespace {
        name: "namespace0.0".into(),
        region: "region0".into(),
        mode: NamespaceMode::Fsdax,
        bytes: GIB,
        ..Namespace::default()
    });
    let text = plan(&machine, &wish(Some("memory=50"), "fsdax")).expect_err("there is a namespace").to_string();
    assert!(text.contains("--overwrite namespace0.0"), "a goal destroys namespaces: {text}");
}

#[test]
fn a_modelled_tier_is_a_directory_and_files_of_what_would_be_usable() {
    let planned = plan_modelled("tiers/p", GIB, &wish(None, "fsdax=512MiB,sector=128MiB,devdax=rest")).expect("a plan");
    assert_eq!(
        commands(&planned),
        [
            "mkdir -p tiers/p",
            "mkdir -p tiers/p/pmem0",
            "fallocate -l 133005312 tiers/p/pmem0.1s",
            "fallocate -l 394264576 tiers/p/dax0.2"
        ]
    );
    assert!(planned.settings.contains("absent = \"emulate\""));
}

/// Runs a plan to its end or to a restart. Returns the output that ndctl would give.
fn drive(progress: &mut Progress, boot: &str) -> (Vec<String>, Next) {
    let mut ran = Vec::new();
    loop {
        match progress.next(boot) {
            Next::Do(step) => {
                ran.push(step.to_text(progress.names()));
                let made = matches!(&step, Step::Run(command) if command.answers.is_some());
                let answer = format!("{{\"dev\":\"namespace0.5\",\"size\":\"376 MiB\",\"blockdev\":\"pmem0.{}\"}}", 5);
                progress.completed(if made { &answer } else { "" }).expect("understood");
            }
            other => return (ran, other),
        }
    }
}

#[test]
fn a_plan_stops_at_the_restart_and_goes_on_in_another_boot_with_the_names_ndctl_gave() {
    let machine = invented("6x128GiB", 192, 1, Series::S100);
    let planned = plan(&machine, &wish(Some("app-direct=100"), "fsdax")).expect("a plan");
    let mut progress = Progress::new(planned);
    let (ran, next) = drive(&mut progress, "boot-a");
    assert_eq!((ran.len(), &next), (1, &Next::Restart), "{ran:?}");
    assert!(progress.is_pending("boot-a") && !progress.is_pending("boot-b"));
    // The progress as a file keeps it between two runs.
    let kept = serde_json::to_string(&progress).expect("plain data");
    let mut progress: Progress = serde_json::from_str(&kept).expect("the same");
    assert_eq!(progress.next("boot-a"), Next::Restart, "still the same boot");
    assert!(matches!(progress.next("boot-b"), Next::Do(_)));
    let refusal = progress.check(&machine).expect_err("the firmware did nothing").to_string();
    assert!(refusal.contains("region0 is not there") && refusal.contains("ipmctl show -goal"), "{refusal}");
    let with = Machine { regions: vec![Region { name: "region0".into(), ..Region::default() }], ..machine };
    progress.check(&with).expect("there");
    let (ran, next) = drive(&mut progress, "boot-b");
    assert_eq!(next, Next::Finished);
    assert!(
        ran.iter().any(|line| line.ends_with("/dev/pmem0.5 /mnt/pmem0")),
        "ndctl's name, not the expected one: {ran:?}"
    );
}

#[test]
fn an_answer_without_a_device_is_not_taken_for_one() {
    let machine = invented("6x128GiB", 192, 1, Series::S100);
    for answer in ["", "created", "{}", "{\"blockdev\":\"\"}", "{\"blockdev\":\"../sda\"}", "[1]"] {
        let mut progress = Progress::new(plan(&machine, &wish(Some("app-direct=100"), "fsdax")).expect("a plan"));
        drive(&mut progress, "a");
        assert!(matches!(progress.next("b"), Next::Do(_)));
        let before = progress.steps();
        assert!(progress.completed(answer).is_err(), "{answer:?}");
        assert_eq!(progress.steps(), before, "not taken for done");
    }
    let mut progress = Progress::new(plan(&machine, &wish(Some("app-direct=100"), "devdax")).expect("a plan"));
    drive(&mut progress, "a");
    assert!(matches!(progress.next("b"), Next::Do(_)));
    progress
        .completed("{\"dev\":\"namespace0.1\",\"daxregion\":{\"devices\":[{\"chardev\":\"dax0.1\"}]}}")
        .expect("a device");
    assert!(progress.names().values().any(|name| name == "dax0.1"));
}

#[test]
fn a_mount_of_a_device_is_found_by_its_name_only() {
    let machine =
        Machine { mounts: vec![Mount { source: "/dev/pmem10".into(), ..Mount::default() }], ..Machine::default() };
    assert!(machine.mount_of("pmem1").is_none() && machine.mount_of("pmem10").is_some());
}
