//! Scripted faults happen when, where and as the script defines; a handle refuses changes after its first failure.

use std::sync::Arc;

use device::faulty::{Fault, Rule};
use device::{BLOCK_BYTES, Device, DeviceError, FaultyShelf, MemoryShelf, Operation, Shelf};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn shelf_with_device(blocks: u64) -> (FaultyShelf, Arc<dyn Device>) {
    let shelf = FaultyShelf::new(Arc::new(MemoryShelf::new()));
    let device = shelf.create("a", blocks * BLOCK).expect("create");
    (shelf, device)
}

/// The first byte of every block.
fn blocks(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).expect("read");
    bytes.iter().step_by(BLOCK_BYTES).copied().collect()
}

#[test]
fn the_nth_write_fails_and_every_write_and_flush_after_it_answers_poisoned_until_reopened() {
    for (operation, fault) in [
        (Operation::Write, Fault::Eio),
        (Operation::Write, Fault::NoSpace),
        (Operation::Write, Fault::Short { bytes: 0 }),
        (Operation::Flush, Fault::Eio),
    ] {
        let (shelf, device) = shelf_with_device(4);
        shelf.inject(Rule::nth(operation, 3, fault));
        for block in 0..2 {
            device.write_flush(block * BLOCK, &[1; BLOCK_BYTES]).expect("before the fault");
        }
        let failed = device.write_flush(2 * BLOCK, &[1; BLOCK_BYTES]).expect_err("the fault");
        match fault {
            Fault::NoSpace => assert!(matches!(failed, DeviceError::Full { .. }), "{failed}"),
            _ => assert!(matches!(failed, DeviceError::Io { operation: at, .. } if at == operation), "{failed}"),
        }
        let later = [
            device.write(0, &[2; BLOCK_BYTES]),
            device.flush(),
            device.write_flush(0, &[2; BLOCK_BYTES]),
            device.discard(0, BLOCK),
        ];
        for later in later {
            assert!(matches!(later, Err(DeviceError::Poisoned { .. })), "{operation}: {later:?}");
        }
        assert_eq!(blocks(&*device)[..2], [1, 1], "reads go on");
        let reopened = shelf.open("a").expect("open");
        reopened.write_flush(0, &[3; BLOCK_BYTES]).expect("a new handle starts afresh");
        assert_eq!(shelf.hits(), 1);
    }
}

#[test]
fn a_failed_read_does_not_poison() {
    let (shelf, device) = shelf_with_device(1);
    shelf.inject(Rule::nth(Operation::Read, 1, Fault::Eio));
    assert!(matches!(device.read(0, &mut [0; BLOCK_BYTES]), Err(DeviceError::Io { operation: Operation::Read, .. })));
    device.write_flush(0, &[1; BLOCK_BYTES]).expect("write");
    assert_eq!(blocks(&*device), [1]);
}

#[test]
fn a_full_disk_refuses_to_create_until_it_is_healed() {
    let shelf = FaultyShelf::new(Arc::new(MemoryShelf::new()));
    shelf.inject(Rule::from(Operation::Create, 2, Fault::NoSpace));
    shelf.create("a", BLOCK).expect("the first");
    for _ in 0..3 {
        let full = shelf.create("b", 2 * BLOCK).expect_err("full");
        assert!(matches!(&full, DeviceError::Full { name, bytes } if name == "b" && *bytes == 2 * BLOCK), "{full}");
    }
    shelf.heal();
    shelf.create("b", BLOCK).expect("after space was freed");
}

#[test]
fn each_operation_on_names_can_fail() {
    let (shelf, _device) = shelf_with_device(1);
    let fails = |operation, call: &dyn Fn() -> Result<(), DeviceError>| {
        shelf.inject(Rule::nth(operation, 1, Fault::Eio));
        let failed = call().expect_err("the fault");
        assert!(matches!(failed, DeviceError::Io { operation: at, .. } if at == operation), "{failed}");
        shelf.heal();
        call().expect("healed");
    };
    fails(Operation::Create, &|| shelf.create("b", BLOCK).map(drop));
    fails(Operation::Open, &|| shelf.open("a").map(drop));
    fails(Operation::Open, &|| shelf.open_read_only("a").map(drop));
    fails(Operation::List, &|| shelf.list().map(drop));
    fails(Operation::Rename, &|| shelf.rename("a", "c"));
    fails(Operation::Remove, &|| shelf.remove("c"));
}

#[test]
fn a_rule_on_one_device_counts_and_hits_only_that_device() {
    let (shelf, a) = shelf_with_device(1);
    let b = shelf.create("b", BLOCK).expect("create");
    shelf.inject(Rule::nth(Operation::Write, 2, Fault::Eio).on("b"));
    for _ in 0..3 {
        a.write(0, &[1; BLOCK_BYTES]).expect("write a");
    }
    b.write(0, &[1; BLOCK_BYTES]).expect("first write of b");
    assert!(b.write(0, &[2; BLOCK_BYTES]).is_err());
    assert_eq!((blocks(&*a), blocks(&*b), shelf.hits()), (vec![1], vec![1], 1));
}

#[test]
fn silent_faults_answer_success_and_do_what_they_say() {
    let cases = [
        (Fault::Lost, vec![0, 0, 0, 0]),
        (Fault::Misdirected { blocks: 2 }, vec![0, 0, 0, 9]),
        (Fault::Misdirected { blocks: 3 }, vec![9, 0, 0, 0]),
        (Fault::BitFlip { byte: 0, bit: 1 }, vec![0, 11, 0, 0]),
        (Fault::BitFlip { byte: BLOCK_BYTES, bit: 1 }, vec![0, 9, 0, 0]),
    ];
    for (fault, expected) in cases {
        let (shelf, device) = shelf_with_device(4);
        shelf.inject(Rule::nth(Operation::Write, 1, fault));
        device.write_flush(BLOCK, &[9; BLOCK_BYTES]).expect("silent");
        assert_eq!((blocks(&*device), shelf.hits()), (expected, 1), "{fault:?}");
    }
}

#[test]
fn a_read_can_return_a_flipped_bit_or_another_place_and_the_medium_keeps_the_truth() {
    let (shelf, device) = shelf_with_device(2);
    device.write(0, &[1; BLOCK_BYTES]).expect("write");
    device.write(BLOCK, &[2; BLOCK_BYTES]).expect("write");
    let first = |fault| {
        shelf.inject(Rule::nth(Operation::Read, 1, fault));
        let mut bytes = [0; BLOCK_BYTES];
        device.read(0, &mut bytes).expect("silent");
        bytes[0]
    };
    assert_eq!(first(Fault::BitFlip { byte: 0, bit: 7 }), 129);
    assert_eq!(first(Fault::Misdirected { blocks: 1 }), 2);
    assert_eq!(blocks(&*device), [1, 2]);
}

#[test]
fn a_short_write_leaves_its_beginning() {
    let (shelf, device) = shelf_with_device(4);
    shelf.inject(Rule::nth(Operation::Write, 1, Fault::Short { bytes: 2 * BLOCK_BYTES + 100 }));
    device.write(0, &[9; 4 * BLOCK_BYTES]).expect_err("short");
    assert_eq!(blocks(&*device), [9, 9, 0, 0]);
}

#[test]
fn a_fault_that_makes_no_sense_is_refused_when_it_is_scripted() {
    for (operation, fault) in [
        (Operation::Flush, Fault::Short { bytes: 1 }),
        (Operation::Read, Fault::Lost),
        (Operation::Remove, Fault::NoSpace),
        (Operation::Create, Fault::Misdirected { blocks: 1 }),
    ] {
        assert!(std::panic::catch_unwind(|| Rule::nth(operation, 1, fault)).is_err(), "{operation} {fault:?}");
    }
}
