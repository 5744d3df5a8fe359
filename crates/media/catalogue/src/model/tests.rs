//! Tests of the model at every measured point, with other numbers of modules, and at derived points.

use super::*;
use crate::medium::media;

#[test]
fn the_time_of_every_measured_point_is_the_one_measured() {
    for medium in media().iter().filter(|medium| !medium.curves.is_empty()) {
        for curve in &medium.curves {
            let Ok(model) = Model::of(medium, curve.modules) else { continue };
            let store = curve.store.unwrap_or(Store::Nt);
            let (direction, pattern, bytes) = (curve.direction, curve.pattern, curve.bytes.into());
            let access = Access { direction, pattern, store, bytes, overlapped: true };
            for (threads, measured) in &curve.points {
                let modelled = model.bandwidth(&access, *threads as u32);
                let deviation = (modelled / measured - 1.0).abs();
                assert!(deviation < 0.02, "{} {access:?} x{threads}: {modelled} for {measured}", medium.name);
            }
        }
    }
}

/// Only the curves of six modules, without those of 1, 2 and 4.
fn only_six() -> Medium {
    let mut medium = Medium::find("dcpmm100-256g").expect("built in");
    medium.curves.retain(|curve| curve.modules == 6);
    medium
}

#[test]
fn fewer_modules_brought_from_six_come_near_those_that_were_measured() {
    let (six, all) = (only_six(), Medium::find("dcpmm100-256g").expect("built in"));
    let mut deviations = Vec::new();
    for curve in all.curves.iter().filter(|curve| curve.modules < 6) {
        let model = Model::of(&six, curve.modules).expect("complete");
        let store = curve.store.unwrap_or(Store::Nt);
        let (direction, pattern, bytes) = (curve.direction, curve.pattern, curve.bytes.into());
        let access = Access { direction, pattern, store, bytes, overlapped: true };
        for (threads, measured) in &curve.points {
            deviations.push((model.bandwidth(&access, *threads as u32) / measured - 1.0).abs());
        }
    }
    deviations.sort_by(f64::total_cmp);
    let at = |share: f64| deviations[((deviations.len() - 1) as f64 * share) as usize];
    let shown = format!("median {:.3}, p90 {:.3}, worst {:.3} of {}", at(0.5), at(0.9), at(1.0), deviations.len());
    assert!(deviations.len() > 300 && at(0.5) < 0.03 && at(0.9) < 0.17, "{shown}");
}

#[test]
fn large_random_accesses_and_small_flushed_ones_lie_where_the_derivations_put_them() {
    let model = Model::of(&Medium::find("dcpmm100-256g").expect("built in"), 6).expect("complete");
    let (direction, overlapped) = (Direction::Write, true);
    let at = |pattern, store, bytes| model.alone(&Access { direction, pattern, store, bytes, overlapped });
    // Random and sequential accesses of 256 bytes differ by a few percent, and so do those of 4096 bytes.
    let ratio = |bytes| at(Pattern::Random, Store::Nt, bytes) / at(Pattern::Sequential, Store::Nt, bytes);
    assert!((ratio(256) / ratio(4096) - 1.0).abs() < 1e-9, "{} {}", ratio(256), ratio(4096));
    // Lines that are written back cost more than non-temporal stores, by the same factor for sequential and random
    // access.
    let factor = |pattern| at(pattern, Store::Clwb, 128) / at(pattern, Store::Nt, 128);
    assert!((factor(Pattern::Random) / factor(Pattern::Sequential) - 1.0).abs() < 1e-9);
    // A part of a line costs as much as the whole line.
    assert_eq!(at(Pattern::Random, Store::Clwb, 8), at(Pattern::Random, Store::Clwb, 64));
}

#[test]
fn kinds_store_as_their_devices_do() {
    let of = |name: &str| Model::of(&Medium::find(name).expect("built in"), 0).expect("complete");
    let pmem = of("pmem200-256g");
    assert_eq!((pmem.store(8), pmem.store(255), pmem.store(256)), (Store::Clwb, Store::Clwb, Store::Nt));
    let eadr = pmem.with_eadr();
    assert_eq!((eadr.store(8), eadr.store(256)), (Store::Cached, Store::Nt));
    assert_eq!(of("ddr4-3200").store(4096), Store::Cached);
}
