//! Power failures at every moment of random workloads with destaging, eviction, removal and restarts, on every medium.

use std::sync::Arc;

use device::crash::PmemMode;
use device::{CrashShelf, Shelf};
use volume::Threads;
use volume::write_back::CacheOptions;

use crate::write_back::history::{Model, Workload, recover, run_threads};
use crate::write_back::rig::{create, media, policies, seeds, small};

fn record(machine: &Arc<CrashShelf>, options: &CacheOptions, seed: u64, steps: u32) -> (usize, Model) {
    drop(create(&(machine.clone() as Arc<dyn Shelf>), options));
    let first = machine.operations();
    let mut workload = Workload::new(machine, options, seed);
    workload.run(steps);
    (first, workload.end().1)
}

/// Caches of few pages, so that places are used again and again.
fn options_of(seed: u64) -> CacheOptions {
    let (pages, page_bytes) = [(3, 8 << 10), (2, 16 << 10), (5, 4 << 10), (4, 16 << 10)][seed as usize % 4];
    let all = policies(&CacheOptions { dirty_start: 0.0, ..small(pages, page_bytes) });
    all[(seed as usize / 4) % all.len()].clone()
}

/// Recovers from one image in `every`; returns how many.
fn enumerate(
    name: &str,
    machine: &CrashShelf,
    first: usize,
    options: &CacheOptions,
    model: &Model,
    every: usize,
) -> usize {
    let mut count = 0;
    for point in first..=machine.operations() {
        for image in machine.images(point) {
            count += 1;
            if count % every == 0 {
                let recovered = recover(image.shelf(), options, model, point);
                recovered.unwrap_or_else(|why| panic!("{name}, {options:?}, {image}: {why}"));
            }
        }
    }
    count / every
}

#[test]
fn a_power_failure_at_any_moment_of_writes_destaging_and_eviction_leaves_what_was_flushed_or_later() {
    for seed in seeds(16) {
        let options = options_of(seed);
        for (name, machine) in media(seed) {
            let (first, model) = record(&machine, &options, seed, 40);
            let every = if name == "sectors" { 2 } else { 9 };
            let count = enumerate(&format!("SEED={seed}, {name}"), &machine, first, &options, &model, every);
            println!("SEED={seed}, {name}: {count} images");
            assert!(count > 40, "SEED={seed}, {name}: only {count} images");
        }
    }
}

#[test]
fn a_power_failure_under_several_threads_with_destaging_beside_them_leaves_what_was_flushed_or_later() {
    for seed in seeds(6) {
        let options = options_of(seed);
        let threads = CacheOptions { threads: Threads::Background, ..options.clone() };
        for (name, machine) in media(seed) {
            drop(create(&(machine.clone() as Arc<dyn Shelf>), &options));
            let first = machine.operations();
            let model = run_threads(&machine, &threads, seed, 25);
            let every = if name == "sectors" { 3 } else { 13 };
            let count = enumerate(&format!("SEED={seed}, {name}"), &machine, first, &options, &model, every);
            assert!(count > 40, "SEED={seed}, {name}: only {count} images");
        }
    }
}

#[test]
fn a_power_failure_during_the_recovery_of_the_cache_changes_nothing_that_recovery_finds() {
    for seed in seeds(4) {
        let options = options_of(seed * 5);
        for (name, machine) in media(seed) {
            let (first, model) = record(&machine, &options, seed, 25);
            let mut count = 0;
            for point in (first..=machine.operations()).step_by(if name == "sectors" { 11 } else { 17 }) {
                for image in machine.images(point).step_by(5) {
                    let recovered = recover(image.shelf(), &options, &model, point);
                    let recovered = recovered.unwrap_or_else(|why| panic!("SEED={seed}, {name}, {image}: {why}"));
                    for second in recovered.points().step_by(if name == "sectors" { 3 } else { 11 }) {
                        for again in recovered.images(second).step_by(3) {
                            count += 1;
                            let checked = recover(again.shelf(), &options, &model, point);
                            checked.unwrap_or_else(|why| panic!("SEED={seed}, {name}, {image}, then {again}: {why}"));
                        }
                    }
                }
            }
            println!("SEED={seed}, {name}: {count} images");
            assert!(count > 40, "SEED={seed}, {name}: only {count} images");
        }
    }
}

/// Whether some image shows that an instruction was left out.
fn is_noticed(machine: &CrashShelf, first: usize, options: &CacheOptions, model: &Model) -> bool {
    (first..=machine.operations())
        .any(|point| machine.images(point).any(|image| recover(image.shelf(), options, model, point).is_err()))
}

/// A cache of one page: each write of another page destages the one before it and takes its place, and each flush is relied on.
fn strict(machine: &Arc<CrashShelf>, seed: u64) -> (usize, CacheOptions, Model) {
    let options = small(1, 8 << 10);
    drop(create(&(machine.clone() as Arc<dyn Shelf>), &options));
    let mut workload = Workload::new(machine, &options, seed);
    let first = workload.begin_strict();
    workload.run_strict(8);
    let (_, model) = workload.end();
    (first, options, model)
}

#[test]
fn each_flush_write_back_fence_and_sync_left_out_is_noticed_where_it_is_relied_on() {
    for (index, (name, machine)) in media(1).into_iter().enumerate() {
        let (first, ..) = strict(&machine, 1);
        let (mut noticed, mut missed) = (0, Vec::new());
        for (nth, persist) in machine.persists().into_iter().enumerate() {
            if persist.step < first || persist.atoms == 0 {
                continue;
            }
            let broken = media(1).swap_remove(index).1;
            broken.omit(nth);
            let (_, options, model) = strict(&broken, 1);
            match is_noticed(&broken, first, &options, &model) {
                true => noticed += 1,
                false => missed.push(format!("{nth}: {} ({} atoms)", broken.trace()[persist.step], persist.atoms)),
            }
        }
        println!("{name}: {noticed} noticed, missed: {missed:#?}");
        assert!(missed.is_empty() && noticed > 20, "{name}: {noticed} noticed, missed: {missed:#?}");
    }
}

#[test]
fn memory_by_page_taken_for_memory_by_line_is_noticed_by_the_tests_of_the_cache() {
    let options = options_of(1);
    let machine = Arc::new(CrashShelf::mistaken(1, PmemMode::Pages, PmemMode::Adr));
    let (first, model) = record(&machine, &options, 1, 25);
    assert!(is_noticed(&machine, first, &options, &model));
}
