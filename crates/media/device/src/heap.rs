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

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Allocations below this are not counted: columns and texts that could fill a memory are larger, and a message's parts are not.
pub const COUNTED_BYTES: usize = 1024;

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

/// Another allocator, counted. Make it the global one.
#[derive(Debug)]
pub struct CountedHeap<A>(A);

impl<A> CountedHeap<A> {
    /// Counts what this allocator gives.
    pub const fn new(inner: A) -> CountedHeap<A> {
        CountedHeap(inner)
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
    }
}

// SAFETY: every call is handed on unchanged to an allocator that keeps the contract; counting neither allocates nor unwinds: COUNT
// has no destructor and needs no initialisation, so that it can be read at any time of a thread's life.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountedHeap<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(layout.size(), -1);
        // SAFETY: the caller keeps the contract of `dealloc`, and the block came from the same allocator.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(layout.size(), -1);
        note(size, 1);
        // SAFETY: the caller keeps the contract of `realloc`, and the block came from the same allocator.
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[test]
    fn a_thread_is_counted_where_it_says_and_small_things_are_not() {
        let heap = CountedHeap::new(System);
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
}
