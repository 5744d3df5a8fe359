//! Batches of requests do what the single calls do.

use std::sync::{Arc, Mutex};

use device::{AlignedBuffer, BLOCK_BYTES, DeviceError, IoKind, IoRequest, IoSink, MemoryShelf, Shelf};

#[derive(Default)]
struct Completed(Mutex<Vec<(u64, bool, Vec<u8>)>>);

impl IoSink for Completed {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        self.0.lock().expect("no panic").push((request.token, result.is_ok(), request.buffer.to_vec()));
    }
}

#[test]
fn a_batch_does_what_the_single_calls_do() {
    let shelf = MemoryShelf::new();
    let device = shelf.create("a", 8 * BLOCK_BYTES as u64).expect("memory");
    let completed = Arc::new(Completed::default());
    let sink: Arc<dyn IoSink> = completed.clone();
    let block = |value| AlignedBuffer::from(&[value; BLOCK_BYTES][..]);
    let at = |index: u64| index * BLOCK_BYTES as u64;
    let mut batch = vec![
        IoRequest::write(at(1), block(1), 10),
        IoRequest::write_flush(at(2), block(2), 11),
        IoRequest::flush(12),
        IoRequest::discard(at(1), BLOCK_BYTES as u64, 13),
        IoRequest::write(at(3), block(3), 16),
        IoRequest::write(at(4), block(3), 17),
        IoRequest { kind: IoKind::WriteZeroes { free: false }, ..IoRequest::discard(at(3), BLOCK_BYTES as u64, 18) },
        IoRequest { kind: IoKind::WriteZeroes { free: true }, ..IoRequest::discard(at(4), BLOCK_BYTES as u64, 19) },
    ];
    device.submit(&mut batch, &sink);
    assert!(batch.is_empty(), "a batch is taken");
    let reads = (1..5).map(|index| IoRequest::read(at(index), block(9), 20 + index));
    device.submit(&mut reads.collect(), &sink);
    let extents = device.extents(at(0), at(8)).expect("known");
    assert_eq!(extents.iter().map(|extent| extent.bytes).sum::<u64>(), at(8));
    let mut told = std::mem::take(&mut *completed.0.lock().expect("no panic"));
    told.sort_unstable_by_key(|(token, ..)| *token);
    assert!(told.iter().all(|(_, ok, _)| *ok));
    let tokens: Vec<u64> = told.iter().map(|(token, ..)| *token).collect();
    assert_eq!(tokens, [10, 11, 12, 13, 16, 17, 18, 19, 21, 22, 23, 24]);
    let read: Vec<u8> = told[8..].iter().map(|(.., bytes)| bytes[0]).collect();
    assert_eq!(read, [0, 2, 0, 0]);
}
