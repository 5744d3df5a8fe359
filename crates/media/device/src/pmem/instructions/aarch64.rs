//! The routines on aarch64; registers according to the procedure call standard.
//!
//! ```text
//!   x0   destination, then the result     x1   source, or the length of a line            x2   bytes left
//! ```
//!
//! There is no store past the cache that ends in the persistence domain (`stnp` is a hint), so here it is a store
//! followed by a write-back of its lines. The barrier after write-backs is `dsb sy`, as in Linux's own
//! `dcache_clean_pop` (arch/arm64/mm/cache.S): the point of persistence may lie outside the inner shareable domain.

use std::arch::{asm, global_asm};
use std::ffi::c_void;

global_asm!(
    r#"
    .pushsection .text.device_pmem, "ax", @progbits
    .globl device_pmem_begin, device_pmem_end, device_pmem_fixup
    .globl device_pmem_copy, device_pmem_touch, device_pmem_cvap, device_pmem_cvac
    .hidden device_pmem_begin, device_pmem_end, device_pmem_fixup
    .hidden device_pmem_copy, device_pmem_touch, device_pmem_cvap, device_pmem_cvac

    .balign 64
device_pmem_begin:
device_pmem_copy:
    cmp x2, #16
    b.lo 2f
1:
    ldp x3, x4, [x1], #16
    stp x3, x4, [x0], #16
    sub x2, x2, #16
    cmp x2, #16
    b.hs 1b
2:
    cbz x2, 3f
    ldr x3, [x1]
    str x3, [x0]
    sub x2, x2, #8
3:
    mov x0, x2
    ret

    .balign 16
device_pmem_touch:
    cbz x2, 3f
1:
    ldxr x3, [x0]
    stxr w4, x3, [x0]
    cbnz w4, 1b
    add x0, x0, #4096
    sub x2, x2, #4096
    cbnz x2, 1b
3:
    mov x0, x2
    ret

    .balign 16
device_pmem_cvap:
    cbz x2, 3f
1:
    sys #3, c7, c12, #1, x0
    add x0, x0, x1
    sub x2, x2, x1
    cbnz x2, 1b
3:
    mov x0, x2
    ret

    .balign 16
device_pmem_cvac:
    cbz x2, 3f
1:
    dc cvac, x0
    add x0, x0, x1
    sub x2, x2, x1
    cbnz x2, 1b
3:
    mov x0, x2
    ret

device_pmem_fixup:
    mov x0, x2
    ret
device_pmem_end:
    .popsection
    "#
);

unsafe extern "C" {
    static device_pmem_begin: u8;
    static device_pmem_end: u8;
    static device_pmem_fixup: u8;
    fn device_pmem_copy(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    fn device_pmem_touch(at: *mut u8, unused: usize, bytes: usize) -> usize;
    fn device_pmem_cvap(at: *const u8, line: usize, bytes: usize) -> usize;
    fn device_pmem_cvac(at: *const u8, line: usize, bytes: usize) -> usize;
}

/// `HWCAP_DCPOP` of the auxiliary vector (Linux, arch/arm64/include/uapi/asm/hwcap.h): the CPU has `dc cvap`.
const HWCAP_DCPOP: u64 = 1 << 16;

/// The routines, and the features of this CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArmInstructions {
    /// Cleans to the point of persistence; else to the point of coherency, which is also beyond the caches.
    cvap: bool,
    /// The shortest line of any data cache, a power of two.
    line: usize,
}

impl ArmInstructions {
    /// Detects the features of this CPU; it never fails.
    pub(crate) fn find() -> Result<ArmInstructions, String> {
        let cache_type: u64;
        // SAFETY: CTR_EL0 can be read by every program: Linux allows it, or answers in the CPU's place.
        unsafe { asm!("mrs {}, ctr_el0", out(reg) cache_type, options(nomem, nostack, preserves_flags)) };
        // DminLine: the logarithm of the words of 4 bytes in the shortest line.
        let line = 4usize << (cache_type >> 16 & 0xf);
        // SAFETY: getauxval takes a number and answers one.
        let capabilities = unsafe { libc::getauxval(libc::AT_HWCAP) };
        Ok(ArmInstructions { cvap: capabilities & HWCAP_DCPOP != 0, line })
    }

    /// The name of the instruction that writes a line back.
    pub(crate) fn write_back_name(self) -> &'static str {
        if self.cvap { "dc cvap" } else { "dc cvac" }
    }

    /// Copies from a mapping; returns the number of bytes left, which is not 0 if a page was lost.
    ///
    /// # Safety
    /// `to` is writable and `from` mapped for `bytes`, a multiple of 8; `from` is aligned to 8.
    #[inline]
    pub(crate) unsafe fn load(self, to: *mut u8, from: *const u8, bytes: usize) -> usize {
        // SAFETY: the caller's promise; the routine keeps to the calling convention.
        unsafe { device_pmem_copy(to, from, bytes) }
    }

    /// Copies into a mapping through the cache, words upwards; returns the number of bytes left.
    ///
    /// # Safety
    /// `to` is mapped to write and `from` readable for `bytes`, a multiple of 8; `to` is aligned to 8.
    #[inline]
    pub(crate) unsafe fn store(self, to: *mut u8, from: *const u8, bytes: usize) -> usize {
        // SAFETY: the caller's promise; the routine keeps to the calling convention.
        unsafe { device_pmem_copy(to, from, bytes) }
    }

    /// Stores and writes back; persistent after a fence. Returns the number of bytes left.
    ///
    /// # Safety
    /// As for [`store`](ArmInstructions::store).
    #[inline]
    pub(crate) unsafe fn store_past_cache(self, to: *mut u8, from: *const u8, bytes: usize) -> usize {
        // SAFETY: the caller's promise.
        match unsafe { self.store(to, from, bytes) } {
            // SAFETY: what was stored to is mapped.
            0 => unsafe { self.write_back(to, bytes) },
            left => left,
        }
    }

    /// Writes back every line that the range touches; persistent after a fence. The result is not 0 if a page was lost.
    ///
    /// # Safety
    /// The range is mapped.
    #[inline]
    pub(crate) unsafe fn write_back(self, at: *const u8, bytes: usize) -> usize {
        let line = self.line;
        // A power of two, which the compiler does not know.
        let into = at.addr() & (line - 1);
        let bytes = if bytes == 0 { 0 } else { (into + bytes + line - 1) & !(line - 1) };
        let at = at.wrapping_sub(into);
        // SAFETY: a line lies in one page, so that the lines of a mapped range are mapped; the CPU has the instruction.
        unsafe { if self.cvap { device_pmem_cvap(at, line, bytes) } else { device_pmem_cvac(at, line, bytes) } }
    }

    /// Makes every page of the range present and writable without changing it; returns the number of bytes left, a
    /// multiple of 4096.
    ///
    /// # Safety
    /// The range is mapped to write; address and length are multiples of 4096.
    pub(crate) unsafe fn touch(self, at: *mut u8, bytes: usize) -> usize {
        // SAFETY: the caller's promise; the exclusive store loses no store of another thread.
        unsafe { device_pmem_touch(at, 0, bytes) }
    }

    /// Waits for the calling thread's write-backs.
    #[inline]
    pub(crate) fn fence(self) {
        // SAFETY: a barrier. It may touch memory for the compiler, so that no store is moved across it.
        unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
    }
}

/// Makes an interrupted routine return early; returns `false` if the interrupted code is not a routine.
///
/// # Safety
/// `context` is the third argument of a signal handler, still running.
pub(crate) unsafe fn resume(context: *mut c_void) -> bool {
    // SAFETY: the kernel passes a ucontext_t, and no other code uses it while the handler runs.
    let interrupted = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc };
    let routines = (&raw const device_pmem_begin).addr()..(&raw const device_pmem_end).addr();
    if !routines.contains(&(*interrupted as usize)) {
        return false;
    }
    *interrupted = (&raw const device_pmem_fixup).addr() as u64;
    true
}
