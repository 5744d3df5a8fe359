//! The simulated page cache against the real one, on the same accesses: near memory, near and far memory, Memory Mode, at eight sizes.

use std::collections::HashMap;
use std::sync::Arc;

use catalogue::{Budget, Model, ModelMemory, Timing, VirtualClock, media};
use plan::generate::{Shape, generate};
use plan::hash::Salt;
use plan::profile::{Access, Origin, ProfileReader, Recorder, RecorderOptions};
use plan::simulate::{CacheMemory, CacheShape, Served, simulate};
use store::StoreError;
use store::cache::backing::{BackingStore, PageAllocator};
use store::cache::{Cache, CacheOptions, Policy};
use store::page::{self, Kind, PageHeader, PageId};
use store::pages::Pages;

const PAGE: usize = 4096;
/// Pages of the streams: 64 MiB.
const KEYS: u32 = 16 * 1024;

/// A device whose every page is a leaf.
struct Leaves;

impl BackingStore for Leaves {
    fn read(&self, first: PageId, buffer: &mut [u8]) -> Result<(), StoreError> {
        for (page, bytes) in (first.0..).zip(buffer.chunks_exact_mut(PAGE)) {
            bytes[..page::HEADER_BYTES].fill(0);
            PageHeader { kind: Kind::Leaf, level: 0, flags: 0, tree: 1, lsn: 1 }.put(bytes);
            page::seal(PageId(page), bytes);
        }
        Ok(())
    }

    fn write(&self, _first: PageId, _bytes: &[u8]) -> Result<(), StoreError> {
        panic!("nothing is written here");
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl PageAllocator for Leaves {
    fn allocate(&self, _pages: u32) -> Result<PageId, StoreError> {
        panic!("nothing is created here");
    }

    fn free(&self, _first: PageId, _pages: u32) {}
}

/// Far memory with a model on a virtual clock: Memory Mode needs one.
fn model() -> Arc<ModelMemory> {
    let medium = media().iter().find(|medium| medium.name == "dcpmm100-128g").expect("in the catalogue");
    let model = Model::of(medium, 0).expect("a model");
    let budget = Budget::new(&model);
    Arc::new(ModelMemory::new(model, budget, Timing::Accounted(VirtualClock::new())))
}

/// What the real page cache serves from where.
fn real(shape: &CacheShape, keys: &[u64]) -> Served {
    let (far_bytes, policy) = match shape.memory {
        CacheMemory::Near => (0, Policy::Managed { promote: 0.1 }),
        CacheMemory::NearFar { far_bytes, promote } => (far_bytes, Policy::Managed { promote }),
        CacheMemory::DirectMapped { far_bytes } => (far_bytes, Policy::DirectMapped),
    };
    let options = CacheOptions {
        page_bytes: PAGE,
        near_bytes: shape.near_bytes,
        far_bytes,
        policy,
        far_model: matches!(policy, Policy::DirectMapped).then(model),
        ..CacheOptions::default()
    };
    let cache = Cache::new(&options, Arc::new(Leaves), Arc::new(Leaves)).expect("a cache");
    for key in keys {
        cache.read(PageId(1 + *key as u32)).expect("reads");
    }
    let metrics = cache.metrics();
    let all = keys.len() as f64;
    assert_eq!(metrics.near_hits + metrics.far_hits + metrics.misses, keys.len() as u64, "{metrics:?}");
    Served {
        near: metrics.near_hits as f64 / all,
        far: metrics.far_hits as f64 / all,
        device: metrics.misses as f64 / all,
    }
}

/// A profile of the same accesses, with so many keys in its stream.
fn profile(keys: &[u64], stream_keys: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = RecorderOptions {
        stream_keys,
        ..RecorderOptions::new(Salt::of_seed(11), &["leaf"], PAGE as u64, folder.path())
    };
    let mut recorder = Recorder::new(options).expect("options");
    for (time_us, key) in (0..).zip(keys) {
        recorder
            .record(Access { time_us, key: *key, bytes: PAGE as u32, structure: 0, is_write: false })
            .expect("records");
    }
    let mut out = Vec::new();
    let origin = Origin {
        kind: "test".into(),
        made_by: "a test".into(),
        keys: "page".into(),
        bad_lines: 0,
        other_requests: 0,
        flushes: None,
        times_back: 0,
    };
    recorder.finish(origin, &[], &mut out).expect("writes");
    out
}

/// Eight sizes of near memory, with the memory behind it.
fn shapes(memory: impl Fn(u64) -> CacheMemory) -> Vec<CacheShape> {
    [4, 6, 8, 12, 16, 24, 32, 48]
        .map(|mib| mib << 20)
        .map(|near_bytes| CacheShape { page_bytes: PAGE as u64, near_bytes, memory: memory(near_bytes) })
        .to_vec()
}

/// Compares at eight sizes; `bound` holds for each part.
fn compare(name: &str, shape: Shape, shapes: &[CacheShape], stream_keys: usize, bound: f64) {
    let keys: Vec<u64> = generate(shape, KEYS, 120_000, 21).collect();
    let bytes = profile(&keys, stream_keys);
    let mut reader = ProfileReader::new(bytes.as_slice()).expect("a profile");
    let predicted = simulate(&mut reader, shapes).expect("simulates");
    let mut worst: HashMap<&str, f64> = HashMap::new();
    for (shape, predicted) in shapes.iter().zip(&predicted) {
        let real = real(shape, &keys);
        let parts = [
            ("near", predicted.near, real.near),
            ("far", predicted.far, real.far),
            ("device", predicted.device, real.device),
        ];
        for (part, predicted, real) in parts {
            let worst = worst.entry(part).or_default();
            *worst = worst.max((predicted - real).abs());
            let near = shape.near_bytes >> 20;
            assert!(
                (predicted - real).abs() <= bound,
                "{name}, {near} MiB near memory, {part}: predicted {predicted:.4}, real {real:.4}"
            );
        }
    }
    println!("{name}: largest differences {worst:?}");
}

const STREAMS: [(&str, Shape); 4] = [
    ("zipf 0.6", Shape::Zipf { skew: 0.6 }),
    ("zipf 1.0", Shape::Zipf { skew: 1.0 }),
    ("scans", Shape::Scans),
    ("phase shift", Shape::PhaseShift),
];

#[test]
fn near_memory_alone_is_within_two_hundredths_at_eight_sizes() {
    for (name, shape) in STREAMS {
        compare(name, shape, &shapes(|_| CacheMemory::Near), usize::MAX, 0.02);
    }
}

#[test]
fn near_and_far_memory_are_within_two_hundredths_at_eight_sizes() {
    for promote in [0.1, 1.0] {
        let shapes = shapes(|near| CacheMemory::NearFar { far_bytes: (near / 2).max(4 << 20), promote });
        for (name, shape) in STREAMS {
            compare(&format!("{name}, promotion {promote}"), shape, &shapes, usize::MAX, 0.02);
        }
    }
}

#[test]
fn memory_mode_is_within_two_hundredths_at_eight_sizes() {
    let shapes = shapes(|near| CacheMemory::DirectMapped { far_bytes: (near * 2).max(16 << 20) });
    for (name, shape) in STREAMS {
        compare(name, shape, &shapes, usize::MAX, 0.02);
    }
}

#[test]
fn a_stream_with_a_quarter_of_the_keys_predicts_the_whole_cache_too() {
    for (name, shape) in [STREAMS[0], STREAMS[2]] {
        compare(name, shape, &shapes(|_| CacheMemory::Near), KEYS as usize / 4, 0.02);
        let far = shapes(|near| CacheMemory::NearFar { far_bytes: (near / 2).max(4 << 20), promote: 0.1 });
        compare(name, shape, &far, KEYS as usize / 4, 0.03);
    }
}
