//! The loads, as plain data: what each thread asks for, how much at a time, and on how many volumes.
//!
//! | load | published run |
//! |---|---|
//! | random read, 4 KiB | 4 threads a file, 16 outstanding each, unbuffered, 100 % read |
//! | random 90/10, 4 KiB | the same with 10 % writes |
//! | sequential read, 2 MiB | 2 MiB, 100 % read |
//! | random read, 4 KiB, depth 1; write, depth 1 | none: one request at a time shows what a request takes |

use crate::blocks::BLOCK;

/// The order of offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any block, drawn anew each time.
    Random,
    /// One after the other, from a start of each thread's own.
    Sequential,
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Its name in reports.
    pub name: &'static str,
    /// Bytes of a request, a multiple of 4096.
    pub bytes: usize,
    /// Reads of 100 requests. Below 100 only with requests of one block.
    pub read_percent: u8,
    /// The order of offsets.
    pub order: Order,
    /// Threads on each volume.
    pub threads: usize,
    /// Requests that each thread keeps in progress. With 1, it calls and waits.
    pub outstanding: usize,
    /// On one volume only, whatever the number of volumes.
    pub is_single: bool,
}

/// Most requests of 2 MiB in progress of one thread: more would only be more memory for buffers.
const LARGE_OUTSTANDING_MAX: usize = 2;

impl Load {
    /// All loads, with so many threads on each volume and requests in progress of each.
    pub fn all(threads: usize, outstanding: usize) -> Vec<Load> {
        let random = |name, read_percent| Load {
            name,
            bytes: BLOCK,
            read_percent,
            order: Order::Random,
            threads,
            outstanding,
            is_single: false,
        };
        let alone =
            |name, read_percent| Load { threads: 1, outstanding: 1, is_single: true, ..random(name, read_percent) };
        vec![
            random("random read, 4 KiB", 100),
            random("random 90/10, 4 KiB", 90),
            Load {
                bytes: 2 << 20,
                order: Order::Sequential,
                outstanding: outstanding.min(LARGE_OUTSTANDING_MAX),
                ..random("sequential read, 2 MiB", 100)
            },
            alone("random read, 4 KiB, depth 1", 100),
            alone("random write, 4 KiB, depth 1", 0),
        ]
    }

    /// Requests in progress on one volume.
    pub fn queue_depth(&self) -> usize {
        self.threads * self.outstanding
    }

    /// Blocks of a request.
    pub fn blocks(&self) -> u64 {
        (self.bytes / BLOCK) as u64
    }

    /// Volumes that it uses of `volumes`.
    pub fn volumes(&self, volumes: usize) -> usize {
        if self.is_single { 1 } else { volumes }
    }
}

/// A thread's share of blocks for writes: those whose number leaves `thread` when divided by `threads`.
pub fn own_block(block: u64, thread: u64, threads: u64, blocks: u64) -> u64 {
    let own = block - block % threads + thread;
    if own < blocks { own } else { thread }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_depths_are_the_defaults_and_large_requests_have_fewer() {
        let loads = Load::all(4, 16);
        let depths: Vec<usize> = loads.iter().map(Load::queue_depth).collect();
        assert_eq!(depths, [64, 64, 8, 1, 1]);
        assert!(loads.iter().all(|load| load.read_percent == 100 || load.blocks() == 1));
        assert_eq!(loads[0].volumes(3), 3);
        assert_eq!(loads[3].volumes(3), 1);
    }

    #[test]
    fn every_block_is_written_by_one_thread_and_no_share_leaves_the_device() {
        for (threads, blocks) in [(4, 64), (3, 64), (1, 16), (5, 16)] {
            for block in 0..blocks {
                for thread in 0..threads {
                    let own = own_block(block, thread, threads, blocks);
                    assert!(own < blocks && own % threads == thread, "{threads} {blocks} {block} {thread}");
                }
            }
        }
    }
}
