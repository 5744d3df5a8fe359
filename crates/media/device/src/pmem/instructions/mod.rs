//! The machine-code routines through which all loads and stores to a mapping go.
//!
//! ```text
//!   routine            x86-64                              aarch64
//!   load               16-byte loads                       ldp
//!   store              8-byte stores, upwards              stp, upwards
//!   store past cache   movntdq, movnti at the ends         stp, then dc cvap line by line
//!   write back         clwb | clflushopt | clflush         dc cvap | dc cvac
//!   touch              lock or with 0, page by page        ldxr, stxr, page by page
//!   fence              sfence                              dsb sy
//! ```
//!
//! Plain copies are not possible: a page of a mapping can disappear while it is used (poison, or another process
//! truncates the file). Then the CPU stops in the middle of an instruction and the kernel sends `SIGBUS`. The code here
//! is written so that it can be stopped at any instruction without harm.
//!
//! Invariants of every routine, on which the signal handler in `guard.rs` relies:
//! 1. It lies between the labels `device_pmem_begin` and `device_pmem_end`.
//! 2. It keeps nothing on the stack and uses only registers that a C function may overwrite.
//! 3. One register contains the number of bytes left, and decreases only after the bytes have been moved.
//!
//! So from any instruction of any routine, a jump to the label `device_pmem_fixup` returns to the caller, with the
//! number of bytes left. A routine that ran to its end returns 0.
//!
//! Words of 8 bytes are never torn: addresses in the mapping and lengths are multiples of 8, and every access to it is
//! an aligned one of 8 or 16 bytes. (An aligned 16-byte access is atomic on every CPU with AVX; on an older one it may
//! be two of 8. Intel 64 SDM vol. 3A, "Guaranteed Atomic Operations".)
//!
//! Other CPUs have no routines: [`Instructions`] is then a type without values, and [`Instructions::find`] always
//! returns the error.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{ArmInstructions as Instructions, resume};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use other::{NoInstructions as Instructions, resume};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{X86Instructions as Instructions, resume};

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;
    use crate::AlignedBuffer;

    /// A routine that moves bytes, as a safe function on slices of equal length.
    type Move = Box<dyn Fn(&mut [u8], &[u8])>;

    fn moves(instructions: Instructions) -> [(&'static str, Move); 3] {
        let check = |to: &mut [u8], from: &[u8]| assert_eq!(to.len(), from.len());
        [
            (
                "load",
                Box::new(move |to, from| {
                    check(to, from);
                    // SAFETY: both are slices of that length, and borrowed for the call.
                    assert_eq!(unsafe { instructions.load(to.as_mut_ptr(), from.as_ptr(), to.len()) }, 0);
                }),
            ),
            (
                "store",
                Box::new(move |to, from| {
                    check(to, from);
                    // SAFETY: as above.
                    assert_eq!(unsafe { instructions.store(to.as_mut_ptr(), from.as_ptr(), to.len()) }, 0);
                }),
            ),
            (
                "store past the cache",
                Box::new(move |to, from| {
                    check(to, from);
                    // SAFETY: as above.
                    assert_eq!(unsafe { instructions.store_past_cache(to.as_mut_ptr(), from.as_ptr(), to.len()) }, 0);
                    instructions.fence();
                }),
            ),
        ]
    }

    #[test]
    fn every_routine_moves_exactly_its_bytes_from_and_to_any_word_and_any_byte_of_memory() {
        let instructions = Instructions::find().expect("this CPU");
        let source: Vec<u8> = (0..2000u32).map(|at| (at * 7 % 251) as u8).collect();
        for (name, moves) in moves(instructions) {
            for at in (0..80).step_by(8) {
                for bytes in (0..=600).step_by(8) {
                    for shift in [0, 1, 8, 13] {
                        // The side that is a mapping is aligned to words, the other one is not aligned.
                        let (from, to) = if name == "load" { (at, shift) } else { (shift, at) };
                        let mut memory = AlignedBuffer::zeroed(1024);
                        let aligned = AlignedBuffer::from(&source[..]);
                        moves(&mut memory[to..to + bytes], &aligned[from..from + bytes]);
                        assert!(memory[to..to + bytes] == source[from..from + bytes], "{name} {from} {to} {bytes}");
                        let around = memory[..to].iter().chain(&memory[to + bytes..]);
                        assert!(around.into_iter().all(|byte| *byte == 0), "{name} {from} {to} {bytes}: around it");
                    }
                }
            }
        }
    }

    #[test]
    fn writing_back_and_touching_change_nothing() {
        let instructions = Instructions::find().expect("this CPU");
        let mut memory = AlignedBuffer::from(&[7; 3 * 4096][..]);
        for (at, bytes) in [(0, 1), (60, 8), (100, 1000), (4095, 4097), (0, 0)] {
            // SAFETY: the range lies in the buffer, which is borrowed.
            assert_eq!(unsafe { instructions.write_back(memory.as_ptr().add(at), bytes) }, 0, "{at}+{bytes}");
            instructions.fence();
        }
        let bytes = memory.len();
        // SAFETY: whole pages of a buffer that is borrowed exclusively.
        assert_eq!(unsafe { instructions.touch(memory.as_mut_ptr(), bytes) }, 0);
        assert!(memory.iter().all(|byte| *byte == 7));
    }
}
