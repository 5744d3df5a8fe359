//! The routines on x86-64; registers according to the System V calling convention.
//!
//! ```text
//!   rdi   destination     rsi   source            rdx   bytes left        rax   the result
//! ```

use std::arch::global_asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_sfence};
use std::ffi::c_void;

use crate::pmem::lines::LINE_BYTES;

global_asm!(
    r#"
    .pushsection .text.device_pmem, "ax", @progbits
    .globl device_pmem_begin, device_pmem_end, device_pmem_fixup
    .globl device_pmem_load, device_pmem_store, device_pmem_store_past_cache, device_pmem_touch
    .globl device_pmem_clwb, device_pmem_clflushopt, device_pmem_clflush
    .hidden device_pmem_begin, device_pmem_end, device_pmem_fixup
    .hidden device_pmem_load, device_pmem_store, device_pmem_store_past_cache, device_pmem_touch
    .hidden device_pmem_clwb, device_pmem_clflushopt, device_pmem_clflush

    .balign 64
device_pmem_begin:
device_pmem_load:
    test rdx, rdx
    jz 9f
    test rsi, 8
    jz 2f
    mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
2:
    cmp rdx, 64
    jb 4f
    .balign 16
3:
    movdqa xmm0, [rsi]
    movdqa xmm1, [rsi + 16]
    movdqa xmm2, [rsi + 32]
    movdqa xmm3, [rsi + 48]
    movdqu [rdi], xmm0
    movdqu [rdi + 16], xmm1
    movdqu [rdi + 32], xmm2
    movdqu [rdi + 48], xmm3
    add rsi, 64
    add rdi, 64
    sub rdx, 64
    cmp rdx, 64
    jae 3b
4:
    test rdx, rdx
    jz 9f
5:
    mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    jnz 5b
9:
    xor eax, eax
    ret

    .balign 64
device_pmem_store:
    test rdx, rdx
    jz 9f
    .balign 16
5:
    mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    jnz 5b
9:
    xor eax, eax
    ret

    .balign 64
device_pmem_store_past_cache:
    test rdx, rdx
    jz 9f
    test rdi, 8
    jz 2f
    mov rax, [rsi]
    movnti [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
2:
    cmp rdx, 64
    jb 4f
    .balign 16
3:
    movdqu xmm0, [rsi]
    movdqu xmm1, [rsi + 16]
    movdqu xmm2, [rsi + 32]
    movdqu xmm3, [rsi + 48]
    movntdq [rdi], xmm0
    movntdq [rdi + 16], xmm1
    movntdq [rdi + 32], xmm2
    movntdq [rdi + 48], xmm3
    add rsi, 64
    add rdi, 64
    sub rdx, 64
    cmp rdx, 64
    jae 3b
4:
    test rdx, rdx
    jz 9f
5:
    mov rax, [rsi]
    movnti [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    jnz 5b
9:
    xor eax, eax
    ret

    .balign 16
device_pmem_touch:
    test rdx, rdx
    jz 9f
5:
    lock or qword ptr [rdi], 0
    add rdi, 4096
    sub rdx, 4096
    jnz 5b
9:
    xor eax, eax
    ret

    .balign 16
device_pmem_clwb:
    test rdx, rdx
    jz 9f
5:
    clwb [rdi]
    add rdi, 64
    sub rdx, 64
    jnz 5b
9:
    xor eax, eax
    ret

    .balign 16
device_pmem_clflushopt:
    test rdx, rdx
    jz 9f
5:
    clflushopt [rdi]
    add rdi, 64
    sub rdx, 64
    jnz 5b
9:
    xor eax, eax
    ret

    .balign 16
device_pmem_clflush:
    test rdx, rdx
    jz 9f
5:
    clflush [rdi]
    add rdi, 64
    sub rdx, 64
    jnz 5b
9:
    xor eax, eax
    ret

device_pmem_fixup:
    mov rax, rdx
    ret
device_pmem_end:
    .popsection
    "#
);

unsafe extern "C" {
    static device_pmem_begin: u8;
    static device_pmem_end: u8;
    static device_pmem_fixup: u8;
    fn device_pmem_load(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    fn device_pmem_store(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    fn device_pmem_store_past_cache(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    fn device_pmem_touch(at: *mut u8, unused: usize, bytes: usize) -> usize;
    fn device_pmem_clwb(at: *const u8, unused: usize, bytes: usize) -> usize;
    fn device_pmem_clflushopt(at: *const u8, unused: usize, bytes: usize) -> usize;
    fn device_pmem_clflush(at: *const u8, unused: usize, bytes: usize) -> usize;
}

/// The instruction of this CPU to write a line back, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteBack {
    /// Keeps the line in the cache.
    Clwb,
    /// Drops the line from the cache.
    Clflushopt,
    /// Drops the line from the cache, one line after the other.
    Clflush,
}

/// The routines, and the features of this CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct X86Instructions {
    write_back: WriteBack,
}

impl X86Instructions {
    /// Detects the features of this CPU: CPUID leaf 7, EBX bits 24 (clwb) and 23 (clflushopt); every x86-64 has
    /// clflush.
    pub(crate) fn find() -> Result<X86Instructions, String> {
        // Leaf 0 contains the number of leaves.
        let features = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        let write_back = match (features >> 24 & 1, features >> 23 & 1) {
            (1, _) => WriteBack::Clwb,
            (0, 1) => WriteBack::Clflushopt,
            _ => WriteBack::Clflush,
        };
        Ok(X86Instructions { write_back })
    }

    /// The name of the instruction that writes a line back.
    pub(crate) fn write_back_name(self) -> &'static str {
        match self.write_back {
            WriteBack::Clwb => "clwb",
            WriteBack::Clflushopt => "clflushopt",
            WriteBack::Clflush => "clflush",
        }
    }

    /// Copies from a mapping; returns the number of bytes left, which is not 0 if a page was lost.
    ///
    /// # Safety
    /// `to` is writable and `from` mapped for `bytes`, a multiple of 8; `from` is aligned to 8.
    #[inline]
    pub(crate) unsafe fn load(self, to: *mut u8, from: *const u8, bytes: usize) -> usize {
        // SAFETY: the caller's promise; the routine keeps to the calling convention.
        unsafe { device_pmem_load(to, from, bytes) }
    }

    /// Copies into a mapping through the cache, words upwards; returns the number of bytes left.
    ///
    /// # Safety
    /// `to` is mapped to write and `from` readable for `bytes`, a multiple of 8; `to` is aligned to 8.
    #[inline]
    pub(crate) unsafe fn store(self, to: *mut u8, from: *const u8, bytes: usize) -> usize {
        // SAFETY: the caller's promise; the routine keeps to the calling convention.
        unsafe { device_pmem_store(to, from, bytes) }
    }

    /// Copies into a mapping past the cache; persistent after a fence. Returns the number of bytes left.
    ///
    /// # Safety
    /// As for [`store`](X86Instructions::store).
    #[inline]
    pub(crate) unsafe fn store_past_cache(self, to: *mut u8, from: *const u8, bytes: usize) -> usize {
        // SAFETY: the caller's promise; the routine keeps to the calling convention.
        unsafe { device_pmem_store_past_cache(to, from, bytes) }
    }

    /// Writes back every line that the range touches; persistent after a fence. The result is not 0 if a page was lost.
    ///
    /// # Safety
    /// The range is mapped.
    #[inline]
    pub(crate) unsafe fn write_back(self, at: *const u8, bytes: usize) -> usize {
        let into = at.addr() % LINE_BYTES;
        let bytes = if bytes == 0 { 0 } else { (into + bytes).next_multiple_of(LINE_BYTES) };
        let at = at.wrapping_sub(into);
        // SAFETY: a line lies in one page, so that the lines of a mapped range are mapped; the CPU has the instruction.
        unsafe {
            match self.write_back {
                WriteBack::Clwb => device_pmem_clwb(at, 0, bytes),
                WriteBack::Clflushopt => device_pmem_clflushopt(at, 0, bytes),
                WriteBack::Clflush => device_pmem_clflush(at, 0, bytes),
            }
        }
    }

    /// Makes every page of the range present and writable without changing it; returns the number of bytes left, a
    /// multiple of 4096.
    ///
    /// # Safety
    /// The range is mapped to write; address and length are multiples of 4096.
    pub(crate) unsafe fn touch(self, at: *mut u8, bytes: usize) -> usize {
        // SAFETY: the caller's promise; the or with 0 is atomic, so that it loses no store of another thread.
        unsafe { device_pmem_touch(at, 0, bytes) }
    }

    /// Waits for the calling thread's stores past the cache and write-backs.
    #[inline]
    pub(crate) fn fence(self) {
        // SAFETY: every x86-64 has SSE; the instruction touches no memory.
        unsafe { _mm_sfence() }
    }
}

/// Makes an interrupted routine return early; returns `false` if the interrupted code is not a routine.
///
/// # Safety
/// `context` is the third argument of a signal handler, still running.
pub(crate) unsafe fn resume(context: *mut c_void) -> bool {
    // SAFETY: the kernel passes a ucontext_t, and no other code uses it while the handler runs.
    let interrupted = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] };
    let routines = (&raw const device_pmem_begin).addr()..(&raw const device_pmem_end).addr();
    if !routines.contains(&(*interrupted as usize)) {
        return false;
    }
    *interrupted = (&raw const device_pmem_fixup).addr() as i64;
    true
}
