//! External files beside the store's pages: the bytes read, the number of reads, and what is left when they are
//! dropped.

use bytes::Bytes;

use super::*;

/// A file whose every byte depends on its place and on the file.
struct File {
    bytes: Vec<u8>,
    reads: AtomicU64,
}

impl File {
    fn new(seed: u64, bytes: usize) -> File {
        let bytes = (0..bytes as u64).map(|at| (at.wrapping_mul(seed) >> 11 ^ at) as u8).collect();
        File { bytes, reads: AtomicU64::new(0) }
    }

    fn blocks(&self) -> u64 {
        (self.bytes.len() as u64).div_ceil(EXTERNAL_BLOCK_BYTES)
    }

    fn block(&self, number: u64) -> &[u8] {
        let block = EXTERNAL_BLOCK_BYTES as usize;
        self.bytes.chunks(block).nth(number as usize).expect("inside the file")
    }

    fn read(&self, external: &ExternalFile, number: u64) -> Bytes {
        let read = |buffer: &mut [u8]| {
            self.reads.fetch_add(1, Ordering::Relaxed);
            buffer.copy_from_slice(self.block(number));
            Ok::<_, StoreError>(())
        };
        external.block(number, read).expect("it can be read")
    }
}

#[test]
fn a_block_is_read_once_while_it_finds_room_and_its_bytes_are_the_files_in_every_make_of_cache() {
    for make in makes() {
        let (cache, _) = cache(&make);
        let file = File::new(7, 2 * EXTERNAL_BLOCK_BYTES as usize + 4097);
        let external = ExternalFile::new(&cache, file.bytes.len() as u64).expect("there are numbers");
        for _ in 0..3 {
            for number in 0..file.blocks() {
                assert_eq!(file.read(&external, number), file.block(number), "{make:?}");
            }
        }
        assert_eq!(file.reads.load(Ordering::Relaxed), 3, "{make:?}");
        let metrics = cache.metrics();
        assert_eq!((metrics.external_misses, metrics.external_hits, metrics.misses), (3, 6, 3), "{make:?}");
    }
}

#[test]
fn external_blocks_and_pages_displace_each_other_and_what_was_pinned_stays_as_it_is() {
    let (cache, medium) = cache(&options(NEAR_BYTES_MIN));
    let file = File::new(3, 6 * EXTERNAL_BLOCK_BYTES as usize);
    let external = ExternalFile::new(&cache, file.bytes.len() as u64).expect("there are numbers");
    let pinned = file.read(&external, 0);
    let pages: Vec<PageId> = (0..3000)
        .map(|version| {
            let (page, mut leaf) = cache.create_leaf().expect("room: fresh pages are written in place");
            leaf.copy_from_slice(&image(Kind::Leaf, version));
            page
        })
        .collect();
    for _ in 0..2 {
        for number in 0..file.blocks() {
            assert_eq!(file.read(&external, number), file.block(number));
        }
        for (page, version) in pages.iter().zip(0..) {
            assert_eq!(body(&cache.read(*page).expect("reads")), body(&image(Kind::Leaf, version)));
        }
    }
    assert!(file.reads.load(Ordering::Relaxed) > 6, "the cache is smaller than all of it");
    assert_eq!(pinned, file.block(0));
    assert!(
        medium.pages.lock().keys().all(|page| *page < crate::page::FIRST_EXTERNAL),
        "an external block was written in place"
    );
}

#[test]
fn a_failed_reading_is_told_as_it_is_and_leaves_nothing() {
    #[derive(Debug, PartialEq)]
    struct Gone;
    impl From<StoreError> for Gone {
        fn from(error: StoreError) -> Gone {
            panic!("the cache itself can: {error}")
        }
    }
    let (cache, _) = cache(&options(NEAR_BYTES_MIN));
    let file = File::new(5, 100);
    let external = ExternalFile::new(&cache, 100).expect("there are numbers");
    assert_eq!(external.block(0, |_| Err(Gone)), Err(Gone));
    assert_eq!(file.read(&external, 0), file.block(0));
    assert_eq!(file.reads.load(Ordering::Relaxed), 1);
}

#[test]
fn numbers_of_an_external_file_that_went_are_given_out_again_and_show_nothing_of_it() {
    let (cache, _) = cache(&options(NEAR_BYTES_MIN));
    let (old, new) = (File::new(5, 100_000), File::new(9, 50_000));
    let external = ExternalFile::new(&cache, 100_000).expect("there are numbers");
    let pinned = old.read(&external, 0);
    let first = external.first();
    drop(external);
    let external = ExternalFile::new(&cache, 50_000).expect("there are numbers");
    assert_eq!(external.first(), first);
    assert_eq!(new.read(&external, 0), new.block(0));
    assert_eq!(pinned, old.block(0));
    let beside = ExternalFile::new(&cache, 3 * EXTERNAL_BLOCK_BYTES).expect("there are numbers");
    assert_ne!(beside.first(), first);
    let more = EXTERNAL_BLOCK_BYTES << 20;
    let large: Vec<ExternalFile> = std::iter::from_fn(|| ExternalFile::new(&cache, more).ok()).take(100).collect();
    assert!(large.len() < 100, "numbers end");
    drop(large);
    ExternalFile::new(&cache, more).expect("they were given back");
}
