//! Populating: puts blocks that a read missed into the cache, after the read.
//!
//! ```text
//!   read miss: token  ->  read from the capacity  ->  answered  ->  queue (bounded)  ->  place, if the token is still there
//! ```
//!
//! The read never waits: where the queue is full, the blocks are not cached. Without threads the caller does it at the end of the
//! read. Nothing is read twice: what is cached is what the read had.

use super::fills::Fill;
use super::pool::{BLOCK, CachePool, add};
use crate::options::Threads;

/// The reads failed, or their blocks are not wanted.
pub(super) fn cancel(pool: &CachePool, fills: impl IntoIterator<Item = Fill>) {
    for fill in fills {
        pool.shard_of(fill.key).1.lock().cancel_miss(fill.key, fill.token);
    }
}

/// Takes what a read of a range has found; all of the blocks lie in `buffer`, which begins at `offset`.
pub(super) fn take(pool: &CachePool, fills: Vec<Fill>, offset: u64, buffer: &[u8]) {
    for fill in fills {
        let page = fill.key.page * u64::from(pool.layout.page_bytes);
        let at = (page + u64::from(fill.blocks.start) * BLOCK - offset) as usize;
        let data = &buffer[at..at + (fill.blocks.end - fill.blocks.start) as usize * BLOCK as usize];
        if pool.is_poisoned() {
            cancel(pool, [fill]);
        } else if pool.options.threads == Threads::Callers {
            put(pool, &fill, data);
        } else if let Err(fill) = pool.fills.add(fill, data) {
            cancel(pool, [fill]);
        }
    }
}

/// Populates until it is stopped: the work of the thread.
pub(super) fn run(pool: &CachePool) {
    while let Some(fill) = pool.fills.next() {
        device::supervise::rehearse("cache-populate");
        put(pool, &fill, &fill.data);
    }
}

/// Ends the thread after what it is doing.
pub(super) fn stop(pool: &CachePool) {
    cancel(pool, pool.fills.stop());
}

/// Puts blocks into the place of their page, if nothing has changed it since they were read.
fn put(pool: &CachePool, fill: &Fill, data: &[u8]) {
    let (number, shard) = pool.shard_of(fill.key);
    let mut state = shard.lock();
    let Some((local, bits, is_evicted)) = state.begin_fill(fill.key, fill.token, &fill.blocks) else {
        state.cancel_miss(fill.key, fill.token);
        return;
    };
    if is_evicted {
        shard.next_turn(local);
    }
    drop(state);
    let slot = pool.slot_of(number, local);
    let written = bits.runs(pool.layout.blocks()).try_for_each(|run| {
        let from = (run.start - fill.blocks.start) as usize * BLOCK as usize;
        let to = (run.end - fill.blocks.start) as usize * BLOCK as usize;
        pool.cache.write(pool.layout.block_at(slot, run.start), &data[from..to])
    });
    let filled = shard.lock().end_fill(local, written.is_ok());
    match written {
        Ok(()) => add(&pool.counts.populated_bytes, u64::from(filled) * BLOCK),
        Err(error) => drop(pool.poison(None, error)),
    }
}
