//! Errors of the device, as a client gets them.

use std::sync::Arc;

use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation, Shelf};

use crate::client::{CACHE, FLUSH, FUA, NO_HOLE, READ, TRIM, WRITE, ZEROES};
use crate::rig::Rig;

const IO: u32 = 5;
const NO_SPACE: u32 = 28;

#[test]
fn an_error_of_the_device_is_the_reply_to_its_request_and_to_no_other() {
    use Operation::{Discard, Flush, Read, Write};
    type Case = (&'static str, Operation, Fault, u16, u16, u64, u32, u32);
    let cases: &[Case] = &[
        ("read", Read, Fault::Eio, 0, READ, 0, 4096, IO),
        ("read of a part", Read, Fault::Eio, 0, READ, 1, 100, IO),
        ("long read", Read, Fault::Eio, 0, READ, 0, 200_000, IO),
        ("cache", Read, Fault::Eio, 0, CACHE, 0, 4096, IO),
        ("edge of a write", Read, Fault::Eio, 0, WRITE, 1, 100, IO),
        ("edges of a write", Read, Fault::Eio, 0, WRITE, 1, 10_000, IO),
        ("edge of zeros", Read, Fault::Eio, 0, ZEROES, 1, 10_000, IO),
        ("write", Write, Fault::Eio, 0, WRITE, 0, 4096, IO),
        ("write without space", Write, Fault::NoSpace, 0, WRITE, 0, 4096, NO_SPACE),
        ("part of a block without space", Write, Fault::NoSpace, 0, WRITE, 1, 10, NO_SPACE),
        ("write with FUA", Flush, Fault::Eio, FUA, WRITE, 0, 4096, IO),
        ("flush", Flush, Fault::Eio, 0, FLUSH, 0, 0, IO),
        ("flush without space", Flush, Fault::NoSpace, 0, FLUSH, 0, 0, NO_SPACE),
        ("trim", Discard, Fault::Eio, 0, TRIM, 0, 4096, IO),
        ("trim with FUA", Flush, Fault::Eio, FUA, TRIM, 0, 4096, IO),
        ("zeros", Discard, Fault::Eio, 0, ZEROES, 0, 4096, IO),
        ("zeros with space", Write, Fault::NoSpace, NO_HOLE, ZEROES, 0, 4096, NO_SPACE),
        ("part of a block of zeros", Write, Fault::NoSpace, 0, ZEROES, 1, 10, NO_SPACE),
    ];
    for (name, operation, fault, flags, command, offset, length, expected) in cases {
        for structured in [false, true] {
            let shelf = FaultyShelf::new(Arc::new(MemoryShelf::new()));
            let rig = Rig::of(shelf.create("disk", 1 << 20).expect("memory"));
            let mut client = if structured { rig.structured("disk") } else { rig.simple("disk") };
            shelf.inject(Rule::nth(*operation, 1, *fault));
            let payload = vec![1; if *command == WRITE { *length as usize } else { 0 }];
            let reply = client.request(*flags, *command, *offset, *length, &payload);
            assert_eq!((reply.error, shelf.hits()), (*expected, 1), "{name}, structured: {structured}");
            assert_eq!(client.read(8192, 100), [0; 100], "{name}: the session goes on");
            // A failed write or flush must never be followed by one that succeeds; a failed read may be.
            let after = client.write(5000, b"a part of a block");
            assert_eq!(after, if *operation == Read { 0 } else { IO }, "{name}: a write afterwards");
            assert_eq!(rig.simple("disk").request(0, FLUSH, 0, 0, &[]).error, after, "{name}: another session's flush");
        }
    }
}
