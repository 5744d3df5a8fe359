//! Every command that cannot be, with the exact error; after each the session goes on.

use nbd::Export;

use crate::client::{
    CACHE, DONT_FRAGMENT, FAST_ZERO, FLUSH, FUA, NO_HOLE, ONE_EXTENT, READ, STATUS, TRIM, WRITE, ZEROES,
};
use crate::rig::{Rig, memory};

const PERM: u32 = 1;
const INVALID: u32 = 22;
const NO_SPACE: u32 = 28;
const OVERFLOW: u32 = 75;
const NOT_SUPPORTED: u32 = 95;

const END: u64 = 1 << 20;
const LONG: u32 = (32 << 20) + 1;

/// Name, export, flags, command, offset, length, error with simple replies, error with structured replies and contexts.
type Case = (&'static str, &'static str, u16, u16, u64, u32, u32, u32);

const CASES: &[Case] = &[
    ("read of the last byte", "disk", 0, READ, END - 1, 1, 0, 0),
    ("read past the end", "disk", 0, READ, END - 1, 2, INVALID, INVALID),
    ("read beyond the end", "disk", 0, READ, END, 1, INVALID, INVALID),
    ("read whose end overflows", "disk", 0, READ, u64::MAX, 512, INVALID, INVALID),
    ("read of nothing", "disk", 0, READ, 0, 0, INVALID, INVALID),
    ("read of too much", "disk", 0, READ, 0, LONG, INVALID, INVALID),
    ("read of too much in one piece", "disk", DONT_FRAGMENT, READ, 0, LONG, INVALID, OVERFLOW),
    ("read in one piece", "disk", DONT_FRAGMENT, READ, 0, 512, INVALID, 0),
    ("read with FUA", "disk", FUA, READ, 0, 512, 0, 0),
    ("read with a flag of nobody", "disk", 1 << 15, READ, 0, 512, INVALID, INVALID),
    ("write up to the end", "disk", 0, WRITE, END - 3, 3, 0, 0),
    ("write past the end", "disk", 0, WRITE, END - 3, 4, NO_SPACE, NO_SPACE),
    ("write whose end overflows", "disk", 0, WRITE, u64::MAX, 512, NO_SPACE, NO_SPACE),
    ("write of nothing", "disk", 0, WRITE, 0, 0, INVALID, INVALID),
    ("write of too much", "disk", 0, WRITE, 0, LONG, INVALID, INVALID),
    ("write with a flag of nobody", "disk", 1 << 15, WRITE, 0, 5000, INVALID, INVALID),
    ("write in one piece", "disk", DONT_FRAGMENT, WRITE, 0, 512, INVALID, INVALID),
    ("trim past the end", "disk", 0, TRIM, END - 512, 513, NO_SPACE, NO_SPACE),
    ("trim of nothing", "disk", 0, TRIM, 0, 0, INVALID, INVALID),
    ("trim of a byte", "disk", 0, TRIM, 1, 1, 0, 0),
    ("zeros past the end", "disk", 0, ZEROES, END, 1, NO_SPACE, NO_SPACE),
    ("zeros of 4 GiB", "disk", 0, ZEROES, 0, u32::MAX, NO_SPACE, NO_SPACE),
    ("zeros, all flags but fast", "disk", FUA | NO_HOLE, ZEROES, 1, 9999, 0, 0),
    ("fast zeros where none are", "disk", FAST_ZERO, ZEROES, 0, 4096, NOT_SUPPORTED, NOT_SUPPORTED),
    ("fast zeros", "fast", FAST_ZERO, ZEROES, 0, 4096, 0, 0),
    ("fast zeros of a part of a block", "fast", FAST_ZERO, ZEROES, 0, 4095, NOT_SUPPORTED, NOT_SUPPORTED),
    ("fast zeros with space", "fast", FAST_ZERO | NO_HOLE, ZEROES, 0, 4096, NOT_SUPPORTED, NOT_SUPPORTED),
    ("cache", "disk", 0, CACHE, 1, 10_000, 0, 0),
    ("cache past the end", "disk", 0, CACHE, 0, END as u32 + 1, INVALID, INVALID),
    ("flush", "disk", 0, FLUSH, 0, 0, 0, 0),
    ("flush of a range", "disk", 0, FLUSH, 0, 512, INVALID, INVALID),
    ("flush somewhere", "disk", 0, FLUSH, 512, 0, INVALID, INVALID),
    ("status", "disk", 0, STATUS, 0, 512, INVALID, 0),
    ("status of one extent", "disk", ONE_EXTENT, STATUS, 0, 512, INVALID, 0),
    ("status past the end", "disk", 0, STATUS, END, 512, INVALID, INVALID),
    ("status of nothing", "disk", 0, STATUS, 0, 0, INVALID, INVALID),
    ("resize", "disk", 0, 8, 0, 512, INVALID, INVALID),
    ("command of nobody", "disk", 0, 999, 0, 512, INVALID, INVALID),
    ("read, read-only", "locked", 0, READ, 0, 512, 0, 0),
    ("flush, read-only", "locked", 0, FLUSH, 0, 0, 0, 0),
    ("cache, read-only", "locked", 0, CACHE, 0, 512, 0, 0),
    ("status, read-only", "locked", 0, STATUS, 0, 512, INVALID, 0),
    ("write, read-only", "locked", 0, WRITE, 0, 512, PERM, PERM),
    ("write with FUA, read-only", "locked", FUA, WRITE, 0, 512, PERM, PERM),
    ("trim, read-only", "locked", 0, TRIM, 0, 512, PERM, PERM),
    ("zeros, read-only", "locked", 0, ZEROES, 0, 512, PERM, PERM),
];

#[test]
fn each_command_has_the_exact_error_and_the_session_goes_on() {
    let rig = Rig::new([
        Export::new("disk", memory(END)),
        Export { fast_zero: true, ..Export::new("fast", memory(END)) },
        Export { read_only: true, ..Export::new("locked", memory(END)) },
    ]);
    for export in ["disk", "fast", "locked"] {
        for (kind, mut client) in rig.both(export) {
            for (name, _, flags, command, offset, length, simple, structured) in
                CASES.iter().filter(|case| case.1 == export)
            {
                let payload = vec![0; if *command == WRITE { *length as usize } else { 0 }];
                let reply = client.request(*flags, *command, *offset, *length, &payload);
                let expected = if kind == "simple, unix" { simple } else { structured };
                assert_eq!(reply.error, *expected, "{name}, {kind}");
                assert_eq!(client.read(4000, 200), [0; 200], "after {name}, {kind}");
            }
        }
    }
}

#[test]
fn a_write_that_states_more_than_is_ever_skipped_ends_its_session() {
    let rig = Rig::of(memory(END));
    let (mut wrong, mut good) = (rig.simple("disk"), rig.structured("disk"));
    wrong.begin(0, WRITE, 0, u32::MAX, &[]);
    assert_eq!(wrong.until_end(), b"");
    assert_eq!(good.write(0, b"as before"), 0);
}
