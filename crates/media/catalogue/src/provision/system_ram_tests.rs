//! Tests of CXL memory, HBM and given speeds: trees of attributes, and the plans for them.
//!
//! The trees follow Linux's Documentation/ABI (sysfs-bus-cxl, sysfs-devices-node) and drivers/cxl. They are not copied
//! from a machine, because none with these devices was available.

use super::ProvisionError;
use super::machine::{CxlMemory, Machine, Performance};
use super::plan::Plan;
use super::progress::{Next, Progress};
use super::system_ram::plan_system_ram;
use super::tests::{commands, tree};

/// A socket with DRAM and HBM, a CXL device that is system memory, an unused one, and one with a persistent half.
const LINKED: &str = "
    sys/devices/system/node/node0/cpulist = 0-55
    sys/devices/system/node/node0/meminfo = Node 0 MemTotal: 263700000 kB Node 0 MemFree: 260000000 kB
    sys/devices/system/node/node0/distance = 10 13 24
    sys/devices/system/node/node0/access1/initiators/read_latency = 95
    sys/devices/system/node/node0/access1/initiators/write_latency = 0
    sys/devices/system/node/node0/access1/initiators/read_bandwidth = 230000
    sys/devices/system/node/node0/access1/initiators/write_bandwidth = 230000
    sys/devices/system/node/node0/access0/initiators/read_latency = 1
    sys/devices/system/node/node0/memory_side_cache/index1/size = 17179869184
    sys/devices/system/node/node1/cpulist =
    sys/devices/system/node/node1/meminfo = Node 1 MemTotal: 67108864 kB Node 1 MemFree: 67000000 kB
    sys/devices/system/node/node1/distance = 13 10 24
    sys/devices/system/node/node1/access1/initiators/read_latency = 120
    sys/devices/system/node/node1/access1/initiators/read_bandwidth = 700000
    sys/devices/system/node/node2/cpulist =
    sys/devices/system/node/node2/meminfo = Node 2 MemTotal: 100663296 kB Node 2 MemFree: 100000000 kB
    sys/devices/system/node/node2/distance = 24 24 10
    sys/devices/system/node/node2/access0/initiators/read_latency = 260
    sys/devices/system/node/node2/access0/initiators/read_bandwidth = 18000
    sys/bus/cxl/devices/mem0/ram/size = 0x1800000000
    sys/bus/cxl/devices/mem0/pmem/size = 0x0
    sys/bus/cxl/devices/mem0/serial = 0xc100000042
    sys/bus/cxl/devices/mem0/firmware_version = 1.3
    sys/bus/cxl/devices/mem0/numa_node = 0
    sys/bus/cxl/devices/mem1/ram/size = 0x2000000000
    sys/bus/cxl/devices/mem1/pmem/size = 0x0
    sys/bus/cxl/devices/mem1/numa_node = -1
    sys/bus/cxl/devices/mem10/ram/size = 0x400000000
    sys/bus/cxl/devices/mem10/pmem/size = 0x400000000
    sys/bus/cxl/devices/root0/dport0 = x
    sys/bus/cxl/devices/decoder0.0/size = 0x1800000000
    sys/bus/cxl/devices/endpoint3/depth = 2
    sys/bus/cxl/devices/decoder3.0/size = 0x1800000000
    sys/bus/cxl/devices/region5/size = 0x1800000000
    sys/bus/cxl/devices/region5/target0 = decoder3.0
    sys/bus/dax/devices/dax5.0/size = 0x1800000000
    sys/bus/dax/devices/dax5.0/target_node = 2
    sys/bus/dax/devices/dax6.0/size = 0x1000000000
    sys/bus/dax/devices/dax6.0/target_node = 3
    sys/bus/dax/devices/dax0.0/size = 266338304
    sys/bus/dax/devices/dax0.0/target_node = 4
    sys/bus/nd/devices/region0/devtype = nd_pmem
    sys/bus/nd/devices/region0/size = 1073479680
    sys/bus/nd/devices/namespace0.0/mode = dax
    sys/bus/nd/devices/namespace0.0/size = 268435456
    sys/bus/nd/devices/namespace0.0/holder = dax0.0
    sys/bus/nd/devices/dax0.0/size = 266338304
    sys/bus/nd/devices/dax0.0/dax0.0/size = 266338304
    usr/bin/cxl = a program
    usr/bin/daxctl = a program
";

fn linked() -> Machine {
    let root = tree(LINKED);
    let link = |from: &str, to: &str| std::os::unix::fs::symlink(to, root.path().join(from)).expect("a link");
    link("sys/bus/cxl/devices/endpoint3/uport", "../mem0");
    link("sys/bus/dax/devices/dax5.0/driver", "../../drivers/kmem");
    link("sys/bus/dax/devices/dax6.0/driver", "../../drivers/device_dax");
    link("sys/bus/dax/devices/dax0.0/driver", "../../drivers/device_dax");
    Machine::read(root.path()).expect("a machine")
}

fn planned(devices: &[&str], overwrite: &[&str]) -> Result<Plan, ProvisionError> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    plan_system_ram(&linked(), &owned(devices), &owned(overwrite))
}

#[test]
fn cxl_devices_are_read_with_the_regions_they_are_part_of() {
    let machine = linked();
    let names: Vec<(&str, Option<&str>)> =
        machine.cxl.iter().map(|one| (one.name.as_str(), one.region.as_deref())).collect();
    assert_eq!(names, [("mem0", Some("region5")), ("mem1", None), ("mem10", None)], "numbers by value");
    let first = CxlMemory {
        name: "mem0".into(),
        volatile_bytes: 96 << 30,
        near_node: Some(0),
        serial: Some("0xc100000042".into()),
        firmware: Some("1.3".into()),
        region: Some("region5".into()),
        ..CxlMemory::default()
    };
    assert_eq!(machine.cxl[0], first);
    assert_eq!((machine.cxl[1].near_node, machine.cxl[2].persistent_bytes), (None, 16 << 30));
}

#[test]
fn stated_speeds_are_those_from_processors_and_tell_hbm_from_far_memory() {
    let machine = linked();
    let stated = |node: usize| machine.nodes[node].performance;
    let dram = Performance {
        read_latency_ns: Some(95),
        write_latency_ns: None,
        read_mib_per_s: Some(230_000),
        write_mib_per_s: Some(230_000),
    };
    assert_eq!(stated(0), Some(dram), "class 1 before class 0; a figure of 0 is none");
    assert_eq!(stated(2).and_then(|stated| stated.read_latency_ns), Some(260), "class 0 where there is no other");
    assert_eq!(machine.nodes[0].side_cache_bytes, Some(16 << 30));
    let high: Vec<bool> = machine.nodes.iter().map(|node| machine.is_high_bandwidth(node)).collect();
    assert_eq!(high, [false, true, false]);
    let far: Vec<bool> = machine.nodes.iter().map(|node| node.is_far_memory()).collect();
    assert_eq!(far, [false, true, true]);
}

#[test]
fn memory_that_nothing_uses_becomes_memory_of_the_system_and_what_holds_data_is_left_alone() {
    let plan = planned(&[], &[]).expect("a plan");
    assert_eq!(
        commands(&plan),
        [
            "cxl create-region -t ram -m mem1",
            "daxctl reconfigure-device --mode=system-ram dax-of-mem1",
            "cxl create-region -t ram -m mem10",
            "daxctl reconfigure-device --mode=system-ram dax-of-mem10",
            "daxctl reconfigure-device --mode=system-ram dax6.0",
        ],
        "mem0 and dax5.0 are memory already, dax0.0 is a namespace"
    );
    assert!(
        plan.settings.contains("[tiers.dax6-0]\nkind = \"memory\"\nnode = 3\nbytes = \"64 GiB\""),
        "{}",
        plan.settings
    );
    assert!(
        plan.notes.iter().any(|note| note.starts_with("mem10 has 16 GiB of persistent memory")),
        "{:?}",
        plan.notes
    );
    let usable: Vec<u64> = plan.capacities.iter().map(|one| one.usable >> 30).collect();
    assert_eq!(usable, [128, 16, 64]);
}

#[test]
fn the_device_of_a_new_region_is_the_one_that_cxl_answered() {
    let mut progress = Progress::new(planned(&["mem1"], &[]).expect("a plan"));
    assert!(matches!(progress.next("boot"), Next::Do(_)));
    for wrong in ["", "created 1 region", "{\"region\":\"regionX\"}", "{\"region\":5}"] {
        let told = progress.completed(wrong).expect_err(wrong).to_string();
        assert!(told.contains("cxl did not say which device it made"), "{told}");
    }
    progress.completed("{\"region\":\"region7\",\"size\":137438953472}").expect("a region");
    let Next::Do(step) = progress.next("boot") else { panic!("another step") };
    assert_eq!(step.to_text(progress.names()), "daxctl reconfigure-device --mode=system-ram dax7.0");
}

#[test]
fn a_wish_for_system_memory_that_cannot_be_says_why() {
    let says = |result: Result<Plan, ProvisionError>, reason: &str| {
        let told = result.expect_err(reason).to_string();
        assert!(told.contains(reason), "{told}");
    };
    says(planned(&["mem7"], &[]), "there is no device mem7\n  there are: mem0, mem1, mem10, dax0.0, dax5.0, dax6.0");
    says(planned(&["dax0.0"], &[]), "dax0.0 is namespace0.0, persistent memory of 256 MiB");
    says(planned(&["dax0.0"], &[]), "--overwrite namespace0.0");
    says(planned(&["mem0", "dax5.0"], &[]), "nothing can become memory of the system");
    says(plan_system_ram(&Machine::default(), &[], &[]), "nothing can become memory of the system");
    let named = planned(&["dax0.0"], &["namespace0.0"]).expect("it may go");
    assert_eq!(commands(&named), ["daxctl reconfigure-device --mode=system-ram dax0.0"]);
    let mut machine = linked();
    machine.tools.retain(|tool| tool == "daxctl");
    says(plan_system_ram(&machine, &[], &[]), "cxl is not installed");
    machine.tools.clear();
    says(plan_system_ram(&machine, &["dax6.0".into()], &[]), "daxctl is not installed");
}
