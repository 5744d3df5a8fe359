use super::*;
use crate::medium::media;

#[test]
fn the_time_of_every_measured_point_is_the_one_measured() {
    for medium in media().iter().filter(|medium| !medium.curves.is_empty()) {
        for curve in &medium.curves {
            let model = Model::of(medium, curve.modules).expect(&medium.name);
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
