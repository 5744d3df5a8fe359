//! [`CountedHeap`]: a global allocator that counts the allocations of chosen threads, for code that must bound them.
//!
//! ```text
//!   thread --count_here--> HeapCount          allocations of COUNTED_BYTES and more add their bytes, frees subtract them
//! ```
//!
//! A count is what its threads allocated less what they freed, whichever thread allocated it: memory that one thread
//! allocates and another one frees belongs to the sum of their counts. Small allocations are not counted. So a thread
//! that is not counted, and small allocations, cost one comparison each.
//!
//! The allocator refuses nothing: the code that bounds memory reads the count, and stops what takes too much.
//!
//! All blocks come from mimalloc, except large ones: those are separate mappings, and return to the system when they
//! are freed. mimalloc keeps freed blocks for a second or until the thread ends, so that a bound on allocations would
//! allow twice that memory (2026-11-22: a statement with a limit of 64 MiB took 160, and the next one began with 128 of
//! them). [`MAPPED_BYTES`] and [`give_back_soon`] document the size from which blocks are mappings.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use mimalloc::MiMalloc;

/// Allocations below this are not counted: columns and texts that could fill memory are larger, and a message's parts
/// are not.
pub const COUNTED_BYTES: usize = 1024;

/// Blocks from this size on are mappings. A mapping causes a page fault for every page that is touched: queries that
/// repeatedly create columns of some hundred kilobytes took a quarter longer when those were mappings (2026-11-23).
pub const MAPPED_BYTES: usize = 4 << 20;

/// As [`MAPPED_BYTES`], after [`give_back_soon`].
pub const MAPPED_SOON_BYTES: usize = 256 << 10;

/// Mappings from this size on use huge pages if the system has them: caches that stay.
const HUGE_BYTES: usize = 64 << 20;

/// Alignment of mappings.
const PAGE_BYTES: usize = 4096;

/// How much freed memory a thread may keep.
const FREED_BYTES: usize = 4 << 20;

/// Bytes that some threads allocated and did not free; negative if they freed memory that others allocated.
#[derive(Debug, Default)]
pub struct HeapCount(AtomicI64);

impl HeapCount {
    /// The current count.
    pub fn bytes(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the count.
    pub fn set(&self, bytes: i64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that were counted elsewhere.
    pub fn add(&self, bytes: i64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Keeps a thread's count alive.
struct Owner(Option<Arc<HeapCount>>);

impl Drop for Owner {
    fn drop(&mut self) {
        // The thread ends: what it frees from here on is not counted.
        COUNT.set(ptr::null());
    }
}

thread_local! {
    static COUNT: Cell<*const HeapCount> = const { Cell::new(ptr::null()) };
    /// Bytes that a counted thread freed since it last returned memory.
    static FREED: Cell<usize> = const { Cell::new(0) };
    static OWNER: RefCell<Owner> = const { RefCell::new(Owner(None)) };
}

/// From now on, until the thread ends, its allocations and frees are counted in `count`. Nothing is counted if
/// [`CountedHeap`] is not the global allocator.
pub fn count_here(count: &Arc<HeapCount>) {
    COUNT.set(ptr::null());
    let old = OWNER.with(|owner| owner.borrow_mut().0.replace(Arc::clone(count)));
    drop(old);
    COUNT.set(Arc::as_ptr(count));
}

/// `mi_option_purge_delay` of mimalloc.h, for which the binding has no name; and its value in milliseconds: a hundredth
/// of the default.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
const PURGE_DELAY_MS: std::ffi::c_long = 10;

/// The size from which blocks are mappings.
static MAPPED_FROM: AtomicUsize = AtomicUsize::new(MAPPED_BYTES);

/// From now on blocks of [`MAPPED_SOON_BYTES`] and more are mappings, and mimalloc returns freed pages to the system
/// after 10 ms, not after a second. Returning them at once would cost a third of the speed of short queries
/// (2026-11-22). For a program with a small memory limit.
pub fn give_back_soon() {
    MAPPED_FROM.store(MAPPED_SOON_BYTES, Ordering::Relaxed);
    // SAFETY: this version has the option, and its value is a number. Threads that free memory meanwhile read the old
    // value or the new one.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, PURGE_DELAY_MS) }
    without_huge_pages();
}

/// Makes mimalloc's arena of small pages. Each thread has pages of its own in it, of which it uses a part: with huge pages each such page
/// takes 2 MiB of memory. 50 connections that read slowly took 830 MB instead of 256 MiB (2026-11-23).
fn without_huge_pages() {
    let block = Box::new([0_u8; COUNTED_BYTES]);
    let at = ptr::from_ref(&*block).addr();
    let Ok(mappings) = std::fs::read_to_string("/proc/self/maps") else { return };
    for line in mappings.lines() {
        let range = line.split_ascii_whitespace().next().and_then(|range| range.split_once('-'));
        let Some((from, to)) = range else { continue };
        let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)) else { continue };
        if (from..to).contains(&at) {
            // SAFETY: advice about the pages of a mapping changes nothing of its content, whoever owns it. If the system refuses it, the
            // program takes more memory.
            unsafe { libc::madvise(ptr::without_provenance_mut(from), to - from, libc::MADV_NOHUGEPAGE) };
        }
    }
}

/// mimalloc, counted. Use it as the global allocator.
#[derive(Debug)]
pub struct CountedHeap;

/// For a counted thread that is about to wait: returns the memory that it has freed to the system, if it is much.
/// mimalloc keeps a thread's pages for that thread, however long it waits.
pub fn give_back_here() {
    if FREED.get() > FREED_BYTES {
        FREED.set(0);
        // SAFETY: it frees pages of this thread's heap that have no block, and pages that no thread has.
        unsafe { libmimalloc_sys::mi_collect(true) }
    }
}

/// As [`give_back_here`], for a thread that ends, however little it freed.
pub fn give_back_at_end() {
    // SAFETY: as above.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

#[inline]
fn note(bytes: usize, sign: i64) {
    if bytes < COUNTED_BYTES {
        return;
    }
    let count = COUNT.get();
    if !count.is_null() {
        // SAFETY: a pointer that is not null is that of the count in this thread's OWNER. OWNER sets the pointer to
        // null before it releases the count, here and when the thread ends.
        unsafe { &*count }.add(sign * bytes as i64);
        if sign < 0 {
            FREED.set(FREED.get() + bytes);
        }
    }
}

/// Whether a new block of this layout must be a mapping.
fn is_for_mapping(layout: Layout) -> bool {
    layout.size() >= MAPPED_SOON_BYTES
        && layout.size() >= MAPPED_FROM.load(Ordering::Relaxed)
        && layout.align() <= PAGE_BYTES
}

/// Whether a block is a mapping. Its layout determines that, and is the same when it is freed, unless the block was
/// allocated when blocks of its size were not mappings.
fn is_mapping(pointer: *mut u8, layout: Layout) -> bool {
    if layout.size() < MAPPED_SOON_BYTES || layout.align() > PAGE_BYTES {
        return false;
    }
    // SAFETY: it looks up an address in mimalloc's own map of its pages, and does not follow it.
    layout.size() >= MAPPED_BYTES || !unsafe { libmimalloc_sys::mi_is_in_heap_region(pointer.cast()) }
}

/// Creates a mapping of this many zeros; null if the system refuses.
fn map(bytes: usize) -> *mut u8 {
    // SAFETY: an anonymous mapping at an address that the system chooses touches no memory that is in use.
    let pointer = unsafe {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0)
    };
    if pointer == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    if bytes >= HUGE_BYTES {
        // SAFETY: advice about the mapping that was just made does not change its content. Without huge pages the call
        // fails, and the mapping is still valid.
        unsafe { libc::madvise(pointer, bytes, libc::MADV_HUGEPAGE) };
    }
    pointer.cast()
}

// SAFETY: a block that is a mapping is as large as its layout, and begins at a page; is_for_mapping accepts no larger
// alignment. It is not used by others until it is unmapped. All other calls are passed on unchanged to an allocator
// that keeps the contract. is_mapping determines the origin of a block from the block itself, so each is freed by the
// allocator it came from. Counting neither allocates nor unwinds: COUNT has no destructor and needs no initialisation,
// so it can be read at any time of a thread's life.
unsafe impl GlobalAlloc for CountedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        if is_for_mapping(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(layout.size(), -1);
        if is_mapping(pointer, layout) {
            // SAFETY: the block is a mapping of this size, and the caller gives it up. Unmapping it whole does not fail.
            unsafe { libc::munmap(pointer.cast(), layout.size()) };
            return;
        }
        // SAFETY: the caller keeps the contract of `dealloc`, and the block came from the same allocator.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        if is_for_mapping(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the size, rounded up to the alignment, is valid for a layout.
        let after = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_mapping(pointer, layout), is_for_mapping(after)) {
            (true, true) => {
                // SAFETY: the block is a mapping of this size, and the caller does not use the old address if there is
                // a new one.
                let moved = unsafe { libc::mremap(pointer.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) };
                if moved == libc::MAP_FAILED {
                    return ptr::null_mut();
                }
                note(layout.size(), -1);
                note(size, 1);
                moved.cast()
            }
            (false, false) => {
                note(layout.size(), -1);
                note(size, 1);
                // SAFETY: the caller keeps the contract of `realloc`, and the block came from the same allocator.
                unsafe { MiMalloc.realloc(pointer, layout, size) }
            }
            _ => {
                // SAFETY: the caller keeps the contract of `realloc`: the size is not zero.
                let moved = unsafe { self.alloc(after) };
                if !moved.is_null() {
                    // SAFETY: both blocks have at least as many bytes as the smaller one. The new block is used only
                    // here, and the caller gives up the old one.
                    unsafe {
                        ptr::copy_nonoverlapping(pointer, moved, layout.size().min(size));
                        self.dealloc(pointer, layout);
                    }
                }
                moved
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_counted_where_it_says_and_small_things_are_not() {
        let heap = CountedHeap;
        let count = Arc::new(HeapCount::default());
        let others = Arc::new(HeapCount::default());
        let layout = |bytes| Layout::from_size_align(bytes, 8).expect("it is a layout");
        std::thread::scope(|scope| {
            let counted = scope.spawn(|| {
                count_here(&others);
                count_here(&count);
                // SAFETY: the layouts are not empty, and each block is given back once, with its layout.
                unsafe {
                    let block = heap.alloc(layout(5000));
                    let small = heap.alloc_zeroed(layout(100));
                    assert_eq!(count.bytes(), 5000);
                    let block = heap.realloc(block, layout(5000), 9000);
                    assert_eq!(count.bytes(), 9000);
                    heap.dealloc(block, layout(9000));
                    heap.dealloc(small, layout(100));
                }
                assert_eq!(count.bytes(), 0);
            });
            // The end of a scope does not wait until the thread has dropped its count; joining does.
            counted.join().expect("it does not panic");
        });
        assert_eq!((others.bytes(), Arc::strong_count(&count)), (0, 1));
    }

    #[test]
    fn a_block_keeps_its_bytes_as_it_grows_and_shrinks_across_mappings() {
        let heap = CountedHeap;
        for (align, changes) in [1, 8, 64, PAGE_BYTES, 2 * PAGE_BYTES].into_iter().flat_map(|a| [(a, false), (a, true)])
        {
            let (soon, large) = (MAPPED_SOON_BYTES, MAPPED_BYTES);
            let sizes =
                [100, soon - 1, soon, 3 * soon + 5, 2 * soon, 5000, 7 * soon, large, 2 * large, soon, large + 1];
            let layout = |bytes| Layout::from_size_align(bytes, align).expect("it is a layout");
            // SAFETY: the layouts are not empty, only bytes of the block are touched, and it is given back once, with its layout.
            unsafe {
                let mut block = heap.alloc_zeroed(layout(sizes[0]));
                assert!((0..sizes[0]).all(|at| *block.add(at) == 0));
                (0..sizes[0]).for_each(|at| *block.add(at) = at as u8);
                for (n, pair) in sizes.windows(2).enumerate() {
                    // Blocks that were allocated before the change remain as they are.
                    if changes {
                        MAPPED_FROM.store(if n % 2 == 0 { soon } else { large }, Ordering::Relaxed);
                    }
                    block = heap.realloc(block, layout(pair[0]), pair[1]);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align), "{align} {pair:?}");
                    assert!((0..sizes[0]).all(|at| *block.add(at) == at as u8), "{align} {pair:?}");
                    let last = pair[1] - 1;
                    *block.add(last) = last as u8;
                }
                heap.dealloc(block, layout(sizes[sizes.len() - 1]));
                for bytes in [2 * soon, 2 * large] {
                    let zeros = heap.alloc_zeroed(layout(bytes));
                    assert_eq!((*zeros, *zeros.add(bytes - 1)), (0, 0));
                    heap.dealloc(zeros, layout(bytes));
                }
                MAPPED_FROM.store(large, Ordering::Relaxed);
            }
        }
    }
}
