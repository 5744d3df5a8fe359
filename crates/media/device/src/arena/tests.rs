//! Frames are whole, latches exclude each other, and slabs change class only while no guard exists.

use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

const UNIT: usize = 8192;

#[test]
fn frames_of_all_classes_are_zeros_first_and_keep_what_is_written() {
    let arena = Arena::anywhere(4, UNIT).expect("memory");
    let mut held = Vec::new();
    for bytes in [1, UNIT, UNIT + 1, 5 * UNIT, SLAB_BYTES] {
        let class = arena.class_of(bytes);
        // One slab for each class would be one too many: the first class is used twice.
        match arena.allocate(class, 4) {
            Some(mut frame) => {
                assert!(frame.len() >= bytes && frame.iter().all(|byte| *byte == 0), "{bytes}");
                frame.fill(bytes as u8 | 1);
                held.push((frame.number(), bytes as u8 | 1));
            }
            None => panic!("no frame of {bytes}"),
        }
    }
    for (frame, byte) in held {
        let guard = arena.shared(frame).expect("a frame");
        assert!(guard.iter().all(|found| *found == byte));
    }
}

#[test]
fn a_slab_takes_another_class_only_when_all_its_frames_are_free_and_unlatched() {
    let arena = Arena::anywhere(1, UNIT).expect("memory");
    let (small, large) = (arena.class_of(1), arena.class_of(SLAB_BYTES));
    let first = arena.allocate(small, 1).expect("free");
    let number = first.number();
    assert!(arena.allocate(large, 1).is_none(), "one frame is in use");
    arena.release(first);
    let stray = arena.shared(number + 1).expect("a free frame can be latched");
    assert!(arena.allocate(large, 1).is_none(), "somebody looks at a frame");
    drop(stray);
    let all = arena.allocate(large, 1).expect("all free");
    assert_eq!(all.len(), SLAB_BYTES);
    drop(all);
    assert!(arena.shared(number + 1).is_none(), "no frame begins there any more");
    assert!(arena.try_exclusive(number + 1).is_none());
    assert_eq!(arena.shared(0).expect("the frame").len(), SLAB_BYTES);
}

#[test]
fn latches_exclude_and_pins_outlive_the_guard() {
    let arena = Arc::new(Arena::anywhere(1, UNIT).expect("memory"));
    let mut frame = arena.allocate(0, 1).expect("free");
    frame.fill(3);
    let number = frame.number();
    assert!(arena.try_shared(number).is_none());
    let frame = frame.downgrade();
    assert!(arena.try_shared(number).is_some() && arena.try_exclusive(number).is_none());
    let pinned = arena.pin(&frame, 100);
    drop(frame);
    assert!(arena.try_exclusive(number).is_none(), "pinned");
    assert!(arena.is_pinned(number) && arena.shared(number).is_some());
    let weak = Arc::downgrade(&arena);
    drop(arena);
    let read = thread::spawn(move || pinned.as_ref().to_vec()).join().expect("reads");
    assert_eq!(read, vec![3; 100]);
    assert!(weak.upgrade().is_none(), "the pin was the last to hold the arena");
}

#[test]
#[should_panic(expected = "was free already")]
fn a_frame_given_back_twice_is_found_out() {
    let arena = Arena::anywhere(1, UNIT).expect("memory");
    let keep = arena.allocate(0, 1).expect("free").number();
    let frame = arena.allocate(0, 1).expect("free");
    let number = frame.number();
    assert_ne!(keep, number);
    arena.release(frame);
    arena.release(arena.exclusive(number).expect("a frame"));
}

#[test]
fn slabs_beyond_the_bound_are_left_alone() {
    let arena = Arena::anywhere(3, UNIT).expect("memory");
    let class = arena.class_of(SLAB_BYTES);
    let two: Vec<u32> = std::iter::from_fn(|| arena.allocate(class, 2)).map(|frame| frame.number()).collect();
    assert_eq!(two.len(), 2);
    assert!(arena.allocate(class, 3).is_some());
    assert_eq!(arena.free(class), (0, 0));
}

#[test]
fn a_slab_that_is_to_be_emptied_gives_no_frames() {
    let arena = Arena::anywhere(2, UNIT).expect("memory");
    let first = arena.allocate(0, 2).expect("free").number();
    assert_eq!(first / arena.slab_units(), 0, "the lowest slab fills first");
    let other = arena.allocate_outside(0, 2, 0).expect("free").number();
    assert_eq!(other / arena.slab_units(), 1);
    assert!(arena.allocate_outside(0, 1, 0).is_none());
}

#[test]
fn memory_of_a_node_serves_as_well() {
    match Arena::on_node(0, 2, UNIT) {
        Ok(arena) => assert!(arena.allocate(0, 2).expect("free").iter().all(|byte| *byte == 0)),
        // A container may have no permission to bind memory, and a kernel may not support nodes.
        Err(error) => println!("skipped: {error}"),
    }
}

/// Each frame in use contains a single repeated number. Threads allocate frames of random classes, fill them, read them
/// back by number while others may have got them meanwhile, and release them: no thread ever sees two numbers in a
/// frame.
#[test]
fn no_guard_sees_a_frame_half_written_while_threads_take_and_give_and_reassign() {
    let arena = Arc::new(Arena::anywhere(3, 64 << 10).expect("memory"));
    let stop = AtomicBool::new(false);
    let units = arena.slabs() * arena.slab_units();
    let uniform = |bytes: &[u8]| bytes.iter().all(|byte| *byte == bytes[0]);
    thread::scope(|scope| {
        for seed in 0..3u64 {
            let (arena, stop) = (&arena, &stop);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut own: Vec<(u32, u8)> = Vec::new();
                for step in 0..1500 {
                    if let Some(mut frame) = arena.allocate(random.u8(0..5), 3) {
                        let byte = random.u8(..);
                        frame.fill(byte);
                        own.push((frame.number(), byte));
                    }
                    if own.len() > 4 || step % 7 == 0 && !own.is_empty() {
                        let (number, byte) = own.swap_remove(random.usize(..own.len()));
                        // The pin of a reader may prevent it for a moment.
                        let mut frame = loop {
                            match arena.exclusive(number) {
                                Some(frame) => break frame,
                                None => thread::yield_now(),
                            }
                        };
                        assert!(frame.iter().all(|found| *found == byte), "seed {seed}: a frame of ours was changed");
                        // Free frames are made part of larger ones, which are as uniform as these are alike.
                        frame.fill(0);
                        arena.release(frame);
                    }
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
        let (arena, stop) = (&arena, &stop);
        scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(99);
            while !stop.load(Ordering::Relaxed) {
                let Some(frame) = arena.shared(random.u32(..units)) else { continue };
                assert!(uniform(&frame), "half written under a shared latch");
                let pinned = arena.pin(&frame, frame.len());
                drop(frame);
                assert!(uniform(pinned.as_ref()), "changed under a pin");
            }
        });
    });
}
