//! [`CountedHeap`]: a global allocator that counts what chosen threads take and give back, for who has to bound it.
//!
//! ```text
//!   thread --count_here--> HeapCount          allocations of COUNTED_BYTES and more add their bytes, frees take them off
//! ```
//!
//! A count is what its threads took less what they gave back, whoever took it: what one thread makes and another one frees
//! belongs to the sum of their counts. Small allocations are not counted, so that a thread that nobody counts, and one that makes
//! small things, pays a comparison for each.
//!
//! It refuses nothing: who counts asks, and stops what takes too much.
//!
//! All blocks come from mimalloc, but for large ones: those are mappings of their own, and go back to the system when they are freed.
//! mimalloc keeps them for a second or until the thread ends: what is bounded by what is allocated would take twice that (2026-11-22:
//! a statement that may take 64 MiB took 160, and the next one began with 128 of them). From which size on, see [`MAPPED_BYTES`] and
//! [`give_back_soon`].

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use mimalloc::MiMalloc;

/// Allocations below this are not counted: columns and texts that could fill a memory are larger, and a message's parts are not.
pub const COUNTED_BYTES: usize = 1024;

/// Blocks from here on are mappings. Each costs a fault for every page that is touched: queries that keep making columns of some hundred
/// kilobytes took a quarter longer when those were mappings (2026-11-23).
pub const MAPPED_BYTES: usize = 4 << 20;

/// The same after [`give_back_soon`].
pub const MAPPED_SOON_BYTES: usize = 256 << 10;

/// Mappings from here on are of huge pages where the system has them: caches that stay.
const HUGE_BYTES: usize = 64 << 20;

/// Mappings begin where pages do.
const PAGE_BYTES: usize = 4096;

/// What a thread may keep of what it freed.
const FREED_BYTES: usize = 4 << 20;

/// Bytes that some threads took and did not give back; below zero where they gave back what others took.
#[derive(Debug, Default)]
pub struct HeapCount(AtomicI64);

impl HeapCount {
    /// Bytes now.
    pub fn bytes(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts from here.
    pub fn set(&self, bytes: i64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that were counted elsewhere.
    pub fn add(&self, bytes: i64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A thread's count is kept alive here.
struct Owner(Option<Arc<HeapCount>>);

impl Drop for Owner {
    fn drop(&mut self) {
        // The thread ends: what it frees from here on is not counted.
        COUNT.set(ptr::null());
    }
}

thread_local! {
    static COUNT: Cell<*const HeapCount> = const { Cell::new(ptr::null()) };
    /// Freed by a counted thread since it gave back.
    static FREED: Cell<usize> = const { Cell::new(0) };
    static OWNER: RefCell<Owner> = const { RefCell::new(Owner(None)) };
}

/// From now on, until it ends, what this thread takes and gives back is counted there. Nothing is counted where
/// [`CountedHeap`] is not the global allocator.
pub fn count_here(count: &Arc<HeapCount>) {
    COUNT.set(ptr::null());
    let old = OWNER.with(|owner| owner.borrow_mut().0.replace(Arc::clone(count)));
    drop(old);
    COUNT.set(Arc::as_ptr(count));
}

/// `mi_option_purge_delay` of mimalloc.h, for which the binding has no name, and milliseconds for it: a hundredth of the default.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
const PURGE_DELAY_MS: std::ffi::c_long = 10;

/// Where blocks begin to be mappings.
static MAPPED_FROM: AtomicUsize = AtomicUsize::new(MAPPED_BYTES);

/// From now on blocks of [`MAPPED_SOON_BYTES`] and more are mappings, and mimalloc gives freed pages back to the system after 10 ms, not
/// after a second. At once would cost a third of the speed of short queries (2026-11-22). For a program whose bound of memory is small.
pub fn give_back_soon() {
    MAPPED_FROM.store(MAPPED_SOON_BYTES, Ordering::Relaxed);
    // SAFETY: the option is one that this version knows, and has a number for its value; threads that free meanwhile read the old one or
    // the new one.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, PURGE_DELAY_MS) }
}

/// mimalloc, counted. Make it the global allocator.
#[derive(Debug)]
pub struct CountedHeap;

/// For a counted thread that is about to rest: what it has freed goes back to the system, if that is much. mimalloc keeps a thread's pages
/// for that thread, however long it rests.
pub fn give_back_here() {
    if FREED.get() > FREED_BYTES {
        FREED.set(0);
        // SAFETY: it frees pages of this thread's heap that hold no block, and those that no thread has.
        unsafe { libmimalloc_sys::mi_collect(true) }
    }
}

#[inline]
fn note(bytes: usize, sign: i64) {
    if bytes < COUNTED_BYTES {
        return;
    }
    let count = COUNT.get();
    if !count.is_null() {
        // SAFETY: a pointer that is not null is that of the count in this thread's OWNER, which sets the pointer to null before it
        // lets go of the count, here and when the thread ends.
        unsafe { &*count }.add(sign * bytes as i64);
        if sign < 0 {
            FREED.set(FREED.get() + bytes);
        }
    }
}

/// Whether a new block of this layout is to be a mapping.
fn is_for_mapping(layout: Layout) -> bool {
    layout.size() >= MAPPED_SOON_BYTES
        && layout.size() >= MAPPED_FROM.load(Ordering::Relaxed)
        && layout.align() <= PAGE_BYTES
}

/// Whether a block is a mapping. Its layout tells, which is the same when it is freed, unless it was made at a time when blocks of its
/// size were none.
fn is_mapping(pointer: *mut u8, layout: Layout) -> bool {
    if layout.size() < MAPPED_SOON_BYTES || layout.align() > PAGE_BYTES {
        return false;
    }
    // SAFETY: it looks up an address in mimalloc's own map of its pages, and follows it nowhere.
    layout.size() >= MAPPED_BYTES || !unsafe { libmimalloc_sys::mi_is_in_heap_region(pointer.cast()) }
}

/// A mapping of so many zeros; null where the system gives none.
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
        // SAFETY: advice about the mapping that was just made changes nothing of what it holds. Without huge pages it fails, and the
        // mapping is as good.
        unsafe { libc::madvise(pointer, bytes, libc::MADV_HUGEPAGE) };
    }
    pointer.cast()
}

// SAFETY: a block that is a mapping is as large as its layout says and begins at a page, which no alignment that is_for_mapping takes
// exceeds; it is not used by others until it is unmapped. All other calls are handed on unchanged to an allocator that keeps the
// contract. is_mapping tells by the block itself where it came from, so that each is freed there. Counting neither allocates
// nor unwinds: COUNT has no destructor and needs no initialisation, so that it can be read at any time of a thread's life.
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
        // SAFETY: the caller says that the size, rounded up to the alignment, is one that a layout may have.
        let after = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_mapping(pointer, layout), is_for_mapping(after)) {
            (true, true) => {
                // SAFETY: the block is a mapping of this size, and the caller uses the old address no more if there is a new one.
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
                    // SAFETY: both blocks have as many bytes as the smaller one, the new one is nobody else's, and the old one is given
                    // up by the caller.
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
            // The end of a scope does not wait until the thread has let go of its count; joining does.
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
                    // Blocks that were made before it was said stay what they are.
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
